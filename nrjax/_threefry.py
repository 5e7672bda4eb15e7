"""Keys of JAX's own generator, threefry2x32, whose hash is one kernel on CPUs.

There JAX writes the 20 rounds of the hash (Salmon et al. 2011) as a loop of five turns, which XLA
cannot fuse. Written out, the same bits come several times as fast.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl, threefry_prng_impl

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_UNSIGNED = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}


def written_out(key: Array) -> Array:
    """The same key, of the same bits, hashed in one kernel on CPUs.

    A key for use inside compiled loops, from a typed threefry2x32 one. Its generator is its own,
    which `jax.random.poisson` refuses: `with_written_out`.
    """
    # The older layout of bits (a flag of JAX) is left to JAX.
    if jax.default_backend() != "cpu" or not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_WRITTEN_OUT)


def with_written_out(function: Callable[[Array], Any], key: Array) -> Any:
    """`function` of a key that is written out; of the key itself where JAX refuses that.

    `jax.random.poisson` takes the keys of JAX's own object for the generator alone, and raises
    `NotImplementedError` while it is traced; no other of JAX's samplers does. One that comes of
    something else is raised by the second call again.
    """
    try:
        return function(written_out(key))
    except NotImplementedError:
        return function(key)


def is_written_out(key: Array) -> bool:
    """Whether a typed key is from `written_out`."""
    return jax.random.key_impl(key) == _WRITTEN_OUT


def _hash(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """threefry2x32 of the counts `(high, low)`."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = high + schedule[0], low + schedule[1]
    for turn in range(5):
        for distance in _ROTATIONS[turn % 2]:
            x = x + y
            y = (y << np.uint32(distance)) | (y >> np.uint32(32 - distance))
            y = x ^ y
        x = x + schedule[(turn + 1) % 3]
        y = y + schedule[(turn + 2) % 3] + np.uint32(turn + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Hashes of 0, 1, 2, ... in the given shape."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"shape = {shape}: must have below 2^32 numbers with one key")
    low = jax.lax.iota(jnp.uint32, size).reshape(shape)
    return _hash(key, jnp.zeros_like(low), low)


def _bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    first, second = _counted(key, shape)
    dtype = _UNSIGNED[bit_width]
    if bit_width == 64:
        return (first.astype(dtype) << jnp.asarray(32, dtype)) | second.astype(dtype)
    return (first ^ second).astype(dtype)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _fold_in(key: Array, data: Array | int) -> Array:
    low = jnp.asarray(data, jnp.uint32)
    return jnp.stack(_hash(key, jnp.zeros_like(low), low))


_WRITTEN_OUT = define_prng_impl(
    key_shape=(2,),
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="threefry2x32_written_out",
    tag="frw",
)
