"""The number of hashes of the generator that a program needs, and the device's limit.

The generator is threefry2x32 (Salmon et al. 2011). A hash makes 64 bits by 20 rounds of an
addition, a rotation and an exclusive or, and 12 additions of the key: 72 operations on 32-bit
integers. Programs that do little else than drawing are bound by them.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from benchmarks import roofline
from nrjax._base import threefry

OPERATIONS = 72
"""Number of operations on 32-bit integers per hash."""

_EACH = 4
"""Number of hashes per stored number in the timed kernel, so that memory hardly matters."""

STATED = {
    "NVIDIA A100-SXM4-40GB": 108 * 64 * 1.41e9,
    "NVIDIA A100-SXM4-80GB": 108 * 64 * 1.41e9,
    "NVIDIA H100 80GB HBM3": 132 * 64 * 1.98e9,
    "NVIDIA H200": 132 * 64 * 1.98e9,
}
"""Integer operations per second by data sheet: multiprocessors, times 64 per cycle (CUDA C++
Programming Guide, throughput of instructions), times the highest clock."""


def drawn(run: Callable[[Any], Any], key: Any) -> tuple[Any, int]:
    """Return the results of a function of a key, and the number of hashes that they need.

    Args:
        run: function that is called with `key` under `jit` and passes it on to nrjax.
        key: raw key, two 32-bit numbers.
    """
    counts: list[int] = []
    plain = threefry._hash

    def tell(*words: np.ndarray) -> tuple[np.ndarray, ...]:
        counts.append(words[0].size)
        return words

    def told(*given: Any) -> Any:
        words = plain(*given)
        return jax.pure_callback(tell, words, *words, vmap_method="broadcast_all")

    own = jax.random.wrap_key_data(jnp.asarray(key), impl=threefry._UNROLLED)
    with mock.patch.object(threefry, "_hash", told):
        jax.clear_caches()  # programs without counting, and below those with it
        results = jax.device_get(jax.jit(run)(own))
    jax.clear_caches()
    return results, sum(counts)


def measured(devices: Sequence[Any], size: int) -> float:
    """Measure the limit of hashes per second of all devices together.

    Args:
        devices: devices, which share the work.
        size: numbers per device, of `_EACH` hashes each.
    """
    every, split = PartitionSpec(), PartitionSpec("parts")
    mesh = Mesh(np.array(devices), ("parts",))

    def part(key: Any) -> Any:
        low = jax.lax.iota(jnp.uint32, size)
        words = [threefry._hash(key, jnp.full_like(low, each), low) for each in range(_EACH)]
        return functools.reduce(jnp.bitwise_xor, itertools.chain(*words))

    run = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=every, out_specs=split, check_vma=False))
    key = jax.random.key_data(jax.random.key(0))
    spent = roofline.spent(lambda: run(key), repeats=20)
    return len(devices) * size * _EACH / min(spent)  # the minimum, since this is a limit
