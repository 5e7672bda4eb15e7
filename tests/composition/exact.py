"""Conversions and certificates by other means, to 40 digits, and sums as exact rationals."""

from fractions import Fraction

import mpmath as mp

mp.mp.dps = 40


def phi(z):
    """Return the standard normal distribution function."""
    return mp.erfc(-z / mp.sqrt(2)) / 2


def delta_of_gdp(mu, epsilon):
    """Return the closed form, with enough digits for its cancellation."""
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    with mp.workdps(40 + int(mp.log10(1 + epsilon)) + int((epsilon / mu) ** 2 / 4)):
        return phi(-epsilon / mu + mu / 2) - mp.exp(epsilon) * phi(-epsilon / mu - mu / 2)


def premium(order, delta):
    """Return epsilon minus the Rényi divergence (Canonne, Kamath, Steinke 2020)."""
    order, delta = mp.mpf(order), mp.mpf(delta)
    return mp.log(1 - 1 / order) - (mp.log(delta) + mp.log(order)) / (order - 1)


def bisected(below, low, high, steps=240):
    """Return the number up to which `below` holds."""
    low, high = mp.mpf(low), mp.mpf(high)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def epsilon_of_zcdp(rho, delta, conversion):
    rho = mp.mpf(rho)
    if conversion == "standard":
        return rho + 2 * mp.sqrt(rho * mp.log(1 / mp.mpf(delta)))

    # The minimum over orders, where the derivative vanishes.
    def falls(log_excess):
        excess = mp.exp(log_excess)
        return rho + (mp.log(delta) + mp.log1p(excess)) / excess**2 < 0

    order = 1 + mp.exp(bisected(falls, -40, 60, 107))
    return max(mp.mpf(0), order * rho + premium(order, delta))


def _twice_normal(near, log_tail, start):
    """Return `2 Phi^-1(1 - tail)`, where `near` is `1 - 2 tail`, or None for small tails."""
    if near is not None:
        return 2 * mp.sqrt(2) * mp.erfinv(near)
    return 2 * mp.findroot(lambda z: mp.log(phi(-z)) - log_tail, mp.sqrt(start))


def mu_of_odds(x):
    """Return `2 Phi^-1(1/(1 + exp(-x)))`."""
    x = mp.mpf(x)
    return _twice_normal(mp.tanh(x / 2) if x < 1 else None, -mp.log1p(mp.exp(x)), 2 * x)


def mu_of_laplace(e):
    """Return `2 Phi^-1(1 - exp(-e/2)/2)`."""
    return _twice_normal(-mp.expm1(-e / 2) if e < 1 else None, -e / 2 - mp.log(2), e)


def rdp_of_pure(order, epsilon):
    """Return the divergence of randomised response, from the definition."""
    with mp.workdps(400):
        a, p = mp.mpf(order), 1 / (1 + mp.exp(-mp.mpf(epsilon)))
        return mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)


def rdp_of_laplace(order, epsilon):
    """Return the divergence of Laplace noise (Mironov 2017, Proposition 6)."""
    a = mp.mpf(order)
    low = a / (2 * a - 1) * mp.exp((a - 1) * epsilon)
    high = (a - 1) / (2 * a - 1) * mp.exp(-a * epsilon)
    return mp.log(low + high) / (a - 1)


def rdp_of_reduction(order, epsilon):
    """Return `(A/(2 l^2)) (Ei(x) - log x - gamma - x)`, where `x = 2 l e`."""
    x = 2 * (order - 1) * epsilon
    return order / (2 * (order - 1) ** 2) * (mp.ei(x) - mp.log(x) - mp.euler - x)


def rdp_of_capped(order, epsilon, cap):
    """Return the certificate of a round with a cap (statement 32 of `docs/proofs`)."""
    a, e, m = mp.mpf(order), mp.mpf(epsilon), mp.mpf(cap)
    slope = mp.sinh((a - 1) * m) / (mp.sinh(a * m) - mp.sinh((a - 1) * m))
    return e - mp.log(1 + slope * (1 - mp.exp(-e))) / (a - 1)


def rdp_of_discrete(order, size, time):
    """Return the certificate of discrete Laplace noise reduction (statement 33 in the proofs)."""
    x, c = 1 / mp.mpf(time), 2 * (order - 1) * size
    more = (mp.exp(c * x) * (c * x - 1) + 1) / c**2 - x**2 / 2
    return rdp_of_reduction(order, size * x) + order / (6 * (order - 1)) * more


def rational(value):
    """Return the exact value of a float."""
    return Fraction(float(value))
