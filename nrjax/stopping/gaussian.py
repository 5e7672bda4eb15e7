"""A private threshold test with normal noise, whose cost depends on when it stopped."""

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._normals import normals
from nrjax._numerics import float_dtype
from nrjax._validation import check, check_integer, concrete_or_none
from nrjax.keys import step_key
from nrjax.pytrees import static
from nrjax.stopping.thresholds import ThresholdRule

# Machine epsilons by which costs are rounded up: the casts of the parameters, and the grain of the
# noise. And the share of Delta, concave in which they are, by which a cast of utilities may move
# neighbours apart: `check_resolved`.
_MARGIN, _CAST = 64, 2.0**-14
_REACH, _FINE = 9.0, 12.0
_POINTS = 400_000
"""Most points of an integral."""


class GaussianThresholdState(NamedTuple):
    """Threshold noise, in units of the utility, and the number of the next step."""

    noise: Array
    step: Array


class GaussianThreshold(ThresholdRule):
    """Stop at the first `utility + sz N(0, 1) >= threshold + sx N(0, 1)`; not in the papers.

    For utilities clipped to [low, high], the threshold noise drawn once. Stopping at query t costs
    `log I_t(Delta, Delta) - log I_t(0, 0)`, purely, whatever the directions in which queries move,
    and no smaller number will do (Lebensold, Precup, Balle 2024; proof in `docs/frontier.md`):

        I_t(D, D') = int phi(x) Phi((sx x + tau - high + D)/sz)^(t-1)
                         Phi((low + D' - tau - sx x)/sz) dx

    t noes cost the same without the last factor, with t for t - 1. The cost rises with t: cheaper
    than Laplace noise of the same accuracy for stops within 10 to 20 queries, dearer later. It
    comes on top of what the releases cost. Costs are tabulated on the host when the rule is made,
    whose numbers must be concrete; float32's normal noise ends at 6.76 standard deviations
    (probability 1.3e-11): where that matters, use float64.

    Attributes:
        threshold: tau, scalar, in units of the utility.
        sensitivity: Delta, largest change of any of the utilities; at most `high - low`.
        low: lower end to which utilities are clipped.
        high: upper end.
        threshold_deviation: sx.
        query_deviation: sz.
        steps: how many queries it can judge, at most 10,000 (static).
        monotone: whether a change of a row moves all utilities in the same direction, which costs
            less (static).
    """

    sensitivity: Any
    low: Any
    high: Any
    threshold_deviation: Any
    query_deviation: Any
    steps: int = static()
    monotone: bool = static(default=False)
    prices: Any = dataclasses.field(init=False, repr=False)
    """Costs of a yes, and of noes alone, by the number of answers; shape (2, steps + 1)."""

    def __post_init__(self):
        check_integer("steps", self.steps, 1, 10_000)
        check(isinstance(self.monotone, bool), "monotone", self.monotone, "True or False")
        known = {}
        signed = ("threshold", "low", "high")
        for name in (*signed, "sensitivity", "threshold_deviation", "query_deviation"):
            value, positive = getattr(self, name), name not in signed
            right = f"a finite number{' above 0' if positive else ''}, not traced"
            number = concrete_or_none(value)
            fits = number is not None and number.ndim == 0 and number.dtype.kind in "iuf"
            check(fits, name, value, right)
            assert number is not None
            # Rounded here, not in compiled functions: costs are of the numbers that are used.
            with np.errstate(over="ignore"):
                known[name] = float(number.astype(jnp.result_type(float)))
            fits = np.isfinite(known[name]) and (known[name] > 0 or not positive)
            check(fits, name, value, right)
            object.__setattr__(self, name, known[name])
        width = self.high - self.low
        check(width > 0, "high", self.high, f"above low = {self.low}")
        right = f"at most high - low = {width}"
        most = width + 1e-6 * (abs(self.low) + abs(self.high))
        check(self.sensitivity <= most, "sensitivity", self.sensitivity, right)
        prices = _prices(**known, steps=self.steps, monotone=self.monotone)
        object.__setattr__(self, "prices", prices)

    @property
    def max_steps(self) -> int:
        """Number of queries that it can judge."""
        return self.steps

    def init(self, key: Array, epsilon: ArrayLike) -> GaussianThresholdState:
        """Draw the threshold noise; `epsilon`, what the releases cost, gives only its dtype."""
        dtype = float_dtype(epsilon, self.threshold_deviation)
        noise = normals(step_key(key, 0), (), dtype)
        noise = jnp.asarray(self.threshold_deviation, dtype) * noise
        return GaussianThresholdState(noise, jnp.int32(0))

    def step(
        self, key: Array, state: GaussianThresholdState, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[GaussianThresholdState, Array]:
        """Answer one query; `epsilon` is not used. Past the last one it is a no."""
        del epsilon
        dtype = state.noise.dtype
        noise = jnp.asarray(self.query_deviation, dtype) * normals(key, (), dtype)
        low, high = jnp.asarray(self.low, dtype), jnp.asarray(self.high, dtype)
        clipped = jnp.clip(jnp.asarray(utility, dtype), low, high)
        stop = self.reached(clipped, state.step, noise - state.noise) & (state.step < self.steps)
        return state._replace(step=state.step + 1), stop

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """That of stopping at the last answer, or of so many noes; infinite past the last query."""
        dtype = float_dtype(epsilon, self.threshold_deviation)
        prices, eps = jnp.asarray(self.prices, dtype), float(jnp.finfo(dtype).eps)
        row = jnp.where(jnp.asarray(stopped), 0, 1)
        cost = prices[row, jnp.clip(jnp.asarray(answers), 0, self.steps)]
        cost = jnp.where(cost > 0, cost * (1 + _CAST + _MARGIN * eps) + _MARGIN * eps, 0)
        cost = jnp.where(jnp.asarray(answers) > self.steps, jnp.inf, cost)
        return cost.astype(dtype) + jnp.zeros(jnp.shape(epsilon), dtype)

    def check_resolved(self, dtype: Any, levels: int = 1) -> None:
        """Refuse a dtype in which the box and its threshold are not those that costs are of."""
        super().check_resolved(dtype, levels)
        if concrete_or_none(self.threshold) is None:
            return
        largest = max(abs(float(value)) for value in (self.low, self.high, self.threshold))
        least = min(float(self.sensitivity), float(self.query_deviation))
        spacing = float(np.spacing(np.asarray(largest, dtype)))
        right = f"resolved by {np.dtype(dtype).name} near {largest:.6g}; subtract a public number"
        check(spacing <= _CAST * least, "sensitivity and deviation", least, right)
        names = ("threshold", "low", "high", "sensitivity")
        for name in (*names, "threshold_deviation", "query_deviation"):
            number = np.asarray(getattr(self, name))
            right = f"a number of {np.dtype(dtype).name}, as the trial has them: costs are of these"
            check(number.astype(dtype) == number, name, number, right)

    def centred(self, utilities: np.ndarray) -> tuple[Self, np.ndarray]:
        """The rule with threshold 0, and what utilities, clipped, exceed its own by."""
        low, high, threshold = map(float, (self.low, self.high, self.threshold))
        blank = dataclasses.replace(self, threshold=0.0, low=low - threshold, high=high - threshold)
        return blank, np.clip(utilities.astype(np.float64), low, high) - threshold


@functools.lru_cache(maxsize=32)
def _prices(
    threshold: float,
    sensitivity: float,
    low: float,
    high: float,
    threshold_deviation: float,
    query_deviation: float,
    steps: int,
    monotone: bool,
) -> np.ndarray:
    """Costs of a yes and of noes alone after 0, 1, ... answers, rounded up by 1e-9."""
    from scipy.special import log_ndtr, logsumexp  # slow to import

    ratio = threshold_deviation / query_deviation
    no, yes = (threshold - high) / query_deviation, (low - threshold) / query_deviation
    shift = sensitivity / query_deviation
    counts = np.arange(steps + 1)[:, None]

    def integrals(noes: float, stop: float | None) -> np.ndarray:
        """`log I`, up to a constant, for 0, 1, ... `steps` noes."""
        end = None if stop is None else yes + stop
        first, last, step = _range(ratio, no + noes, end, steps)
        right = "such that the integrals can be taken: less beside query_deviation, or fewer steps"
        fits = (last - first) / step <= _POINTS
        check(fits, "threshold_deviation", threshold_deviation, right)
        x = np.arange(first, last, step)
        alone = -0.5 * x * x + (0 if end is None else log_ndtr(end - ratio * x))
        each = log_ndtr(no + noes + ratio * x)
        rows = [
            logsumexp(alone + counts[start : start + 16] * each, axis=1)
            for start in range(0, steps + 1, 16)
        ]
        return np.concatenate(rows) + np.log(step)

    # `t` answers of which the last is a yes have t - 1 noes.
    base = integrals(0.0, 0.0)
    if monotone:
        moved = np.maximum(integrals(shift, 0.0), integrals(0.0, shift))
    else:
        moved = integrals(shift, shift)
    stopped = np.concatenate([[0.0], (moved - base)[:-1]])
    going = integrals(shift, None) - integrals(0.0, None)
    prices = np.maximum(np.stack([stopped, going]), 0)
    prices[:, 1:] = prices[:, 1:] * (1 + 1e-9) + 1e-9
    prices.setflags(write=False)
    return prices


def _range(ratio: float, no: float, yes: float | None, steps: int) -> tuple[float, float, float]:
    """Ends that hold all integrands, `_REACH` beyond their modes, and the trapezoid rule's step.

    The log of each is concave, with a curvature of at least 1: what is cut is below `exp(-40)` of
    it. The step is a twelfth of the width at the mode where they curve most, so that the rule errs
    by `exp(-2 (12 pi)^2)` of a normal density, and less than 1e-10 of these (tested); and a sixth
    of the width of the knee of `Phi(a)^t`, which under wide threshold noise is far from the mode.
    """
    from scipy.optimize import brentq  # slow to import

    def mode(noes: int) -> float:
        def slope(x: float) -> float:
            found = -x + noes * ratio * _hazard(no + ratio * x)
            return found if yes is None else found - ratio * _hazard(yes - ratio * x)

        low, high = -1.0, 1.0
        while slope(low) < 0:
            low *= 2
        while slope(high) > 0:
            high *= 2
        root: Any = brentq(slope, low, high, xtol=1e-6)
        return float(root)

    def curvature(noes: int, x: float) -> float:
        def bend(a: float) -> float:
            return _hazard(a) * (a + _hazard(a))

        last = 0.0 if yes is None else bend(yes - ratio * x)
        return 1 + ratio**2 * (noes * bend(no + ratio * x) + last)

    some = np.unique(np.geomspace(1, steps + 1, 40).astype(int)) - 1
    modes = [mode(noes) for noes in some]
    most = max(curvature(noes, x) for noes, x in zip(some, modes, strict=True))
    # The knee is where `t Phi(-a)` is 1, and falls there by a factor e within `1/a`.
    knee = ratio * max(1.0, np.sqrt(2 * np.log(steps + 1)))
    step = min(1 / 64, 1 / (_FINE * np.sqrt(most)), 2 / (_FINE * knee))
    return min(modes) - _REACH, max(modes) + _REACH, step


def _hazard(x: float) -> float:
    """`phi/Phi`."""
    from scipy.special import log_ndtr  # slow to import

    return float(np.exp(-0.5 * x * x - 0.5 * np.log(2 * np.pi) - log_ndtr(x)))
