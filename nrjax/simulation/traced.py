"""The start, a step and the end of a trial among many that are at the same step.

The start and the step are traced once. What a step computes is split into what all trials share and
what differs between them.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from nrjax._base.keys import is_custom
from nrjax._base.outcome import Status
from nrjax._base.threefry import in_own_kernel
from nrjax.engine import steps
from nrjax.engine.steps import TrialState
from nrjax.simulation.hoisting import depends, split
from nrjax.simulation.lanes import DeviceTrials
from nrjax.types import Utility, overrides

SHARED, FIXED, OWN = range(3)
"""Kinds of leaves: equal in all trials, fixed in each trial, different at each step of a trial."""


class Layout(NamedTuple):
    """The structure of a state or a record, and the kind of each leaf."""

    structure: Any
    kinds: list[int]

    def sort(self, leaves: list[Any]) -> tuple[list[Any], ...]:
        """Return three lists of leaves: the shared, the fixed and the own ones."""
        pairs = list(zip(self.kinds, leaves, strict=True))
        return tuple([leaf for kind, leaf in pairs if kind == wanted] for wanted in range(3))

    def merge(self, *leaves: list[Any]) -> list[Any]:
        """Return all leaves in order, from the shared, the fixed and the own ones."""
        rest = list(map(iter, leaves))
        return [next(rest[kind]) for kind in self.kinds]

    def join(self, *leaves: list[Any]) -> Any:
        """Rebuild the state or record from its shared, fixed and own leaves."""
        return jax.tree.unflatten(self.structure, self.merge(*leaves))


_BETWEEN = ("noise", "query", "step", "time", "process", "schedule", "rule", "epsilon")
"""Fields of a running trial's state that its next step needs."""

_RECORD = ("time", "process", "hypothesis", "utility", "epsilon", "status")
"""Fields of an ended trial's state. In a record the status is a code: see `_take`."""

CODES = 16
"""Number of codes per step, at least the number of statuses."""


def _keep_fields(state: TrialState, names: tuple[str, ...]) -> TrialState:
    """Return a state in which all other fields are None."""
    return state._replace(**{name: None for name in state._fields if name not in names})


def _start(local: DeviceTrials, number: Array) -> tuple[TrialState, Array]:
    """Return the state of a new trial, and a code: 0, or below 0 if the trial failed."""
    state = local.start(number)[1]
    code = jnp.where(state.status == Status.RUNNING, 0, state.status - CODES)
    # A trial that failed also needs a valid time: its tile may hold running trials.
    state = state._replace(step=jnp.int32(0), time=state.next_time)
    return _keep_fields(state, _BETWEEN), code.astype(jnp.int32)


def _take(
    local: DeviceTrials, number: Array, state: TrialState, drawn: Array | None = None
) -> tuple[TrialState, TrialState]:
    """Take a step of a running trial, with the number of its rewind if it is `drawn` already.

    Returns:
        The next state, and the record of the trial if it ends at this step. The record's status is
        0 if the trial does not end, else `CODES * step + status`.
    """
    trial = local.member(number)
    utility = trial.utility.at(state.step)
    make = partial(steps.release_of, trial)
    if math.prod(trial.process.shape) > 1:  # XLA:CPU reduces computed entries slowly
        own = partial(in_own_kernel, jax.random.key_data(local.key), make)
        release = jax.lax.platform_dependent(state.process, cpu=own, default=make)
    else:
        release = make(state.process)
    hypothesis, value = steps.assess_release(trial, utility, release)
    running = {"status": jnp.int32(Status.RUNNING)}
    state = state._replace(next_time=state.time, hypothesis=hypothesis, utility=value, **running)
    judged = steps.judge(trial, state, hypothesis, value)
    # Trials that have ended take the other steps of their block too, at a valid time.
    valid = steps.time_status(trial, judged.next_time, state.time) == Status.RUNNING
    time = jnp.where(valid, judged.next_time, state.time)
    following = steps.advance(trial, judged._replace(next_time=time, **running), drawn)
    following = following._replace(step=state.step + 1, time=time)
    status = jnp.where(judged.status == Status.RUNNING, following.status, judged.status)
    code = jnp.where(status == Status.RUNNING, 0, CODES * state.step + status)
    if not overrides(utility, Utility, "hypothesis"):
        hypothesis = None  # it is the release
    record = judged._replace(hypothesis=hypothesis, status=code.astype(jnp.int32))
    return _keep_fields(following, _BETWEEN), _keep_fields(record, _RECORD)


