"""Gauss-Legendre panels for densities that are spread by a step of Brownian motion."""

import functools
from typing import NamedTuple

import numpy as np

from nrjax._base.validation import check

HALF_WIDTH = 3.0
"""Largest half-width of a panel, in standard deviations of a step."""
MOST_NODES = 2**20
"""Maximum number of nodes at one time, which times with gaps of 1e-8 of their size need."""
BAND = 11.0
"""Number of standard deviations of a step beyond which its kernel is omitted."""

_RADIUS = np.geomspace(1.1, 100.0, 400)
"""Parameters of Bernstein ellipses, among which the bound on an error takes the best."""


class Panels(NamedTuple):
    """The quadrature on an interval of values at one time.

    Attributes:
        nodes: rising nodes, shape (n,).
        weights: their weights, shape (n,).
        length: length of the interval.
        error: bound on the error of the integral of a function that is, off the real axis, at most
            `exp(y^2/2 (1/gap + 1/following))` at height y.
    """

    nodes: np.ndarray
    weights: np.ndarray
    length: float
    error: float


def panels(low: float, high: float, gap: float, following: float, number: int) -> Panels:
    """Return the quadrature between `low` and `high`, with `number` nodes per panel.

    Args:
        low: start of the interval.
        high: end of the interval.
        gap: variance of the step to this time.
        following: variance of the step from this time to the next.
        number: number of nodes per panel.
    """
    length = high - low
    count = max(1, int(np.ceil(length / (2 * HALF_WIDTH * np.sqrt(min(gap, following))))))
    size = number * count
    expected = f"farther apart: this gap takes {size:.3g} quadrature nodes, of at most {MOST_NODES}"
    hint = "Or give more levels between low and high, if times rise by a large factor."
    check(size <= MOST_NODES, "times", min(gap, following), expected, hint)
    places, weights = _gauss(number)
    half = length / (2 * count)
    centres = low + half * (2 * np.arange(count) + 1)
    nodes = (centres[:, None] + half * places).ravel()
    error = count * _panel_error(number, half, gap, following)
    return Panels(nodes, np.tile(half * weights, count), length, error)


def convolve_with_step(
    nodes: np.ndarray, masses: np.ndarray, targets: np.ndarray, gap: float
) -> np.ndarray:
    """Return the density at `targets` after a step of variance `gap` from masses at `nodes`.

    Nodes and targets rise. Columns of `masses`, shape (nodes, ...), are spread separately.
    """
    reach, density = BAND * np.sqrt(gap), np.empty((targets.size, *masses.shape[1:]))
    for start in range(0, targets.size, 32):
        block = targets[start : start + 32]
        a, b = np.searchsorted(nodes, (block[0] - reach, block[-1] + reach))
        kernel = np.exp((block[:, None] - nodes[None, a:b]) ** 2 * (-0.5 / gap))
        density[start : start + 32] = kernel @ masses[a:b]
    return density / np.sqrt(2 * np.pi * gap)


def omission_bound(gap: float) -> float:
    """Return a bound on what `convolve_with_step` omits of a unit mass."""
    return float(np.exp(-0.5 * BAND**2) / np.sqrt(2 * np.pi * gap))


_gauss = functools.lru_cache(np.polynomial.legendre.leggauss)


@functools.lru_cache(maxsize=4096)
def _panel_error(number: int, half: float, gap: float, following: float) -> float:
    """Return the error bound of one panel of half-width `half` (see `Panels.error`)."""
    height = half * (_RADIUS - 1 / _RADIUS) / 2
    log_most = height**2 / 2 * (1 / gap + 1 / following)
    log_error = log_most - 2 * number * np.log(_RADIUS) - np.log1p(-(_RADIUS**-2))
    return float(64 / 15 * half * np.exp(log_error.min()))
