"""Intervals that assume nothing of the law: of quantiles, of probabilities, of all of a law."""

import bisect
import math

import numpy as np

_SAFE = 1 - 1e-6
"""Of a tail: what the incomplete beta function may be wrong by, in relative terms, and more."""

_ROUNDING = 1e-12
"""A share of a number of trials that is whole up to rounding is whole."""


def rank_of(trials: int, fraction: float) -> int:
    """Return the rank, from 1, of the smallest value that this fraction do not exceed."""
    return min(trials, max(1, math.ceil(trials * fraction * (1 - _ROUNDING))))


def rank_interval(trials: int, fraction: float, level: float = 0.95) -> tuple[int, int]:
    """Ranks of the order statistics between which the true quantile lies (with them).

    The number of trials up to the true quantile is Binomial(trials, fraction), or beyond that
    where the law has atoms, so that the ranks hold for every law with a probability of at least
    `level`, half of the rest on either side (David & Nagaraja 2003, section 7.1).

    Args:
        trials: independent values.
        fraction: of the quantile, in (0, 1].
        level: in (0, 1).

    Returns:
        Ranks from 1; 0 and `trials + 1` stand for an end that so few trials do not set.
    """
    from scipy.special import betainc  # slow to import

    tail = (1 - level) / 2 * _SAFE

    def below(rank: int) -> float:  # P(B < rank)
        return float(betainc(trials - rank + 1, rank, 1 - fraction)) if rank >= 1 else 0.0

    def reaching(rank: int) -> float:  # P(B >= rank), from rank 1 on
        return float(betainc(rank, trials - rank + 1, fraction)) if rank <= trials else 0.0

    # Both are sorted: the last rank that few enough values reach, and the first.
    low = bisect.bisect_right(range(trials + 1), tail, key=below) - 1
    high = 1 + bisect.bisect_left(range(1, trials + 2), -tail, key=lambda rank: -reaching(rank))
    return low, high


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a probability (Clopper & Pearson 1934); all of [0, 1] without trials."""
    from scipy.special import betaincinv  # slow to import

    tail = (1 - level) / 2
    failures = trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return max(0.0, float(np.nextafter(low, -1))), min(1.0, float(np.nextafter(high, 2)))


def band_width(trials: int, level: float = 0.95) -> float:
    """Half the width of the band that holds all of the distribution function at once.

    Dvoretzky, Kiefer & Wolfowitz 1956 with the constant of Massart 1990:
    `sqrt(log(2 / (1 - level)) / (2 trials))`, at most 1; for every law.
    """
    if trials == 0:
        return 1.0
    return min(1.0, math.sqrt(math.log(2 / (1 - level)) / (2 * trials)))
