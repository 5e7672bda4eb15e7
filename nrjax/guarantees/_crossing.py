"""Certified probability that Brownian motion is above a curve at one of K looks.

The recursion of Armitage, McPherson and Rowe (1969) by Gauss-Legendre panels, in float64 on the
host, with a bound on all of its errors: `docs/frontier.md`.
"""

import functools

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 9.0
"""Standard deviations below 0 from which on the density is left out."""
_BAND = 10.0
"""Standard deviations of a step beyond which its kernel is left out."""


def crossing(times: np.ndarray, heights: np.ndarray) -> tuple[float, float]:
    """`P(W_t > height at some look)` as computed, and an upper end that includes its errors.

    Args:
        times: rising, > 0, shape (looks,).
        heights: >= 0, of the same shape.
    """
    times, heights = _clock(times, heights)
    gaps = np.diff(times, prepend=0.0)
    probability, error = float(ndtr(-heights[0] / np.sqrt(times[0]))), 0.0
    nodes, masses, widest, density_error = None, None, 0.0, 0.0
    for i, (time, height) in enumerate(zip(times, heights, strict=True)):
        if i > 0:
            step = np.sqrt(gaps[i])
            assert nodes is not None
            assert masses is not None
            above = float(masses @ ndtr((nodes - height) / step))
            panels, length, bound = widest
            probability += above
            error += length * density_error + 3 * step * panels * bound + ndtr(-_REACH)
        if i + 1 == len(times):
            break
        half = np.sqrt(min(gaps[i], gaps[i + 1]))
        low = -_REACH * np.sqrt(time)
        panels = max(1, int(np.ceil((height - low) / (2 * half))))
        half = (height - low) / (2 * panels)
        centres = low + half * (2 * np.arange(panels) + 1)
        fresh = (centres[:, None] + half * _NODES).ravel()
        if i == 0:
            density = np.exp(-0.5 * fresh**2 / time) / np.sqrt(2 * np.pi * time)
        else:
            density = _spread(nodes, masses, fresh, gaps[i])
            panels_before, _, bound = widest
            # The kernel has mass 1, and is itself integrated to far better than 1e-9.
            density_error = density_error * (1 + 1e-9) + panels_before * bound
            density_error += np.exp(-0.5 * _BAND**2) / np.sqrt(2 * np.pi * gaps[i])
        nodes, masses = fresh, density * np.tile(half * _WEIGHTS, panels)
        widest = panels, height - low, _panel_error(half, time, gaps[i], gaps[i + 1])
    size = 1 if nodes is None else nodes.size
    rounding = len(times) * (size + 60) * 2.3e-16
    return probability, (probability + error) * (1 + rounding)


def tuned(times: np.ndarray, shape: np.ndarray, delta: float) -> np.ndarray:
    """The least multiple of a shape that is crossed with probability at most delta, certified.

    Arguments as for `crossing`; that of the multiple errs to the safe side by 1e-9 of itself.
    """
    return np.asarray(_tuned(tuple(times), tuple(shape), delta))


@functools.lru_cache(maxsize=64)
def _tuned(times: tuple[float, ...], shape: tuple[float, ...], delta: float) -> tuple[float, ...]:
    looks, form = np.asarray(times), np.asarray(shape)
    single = form / np.sqrt(looks)

    def bound(multiple: float, tail: float) -> float:
        return float(np.sum(ndtr(-multiple * single))) - tail

    # Below the largest of the single looks, above their sum.
    low = brentq(lambda k: float(np.max(ndtr(-k * single))) - delta, 0, 40 / single.min())
    high = brentq(lambda k: bound(k, delta), 0, 40 / single.min())
    if len(looks) > 1 and high > low * (1 + 1e-12):
        goal = np.log(delta)
        low = brentq(
            lambda k: np.log(crossing(looks, k * form)[0]) - goal, low * (1 - 1e-9), high, rtol=1e-9
        )
    multiple = low
    while crossing(looks, multiple * form)[1] > delta:
        multiple *= 1 + 1e-9
    return tuple(multiple * form)


def _clock(times: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The looks by t or by 1/t, which is a Brownian motion too: what takes fewer nodes."""
    inverted = (1 / times[::-1], (heights / times)[::-1])

    def work(times: np.ndarray) -> float:
        gaps = np.diff(times, prepend=0.0)
        panels = np.sqrt(times[:-1] / np.minimum(gaps[:-1], gaps[1:]))
        return float(np.sum(panels[:-1] * panels[1:]) + np.sum(panels))

    return inverted if work(inverted[0]) < work(times) else (times, heights)


def _spread(nodes: np.ndarray, masses: np.ndarray, fresh: np.ndarray, gap: float) -> np.ndarray:
    """Density at `fresh` after a step of variance `gap` from masses at `nodes`; both rise."""
    reach, density = _BAND * np.sqrt(gap), np.empty(fresh.size)
    for start in range(0, fresh.size, 64):
        here = fresh[start : start + 64]
        a, b = np.searchsorted(nodes, (here[0] - reach, here[-1] + reach))
        kernel = np.exp((here[:, None] - nodes[None, a:b]) ** 2 * (-0.5 / gap))
        density[start : start + 64] = kernel @ masses[a:b]
    return density / np.sqrt(2 * np.pi * gap)


@functools.lru_cache(maxsize=4096)
def _panel_error(half: float, time: float, gap: float, following: float) -> float:
    """Bound on the error of Gauss-Legendre quadrature on one panel of half-width `half`."""
    radius = np.geomspace(1.1, 100.0, 400)
    height = half * (radius - 1 / radius) / 2
    log_most = height**2 / 2 * (1 / gap + 1 / following)
    log_error = log_most - 2 * _NODES.size * np.log(radius) - np.log1p(-(radius**-2))
    scale = 64 / 15 * half / (2 * np.pi * np.sqrt(time * following))
    return float(scale * np.exp(log_error.min()))
