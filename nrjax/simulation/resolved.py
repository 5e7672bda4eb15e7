"""Whole paths whose utility is the middle of its bounds, where these are close together.

Lanes of trials go along the levels side by side. Those whose bounds are too far apart at a level
are gathered into tiles and evaluated: a `cond` of each would, mapped, evaluate them all.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax._numerics import exact_float
from nrjax._validation import check, check_positive
from nrjax.interaction import Interaction
from nrjax.keys import trial_key
from nrjax.pytrees import Pytree
from nrjax.simulation.tiles import Options, in_turn, where_wanted
from nrjax.types import Utility, overrides


class Resolved(Pytree):
    """An interaction whose utility is only to be known to a resolution.

    Attributes:
        interaction: what is run.
        resolution: how far apart bounds may be for their middle to serve, scalar, in units of the
            utility.

    Raises:
        ValueError: `resolution` is not positive and finite, or the utility has no bounds.
    """

    interaction: Interaction
    resolution: Any

    def __post_init__(self):
        check_positive("resolution", self.resolution)
        utility = self.interaction.utility.at(jnp.int32(0))
        bounded = overrides(utility, Utility, "bounds")
        bounded |= overrides(utility, Utility, "enclosure")
        right = f"None, since {type(utility).__name__} has no bounds"
        check(bounded, "resolution", self.resolution, right)

    def estimate(self, step: Array, process: Any) -> tuple[Any, Array, Array]:
        """Hypothesis of a release, the middle of its utility's bounds, and whether that will do."""
        trial = self.interaction
        utility = trial.utility.at(step)
        hypothesis = utility.hypothesis(engine.release_of(trial, process))
        low, high = (jnp.asarray(one, trial.dtype) for one in utility.enclosure(hypothesis))
        # Neither where they are NaN, nor the wrong way round.
        close = (low <= high) & (high - low <= self.resolution)
        return hypothesis, low + 0.5 * (high - low), close

    def exact(self, step: Array, hypothesis: Any) -> Array:
        """The utility itself."""
        trial = self.interaction
        return exact_float(trial.utility.at(step).evaluate(hypothesis), trial.dtype)

    def path(self, key: Array, length: int) -> engine.Path:
        """`engine.path` of one trial."""

        def assess(step: Array, process: Any) -> tuple[Any, Array]:
            hypothesis, middle, close = self.estimate(step, process)
            return hypothesis, jnp.where(close, middle, self.exact(step, hypothesis))

        return engine.path(self.interaction, key, length, assess)


def run(
    trial: Resolved, key: Array, first: Array, count: Array, options: Options
) -> dict[str, Any]:
    """As `tiles.run`, of whole paths, `lanes` at a time; a power of two, as `tile` is."""
    tile, lanes = options.tile, min(options.lanes, options.capacity)

    def take_step(carry: Any, _: Any) -> tuple[Any, engine.Path]:
        state, _ended = carry
        # In tiles too: a matrix product's last bits depend on how many rows it has.
        parts = state.step, state.process
        assessed = jax.lax.map(lambda some: trial.estimate(*some), parts, batch_size=tile)
        hypothesis, middle, close = assessed
        exactly = jax.vmap(trial.exact)
        utility = where_wanted(~close, tile, exactly, (state.step, hypothesis), middle)

        def one(carry: Any, *assessed: Any) -> tuple[Any, engine.Path]:
            return engine.path_step(trial.interaction, carry, *assessed)

        return jax.vmap(one)(carry, hypothesis, utility)

    def paths(numbers: Array) -> dict[str, Any]:
        own = jax.vmap(lambda number: trial_key(key, first + number))(numbers)
        begun = jax.vmap(lambda key: engine.start(trial.interaction, key))(own)
        carry = begun, jnp.zeros((lanes,), bool)
        _, found = jax.lax.scan(take_step, carry, None, length=options.length)
        found = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)
        return jax.vmap(options.kept_of)(found)

    return in_turn(paths, count, lanes, options.capacity)
