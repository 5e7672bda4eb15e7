"""The probability that Brownian motion exceeds a curve at one of several times, certified.

The method is the recursion of Armitage, McPherson and Rowe (1969) with Gauss-Legendre quadrature on
panels, in float64 on the host. All of its errors are bounded (statement 10 of `docs/proofs`).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nrjax._base.validation import check
from nrjax.guarantees._quadrature import convolve_with_step, omission_bound, panels

Curve: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Rising times, and the heights of a curve at them."""

_FINE, _COARSE = 32, 10
"""Numbers of quadrature nodes per panel, for certified probabilities and for a search."""
_SECANTS = 20
"""Maximum number of secant steps, of which about 4 are taken."""
_WIDEST = 1e200
"""Maximum ratio of two times, whose squares would leave float64 otherwise."""
_REACH = 7.3
"""Number of standard deviations below 0 beyond which the density is omitted.

The omission is safe: a path that is this low at a time crosses later with at most twice the
probability with which a path crosses at all.
"""


def crossing(
    times: np.ndarray, heights: np.ndarray, nodes_per_panel: int = _FINE
) -> tuple[float, float]:
    """Return the probability `P(W_t > height at some time)`, and a certified upper bound.

    Args:
        times: times, rising and > 0, shape (n,).
        heights: heights of the curve at the times, >= 0, shape (n,).
        nodes_per_panel: number of quadrature nodes per panel; with few the bound is not sharp.
    """
    return _crossing(tuple(times), tuple(heights), nodes_per_panel)


@functools.lru_cache(maxsize=256)
def _crossing(
    all_times: tuple[float, ...], curve: tuple[float, ...], nodes_per_panel: int
) -> tuple[float, float]:
    from scipy.special import ndtr  # slow to import

    near = all_times[-1] / _WIDEST <= all_times[0]
    hint = "If levels give the times, low and high must be nearer to each other."
    check(near, "times", np.asarray(all_times), f"within a factor of {_WIDEST:g}", hint)
    # With times around 1 no square overflows or underflows. Powers of two scale exactly.
    power = round((np.log2(all_times[0]) + np.log2(all_times[-1])) / 4)
    times, heights = np.ldexp(all_times, -2 * power), np.ldexp(curve, -power)
    times, heights = _fewer_nodes(times, heights)
    gaps, roots = np.diff(times, prepend=0.0), np.sqrt(times)
    probability, error = float(ndtr(-heights[0] / roots[0])), 0.0
    # The density of the paths that were never above the curve, as masses at nodes.
    density_error, most, nodes, masses = 0.0, 0, np.empty(0), np.empty(0)
    for i, (root, height) in enumerate(zip(roots[:-1], heights[:-1], strict=True)):
        here = panels(-_REACH * root, height, gaps[i], gaps[i + 1], nodes_per_panel)
        if i == 0:
            density = np.exp(-0.5 * (here.nodes / root) ** 2) / (np.sqrt(2 * np.pi) * root)
        else:
            density = convolve_with_step(nodes, masses, here.nodes, gaps[i])
            density_error += omission_bound(gaps[i])
        nodes, masses, most = here.nodes, density * here.weights, max(most, here.nodes.size)
        step = np.sqrt(gaps[i + 1])
        probability += float(masses @ ndtr((nodes - heights[i + 1]) / step))
        quadrature_error = here.error / (2 * np.pi * root * step)
        error += here.length * density_error + 3 * step * quadrature_error
        # The kernel has mass 1, and its own integral is accurate to much better than 1e-9.
        density_error = density_error * (1 + 1e-9) + quadrature_error
    rounding = len(times) * ((most + 60) * 2.3e-16 + 2.1 * ndtr(-_REACH))
    return probability, (probability + error) * (1 + rounding)


def lowest_curve(
    times: np.ndarray, shape: np.ndarray, delta: float, base: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return the least curve `base + k shape` that is crossed with probability at most delta.

    The probability is certified. The curve is too high by about 1e-9 of a standard deviation.

    Args:
        times: times, rising and > 0, shape (n,).
        shape: heights at the times, > 0, shape (n,).
        delta: largest probability of a crossing.
        base: heights at the times to which multiples of `shape` are added, >= 0.
    """

    def curve(k: float) -> Curve:
        return times, base + k * shape

    return curve(raise_until_certified(curve, solve_for_crossing(curve, delta), delta))[1]


def solve_for_crossing(curve: Callable[[float], Curve], delta: float) -> float:
    """Return about the least k >= 0 at which a curve is crossed with probability delta.

    Args:
        curve: returns times and heights for a number k; the heights rise with k, measured in
            square roots of times.
        delta: probability of a crossing.
    """

    def excess(k: float, nodes: int) -> float:
        return float(np.log(crossing(*curve(k), nodes)[0] / delta))

    # The probability is between the largest of the probabilities of single times, and their sum.
    low = _root(lambda k: float(np.max(_crossing_at_each(curve(k)))) - delta)
    k = _root(lambda k: float(np.sum(_crossing_at_each(curve(k)))) - delta)
    unit = _step_of_search(curve, k)
    value, slope = excess(k, _COARSE), -1 / unit
    for _ in range(_SECANTS):
        step = max(low - k, -value / slope)
        if abs(step) < 1e-4 * unit:
            break
        k, before, value = k + step, value, excess(k + step, _COARSE)
        slope = (value - before) / step
    return max(low, k - excess(k, _FINE) / slope)


def raise_until_certified(curve: Callable[[float], Curve], k: float, delta: float) -> float:
    """Return k, raised until `curve(k)` is certified to be crossed with probability <= delta."""
    unit, least_increase = _step_of_search(curve, k), 1e-9
    while (level := crossing(*curve(k))[1]) > delta:
        k += unit * max(np.log(level / delta), least_increase)
        least_increase *= 2
    return float(k)


def _crossing_at_each(curve: Curve) -> np.ndarray:
    """Return the probability of a crossing at each time by itself."""
    from scipy.special import ndtr  # slow to import

    times, heights = curve
    return ndtr(-heights / np.sqrt(times))


def _step_of_search(curve: Callable[[float], Curve], k: float) -> float:
    """Return about the change of k that changes the logarithm of the probability by 1."""
    (times, heights), (later, higher) = curve(k), curve(k + 1e-3)
    now, then = heights / np.sqrt(times), higher / np.sqrt(later)
    lowest = np.argmin(now)
    return float(1e-3 / (then - now)[lowest] / (1 + now[lowest]))


def _fewer_nodes(times: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times and heights, inverted in time (`W_t -> W_t / t`) if that saves nodes."""
    inverted = (1 / times[::-1], (heights / times)[::-1])

    def work(times: np.ndarray) -> float:
        gaps = np.diff(times, prepend=0.0)
        panels = np.sqrt(times[:-1] / np.minimum(gaps[:-1], gaps[1:]))
        return float(np.sum(panels[:-1] * panels[1:]) + np.sum(panels))

    return inverted if work(inverted[0]) < work(times) else (times, heights)


def _root(falling: Callable[[float], float]) -> float:
    """Return the root of a falling function on the positive numbers, or 0 if there is none."""
    from scipy.optimize import brentq  # slow to import

    if falling(0.0) <= 0:
        return 0.0
    high = 1.0
    while falling(high) > 0:
        high *= 2
    root: Any = brentq(falling, 0.0, high, rtol=np.float64(1e-12))
    return float(root)
