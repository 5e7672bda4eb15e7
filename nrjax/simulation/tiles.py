"""What one device does with trials that all take as long: a tile of them at a time.

Whole paths, and sessions that run by themselves. Trials of a stopping loop are in `lanes`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.keys import key_for, trial_key

Derived = tuple[tuple[str, Callable[[Any], Array]], ...]
"""Results by name that are made of one trial's outcome, path or session, when it ends."""


class Options(NamedTuple):
    """How a device runs its share of the trials, and what it keeps of each; hashable."""

    tile: int
    """Trials that are assessed, or run, together."""
    fields: Sequence[str] | None
    """Of an outcome, a path or a session; None: all."""
    derived: Derived
    lanes: int = 0
    """Trials under way at a time, where it is not a tile."""
    inner_steps: int = 0
    """Steps between two looks for lanes that have ended."""
    length: int | None = None
    """Steps of whole paths."""
    capacity: int = 0
    """Rows of results; those that are no trial's stay unset."""

    @property
    def exact(self) -> bool:
        """Whether the last utility counts; else bounds that settle the last answer are enough."""
        return bool(self.derived) or not {"utility", "hypothesis"}.isdisjoint(self.fields or ())

    def kept_of(self, result: Any) -> dict[str, Any]:
        """What is kept of one trial's outcome, path or session."""
        kept = {name: getattr(result, name) for name in self.fields or ()}
        return kept | {name: jnp.asarray(function(result)) for name, function in self.derived}


class Session(Protocol):
    """A pytree whose trials run by themselves, such as `nrjax.counts.CountRelease`."""

    def run(self, key: Array) -> Any:
        """One trial: a NamedTuple of arrays."""
        ...


def run(trial: Any, key: Array, first: Array, count: Array, options: Options) -> dict[str, Any]:
    """Results of trials `first` to `first + count`; without a `length` the trial is a session."""

    def one(number: Array) -> dict[str, Any]:
        own, length = trial_key(key, first + number), options.length
        if length is None:
            result = trial.run(key_for(trial, own))
        else:
            result = engine.path(trial, own, length)
        return options._replace(fields=options.fields or result._fields).kept_of(result)

    return in_turn(jax.vmap(one), count, options.tile, options.capacity)


def in_turn(some: Callable[[Array], Any], count: Array, size: int, capacity: int) -> Any:
    """Results of so many trials, which `some` gives of `size` numbers (uint32) at a time."""
    blank = jax.eval_shape(some, jax.ShapeDtypeStruct((size,), jnp.uint32))
    buffers = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), blank)

    def serve(turn: Array, buffers: Any) -> Any:
        at = turn * size
        rows = some(at.astype(jnp.uint32) + jnp.arange(size, dtype=jnp.uint32))
        return jax.tree.map(
            lambda buffer, row: jax.lax.dynamic_update_slice_in_dim(buffer, row, at, 0),
            buffers,
            rows,
        )

    return jax.lax.fori_loop(0, (count + (size - 1)) // size, serve, buffers)


def where_wanted(
    wanted: Array, tile: int, function: Callable[..., Any], parts: tuple[Any, ...], found: Any
) -> Any:
    """`found` with new rows where they are wanted: `function` of these rows of the parts.

    They are gathered into as few tiles as hold them.
    """
    order = jnp.argsort(~wanted, stable=True)

    def serve(number: Array, found: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * tile, tile)
        rows = function(*jax.tree.map(lambda leaf: leaf[chosen], parts))
        # The last tile is filled up with rows that are not wanted: those are dropped.
        place = jnp.where(wanted[chosen], chosen, wanted.shape[0])
        return jax.tree.map(
            lambda buffer, rows: buffer.at[place].set(rows, mode="drop"), found, rows
        )

    tiles = (jnp.sum(wanted, dtype=jnp.int32) + (tile - 1)) // tile
    return jax.lax.fori_loop(0, tiles, serve, found)
