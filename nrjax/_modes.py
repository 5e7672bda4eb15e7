"""Isolation of runs from JAX's debugging modes and from meshes of the caller."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import jax
from jax.sharding import Mesh


@contextmanager
def neutral_config(mesh: Mesh | None = None) -> Iterator[None]:
    """Turn JAX's checks for NaNs and reused keys off, and set `mesh` if it is given.

    NaN means "unknown" in results, and lanes that get new keys look like reuse of the old ones.
    """
    with (
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.debug_key_reuse(False),
        nullcontext() if mesh is None else jax.set_mesh(mesh),
    ):
        yield
