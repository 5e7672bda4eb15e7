"""What one device does with trials that all take as long: a tile of them at a time.

Whole paths, and sessions that run by themselves. Trials of a stopping loop are in `lanes`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.interaction import Interaction
from nrjax.keys import trial_key
from nrjax.simulation.lanes import Derived


class Session(Protocol):
    """A pytree whose trials run by themselves, such as `nrjax.counts.CountRelease`."""

    def run(self, key: Array) -> Any:
        """One trial: a NamedTuple of arrays."""
        ...


def paths(
    trial: Interaction,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    capacity: int,
    length: int,
    fields: tuple[str, ...],
    derived: Derived = (),
) -> dict[str, Any]:
    """Whole paths of trials `first` to `first + count`, a tile at a time."""

    def one(number: Array) -> dict[str, Any]:
        records = engine.path(trial, trial_key(key, first + number), length)
        kept = {name: getattr(records, name) for name in fields}
        return kept | {name: jnp.asarray(function(records)) for name, function in derived}

    return _by_tiles(one, count, tile, capacity)


def sessions(
    trial: Session,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    capacity: int,
    fields: tuple[str, ...] | None = None,
    derived: Derived = (),
) -> dict[str, Any]:
    """Results of trials `first` to `first + count` that run by themselves, a tile at a time."""

    def one(number: Array) -> dict[str, Any]:
        result = trial.run(trial_key(key, first + number))
        kept = {name: getattr(result, name) for name in fields or result._fields}
        return kept | {name: jnp.asarray(function(result)) for name, function in derived}

    return _by_tiles(one, count, tile, capacity)


def _by_tiles(
    one: Callable[[Array], dict[str, Any]], count: Array, tile: int, capacity: int
) -> dict[str, Any]:
    """`one` of the numbers below `count`, `tile` at a time; `capacity` rows, the rest unset."""
    blank = jax.eval_shape(one, jnp.uint32(0))
    buffers = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), blank)

    def serve(tile_number: Array, buffers: dict[str, Any]) -> dict[str, Any]:
        at = tile_number * tile
        rows = jax.vmap(one)(at.astype(jnp.uint32) + jnp.arange(tile, dtype=jnp.uint32))
        return jax.tree.map(
            lambda buffer, row: jax.lax.dynamic_update_slice_in_dim(buffer, row, at, 0),
            buffers,
            rows,
        )

    return jax.lax.fori_loop(0, (count + (tile - 1)) // tile, serve, buffers)
