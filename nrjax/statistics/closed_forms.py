"""Noise levels at which one release meets an error with a given probability, for any data.

The first three functions return a `Question.fixed_time` or `Question.bound_time`, as partial calls
of functions of this module, which can be pickled.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

_NODES = np.linspace(-8.0, 8.0, 400)
"""Normal quantiles of the variances over which spherical Laplace noise is averaged.

The trapezoidal rule has a relative error below 1e-9 for smooth functions of a normal number.
"""

_LEAST_CONFIDENCE = 1e-100
"""Confidences below this are taken as this, so that times are finite. Such a time is smaller."""


def times_within(tolerances: np.ndarray) -> Callable[[str, float, float], float | None]:
    """Return `Question.fixed_time` for an error of 1 that permits these errors of coordinates."""
    return partial(_time_within, tolerances)


def _time_within(
    tolerances: np.ndarray, noise: str, error: float, confidence: float
) -> float | None:
    return time_within(noise, error * tolerances, confidence)


def times_at_distance(dimension: int) -> Callable[[str, float, float], float | None]:
    """Return `Question.fixed_time` for an error that is the l2 norm of the noise."""
    return partial(_time_at_distance, dimension)


def _time_at_distance(dimension: int, noise: str, error: float, confidence: float) -> float | None:
    times = {
        "brownian": gaussian_time_at_distance,
        "laplace": laplace_time_at_distance,
        "spherical laplace": spherical_time_at_distance,
    }
    return times[noise](error, dimension, confidence) if noise in times else None


def times_by_curvature(
    curvature: float, dimension: int
) -> Callable[[str, float, float], float | None]:
    """Return `Question.bound_time` for a loss whose second derivatives are at most `curvature`.

    At a distance r from the optimum, where the gradient is 0, such a loss is at most
    `curvature r^2/2` above the optimum's. The time is a little smaller, since times are rounded.
    """
    return partial(_time_by_curvature, curvature, dimension)


def _time_by_curvature(
    curvature: float, dimension: int, noise: str, error: float, confidence: float
) -> float | None:
    times = {
        "brownian": gaussian_time_at_distance,
        "spherical laplace": spherical_time_at_distance,
    }
    distance = (2 * (1 - 1e-5) * error / curvature) ** 0.5
    return times[noise](distance, dimension, confidence) if noise in times else None


def time_within(noise: str, tolerances: np.ndarray, confidence: float) -> float:
    """Return the largest time at which all errors are within their tolerances, with `confidence`.

    The probability that independent noise stays within all tolerances is a product, which falls as
    the noise grows. For spherical Laplace noise, which is Gaussian with a random variance, it is
    averaged over the variances.

    Args:
        noise: "brownian", "laplace", "spherical laplace" or "discrete laplace".
        tolerances: largest absolute error of each coordinate, positive.
        confidence: probability in (0, 1).
    """
    from scipy.optimize import brentq  # slow to import
    from scipy.special import erf, erfc, logsumexp

    tolerances, counts = np.unique(np.ravel(tolerances), return_counts=True)
    unit = 1.0 if noise == "discrete laplace" else tolerances[0]
    tolerances = tolerances / unit
    weights = np.exp(-0.5 * _NODES**2)
    clocks = _gamma_at(_NODES, (counts.sum() + 1) / 2) if noise == "spherical laplace" else None

    def log_within(inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        small = np.log(np.minimum(inside, 0.5))
        return np.where(outside < 0.5, np.log1p(-np.minimum(outside, 0.5)), small) @ counts

    def log_probability(log_time: float) -> float:
        time = np.exp(log_time)
        if clocks is not None:
            ratios = tolerances / (2 * time * np.sqrt(clocks))[:, None]
            each = log_within(erf(ratios), erfc(ratios))
            total: Any = logsumexp(each, b=weights / weights.sum())
            return float(total)
        if noise == "brownian":
            ratios = tolerances / np.sqrt(2 * time)
            return float(log_within(erf(ratios), erfc(ratios)))
        if noise == "laplace":
            ratios = tolerances / time
            return float(log_within(-np.expm1(-ratios), np.exp(-ratios)))
        ratio, steps = np.exp(-1 / time), np.floor(tolerances) + 1
        outside = 2 * ratio**steps / (1 + ratio)
        inside = (-np.expm1(-1 / time) - 2 * ratio * np.expm1((1 - steps) / time)) / (1 + ratio)
        return float(log_within(inside, outside))

    power = 2 if noise == "brownian" else 1
    low, high = np.log(tolerances[0]) + np.array([-12.0, 12.0]) * power
    if noise == "discrete laplace":  # it is 0 within any tolerance, if its scale is small enough
        low, high = max(low, np.log(0.02)), max(high, 5.0)
    confidence = max(confidence, _LEAST_CONFIDENCE)
    while log_probability(high) >= np.log(confidence):
        high += 12.0 * power
    root: Any = brentq(lambda x: log_probability(x) - np.log(confidence), low, high)
    return float(np.exp(root) * unit**power)


def _gamma_at(normal: np.ndarray, shape: float) -> np.ndarray:
    """Return the quantiles of a Gamma distribution at the probabilities of normal quantiles."""
    from scipy.special import gammainccinv, gammaincinv, ndtr  # slow to import

    lower, upper = gammaincinv(shape, ndtr(normal)), gammainccinv(shape, ndtr(-normal))
    return np.where(normal < 0, lower, upper)


def gaussian_time_at_distance(distance: float, dimension: int, confidence: float) -> float:
    """Return the variance at which Gaussian noise has an l2 norm of at most `distance`.

    The squared norm, divided by the variance, has a chi-squared distribution.
    """
    from scipy.special import gammaincinv  # slow to import

    return distance**2 / (
        2 * float(gammaincinv(0.5 * dimension, max(confidence, _LEAST_CONFIDENCE)))
    )


def spherical_time_at_distance(distance: float, dimension: int, confidence: float) -> float:
    """Return the scale at which spherical Laplace noise has an l2 norm of at most `distance`.

    The norm, divided by the scale, has a Gamma distribution of shape `dimension`.
    """
    from scipy.special import gammaincinv  # slow to import

    return distance / float(gammaincinv(dimension, max(confidence, _LEAST_CONFIDENCE)))


def laplace_time_at_distance(distance: float, dimension: int, confidence: float) -> float:
    """Return the scale at which independent Laplace noise has an l2 norm of at most `distance`.

    The distribution of the squared norm is that of one square, convolved with itself by a discrete
    Fourier transform. Squares are rounded to 2^18 cells, so that the scale is right within 1 % for
    confidences of at least one half.
    """
    cells = 2**18
    # The mean, 30 standard deviations, and a square that one coordinate hardly ever reaches.
    end = 2 * dimension + 30 * (20 * dimension) ** 0.5 + (np.log(dimension) + 40) ** 2
    edges = np.maximum(np.arange(cells + 1) - 0.5, 0) * (end / cells)
    one = -np.diff(np.exp(-np.sqrt(edges)))
    total = np.fft.irfft(np.fft.rfft(one) ** dimension, cells)
    square = np.searchsorted(np.cumsum(total), confidence) + 0.5
    return float(distance / np.sqrt(square * (end / cells)))
