"""Faster implementations of threefry2x32 keys, for use inside compiled loops.

Keys of `unrolled_key` give the same bits as JAX's own keys, several times as fast on CPUs. There
JAX computes the 20 rounds of the hash (Salmon et al. 2011) in a loop, which XLA cannot fuse.

Keys of `placed_key` give other bits at half the cost or less. A hash returns two words, which JAX
combines into one random word. A placed key uses both words. It also has a place (the step of a
trial), which is the upper word of the hash's input and so needs no additional hash. Under a key
(k0, k1) no input of the hash is used twice, so no draw equals a key or another draw. Inputs are:

* (0, i): keys folded or split from the key, and JAX's draws from it, which show one word only.
* (c, i) with 0 < c < 2^30: both words of draw i at place c - 1. A key that was folded or split from
  a placed key has c = 0: its draws are (0, i), and keys folded from it are (2^31, i).
* (2^30 + c // 2, i): draws of one number, which are number c % 2 of a draw of two numbers.
* (2^31 + c, i): keys folded or split from the placed key.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jax.extend.random import define_prng_impl, threefry_prng_impl

from nrjax._base.tracing import INLINE

STREAM = 5
"""Version number of the random bits that a seed gives.

1: JAX's own keys everywhere. 2: keys of this module everywhere. 3: keys of this module, except that
custom parts get JAX's own keys. 4: two steps that need one number each share a hash. 5: counts of
Skellam noise take both words of a hash.
"""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SINGLE, _DERIVED = np.uint32(2**30), np.uint32(2**31)


def unrolled_key(key: Array) -> Array:
    """Return a typed threefry2x32 key that gives the same bits as `key`, faster on CPUs.

    The generator is private to nrjax: give `jax.random.poisson` and custom parts a `jax_key`.
    """
    # If a flag of JAX selects the older layout of bits, the key is left as it is.
    if is_nrjax_key(key) or not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)


def jax_key(key: Array) -> Array:
    """Return JAX's own key for one of `unrolled_key`, and any other key unchanged."""
    if jax.random.key_impl(key) != _UNROLLED:
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")


def is_nrjax_key(key: Array) -> bool:
    """Return whether a typed key was made by `unrolled_key` or `placed_key`."""
    return jax.random.key_impl(key) in (_UNROLLED, _PLACED)


def is_placed(key: Array) -> bool:
    """Return whether a typed key was made by `placed_key`."""
    return jax.random.key_impl(key) == _PLACED


def placed_key(key: Array, place: Array | int) -> Array:
    """Return the key for a place, an integer below 2^30 - 1 such as the step of a trial.

    A key that is not of `unrolled_key` is folded by JAX.
    """
    if jax.random.key_impl(key) != _UNROLLED:
        return jax.random.fold_in(key, place)
    first, second = jax.random.key_data(key)
    count = jnp.asarray(place, jnp.uint32) + np.uint32(1)
    return jax.random.wrap_key_data(jnp.stack([first, second, count]), impl=_PLACED)


def shared_key(key: Array) -> Array:
    """Return the key whose two numbers are the single numbers of two places.

    The places are that of `key`, a key of `placed_key` with an odd place, and the next one.
    """
    data = jax.random.key_data(key)
    # Not a stack: under `vmap` that leaves a transpose, behind which XLA does not see the words.
    return jax.random.wrap_key_data(jnp.concatenate([data[:2], _single(data[2:])]), impl=_PLACED)


def _single(count: Array) -> Array:
    """Return the upper word of the hash that the single numbers of two places share."""
    return _SINGLE | (count >> 1)


def _pair(key: Array) -> tuple[tuple[Array, Array, Array], Array]:
    """Return the words of the key of two numbers, and whether `key` gives the second number."""
    return (key[0], key[1], _single(key[2])), (key[2] & 1) != 0


@functools.partial(jax.jit, inline=INLINE)  # traced once per shape
def _hash(key: Any, high: Array, low: Array) -> tuple[Array, Array]:
    """Return the two words of the threefry2x32 hash of the inputs `(high, low)`."""
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


def _counted(key: Array, shape: tuple[int, ...], high: Any = 0) -> tuple[Array, Array]:
    """Return the hashes of `(high, 0)`, `(high, 1)`, ..., as two arrays of the given shape."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"shape must have below 2^32 numbers per key (got {shape}).")
    low = jax.lax.iota(jnp.uint32, size).reshape(shape)
    return _hash(key, jnp.broadcast_to(jnp.asarray(high, jnp.uint32), shape), low)


def _bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    first, second = _counted(key, shape)
    if bit_width == 64:
        return _long(first, second)
    return (first ^ second).astype(f"uint{bit_width}")


def _long(first: Array, second: Array) -> Array:
    return (first.astype(jnp.uint64) << jnp.asarray(32, jnp.uint64)) | second.astype(jnp.uint64)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _fold_in(key: Array, data: Array | int) -> Array:
    low = jnp.asarray(data, jnp.uint32)
    return jnp.stack(_hash(key, jnp.zeros_like(low), low))


def words(key: Any, size: int, bits: int) -> tuple[Array, Array]:
    """Return two arrays of 32- or 64-bit random words from raw data of keys of `placed_key`.

    `key` has the three words of the keys, of shape (1, ...), and each array has shape (size, ...).
    """
    low = jax.lax.broadcasted_iota(jnp.uint32, (size, *key[2].shape[1:]), 0)

    def hashed(low: Array) -> tuple[Array, Array]:
        return _hash(key, jnp.broadcast_to(key[2], low.shape), low)

    if bits == 32:
        return hashed(low)
    return _long(*hashed(2 * low)), _long(*hashed(2 * low + np.uint32(1)))


def in_own_kernel(key: Array, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)`, computed by a separate kernel. Use it on CPUs only.

    XLA would otherwise compute it again in each kernel that needs it. A branch that is always taken
    makes XLA use a separate kernel. It is taken for every raw `key`, which XLA cannot infer.
    """
    form = jax.eval_shape(function, *arguments)
    taken = (key.reshape(-1)[0] | np.uint32(1)) != 0
    blank = jax.tree.map(jnp.zeros_like, form)
    return jax.lax.cond(taken, function, lambda *_: blank, *arguments)


