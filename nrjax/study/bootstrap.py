"""Bootstrap intervals of quantiles: trials are resampled, the same ones for all cases.

Cases share their random numbers, so resampling trials and not cases on their own keeps what they
have in common, and differences between cases get paired intervals.
"""

from collections.abc import Mapping, Sequence

import numpy as np

_WORK = 10**8
"""Trials to draw in all; more trials get fewer resamples."""


def resampled_quantiles(
    samples: Mapping[str, np.ndarray], percents: Sequence[int], *, seed: int = 0
) -> dict[str, np.ndarray]:
    """Order-statistic quantiles of resampled trials (Efron 1979).

    Args:
        samples: values by case, each of shape (trials,), infinite ones included, no NaN.
        percents: which quantiles, each in (0, 100].
        seed: of the resampling.

    Returns:
        By case, shape (resamples, len(percents)): 2000 resamples, or as many as draw 1e8 trials
        in all, but no fewer than 100.

    Raises:
        ValueError: the cases differ in their number of trials.
    """
    sizes = {values.size for values in samples.values()}
    if not sizes:
        return {}
    if len(sizes) > 1:
        raise ValueError(f"samples have {sorted(sizes)} trials: must have the same number")
    (trials,) = sizes
    resamples = int(np.clip(_WORK // trials, 100, 2000))
    ranks = np.array([-(-percent * trials // 100) for percent in percents])
    values = np.stack(list(samples.values()))
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    found = np.empty((resamples, len(samples), ranks.size))
    # All cases in one search: each counts on from where the one before it ends.
    before = np.arange(len(samples))[:, None]
    rng = np.random.default_rng(seed)
    for number in range(resamples):
        times_drawn = np.bincount(rng.integers(trials, size=trials), minlength=trials)
        counts = np.cumsum(times_drawn[order].ravel())
        position = np.searchsorted(counts, before * trials + ranks) - before * trials
        found[number] = np.take_along_axis(ordered, position, axis=1)
    return {name: found[:, place] for place, name in enumerate(samples)}


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """The percentile interval: order statistics, so that infinite values are values.

    None where a value is undefined, such as the difference of two infinite ones.
    """
    if np.isnan(values).any():
        return None
    ordered, tail = np.sort(values), (1 - level) / 2
    low, high = int(np.floor(tail * values.size)), int(np.ceil((1 - tail) * values.size)) - 1
    return float(ordered[low]), float(ordered[high])
