"""What one device does with its share of the trials.

A fixed number of lanes take a few masked steps at a time; lanes whose trial has ended are written
out and refilled with the next trials. Releases are assessed in tiles of a fixed number of trials: a
matrix product differs in the last bits between batch sizes, not between places in a batch of a
power of two.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.engine import TrialState
from nrjax.interaction import Interaction
from nrjax.keys import is_key, trial_key
from nrjax.simulation.tiles import Options, where_wanted
from nrjax.types import Status


class Trials(Protocol):
    """An `Interaction`, or a `nrjax.simulation.sweeps.Family` of them: all points of a sweep."""

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of a result beside that of trials: () or (points,)."""
        ...

    def at(self, point: Array) -> Any:
        """What one point has of its own."""
        ...

    def member(self, varied: Any) -> Interaction:
        """The interaction of the point that has this of its own."""
        ...


class Lanes(NamedTuple):
    """Trials under way on one device, and the outcomes of those that ended."""

    state: TrialState
    varied: Any
    """What each lane's trial has of its own among the trials of a sweep; else nothing."""
    trial: Array
    """Number of each lane's trial within the share, int32: of a sweep, point by point."""
    occupied: Array
    needs_exact: Array
    """Whether the last release was judged by bounds alone: one that ended the trial is still to be
    assessed."""
    following: Array
    """Number of the next trial to start, int32."""
    outcomes: dict[str, Any]

    @property
    def running(self) -> Array:
        """Whether each lane's trial goes on."""
        return self.occupied & (self.state.status == Status.RUNNING)

    @property
    def ended(self) -> Array:
        """Whether each lane's trial has ended, and is not written out yet."""
        return self.occupied & ~self.running


class Share(NamedTuple):
    """The trials of one device, and how they are run."""

    trials: Trials
    key: Array
    first: Array
    size: Array
    """Trials of all points together, int32."""
    options: Options

    @property
    def points(self) -> int:
        """Those of a sweep; else one."""
        return math.prod(self.trials.axes)

    @property
    def lanes(self) -> int:
        """At least two: one alone may round otherwise, and few trials must not be a program."""
        return min(self.options.lanes, max(self.options.capacity, 2))

    @property
    def rows(self) -> int:
        """Of the outcomes of all points."""
        return self.options.capacity * self.points

    def start(self, number: Array) -> tuple[Any, TrialState]:
        """What the trial of this number, of a sweep point by point, has of its own; its state."""
        varied = self.trials.at(number % self.points)
        one = trial_key(self.key, self.first + (number // self.points).astype(jnp.uint32))
        return varied, engine.start(self.trials.member(varied), one)

    def finish(self, varied: Any, state: TrialState) -> dict[str, Any]:
        """What is kept of a trial that has ended."""
        return self.options.kept_of(engine.finish(self.trials.member(varied), state))

    def of_lanes(self, function: Callable[..., Any], varied: Any, *given: Any) -> Any:
        """A function of the engine, of many lanes, each with the interaction of its point."""

        def one(varied: Any, *given: Any) -> Any:
            return function(self.trials.member(varied), *given)

        return jax.vmap(one)(varied, *given)

    def nobody(self) -> Lanes:
        """Lanes without a trial, and room for all outcomes."""

        def unset(leaf: Any) -> Array:
            shape = (self.lanes, *leaf.shape)
            return jnp.broadcast_to(leaf, shape) if is_key(leaf) else jnp.zeros(shape, leaf.dtype)

        number, nothing = jnp.zeros(self.lanes, jnp.int32), jnp.zeros(self.lanes, bool)
        # The first trial's keys, which are of several kinds, and nothing else of it.
        varied, state = jax.tree.map(unset, self.start(jnp.int32(0)))
        rows = self.unset(self.rows)
        return Lanes(state, varied, number, nothing, nothing, jnp.int32(0), rows)

    def unset(self, rows: int) -> dict[str, Any]:
        """Room for so many outcomes."""
        blank = jax.eval_shape(lambda number: self.finish(*self.start(number)), jnp.int32(0))
        return jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), blank)

    def by_point(self, outcomes: dict[str, Any]) -> dict[str, Any]:
        """Outcomes by trial, and of a sweep by point."""
        axes = (self.options.capacity, *self.trials.axes)
        return jax.tree.map(lambda rows: rows.reshape(*axes, *rows.shape[1:]), outcomes)


