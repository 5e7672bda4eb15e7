"""Moments of variables, with exact sums, so that they do not depend on the order of trials."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from nrjax.simulation.exact_sums import PARTS, exact_sum

_SUMS = [f"{name}_{part}" for name in ("sum", "sum_of_squares") for part in range(PARTS)]

MOMENTS = ("finite", *_SUMS, "smallest", "largest", "above", "below")
"""Names of the moments of a variable, which are float64 numbers.

They are the number of finite values, the parts of the sum of these values and of the sum of their
squares (`exact_sum`), the smallest and the largest finite value (infinite if there is none), and
the numbers of infinite and minus infinite values. NaN is not counted.
"""


def finite_values(values: Any, counted: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return values with 0 where not finite or not counted, and `MOMENTS` without the sums.

    Args:
        values: numbers, the first axis of which is that of trials.
        counted: whether each trial is counted.
        xp: `jax.numpy` or `numpy`.
    """
    x = values.astype(xp.float64)
    above, below = (xp.sum((x == end) & counted, axis=0) for end in (xp.inf, -xp.inf))
    finite = xp.isfinite(x) & counted
    smallest = xp.min(xp.where(finite, x, xp.inf), axis=0, initial=xp.inf)
    largest = xp.max(xp.where(finite, x, -xp.inf), axis=0, initial=-xp.inf)
    return xp.where(finite, x, 0.0), (xp.sum(finite, axis=0), smallest, largest, above, below)


def stack_moments(number: Any, sums: np.ndarray, squares: np.ndarray, *rest: Any) -> np.ndarray:
    """Stack moments along a last axis, in the order of `MOMENTS`."""
    moments = number, *sums, *squares, *rest
    return np.stack([np.asarray(moment, float) for moment in moments], axis=-1)


def merge_moments(parts: np.ndarray) -> np.ndarray:
    """Combine the `MOMENTS` of disjoint sets of trials, one set per row of the first axis."""
    finite, *sums, smallest, largest, above, below = np.moveaxis(parts, -1, 0)
    merged = [exact_sum(np.concatenate(sums[at : at + PARTS])) for at in (0, PARTS)]
    ends = smallest.min(axis=0) + 0.0, largest.max(axis=0) + 0.0  # 0 without a sign
    counts = (count.sum(axis=0) for count in (finite, above, below))
    number, *infinite = counts
    return np.stack([number, *merged[0], *merged[1], *ends, *infinite], axis=-1)


def mean_and_variance(moments: np.ndarray) -> tuple[float, float]:
    """Return the mean and the variance of the finite values, from one row of `MOMENTS`.

    Both are NaN if there is no finite value. The numerator of the variance is exact, so that the
    variance keeps its digits however far the values lie from zero.
    """
    number = int(moments[0])
    sums = moments[1 : 1 + PARTS], moments[1 + PARTS : 1 + 2 * PARTS]
    if not number or not np.isfinite(sums).all():
        return (float(sums[0][0]) / number, math.inf) if number else (math.nan, math.nan)
    total, squares = (sum(map(Fraction, parts.tolist())) for parts in sums)
    variance = max(squares / number - (total / number) ** 2, 0)
    return float(total / number), float(variance)
