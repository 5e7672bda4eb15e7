"""Bootstrap intervals of quantiles.

One seed draws the same trials of every case. Cases share their random numbers, so this keeps what
they have in common, and differences between cases get paired intervals.
"""

from collections.abc import Sequence

import numpy as np

_WORK = 10**8
"""Trials to draw in all; more trials get fewer resamples."""


def resampled_quantiles(
    values: np.ndarray, percents: Sequence[int], *, seed: int = 0
) -> np.ndarray:
    """Order-statistic quantiles of resampled trials (Efron 1979).

    Args:
        values: of each trial, shape (trials,), infinite ones included, no NaN.
        percents: which quantiles, each in (0, 100].
        seed: of the resampling.

    Returns:
        Shape (resamples, len(percents)): 2000 resamples, or as many as draw 1e8 trials in all, but
        no fewer than 100.
    """
    trials, rng = values.size, np.random.default_rng(seed)
    ranks = np.array([-(-percent * trials // 100) for percent in percents])
    order = np.argsort(values)
    found = np.empty((int(np.clip(_WORK // trials, 100, 2000)), ranks.size))
    for quantiles in found:
        times_drawn = np.bincount(rng.integers(trials, size=trials), minlength=trials)
        up_to = np.cumsum(times_drawn[order])
        quantiles[:] = values[order[np.searchsorted(up_to, ranks)]]
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
