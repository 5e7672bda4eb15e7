"""Intervals of functions of quantiles, paired by cases' common random numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nrjax._base.quantiles import rank_of
from nrjax.statistics.intervals import rank_interval

_DIRECTIONS = 1 << 12
"""The number of directions in which to shift ranks. They miss at most 1 % of a range of four."""

_WHOLE = 1e-9
"""The distance from a whole number of ranks that is a rounding error."""


def paired_interval(
    samples: Sequence[np.ndarray],
    fractions: Sequence[float],
    signs: Sequence[int],
    function: Callable[..., Any],
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Return the confidence interval of a function of quantiles of paired samples.

    The interval inverts sign tests. The number of values up to the true quantile is binomial for
    each sample. The numbers of several samples are asymptotically normal, and their correlations
    are those of the indicators that a trial's value is at most the sample's quantile (Mood 1941;
    Babu & Rao 1988). The interval is the range of the function over all order statistics whose
    ranks, jointly, lie within the ellipsoid of radius z around the ranks of the sample quantiles,
    where z belongs to `level`. For a linear function this radius gives the level (Scheffe's
    projection with one degree of freedom, as for a profile likelihood: Owen 1988). Along each axis,
    the ellipsoid ends at the exact ranks of `rank_interval`, and all ranks are rounded outwards.
    One sample therefore has the exact interval of its quantile, and several samples have wider
    intervals than necessary if they are small, or if their values are few levels.

    The cost is one selection per sample, which is cheaper than a sort.

    Args:
        samples: an array of numbers per quantile, each of shape (trials,), without NaN. Index i is
            the same trial in each array. An array may occur several times.
        fractions: fraction of each quantile, in (0, 1); 0.5 is the median.
        signs: for each quantile 1 if the function rises with it, or -1 if it falls.
        function: function of as many arrays as there are quantiles, which works elementwise.
        level: probability with which the interval contains the true value, in (0, 1).

    Returns:
        The ends of the interval, which may be infinite. None if the function is NaN somewhere in
        the range, as is the difference of two infinite values.

    Example:
        >>> first = np.arange(1000.0)
        >>> low, high = paired_interval([first, first - 3], (0.5, 0.5), (1, -1), np.subtract)
        >>> bool(low <= 3 <= high < 6)
        True
    """
    trials = samples[0].size
    spans = [rank_interval(trials, fraction, level) for fraction in fractions]
    ranks = [rank_of(trials, fraction) for fraction in fractions]
    around = [_between(values, *span) for values, span in zip(samples, spans, strict=True)]
    middles = [rank - low for rank, (low, _) in zip(ranks, spans, strict=True)]
    lowest = [
        _smallest_mask(values, ordered[middle], rank)
        for values, ordered, middle, rank in zip(samples, around, middles, ranks, strict=True)
    ]
    shifts = _correlated_directions(lowest)
    lower, upper = [], []
    for ordered, middle, sign, shift in zip(around, middles, signs, shifts, strict=True):
        place = middle + np.where(shift < 0, middle, ordered.size - 1 - middle) * shift
        down, up = np.floor(place + _WHOLE), np.ceil(place - _WHOLE)
        if sign < 0:
            down, up = up, down
        for ends, places in ((lower, down), (upper, up)):
            ends.append(ordered[np.clip(places, 0, ordered.size - 1).astype(int)])
    with np.errstate(invalid="ignore", divide="ignore"):
        values = function(*lower), function(*upper)
    if np.isnan(values).any():
        return None
    return float(np.min(values[0])), float(np.max(values[1]))


def _between(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the order statistics of ranks `low` to `high`, infinite outside 1 to trials."""
    first, last = max(low, 1), min(high, values.size)
    selected = np.partition(values, (first - 1, last - 1))[first - 1 : last]
    below, above = [-np.inf] * (first - low), [np.inf] * (high - last)
    return np.concatenate([below, np.sort(selected).astype(np.float64), above])


def _smallest_mask(values: np.ndarray, largest: float, rank: int) -> np.ndarray:
    """Return a mask of the `rank` smallest values, of which `largest` is the largest.

    If several trials have the largest of these values, the first of them are in the mask.
    """
    lowest = values < largest
    equal = np.flatnonzero(values == largest)
    lowest[equal[: rank - np.count_nonzero(lowest)]] = True
    return lowest


def _correlated_directions(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return points on the ellipsoid of the correlations of masks, shape (masks, directions)."""
    both = np.array([[np.count_nonzero(one & other) for other in masks] for one in masks])
    fractions = np.diag(both) / masks[0].size
    covariance = both / masks[0].size - np.outer(fractions, fractions)
    deviation = np.sqrt(np.diag(covariance).clip(0))
    correlation = covariance / np.maximum(np.outer(deviation, deviation), 1e-300)
    np.fill_diagonal(correlation, 1.0)
    variances, axes = np.linalg.eigh(correlation)
    directions = np.random.default_rng(0).normal(size=(len(masks), _DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    return (axes * np.sqrt(variances.clip(0))) @ directions
