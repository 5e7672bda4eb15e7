"""The boundaries in NumPy and SciPy in float64, by other methods than the package."""

from typing import Any

import numpy as np
from scipy.integrate import simpson
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw, log_ndtr, logsumexp, ndtr, softmax
from scipy.stats import norm

from nrjax.guarantees import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    log_uniform,
)

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


def best_gain(epsilons, steps, payoff):
    """Return the largest mean payoff of a stopping rule, by dynamic programming.

    The loss is a Brownian motion with drift 1/2 in u = D2^2/t, observed after each of `steps` equal
    steps of u.
    """
    du = steps[0]
    losses = np.linspace(-12, 14, 801)
    width = losses[1] - losses[0]
    kernel = norm.pdf(losses[None, :], losses[:, None] + du / 2, np.sqrt(du)) * width
    value = payoff(losses, epsilons[-1])
    for epsilon in epsilons[-2::-1]:
        value = np.maximum(payoff(losses, epsilon), kernel @ value)
    return float(norm.pdf(losses, du / 2, np.sqrt(du)) @ value * width)


def hockey_stick(loss, epsilon):
    return np.maximum(-np.expm1(epsilon - loss), 0)


def exceeds(loss, epsilon):
    return (loss > epsilon).astype(float)


def mixture(s, delta, orders, weights):
    """Return epsilon of `RenyiMixture` at s = D2^2/t, by bisection for the maximiser.

    All arguments have the same length, orders and weights a second axis.
    """
    less, weights = orders - 1, weights / weights.sum(axis=-1, keepdims=True)
    log_slope = np.log(weights * orders) + np.log(delta)[:, None]

    def slopes(y):
        return log_slope + less * (y[:, None] - orders * s[:, None] / 2)

    high = np.min(orders * s[:, None] / 2 - log_slope / less, axis=-1)
    low = high - np.log(orders.shape[-1]) / less.min(axis=-1) - 1e-9
    for _ in range(100):
        middle = 0.5 * (low + high)
        above = logsumexp(slopes(middle), axis=-1) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high + np.log1p(-np.sum(softmax(slopes(high), axis=-1) / orders, axis=-1))


def one_look(x, delta):
    """Return the exact epsilon of one Gaussian release at x = D2/sqrt(t)."""

    def excess(epsilon):
        return ndtr(x / 2 - epsilon / x) - np.exp(epsilon + log_ndtr(-x / 2 - epsilon / x)) - delta

    found: Any = brentq(excess, 0, 40 * x + x * x, xtol=1e-14)
    return found


def looks(count, epsilon=0.3, delta=1e-6):
    """Return times over a factor of 100, and the middle one, whose `one_look` is epsilon."""
    place: Any = brentq(lambda x: one_look(x, delta) - epsilon, 1e-3, 30)
    middle, factors = 1 / place**2, np.geomspace(10, 0.1, count)
    return middle * factors / factors[count // 2], middle


def prior(name, times, middle):
    """Return a prior of statement 14: 90 % near the middle time, 10 % on all times."""
    if name == "point":
        return 0.9 * (np.arange(times.size) == times.size // 2) + 0.1 / times.size
    factor = {"factor 2": 2, "factor 10": 10}[name]
    return log_uniform(times, middle / factor, middle * factor)