def finish(local: DeviceTrials, number: Array, record: TrialState) -> dict[str, Any]:
    """Return the selected results of a trial that has ended."""
    varied, code = local.family.select(number % local.points), record.status
    trial = local.family.member(varied)
    step, status = code // CODES, code % CODES
    if record.hypothesis is None:
        record = record._replace(hypothesis=steps.release_of(trial, record.process))
    judged = record.time, record.hypothesis, record.utility
    judged = jax.tree.map(lambda leaf: jnp.where(step < 0, steps.unassessed(leaf), leaf), judged)
    values = dict(zip(("time", "hypothesis", "utility"), judged, strict=True), status=status)
    ended = record._replace(step=step, epsilon=jnp.where(step < 0, 0, record.epsilon), **values)
    return local.finish(varied, ended)


class Traced(NamedTuple):
    """The functions of a trial, traced once, and what their leaves are.

    Attributes:
        state: layout of the states.
        record: layout of the records.
        first: leaves of the first state of trial 0.
        start: takes a trial's number, and returns the leaves of its first state, and its code.
        step_of_all: takes the shared leaves of a state. It returns those of the next state and of
            the record, followed by the numbers that `step_of_each` needs.
        step_of_each: takes these numbers, the trial's number, its fixed and its own leaves in the
            order of the state, and the drawn number if there is one. It returns the own leaves of
            the next state and of the record.
    """

    state: Layout
    record: Layout
    first: list[Array]
    start: ClosedJaxpr
    step_of_all: ClosedJaxpr
    step_of_each: ClosedJaxpr


def _drawn(local: DeviceTrials, noise: Array) -> Any:
    """Return the form of a number that is drawn for a rewind before its step, or None."""
    trial = local.member(jnp.int32(0))
    if not steps.shares_hashes(trial, noise):
        return None
    pair = jax.eval_shape(partial(steps.draw_pair, trial), noise, jnp.int32(1))
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), pair)


def traced(local: DeviceTrials) -> Traced:
    """Trace the start and the step of a trial."""
    trace = partial(jax.make_jaxpr, return_shape=True)
    first, (state, _) = trace(partial(_start, local))(jnp.int32(0))
    values = jaxpr_as_fun(first)(jnp.int32(0))[:-1]
    drawn = _drawn(local, jax.tree.unflatten(jax.tree.structure(state), values).noise)
    program, forms = trace(partial(_take, local))(jnp.int32(0), state, drawn)
    size = len(jax.tree.leaves(state))
    inputs, outputs = program.jaxpr.invars[1 : size + 1], program.jaxpr.outvars
    own = depends(first, [True])[:size] + [False] * (len(outputs) - size)
    # XLA may reorder the products of a custom process if the time is the same in all lanes.
    time = [leaf is state.time for leaf in jax.tree.leaves(state)].index(True)
    own[time] |= is_custom(local.member(jnp.int32(0)).process)
    also = [True] * (len(program.jaxpr.invars) - 1 - size)  # the drawn number
    before = None
    while own != before:
        before, after = own, depends(program, [True, *own[:size], *also])
        own = [a or b for a, b in zip(before, after, strict=True)]
    kinds = [OWN if flag else SHARED for flag in own]
    for place, (old, new) in enumerate(zip(inputs, outputs, strict=False)):
        kinds[place] = FIXED if own[place] and old is new else kinds[place]
    kinds[-1] = OWN  # the code
    places = [[p for p, kind in enumerate(kinds) if kind == wanted] for wanted in range(3)]
    parts = split(program, [True, *own[:size], *also], places[SHARED], places[OWN])
    state, record = map(jax.tree.structure, forms)
    layouts = Layout(state, kinds[:size]), Layout(record, kinds[size:])
    return Traced(*layouts, values, first, *parts)
