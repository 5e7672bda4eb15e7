"""What a round of noise costs by its time, and the smallest time that what is left allows."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import largest_divisor
from nrjax.composition._spending import cost


def squared_ratio(sensitivity: ArrayLike, time: ArrayLike, dtype: Any) -> Array:
    """`sensitivity^2/time`, by factors that stay within the range of the dtype where it does.

    Not the square of `sensitivity/sqrt(time)`, which XLA rounds in two ways, depending on what else
    is in the program.
    """
    size = jnp.asarray(sensitivity, dtype)
    return size / jnp.asarray(time, dtype) * size


def ratio_cost(sensitivity: ArrayLike, time: ArrayLike, dtype: Any) -> Array:
    """`sensitivity/time`, rounded up."""
    raw = jnp.asarray(sensitivity, dtype) / jnp.asarray(time, dtype)
    return cost(raw, jnp.ones((), dtype), 4)


def time_of_square(room: Array, sensitivity: ArrayLike, factor: ArrayLike = 1.0) -> Array:
    """Smallest time with `factor sensitivity^2/time <= room`, rounded to more noise, else inf."""
    limits = jnp.finfo(room.dtype)
    size = jnp.asarray(sensitivity, room.dtype)
    return enough(size / (room / factor) * size * (1 + 24 * float(limits.eps)), room)


def enough(time: Array, room: Array) -> Array:
    """`time`, at least the smallest that requests take; infinite where there is none."""
    time = jnp.maximum(time, 4 * float(jnp.finfo(time.dtype).tiny))
    return jnp.where((room > 0) & (time <= largest_divisor(time.dtype)), time, jnp.inf)
