"""Skellam noise: the difference of two Poisson processes, rewound by binomial thinning."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.outcome import Status
from nrjax._base.validation import check, check_numbers
from nrjax.processes._bessel import log_ratio
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.processes._kernel import Coordinates, check_integers


class SkellamState(NamedTuple):
    """The two counts at `time`, and `overflow`, whether a count was too large to be exact."""

    positive: Array
    negative: Array
    time: Array
    overflow: Array


class Skellam(Coordinates):
    """The integer noise of the Skellam mechanism (Whitehouse 2022, Appendix E).

    Use it to study that mechanism. No guarantee holds for it, since its privacy loss is unbounded.
    `nrjax.DiscreteLaplace` is integer noise with a guarantee. Counts are drawn in rejection loops,
    which are 15 to 30 times as slow as Brownian noise.

    In each coordinate `X_t = P1(t) - P2(t)`, a difference of independent Poisson processes, of mean
    `t (rate1 - rate2)` and variance `t (rate1 + rate2)`. Rewinding thins each count separately,
    `P_i(s) | P_i(t) ~ Binomial(P_i(t), s/t)`.

    Counts are floats, exact below 2^24 in float32 and 2^53 in float64. Larger counts are NaN or
    wrong, and `status` is `OVERFLOW` from then on, also after rewinding.

        >>> float(nrjax.Skellam((3,), rate1=2.0, rate2=2.0).deviation(4.0))
        4.0

    Attributes:
        shape: shape of the private value.
        rate1: rate of the positive count, per unit of time; scalar, >= 0.
        rate2: rate of the negative count. One of the rates may be 0 (Poisson noise, on one side
            only), not both.
    """

    noise: ClassVar[str] = "skellam"
    rate1: ArrayLike
    rate2: ArrayLike

    def __post_init__(self):
        super().__post_init__()
        expected = "finite, at least 0, and a single number"
        rates = [
            check_numbers(name, rate, lambda n: (n.ndim == 0) & np.isfinite(n) & (n >= 0), expected)
            for name, rate in (("rate1", self.rate1), ("rate2", self.rate2))
        ]
        if rates[0] is not None and rates[1] is not None:
            both = (self.rate1, self.rate2)
            check(
                (rates[0] > 0) | (rates[1] > 0), "(rate1, rate2)", both, "such that one is positive"
            )

    def init(self, key: Array, time: ArrayLike) -> SkellamState:
        """Return the first counts, of means `time * rate1` and `time * rate2`."""
        time = jnp.asarray(time, float_dtype(time))
        # Both counts in one draw, so that the loops are compiled once.
        means = jnp.stack(self._means(time)).reshape(2, *(1 for _ in self.shape))
        positive, negative = counts = poisson(key, means, (2, *self.shape))
        # NaN is not exact. Nor may the largest count be: the next one is rounded to it.
        exact = jnp.all(counts < largest_count(counts.dtype))
        return SkellamState(positive, negative, time, ~exact)

    def rewind(self, key: Array, state: SkellamState, time: ArrayLike) -> SkellamState:
        """Return counts at a smaller time, given the counts of a state."""
        now = state.time
        time = jnp.asarray(time, now.dtype)
        # Two divisions, because 1 - s/t would lose digits of a small probability.
        kept, lost = time / now, (now - time) / now
        counts = jnp.stack([state.positive, state.negative])
        positive, negative = binomial(key, counts, kept, lost)
        return SkellamState(positive, negative, time, state.overflow)

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise, `sqrt(time (rate1 + rate2))`."""
        return jnp.sqrt(jnp.asarray(time, float_dtype(time)) * (self.rate1 + self.rate2))

    def value(self, state: SkellamState) -> Array:
        """Return the noise: integers in a float dtype."""
        return state.positive - state.negative

    def privacy_loss(self, state: SkellamState, shift: ArrayLike) -> Array:
        """Return the realised loss `sum_j log p_t(X_j) - log p_t(X_j + v_j)` for a shift v.

        For counts and shifts up to 1e6 the error of a coordinate is below 1e-3 in float32 and 1e-9
        in float64, plus ten units in the last place of the loss. The loss is infinite if a rate is
        0 and the noise cannot hide the shift, or if an entry of a traced shift is not an integer.

        Raises:
            ValueError: an entry of a concrete shift is not an integer.
        """
        noise = self.value(state)
        shift, integral = check_integers(shift, noise.dtype)
        mean1, mean2 = self._means(state.time)
        rate1, rate2 = (jnp.asarray(rate, noise.dtype) for rate in (self.rate1, self.rate2))
        excess = state.time * (rate1 - rate2)
        loss = log_ratio(noise, shift, mean1, mean2, excess)
        return jnp.sum(jnp.where(integral, loss, jnp.inf))

    def status(self, state: SkellamState) -> Array:
        """Return `Status.OVERFLOW` once a count was too large to be exact, else `RUNNING`."""
        return jnp.where(state.overflow, Status.OVERFLOW, Status.RUNNING).astype(jnp.int32)

    def _means(self, time: Array) -> list[Array]:
        return [time * jnp.asarray(rate, time.dtype) for rate in (self.rate1, self.rate2)]
