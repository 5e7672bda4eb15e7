"""Costs of private selection, rounded up.

Sources: Liu and Talwar 2019 [LT19], Papernot and Steinke 2022 [PS22], and statement 37 of
docs/proofs for staged Poisson selection.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from nrjax._base.validation import as_floats, check, check_number
from nrjax.composition.conversions import SLACK

_LOST = 16
"""Number of machine epsilons that `advantage` and the logarithms of `repetition` lose at most."""

_SMALLEST = 1e-30  # replaces smaller numbers, which XLA may flush to 0


def advantage(cap: Array, others: Array, delta: Array) -> Array:
    """Return the largest difference between neighbours in the probability of a success.

    Successes cost at most `cap` (a), other runs at most `others` (b), except with probability
    `delta` (d): `d + (1 - d) (e^a - 1)(e^b - 1)/(e^(a+b) - 1)`.
    """
    return delta + (1 - delta) * -jnp.expm1(-cap) * _likelier(cap, others)


def _likelier(cap: Array, others: Array) -> Array:
    """Return the larger probability of a success at the worst pair of neighbours."""
    return jnp.expm1(-others) / jnp.expm1(-(cap + others))


def repetition(mean: Array, cap: Array, others: Array, delta: Array) -> Array:
    """Return what publishing the first success costs more than the run that is published.

    The cost is `h(mu; a, b) = a + log((1 - e^(-mu p))/(1 - e^(-mu p')))`, where `p'` is the larger
    probability of a success and `p = e^-a p'`. It is at most a, and at most half of what a failing
    stage costs. The second bound also holds with a delta, the first does not.
    """
    half = 0.5 * mean * advantage(cap, others, delta)
    likelier = mean * _likelier(cap, others)
    less_likely = jnp.maximum(likelier * jnp.exp(-cap), _SMALLEST)

    def log_average(y: Array) -> Array:  # log((1 - e^-y)/y), the log mean of e^-u over [0, y]
        return jnp.log(-jnp.expm1(-y) / y)

    last = log_average(likelier)
    # The difference cancels if both are near 0, where `half` is the smaller bound.
    lost = _LOST * float(jnp.finfo(last.dtype).eps) * (1 + jnp.abs(last))
    exact = jnp.minimum(log_average(less_likely) - last + lost, cap)
    return jnp.where(delta > 0, half, jnp.minimum(exact, half))


def negative_binomial_cost(epsilon: float, shape: float) -> float:
    """Return the pure epsilon of the best of K runs, K truncated negative binomial [PS22].

    The cost is `(2 + shape) epsilon`, whatever the mean of K (Corollary 3). Publishing the first
    success of a geometric number of runs costs `2 epsilon` ([LT19], Theorem 3.1), as with shape 0.

        >>> nrjax.private_selection.negative_binomial_cost(0.5, shape=1) >= 1.5
        True

    Args:
        epsilon: pure epsilon of one run, > 0.
        shape: shape of the distribution of K, >= 0: 0 for the logarithmic distribution, 1 for the
            geometric one.
    """
    epsilon = check_number("epsilon", epsilon)  # a narrow one would round the product down
    shape = check_number("shape", shape, lambda n: (n >= 0) & (n < np.inf), "finite, and 0 or more")
    return (2 + shape) * epsilon * (1 + SLACK)


def repeated_divergence(
    orders: ArrayLike, divergences: ArrayLike, mean: float, shape: float
) -> np.ndarray:
    """Return Rényi divergences of the best of K runs [PS22, Theorems 2 and 6], rounded up.

    `nrjax.composition.conversions.epsilon_of_rdp` converts a divergence to (epsilon, delta). It is
    another notion than the pure epsilon of `PoissonSelection`: do not compare the two numbers.

        >>> orders = np.arange(2.0, 64.0)
        >>> best = nrjax.private_selection.repeated_divergence(orders, 0.01 * orders, 10.0, np.inf)
        >>> bool(np.all(best > 0.01 * orders))
        True

    Args:
        orders: Rényi orders, each above 1, shape (orders,).
        divergences: largest divergence of one run at each order, shape (orders,).
        mean: mean of K, at least 1.
        shape: shape of the distribution of K, >= 0: infinite for the Poisson distribution, for
            which K = 0 publishes nothing; 0 for the logarithmic and 1 for the geometric one.
    """
    expected = "a vector of numbers above 1"
    order = as_floats("orders", orders, lambda n: n.ndim == 1 and n.size > 0 and n > 1, expected)
    expected = "one number for each order, at least 0"
    divergence = as_floats("divergences", divergences, lambda n: n.shape == order.shape, expected)
    check(divergence >= 0, "divergences", divergences, expected)
    mean = check_number("mean", mean, lambda n: (n >= 1) & (n < np.inf), "finite, and 1 or more")
    shape = check_number("shape", shape, lambda n: n >= 0, "0 or more")
    growth = divergence + math.log(mean) / (order - 1)
    if math.isinf(shape):
        level = np.log1p(1 / (order - 1))
        return (growth + mean * _delta(order, divergence, level)) * (1 + 100 * SLACK)
    log_gamma = math.log(_gamma(mean, shape))
    total = growth + (1 + shape) * np.min((1 - 1 / order) * divergence - log_gamma / order)
    # Divergences rise with the order, so those of larger orders are bounds as well.
    return np.minimum.accumulate(total[::-1])[::-1] * (1 + 100 * SLACK)


def _delta(orders: np.ndarray, divergences: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Return the least delta over all orders, at each epsilon (Canonne et al. 2020)."""
    above = orders - 1
    gap = divergences - epsilons[:, None]
    logs = above * gap + above * np.log1p(-1 / orders) - np.log(orders)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def _gamma(mean: float, shape: float) -> float:
    """Return the parameter of the truncated negative binomial distribution with a mean."""

    def excess(log_gamma: float) -> float:
        gamma: Any = math.exp(log_gamma)
        if shape == 0:
            return (1 / gamma - 1) / -log_gamma - mean
        return shape * (1 - gamma) / (gamma * -math.expm1(shape * log_gamma)) - mean

    low, high = -700.0, -1e-12
    for _ in range(200):  # the smaller end, as the cost falls with gamma
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return math.exp(low)
