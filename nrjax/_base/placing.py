"""Arrays that you placed on devices, moved to the devices of a program if those are others.

JAX moves other arrays itself, and refuses a program whose arguments were placed on other devices.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nrjax._base.validation import check


def placed(tree: Any, devices: Sequence[Any] | None = None) -> Any:
    """Return a pytree in which arrays that were placed on other devices are copied to `devices`.

    An array that is divided among these devices, in their order, stays divided.

    Args:
        tree: pytree of arrays.
        devices: devices of the program; by default those of the first array that was placed.

    Raises:
        ValueError: an array to be copied is partly on devices of another process.
    """
    placed_on = [_devices_of(leaf) for leaf in jax.tree.leaves(tree)]
    used = {each for each in placed_on if each is not None}
    if devices is None:
        devices = next((each for each in placed_on if each is not None), ())
        if len(used) < 2:
            return tree
    devices = tuple(devices)
    if used <= {devices}:
        return tree
    everywhere = NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec())

    def move(path: Any, leaf: Any) -> Any:
        if _devices_of(leaf) in (None, devices):
            return leaf
        expected, hint = "on devices of this process", "Load it in each process."
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        check(leaf.is_fully_addressable, name, "an array of several processes", expected, hint)
        return jax.device_put(leaf, everywhere)

    return jax.tree_util.tree_map_with_path(move, tree)


def _devices_of(leaf: Any) -> tuple[Any, ...] | None:
    """Return the devices on which an array was placed, in their order, or None."""
    if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or not leaf.committed:
        return None
    mesh = getattr(leaf.sharding, "mesh", None)
    return tuple(leaf.sharding.device_set if mesh is None else mesh.devices.flat)
