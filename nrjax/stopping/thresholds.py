"""Base class of threshold rules, with exact comparisons, and the public threshold.

Float noise has finitely many values, and rules compute with rounded numbers. Noise of the ideal
scale would therefore cost more than stated: in float32 by about 1e-6, which is 0.1 % of an epsilon
of 0.001. A utility is rounded too, in units of its size: the mean of whole numbers moves by more
than Delta between neighbours. `noise_scale` widens the noise by
`40 + 16 multiple/epsilon + 2 |threshold|/Delta` machine epsilons, so that stated costs are true.
For AboveThreshold at an epsilon of 0.1 in float32 and a threshold of 0, the noise gets wider by a
factor of 1.00008.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import exact_float, noise_range, two_sum
from nrjax._base.validation import (
    as_numeric,
    as_table,
    check,
    check_positive,
    concrete_or_none,
    float_if_large,
)
from nrjax.types import StoppingRule

FALL_TOLERANCE = 32
"""Number of machine epsilons by which the epsilon of the releases may fall in a step.

The epsilons of a guarantee are accurate to about 24 machine epsilons.
"""

_ROUNDING_MARGIN = FALL_TOLERANCE + 8
"""Number of machine epsilons by which noise is widened for falling epsilons and rounding."""

_GRAIN_MARGIN = 16
"""Number of machine epsilons by which a rule's epsilon is lowered for the spacing of noise.

Counted over all float32 draws, the log-ratio of two noise probabilities exceeds the ideal log-ratio
by half a machine epsilon near 0, and by up to 11 machine epsilons at the value that 1 of 2000 draws
exceeds.
"""

_UTILITY_MARGIN = 2
"""Number of machine epsilons of the largest threshold by which neighbours' utilities are rounded.

