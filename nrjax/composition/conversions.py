"""From one way of stating privacy to another: (epsilon, delta), zCDP, Renyi and Gaussian privacy.

Python floats in, Python floats out, computed in float64 on the host and rounded to the safe side:
an epsilon, a delta, and what a mechanism satisfies are never too small, a budget is never too
large; by less than a part in 1e9 (for a delta up to 0.99).

What a mechanism has (rho, mu, a divergence or an epsilon) is >= 0, an epsilon to spend > 0, `delta`
in (0, 1), `order` a Renyi order A > 1. What is out of range or not concrete is a `ValueError`.

Sources: [BS16] Bun, Steinke 2016 (Rogers 2023, Lemma 2.3); [CKS20] Canonne, Kamath, Steinke 2020,
Proposition 12 (Balle et al. 2020, Theorem 21); [DRS22] Dong, Roth, Su 2022, Corollary 2.13.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nrjax._validation import check, concrete_or_none
from nrjax.composition._normal import delta_of, mu_of_odds
from nrjax.composition.requests import NOT_NEGATIVE, POSITIVE, SHARE, Range

PROBABILITY: Range = (lambda x: (x > 0) & (x < 1)), "strictly between 0 and 1"
ORDER: Range = (lambda x: (x > 1) & (x < np.inf)), "above 1 and finite"
SLACK = 4e-15
"""Relative error that is allowed for in closed forms; they lose a few units of 2^-53."""


def number(name: str, value: Any, valid: Range) -> float:
    """A single concrete number in a range, else a `ValueError`."""
    known = concrete_or_none(value)
    single = known is not None and known.ndim == 0
    right = "a single concrete number; conversions run on the host, outside jit and vmap"
    check(single, name, value, right)
    assert known is not None
    found = float(known)
    check(valid[0](found), name, value, valid[1])
    return found


def _up(value: float, argument: float) -> float:
    """Not below the exact number, which is 0 where `argument >= 0` is 0 and nowhere else."""
    # Subnormal numbers are off by up to a unit of 5e-324 in each operation.
    return value * (1 + SLACK) + 2e-323 if argument > 0 else 0.0


def _down(value: float) -> float:
    """Not above the exact number, which is not negative."""
    return max(0.0, value * (1 - SLACK) - 2e-323)


CONVERSIONS = ("standard", "renyi")
"""Ways from zCDP to (epsilon, delta): see `epsilon_of_zcdp`."""


def check_conversion(value: str) -> None:
    """Raise a `ValueError` for what is not a conversion from zCDP."""
    check(value in CONVERSIONS, "conversion", value, f"one of {CONVERSIONS}")


def _premium(order: Any, level: float) -> tuple[Any, Any]:
    """What [CKS20] adds to the Renyi divergence of an order above 1, and an error bound for it."""
    tail = (level - np.log(order)) / (order - 1)
    # log(1 - 1/A), whose argument cancels near A = 1.
    gain = np.where(order < 2, np.log((order - 1) / order), np.log1p(-1 / order))
    scale = (level + np.abs(np.log(order))) / (order - 1) + np.abs(gain)
    return tail + gain, SLACK * scale


def best_order(score: Callable[[Any], Any]) -> tuple[float, float]:
    """Of the orders above 1 the one with the largest score, and the score (arrays to arrays).

    A grid in `log(order - 1)`, then finer ones. Every order gives a valid bound, so that missing
    the best one costs tightness alone.
    """
    low, high = math.log(1e-9), math.log(1e12)
    order, found = math.nan, -math.inf
    for _ in range(12):
        logs = np.linspace(low, high, 129)
        orders = 1 + np.exp(logs)
        scores = np.asarray(score(orders), float)
        best = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        if scores[best] > found:
            order, found = float(orders[best]), float(scores[best])
        step = logs[1] - logs[0]
        low, high = logs[best] - 2 * step, logs[best] + 2 * step
    return order, found


def epsilon_of_zcdp(rho: float, delta: float, conversion: str = "standard") -> float:
    """Smallest epsilon proved for a `rho`-zCDP mechanism, rounded up.

    The conversion is "standard", `rho + 2 sqrt(rho log(1/delta))` [BS16], or "renyi", the smallest
    that [CKS20] gives over all orders, which is better.
    """
    rho, delta = number("rho", rho, NOT_NEGATIVE), number("delta", delta, PROBABILITY)
    check_conversion(conversion)
    level = -math.log(delta)
    standard = _up(rho + 2 * math.sqrt(rho) * math.sqrt(level), rho)
    if conversion == "standard" or rho == 0:
        return standard

    def score(order: Any) -> Any:
        premium, error = _premium(order, level)
        return -(order * rho * (1 + SLACK) + premium + error)

    return min(standard, max(0.0, -best_order(score)[1]))


def zcdp_for(epsilon: float, delta: float, conversion: str = "standard") -> float:
    """Largest rho whose `epsilon_of_zcdp` is at most `epsilon`, rounded down."""
    epsilon, delta = number("epsilon", epsilon, POSITIVE), number("delta", delta, PROBABILITY)
    check_conversion(conversion)
    level = -math.log(delta)
    # (sqrt(level + epsilon) - sqrt(level))^2, without its cancellation.
    standard = _down((epsilon / (math.sqrt(level + epsilon) + math.sqrt(level))) ** 2)
    if conversion == "standard":
        return standard
    score = best_order(lambda order: rdp_budgets(order, epsilon, delta) / order)[1]
    return max(standard, _down(score))


def epsilon_of_rdp(order: float, divergence: float, delta: float) -> float:
    """Epsilon of a mechanism whose Renyi divergence at `order` is at most `divergence` [CKS20].

    `R + log(1 - 1/A) + (log(1/delta) - log A)/(A - 1)`, rounded up; 0 where that is negative.
    """
    order, delta = number("order", order, ORDER), number("delta", delta, PROBABILITY)
    divergence = number("divergence", divergence, NOT_NEGATIVE)
    premium, error = _premium(order, -math.log(delta))
    return max(0.0, float(divergence + premium + error + SLACK * divergence))


def rdp_for(order: float, epsilon: float, delta: float) -> float:
    """Largest Renyi divergence whose `epsilon_of_rdp` is at most `epsilon`, rounded down.

    A `ValueError` if none is small enough at this order.
    """
    order, delta = number("order", order, ORDER), number("delta", delta, PROBABILITY)
    epsilon = number("epsilon", epsilon, POSITIVE)
    budget = float(rdp_budgets(order, epsilon, delta))
    right = (
        f"larger for epsilon = {epsilon:.6g} and delta = {delta:.6g}, or epsilon larger: the "
        "conversion alone costs more than epsilon at this order"
    )
    check(budget > 0, "order", order, right)
    return budget


def rdp_budgets(order: Any, epsilon: float, delta: float) -> Any:
    """As `rdp_for`, for an array of orders; not positive where nothing is small enough."""
    premium, error = _premium(order, -math.log(delta))
    return (epsilon - premium) - error - SLACK * epsilon


def delta_of_gdp(mu: float, epsilon: float) -> float:
    """`Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)`, rounded up [DRS22]."""
    return delta_of(number("mu", mu, NOT_NEGATIVE), number("epsilon", epsilon, NOT_NEGATIVE))


def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Smallest epsilon with `delta_of_gdp(mu, epsilon) <= delta`, rounded up."""
    mu, delta = number("mu", mu, NOT_NEGATIVE), number("delta", delta, PROBABILITY)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # The conversion through zCDP is an upper bound; mu^2/2 alone may underflow.
    high = _up(0.5 * mu * mu + mu * math.sqrt(-2 * math.log(delta)), mu)
    return _bisect(lambda epsilon: delta_of(mu, epsilon) <= delta, high, 0.0)


