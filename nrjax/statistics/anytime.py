"""Statistics that stay valid however often you look at the trials, computed from counts alone.

Each is a betting martingale. Under the hypothesis, wealth is a nonnegative martingale that starts
at 1, so that it reaches `1/alpha` at any time with probability at most `alpha` (Ville's
inequality; Waudby-Smith and Ramdas 2024, Howard and Ramdas 2022 for quantiles).
"""

import math

import numpy as np

_STAKES = np.geomspace(0.01, 1.9, 24)
"""The fractions of the largest bet among which `log_wealth` divides its initial wealth."""


def log_wealth(wins: int, losses: int) -> float:
    """Return the logarithm of the wealth of bets that a win is more probable than a loss.

    If a win is at most as probable as a loss, the wealth is a supermartingale. Ties count as
    neither. A stake b multiplies the wealth by `1 + b/2` at a win and by `1 - b/2` at a loss; the
    initial wealth is divided evenly among 24 stakes.
    """
    logs = wins * np.log1p(_STAKES / 2) + losses * np.log1p(-_STAKES / 2)
    return float(np.logaddexp.reduce(logs) - math.log(_STAKES.size))


def interval(count: int, trials: int, alpha: float) -> tuple[float, float]:
    """Return an interval for a probability that holds at all numbers of trials at once.

    The interval holds the probabilities at which the mixture's likelihood ratio is below
    `1/alpha` (Robbins 1970). It covers the true probability, at all looks together, with
    probability at least `1 - alpha`.
    """
    if trials == 0:
        return 0.0, 1.0
    rate, failures = count / trials, trials - count
    mixture = math.lgamma(count + 1) + math.lgamma(failures + 1) - math.lgamma(trials + 2)

    def log_ratio(probability: float) -> float:
        return mixture - count * math.log(probability) - failures * math.log1p(-probability)

    def end(outside: float) -> float:
        inside = rate
        while abs(inside - outside) > 1e-9:
            middle = 0.5 * (inside + outside)
            if log_ratio(middle) < -math.log(alpha):
                inside = middle
            else:
                outside = middle
        return outside

    return (0.0 if count == 0 else end(0.0)), (1.0 if count == trials else end(1.0))


def quantile_interval(ordered: np.ndarray, fraction: float, alpha: float) -> tuple[float, float]:
    """Return an interval for a quantile that holds at all numbers of trials at once.

    For the quantile q, the number of trials at most q is binomial. The interval holds the values
    whose rank `interval` does not refuse.

    Args:
        ordered: values of all trials in rising order, infinite ones included, shape (trials,).
        fraction: order of the quantile, in (0, 1).
        alpha: probability with which the interval may fail at any look.
    """
    from scipy.special import gammaln  # slow to import

    trials = ordered.size
    ranks = np.arange(trials + 1)
    logs = gammaln(ranks + 1) + gammaln(trials - ranks + 1) - gammaln(trials + 2)
    logs -= ranks * math.log(fraction) + (trials - ranks) * math.log1p(-fraction)
    kept = ranks[logs < -math.log(alpha)]
    low, high = int(kept[0]), int(kept[-1])
    lowest = ordered[low - 1] if low > 0 else -math.inf
    return float(lowest), float(ordered[high]) if high < trials else math.inf
