"""Whole paths that skip the exact utility if the bounds of the utility are close together.

Many trials take each step together. Trials whose bounds are too far apart at a step are gathered
into tiles and evaluated, because a `cond` under `vmap` would evaluate all trials.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.keys import trial_key
from nrjax._base.numerics import exact_float
from nrjax._base.pytrees import Pytree
from nrjax._base.validation import check, check_positive
from nrjax.engine import steps
from nrjax.engine.interaction import Interaction
from nrjax.engine.path import Path, path_step, run_path
from nrjax.simulation.tiles import Options, run_batches, where_wanted
from nrjax.types import Utility, overrides


class Resolved(Pytree):
    """An interaction whose utility is needed only up to a resolution.

    Attributes:
        interaction: the interaction.
        resolution: largest distance between bounds at which their middle replaces the utility,
            scalar, in units of the utility.

    Raises:
        ValueError: `resolution` is not positive and finite, or the utility has no bounds.
    """

    interaction: Interaction
    resolution: Any

    def __post_init__(self):
        check_positive("resolution", self.resolution)
        utility = self.interaction.utility.at(jnp.int32(0))
        bounded = overrides(utility, Utility, "bounds")
        expected = f"None, since {type(utility).__name__} has no bounds"
        check(bounded, "resolution", self.resolution, expected)

    def estimate(self, step: Array, process: Any) -> tuple[Any, Array, Array]:
        """Return the hypothesis, the middle of its bounds, and whether the bounds are close."""
        trial = self.interaction
        utility = trial.utility.at(step)
        hypothesis = utility.hypothesis(steps.release_of(trial, process))
        bounds = utility.bounds(hypothesis, rounding=False)
        low, high = (jnp.asarray(bound, trial.dtype) for bound in bounds)
        # False for bounds that are NaN or inverted.
        close = (low <= high) & (high - low <= self.resolution)
        return hypothesis, low + 0.5 * (high - low), close

    def exact(self, step: Array, hypothesis: Any) -> Array:
        """Return the exact utility of a hypothesis."""
        trial = self.interaction
        return exact_float(trial.utility.at(step).evaluate(hypothesis), trial.dtype)

    def path(self, key: Array, length: int) -> Path:
        """Return the path of one trial, like `nrjax.engine.path.run_path`."""

        def assess(step: Array, process: Any) -> tuple[Any, Array]:
            hypothesis, middle, close = self.estimate(step, process)
            return hypothesis, jnp.where(close, middle, self.exact(step, hypothesis))

        return run_path(self.interaction, key, length, assess)


def run(
    trial: Resolved, key: Array, first: Array, count: Array, options: Options
) -> dict[str, Any]:
    """Run whole paths like `tiles.run`, but `options.lanes` (a power of two) at a time."""
    tile, lanes = options.tile, min(options.lanes, options.capacity)

    def take_step(carry: Any, _: Any) -> tuple[Any, Path]:
        state, _ended = carry
        # In tiles, because the last bits of a matrix product depend on the number of its rows.
        arguments = state.step, state.process
        hypothesis, middle, close = jax.lax.map(
            lambda lane: trial.estimate(*lane), arguments, batch_size=tile
        )
        exact = jax.vmap(trial.exact)
        utility = where_wanted(~close, tile, exact, (state.step, hypothesis), middle)

        def step_lane(carry: Any, *assessed: Any) -> tuple[Any, Path]:
            return path_step(trial.interaction, carry, *assessed)

        return jax.vmap(step_lane)(carry, hypothesis, utility)

    def paths(numbers: Array) -> dict[str, Any]:
        keys = jax.vmap(lambda number: trial_key(key, first + number))(numbers)
        start = jax.vmap(lambda key: steps.start(trial.interaction, key))(keys)
        carry = start, jnp.zeros((lanes,), bool)
        _, rows = jax.lax.scan(take_step, carry, None, length=options.length)
        rows = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)
        return jax.vmap(options.select_fields)(rows)

    return run_batches(paths, count, lanes, options.capacity)