A utility far below its threshold is rounded by more, but the noise that reaches the threshold is
then as coarse, which `_GRAIN_MARGIN` covers.
"""

_LEAST_EPSILON = 40
"""Smallest epsilon that the spacing of noise values permits, in machine epsilons."""


def noise_scale(
    sensitivity: ArrayLike,
    epsilon: ArrayLike,
    dtype: Any,
    multiple: float = 1.0,
    largest: ArrayLike = 0.0,
) -> Array:
    """Return the scale `Delta/epsilon` of a rule's noise, widened for rounding.

    The module's docstring explains the widening. The scale is NaN, so that the rule never stops a
    trial, if the dtype cannot hold the noise. That is the case if the scale is infinite, if XLA
    would flush the spacing of noise values to 0, or if epsilon is too small for that spacing.

    Args:
        sensitivity: sensitivity Delta of the utility.
        epsilon: privacy level of the rule.
        dtype: dtype of the noise.
        multiple: largest multiple of the scale that the rule uses. Noise of the multiplied scale
            pays for `epsilon / multiple`.
        largest: largest absolute threshold, near which utilities are rounded.
    """
    epsilon, limits = jnp.asarray(epsilon, dtype), jnp.finfo(dtype)
    eps, tiny = float(limits.eps), float(limits.tiny)
    size, sensitivity = jnp.asarray(largest, dtype), jnp.asarray(sensitivity, dtype)
    scale = sensitivity / epsilon
    margin = _ROUNDING_MARGIN + _GRAIN_MARGIN * multiple / epsilon
    scale *= 1 + (margin + _UTILITY_MARGIN * size / sensitivity) * eps
    held = (scale >= tiny / eps) & jnp.isfinite(multiple * scale)
    return jnp.where(held & (epsilon >= _LEAST_EPSILON * multiple * eps), scale, jnp.nan)


class ThresholdRule(StoppingRule):
    """A rule that compares utilities with thresholds.

    Subclasses add `step`, `cost` and further fields, which must be positive and finite.

    Attributes:
        threshold: tau, in units of the utility, not NaN: a scalar, or one number for each step,
            shape (steps,). After the last step the rule never stops a trial.
        epsilon: privacy level of one test; None if the rule has no level of its own.
    """

    threshold: Any
    epsilon = None

    def __post_init__(self):
        value, expected = as_table(self.threshold), "a number, or a vector of numbers"
        number = as_numeric("threshold", value, expected)
        if number is not None and number.dtype.kind in "iu":  # JAX would wrap large integers
            check(np.abs(number.astype(np.float64)) <= 2**53, "threshold", value, "at most 2^53")
            value = number.astype(np.float64)
        object.__setattr__(self, "threshold", value)
        if number is not None:
            check(number.size > 0, "threshold", value, f"{expected}, not empty")
            check(~np.isnan(number), "threshold", value, f"{expected}, not NaN")
        for field in dataclasses.fields(self):
            if field.name != "threshold" and not field.metadata.get("static", False):
                value = getattr(self, field.name)
                check_positive(field.name, value)
                object.__setattr__(self, field.name, float_if_large(value))

    def init(self, key: Array, epsilon: ArrayLike) -> Any:
        """Return the initial state: the number of the next step, int32."""
        del key, epsilon
        return jnp.int32(0)

    @property
    def max_noise_multiple(self) -> float:
        """The largest multiple of Delta/epsilon that the rule uses as a scale of its noise."""
        return 1.0

    @property
    def max_steps(self) -> int | None:
        """The number of thresholds, or None if one threshold is for all steps."""
        shape = jnp.shape(self.threshold)
        return shape[0] if shape else None

    def _noise_scale(self, epsilon: ArrayLike, dtype: Any, multiple: float = 1.0) -> Array:
        """Return `noise_scale` for the rule's sensitivity and thresholds."""
        size = jnp.abs(jnp.asarray(self.threshold, dtype))
        largest = jnp.max(jnp.where(jnp.isfinite(size), size, 0))
        return noise_scale(cast(Any, self.sensitivity), epsilon, dtype, multiple, largest)

    def threshold_at(self, step: Array) -> Array:
        """Return the threshold of a step, or NaN (never reached) after the last threshold."""
        threshold = jnp.asarray(self.threshold, float_dtype(self.threshold))
        if threshold.ndim == 0:
            return threshold
        shape = threshold.shape
        check(len(shape) == 1, "threshold", shape, "a scalar or a vector, for one trial")
        return threshold.at[step].get(mode="fill", fill_value=jnp.nan)

    def reached(self, utility: ArrayLike, step: Array, noise: Array) -> Array:
        """Return whether `utility + noise >= threshold`, computed exactly.

        A rounded sum could move the utilities of neighbours further apart than Delta.
        """
        threshold = self.threshold_at(step)
        dtype = jnp.result_type(utility, threshold, noise)
        utility, threshold = exact_float(utility, dtype), threshold.astype(dtype)
        margin, remainder = two_sum(utility, -threshold)
        margin = jnp.where(utility == threshold, 0, margin)  # also if both are infinite
        return (noise > -margin) | ((noise == -margin) & ~(remainder < 0))

    def centred(self, utilities: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return the rule with thresholds 0, and utilities, shape (steps,), minus thresholds.

        Differences are computed on the host in float64, and a cast to float32 rounds only them.
        """
        threshold = np.asarray(concrete_or_none(self.threshold), np.float64)
        zero = dataclasses.replace(self, threshold=np.zeros(threshold.shape))
        threshold = threshold[: utilities.size] if threshold.ndim else threshold
        exact = utilities.astype(np.float64)
        if utilities.dtype.kind in "iu":
            check(np.abs(exact) <= 2**53, "utilities", utilities, "at most 2^53")
        with np.errstate(invalid="ignore"):
            return zero, np.where(exact == threshold, 0, exact - threshold)

    def check_held(self, epsilon: Any, dtype: Any) -> None:
        """Check that a dtype holds the rule's noise at concrete privacy levels."""
        epsilon, sensitivity = concrete_or_none(epsilon), concrete_or_none(self.sensitivity)
        if epsilon is None or sensitivity is None:
            return
        multiple, most = self.max_noise_multiple, noise_range(dtype)[1]
        with jax.ensure_compile_time_eval():
            scale = np.asarray(noise_scale(sensitivity, epsilon, dtype, multiple))
        least = _LEAST_EPSILON * multiple * float(jnp.finfo(dtype).eps)
        expected = f"such that {np.dtype(dtype).name} holds noise of scale sensitivity/epsilon: at "
        expected += f"least {least:.2g}, with sensitivity {np.min(sensitivity):.3g}"
        check(multiple * scale <= most, "epsilon", epsilon, expected)  # a NaN scale is refused

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Check that a dtype can represent the noise, and resolves Delta near the thresholds.

        Args:
            dtype: dtype of the utilities in a run.
            levels: least number of the dtype's spacings near the thresholds that Delta must span.
        """
        threshold = concrete_or_none(self.threshold)
        sensitivity = concrete_or_none(self.sensitivity)
        if sensitivity is None:
            return
        name, smallest = np.dtype(dtype).name, np.min(sensitivity)
        self.check_held(self.epsilon, dtype)
        if threshold is None:
            return
        largest = np.abs(threshold[np.isfinite(threshold)]).max(initial=0)
        with np.errstate(over="ignore", invalid="ignore"):
            spacing = float(np.spacing(largest.astype(dtype)))
        expected = f"small enough for {name} to resolve the sensitivity {smallest:.3g} of the "
        expected += f"utility: its numbers near {largest:.6g} are {spacing:.2g} apart"
        hint = "Subtract a public number from utility and threshold, or set JAX_ENABLE_X64=1."
        check(np.all(levels * spacing <= sensitivity), "threshold", self.threshold, expected, hint)


class PublicThreshold(ThresholdRule):
    """Stop as soon as the utility reaches a threshold (Whitehouse 2022, section 6, "public").

    Use it if the utility is public, or a function of the releases only: the rule costs nothing. For
    a utility that depends on private data in another way, use `nrjax.AboveThreshold`.

        >>> rule = nrjax.PublicThreshold(2.0)
        >>> nrjax.stopping.first_yes(jax.random.key(0), rule, [1.0, 3.0, 5.0])
        FirstYes(step=1, cost=0.0, status=STOPPED)

    Attributes:
        threshold: smallest utility that is good enough: a scalar, or one number for each step,
            shape (steps,). After the last step the rule never stops a trial. A threshold of
            infinity never stops a trial.
    """

    fixed_price: ClassVar[bool] = True

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state + 1, jnp.asarray(utility) >= self.threshold_at(state)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return the cost of all answers, which is 0."""
        del stopped, answers
        return jnp.zeros_like(epsilon)
