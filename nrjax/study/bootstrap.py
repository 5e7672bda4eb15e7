"""Bootstrap intervals of quantiles, paired between cases.

One seed resamples the same trial numbers in every case. The cases also share their random numbers,
so noise that they have in common cancels in differences of their quantiles.
"""

from collections.abc import Sequence

import numpy as np

from nrjax.study.statistics import rank_of

_RESAMPLES = 2000

_DRAWN = 10_000
"""The largest number of units to resample: trials, or groups if there are more trials."""


def resampled_quantiles(
    values: np.ndarray, fractions: Sequence[float], *, seed: int = 0
) -> np.ndarray:
    """Return quantiles of bootstrap resamples of the trials (Efron 1979).

    Every quantile is an order statistic. If there are more than 10,000 trials, they are split at
    random into 10,000 groups, and whole groups are resampled. The rank of a quantile is then
    shifted by the surplus or lack of resampled values up to the quantile (Bahadur 1966), so that
    one sort of all trials suffices. Grouping changes the width of an interval by about 1 %.

    Args:
        values: one number per trial, shape (trials,). It may be infinite, but not NaN.
        fractions: fraction of each quantile, in [0, 1]; 0.5 is the median.
        seed: seed of the resampling.

    Returns:
        The quantiles of each of 2000 resamples, shape (2000, len(fractions)).
    """
    trials, rng = values.size, np.random.default_rng(seed)
    ranks = np.array([rank_of(trials, fraction) for fraction in fractions])
    groups = min(trials, _DRAWN)

    def multiplicities() -> np.ndarray:  # how many times each group is drawn
        return np.bincount(rng.integers(groups, size=groups), minlength=groups)

    resamples = np.empty((_RESAMPLES, ranks.size))
    if groups == trials:
        order = np.argsort(values)
        for quantiles in resamples:
            up_to = np.cumsum(multiplicities()[order])
            quantiles[:] = values[order[np.searchsorted(up_to, ranks)]]
        return resamples
    group = rng.integers(groups, size=trials, dtype=np.int16)
    sizes = np.bincount(group, minlength=groups).astype(float)
    ordered = np.sort(values)
    lowest = [group[_lowest(values, ordered, rank)] for rank in ranks]
    below = np.stack([np.bincount(some, minlength=groups).astype(float) for some in lowest])
    for quantiles in resamples:
        times = multiplicities().astype(float)
        up_to = below @ times * (trials / (sizes @ times))
        shifted = np.rint(2 * ranks - up_to).astype(int)
        quantiles[:] = ordered[np.clip(shifted, 1, trials) - 1]
    return resamples


def _lowest(values: np.ndarray, ordered: np.ndarray, rank: int) -> np.ndarray:
    """Return a mask of the trials with the `rank` smallest values.

    If several trials have the largest of these values, the first of them are in the mask.
    """
    largest = ordered[rank - 1]
    lowest = values < largest
    equal = np.flatnonzero(values == largest)
    lowest[equal[: rank - np.count_nonzero(lowest)]] = True
    return lowest


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """Return the percentile interval of resampled values, or None if a value is NaN.

    The ends of the interval are order statistics, so they may be infinite. A difference of two
    infinite values, for example, is NaN.
    """
    if np.isnan(values).any():
        return None
    ordered, tail = np.sort(values), (1 - level) / 2
    low, high = int(np.floor(tail * values.size)), int(np.ceil((1 - tail) * values.size)) - 1
    return float(ordered[low]), float(ordered[high])
