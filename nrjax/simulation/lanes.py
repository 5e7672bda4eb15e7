"""The loop of one device for utilities with bounds: lanes, refilled with the next trials.

A lane holds one trial at a time. Lanes take a few masked steps together. When the trial of a lane
has ended, its outcome is written and the lane gets the next trial. Releases that bounds do not
decide are assessed in tiles of a fixed number of trials, because the last bits of a matrix product
depend on the batch size. (In a batch of a power of two they do not depend on the place.)
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.keys import is_key, step_key, trial_key
from nrjax._base.outcome import Status
from nrjax._base.tracing import cached_trace
from nrjax.engine import steps
from nrjax.engine.interaction import Interaction
from nrjax.engine.steps import TrialState
from nrjax.simulation.families import Family, Single, Trials, as_family
from nrjax.simulation.tiles import Options, where_wanted


class Lanes(NamedTuple):
    """The trials that run on one device, and the outcomes of the trials that have ended.

    Attributes:
        state: states of the lanes' trials.
        varied: leaves that differ between the points of a sweep, each lane with those of the point
            that it runs. `Family.member` takes them.
        trial: number of the trial in each lane, counted within the device, int32. In a sweep each
            point of a trial has a number, and those of one trial follow each other.
        occupied: whether a lane has a trial whose outcome is not written yet.
        awaiting_exact: whether the trial ended at a release that bounds decided, so that its exact
            utility is still needed.
        next_trial: number of the next trial to start, int32.
        outcomes: outcomes of all trials of the device, one row per trial.
    """

    state: TrialState
    varied: Any
    trial: Array
    occupied: Array
    awaiting_exact: Array
    next_trial: Array
    outcomes: dict[str, Any]

    @property
    def running(self) -> Array:
        """Whether each lane's trial is still running."""
        return self.occupied & (self.state.status == Status.RUNNING)

    @property
    def ended(self) -> Array:
        """Whether each lane's trial has ended and its outcome is not written yet."""
        return self.occupied & ~self.running


