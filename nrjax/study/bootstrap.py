"""Bootstrap intervals of quantiles.

The same seed draws the same trials of every case. Cases share their random numbers, so this keeps
what they have in common, and differences between cases get paired intervals.
"""

from collections.abc import Sequence

import numpy as np

from nrjax.study.intervals import rank_of

_RESAMPLES = 2000

_DRAWN = 10_000
"""Most trials to draw with replacement; of more trials, this many groups are drawn (int16)."""


def resampled_quantiles(
    values: np.ndarray, fractions: Sequence[float], *, seed: int = 0
) -> np.ndarray:
    """Return order-statistic quantiles of resampled trials (Efron 1979).

    More than 10,000 trials are split at random into 10,000 groups, and the groups are resampled.
    Each quantile then moves by as many ranks as the resample has too few, or too many,
    values up to the quantile (Bahadur 1966). The time grows with the number of trials as one sort
    of them does. Grouping changes the width of an interval by about 1 %.

    Args:
        values: one number per trial, shape (trials,); infinite ones included, no NaN.
        fractions: which quantiles, each in [0, 1].
        seed: of the resampling.

    Returns:
        The quantiles of each of 2000 resamples, shape (2000, len(fractions)).
    """
    trials, rng = values.size, np.random.default_rng(seed)
    ranks = np.array([rank_of(trials, fraction) for fraction in fractions])
    groups = min(trials, _DRAWN)

    def drawn() -> np.ndarray:  # how many times each group is drawn
        return np.bincount(rng.integers(groups, size=groups), minlength=groups)

    found = np.empty((_RESAMPLES, ranks.size))
    if groups == trials:
        order = np.argsort(values)
        for quantiles in found:
            up_to = np.cumsum(drawn()[order])
            quantiles[:] = values[order[np.searchsorted(up_to, ranks)]]
        return found
    group = rng.integers(groups, size=trials, dtype=np.int16)
    sizes = np.bincount(group, minlength=groups).astype(float)
    ordered = np.sort(values)
    lowest = [group[_lowest(values, ordered, rank)] for rank in ranks]
    below = np.stack([np.bincount(some, minlength=groups).astype(float) for some in lowest])
    for quantiles in found:
        times = drawn().astype(float)
        up_to = below @ times * (trials / (sizes @ times))
        moved = np.rint(2 * ranks - up_to).astype(int)
        quantiles[:] = ordered[np.clip(moved, 1, trials) - 1]
    return found


def _lowest(values: np.ndarray, ordered: np.ndarray, rank: int) -> np.ndarray:
    """Return which trials have the `rank` smallest values; of equal values the first ones."""
    largest = ordered[rank - 1]
    found = values < largest
    equal = np.flatnonzero(values == largest)
    found[equal[: rank - np.count_nonzero(found)]] = True
    return found


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """The percentile interval: order statistics, so that infinite values are values.

    None where a value is undefined, such as the difference of two infinite ones.
    """
    if np.isnan(values).any():
        return None
    ordered, tail = np.sort(values), (1 - level) / 2
    low, high = int(np.floor(tail * values.size)), int(np.ceil((1 - tail) * values.size)) - 1
    return float(ordered[low]), float(ordered[high])
