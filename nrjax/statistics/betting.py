"""Tests of the mean of bounded numbers that stay valid however often you look at the trials.

Each is a bet at fair odds: under the hypothesis the wealth is a nonnegative supermartingale that
starts at 1, so it ever reaches `1/alpha` with probability at most alpha (Ville's inequality;
Waudby-Smith and Ramdas 2024). The initial wealth is divided evenly among 10 stakes.
"""

import math
from collections.abc import Callable

import numpy as np

_STAKES = np.geomspace(0.01, 0.95, 10)
"""The fractions of the largest bet."""


def _wealth_above(values: np.ndarray, mean: float) -> np.ndarray:
    """Return the log wealth of each stake, for bets that the mean is above `mean`."""
    hits = values[values > 0] / mean - 1
    misses = values.size - hits.size
    return np.array([np.log1p(s * hits).sum() + misses * math.log1p(-s) for s in _STAKES])


def _wealth_below(values: np.ndarray, mean: float, most: float) -> np.ndarray:
    """Return the log wealth of each stake, for bets that the mean is below `mean < most`."""
    hits = (mean - np.minimum(values[values > 0], most)) / (most - mean)
    misses, gain = values.size - hits.size, mean / (most - mean)
    return np.array([np.log1p(s * hits).sum() + misses * math.log1p(s * gain) for s in _STAKES])


def mixed_wealth(log_wealths: np.ndarray) -> float:
    """Return the logarithm of the mean wealth of several bets."""
    return float(np.logaddexp.reduce(log_wealths) - math.log(log_wealths.size))


def log_wealth(values: np.ndarray, mean: float) -> float:
    """Return the log wealth of bets that the mean of nonnegative numbers is above `mean`."""
    return mixed_wealth(_wealth_above(values, mean))


def log_wealth_below(values: np.ndarray, mean: float, most: float) -> float:
    """Return the log wealth of bets that the mean of numbers in [0, most] is below `mean`."""
    return math.inf if mean >= most else mixed_wealth(_wealth_below(values, mean, most))


def interval(values: np.ndarray, most: float, alpha: float) -> tuple[float, float]:
    """Return an interval for a probability, the mean of numbers in [0, most].

    Each end fails with probability alpha.
    """
    enough, mean = -math.log(alpha), float(np.mean(values))
    lower, _ = _last_holding(lambda m: log_wealth(values, m) >= enough, mean * 1e-12, mean)
    rest = max(mean, most * 1e-9)
    _, upper = _last_holding(lambda m: log_wealth_below(values, m, most) < enough, rest, most)
    return lower, min(upper, 1.0)


def trials_to_decide(values: np.ndarray, low: float, high: float, most: float, alpha: float) -> int:
    """Return how many trials show a mean above `low`, or below `high`, at the growth so far."""
    if high >= most:
        return 0
    growth = (
        max(np.max(_wealth_above(values, low)), np.max(_wealth_below(values, high, most)))
        / values.size
    )
    return math.ceil((math.log(_STAKES.size) - math.log(alpha)) / max(growth, 1e-9))


def _last_holding(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return two near numbers between which a condition ceases to hold, or 0 and `low`."""
    if low == 0 or not holds(low):
        return 0.0, low
    while high > low * 1.0005:
        middle = math.sqrt(low) * math.sqrt(high)  # whose product may be too small for float64
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
