"""Conversions of zCDP, Rényi and Gaussian privacy to (epsilon, delta), and back.

They run on the host, on Python floats in float64. Results are rounded to the safe side, by less
than a part in 1e9 (for a delta up to 0.99): an epsilon or a delta is never too small, a budget is
never too large.

Ranges: `rho`, `mu` and `divergence` are >= 0, an epsilon to spend is > 0, `delta` is in (0, 1), and
`order` is a Rényi order A > 1. Other arguments, and traced ones, raise a `ValueError`.

For other conversions of Gaussian privacy see the package dp-accounting. Costs of mechanisms in rho,
mu^2 or a divergence are those of the filters, for example `GaussianFilter(...).cost(Pure(0.1))`.

Sources: [BS16] Bun, Steinke 2016 (Rogers 2023, Lemma 2.3); [CKS20] Canonne, Kamath, Steinke 2020,
Proposition 12 (Balle et al. 2020, Theorem 21); [DRS22] Dong, Roth, Su 2022, Corollary 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nrjax._base.validation import check, check_choice, check_integer, check_number
from nrjax.composition.requests import FRACTION, NOT_NEGATIVE, POSITIVE, Range

PROBABILITY: Range = (lambda x: (x > 0) & (x < 1)), "strictly between 0 and 1"
ORDER: Range = (lambda x: (x > 1) & (x <= 1e12)), "above 1 and at most 1e12"
SLACK = 4e-15
"""Relative error allowed for in closed forms, which lose a few units of 2^-53."""
CONVERSIONS = ("standard", "renyi")
"""Names of the conversions of zCDP to (epsilon, delta): see `epsilon_of_zcdp`."""


def number(name: str, value: Any, valid: Range) -> float:
    """Check that a value is a single concrete number in a range, and return it as a float."""
    return check_number(name, value, *valid)


def _round_up(value: float, argument: float) -> float:
    """Return `value` rounded up, or 0 if the closed form's `argument` is 0."""
    # Subnormal numbers are off by up to a unit of 5e-324 in each operation.
    return value * (1 + SLACK) + 2e-323 if argument > 0 else 0.0


def _round_down(value: float) -> float:
    """Round down the result of a formula whose exact value is at least 0."""
    return max(0.0, value * (1 - SLACK) - 2e-323)


def check_conversion(value: str) -> None:
    """Check the name of a conversion from zCDP."""
    check_choice("conversion", value, CONVERSIONS)


def _premium(order: Any, level: float) -> tuple[Any, Any]:
    """Return the term that turns a Rényi divergence into epsilon [CKS20], and a bound on its error.

    The term is for `level = log(1/delta)`, and the error is that of rounding.
    """
    tail = (level - np.log(order)) / (order - 1)
    # log(1 - 1/A), whose argument cancels near A = 1.
    gain = np.where(order < 2, np.log((order - 1) / order), np.log1p(-1 / order))
    scale = (level + np.abs(np.log(order))) / (order - 1) + np.abs(gain)
    return tail + gain, SLACK * scale


def best_order(score: Callable[[Any], Any]) -> tuple[float, float]:
    """Return the order above 1 with the largest score, and that score.

    `score` maps an array of orders to an array of scores. The search refines a grid in
    `log(order - 1)`. Every order gives a valid bound, so missing the best order costs only
    tightness.
    """
    low, high = math.log(1e-9), math.log(1e12)
    order, best_score = math.nan, -math.inf
    for _ in range(12):
        logs = np.linspace(low, high, 129)
        orders = 1 + np.exp(logs)
        scores = np.asarray(score(orders), float)
        best = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        if scores[best] > best_score:
            order, best_score = float(orders[best]), float(scores[best])
        step = logs[1] - logs[0]
        low, high = logs[best] - 2 * step, logs[best] + 2 * step
    return order, best_score


def epsilon_of_zcdp(rho: float, delta: float, conversion: str = "standard") -> float:
    """Return the smallest epsilon proved for a `rho`-zCDP mechanism, rounded up.

    The conversion is "standard", `rho + 2 sqrt(rho log(1/delta))` [BS16], or "renyi", the smallest
    epsilon that [CKS20] gives over all orders, which is smaller.
    """
    rho, delta = number("rho", rho, NOT_NEGATIVE), number("delta", delta, PROBABILITY)
    check_conversion(conversion)
    level = -math.log(delta)
    standard = _round_up(rho + 2 * math.sqrt(rho) * math.sqrt(level), rho)
    if conversion == "standard" or rho == 0:
        return standard

    def score(order: Any) -> Any:
        premium, error = _premium(order, level)
        return -(order * rho * (1 + SLACK) + premium + error)

    return min(standard, max(0.0, -best_order(score)[1]))


def zcdp_for(epsilon: float, delta: float, conversion: str = "standard") -> float:
    """Return the largest rho whose `epsilon_of_zcdp` is at most `epsilon`, rounded down."""
    epsilon, delta = number("epsilon", epsilon, POSITIVE), number("delta", delta, PROBABILITY)
    check_conversion(conversion)
    level = -math.log(delta)
    # (sqrt(level + epsilon) - sqrt(level))^2, without its cancellation.
    standard = _round_down((epsilon / (math.sqrt(level + epsilon) + math.sqrt(level))) ** 2)
    if conversion == "standard":
        return standard
    score = best_order(lambda order: rdp_budgets(order, epsilon, delta) / order)[1]
    return max(standard, _round_down(score))


