"""Parts that noise processes share: base class, random draws and Laplace reverse kernel."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.numerics import in_unit, noise_range, unit_of
from nrjax._base.pytrees import static
from nrjax._base.validation import check, check_shape, concrete_or_none
from nrjax.types import NoiseProcess, Status


class NoiseState(NamedTuple):
    """The noise of a process, `value`, at `time`."""

    value: Array
    time: Array


class Coordinates(NoiseProcess):
    """A process of independent, identically distributed coordinates.

    Attributes:
        shape: shape of the private value.
    """

    shape: tuple[int, ...] = static()

    def __post_init__(self):
        check_shape("shape", self.shape)

    def value(self, state) -> Array:
        """Return the noise of a state."""
        return state.value

    def largest_time(self, dtype: Any) -> float:
        """Return the largest time of a dtype, at which noise does not overflow."""
        return noise_range(dtype)[1]

    def smallest_time(self, dtype: Any) -> float:
        """Return the smallest time of a dtype: XLA may flush smaller noise to 0."""
        return noise_range(dtype)[0]

    def status_at(self, time: Array) -> Array:
        """Return `Status.OVERFLOW` if the dtype cannot hold noise of the time, else `RUNNING`."""
        held = (time >= self.smallest_time(time.dtype)) & (time <= self.largest_time(time.dtype))
        return jnp.where(held, Status.RUNNING, Status.OVERFLOW).astype(jnp.int32)

    def status(self, state: Any) -> Array:
        """Return `status_at` the time of a state."""
        return self.status_at(state.time)


class Branches(NamedTuple):
    """The move of each coordinate of Laplace noise, selected by one uniform draw.

    Attributes:
        across: whether the coordinate moves across 0.
        outward: whether the coordinate moves across 0 or away from 0.
        moves: whether the coordinate moves at all (across 0, away from 0 or towards 0).
        inner: standard exponential draw for the new distance from 0, for a move towards 0.
        outer: standard exponential draw for the length of an outward move.
    """

    across: Array
    outward: Array
    moves: Array
    inner: Array
    outer: Array


def check_integers(shift: ArrayLike, dtype: Any) -> tuple[Array, Array]:
    """Return a shift cast to a dtype, and whether each entry is an integer.

    Raises:
        ValueError: an entry of a concrete shift is not an integer.
    """
    number = concrete_or_none(shift)
    if number is not None:
        check(np.isfinite(number) & (number == np.round(number)), "shift", shift, "integers")
    shift = jnp.asarray(shift, dtype)
    return shift, jnp.isfinite(shift) & (shift == jnp.round(shift))


def random_bits(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return random words with as many bits as a float of `dtype`."""
    return jax.random.bits(key, shape, jnp.uint64 if dtype == jnp.float64 else jnp.uint32)


def uniform(bits: Array, dtype: Any) -> Array:
    """Return uniform draws on (0, 1], one per word, with all bits of the word.

    With words of 32 bits there are 2^32 levels, while `jax.random.uniform` has 2^23.
    """
    return (bits.astype(dtype) + 0.5) * 2.0 ** -jnp.iinfo(bits.dtype).bits


def uniform_and_complement(bits: Array, dtype: Any) -> tuple[Array, Array]:
    """Return uniform draws, and 1 minus each draw, both rounded from the exact numbers."""
    return uniform(bits, dtype), uniform(~bits, dtype)


def exponential(bits: Array, dtype: Any) -> Array:
    """Return standard exponential draws, one per word."""
    return -jnp.log(uniform(bits, dtype))


def precise_exponential(bits: Array, dtype: Any) -> Array:
    """Return standard exponential draws, one per word, positive and precise near 0 as well."""
    draw, complement = uniform_and_complement(bits, dtype)
    # What the rounding of a draw near 1 lost.
    lost = jnp.where(draw < 0.5, 0, complement - (1 - draw))
    return lost - jnp.log(draw)


def laplace(bits: Array, dtype: Any) -> Array:
    """Return standard Laplace draws, one per word.

    The lowest bit of a word is the sign, the other bits give the magnitude.
    """
    magnitude = -jnp.log(
        ((bits >> 1).astype(dtype) + 0.5) * 2.0 ** (1 - jnp.iinfo(bits.dtype).bits)
    )
    return jnp.where(bits & 1, -magnitude, magnitude)


def branches(draw: Array, complement: Array, distance: Array, side: Array, rate: Array) -> Branches:
    """Select the move of a coordinate at `distance` from 0.

    The coordinate moves across 0 with probability `side`, outward on its own side with probability
    `side exp(-rate distance)`, and stays with probability `(1 - 2 side) exp(-rate distance)`.

    Args:
        draw: uniform draws on (0, 1].
        complement: `1 - draw` before rounding, which is accurate for draws near 1.
        distance: absolute value of the noise.
        side: probability of a move across 0.
        rate: rate of the exponential distribution of moves towards 0.
    """
    # Products replace divisions by one number, which XLA rounds in two ways.
    outside = side * jnp.exp(-distance * rate)
    across, outward = draw <= side, draw < side + outside
    # Exponential quantiles, computed from the nearer end so that none is coarse.
    unit = 1 / (1 - side)
    low = jnp.maximum(draw - side - outside, 0) * unit
    near = low < 0.5
    scaled = jnp.where(across, draw * (1 / side), (draw - side) / outside)
    scaled = jnp.where(outward, scaled, (complement + outside) * unit)
    outer = -jnp.log(scaled)
    inner = jnp.where(near, -jnp.log1p(-jnp.where(near, low, 0)), outer)
    return Branches(across, outward, outward | (inner < distance * rate), inner, outer)


def rewind_laplace(draw: Array, complement: Array, value: Array, now: Array, time: Array) -> Array:
    """Return Laplace noise at `time`, given its `value` at time `now` and a uniform draw."""
    unit, inverse = unit_of(now)
    whole, t, distance = in_unit(now, unit), in_unit(time, unit), jnp.abs(value)
    gap = (whole - t) / whole  # 1 - r with r = time/now; k = gap/time, m = (1 + r)/time
    move = branches(draw, complement, distance, gap / 2, gap / t * unit)
    target = jnp.where(
        move.outward, move.outer * (time / (1 + time / now)), move.inner * (t / gap * inverse)
    )
    target = jnp.where(move.across, -target, jnp.where(move.outward, distance + target, target))
    return jnp.where(move.moves, jnp.where(jnp.signbit(value), -target, target), value)


def move_probability(distance: Array, now: Array, time: Array) -> Array:
    """Return the probability that Laplace noise moves, by its `distance` from 0.

    It is `1 - r exp(-k distance)` with `r = time/now` and `k = 1/time - 1/now`. A coordinate stays
    if its uniform draw is larger.
    """
    unit, _ = unit_of(now)
    now, time = in_unit(now, unit), in_unit(time, unit)
    gap = (now - time) / now
    return gap - (1 - gap) * jnp.expm1(-distance * (gap / time * unit))
