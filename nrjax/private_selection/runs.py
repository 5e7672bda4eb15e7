"""The loop of a private selection over its runs, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.pytrees import record


@record
class Candidate(NamedTuple):
    """The private output of one run of a base mechanism.

    Attributes:
        score: quality of the result, scalar. The loss that the run costs includes the score: if it
            depends on private data, it has noise.
        result: an array or a pytree of arrays, of the same shapes in all runs.
        epsilon: ex-post epsilon of this run, scalar; None if every run costs the epsilon that the
            base is called with.
    """

    score: Array
    result: Any
    epsilon: Array | None = None


@record
class Selected(NamedTuple):
    """The public outcome of a private selection.

    It has neither the number of runs nor of failures: publishing either costs more. Nor does the
    epsilon cover the time that a selection took.

    Attributes:
        stage: number of the stage that published, from 1; 0 if nothing was published, int32.
        score: score of the published result, NaN if there is none.
        result: the published result, zeros if there is none.
        epsilon: ex-post epsilon that was paid in total.
    """

    stage: Array
    score: Array
    result: Any
    epsilon: Array


@record
class Simulated(NamedTuple):
    """A public outcome together with what only a simulation may report.

    Attributes:
        public: the public outcome, which is all that `epsilon` pays for.
        runs: number of runs of the base mechanism, int32. Never publish it.
    """

    public: Selected
    runs: Array


class Loop(NamedTuple):
    """The state of a selection between two runs.

    Attributes:
        clock: position of the next run.
        last: clock at which the selection ends.
        stage: number of the stage with a success, from 1; 0 without one.
        best: the candidate to publish, blank without a success.
        runs: number of runs so far.
    """

    clock: Array
    last: Array
    stage: Array
    best: Candidate
    runs: Array


def run_stages(
    key: Array,
    run: Callable[[Array, Array], Candidate],
    succeeds: Callable[[Candidate, Array], Array],
    ends: Array,
    gap: Callable[[Array], Array] | None,
    first: bool,
) -> Loop:
    """Run a base mechanism until a stage publishes, or until the last stage ends.

    A clock moves by `gap` before each run, or by 1 after it without a `gap`, and stage i ends at
    `ends[i]`. No number of runs is drawn beforehand, so no buffer truncates its distribution.

    Args:
        key: key of the selection.
        run: the base, a function of a key and the number of the stage, from 0.
        succeeds: whether a candidate succeeds, given the number of its stage.
        ends: clock at the end of each stage, shape (stages,).
        gap: function of a key that draws the clock's step: exponential for Poisson numbers of runs.
        first: whether to publish the first success of a stage; otherwise the best one.
    """

    def moved(clock: Array, number: Array) -> Array:
        return clock if gap is None else clock + gap(jax.random.fold_in(key, 2 * number))

    def step(state: Loop) -> Loop:
        stage = jnp.sum(state.clock >= ends, dtype=jnp.int32)
        candidate = run(jax.random.fold_in(key, 2 * state.runs + 1), stage)
        success = succeeds(candidate, stage)
        # Ties go to the earlier run. A NaN score is no success.
        better = success & ((state.stage == 0) | (candidate.score > state.best.score))
        last = state.clock if first else jnp.minimum(state.last, ends[stage])
        runs, after = state.runs + 1, state.clock + (0 if gap else 1)
        return Loop(
            clock=moved(after, runs),
            last=jnp.where(success, last, state.last),
            stage=jnp.where(success, stage + 1, state.stage),
            best=jax.tree.map(lambda new, old: jnp.where(better, new, old), candidate, state.best),
            runs=runs,
        )

    form = jax.eval_shape(run, key, jnp.int32(0))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
    none = jnp.int32(0)
    start = Loop(moved(jnp.zeros_like(ends[0]), none), ends[-1], none, blank, none)
    return jax.lax.while_loop(lambda state: state.clock < state.last, step, start)


def published(state: Loop, cost: Callable[[Array, Array | None], Array]) -> Simulated:
    """Return the outcome of a loop, given the cost of a stage and of the published run."""
    score = jnp.where(state.stage > 0, state.best.score, jnp.nan)
    epsilon = cost(state.stage, state.best.epsilon)
    return Simulated(Selected(state.stage, score, state.best.result, epsilon), state.runs)
