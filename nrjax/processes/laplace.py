"""Laplace noise: `Z_t ~ Lap(t)`, independent increments, rewound by its exact reverse kernel."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_shape, float_dtype
from nrjax.pytrees import static
from nrjax.types import BlockwiseProcess, NoiseProcess


class LaplaceNoise(NoiseProcess):
    """A process of independent coordinates, each of them `Lap(t)` at time t.

    Attributes:
        shape: shape of the private value.
    """

    shape: tuple[int, ...] = static()
    noise: ClassVar[str] = "laplace"

    def __post_init__(self):
        check_shape("shape", self.shape)

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, `sqrt(2) time`."""
        return math.sqrt(2) * jnp.asarray(time, float_dtype(time))


class LaplaceState(NamedTuple):
    """Noise `value` at `time`."""

    value: Array
    time: Array


class Laplace(LaplaceNoise, BlockwiseProcess):
    """The noise of Laplace noise reduction (Koufogiannis et al. 2017; Whitehouse 2022, eq. 3-4).

    In each coordinate on its own, forwards from s to t > s: `Z_t = Z_s` with probability
    `(s/t)^2`, else `Z_s + Lap(t)`. So `Z_t ~ Lap(t)` (scale t), and a path is piecewise constant.
    Rewinding uses the exact reverse kernel (Bayes' rule on those two laws), at any s > 0.
    With `a = |Z_t|`, `r = s/t`, `k = 1/s - 1/t`, `m = 1/s + 1/t`, in the direction of `Z_t`'s sign:

    * below 0, at `-Exp(rate m)`: probability `(1 - r)/2`;
    * between 0 and a, with density proportional to `exp(-k w)`: `(1 + r)/2 (1 - exp(-k a))`;
    * beyond a, at `a + Exp(rate m)`: `(1 - r)/2 exp(-k a)`;
    * staying at a, bit for bit: `r exp(-k a)`.

    A coordinate takes 32 random bits a step in float32: noise ends at 22 scales (probability
    2e-10), and probabilities are exact to 6e-8. Where smaller ones matter, use float64.

    Attributes:
        shape: shape of the private value.
    """

    def init(self, key: Array, time: ArrayLike) -> LaplaceState:
        """Noise at the first time, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        bits = random_bits(key, self.shape, time.dtype)
        return LaplaceState(time * laplace(bits, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Random bits for `steps` moves, shape (*steps, *shape)."""
        return random_bits(key, (*steps, *self.shape), dtype)

    def move(self, bits: Array, state: LaplaceState, time: ArrayLike) -> LaplaceState:
        """`rewind` with its randomness given."""
        value, now = state
        dtype = now.dtype
        time = jnp.asarray(time, dtype)
        # One draw decides what happens and, by what is left of it, how far; random bits are most
        # of the cost. `rest` is 1 - draw before rounding, for the tail.
        draw, rest = uniform(bits, dtype), uniform(~bits, dtype)
        gap = (now - time) / now  # 1 - r; k = gap / time, m = (1 + r) / time
        side = gap / 2
        distance = jnp.abs(value)
        # Products in place of divisions by one number, which XLA rounds in two ways.
        past = side * jnp.exp(-distance * (gap / time))  # probability of moving beyond
        across, beyond = draw <= side, draw < side + past
        # Between: quantiles of an exponential law from either end, so that none is coarse.
        most = 1 / (1 - side)
        low = jnp.maximum(draw - side - past, 0) * most
        near = low < 0.5
        scaled = jnp.where(across, draw * (1 / side), (draw - side) / past)
        scaled = jnp.where(beyond, scaled, (rest + past) * most)
        tail = -jnp.log(scaled)
        inner = jnp.where(near, -jnp.log1p(-jnp.where(near, low, 0)), tail)
        between = inner < distance * (gap / time)
        target = jnp.where(beyond, tail * (time / (1 + time / now)), inner * (time / gap))
        target = jnp.where(across, -target, jnp.where(beyond, distance + target, target))
        moved = beyond | between
        return LaplaceState(
            jnp.where(moved, jnp.where(jnp.signbit(value), -target, target), value), time
        )

    def between(
        self, key: Array, lower: LaplaceState, upper: LaplaceState, time: ArrayLike
    ) -> LaplaceState:
        """Noise at a time between those of two states, given both (`docs/frontier.md`)."""
        s, u = lower.time, upper.time
        time = jnp.asarray(time, s.dtype)
        coin, jump = jax.random.split(key)
        # No jump up to `time`, given that there is one up to u.
        stays = (s / time) ** 2 * _jump(time, u) / _jump(s, u)
        apart = upper.value - lower.value
        moved = self.rewind(jump, LaplaceState(apart, u), time).value
        # Ties stay ties: no sum of differences stands for a value that is there already.
        value = jnp.where(moved == apart, upper.value, lower.value + moved)
        stay = jax.random.uniform(coin, self.shape, s.dtype) < stays
        value = jnp.where(stay | (upper.value == lower.value), lower.value, value)
        return LaplaceState(value, time)

    def onward(self, key: Array, state: LaplaceState, time: ArrayLike) -> LaplaceState:
        """Noise at a larger time, given the present one: forwards."""
        coin, jump = jax.random.split(key)
        fresh = self.init(jump, jnp.asarray(time, state.time.dtype))
        moves = jax.random.uniform(coin, self.shape, fresh.time.dtype)
        moves = moves < _jump(state.time, fresh.time)
        return LaplaceState(jnp.where(moves, state.value + fresh.value, state.value), fresh.time)

    def value(self, state: LaplaceState) -> Array:
        """The noise."""
        return state.value

    def privacy_loss(self, state: LaplaceState, shift: ArrayLike) -> Array:
        """Realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` (Rogers 2023, Appendix A)."""
        return laplace_loss(state.value, state.time, shift)


def _jump(s: Array, t: Array) -> Array:
    """`1 - (s/t)^2`, the probability of a jump between s and t."""
    return ((t - s) / t) * ((t + s) / t)


def laplace_loss(value: Array, time: Array, shift: ArrayLike) -> Array:
    """`sum_j (|Z_j + v_j| - |Z_j|)/t`, a scalar; no term exceeds `|v_j|/t`, even rounded."""
    shift = jnp.asarray(shift, value.dtype)
    outwards = jnp.where(jnp.signbit(value), -shift, shift)
    # Equal to |Z + v| - |Z|, which would cancel for shifts much smaller than the noise.
    return jnp.sum(jnp.maximum(outwards, -outwards - 2 * jnp.abs(value))) / time


def random_bits(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """As many random bits a number as `dtype` has; `uniform` and `laplace` consume them."""
    return jax.random.bits(key, shape, jnp.uint64 if dtype == jnp.float64 else jnp.uint32)


def uniform(bits: Array, dtype: Any) -> Array:
    """Uniform on (0, 1]: 2^32 levels in float32, where `jax.random.uniform` has 2^23."""
    return (bits.astype(dtype) + 0.5) * 2.0 ** -jnp.iinfo(bits.dtype).bits


def laplace(bits: Array, dtype: Any) -> Array:
    """Standard Laplace noise: the lowest bit is the sign, the others the magnitude."""
    magnitude = -jnp.log(
        ((bits >> 1).astype(dtype) + 0.5) * 2.0 ** (1 - jnp.iinfo(bits.dtype).bits)
    )
    return jnp.where(bits & 1, -magnitude, magnitude)
