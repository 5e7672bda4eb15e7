"""Isolation of runs from JAX's debugging modes and settings, and from the caller's mesh."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import jax
from jax.sharding import Mesh


@contextmanager
def neutral_config(mesh: Mesh | None = None) -> Iterator[None]:
    """Turn JAX's checks off, such as those for NaNs, and set `mesh` if it is given.

    The checks would raise false alarms: NaN means "unknown" in results, and a lane that starts a
    new trial looks as if it reused the key of the old trial. Checks of promotions and of transfers
    are meant for your code, and would refuse code of nrjax. With a mesh, functions are compiled
    even if the caller turned compilation off.
    """
    with (
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.debug_key_reuse(False),
        jax.check_tracer_leaks(False),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        jax.transfer_guard("allow"),
        nullcontext() if mesh is None else jax.disable_jit(False),
        nullcontext() if mesh is None else jax.set_mesh(mesh),
    ):
        yield
