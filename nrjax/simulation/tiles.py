"""What one device does with trials that all take as long: a tile of them at a time.

Whole paths, and sessions that run by themselves. Trials of a stopping loop are in `lanes`.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from nrjax import engine
from nrjax.keys import trial_key
from nrjax.simulation.lanes import Derived, kept_of


class Session(Protocol):
    """A pytree whose trials run by themselves, such as `nrjax.counts.CountRelease`."""

    def run(self, key: Array) -> Any:
        """One trial: a NamedTuple of arrays."""
        ...


def run(
    trial: Any,
    key: Array,
    first: Array,
    count: Array,
    *,
    tile: int,
    capacity: int,
    fields: tuple[str, ...] | None,
    derived: Derived,
    length: int | None = None,
) -> dict[str, Any]:
    """Results of trials `first` to `first + count`, in `capacity` rows, the rest of them unset.

    Of an interaction whole paths of `length` steps; without it `trial` is a session. `fields` None
    are all.
    """

    def one(number: Array) -> dict[str, Any]:
        own = trial_key(key, first + number)
        result = trial.run(own) if length is None else engine.path(trial, own, length)
        return kept_of(result, fields or result._fields, derived)

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