def gdp_for(epsilon: float, delta: float) -> float:
    """Largest mu with `delta_of_gdp(mu, epsilon) <= delta`, rounded down."""
    epsilon, delta = number("epsilon", epsilon, POSITIVE), number("delta", delta, PROBABILITY)
    # The square root of twice `zcdp_for`, which may underflow.
    level = -math.log(delta)
    good = _down(math.sqrt(2) * epsilon / (math.sqrt(level + epsilon) + math.sqrt(level)))
    bad = 2 * good if good > 0 else delta
    while delta_of(bad, epsilon) <= delta:
        good, bad = bad, 2 * bad
    return _bisect(lambda mu: delta_of(mu, epsilon) <= delta, good, bad)


def _bisect(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """The last number on the way from `good`, where it holds, to `bad`, where it does not."""
    while True:
        middle = (good + bad) / 2
        if abs(good - bad) <= 1e-13 * abs(good) or middle in (good, bad):
            return good
        if holds(middle):
            good = middle
        else:
            bad = middle


def zcdp_of_dp(epsilon: float, delta: float) -> tuple[float, float]:
    """The `(rho, delta)` of the delta-approximate rho-zCDP that (epsilon, delta) implies.

    Lemma 2.3 of Rogers 2023 with the rho of `zcdp_of_pure`: an (epsilon, delta) pair of laws is a
    mixture of anything, with weight delta, and a pair that is epsilon-private (Kairouz, Oh,
    Viswanath 2015, Theorem 3.1).
    """
    return zcdp_of_pure(epsilon), number("delta", delta, SHARE)


def zcdp_of_pure(epsilon: float) -> float:
    """Rho of an epsilon-private mechanism: `epsilon tanh(epsilon/2)`, at most `epsilon^2/2`."""
    epsilon = number("epsilon", epsilon, NOT_NEGATIVE)
    return _up(epsilon * math.tanh(epsilon / 2), epsilon)


def zcdp_of_bounded_range(epsilon: float) -> float:
    """Rho of a mechanism of loss range epsilon: `epsilon^2/8` (Cesar, Rogers 2021, Lemma 2.4)."""
    epsilon = number("epsilon", epsilon, NOT_NEGATIVE)
    return _up(0.125 * epsilon * epsilon, epsilon)


def zcdp_of_gdp(mu: float) -> float:
    """Rho of a mu-GDP mechanism: `mu^2/2`."""
    mu = number("mu", mu, NOT_NEGATIVE)
    return _up(0.5 * mu * mu, mu)


def gdp_of_pure(epsilon: float) -> float:
    """Mu of an epsilon-private mechanism: `2 Phi^-1(1/(1 + exp(-epsilon)))`."""
    return mu_of_odds(number("epsilon", epsilon, NOT_NEGATIVE))


def gdp_of_bounded_range(epsilon: float) -> float:
    """Mu of a mechanism of loss range epsilon: `2 Phi^-1(1/(1 + exp(-epsilon/2)))`."""
    return mu_of_odds(number("epsilon", epsilon, NOT_NEGATIVE) / 2)


def rdp_of_pure(order: float, epsilon: float) -> float:
    """Renyi divergence at `order` of an epsilon-private mechanism: randomised response's.

    `log(cosh((A - 1/2) e)/cosh(e/2))/(A - 1)`.
    """
    order, epsilon = number("order", order, ORDER), number("epsilon", epsilon, NOT_NEGATIVE)
    # cosh(a)/cosh(b) - 1 = 2 sinh((a + b)/2) sinh((a - b)/2)/cosh(b), here a + b = A e,
    # a - b = (A - 1) e; for large ones log cosh(x) = x + log1p(exp(-2 x)) - log 2.
    if order * epsilon < 1:
        # Divided by A - 1 first: the product may underflow.
        excess = 2 * math.sinh(order * epsilon / 2) / math.cosh(epsilon / 2)
        excess *= math.sinh((order - 1) * epsilon / 2) / (order - 1)
        of_one = excess * (order - 1)
        return _up(excess * (math.log1p(of_one) / of_one if of_one else 1), epsilon)
    # log1p(x) - log1p(y) = log1p((x - y)/(1 + y)), and x - y is written without cancellation.
    fall = math.exp(-epsilon) * math.expm1(-2 * (order - 1) * epsilon)
    return _up(epsilon + math.log1p(fall / (1 + math.exp(-epsilon))) / (order - 1), epsilon)


def rdp_of_zcdp(order: float, rho: float) -> float:
    """Renyi divergence at `order` of a rho-zCDP mechanism: `A rho`."""
    order, rho = number("order", order, ORDER), number("rho", rho, NOT_NEGATIVE)
    return _up(order * rho, rho)


def rdp_of_gdp(order: float, mu: float) -> float:
    """Renyi divergence at `order` of a mu-GDP mechanism: `A mu^2/2`."""
    order, mu = number("order", order, ORDER), number("mu", mu, NOT_NEGATIVE)
    return _up(0.5 * order * mu * mu, mu)
