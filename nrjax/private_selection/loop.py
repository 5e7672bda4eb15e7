"""The loop of a private selection over the runs of its base mechanism, and its results."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.keys import check_key
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import Pytree, record, static
from nrjax._base.threefry import jax_key
from nrjax._base.validation import check, check_numbers


@record
class Candidate(NamedTuple):
    """The private output of one run of a base mechanism.

    Attributes:
        score: quality of the result, scalar. What a run costs includes the score, so a score that
            depends on private data needs noise.
        result: an array or a pytree of arrays, of the same shapes in all runs.
        epsilon: ex-post epsilon of this run, scalar; None if every run costs the epsilon that the
            base is called with.
    """

    score: Array
    result: Any
    epsilon: Array | None = None


@record
class Selected(NamedTuple):
    """The public outcome of a private selection, which is all that `epsilon` pays for.

    The number of runs or of failures, and the time taken, are not public.

    Attributes:
        stage: number of the stage that published, from 1; 0 if nothing was published, int32.
        score: score of the published result, NaN if there is none.
        result: the published result. Zeros if `stage` is 0: read it only if `stage` is above 0.
        epsilon: ex-post epsilon that was paid in total.
    """

    stage: Array
    score: Array
    result: Any
    epsilon: Array


@record
class Simulated(NamedTuple):
    """A public outcome, with a number that only a simulation may report.

    Attributes:
        public: the public outcome.
        runs: number of runs of the base mechanism, int32. Never publish it.
    """

    public: Selected
    runs: Array


class Plan(NamedTuple):
    """The limits of a selection: caps of epsilon and clock at the end of each stage.

    `gap` draws the clock's step before each run; None is a step of 1 after it.
    """

    caps: Array
    ends: Array
    gap: Callable[[Array], Array] | None
    first: bool


class Selection(Pytree, abc.ABC):
    """A base mechanism that is run until a stage publishes, or until the last stage ends."""

    base: Callable[..., Candidate] = static()

    def __post_init__(self: Any):
        check(callable(self.base), "base", self.base, "a function base(key, epsilon, *data)")
        check_numbers("threshold", self.threshold, lambda n: ~np.isnan(n), "a number")
        listed = isinstance(self.data, (tuple, list))
        check(listed, "data", self.data, "a tuple of arguments of the base")

    def _candidate(self: Any, key: Array, epsilon: Any) -> Candidate:
        """Run the base once, and check what it returns."""
        made = self.base(key, epsilon, *self.data)
        expected = "an nrjax.private_selection.Candidate"
        hint = "Return Candidate(score, result)."
        check(isinstance(made, Candidate), "result of base", made, expected, hint)
        return made

    @abc.abstractmethod
    def plan(self, key: Array) -> Plan:
        """Return the limits of a selection, drawn if they are random."""

    @abc.abstractmethod
    def cost(self, stage: Any, epsilon: Any = None) -> Array:
        """Return the epsilon of publishing at a stage, rounded up, where stage 0 is nothing."""

    def run(self, key: Array) -> Selected:
        """Run the selection with a random key, also under `jit` and `vmap`."""
        return self.simulate(key).public

    @neutral_config()
    def simulate(self, key: Array) -> Simulated:
        """Return the public outcome of `run`, with the number of runs for a simulation's report."""
        own: Any = self
        key, planned = jax.random.split(jax_key(check_key(key)))
        caps, ends, gap, first = self.plan(planned)

        def moved(clock: Array, number: Array) -> Array:
            return clock if gap is None else clock + gap(jax.random.fold_in(key, 2 * number))

        def candidate(number: Array, stage: Array) -> Candidate:
            return self._candidate(jax.random.fold_in(key, 2 * number + 1), caps[stage])

        def step(state: Any) -> Any:
            clock, last, found, best, runs = state
            stage = jnp.sum(clock >= ends, dtype=jnp.int32)
            new = candidate(runs, stage)
            success = new.score >= own.threshold
            if new.epsilon is not None:
                success &= new.epsilon <= caps[stage]
            better = success & ((found == 0) | (new.score > best.score))  # ties: the earlier run
            last = jnp.where(success, clock if first else ends[stage], last)
            found = jnp.where(success, stage + 1, found)
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
            return moved(clock + (0 if gap else 1), runs + 1), last, found, best, runs + 1

        none = jnp.int32(0)
        form = jax.eval_shape(candidate, none, none)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
        # No number of runs is drawn beforehand, so no buffer truncates its distribution.
        start = moved(jnp.zeros_like(ends[0]), none), ends[-1], none, blank, none
        _, _, stage, best, runs = jax.lax.while_loop(lambda state: state[0] < state[1], step, start)
        score = jnp.where(stage > 0, best.score, jnp.nan)
        return Simulated(Selected(stage, score, best.result, self.cost(stage, best.epsilon)), runs)
