"""The boundaries in NumPy and SciPy in float64, by other methods than the package."""

import numpy as np
from scipy.integrate import simpson
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw, log_ndtr, ndtr

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary

KINDS = {"linear": LinearBoundary, "two": MixtureBoundary, "one": OneSidedMixtureBoundary}


def one_sided_height(level):
    """Return the z with z^2/2 + log Phi(z) + log 2 = level, elementwise by bisection."""
    level = np.asarray(level, float)
    low, high = np.zeros_like(level), np.sqrt(2 * level) + 1e-300
    for _ in range(200):
        middle = 0.5 * (low + high)
        small = 0.5 * middle**2 + log_ndtr(middle) + np.log(2) < level
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return high


def curve(family, time, delta, *shape):
    """Return u(t) for shape = (a, b) (linear) or shape = (rho,) (mixtures)."""
    if family == "linear":
        return shape[0] * time + shape[1]
    rho = shape[0]
    if family == "two":
        return np.sqrt((time + rho) * (np.log1p(time / rho) - 2 * np.log(delta)))
    level = 0.5 * np.log1p(time / rho) - np.log(delta)
    return one_sided_height(level) * np.sqrt(time + rho)


def psi(family, time, sensitivity, delta, *shape):
    """Return the boundary on the loss."""
    u = curve(family, time, delta, *shape)
    return sensitivity**2 / (2 * time) + sensitivity * u / time


def time_of(family, epsilon, sensitivity, delta, *shape):
    """Return the time at which `psi` equals epsilon, by bracketing in log(time)."""

    def gap(log_time):
        return np.log(psi(family, np.exp(log_time), sensitivity, delta, *shape) / epsilon)

    return np.exp(brentq(gap, -80.0, 120.0, xtol=1e-13, rtol=1e-14))


def best_rho(family, time, delta):
    """Return the rho with the least u(time), in closed form (two-sided) or by search."""
    if family == "two":
        return time / (-lambertw(-(delta**2) / np.e, -1).real - 1)
    found = minimize_scalar(
        lambda log_rho: np.log(curve(family, time, delta, time * np.exp(log_rho))),
        bounds=(-8.0, 8.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return time * np.exp(found.x)


def exceeded(times, levels, sensitivity, nodes=401):
    """Return the probability that the loss exceeds levels at falling times, by Simpson's rule.

    The loss is a Brownian motion with drift 1/2 in s = D2^2/t.
    """
    clock = sensitivity**2 / np.asarray(times)
    gaps, probability = (
        np.diff(clock, prepend=0),
        ndtr((clock[0] / 2 - levels[0]) / clock[0] ** 0.5),
    )
    density, losses = None, None
    for i, (s, gap) in enumerate(zip(clock, gaps, strict=True)):
        here = np.linspace(s / 2 - 9 * s**0.5, levels[i], nodes)
        if i == 0:
            density = np.exp(-((here - s / 2) ** 2) / (2 * s)) / np.sqrt(2 * np.pi * s)
        else:
            above = ndtr((losses + gap / 2 - levels[i]) / gap**0.5)
            probability += simpson(density * above, x=losses)
            steps = here[:, None] - losses - gap / 2
            kernel = np.exp(-(steps**2) / (2 * gap)) / np.sqrt(2 * np.pi * gap)
            density = simpson(density * kernel, x=losses)
        losses = here
    return probability
