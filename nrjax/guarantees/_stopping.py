"""The gain of the best stopping rule against epsilons at several times, certified.

The clock is `s = D2^2/t`. The loss is `L = W_s + s/2` under the private data, and `M = exp(L)` is a
martingale under the neighbour's. A rule that stops at look k gains `(1 - exp(eps_k - L))_+`. The
best rule stops where L first reaches a barrier (statement 15 of `docs/proofs`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nrjax.guarantees._priors import Objective
from nrjax.guarantees._quadrature import convolve_with_step, omission_bound, panels

_FINE, _COARSE = 32, 10
"""Numbers of quadrature nodes per panel, for certified gains and for a search."""
_REACH = 8.5
"""Number of standard deviations below the mean loss beyond which paths are omitted."""
_PASSES = 40
"""Maximum number of passes of the fixed point, of which about 10 are taken."""
_RAISES = 20
"""Maximum number of evaluations that certify a barrier, of which about 3 are taken."""
_MOST_SPENT = 0.4
"""Largest probability of a stop under the neighbour's data, in a search."""
_ULP = 2.3e-16


class BarrierPrice(NamedTuple):
    """The epsilons for which a barrier is the best rule, and what that rule gains.

    Attributes:
        epsilons: the epsilons, rounded up, shape (n,). They may be negative.
        gain: the gain, which is a price of a Bermudan call option.
        most: certified upper bound on the gain.
    """

    epsilons: np.ndarray
    gain: float
    most: float


def price_barrier(clock: np.ndarray, barrier: np.ndarray, number: int = _FINE) -> BarrierPrice:
    """Return the epsilons for which a barrier is the best rule, backwards from the last look.

    Args:
        clock: the rising `s = D2^2/t`, shape (n,).
        barrier: losses at which the rule stops, at least `clock / 2`, shape (n,).
        number: number of quadrature nodes per panel; with few the bound is not sharp.
    """
    from scipy.special import log_ndtr, ndtr  # slow to import

    gaps, roots, heights = np.diff(clock, prepend=0.0), np.sqrt(clock), barrier - clock / 2
    epsilons, errors = barrier.astype(float), np.zeros(len(clock))
    # The value of not stopping, in the first column, and its rounding errors, in the second.
    nodes, masses, error = np.empty(0), np.empty((0, 2)), 0.0
    values = masses
    for k in reversed(range(len(clock))):
        margin = 2e-15 * (1 + barrier[k] + abs(epsilons[k] - barrier[k]))
        epsilons[k] += margin
        errors[k] += 1.5 * margin
        gap, here, start, targets = gaps[k], None, 0.0, np.zeros(1)
        if k > 0:
            here = panels(-_REACH * roots[k - 1], heights[k - 1], gaps[k - 1], gap, number)
            start, targets = clock[k - 1] / 2, np.append(here.nodes, heights[k - 1])
        values, step = convolve_with_step(nodes, masses, targets, gap), np.sqrt(gap)
        a, losses = (targets - heights[k]) / step, targets + start
        stopped = ndtr(a)
        parts = 60 + 8 * (np.abs(a) + 1) * (np.abs(losses) + barrier[k] + gap) / step
        parts += 16 * (1 + a * a) + 4 * np.abs(epsilons[k] - losses)
        sums = len(nodes) + 60 + 200 * roots[k] / step
        values[:, 1] += _ULP * (sums * values[:, 0] + 2 * parts * stopped)
        values[:, 0] += stopped - np.exp(epsilons[k] - losses + log_ndtr(a - step))
        if here is None:
            break
        errors[k - 1] = error + values[-1, 1]
        epsilons[k - 1] += np.log1p(-max(values[-1, 0] - errors[k - 1], 0.0))
        nodes, masses = here.nodes, values[:-1] * here.weights[:, None]
        error = error * (1 + 1e-9) + here.error / np.sqrt(2 * np.pi * gaps[k - 1])
        error += here.length * omission_bound(gaps[k - 1])
    gain, rounding = values[0]
    tail = len(clock) * ndtr(-_REACH)
    reached = min(1.0, float(np.sum(ndtr(-heights / roots))))
    most = gain + error + rounding + reached * (2 * np.sum(errors) + len(clock) * tail)
    return BarrierPrice(epsilons, float(gain), float(most * (1 + 2.1 * tail + 1e-12)))


def gain_of_one_release(x: float, epsilon: float) -> float:
    """Return the gain of one look with `D2/sqrt(t) = x`, the curve of the Gaussian mechanism."""
    from scipy.special import log_ndtr, ndtr  # slow to import

    z = epsilon / x
    return float(ndtr(x / 2 - z) - np.exp(epsilon + log_ndtr(-x / 2 - z)))