def share_of(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> Share:
    """The trials `first` to `first + count` of all points."""
    return Share(trials, key, first, count * math.prod(trials.axes), options)


def _assess(share: Share, carry: Lanes, wanted: Array) -> tuple[Any, Array]:
    """Hypothesis and utility of the wanted lanes; the other lanes keep those they have."""
    state = carry.state
    found = (state.hypothesis, state.utility)
    parts = (carry.varied, state.step, state.process)
    assess = partial(share.of_lanes, engine.assess)
    # XLA takes what does not depend on the tile's number out of the loop, that is all of it where
    # the lanes are one tile, and would do it also when no lane wants it.
    return jax.lax.cond(
        jnp.any(wanted),
        lambda: where_wanted(wanted, share.options.tile, assess, parts, found),
        lambda: found,
    )


class _Assessed(NamedTuple):
    """What the rule is to judge, lane by lane."""

    hypothesis: Any
    utility: Array
    """That of the hypothesis, or a stand-in."""
    settled: Array
    """Whether the trial runs and bounds settle what the rule says: a stand-in is judged."""
    served: Array
    """Whether hypothesis and utility are exact and new."""


def _assessed(share: Share, carry: Lanes, needs_exact: Array) -> _Assessed:
    """Assess the running lanes that bounds do not settle, and those that `needs_exact` marks.

    Those are few, so they wait until there are enough for a batch, unless no other lane gets on.
    """
    trials, tile, running, state = share.trials, share.options.tile, carry.running, carry.state
    if not trials.member(trials.at(jnp.int32(0)))._uses_bounds:
        if share.lanes == tile:
            new = share.of_lanes(engine.assess, carry.varied, state.step, state.process)
        else:
            new = _assess(share, carry, running)
        hypothesis, utility = new
        return _Assessed(hypothesis, utility, jnp.zeros_like(running), running)
    settled, stand_in = share.of_lanes(engine.decide_from_bounds, carry.varied, state)
    settled &= running
    wanted = (running & ~settled) | needs_exact
    enough = jnp.sum(wanted, dtype=jnp.int32) >= min(tile, _enough_to_batch(share.lanes))
    served = wanted & (enough | ~jnp.any(settled))
    hypothesis, utility = _assess(share, carry, served)
    return _Assessed(hypothesis, jnp.where(settled, stand_in, utility), settled, served)


def _enough_to_batch(lanes: int) -> int:
    """How many lanes go together for what may cost as much as many steps."""
    return max(1, lanes // 8)


def _stepped(share: Share, carry: Lanes, needs_exact: Array) -> tuple[TrialState, Array]:
    """State, and who still needs an exact utility, after a step of the lanes whose trials run.

    Those that `needs_exact` marks, which have ended, are assessed.
    """
    at_work = carry.running
    found = _assessed(share, carry, needs_exact)
    waiting = at_work & ~found.settled & ~found.served

    def judged(
        trial: Interaction, state: TrialState, found: _Assessed, waits: Array, needs_exact: Array
    ) -> TrialState:
        utility = found.utility
        if not trial._uses_bounds:
            return engine.judge(trial, state, found.hypothesis, utility)
        # One that has ended is left as it is.
        held = state._replace(status=jnp.where(waits, Status.EXHAUSTED, state.status))
        new = engine.judge(trial, held, found.hypothesis, utility)
        # A stand-in that is NaN is of bounds the wrong way round; what is exact comes unsettled.
        wrong = found.settled & jnp.isnan(utility) & (new.status != Status.INVALID_COST)
        status = jnp.where(wrong, Status.INVALID_BOUNDS, new.status)
        new = new._replace(status=status.astype(jnp.int32))
        exactly = new._replace(hypothesis=found.hypothesis, utility=utility)
        return jax.tree.map(lambda new, old: jnp.where(needs_exact, new, old), exactly, new)

    needs_exact &= found.served
    state = share.of_lanes(judged, carry.varied, carry.state, found, waiting, needs_exact)
    # In a branch of its own: XLA would draw the rule's noise anew for every number of a release.
    state = jax.lax.cond(
        jnp.any(state.status == Status.RUNNING),
        lambda: share.of_lanes(engine.advance, carry.varied, state),
        lambda: state,
    )
    status = jnp.where(waiting, carry.state.status, state.status)
    still = carry.needs_exact & ~found.served
    still = jnp.where(at_work, found.settled & share.options.exact, still)
    return state._replace(status=status), still


def _refilled(share: Share, carry: Lanes) -> Lanes:
    """Write out the lanes that have ended and start the next trials in them."""
    written = carry.ended & ~carry.needs_exact
    free = written | ~carry.occupied
    finished = jax.vmap(share.finish)(carry.varied, carry.state)

    def write(buffer: Array, row: Array) -> Array:
        place = jnp.where(written, carry.trial, buffer.shape[0])
        return buffer.at[place].set(row, mode="drop")

    number = carry.following + jnp.cumsum(free, dtype=jnp.int32) - 1
    taken = free & (number < share.size)
    fresh = jax.vmap(share.start)(number)

    # Lanes without a trial get a state too, whichever: they take steps with the others.
    def pick(new: Array, old: Array) -> Array:
        return jnp.where(free.reshape(free.shape + (1,) * (new.ndim - 1)), new, old)

    varied, state = jax.tree.map(pick, fresh, (carry.varied, carry.state))
    return Lanes(
        state=state,
        varied=varied,
        trial=jnp.where(taken, number, carry.trial),
        occupied=(carry.occupied & ~free) | taken,
        needs_exact=carry.needs_exact & ~free,
        following=carry.following + jnp.sum(taken, dtype=jnp.int32),
        outcomes=jax.tree.map(write, carry.outcomes, finished),
    )


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Outcomes of trials `first` to `first + count` on one device."""
    share = share_of(trials, key, first, count, options)

    def enough_to_start(ended: Array, carry: Lanes) -> Array:
        """Whether enough lanes have ended: starting a trial can cost as much as many steps."""
        enough = jnp.sum(ended, dtype=jnp.int32) >= _enough_to_batch(share.lanes)
        return enough & (carry.following < share.size)

    def take_step(_: Array, carry: Lanes) -> Lanes:
        at_work, ended = carry.running, carry.ended
        # Without trials to start, ended lanes wait for the last one to end.
        needs_exact = (
            ended & carry.needs_exact & (enough_to_start(ended, carry) | ~jnp.any(at_work))
        )
        state, needs_exact = jax.lax.cond(
            jnp.any(at_work | needs_exact),
            lambda: _stepped(share, carry, needs_exact),
            lambda: (carry.state, carry.needs_exact),
        )
        return carry._replace(state=state, needs_exact=needs_exact)

    def body(carry: Lanes) -> Lanes:
        carry = jax.lax.fori_loop(0, options.inner_steps, take_step, carry)
        ended = carry.ended
        under_way = carry.running | (ended & carry.needs_exact)
        enough = enough_to_start(ended & ~carry.needs_exact, carry)
        return jax.lax.cond(
            enough | ~jnp.any(under_way), lambda: _refilled(share, carry), lambda: carry
        )

    # A lane is occupied until its outcome is written, also if its trial failed at the start.
    def unfinished(carry: Lanes) -> Array:
        return jnp.any(carry.occupied) | (carry.following < share.size)

    return share.by_point(jax.lax.while_loop(unfinished, body, share.nobody()).outcomes)
