"""One-sided exponential noise, rewound by its exact reverse kernel, for private tests."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import in_unit, unit_of
from nrjax.processes._kernel import Coordinates, NoiseState, exponential, random_bits
from nrjax.types import BlockwiseProcess


class Exponential(Coordinates, BlockwiseProcess):
    """The threshold noise of private tests: independent exponential noise of mean t.

    Releases with this noise are not private: the noise is never negative, so a release below the
    value of a neighbouring data set excludes this data set. Use it through
    `nrjax.AboveThreshold(..., noise="exponential")`; for releases use `nrjax.Laplace`.

    Forwards from s to t > s, `Z_t = Z_s` with probability `s/t`, otherwise `Z_s + Exp` of mean t.
    Backwards, `Z_s = min(Z_t, E/k)` with `k = 1/s - 1/t` and E a standard exponential draw
    (statement 19 of `docs/proofs`). In float32 the probability that a draw exceeds a bound has a
    relative error of 6e-7 if the probability is at least 1e-3, and of 1.2e-4 if it is at least
    1e-6, at every scale.

        >>> process = nrjax.processes.Exponential((3,))
        >>> nrjax.noise_path(jax.random.key(0), process, [4.0, 2.0, 1.0]).shape
        (3, 3)

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "exponential"

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Return the first noise, of mean `time`."""
        time = jnp.asarray(time, float_dtype(time))
        bits = random_bits(key, self.shape, time.dtype)
        return NoiseState(time * exponential(bits, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Return random bits for `steps` moves, shape (*steps, *shape)."""
        return random_bits(key, (*steps, *self.shape), dtype)

    def move(self, bits: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Rewind to a smaller time with the given random bits."""
        value, now = state
        time = jnp.asarray(time, now.dtype)
        unit, inverse = unit_of(now)
        s, t = in_unit(time, unit), in_unit(now, unit)
        gap = (t - s) / t  # k = gap / time
        drawn = exponential(bits, now.dtype) * (s / gap) * inverse
        return NoiseState(jnp.where(gap > 0, jnp.minimum(value, drawn), value), time)

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise, which equals its mean."""
        return jnp.asarray(time, float_dtype(time))
