"""The two integrals of Gaussian differential privacy, on the host in float64, rounded up."""

import math
from statistics import NormalDist

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
# Relative error allowed for: 1e-13 were seen, of which the exponent z^2/2 < 750 takes the most.
_SLACK = 2e-12
# Beyond these many standard deviations the normal density is below the smallest float64.
_FAR = 39.0


def delta_of(mu: float, epsilon: float) -> float:
    """`E (1 - exp(e - L))_+` for `L ~ N(mu^2/2, mu^2)`, the delta of mu-GDP at `epsilon`.

    The usual difference of two normal tails cancels; here the integrand is positive:
    `phi(z) (1 - exp(-mu s))`, `z = e/mu - mu/2 + s`, s > 0.
    """
    if mu == 0:
        return 0.0
    # delta falls in z0; so z0 lowered by what rounding can have done to it is on the safe side.
    start = epsilon / mu - mu / 2
    start -= 3e-16 * (epsilon / mu + mu / 2)
    if not start > -_FAR:  # 1 but for less than 1e-300; or infinity less infinity
        return 1.0
    if start >= _FAR:
        return 5e-324
    high = max(0.0, -start) + _FAR
    # Panels that double from the smallest scale of the integrand near s = 0, then of length 1/2.
    first = min(0.5, 1 / (1 + mu + abs(start)))
    growing = first * 2.0 ** np.arange(max(0, math.ceil(math.log2(0.5 / first))) + 1)
    edges = np.concatenate([[0.0], growing, np.arange(growing[-1] + 0.5, high + 0.5, 0.5)])
    half = 0.5 * np.diff(edges)[:, None]
    s = half * _NODES + (edges[:-1, None] + half)
    # The exponent about start, so that its error is not that of a difference of large numbers.
    values = np.exp(-0.5 * s * s - start * s) if start > 0 else np.exp(-0.5 * (start + s) ** 2)
    total = float(np.sum(half * _WEIGHTS * values * -np.expm1(-mu * s)))
    front = math.exp(-0.5 * start * start) if start > 0 else 1.0
    return min(1.0, front * total / math.sqrt(2 * math.pi) * (1 + _SLACK) + 2e-323)


def mu_of_odds(exponent: float) -> float:
    """`2 Phi^-1(1/(1 + exp(-x)))` of `x >= 0`, rounded up; infinite beyond x = 700."""
    if exponent == 0:
        return 0.0
    if exponent > 700:
        return math.inf
    if exponent < 1e-7:
        # erf(y) = tanh(x/2) for mu = 2 sqrt(2) y: to third order in x, y = sqrt(pi)/4 x.
        return math.sqrt(math.pi / 2) * exponent * (1 + 1e-12) + 2e-323
    root = math.sqrt(0.5)
    if exponent < 1:
        # The middle of the normal law: erf does not cancel there.
        target = math.tanh(exponent / 2)
        z = NormalDist().inv_cdf(0.5 + 0.5 * target)
        for _ in range(4):
            density = math.exp(-0.5 * z * z) * math.sqrt(2 / math.pi)
            z -= (math.erf(z * root) - target) / density
    else:
        tail = 1 / (1 + math.exp(exponent))
        z = -NormalDist().inv_cdf(tail)
        for _ in range(4):
            ratio = 0.5 * math.erfc(z * root) / tail
            density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / tail
            z += (ratio - 1) / density
    return 2 * z * (1 + 1e-12)
