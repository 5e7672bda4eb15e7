"""Exact intervals from numbers of trials, for every distribution of the trials."""

import bisect
import math

import numpy as np

_SAFE = 1 - 1e-6
"""The factor of a tail probability that allows for rounding in `betainc`."""


def rank_interval(trials: int, fraction: float, level: float = 0.95) -> tuple[int, int]:
    """Return the ranks of two order statistics between which the true quantile lies.

    The number of values up to the true quantile is Binomial(trials, fraction), or larger if the
    true distribution has atoms. For every distribution, the quantile is therefore below the first
    order statistic with probability at most `(1 - level) / 2`, and above the second with at most
    the same probability (David & Nagaraja 2003, section 7.1).

    Args:
        trials: number of independent values.
        fraction: fraction of the quantile, in (0, 1]; 0.5 is the median.
        level: probability with which the interval contains the true quantile, in (0, 1).

    Returns:
        The lower and the upper rank, from 1. The lower rank is 0, or the upper `trials + 1`, if
        there are too few trials to set that end.
    """
    from scipy.special import betainc  # slow to import

    tail = (1 - level) / 2 * _SAFE

    def below(rank: int) -> float:  # P(B < rank)
        return float(betainc(trials - rank + 1, rank, 1 - fraction)) if rank >= 1 else 0.0

    def reaching(rank: int) -> float:  # P(B >= rank), from rank 1 on
        return float(betainc(rank, trials - rank + 1, fraction)) if rank <= trials else 0.0

    # Both functions are monotone, so bisection finds the innermost ranks with small enough tails.
    low = bisect.bisect_right(range(trials + 1), tail, key=below) - 1
    high = 1 + bisect.bisect_left(range(1, trials + 2), -tail, key=lambda rank: -reaching(rank))
    return low, high


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact confidence interval of a probability (Clopper & Pearson 1934)."""
    from scipy.special import betaincinv  # slow to import

    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return max(0.0, float(np.nextafter(low, -1))), min(1.0, float(np.nextafter(high, 2)))


def band_width(trials: int, level: float = 0.95) -> float:
    """Return half the width of a confidence band around a whole distribution function.

    The band holds for every distribution. Half its width is the bound of Dvoretzky, Kiefer &
    Wolfowitz (1956) with the constant of Massart (1990):
    `sqrt(log(2 / (1 - level)) / (2 trials))`, at most 1.
    """
    if trials == 0:
        return 1.0
    return min(1.0, math.sqrt(math.log(2 / (1 - level)) / (2 * trials)))
