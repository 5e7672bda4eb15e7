"""The loop of one device over trials that take their steps together.

All running trials are at the same step. Numbers that do not depend on the trial, such as the time
of a step and its cost, are computed once for all trials. All other numbers are computed for a tile
of trials at a time. After each block of steps, the trials that have ended are left out.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal

from nrjax._base.keys import is_custom, is_key
from nrjax._base.outcome import Status
from nrjax._base.threefry import in_own_kernel
from nrjax.engine import steps
from nrjax.engine.steps import TrialState
from nrjax.simulation.families import Trials
from nrjax.simulation.lanes import DeviceTrials, trials_of_device
from nrjax.simulation.tiles import Options, run_batches
from nrjax.types import Utility, overrides

SHARED, FIXED, OWN = range(3)
"""Kinds of leaves: equal in all trials, fixed in each trial, different at each step of a trial."""


def depends(program: ClosedJaxpr, flags: list[bool]) -> list[bool]:
    """Return whether each output of a traced function may depend on the flagged inputs."""
    marked = {var for var, flag in zip(program.jaxpr.invars, flags, strict=True) if flag}

    def is_marked(var: Any) -> bool:
        return not isinstance(var, Literal) and var in marked

    for equation in program.jaxpr.eqns:
        if any(map(is_marked, equation.invars)):
            marked.update(equation.outvars)
            if equation.effects:  # it may write to mutable arrays
                marked.update(var for var in equation.invars if not isinstance(var, Literal))
    return [is_marked(var) for var in program.jaxpr.outvars]


class Layout(NamedTuple):
    """The structure of a state or a record, and the kind of each leaf."""

    structure: Any
    kinds: list[int]

    def split(self, state: Any) -> tuple[list[Array], ...]:
        """Return three lists of leaves: the shared, the fixed and the own ones."""
        leaves = list(zip(self.kinds, jax.tree.leaves(state), strict=True))
        return tuple([leaf for kind, leaf in leaves if kind == wanted] for wanted in range(3))

    def join(self, *leaves: list[Any]) -> Any:
        """Rebuild the state or record from its shared, fixed and own leaves."""
        rest = list(map(iter, leaves))
        return jax.tree.unflatten(self.structure, [next(rest[kind]) for kind in self.kinds])


def _to_words(leaves: list[Array]) -> list[Any]:
    """Return leaves with tuples of words in place of keys, since words are faster to move."""
    return [tuple(jnp.moveaxis(jax.random.key_data(k), -1, 0)) if is_key(k) else k for k in leaves]


def _to_keys(leaves: list[Any], like: list[Array]) -> list[Array]:
    """Return leaves, for all lanes, with keys in place of words where `like` has keys."""
    return [
        jax.random.wrap_key_data(jnp.stack(leaf, -1), impl=jax.random.key_impl(form))
        if is_key(form)
        else leaf
        for leaf, form in zip(leaves, like, strict=True)
    ]


_BETWEEN = ("noise", "query", "step", "time", "process", "schedule", "rule", "epsilon")
"""Fields of a running trial's state that its next step needs."""

_RECORD = ("time", "process", "hypothesis", "utility", "epsilon", "status")
"""Fields of an ended trial's state. In a record the status is a code: see `_take`."""

_CODES = 16
"""Number of codes per step, at least the number of statuses."""


def _keep_fields(state: TrialState, names: tuple[str, ...]) -> TrialState:
    """Return a state in which all other fields are None."""
    return state._replace(**{name: None for name in state._fields if name not in names})


def _start(local: DeviceTrials, number: Array) -> tuple[TrialState, Array]:
    """Return the state of a new trial, and a code: 0, or below 0 if the trial failed."""
    state = local.start(number)[1]
    code = jnp.where(state.status == Status.RUNNING, 0, state.status - _CODES)
    # A trial that failed also needs a valid time: its tile may hold running trials.
    state = state._replace(step=jnp.int32(0), time=state.next_time)
    return _keep_fields(state, _BETWEEN), code.astype(jnp.int32)


