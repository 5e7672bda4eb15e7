"""How many hashes of the generator a program needs, and how many a device could make.

The generator is threefry2x32 (Salmon et al. 2011): a hash makes 64 bits by 20 rounds of an
addition, a rotation and an exclusive or, and 12 additions of the key: 72 operations on 32-bit
integers. Programs that draw little else are bound by them.
"""

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jax.sharding import Mesh, PartitionSpec

from benchmarks import roofline
from nrjax import _threefry

OPERATIONS = 72
"""Of 32-bit integers, a hash."""

_ROUNDS = 20
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


class Drawn(NamedTuple):
    """What some trials asked of the generator."""

    words: float
    """32-bit numbers."""
    hashes: float
    """For them, and for keys."""


def drawn(run: Callable[[Any], Any], key: Any) -> tuple[Any, Drawn]:
    """Results of a function of a key, and what it drew; what is not used is not counted.

    Args:
        run: called with `key` under `jit`; hands the key on to nrjax.
        key: raw, two 32-bit numbers.
    """
    asked: Counter[tuple[str, int]] = Counter()
    with mock.patch.object(_threefry, "_WRITTEN_OUT", _telling(asked)) as told:
        counting = jax.random.wrap_key_data(jnp.asarray(key), impl=told)
        results = jax.device_get(jax.jit(run)(counting))
    words = sum(size * times for (what, size), times in asked.items() if what == "bits")
    hashes = sum(_hashes(*one) * times for one, times in asked.items())
    return results, Drawn(words, hashes)


def _telling(asked: Counter) -> Any:
    """JAX's own generator, telling of every use when the program runs.

    A use whose result nobody needs is taken out by the compiler, and is not told of.
    """

    def told(what: str, size: int, result: Any) -> Any:
        def tell(result: np.ndarray) -> np.ndarray:
            asked[what, size] += 1
            return result

        return jax.pure_callback(tell, result, result, vmap_method="sequential")

    plain = threefry_prng_impl
    return define_prng_impl(
        key_shape=(2,),
        seed=plain.seed,
        split=lambda key, shape: told("split", math.prod(shape), plain.split(key, shape)),
        random_bits=lambda key, width, shape: told(
            "bits", math.prod(shape) * -(-width // 32), plain.random_bits(key, width, shape)
        ),
        fold_in=lambda key, data: told("fold", 1, plain.fold_in(key, data)),
        name="threefry2x32_told",
        tag="told",
    )


def _hashes(what: str, size: int) -> float:
    """Of one use of the generator that nrjax has on this device: of a key one for each key made."""
    if what != "bits":
        return size

    def bits(key: Any) -> Any:
        return _threefry.with_written_out(lambda key: jax.random.bits(key, (size,)), key)

    # Lowered for a GPU, where JAX too writes all rounds out.
    lowered = jax.jit(bits).trace(jax.random.key(0)).lower(lowering_platforms=("cuda",))
    turned = re.findall(r"shift_right_logical .*<(?:(\d+)x)?ui32>", lowered.as_text())
    return sum(int(number or 1) for number in turned) / _ROUNDS


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
