"""Isolation of runs from JAX's debugging modes and from the caller's mesh."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import jax
from jax.sharding import Mesh


@contextmanager
def neutral_config(mesh: Mesh | None = None) -> Iterator[None]:
    """Turn JAX's checks for NaNs and reused keys off, and set `mesh` if it is given.

    The checks would raise false alarms: NaN means "unknown" in results, and a lane that starts a
    new trial looks as if it reused the key of the old trial.
    """
    with (
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.debug_key_reuse(False),
        nullcontext() if mesh is None else jax.set_mesh(mesh),
    ):
        yield
