"""Quantiles of a sample and their exact intervals, which assume nothing of the law."""

from typing import NamedTuple

import numpy as np
from scipy.special import bdtr


class Estimate(NamedTuple):
    """A number with the ends of its interval; infinite ends where the sample sets none."""

    value: float
    low: float
    high: float


def quantile_estimate(ordered: np.ndarray, level: float, confidence: float = 0.95) -> Estimate:
    """The quantile at `level` by order statistics (David & Nagaraja 2003, section 7.1).

    The number of values up to the true quantile is Binomial(n, level), so that it lies between two
    order statistics with at least the probability `confidence`, half of the rest on either side;
    for discrete laws too.

    Args:
        ordered: the sample, sorted, shape (n,); infinite values are values.
        level: in (0, 1). From `1 - 1/n` on the value is the largest of the sample, which says
            little of such a quantile: only `low` does.
        confidence: in (0, 1).
    """
    size = ordered.size
    ranks = np.arange(size + 1)
    at_most = bdtr(ranks, size, level)  # P(B <= rank)
    tail = (1 - confidence) / 2
    # Ranks from 1: the largest `low` with P(B < low) <= tail, the smallest `high` with
    # P(B >= high) <= tail.
    low = int(np.sum(at_most[:size] <= tail))
    high = int(np.sum(at_most[:size] < 1 - tail)) + 1
    ends = np.concatenate([[-np.inf], ordered, [np.inf]])
    rank = min(size, max(1, int(np.ceil(size * level * (1 - 1e-12)))))
    return Estimate(float(ends[rank]), float(ends[low]), float(ends[high]))


def mean_estimate(values: np.ndarray) -> Estimate:
    """The mean with the normal 95 % interval of it; shape (n,), in float64."""
    mean = float(np.mean(values))
    half = 1.96 * standard_error(values)
    return Estimate(mean, mean - half, mean + half)


def standard_error(values: np.ndarray) -> float:
    """Standard error of the mean; infinite for one value, or where a value is infinite."""
    if values.size < 2 or not np.isfinite(values).all():
        return np.inf
    return float(np.std(values, ddof=1) / np.sqrt(values.size))