def solve_one_release(epsilon: float, delta: float) -> float:
    """Return the `x = D2/sqrt(t)` of one Gaussian release that costs epsilon."""
    from scipy.special import ndtri  # slow to import

    z = -float(ndtri(delta))
    start = 2 * epsilon / (z + np.sqrt(z * z + 2 * epsilon))  # the loss exceeds epsilon rarely
    return solve_for_gain(lambda x: gain_of_one_release(x, epsilon), start, delta)


def solve_for_gain(gain: Callable[[float], float], low: float, delta: float) -> float:
    """Return the x above `low` at which a rising gain is delta."""
    from scipy.optimize import brentq  # slow to import

    high = 2 * low
    while gain(high) < delta:
        high *= 2
    root: Any = brentq(lambda x: gain(x) - delta, low, high, xtol=1e-300, rtol=np.float64(1e-14))
    return float(root)


def design_barrier(
    clock: np.ndarray, weights: np.ndarray, delta: float, objective: Objective
) -> np.ndarray:
    """Return the barrier whose epsilons have the smallest weighted cost, and gain at most delta.

    At the optimum the neighbour's probability of a stop at look k, by the best rule, is
    proportional to `w_k phi'(eps_k) exp(-eps_k)`, where `phi` is the cost of an epsilon. It is the
    fixed point of a pass forwards, for the barrier, and one backwards, for the epsilons.

    Args:
        clock: the rising `s = D2^2/t`, shape (n,).
        weights: weights w of the looks, shape (n,).
        delta: largest gain of a rule.
        objective: "log" if the cost is log(epsilon), "mean" if it is epsilon.
    """
    from scipy.special import ndtri  # slow to import

    epsilons = clock / 2 - ndtri(delta) * np.sqrt(clock)
    spending, barrier = np.zeros(len(clock)), epsilons
    log_total = np.log(10 * delta) - np.log(weights @ np.exp(epsilons))
    for _ in range(_PASSES):
        shares = weights * np.exp(-epsilons)
        if objective == "log":
            shares = shares / np.maximum(epsilons, 1e-3 * barrier)
        log_total = min(log_total, np.log(_MOST_SPENT))
        before, spending = spending, np.exp(log_total) * shares / shares.sum()
        barrier = _barrier_for_spending(clock, spending)
        epsilons, gain, _ = price_barrier(clock, barrier, _COARSE)
        log_total -= np.log(gain / delta)
        if np.max(np.abs(spending - before) / spending) < 1e-4:
            break
    return _raise_until_certified(clock, barrier, delta)


def _raise_until_certified(clock: np.ndarray, barrier: np.ndarray, delta: float) -> np.ndarray:
    """Return a barrier moved by a multiple of `sqrt(clock)`, to a certified gain of about delta."""
    from scipy.special import ndtri  # slow to import

    moved, shift, step, before, rate = barrier, 0.0, 0.0, 0.0, 1 - float(ndtri(delta))
    for slack in 2e-9 * 2.0 ** np.arange(_RAISES):
        moved = np.maximum(barrier + shift * np.sqrt(clock), clock / 2)
        excess = float(np.log(price_barrier(clock, moved).most / delta))
        if -5 * slack < excess <= 0:
            break
        if step and excess != before:
            rate = (before - excess) / step
        step, before = (excess + slack) / rate, excess
        shift += step
    return moved


def _barrier_for_spending(clock: np.ndarray, spending: np.ndarray) -> np.ndarray:
    """Return the barrier that is first reached at each look with given probabilities.

    The probabilities are the neighbour's.
    """
    from scipy.special import ndtr, ndtri  # slow to import

    gaps, roots = np.diff(clock, prepend=0.0), np.sqrt(clock)
    # Without earlier stops the heights would be these.
    heights = np.maximum(-roots * ndtri(spending) - clock, 0.0)
    nodes, masses = np.empty(0), np.empty(0)
    for k, s in enumerate(clock):
        if k > 0:
            tilted, step = masses * np.exp(-nodes - clock[k - 1] / 2), np.sqrt(gaps[k])
            # Higher above the last barrier `total` could underflow to 0.
            heights[k] = min(heights[k], nodes[-1] + gaps[k] + 30 * step)
            for _ in range(30):
                z = (nodes - heights[k] - gaps[k]) / step
                total = tilted @ ndtr(z)
                density = tilted @ np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * step)
                change = np.log(total / spending[k]) * total / density
                heights[k] = max(heights[k] + change, 0.0)
                if abs(change) < 1e-8 * step:
                    break
        if k + 1 < len(clock):
            here = panels(-_REACH * roots[k], heights[k], gaps[k], gaps[k + 1], _COARSE)
            if k == 0:
                density = np.exp(-0.5 * here.nodes**2 / s) / np.sqrt(2 * np.pi * s)
            else:
                density = convolve_with_step(nodes, masses, here.nodes, gaps[k])
            nodes, masses = here.nodes, density * here.weights
    return heights + clock / 2