def _take(
    local: DeviceTrials, number: Array, state: TrialState, drawn: Array | None = None
) -> tuple[TrialState, TrialState]:
    """Take a step of a running trial, with the number of its rewind if it is `drawn` already.

    Returns:
        The next state, and the record of the trial if it ends at this step. The record's status is
        0 if the trial does not end, else `_CODES * step + status`.
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
    code = jnp.where(status == Status.RUNNING, 0, _CODES * state.step + status)
    if not overrides(utility, Utility, "hypothesis"):
        hypothesis = None  # it is the release
    record = judged._replace(hypothesis=hypothesis, status=code.astype(jnp.int32))
    return _keep_fields(following, _BETWEEN), _keep_fields(record, _RECORD)


def _finish(local: DeviceTrials, number: Array, record: TrialState) -> dict[str, Any]:
    """Return the selected results of a trial that has ended."""
    varied, code = local.family.select(number % local.points), record.status
    trial = local.family.member(varied)
    step, status = code // _CODES, code % _CODES
    if record.hypothesis is None:
        record = record._replace(hypothesis=steps.release_of(trial, record.process))
    judged = record.time, record.hypothesis, record.utility
    judged = jax.tree.map(lambda leaf: jnp.where(step < 0, steps.unassessed(leaf), leaf), judged)
    values = dict(zip(("time", "hypothesis", "utility"), judged, strict=True), status=status)
    ended = record._replace(step=step, epsilon=jnp.where(step < 0, 0, record.epsilon), **values)
    return local.finish(varied, ended)


def _layouts(local: DeviceTrials) -> tuple[Layout, Layout]:
    """Return the layouts of the states and of the records."""
    trace = partial(jax.make_jaxpr, return_shape=True)
    first, (state, _) = trace(partial(_start, local))(jnp.int32(0))
    program, forms = trace(partial(_take, local))(jnp.int32(0), state)
    inputs, outputs = program.jaxpr.invars[1:], program.jaxpr.outvars
    size = len(inputs)
    own = depends(first, [True])[:size] + [False] * (len(outputs) - size)
    # XLA may reorder the products of a custom process if the time is the same in all lanes.
    time = [leaf is state.time for leaf in jax.tree.leaves(state)].index(True)
    own[time] |= is_custom(local.member(jnp.int32(0)).process)
    before = None
    while own != before:
        before, after = own, depends(program, [True, *own[:size]])
        own = [a or b for a, b in zip(before, after, strict=True)]
    kinds = [OWN if flag else SHARED for flag in own]
    for place, (old, new) in enumerate(zip(inputs, outputs, strict=False)):
        kinds[place] = FIXED if own[place] and old is new else kinds[place]
    kinds[-1] = OWN  # the code
    state, record = map(jax.tree.structure, forms)
    return Layout(state, kinds[:size]), Layout(record, kinds[size:])


def _ranks(flags: Array) -> tuple[Array, Array]:
    """Return a number from 1 on for each flag that is set, and the number of flags that are set."""
    # Sums down the columns of a table are much faster on CPUs than `jnp.cumsum` of all flags.
    table = flags.reshape(math.gcd(16, flags.size), -1).astype(jnp.int32)
    sums = jnp.stack(list(itertools.accumulate(table)))
    before = jnp.cumsum(sums[-1])
    return (sums + (before - sums[-1])).reshape(-1), before[-1]


def _get(tree: Any, place: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf.at[place].get(mode="promise_in_bounds"), tree)


def _put(tree: Any, place: Array, new: Any) -> Any:
    options = {"mode": "promise_in_bounds", "unique_indices": True}
    return jax.tree.map(lambda leaf, rows: leaf.at[place].set(rows, **options), tree, new)


def _empty(form: Any, rows: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), form)


def _until_ended(records: list[Array], new: list[Array]) -> list[Array]:
    """Return new records for the lanes that had not ended. The last leaf is the code."""
    running = [(records[-1] == 0).reshape(-1, *(1,) * (leaf.ndim - 1)) for leaf in new]
    return list(map(jnp.where, running, new, records))


class _Rows(NamedTuple):
    """The trials of the device, one row per trial, and a tile of spare rows for unused results.

    Attributes:
        alive: rows of the running trials, followed by other rows.
        living: number of running trials.
        own: leaves of the states of running trials that are `OWN`.
        records: leaves of the records of ended trials that are `OWN`. The last one is the code.
    """

    alive: Array
    living: Array
    own: list[Any]
    records: list[Array]


class Blocks(NamedTuple):
    """The functions of a run.

    Attributes:
        local: trials of the device.
        state: layout of the states.
        record: layout of the records.
        shared: leaves of the first state that are `SHARED`.
        form: leaves of the first state that are `FIXED`, and those that are `OWN`.
        block: number of steps of a block.
        lanes: number of trials of a tile.
    """

    local: DeviceTrials
    state: Layout
    record: Layout
    shared: list[Array]
    form: list[list[Array]]
    block: int
    lanes: int

    @classmethod
    def of(cls, local: DeviceTrials) -> Self:
        """Return the functions for the trials of a device."""
        state, record = _layouts(local)
        shared, *form = state.split(_start(local, jnp.int32(0))[0])
        return cls(local, state, record, shared, form, local.options.inner_steps, local.lanes)

    @property
    def rows(self) -> int:
        """The number of rows without the spare rows: whole tiles."""
        return -(-self.local.rows // self.lanes) * self.lanes

    def map_apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Map a function over lanes, apart from other code, with which it may round otherwise."""
        function = jax.vmap(function)
        if self.local.options.accelerated:
            return function(*arguments)
        return in_own_kernel(jax.random.key_data(self.local.key), function, *arguments)

    def scan(self, step: Callable[..., Any], carry: Any, inputs: Any = None) -> tuple[Any, Any]:
        """Take the steps of a block."""
        return jax.lax.scan(step, carry, inputs, self.block, unroll=self.local.options.unroll)

    def begin(self, number: Array) -> tuple[Any, Any, Array]:
        """Start a trial, and return the `FIXED` and the `OWN` leaves of its state, and its code.

        Keys are returned as words. The code is 0, or below 0 if the trial failed.
        """
        state, code = _start(self.local, number)
        return *map(_to_words, self.state.split(state)[1:]), code

    def take(self, number: Array, drawn: Any, *leaves: list[Array]) -> tuple[list[Array], ...]:
        """Return the `OWN` leaves of a trial's next state and record."""
        state, record = _take(self.local, number, self.state.join(*leaves), drawn)
        return self.state.split(state)[OWN], self.record.split(record)[OWN]

    def take_shared(self, shared: list[Array], _: Any = None) -> tuple[list[Array], Any]:
        """Return the next shared leaves, the current ones, and those of the record."""
        state, record = _take(self.local, jnp.int32(0), self.state.join(shared, *self.form))
        return self.state.split(state)[SHARED], (shared, self.record.split(record)[SHARED])

    def draw(self, *leaves: list[Array]) -> Array | None:
        """Return each lane's numbers of a block's rewinds, two per hash, if it needs one each."""
        trial, first = self.local.member(jnp.int32(0)), self.state.join(leaves[0], *self.form)
        if not steps.shares_hashes(trial, first.noise):
            return None
        late = first.step % 2 if self.block % 2 else 0  # whether the first number is a second one
        step_numbers = first.step - late + jnp.arange(1, self.block + 1, 2, dtype=jnp.int32)
        keys = jax.vmap(lambda *leaves: self.state.join(*leaves).noise, (None, 0, 0))(*leaves)
        lanes = jax.vmap(partial(steps.draw_pair, trial), (0, None), 1)
        drawn = jax.vmap(lanes, (None, 0))(keys, step_numbers)
        drawn = drawn.reshape(-1, *drawn.shape[2:])
        return jax.lax.dynamic_slice_in_dim(drawn, late, self.block)

    def take_tile(self, rows: _Rows, fixed: Any, path: Any, turn: Array, left: _Rows) -> _Rows:
        """Take a block of steps of a tile of running trials, and add survivors to `left`."""
        first, lane = turn * self.lanes, jnp.arange(self.lanes, dtype=jnp.int32)
        spare = self.rows + lane
        row = jax.lax.dynamic_slice_in_dim(rows.alive, first, self.lanes)
        valid = first + lane < rows.living
        fixed, own = map(_to_keys, _get((fixed, left.own), row), self.form)

        def step(carry: Any, inputs: Any) -> Any:
            own, records = carry
            drawn, shared = inputs
            own, new = jax.vmap(self.take, (0, 0, None, 0, 0))(row, drawn, shared, fixed, own)
            return (own, _until_ended(records, new)), None

        drawn = self.draw([leaf[0] for leaf in path], fixed, own)
        empty = [jnp.zeros_like(leaf[: self.lanes]) for leaf in left.records]
        (own, records), _ = self.scan(step, (own, empty), (drawn, path))
        running = valid & (records[-1] == 0)
        ranks, living = _ranks(running)
        place = jnp.where(running, left.living + ranks - 1, spare)
        return _Rows(
            alive=_put(left.alive, place, row),
            living=left.living + living,
            own=_put(left.own, jnp.where(valid, row, spare), _to_words(own)),
            records=_put(left.records, jnp.where(valid & ~running, row, spare), records),
        )

    def take_block(self, fixed: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """Take a block of steps of all running trials."""
        first, rows, shared, table = carry
        shared, (path, ends) = self.scan(self.take_shared, shared)
        insert = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        turns = (rows.living + (self.lanes - 1)) // self.lanes
        tile = partial(self.take_tile, rows, fixed, path)
        rows = jax.lax.fori_loop(0, turns, tile, rows._replace(living=jnp.int32(0)))
        return first + self.block, rows, shared, jax.tree.map(insert, table, ends)

    def take_all(
        self, shared: list[Array], fixed: list[Any], own: list[Any], code: Array
    ) -> tuple[list[Array], Any]:
        """Take the steps of all new trials.

        Returns:
            The `OWN` leaves of the records, and a table of their shared leaves by step.
        """
        rows = code.size
        number = jnp.arange(rows, dtype=jnp.int32)
        max_steps = self.local.member(number[0]).schedule.max_steps
        table = _empty(jax.eval_shape(self.take_shared, shared)[1][1], max_steps + self.block)
        records = jax.eval_shape(self.take, number[0], None, shared, *self.form)[1]
        running = (number < self.local.size) & (code == 0)
        ranks, living = _ranks(running)
        place = jnp.where(running, ranks - 1, rows)
        first = _Rows(
            alive=number.at[place].set(number, mode="drop"),
            living=living,
            own=own,
            records=[*_empty(records[:-1], rows), code],
        )
        carry = jnp.int32(0), first, shared, table
        _, ended, _, table = jax.lax.while_loop(
            lambda carry: carry[1].living > 0, partial(self.take_block, fixed), carry
        )
        return ended.records, table

    def run(self) -> dict[str, Any]:
        """Run all trials, and return their results."""
        size, rows = self.local.size, self.rows + self.lanes
        begun = run_batches(partial(self.map_apart, self.begin), size, self.lanes, rows)
        records, table = self.take_all(self.shared, *begun)

        def finish(number: Array) -> Any:
            own = _get(records, number.astype(jnp.int32))
            common = _get(table, jnp.maximum(own[-1] // _CODES, 0))
            record = self.record.join(common, [], own)
            return self.map_apart(partial(_finish, self.local), number.astype(jnp.int32), record)

        results = run_batches(finish, size, self.lanes, self.rows)
        results = jax.tree.map(lambda leaf: leaf[: self.local.rows], results)
        return self.local.split_by_point(results)


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Run trials `first` to `first + count` on one device, and return their outcomes."""
    return Blocks.of(trials_of_device(trials, key, first, count, options)).run()