class DeviceTrials(NamedTuple):
    """The trials that one device runs, with the options of the run.

    Attributes:
        family: the interactions.
        key: key of the study.
        first: number of the first trial.
        size: number of trials times number of points, int32.
        options: options of the run.
    """

    family: Single | Family
    key: Array
    first: Array
    size: Array
    options: Options

    @property
    def points(self) -> int:
        """The number of points of a sweep, or 1 without a sweep."""
        return math.prod(self.family.axes)

    @property
    def lanes(self) -> int:
        """The number of lanes, at least two: a single lane may round differently."""
        return min(self.options.lanes, max(self.options.capacity, 2))

    @property
    def rows(self) -> int:
        """The number of rows of the results, one per trial and point."""
        return self.options.capacity * self.points

    def member(self, number: Array) -> Interaction:
        """Return the interaction of the device's trial `number`."""
        return self.family.member(self.family.select(number % self.points))

    def start(self, number: Array) -> tuple[Any, TrialState]:
        """Return the varied leaves and the first state of the device's trial `number`."""
        varied = self.family.select(number % self.points)
        key = trial_key(self.key, self.first + (number // self.points).astype(jnp.uint32))
        return varied, steps.start(self.family.member(varied), key)

    def finish(self, varied: Any, state: TrialState) -> dict[str, Any]:
        """Return the selected results of a trial that has ended."""
        trial = self.family.member(varied)
        return self.options.select_fields(steps.finish(trial, state), trial)

    def vmap(self, function: Callable[..., Any], varied: Any, *arguments: Any) -> Any:
        """Map a function of an interaction and arguments over lanes, each with its own point."""

        def call(varied: Any, *arguments: Any) -> Any:
            return function(self.family.member(varied), *arguments)

        return jax.vmap(call)(varied, *arguments)

    def empty_lanes(self) -> Lanes:
        """Return lanes that hold no trial, with zeros for their results."""

        def blank(leaf: Any) -> Array:
            shape = (self.lanes, *leaf.shape)
            return jnp.broadcast_to(leaf, shape) if is_key(leaf) else jnp.zeros(shape, leaf.dtype)

        number, nothing = jnp.zeros(self.lanes, jnp.int32), jnp.zeros(self.lanes, bool)
        # Keys, of which there are several kinds, are copied from the first trial.
        varied, state = jax.tree.map(blank, self.start(jnp.int32(0)))
        form = jax.eval_shape(lambda number: self.finish(*self.start(number)), jnp.int32(0))
        rows = jax.tree.map(lambda leaf: jnp.zeros((self.rows, *leaf.shape), leaf.dtype), form)
        return Lanes(state, varied, number, nothing, nothing, jnp.int32(0), rows)

    def split_by_point(self, outcomes: dict[str, Any]) -> dict[str, Any]:
        """Reshape the rows of results to axes (trials, points) in a sweep, else (trials,)."""
        axes = (self.options.capacity, *self.family.axes)
        return jax.tree.map(lambda rows: rows.reshape(*axes, *rows.shape[1:]), outcomes)


def trials_of_device(
    trials: Trials, key: Array, first: Array, count: Array, options: Options
) -> DeviceTrials:
    """Return the trials of a device: `first` to `first + count`, at all points."""
    family = as_family(trials)
    return DeviceTrials(family, key, first, count * math.prod(family.axes), options)


@cached_trace
def decide_from_bounds(trial: Interaction, state: TrialState) -> tuple[Array, Array]:
    """Return whether bounds decide the rule's answer, and a stand-in for the utility.

    The rule is monotone: if it gives both bounds the same answer, it gives that answer to the
    utility too. The stand-in is the bound further from the threshold, so that the rule gives the
    same answer in a program that rounds differently. Bounds that are NaN decide nothing. For
    inverted bounds, which end the trial, the stand-in is NaN.
    """
    utility = trial.utility.at(state.step)
    bounds = utility.bounds_from_release(steps.release_of(trial, state.process))
    pair = jnp.stack([jnp.asarray(bound, trial.dtype) for bound in bounds])
    query = step_key(state.query, state.step)
    epsilon = steps.release_epsilon(trial, state.process, state.time)
    # The noise of the rule is drawn once: only the utility is mapped.
    low, high = jax.vmap(lambda bound: trial.rule.step(query, state.rule, epsilon, bound)[1])(pair)
    inverted = pair[0] > pair[1]
    decided = ((low == high) & ~jnp.any(jnp.isnan(pair))) | inverted
    return decided, jnp.where(inverted, jnp.nan, jnp.where(high, pair[1], pair[0]))


def _assess_wanted(local: DeviceTrials, carry: Lanes, wanted: Array) -> tuple[Any, Array]:
    """Return hypotheses and utilities, new in the wanted lanes and unchanged in other lanes."""
    state = carry.state
    current = (state.hypothesis, state.utility)
    arguments = (carry.varied, state.step, state.process)
    assess = partial(local.vmap, steps.assess)
    # XLA moves work that does not depend on the tile's number out of the loop (all of it, if the
    # lanes are one tile). Without a branch it would be done even if no lane is wanted.
    return jax.lax.cond(
        jnp.any(wanted),
        lambda: where_wanted(wanted, local.options.tile, assess, arguments, current),
        lambda: current,
    )


class _Assessed(NamedTuple):
    """The input of the rule in every lane.

    Attributes:
        hypothesis: the new hypothesis if `evaluated`, else an earlier one.
        utility: utility of the hypothesis, or a stand-in if `decided`.
        decided: whether the trial runs and bounds decide the answer, so that a stand-in is judged.
        evaluated: whether hypothesis and utility are exact and new.
    """

    hypothesis: Any
    utility: Array
    decided: Array
    evaluated: Array


def _assess(local: DeviceTrials, carry: Lanes, needs_exact: Array) -> _Assessed:
    """Assess the running lanes that bounds do not decide, and the lanes in `needs_exact`.

    Such lanes are few. They wait until there are enough for a batch, unless no other lane can make
    progress.
    """
    tile, running, state = local.options.tile, carry.running, carry.state
    decided, stand_in = local.vmap(decide_from_bounds, carry.varied, state)
    decided &= running
    wanted = (running & ~decided) | needs_exact
    enough = jnp.sum(wanted, dtype=jnp.int32) >= min(tile, _enough_to_batch(local.lanes))
    evaluated = wanted & (enough | ~jnp.any(decided))
    hypothesis, utility = _assess_wanted(local, carry, evaluated)
    return _Assessed(hypothesis, jnp.where(decided, stand_in, utility), decided, evaluated)


def _enough_to_batch(lanes: int) -> int:
    """Return the least number of lanes for which expensive work is done."""
    return max(1, lanes // 8)


def _step(local: DeviceTrials, carry: Lanes, needs_exact: Array) -> tuple[TrialState, Array]:
    """Take a step of the running lanes, and assess the ended lanes in `needs_exact`.

    Returns:
        The states, and whether each lane awaits an exact utility.
    """
    was_running = carry.running
    assessed = _assess(local, carry, needs_exact)
    deferred = was_running & ~assessed.decided & ~assessed.evaluated

    def judge(
        trial: Interaction,
        state: TrialState,
        assessed: _Assessed,
        deferred: Array,
        needs_exact: Array,
    ) -> TrialState:
        utility = assessed.utility
        # Any status but RUNNING makes `steps.judge` leave the lane as it is.
        held = state._replace(status=jnp.where(deferred, Status.EXHAUSTED, state.status))
        new = steps.judge(trial, held, assessed.hypothesis, utility)
        # Only a stand-in for inverted bounds is NaN where bounds decide.
        wrong = assessed.decided & jnp.isnan(utility) & (new.status != Status.INVALID_COST)
        status = jnp.where(wrong, Status.INVALID_BOUNDS, new.status)
        new = new._replace(status=status.astype(jnp.int32))
        exact = new._replace(hypothesis=assessed.hypothesis, utility=utility)
        return jax.tree.map(lambda new, old: jnp.where(needs_exact, new, old), exact, new)

    needs_exact &= assessed.evaluated
    state = local.vmap(judge, carry.varied, carry.state, assessed, deferred, needs_exact)
    # In a separate branch: XLA would draw the rule's noise again for every entry of a release.
    state = jax.lax.cond(
        jnp.any(state.status == Status.RUNNING),
        lambda: local.vmap(steps.advance, carry.varied, state),
        lambda: state,
    )
    status = jnp.where(deferred, carry.state.status, state.status)
    awaiting = carry.awaiting_exact & ~assessed.evaluated
    awaiting = jnp.where(was_running, assessed.decided & local.options.exact, awaiting)
    return state._replace(status=status), awaiting


def _refill(local: DeviceTrials, carry: Lanes) -> Lanes:
    """Write the outcomes of ended trials, and start the next trials in the free lanes."""
    written = carry.ended & ~carry.awaiting_exact
    free = written | ~carry.occupied
    finished = jax.vmap(local.finish)(carry.varied, carry.state)

    def write(buffer: Array, row: Array) -> Array:
        place = jnp.where(written, carry.trial, buffer.shape[0])
        return buffer.at[place].set(row, mode="drop")

    number = carry.next_trial + jnp.cumsum(free, dtype=jnp.int32) - 1
    taken = free & (number < local.size)
    fresh = jax.vmap(local.start)(number)

    # Lanes that get no trial also need some valid state: they take steps with the others.
    def pick(new: Array, old: Array) -> Array:
        return jnp.where(free.reshape(free.shape + (1,) * (new.ndim - 1)), new, old)

    varied, state = jax.tree.map(pick, fresh, (carry.varied, carry.state))
    return Lanes(
        state=state,
        varied=varied,
        trial=jnp.where(taken, number, carry.trial),
        occupied=(carry.occupied & ~free) | taken,
        awaiting_exact=carry.awaiting_exact & ~free,
        next_trial=carry.next_trial + jnp.sum(taken, dtype=jnp.int32),
        outcomes=jax.tree.map(write, carry.outcomes, finished),
    )


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Run trials `first` to `first + count` on one device, and return their outcomes."""
    local = trials_of_device(trials, key, first, count, options)

    def enough_to_start(ended: Array, carry: Lanes) -> Array:
        """Return whether enough lanes have ended to start trials, which can be expensive."""
        enough = jnp.sum(ended, dtype=jnp.int32) >= _enough_to_batch(local.lanes)
        return enough & (carry.next_trial < local.size)

    def take_step(_: Array, carry: Lanes) -> Lanes:
        running, ended = carry.running, carry.ended
        # If no trial is left to start, ended lanes wait for the last one to end.
        needs_exact = (
            ended & carry.awaiting_exact & (enough_to_start(ended, carry) | ~jnp.any(running))
        )
        state, awaiting_exact = jax.lax.cond(
            jnp.any(running | needs_exact),
            lambda: _step(local, carry, needs_exact),
            lambda: (carry.state, carry.awaiting_exact),
        )
        return carry._replace(state=state, awaiting_exact=awaiting_exact)

    def body(carry: Lanes) -> Lanes:
        carry = jax.lax.fori_loop(0, options.inner_steps, take_step, carry)
        ended = carry.ended
        under_way = carry.running | (ended & carry.awaiting_exact)
        enough = enough_to_start(ended & ~carry.awaiting_exact, carry)
        return jax.lax.cond(
            enough | ~jnp.any(under_way), lambda: _refill(local, carry), lambda: carry
        )

    # A lane is occupied until its outcome is written, also if its trial failed at the start.
    def unfinished(carry: Lanes) -> Array:
        return jnp.any(carry.occupied) | (carry.next_trial < local.size)

    rows = jax.lax.while_loop(unfinished, body, local.empty_lanes()).outcomes
    return local.split_by_point(rows)