def in_pairs(function: Callable[[Array, Array], Any], key: Array, size: int, bits: int) -> Array:
    """Apply an elementwise function to pairs of random words, with one hash per pair.

    On CPUs XLA would compute each hash twice, once for each of the two floats. Instead a separate
    kernel writes both floats to memory together, as one complex number.

    Args:
        function: takes two words and returns two floats of as many bits. Each new function object
            is compiled again.
        key: raw data of a key of `placed_key`, shape (3,).
        size: number of floats.
        bits: number of bits of a word, 32 or 64.

    Returns:
        The floats, shape (size,): the first one of every pair, then the second one of every pair.
    """
    if size >= 2**32:
        raise ValueError(f"size must be below 2^32 with one key (got {size}).")
    pairs = -(-size // 2)
    if size < 2:
        single, second = _pair(key)
        numbers = function(*words([word[None] for word in single], pairs, bits))
        return jnp.where(second, numbers[1], numbers[0])
    numbers = _paired(function, pairs, bits)(key[0], key[1], key[2])
    return jnp.concatenate([numbers.real, numbers.imag])[:size]


@functools.cache
def _paired(function: Callable[[Array, Array], Any], pairs: int, bits: int) -> Any:
    def complexes(*key: Array, size: int = pairs) -> Array:
        return jax.lax.complex(*function(*words(key, size, bits)))

    def on_cpu(*key: Array) -> Array:
        columns = jnp.broadcast_arrays(*key)
        shape = columns[0].shape
        # Vectors of the CPU hold up to 8 hashes. If pairs are few, they run along the batch.
        if pairs < 64:
            numbers = in_own_kernel(key[0], complexes, *(word[None] for word in columns))
            return jnp.moveaxis(numbers, 0, -1)
        along = jax.vmap(functools.partial(complexes, size=-(-pairs // 8) * 8))
        numbers = in_own_kernel(key[0], along, *(word.reshape(-1, 1) for word in columns))
        return numbers[:, :pairs].reshape(*shape, pairs)

    def elsewhere(*key: Array) -> Array:
        columns = jnp.broadcast_arrays(*key)
        return jnp.moveaxis(complexes(*(word[None] for word in columns)), 0, -1)

    @custom_vmap
    def paired(*key: Array) -> Array:
        """Return a complex number per pair of words, for any batch of the three words of a key."""
        return jax.lax.platform_dependent(*key, cpu=on_cpu, default=elsewhere)

    # One branch for the whole batch: with a branch per lane, both sides would be computed.
    @paired.def_vmap
    def batched(_size: int, batched: list[bool], *key: Array) -> tuple[Array, bool]:
        pairs = zip(key, batched, strict=True)
        return paired(*(word if flag else word[None] for word, flag in pairs)), True

    return paired


def _as_floats(first: Array, second: Array) -> tuple[Array, Array]:
    bits = jax.lax.bitcast_convert_type
    return bits(first, jnp.float32), bits(second, jnp.float32)


# One compiled operation, in which JAX does not check for NaNs: some words are NaN as floats.
@functools.partial(jax.jit, static_argnames="size")
def _pair_bits(key: Array, size: int) -> Array:
    return jax.lax.bitcast_convert_type(in_pairs(_as_floats, key, size, 32), jnp.uint32)


def _placed_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    if bit_width == 64 and math.prod(shape) == 1:
        single, second = _pair(key)
        return _long(*_hash(single, single[2], second.astype(jnp.uint32))).reshape(shape)
    if bit_width == 64:
        return _long(*_counted(key, shape, key[2]))
    return _pair_bits(key, math.prod(shape)).reshape(shape).astype(f"uint{bit_width}")


def _placed_split(key: Array, shape: tuple[int, ...]) -> Array:
    first, second = _counted(key, shape, key[2] | _DERIVED)
    return jnp.stack([first, second, jnp.zeros_like(first)], axis=-1)


def _placed_fold_in(key: Array, data: Array | int) -> Array:
    first, second = _hash(key, key[2] | _DERIVED, jnp.asarray(data, jnp.uint32))
    return jnp.stack([first, second, jnp.zeros_like(first)])


_UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="threefry2x32_written_out",
    tag="frw",
)

_PLACED = define_prng_impl(
    key_shape=(3,),
    seed=threefry_prng_impl.seed,  # required, but unused: keys are made by `placed_key`
    split=_placed_split,
    random_bits=_placed_bits,
    fold_in=_placed_fold_in,
    name="threefry2x32_placed",
    tag="frp",
)
