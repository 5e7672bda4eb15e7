"""How many hashes of the generator a program needs, and how many a device could make.

The generator is threefry2x32 (Salmon et al. 2011): a hash makes 64 bits by 20 rounds of an
addition, a rotation and an exclusive or, and 12 additions of the key: 72 operations on 32-bit
integers. Programs that draw little else are bound by them.
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
from nrjax import _threefry

OPERATIONS = 72
"""Of 32-bit integers, a hash."""

_EACH = 4
"""Hashes of a number in the kernel that is timed: it hardly touches memory."""

STATED = {
    "NVIDIA A100-SXM4-40GB": 108 * 64 * 1.41e9,
    "NVIDIA A100-SXM4-80GB": 108 * 64 * 1.41e9,
    "NVIDIA H100 80GB HBM3": 132 * 64 * 1.98e9,
    "NVIDIA H200": 132 * 64 * 1.98e9,
}
"""Integer operations a second by data sheet: multiprocessors, 64 of them a cycle (CUDA C++
Programming Guide, throughput of instructions), highest clock."""


def drawn(run: Callable[[Any], Any], key: Any) -> tuple[Any, int]:
    """Results of a function of a key, and its hashes; what is not used is not counted.

    Args:
        run: called with `key` under `jit`; hands the key on to nrjax.
        key: raw, two 32-bit numbers.
    """
    asked: list[int] = []
    plain = _threefry._hash

    def tell(*words: np.ndarray) -> tuple[np.ndarray, ...]:
        asked.append(words[0].size)
        return words

    def told(*given: Any) -> Any:
        words = plain(*given)
        return jax.pure_callback(tell, words, *words, vmap_method="broadcast_all")

    own = jax.random.wrap_key_data(jnp.asarray(key), impl=_threefry._WRITTEN_OUT)
    with mock.patch.object(_threefry, "_hash", told):
        jax.clear_caches()  # of what was traced without telling; then of what tells
        results = jax.device_get(jax.jit(run)(own))
    jax.clear_caches()
    return results, sum(asked)


def measured(devices: Sequence[Any], size: int) -> float:
    """The most hashes a second, all devices together, where nothing else is done.

    Args:
        devices: each does its part.
        size: numbers on each, `_EACH` hashes a number.
    """
    every, split = PartitionSpec(), PartitionSpec("parts")
    mesh = Mesh(np.array(devices), ("parts",))

    def part(key: Any) -> Any:
        low = jax.lax.iota(jnp.uint32, size)
        words = [_threefry._hash(key, jnp.full_like(low, each), low) for each in range(_EACH)]
        return functools.reduce(jnp.bitwise_xor, itertools.chain(*words))

    run = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=every, out_specs=split, check_vma=False))
    key = jax.random.key_data(jax.random.key(0))
    spent = roofline.spent(lambda: run(key), repeats=20)
    return len(devices) * size * _EACH / min(spent)  # a limit: what disturbs is no part of it