def epsilon_of_rdp(order: float, divergence: float, delta: float) -> float:
    """Return epsilon for a Rényi divergence of at most `divergence` at `order` [CKS20].

    Epsilon is `R + log(1 - 1/A) + (log(1/delta) - log A)/(A - 1)`, rounded up, or 0 if that is
    negative, where R is the divergence and A the order.
    """
    order, delta = number("order", order, ORDER), number("delta", delta, PROBABILITY)
    divergence = number("divergence", divergence, NOT_NEGATIVE)
    premium, error = _premium(order, -math.log(delta))
    return max(0.0, float(divergence + premium + error + SLACK * divergence))


def rdp_for(order: float, epsilon: float, delta: float) -> float:
    """Return the largest divergence whose `epsilon_of_rdp` is at most `epsilon`, rounded down.

    Raises:
        ValueError: no divergence is small enough at this order.
    """
    order, delta = number("order", order, ORDER), number("delta", delta, PROBABILITY)
    epsilon = number("epsilon", epsilon, POSITIVE)
    budget = float(rdp_budgets(order, epsilon, delta))
    hint = "At this order the conversion alone costs more than epsilon. Or take a larger epsilon."
    expected = f"larger for epsilon = {epsilon:.6g} and delta = {delta:.6g}"
    check(budget > 0, "order", order, expected, hint)
    return budget


def rdp_budgets(order: Any, epsilon: float, delta: float) -> Any:
    """Return the divergences of `rdp_for` for an array of orders.

    A result is not positive if no divergence is small enough at that order.
    """
    premium, error = _premium(order, -math.log(delta))
    return (epsilon - premium) - error - SLACK * epsilon


def of_group(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return the (epsilon, delta) for up to `rows` rows, given the pair for one row, rounded up.

    With k rows it is `k epsilon` and `delta (exp(k epsilon) - 1)/(exp(epsilon) - 1)`. A mechanism
    whose sensitivity covers the group (`nrjax.Sensitivity.of_rows`) costs less at equal noise.
    """
    epsilon, delta = number("epsilon", epsilon, POSITIVE), number("delta", delta, FRACTION)
    rows = check_integer("rows", rows, 1)
    if rows == 1:
        return epsilon, delta
    total = _round_up(rows * epsilon, epsilon)
    if delta == 0:
        return total, 0.0
    # The sum of exp(j epsilon) over j < k.
    log_ratio = (rows - 1) * epsilon + math.log(-math.expm1(-rows * epsilon))
    log_ratio -= math.log(-math.expm1(-epsilon))
    grown = math.exp(min(0.0, math.log(delta) + log_ratio))
    grown *= 1 + 1e-15 * (800 + 4 * log_ratio)
    # The logarithm of a subnormal result loses up to a unit of 5e-324, as the products do.
    return total, min(1.0, grown + 2e-323)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
# Relative error allowed for. Errors of 1e-13 were seen, mostly from the exponent z^2/2 < 750.
_QUADRATURE_SLACK = 2e-12
# Number of standard deviations beyond which the normal density is below the smallest float64.
_FAR = 39.0


def delta_of_gdp(mu: float, epsilon: float) -> float:
    """Return the delta of a mu-GDP mechanism at `epsilon`, rounded up [DRS22].

    Delta is `Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)`, where e is epsilon. That difference
    cancels, so delta is computed as `E (1 - exp(e - L))_+` for `L ~ N(mu^2/2, mu^2)`: the integral
    over s > 0 of `phi(z) (1 - exp(-mu s))`, where `z = e/mu - mu/2 + s`.
    """
    mu, epsilon = number("mu", mu, NOT_NEGATIVE), number("epsilon", epsilon, NOT_NEGATIVE)
    if mu == 0:
        return 0.0
    # Delta falls as the start of z rises, so lowering it by its rounding error is safe.
    start = epsilon / mu - mu / 2
    start -= 3e-16 * (epsilon / mu + mu / 2)
    if not start > -_FAR:  # 1 up to 1e-300; or infinity minus infinity
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
    # The exponent relative to its value at the start, which would be a difference of large numbers.
    values = np.exp(-0.5 * s * s - start * s) if start > 0 else np.exp(-0.5 * (start + s) ** 2)
    total = float(np.sum(half * _WEIGHTS * values * -np.expm1(-mu * s)))
    front = math.exp(-0.5 * start * start) if start > 0 else 1.0
    integral = front * total / math.sqrt(2 * math.pi)
    return min(1.0, integral * (1 + _QUADRATURE_SLACK) + 2e-323)


def gdp_for(epsilon: float, delta: float) -> float:
    """Return the largest mu with `delta_of_gdp(mu, epsilon) <= delta`, rounded down."""
    epsilon, delta = number("epsilon", epsilon, POSITIVE), number("delta", delta, PROBABILITY)
    # The square root of twice `zcdp_for`, which may underflow.
    level, epsilon = -math.log(delta), min(epsilon, 1e300)  # a smaller epsilon is safe
    good = _round_down(math.sqrt(2) * epsilon / (math.sqrt(level + epsilon) + math.sqrt(level)))
    bad = 2 * good if good > 0 else delta
    while delta_of_gdp(bad, epsilon) <= delta:
        good, bad = bad, 2 * bad
    while True:
        middle = (good + bad) / 2
        if bad - good <= 1e-13 * good or middle in (good, bad):
            return good
        if delta_of_gdp(middle, epsilon) <= delta:
            good = middle
        else:
            bad = middle
