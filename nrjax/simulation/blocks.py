"""The loop of one device over trials that take their steps together.

All running trials are at the same step. Numbers that do not depend on the trial, such as the time
of a step and its cost, are computed once for all trials. All other numbers are computed for a tile
of trials at a time. After each block of steps, the trials that have ended are left out.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun

from nrjax._base.keys import is_key
from nrjax._base.threefry import in_own_kernel
from nrjax.engine import steps
from nrjax.simulation.families import Trials
from nrjax.simulation.lanes import DeviceTrials, trials_of_device
from nrjax.simulation.tiles import Options, run_batches
from nrjax.simulation.traced import CODES, OWN, SHARED, Layout, Traced, finish, traced

_WIDEST = 1024
"""Largest number of columns whose sums are a product: its matrix has as many rows and columns."""


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


def _sums_before(numbers: Array) -> Array:
    """Return the sum of the numbers before each, for small whole numbers as floats."""
    if numbers.size > _WIDEST:
        return (jnp.cumsum(numbers.astype(jnp.int32)) - numbers).astype(numbers.dtype)
    return jnp.tri(numbers.size, k=-1, dtype=numbers.dtype) @ numbers


def _ranks(flags: Array) -> tuple[Array, Array]:
    """Return a number from 1 on for each flag that is set, and the number of flags that are set."""
    # Sums down the columns of a table are much faster on CPUs than `jnp.cumsum` of all flags. As a
    # product they need no kernel of their own. They are at most 16, so any precision is exact.
    table = flags.reshape(math.gcd(16, flags.size), -1).astype(jnp.float32)
    sums = jnp.tri(len(table), dtype=jnp.float32) @ table
    before = _sums_before(sums[-1])
    ranks = (sums + before).astype(jnp.int32).reshape(-1)
    return ranks, ranks[-1]


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
        traced: functions of a trial.
        shared: leaves of the first state that are `SHARED`.
        form: leaves of the first state that are `FIXED`, and those that are `OWN`.
        block: number of steps of a block.
        lanes: number of trials of a tile.
    """

    local: DeviceTrials
    traced: Traced
    shared: list[Array]
    form: list[list[Array]]
    block: int
    lanes: int

    @classmethod
    def of(cls, local: DeviceTrials) -> Self:
        """Return the functions for the trials of a device."""
        functions = traced(local)
        shared, *form = functions.state.sort(functions.first)
        return cls(local, functions, shared, form, local.options.inner_steps, local.lanes)

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
        *leaves, code = jaxpr_as_fun(self.traced.start)(number.astype(jnp.int32))
        return *map(_to_words, self.traced.state.sort(leaves)[1:]), code

    def take(self, number: Array, drawn: Any, *leaves: list[Array]) -> tuple[list[Array], ...]:
        """Take a step of a trial.

        Args:
            number: number of the trial.
            drawn: number of the rewind, or None.
            leaves: what `take_shared` returns for it; then `FIXED` and `OWN` leaves of the state.

        Returns:
            The `OWN` leaves of the next state and of the record.
        """
        state = self.traced.state
        given, *rest = leaves
        order = [kind for kind in state.kinds if kind != SHARED]
        values = Layout(None, order).merge([], *rest)
        step = jaxpr_as_fun(self.traced.step_of_each)
        new = step(*given, number, *values, *jax.tree.leaves(drawn))
        size = state.kinds.count(OWN)
        return new[:size], new[size:]

    def take_shared(self, shared: list[Array], _: Any = None) -> tuple[list[Array], Any]:
        """Return the next shared leaves, what `take` needs of the step, and those of the record."""
        new = jaxpr_as_fun(self.traced.step_of_all)(*shared)
        size, ends = len(shared), len(shared) + self.traced.record.kinds.count(SHARED)
        return new[:size], (new[ends:], new[size:ends])

    def draw(self, *leaves: list[Array]) -> Array | None:
        """Return each lane's numbers of a block's rewinds, two per hash, if it needs one each."""
        join = self.traced.state.join
        trial, first = self.local.member(jnp.int32(0)), join(leaves[0], *self.form)
        if not steps.shares_hashes(trial, first.noise):
            return None
        late = first.step % 2 if self.block % 2 else 0  # whether the first number is a second one
        step_numbers = first.step - late + jnp.arange(1, self.block + 1, 2, dtype=jnp.int32)
        keys = jax.vmap(lambda *leaves: join(*leaves).noise, (None, 0, 0))(*leaves)
        lanes = jax.vmap(partial(steps.draw_pair, trial), (0, None), 1)
        drawn = jax.vmap(lanes, (None, 0))(keys, step_numbers)
        drawn = drawn.reshape(-1, *drawn.shape[2:])
        return jax.lax.dynamic_slice_in_dim(drawn, late, self.block)

    def take_tile(
        self, rows: _Rows, fixed: Any, shared: Any, path: Any, turn: Array, left: _Rows
    ) -> _Rows:
        """Take a block of steps of a tile of running trials, and add survivors to `left`."""
        first, lane = turn * self.lanes, jnp.arange(self.lanes, dtype=jnp.int32)
        spare = self.rows + lane
        row = jax.lax.dynamic_slice_in_dim(rows.alive, first, self.lanes)
        valid = first + lane < rows.living
        fixed, own = map(_to_keys, _get((fixed, left.own), row), self.form)

        def step(carry: Any, inputs: Any) -> Any:
            own, records = carry
            drawn, given = inputs
            own, new = jax.vmap(self.take, (0, 0, None, 0, 0))(row, drawn, given, fixed, own)
            return (own, _until_ended(records, new)), None

        drawn = self.draw(shared, fixed, own)
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
        following, (path, ends) = self.scan(self.take_shared, shared)
        insert = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        turns = (rows.living + (self.lanes - 1)) // self.lanes
        tile = partial(self.take_tile, rows, fixed, shared, path)
        rows = jax.lax.fori_loop(0, turns, tile, rows._replace(living=jnp.int32(0)))
        return first + self.block, rows, following, jax.tree.map(insert, table, ends)

    def admit(self, code: Array) -> tuple[Array, Array]:
        """Return the rows of the new trials that run, followed by other rows, and their number."""
        lane = jnp.arange(self.lanes, dtype=jnp.int32)

        def tile(turn: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            alive, living = carry
            row = turn * self.lanes + lane
            started = jax.lax.dynamic_slice_in_dim(code, row[0], self.lanes) == 0
            running = started & (row < self.local.size)
            ranks, more = _ranks(running)
            place = jnp.where(running, living + ranks - 1, self.rows + lane)
            return _put(alive, place, row), living + more

        turns = (self.local.size + (self.lanes - 1)) // self.lanes
        return jax.lax.fori_loop(0, turns, tile, (jnp.zeros_like(code), jnp.int32(0)))

    def take_all(
        self, shared: list[Array], fixed: list[Any], own: list[Any], code: Array
    ) -> tuple[list[Array], Any]:
        """Take the steps of all new trials.

        Returns:
            The `OWN` leaves of the records, and a table of their shared leaves by step.
        """
        rows = code.size
        max_steps = self.local.member(jnp.int32(0)).schedule.max_steps
        table = _empty(jax.eval_shape(self.take_shared, shared)[1][1], max_steps + self.block)
        alive, living = self.admit(code)
        records = self.traced.step_of_each.out_avals[self.traced.state.kinds.count(OWN) : -1]
        first = _Rows(alive, living, own, records=[*_empty(records, rows), code])
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

        def end(number: Array) -> Any:
            own = _get(records, number.astype(jnp.int32))
            common = _get(table, jnp.maximum(own[-1] // CODES, 0))
            record = self.traced.record.join(common, [], own)
            return self.map_apart(partial(finish, self.local), number.astype(jnp.int32), record)

        results = run_batches(end, size, self.lanes, self.rows)
        results = jax.tree.map(lambda leaf: leaf[: self.local.rows], results)
        return self.local.split_by_point(results)


def run(trials: Trials, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Run trials `first` to `first + count` on one device, and return their outcomes."""
    return Blocks.of(trials_of_device(trials, key, first, count, options)).run()
