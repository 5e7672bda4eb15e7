"""The probability that Brownian motion exceeds a curve at one of several times, certified.

The method is the recursion of Armitage, McPherson and Rowe (1969) with Gauss-Legendre quadrature on
panels, in float64 on the host. All of its errors are bounded (`docs/frontier.md`).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nrjax._validation import check

Curve: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Rising times, and the heights of a curve at them."""

_FINE, _COARSE = 32, 10
"""Numbers of quadrature nodes per panel, for certified probabilities and for a search."""
_HALF_WIDTH = 3.0
"""Largest half-width of a panel, in standard deviations of a step."""
_SECANTS = 20
"""Maximum number of secant steps, of which about 4 are taken."""
_MOST_NODES = 2**20
"""Maximum number of nodes at one time, which times with gaps of 1e-8 of their size need."""
_REACH = 7.3
"""Number of standard deviations below 0 beyond which the density is omitted.

The omission is safe: a path that is this low at a time crosses later with at most twice the
probability with which a path crosses at all.
"""
_BAND = 11.0
"""Number of standard deviations of a step beyond which its kernel is omitted."""


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

    times, heights = _fewer_nodes(np.asarray(all_times), np.asarray(curve))
    places, weights = np.polynomial.legendre.leggauss(nodes_per_panel)
    gaps = np.diff(times, prepend=0.0)
    lengths = heights[:-1] + _REACH * np.sqrt(times[:-1])
    widths = 2 * _HALF_WIDTH * np.sqrt(np.minimum(gaps[:-1], gaps[1:]))
    counts = np.maximum(1, np.ceil(lengths / widths))
    largest = nodes_per_panel * np.max(counts, initial=0)
    expected = f"farther apart: they take {largest:.3g} quadrature nodes, of at most {_MOST_NODES}"
    check(largest <= _MOST_NODES, "times", np.asarray(all_times), expected)
    probability, error = float(ndtr(-heights[0] / np.sqrt(times[0]))), 0.0
    nodes, masses, most = np.empty(0), np.empty(0), 0
    # For the previous time: number of panels, their total length, and the error bound of one.
    panels, length, bound, density_error = 0, 0.0, 0.0, 0.0
    for i, (time, height) in enumerate(zip(times, heights, strict=True)):
        if i > 0:
            step = np.sqrt(gaps[i])
            probability += float(masses @ ndtr((nodes - height) / step))
            error += length * density_error + 3 * step * panels * bound
        if i + 1 == len(times):
            break
        # The kernel has mass 1, and its own integral is accurate to much better than 1e-9.
        density_error = density_error * (1 + 1e-9) + panels * bound
        low, length, panels = -_REACH * np.sqrt(time), lengths[i], int(counts[i])
        half = length / (2 * panels)
        centres = low + half * (2 * np.arange(panels) + 1)
        next_nodes = (centres[:, None] + half * places).ravel()
        if i == 0:
            density = np.exp(-0.5 * next_nodes**2 / time) / np.sqrt(2 * np.pi * time)
        else:
            density = _spread(nodes, masses, next_nodes, gaps[i])
            density_error += np.exp(-0.5 * _BAND**2) / np.sqrt(2 * np.pi * gaps[i])
        nodes, masses = next_nodes, density * np.tile(half * weights, panels)
        most = max(most, nodes.size)
        bound = _panel_error(nodes_per_panel, half, time, gaps[i], gaps[i + 1])
    rounding = len(times) * ((most + 60) * 2.3e-16 + 2.1 * ndtr(-_REACH))
    return probability, (probability + error) * (1 + rounding)


def tuned(
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

    return curve(raised(curve, least(curve, delta), delta))[1]


def least(curve: Callable[[float], Curve], delta: float) -> float:
    """Return about the least k >= 0 at which a curve is crossed with probability delta.

    Args:
        curve: returns times and heights for a number k; the heights rise with k, measured in
            square roots of times.
        delta: probability of a crossing.
    """

    def excess(k: float, nodes: int) -> float:
        return float(np.log(crossing(*curve(k), nodes)[0] / delta))

    # The probability is between the largest of the probabilities of single times, and their sum.
    low = _root(lambda k: float(np.max(_single(curve(k)))) - delta)
    k = _root(lambda k: float(np.sum(_single(curve(k)))) - delta)
    unit = _unit(curve, k)
    value, slope = excess(k, _COARSE), -1 / unit
    for _ in range(_SECANTS):
        step = max(low - k, -value / slope)
        if abs(step) < 1e-4 * unit:
            break
        k, before, value = k + step, value, excess(k + step, _COARSE)
        slope = (value - before) / step
    return max(low, k - excess(k, _FINE) / slope)


def raised(curve: Callable[[float], Curve], k: float, delta: float) -> float:
    """Return k, raised until `curve(k)` is certified to be crossed with probability <= delta."""
    unit, least_increase = _unit(curve, k), 1e-9
    while (level := crossing(*curve(k))[1]) > delta:
        k += unit * max(np.log(level / delta), least_increase)
        least_increase *= 2
    return float(k)


def _single(curve: Curve) -> np.ndarray:
    """Return the probability of a crossing at each time by itself."""
    from scipy.special import ndtr  # slow to import

    times, heights = curve
    return ndtr(-heights / np.sqrt(times))


def _unit(curve: Callable[[float], Curve], k: float) -> float:
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


def _spread(nodes: np.ndarray, masses: np.ndarray, targets: np.ndarray, gap: float) -> np.ndarray:
    """Return the density at `targets` after a step of variance `gap` from masses at `nodes`."""
    reach, density = _BAND * np.sqrt(gap), np.empty(targets.size)
    for start in range(0, targets.size, 32):
        block = targets[start : start + 32]
        a, b = np.searchsorted(nodes, (block[0] - reach, block[-1] + reach))  # both rise
        kernel = np.exp((block[:, None] - nodes[None, a:b]) ** 2 * (-0.5 / gap))
        density[start : start + 32] = kernel @ masses[a:b]
    return density / np.sqrt(2 * np.pi * gap)


_RADIUS = np.geomspace(1.1, 100.0, 400)
"""Parameters of Bernstein ellipses, among which the bound on an error takes the best."""


@functools.lru_cache(maxsize=4096)
def _panel_error(nodes: int, half: float, time: float, gap: float, following: float) -> float:
    """Return a bound on the quadrature error of one panel of half-width `half`."""
    radius = _RADIUS
    height = half * (radius - 1 / radius) / 2
    log_most = height**2 / 2 * (1 / gap + 1 / following)
    log_error = log_most - 2 * nodes * np.log(radius) - np.log1p(-(radius**-2))
    scale = 64 / 15 * half / (2 * np.pi * np.sqrt(time * following))
    return float(scale * np.exp(log_error.min()))


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
