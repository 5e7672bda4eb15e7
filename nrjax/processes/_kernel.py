"""The reverse kernel of Laplace noise, coordinate by coordinate, and the draws it is made of."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def random_bits(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """As many random bits a number as `dtype` has; `uniform` and `laplace` consume them."""
    return jax.random.bits(key, shape, jnp.uint64 if dtype == jnp.float64 else jnp.uint32)


def uniform(bits: Array, dtype: Any) -> Array:
    """Uniform on (0, 1]: 2^32 levels in float32, where `jax.random.uniform` has 2^23."""
    return (bits.astype(dtype) + 0.5) * 2.0 ** -jnp.iinfo(bits.dtype).bits


def uniforms(bits: Array, dtype: Any) -> tuple[Array, Array]:
    """`uniform`, and what that leaves of 1 before rounding."""
    return uniform(bits, dtype), uniform(~bits, dtype)


def laplace(bits: Array, dtype: Any) -> Array:
    """Standard Laplace noise: the lowest bit is the sign, the others the magnitude."""
    magnitude = -jnp.log(
        ((bits >> 1).astype(dtype) + 0.5) * 2.0 ** (1 - jnp.iinfo(bits.dtype).bits)
    )
    return jnp.where(bits & 1, -magnitude, magnitude)


def branches(
    draw: Array, rest: Array, distance: Array, side: Array, rate: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """What a draw decides of a coordinate `distance` from 0, and by what is left of it, how far.

    `draw` is uniform on (0, 1], and `rest` is 1 - draw before rounding, for the tail.

    Returns:
        Whether it moves across 0 (probability `side`); whether across, or beyond where it is
        (`side exp(-rate distance)`); whether between; and standard exponential draws for how far,
        between and, of the tails, outside. Else it stays.
    """
    # Products in place of divisions by one number, which XLA rounds in two ways.
    past = side * jnp.exp(-distance * rate)
    across, beyond = draw <= side, draw < side + past
    # Between: quantiles of an exponential law from either end, so that none is coarse.
    most = 1 / (1 - side)
    low = jnp.maximum(draw - side - past, 0) * most
    near = low < 0.5
    scaled = jnp.where(across, draw * (1 / side), (draw - side) / past)
    scaled = jnp.where(beyond, scaled, (rest + past) * most)
    outer = -jnp.log(scaled)
    inner = jnp.where(near, -jnp.log1p(-jnp.where(near, low, 0)), outer)
    return across, beyond, inner < distance * rate, inner, outer


def rewound(draw: Array, rest: Array, value: Array, now: Array, time: Array) -> Array:
    """Noise at `time`, given its value `now`, by a uniform draw and what that leaves of 1.

    What has a draw above `moving` stays.
    """
    gap = (now - time) / now  # 1 - r; k = gap / time, m = (1 + r) / time
    distance = jnp.abs(value)
    across, beyond, between, inner, outer = branches(draw, rest, distance, gap / 2, gap / time)
    target = jnp.where(beyond, outer * (time / (1 + time / now)), inner * (time / gap))
    target = jnp.where(across, -target, jnp.where(beyond, distance + target, target))
    moved = beyond | between
    return jnp.where(moved, jnp.where(jnp.signbit(value), -target, target), value)


def moving(distance: Array, now: Array, time: Array) -> Array:
    """The probability that a coordinate so far from 0 moves, `1 - r exp(-k distance)`."""
    gap = (now - time) / now
    return gap - (1 - gap) * jnp.expm1(-distance * (gap / time))
