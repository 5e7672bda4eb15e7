"""Standard normals, two from a hash."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._threefry import in_pairs, is_placed


def normals(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normals: pairs by radius and angle (Box and Muller 1958), of 32 bits each.

    Of 64 bits in float64. In float32 they end at 6.8, where those of `jax.random.normal`, by 23
    bits, end at 5.4; and they cost half as much.
    """
    size, dtype = math.prod(shape), jnp.dtype(dtype)
    bits = 8 * dtype.itemsize
    if bits < 32:
        return normals(key, shape, jnp.float32).astype(dtype)
    if is_placed(key):
        return in_pairs(_polar, jax.random.key_data(key), size, bits).reshape(shape)
    pairs = jax.random.bits(key, (2, -(-size // 2)), f"uint{bits}")
    return jnp.concatenate(_polar(*pairs))[:size].reshape(shape)


def _polar(first: Array, second: Array) -> tuple[Array, Array]:
    """Two independent normals of two random words."""
    bits = jnp.iinfo(first.dtype).bits
    dtype = jnp.dtype(f"float{bits}")
    share = (first.astype(dtype) + 0.5) * 2.0**-bits
    radius = jnp.sqrt(-2 * jnp.log(share))
    # Quarter turns to the nearest, and what is left of the angle, at most half of one.
    quarter = (second + np.array(2 ** (bits - 3), second.dtype)) >> (bits - 2)
    left = second - (quarter << (bits - 2))
    left = jax.lax.bitcast_convert_type(left, f"int{bits}").astype(dtype)
    left *= 2 * math.pi * 2.0**-bits
    square = left * left
    terms = {32: 5, 64: 9}[bits]  # the rest is below the rounding
    sine = left * _series(square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(terms)])
    cosine = _series(square, [(-1) ** k / math.factorial(2 * k) for k in range(terms)])
    odd, half = (quarter & 1) == 1, (quarter & 2) == 2
    x, y = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    return radius * jnp.where(odd ^ half, -x, x), radius * jnp.where(half, -y, y)


def _series(argument: Array, coefficients: list[float]) -> Array:
    found = jnp.full_like(argument, coefficients[-1])
    for one in reversed(coefficients[:-1]):
        found = found * argument + one
    return found
