"""One-sided exponential noise, rewound by its exact reverse kernel: for private tests."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.processes._coordinates import Coordinates, NoiseState
from nrjax.processes._kernel import random_bits, uniform
from nrjax.types import BlockwiseProcess


class Exponential(Coordinates, BlockwiseProcess):
    """In each coordinate on its own `Z_t ~ Exp` of mean t (`docs/frontier.md`).

    Forwards from s to t > s: `Z_t = Z_s` with probability `s/t`, else `Z_s + Exp` of mean t.
    Backwards `Z_s | Z_t = min(Z_t, E/k)`, `k = 1/s - 1/t` and E a standard exponential draw. It
    hides no value by itself, whose neighbours may exceed it: it is the threshold noise of private
    tests (`nrjax.AboveThreshold(..., noise="exponential")`). Random bits, and what they leave of
    small probabilities, are as in `Laplace`. A test reveals comparisons only: in float32 the
    probability that a draw is above a bound has a relative error of 6e-7 where it is at least 1e-3,
    and of 1.2e-4 where it is at least 1e-6, at every scale.

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "exponential"

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Noise at the first time, of mean `time`."""
        time = jnp.asarray(time, float_dtype(time))
        return NoiseState(
            time * exponential(random_bits(key, self.shape, time.dtype), time.dtype), time
        )

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Random bits for `steps` moves, shape (*steps, *shape)."""
        return random_bits(key, (*steps, *self.shape), dtype)

    def move(self, bits: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """`rewind` with its randomness given."""
        value, now = state
        time = jnp.asarray(time, now.dtype)
        gap = (now - time) / now  # of k = gap / time
        drawn = exponential(bits, now.dtype) * (time / gap)
        return NoiseState(jnp.where(gap > 0, jnp.minimum(value, drawn), value), time)

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, which is its mean."""
        return jnp.asarray(time, float_dtype(time))


def exponential(bits: Array, dtype: Any) -> Array:
    """A standard exponential draw of a word."""
    return -jnp.log(uniform(bits, dtype))
