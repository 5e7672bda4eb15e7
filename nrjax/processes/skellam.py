"""Skellam noise: the difference of two Poisson processes, rewound by binomial thinning."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_numbers, check_shape, concrete, float_dtype
from nrjax.processes._bessel import log_ratio
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.pytrees import static
from nrjax.types import NoiseProcess, Status


class SkellamState(NamedTuple):
    """Both counts at `time`, and whether one of them was ever too large to be exact."""

    positive: Array
    negative: Array
    time: Array
    overflow: Array


class Skellam(NoiseProcess):
    """The noise of the Skellam mechanism (Whitehouse 2022, Appendix E).

    In each coordinate `X_t = P1(t) - P2(t)`, independent Poisson processes: integers of mean
    `t (rate1 - rate2)`, so biased unless the rates agree, and of variance `t (rate1 + rate2)`.
    Rewinding thins each count on its own, `P_i(s) | P_i(t) ~ Binomial(P_i(t), s/t)`.

    Counts are floats, exact up to 2^24 in float32 and 2^53 in float64. Beyond that the counts
    are NaN or wrong, and `status` says `OVERFLOW` from there on, also after rewinding.

    There is no guarantee object for this process: its loss is unbounded, and no boundary for it is
    published. Counts are drawn in rejection loops: 0.4 to 0.9 microseconds a coordinate and step on
    two CPU cores, 15 to 30 times Brownian noise, and under `vmap` all lanes wait for the slowest.

    Attributes:
        shape: shape of the private value.
        rate1: rate of the positive count, per unit of time; scalar, >= 0.
        rate2: rate of the negative count. One of the rates may be 0 (Poisson noise, on one side
            only), not both.

    Raises:
        ValueError: a rate is negative or not finite, or both are 0.
    """

    shape: tuple[int, ...] = static()
    noise: ClassVar[str] = "skellam"
    rate1: ArrayLike
    rate2: ArrayLike

    def __post_init__(self):
        check_shape("shape", self.shape)
        one, two = (
            check_numbers(
                name,
                getattr(self, name),
                lambda number: np.isfinite(number) & (number >= 0),
                "finite and not negative",
            )
            for name in ("rate1", "rate2")
        )
        if one is not None and two is not None:
            both = (self.rate1, self.rate2)
            check(one + two > 0, "(rate1, rate2)", both, "such that one is positive")

    def init(self, key: Array, time: ArrayLike) -> SkellamState:
        """Counts at the first time, of means `time * rate1` and `time * rate2`."""
        time = jnp.asarray(time, float_dtype(time))
        # Both counts in one draw: the loops are compiled once.
        means = jnp.stack(self._means(time)).reshape(2, *(1 for _ in self.shape))
        positive, negative = poisson(key, means, (2, *self.shape))
        return SkellamState(positive, negative, time, _too_large(positive, negative))

    def rewind(self, key: Array, state: SkellamState, time: ArrayLike) -> SkellamState:
        """Counts at a smaller time, given the present ones."""
        now = state.time
        time = jnp.asarray(time, now.dtype)
        # Both probabilities are divisions: 1 - s/t would lose the small one's digits.
        kept, lost = time / now, (now - time) / now
        counts = jnp.stack([state.positive, state.negative])
        positive, negative = binomial(key, counts, kept, lost)
        return SkellamState(positive, negative, time, state.overflow)

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, `sqrt(time (rate1 + rate2))`."""
        return jnp.sqrt(jnp.asarray(time, float_dtype(time)) * (self.rate1 + self.rate2))

    def value(self, state: SkellamState) -> Array:
        """The noise: integers in a float dtype."""
        return state.positive - state.negative

    def privacy_loss(self, state: SkellamState, shift: ArrayLike) -> Array:
        """Realised loss `sum_j log p_t(X_j) - log p_t(X_j + v_j)`.

        `p_t(k) = exp(-t (l1 + l2)) (l1/l2)^(k/2) I_|k|(2 t sqrt(l1 l2))`. For counts and shifts up
        to 1e6 the error of a coordinate is below 1e-3 in float32 and 1e-9 in float64, plus ten
        units in the last place of the loss. The cost does not depend on the shift.

        The shift `v = f(x) - f(x')` is of integers. The loss is infinite where no noise could hide
        it: a rate of 0, or a shift that is not an integer inside a trace.

        Raises:
            ValueError: the shift is concrete and not an integer.
        """
        number = concrete(shift)
        if number is not None:
            # An infinite or NaN shift is refused too.
            check(np.isfinite(number) & (number == np.round(number)), "shift", shift, "integers")
        noise = self.value(state)
        shift = jnp.asarray(shift, noise.dtype)
        integral = jnp.isfinite(shift) & (shift == jnp.round(shift))
        mean1, mean2 = self._means(state.time)
        rate1, rate2 = (jnp.asarray(rate, noise.dtype) for rate in (self.rate1, self.rate2))
        excess = state.time * (rate1 - rate2)
        loss = log_ratio(noise, shift, mean1, mean2, excess)
        return jnp.sum(jnp.where(integral, loss, jnp.inf))

    def status(self, state: SkellamState) -> Array:
        """`Status.OVERFLOW` once a count was too large to be exact, else `Status.RUNNING`."""
        return jnp.where(state.overflow, Status.OVERFLOW, Status.RUNNING).astype(jnp.int32)

    def _means(self, time):
        return (
            time * jnp.asarray(self.rate1, time.dtype),
            time * jnp.asarray(self.rate2, time.dtype),
        )


def _too_large(*counts):
    exact = [jnp.all(count <= largest_count(count.dtype)) for count in counts]  # NaN: not exact
    return ~(exact[0] & exact[1])
