"""Rules with one threshold for all queries or one for each, compared exactly; the public one."""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import exact_float, float_dtype, two_sum
from nrjax._validation import as_numeric, check, check_positive, concrete_or_none
from nrjax.types import StoppingRule

# Machine epsilons by which noise is enlarged, so that rounding in rules, and 32 machine epsilons
# in a guarantee's epsilon (`nrjax.stopping.private`), leave the stated cost true; and machine
# epsilons of what the noise pays for itself, since it has a grain (half of one near 0, and up to 11
# where 1 of 2000 draws is beyond, by enumeration). Below `_LEAST` no width makes up for that.
_MARGIN, _GRAIN, _LEAST = 40, 16, 40


def noise_scale(sensitivity: ArrayLike, epsilon: ArrayLike, dtype: Any, most: float = 1.0) -> Array:
    """Scale `Delta/eps` of a rule's noise, rounded up; NaN, and no yes, if it leaves the dtype.

    `most` is the largest multiple of it that is used: of epsilon, that noise pays for a share of
    `1/most`. XLA takes numbers below the smallest normal one for 0, which is to be less than the
    grain. Likewise NaN if the epsilon that noise pays for is as small as that.
    """
    epsilon, info = jnp.asarray(epsilon, dtype), jnp.finfo(dtype)
    scale = jnp.asarray(sensitivity, dtype) / epsilon
    scale *= 1 + (_MARGIN + _GRAIN * most / epsilon) * float(info.eps)
    held = (scale >= float(info.tiny) / float(info.eps)) & jnp.isfinite(most * scale)
    return jnp.where(held & (epsilon >= _LEAST * most * float(info.eps)), scale, jnp.nan)


class ThresholdRule(StoppingRule):
    """A rule that compares utilities with thresholds; its other fields are positive and finite.

    Attributes:
        threshold: tau, in units of the utility: a scalar, or one for each step, shape (steps,),
            past whose end the rule never says yes. Not NaN.
    """

    threshold: Any

    def __post_init__(self):
        value, right = self.threshold, "a number, or a vector of numbers"
        value = np.asarray(value) if isinstance(value, (list, tuple)) else value
        number = as_numeric("threshold", value, right)
        if number is not None and number.dtype.kind in "iu":  # JAX would wrap large ones
            check(np.abs(number.astype(np.float64)) <= 2**53, "threshold", value, "at most 2^53")
            value = number.astype(np.float64)
        object.__setattr__(self, "threshold", value)
        if number is not None:
            check(number.size > 0, "threshold", value, f"{right}, not empty")
            check(~np.isnan(number), "threshold", value, right)
        for field in dataclasses.fields(self):
            if field.name != "threshold" and not field.metadata.get("static", False):
                check_positive(field.name, getattr(self, field.name))

    def init(self, key: Array, epsilon: ArrayLike) -> Any:
        """State: the number of the next step, int32."""
        del key, epsilon
        return jnp.int32(0)

    @property
    def max_noise_multiple(self) -> float:
        """Largest multiple of Delta/epsilon that is a scale of its noise."""
        return 1.0

    @property
    def max_steps(self) -> int | None:
        """Number of thresholds in a sequence; None for a single one."""
        shape = jnp.shape(self.threshold)
        return shape[0] if shape else None

    def threshold_at(self, step: Array) -> Array:
        """The threshold of a step; NaN, which no utility reaches, past the end of a sequence."""
        threshold = jnp.asarray(self.threshold, float_dtype(self.threshold))
        if threshold.ndim == 0:
            return threshold
        if threshold.ndim == 1:
            return threshold.at[step].get(mode="fill", fill_value=jnp.nan)
        shape = threshold.shape
        raise ValueError(
            f"threshold has shape {shape}: must be a scalar or a vector, for one trial"
        )

    def reached(self, utility: ArrayLike, step: Array, noise: Array) -> Array:
        """Whether `utility + noise >= threshold`, exactly, for the numbers as they are given.

        The sum is never rounded: a neighbour's utility is as far away as it was when it came.
        """
        threshold = self.threshold_at(step)
        dtype = jnp.result_type(utility, threshold, noise)
        utility, threshold = exact_float(utility, dtype), threshold.astype(dtype)
        margin, rest = two_sum(utility, -threshold)
        margin = jnp.where(utility == threshold, 0, margin)  # of infinities, too
        return (noise > -margin) | ((noise == -margin) & ~(rest < 0))

    def centred(self, utilities: np.ndarray) -> tuple[Self, np.ndarray]:
        """The rule with thresholds 0 and what utilities, shape (steps,), exceed its own by.

        Taken on the host, so that a cast to float32 rounds differences and not large numbers.
        """
        threshold = np.asarray(concrete_or_none(self.threshold), np.float64)
        blank = dataclasses.replace(self, threshold=np.zeros(threshold.shape))
        threshold = threshold[: utilities.size] if threshold.ndim else threshold
        exact = utilities.astype(np.float64)
        if utilities.dtype.kind in "iu":
            check(np.abs(exact) <= 2**53, "utilities", utilities, "at most 2^53")
        with np.errstate(invalid="ignore"):
            return blank, np.where(exact == threshold, 0, exact - threshold)

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Raise a `ValueError` unless Delta spans as many numbers near the thresholds.

        Likewise if the dtype cannot hold the noise.
        """
        threshold, sensitivity = (
            concrete_or_none(self.threshold),
            concrete_or_none(self.sensitivity),
        )
        if sensitivity is None:
            return
        epsilon = concrete_or_none(getattr(self, "epsilon", None))
        if epsilon is not None:
            with jax.ensure_compile_time_eval():
                held = ~np.isnan(noise_scale(sensitivity, epsilon, dtype, self.max_noise_multiple))
            least = f"{_LEAST * self.max_noise_multiple * float(jnp.finfo(dtype).eps):.2g}"
            right = f"such that {np.dtype(dtype).name} holds noise of scale sensitivity/epsilon"
            right = f"{right}: at least {least}, with sensitivity {np.min(sensitivity):.3g}"
            check(held, "epsilon", epsilon, right)
        if threshold is None:
            return
        largest = np.abs(threshold[np.isfinite(threshold)]).max(initial=0)
        spacing = float(np.spacing(largest.astype(dtype)))
        if np.any(levels * spacing > sensitivity):
            raise ValueError(
                f"threshold is as large as {largest:.6g}, where {np.dtype(dtype).name} numbers are "
                f"{spacing:.2g} apart: must resolve the sensitivity {np.min(sensitivity):.3g} of "
                "the utility; subtract a public number from utility and threshold, or use float64 "
                "(JAX_ENABLE_X64=1)"
            )


class PublicThreshold(ThresholdRule):
    """Stop as soon as the utility reaches a threshold.

    For utilities that are public, or a function of the releases alone; it adds nothing to the
    privacy cost (Whitehouse 2022, section 6, "public" tests).

    Attributes:
        threshold: smallest utility that is good enough, scalar; or one for each step, shape
            (steps,), past whose end the rule never says yes. Infinity never stops a trial.
    """

    fixed_price: ClassVar[bool] = True

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state + 1, jnp.asarray(utility) >= self.threshold_at(state)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Nothing."""
        del stopped, answers
        return jnp.zeros_like(epsilon)
