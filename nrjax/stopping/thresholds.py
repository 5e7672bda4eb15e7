"""Base class of threshold rules, with exact comparisons, and the public threshold.

Float noise has finitely many values, and rules compute with rounded numbers. Noise of the ideal
scale would therefore cost more than stated: in float32 by about 1e-6, which is 0.1 % of an epsilon
of 0.001. `noise_scale` allows for all of this in one place: it widens the noise by
`40 + 16 multiple/epsilon` machine epsilons (8e-5 of itself for AboveThreshold at an epsilon of
0.1), so that stated costs are true.
"""

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

FALL_TOLERANCE = 32
"""Machine epsilons by which the epsilons of the releases may fall from one step to the next; those
of a guarantee are accurate to about 24."""

_ROUNDING_MARGIN = FALL_TOLERANCE + 8
"""Machine epsilons by which noise is widened for such falls, and for rounding in the rules."""

_GRAIN_MARGIN = 16
"""Machine epsilons by which the epsilon of a rule is lowered for the grain of its noise.

Counted over all float32 draws, the log-ratio of two noise probabilities exceeds the ideal one by
half a machine epsilon near 0, and by up to 11 where 1 of 2000 draws is beyond."""

_LEAST_EPSILON = 40
"""Smallest epsilon that noise can pay for, in machine epsilons, because of its grain."""


def noise_scale(
    sensitivity: ArrayLike, epsilon: ArrayLike, dtype: Any, multiple: float = 1.0
) -> Array:
    """Return the scale `Delta/epsilon` of a rule's noise, widened as the module explains.

    It is NaN, so that the rule never stops a trial, if the dtype cannot hold the noise: the scale
    is infinite, XLA would flush the grain of the noise to 0, or epsilon is too small for that
    grain.

    Args:
        sensitivity: Delta.
        epsilon: privacy level of the rule.
        dtype: dtype of the noise.
        multiple: largest multiple of the scale that the rule uses; the noise of that scale pays for
            `epsilon / multiple`.
    """
    epsilon, limits = jnp.asarray(epsilon, dtype), jnp.finfo(dtype)
    eps, tiny = float(limits.eps), float(limits.tiny)
    scale = jnp.asarray(sensitivity, dtype) / epsilon
    scale *= 1 + (_ROUNDING_MARGIN + _GRAIN_MARGIN * multiple / epsilon) * eps
    held = (scale >= tiny / eps) & jnp.isfinite(multiple * scale)
    return jnp.where(held & (epsilon >= _LEAST_EPSILON * multiple * eps), scale, jnp.nan)


class ThresholdRule(StoppingRule):
    """A rule that compares utilities with thresholds.

    Subclasses add `step`, `cost` and further fields, which must be positive and finite.

    Attributes:
        threshold: tau, in units of the utility: a scalar, or one for each step, shape (steps,),
            after which the rule never stops a trial. Not NaN.
    """

    threshold: Any

    def __post_init__(self):
        value, expected = self.threshold, "a number, or a vector of numbers"
        value = np.asarray(value) if isinstance(value, (list, tuple)) else value
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
                check_positive(field.name, getattr(self, field.name))

    def init(self, key: Array, epsilon: ArrayLike) -> Any:
        """Return the state: the number of the next step, int32."""
        del key, epsilon
        return jnp.int32(0)

    @property
    def max_noise_multiple(self) -> float:
        """Largest multiple of Delta/epsilon that the rule uses as a scale of its noise."""
        return 1.0

    @property
    def max_steps(self) -> int | None:
        """Number of thresholds in a sequence, or None for a single one."""
        shape = jnp.shape(self.threshold)
        return shape[0] if shape else None

    def threshold_at(self, step: Array) -> Array:
        """Return the threshold of a step, or NaN (never reached) after the end of a sequence."""
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

        Computed on the host in float64, so that a cast to float32 rounds only the differences.
        """
        threshold = np.asarray(concrete_or_none(self.threshold), np.float64)
        zero = dataclasses.replace(self, threshold=np.zeros(threshold.shape))
        threshold = threshold[: utilities.size] if threshold.ndim else threshold
        exact = utilities.astype(np.float64)
        if utilities.dtype.kind in "iu":
            check(np.abs(exact) <= 2**53, "utilities", utilities, "at most 2^53")
        with np.errstate(invalid="ignore"):
            return zero, np.where(exact == threshold, 0, exact - threshold)

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Check that a dtype holds the noise, and resolves Delta near the thresholds.

        Args:
            dtype: dtype of a run.
            levels: number of spacings of the dtype near the thresholds that Delta must span.
        """
        threshold = concrete_or_none(self.threshold)
        sensitivity = concrete_or_none(self.sensitivity)
        if sensitivity is None:
            return
        name, smallest = np.dtype(dtype).name, np.min(sensitivity)
        epsilon = concrete_or_none(getattr(self, "epsilon", None))
        if epsilon is not None:
            multiple = self.max_noise_multiple
            with jax.ensure_compile_time_eval():
                held = ~np.isnan(noise_scale(sensitivity, epsilon, dtype, multiple))
            least = _LEAST_EPSILON * multiple * float(jnp.finfo(dtype).eps)
            expected = f"such that {name} holds noise of scale sensitivity/epsilon: at least"
            expected = f"{expected} {least:.2g}, with sensitivity {smallest:.3g}"
            check(held, "epsilon", epsilon, expected)
        if threshold is None:
            return
        largest = np.abs(threshold[np.isfinite(threshold)]).max(initial=0)
        spacing = float(np.spacing(largest.astype(dtype)))
        expected = f"small enough for {name} to resolve the sensitivity {smallest:.3g} of the "
        expected += f"utility: its numbers near {largest:.6g} are {spacing:.2g} apart"
        hint = "Subtract a public number from utility and threshold, or set JAX_ENABLE_X64=1."
        check(np.all(levels * spacing <= sensitivity), "threshold", self.threshold, expected, hint)


class PublicThreshold(ThresholdRule):
    """Stop as soon as the utility reaches a threshold (Whitehouse 2022, section 6, "public").

    Use it if the utility is public, or a function of the releases only: it costs nothing. For a
    utility of private data use `nrjax.AboveThreshold`.

        rule = nrjax.PublicThreshold(2.0)
        nrjax.stopping.first_yes(jax.random.key(0), rule, [1.0, 3.0]).step  # 1

    Attributes:
        threshold: smallest utility that is good enough, scalar; or one for each step, shape
            (steps,), after which the rule never stops a trial. Infinity never stops a trial.
    """

    fixed_price: ClassVar[bool] = True

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state + 1, jnp.asarray(utility) >= self.threshold_at(state)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return 0."""
        del stopped, answers
        return jnp.zeros_like(epsilon)
