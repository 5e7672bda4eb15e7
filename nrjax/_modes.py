"""JAX's modes for debugging and meshes, which a run neither trips over nor passes on."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
from jax.sharding import Mesh


@contextmanager
def neutral_config(mesh: Mesh | None = None) -> Iterator[None]:
    """Without JAX's checks for NaNs and used keys; under `mesh`, if one is given.

    A NaN stands for what is not known. Lanes keep their keys or get new ones, which the check takes
    for a second use of the old ones.
    """
    with (
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.debug_key_reuse(False),
        nullcontext() if mesh is None else jax.set_mesh(mesh),
    ):
        yield


def check_not_varying(*given: Any) -> None:
    """Loops begin with numbers that are alike on all devices, and end with ones that are not.

    Raises:
        ValueError: inside a `jax.shard_map` that looks into that.
    """
    for kind in map(jax.typeof, jax.tree.leaves(given)):
        # The second one is the name from JAX 0.9 on.
        if getattr(kind, "vma", None) or getattr(getattr(kind, "mat", None), "varying", None):
            raise ValueError(
                "run_until and scan_path inside jax.shard_map need its option check_vma=False"
            )
