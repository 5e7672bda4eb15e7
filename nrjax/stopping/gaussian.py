"""A private threshold test with normal noise, whose cost depends on the number of queries."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import step_key
from nrjax._base.modes import neutral_config
from nrjax._base.normals import normals
from nrjax._base.pytrees import static
from nrjax._base.validation import check, check_integer, check_normal, concrete_or_none
from nrjax.stopping.thresholds import ThresholdRule

_MARGIN = 64
"""Number of machine epsilons by which costs are rounded up, for casts and discrete noise."""
_CAST = 2.0**-14
"""Limit on how far casts may move neighbours' utilities apart, as a fraction of Delta.

Delta is the sensitivity of the rule. `check_resolved` enforces the limit. Costs are concave in
Delta, so that a cost raised by the same fraction covers the casts.
"""
_REACH, _POINTS_PER_WIDTH = 9.0, 12.0
"""Range of the integrals beyond the modes, and number of points per width of a mode."""
_NARROWEST = 1e6
"""Largest distance from the threshold, and threshold noise, in units of the query noise.

Farther from 0 the ratio `_hazard` loses its digits.
"""
_MOST_POINTS = 400_000
"""Maximum number of quadrature points of an integral."""


class GaussianThresholdState(NamedTuple):
    """The threshold noise, in units of the utility, and the number of the next step."""

    noise: Array
    step: Array


class GaussianThreshold(ThresholdRule):
    """Stop at the first `utility + sz N(0, 1) >= threshold + sx N(0, 1)` (not in the papers).

    Use it for bounded utilities and few queries. If it stops within 10 to 20 queries, it costs less
    than `nrjax.AboveThreshold` of the same accuracy; later it costs more. Utilities are clipped to
    [low, high], and the threshold noise is drawn once. Stopping at query t costs
    `log I_t(Delta, Delta) - log I_t(0, 0)`. The cost is pure (delta = 0), holds for utilities that
    change in any direction between neighbours, and is tight (Lebensold, Precup and Balle 2024;
    proof in statement 20 of `docs/proofs`):

        I_t(D, D') = int phi(x) Phi((sx x + tau - high + D)/sz)^(t-1)
                         Phi((low + D' - tau - sx x)/sz) dx

    For t negative answers the integrand has no last factor, and the exponent t in place of t - 1.
    The cost of the releases is added. Costs are tabulated on the host when the rule is made, so its
    fields must be concrete. In float32 the noise never exceeds 6.76 standard deviations (which
    ideal noise does with probability 1.3e-11). Use float64 if that matters.

        >>> rule = nrjax.GaussianThreshold(0.0, 1.0, -0.5, 0.5, 3.8, 5.7, steps=1000)
        >>> round(float(rule.cost(1.0, stopped=True, answers=10)), 3)
        0.831

    Attributes:
        threshold: tau, scalar, in units of the utility.
        sensitivity: Delta, the largest change of any utility, at most `high - low`.
        low: lower end to which utilities are clipped.
        high: upper end to which utilities are clipped.
        threshold_deviation: sx, the standard deviation of the threshold noise.
        query_deviation: sz, the standard deviation of the query noise.
        steps: maximum number of queries, at most 10,000 (static).
        monotone: whether a change of a row moves all utilities in the same direction, which costs
            less (static).
        cost_table: computed cost per number of answers, shape (2, steps + 1). Row 0 is for a
            positive last answer, row 1 for negative answers only.
    """

    sensitivity: Any
    low: Any
    high: Any
    threshold_deviation: Any
    query_deviation: Any
    steps: int = static()
    monotone: bool = static(default=False)
    cost_table: Any = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        check_integer("steps", self.steps, 1, 10_000)
        check(isinstance(self.monotone, bool), "monotone", self.monotone, "True or False")
        values = {}
        signed = ("threshold", "low", "high")
        for name in (*signed, "sensitivity", "threshold_deviation", "query_deviation"):
            value, positive = getattr(self, name), name not in signed
            expected = f"a finite number{' above 0' if positive else ''}, not traced"
            number = concrete_or_none(value)
            ok = number is not None and number.ndim == 0 and number.dtype.kind in "iuf"
            check(ok, name, value, expected)
            assert number is not None
            # The fields are rounded here, so that costs are computed from the numbers of a trial.
            with np.errstate(over="ignore"):
                values[name] = float(number.astype(jnp.result_type(float)))
            ok = np.isfinite(values[name]) and (values[name] > 0 or not positive)
            check(ok, name, value, expected)
            if positive:
                check_normal(name, value, number)
            object.__setattr__(self, name, values[name])
        width = self.high - self.low
        check(width > 0, "high", self.high, f"above low = {self.low}")
        most = width + 1e-6 * (abs(self.low) + abs(self.high))
        expected = f"at most high - low = {width}"
        check(self.sensitivity <= most, "sensitivity", self.sensitivity, expected)
        most = _NARROWEST * self.query_deviation
        expected = f"smaller, at most {most:.3g}, for the integrals"
        deviation = self.threshold_deviation
        check(deviation <= most, "threshold_deviation", deviation, expected)
        parts = width, abs(self.threshold - self.low), abs(self.threshold - self.high)
        expected = f"at least {max(parts) / _NARROWEST:.3g}, for the integrals"
        check(max(parts) <= most, "query_deviation", self.query_deviation, expected)
        table = _cost_table(**values, steps=self.steps, monotone=self.monotone)
        object.__setattr__(self, "cost_table", table)

    @property
    def max_steps(self) -> int:
        """The maximum number of queries."""
        return self.steps

    def init(self, key: Array, epsilon: ArrayLike) -> GaussianThresholdState:
        """Draw the threshold noise, in the dtype of the releases' `epsilon`."""
        dtype = float_dtype(epsilon, self.threshold_deviation)
        noise = normals(step_key(key, 0), (), dtype)
        noise = jnp.asarray(self.threshold_deviation, dtype) * noise
        return GaussianThresholdState(noise, jnp.int32(0))

    def step(
        self, key: Array, state: GaussianThresholdState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[GaussianThresholdState, Array]:
        """Answer one query, or answer negatively after `steps` queries (ignores `epsilon`)."""
        del epsilon
        dtype = state.noise.dtype
        noise = jnp.asarray(self.query_deviation, dtype) * normals(key, (), dtype)
        low, high = jnp.asarray(self.low, dtype), jnp.asarray(self.high, dtype)
        clipped = jnp.clip(jnp.asarray(utility, dtype), low, high)
        stop = self.reached(clipped, state.step, noise - state.noise) & (state.step < self.steps)
        return state._replace(step=state.step + 1), stop

    @neutral_config()
    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Return the cost of all answers, rounded up, or infinity for more than `steps`."""
        dtype = float_dtype(epsilon, self.threshold_deviation)
        table, eps = jnp.asarray(self.cost_table, dtype), float(jnp.finfo(dtype).eps)
        row = jnp.where(jnp.asarray(stopped), 0, 1)
        answers = jnp.asarray(answers, jnp.float32)  # JAX would wrap a large integer
        cost = table[row, jnp.clip(answers, 0, self.steps).astype(jnp.int32)]
        cost = jnp.where(cost > 0, cost * (1 + _CAST + _MARGIN * eps) + _MARGIN * eps, 0)
        cost = jnp.where(answers > self.steps, jnp.inf, cost)
        return cost.astype(dtype) + jnp.zeros(jnp.shape(epsilon), dtype)

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Check that a dtype holds the fields exactly, and resolves Delta and the noise."""
        super().check_resolved(dtype, levels)
        if concrete_or_none(self.threshold) is None:
            return
        name = np.dtype(dtype).name
        largest = max(abs(float(value)) for value in (self.low, self.high, self.threshold))
        least = min(float(self.sensitivity), float(self.query_deviation))
        spacing = float(np.spacing(np.asarray(largest, dtype)))
        expected = f"large enough for {name} to resolve it near {largest:.6g}"
        hint = "Subtract a public number from utility, threshold, low and high."
        check(spacing <= _CAST * least, "sensitivity and query_deviation", least, expected, hint)
        names = ("threshold", "low", "high", "sensitivity")
        for field in (*names, "threshold_deviation", "query_deviation"):
            number = np.asarray(getattr(self, field))
            expected = f"a number of {name}, because costs are those of the numbers of a trial"
            check(number.astype(dtype) == number, field, number, expected)

    def centred(self, utilities: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return the rule with threshold 0, and the clipped utilities minus the threshold."""
        low, high, threshold = map(float, (self.low, self.high, self.threshold))
        zero = dataclasses.replace(self, threshold=0.0, low=low - threshold, high=high - threshold)
        return zero, np.clip(utilities.astype(np.float64), low, high) - threshold


@functools.lru_cache(maxsize=32)
def _cost_table(
    threshold: float,
    sensitivity: float,
    low: float,
    high: float,
    threshold_deviation: float,
    query_deviation: float,
    steps: int,
    monotone: bool,
) -> np.ndarray:
    """Return the table of `GaussianThreshold.cost_table`, rounded up by 1e-9."""
    from scipy.special import log_ndtr, logsumexp  # slow to import

    ratio = threshold_deviation / query_deviation
    no, yes = (threshold - high) / query_deviation, (low - threshold) / query_deviation
    shift = sensitivity / query_deviation
    counts = np.arange(steps + 1)[:, None]

    def integrals(no_shift: float, yes_shift: float | None) -> np.ndarray:
        """Return `log I`, up to a constant, for 0, 1, ... `steps` negative answers."""
        end = None if yes_shift is None else yes + yes_shift
        first, last, step = _range(ratio, no + no_shift, end, steps)
        expected = "smaller relative to query_deviation, or steps fewer, for the integrals"
        ok = (last - first) / step <= _MOST_POINTS
        check(ok, "threshold_deviation", threshold_deviation, expected)
        x = np.arange(first, last, step)
        positive = -0.5 * x * x + (0 if end is None else log_ndtr(end - ratio * x))
        negative = log_ndtr(no + no_shift + ratio * x)
        rows: list[Any] = [
            logsumexp(positive + counts[start : start + 16] * negative, axis=1)
            for start in range(0, steps + 1, 16)
        ]
        return np.concatenate(rows) + np.log(step)

    base = integrals(0.0, 0.0)
    if monotone:
        shifted = np.maximum(integrals(shift, 0.0), integrals(0.0, shift))
    else:
        shifted = integrals(shift, shift)
    # A stop at answer t comes after t - 1 negative answers.
    stopped = np.concatenate([[0.0], (shifted - base)[:-1]])
    not_stopped = integrals(shift, None) - integrals(0.0, None)
    table = np.maximum(np.stack([stopped, not_stopped]), 0)
    table[:, 1:] = table[:, 1:] * (1 + 1e-9) + 1e-9
    table.setflags(write=False)
    return table


def _range(ratio: float, no: float, yes: float | None, steps: int) -> tuple[float, float, float]:
    """Return both ends of the range of all integrals, and the step of the trapezoid rule.

    The log of each integrand is concave, with a curvature of at least 1, so that less than
    `exp(-40)` of the integral is farther than `_REACH` from the mode. The step is a twelfth of the
    width at the mode with the largest curvature. The trapezoid rule then errs by
    `exp(-2 (12 pi)^2)` for a normal density, and by less than 1e-10 for these integrands (tested).
    The step is also at most a sixth of the width of the knee of `Phi(a)^t`, which is far from the
    mode if the threshold noise is wide.
    """
    from scipy.optimize import brentq  # slow to import

    def mode(count: int) -> float:
        def slope(x: float) -> float:
            total = -x + count * ratio * _hazard(no + ratio * x)
            return total if yes is None else total - ratio * _hazard(yes - ratio * x)

        low, high = -1.0, 1.0
        while slope(low) < 0:
            low *= 2
        while slope(high) > 0:
            high *= 2
        root: Any = brentq(slope, low, high, xtol=1e-6)
        return float(root)

    def curvature(count: int, x: float) -> float:
        def bend(a: float) -> float:
            return _hazard(a) * (a + _hazard(a))

        last = 0.0 if yes is None else bend(yes - ratio * x)
        return 1 + ratio**2 * (count * bend(no + ratio * x) + last)

    counts = np.unique(np.geomspace(1, steps + 1, 40).astype(int)) - 1
    modes = [mode(count) for count in counts]
    most = max(curvature(count, x) for count, x in zip(counts, modes, strict=True))
    # At the knee `t Phi(-a)` is 1, and falls by a factor e within `1/a`.
    knee = ratio * max(1.0, np.sqrt(2 * np.log(steps + 1)))
    step = min(1 / 64, 1 / (_POINTS_PER_WIDTH * np.sqrt(most)), 2 / (_POINTS_PER_WIDTH * knee))
    return min(modes) - _REACH, max(modes) + _REACH, step


def _hazard(x: float) -> float:
    """Return the ratio `phi(x)/Phi(x)` of normal density and distribution function."""
    from scipy.special import log_ndtr  # slow to import

    return float(np.exp(-0.5 * x * x - 0.5 * np.log(2 * np.pi) - log_ndtr(x)))
