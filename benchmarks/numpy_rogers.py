"""The trials of `rogers2023` in plain NumPy, one at a time.

They are the baseline of `benchmarks.rogers2023`. As in the paper, fresh Gumbel noise is added to
the remaining counts, the winner is released and removed, and so on. A release by noise reduction
draws its 1000 noise levels at once, as a walk in inverted time, and takes the first that the rule
accepts. It shares no code with nrjax.
"""

import math
from typing import NamedTuple

import numpy as np


class Trial(NamedTuple):
    """The result of a trial.

    Attributes:
        returned: number of results.
        precise: number of results within alpha of the truth.
        attempted: number of selected items, including discarded ones.
        spent: sum of squared privacy parameters.
    """

    returned: int
    precise: int
    attempted: int
    spent: float


class Budget(NamedTuple):
    """A budget in squared privacy parameters.

    Attributes:
        total: budget of the whole trial.
        selection: cost of one draw of the exponential mechanism.
    """

    total: float
    selection: float


def unified(epsilon: float, delta: float, selection: float) -> Budget:
    """Return twice the rho of Rogers 2023, Lemma 2.3, and `e^2/4` per selection."""
    log = math.log(1 / delta)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    return Budget(2 * rho, selection**2 / 4)


def accepted(noisy, parameter, alpha):
    """Return the condition of section 7.2 as printed, elementwise."""
    deviation = 1 / parameter
    with np.errstate(divide="ignore"):
        ratio = np.abs((noisy + deviation) / (noisy - deviation))
    return (1 - alpha < ratio) & (ratio <= 1 + alpha) & (np.abs(noisy) > deviation)


def reduction(rng, count, alpha, smallest, most, levels):
    """Return the release of a count by Brownian noise reduction, or NaN, and its cost."""
    squared = np.linspace(smallest, most, levels)
    noise = np.sqrt(np.diff(squared, prepend=0.0)) * rng.standard_normal(levels)
    noisy = count + np.cumsum(noise) / squared
    good = accepted(noisy, np.sqrt(squared), alpha)
    first = int(np.argmax(good))
    return (noisy[first], squared[first]) if good[first] else (math.nan, most)


def doubling(rng, count, alpha, smallest, most, levels):
    """Return the release of a count by fresh noise and doubling, or NaN, and its cost."""
    del levels
    squared, spent = smallest, 0.0
    while spent + squared <= most:
        spent += squared
        noisy = count + rng.standard_normal() / math.sqrt(squared)
        if accepted(noisy, math.sqrt(squared), alpha):
            return noisy, spent
        squared *= 2
    return math.nan, spent


METHODS = {"brownian": reduction, "doubling": doubling}


def run_trial(rng, counts, method, alpha, selection, budget, smallest, levels=1000) -> Trial:
    """Run one trial.

    Args:
        rng: NumPy generator.
        counts: shape (items,), float64.
        method: a key of `METHODS`.
        alpha: relative error.
        selection: parameter of the exponential mechanism.
        budget: budget of the whole trial.
        smallest: squared privacy parameter of the first and noisiest level.
        levels: number of levels of noise reduction, equally spaced up to the remaining budget.
    """
    release = METHODS[method]
    left, spent = counts, 0.0
    returned = precise = attempted = 0
    while left.size and spent + budget.selection + smallest <= budget.total:
        winner = int(np.argmax(left + rng.gumbel(scale=1 / selection, size=left.size)))
        count, left = left[winner], np.delete(left, winner)
        spent += budget.selection
        attempted += 1
        noisy, cost = release(rng, count, alpha, smallest, budget.total - spent, levels)
        spent += cost
        if not math.isnan(noisy):
            returned += 1
            precise += abs(noisy - count) <= alpha * count
    return Trial(returned, int(precise), attempted, spent)
