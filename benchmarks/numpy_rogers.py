"""The sessions of `rogers2023` as one would write them in NumPy, one at a time.

The peer of `benchmarks.rogers2023`. As in the paper: fresh Gumbel noise on the counts that are
left, the winner is released and taken away, and again. A release by noise reduction draws its 1000
noise levels at once, as a walk in inverted time, and looks for the first that the rule accepts. It
shares no code with nrjax.
"""

import math
from typing import NamedTuple

import numpy as np


class Trial(NamedTuple):
    """How one session ended."""

    returned: int
    """Results returned."""
    precise: int
    """Those of them within alpha of the truth."""
    attempted: int
    """Items selected, those discarded included."""
    spent: float
    """Sum of squared privacy parameters."""


class Budget(NamedTuple):
    """A filter in squared privacy parameters, of which every release costs its own."""

    total: float
    """What the whole session may cost."""
    selection: float
    """What one draw of the exponential mechanism costs."""


def unified(epsilon: float, delta: float, selection: float) -> Budget:
    """Rogers 2023: twice the rho of Lemma 2.3; the exponential mechanism costs a quarter e^2."""
    log = math.log(1 / delta)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    return Budget(2 * rho, selection**2 / 4)


def accepted(noisy, parameter, alpha):
    """Section 7.2's condition, as it is printed; elementwise."""
    deviation = 1 / parameter
    with np.errstate(divide="ignore"):
        ratio = np.abs((noisy + deviation) / (noisy - deviation))
    return (1 - alpha < ratio) & (ratio <= 1 + alpha) & (np.abs(noisy) > deviation)


def reduction(rng, count, alpha, smallest, most, levels):
    """Brownian noise reduction of one count: the release and what it costs; NaN without one."""
    squared = np.linspace(smallest, most, levels)
    noise = np.sqrt(np.diff(squared, prepend=0.0)) * rng.standard_normal(levels)
    noisy = count + np.cumsum(noise) / squared
    good = accepted(noisy, np.sqrt(squared), alpha)
    first = int(np.argmax(good))
    return (noisy[first], squared[first]) if good[first] else (math.nan, most)


def doubling(rng, count, alpha, smallest, most, levels):
    """Fresh noise, its squared parameter doubled, every try paid for; NaN without a release."""
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


def session(rng, counts, method, alpha, selection, budget, smallest, levels=1000) -> Trial:
    """One session.

    Args:
        rng: NumPy's generator.
        counts: shape (items,), float64.
        method: a key of `METHODS`.
        alpha: relative error.
        selection: parameter of the exponential mechanism.
        budget: of the whole session.
        smallest: squared privacy parameter of the first and noisiest level.
        levels: of noise reduction, equally spaced up to what is left.
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
