"""Arrays that you placed on devices, moved to the devices of a program if those are others.

JAX moves other arrays itself, and refuses a program whose arguments were placed on other devices.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nrjax._base.validation import check


def placed(tree: Any, devices: Sequence[Any] | None = None) -> Any:
    """Return a pytree in which arrays that were placed on other devices are copied to `devices`.

    An array that is divided among these devices, in their order, stays divided, unless its mesh has
    explicit axes, which a program for given devices does not know.

    Args:
        tree: pytree of arrays.
        devices: devices of the program; by default those of the first array that was placed.

    Raises:
        ValueError: an array to be copied is partly on devices of another process.
    """
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _devices_of(leaf) is not None]
    keeps_axes = devices is None
    if not leaves:
        return tree
    target = _devices_of(leaves[0]) if devices is None else tuple(devices)
    assert target is not None

    def fits(leaf: Any) -> bool:
        return _devices_of(leaf) == target and (keeps_axes or not _has_explicit_axes(leaf))

    if all(map(fits, leaves)):
        return tree
    everywhere = NamedSharding(Mesh(np.array(target), ("devices",)), PartitionSpec())

    def move(path: Any, leaf: Any) -> Any:
        if _devices_of(leaf) is None or fits(leaf):
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


def _has_explicit_axes(leaf: Any) -> bool:
    """Return whether the type of an array names axes of its mesh."""
    mesh = getattr(leaf.sharding, "mesh", None)
    return mesh is not None and AxisType.Explicit in (mesh.axis_types or ())
