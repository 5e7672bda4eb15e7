"""Which zCDP, Renyi and Gaussian privacy a mechanism has, by what is known of it.

Arguments, errors and rounding are those of `conversions`, which exports these.
"""

import math

from nrjax._numerics import check
from nrjax.composition._host import not_negative, number, order_above_one, up
from nrjax.composition._normal import mu_of_odds


def zcdp_of_dp(epsilon: float, delta: float) -> tuple[float, float]:
    """The `(rho, delta)` of the delta-approximate rho-zCDP that (epsilon, delta) implies.

    Lemma 2.3 of Rogers 2023 with the rho of `zcdp_of_pure`: an (epsilon, delta) pair of laws is a
    mixture of anything, with weight delta, and a pair that is epsilon-private (Kairouz, Oh,
    Viswanath 2015, Theorem 3.1).
    """
    share = number("delta", delta)
    check(0 <= share < 1, "delta", delta, "at least 0 and below 1")
    return zcdp_of_pure(epsilon), share


def zcdp_of_pure(epsilon: float) -> float:
    """Rho of an epsilon-private mechanism: `epsilon tanh(epsilon/2)`, at most `epsilon^2/2`.

    Every such mechanism is a function of randomised response, for which, with `s = A - 1/2`,
    `(A - 1) D_A = log cosh(s e) - log cosh(e/2)`. As a function of `s^2` that is concave (its slope
    `e tanh(s e)/(2 s)` falls), so it is at most its slope at `s = 1/2` times `s^2 - 1/4`, which is
    `A (A - 1) e tanh(e/2)`. Equality for A to 1.
    """
    epsilon = not_negative("epsilon", epsilon)
    return up(epsilon * math.tanh(epsilon / 2), epsilon)


def zcdp_of_bounded_range(epsilon: float) -> float:
    """Rho of a mechanism of loss range epsilon: `epsilon^2/8` (Cesar, Rogers 2021, Lemma 2.4)."""
    epsilon = not_negative("epsilon", epsilon)
    return up(0.125 * epsilon * epsilon, epsilon)


def zcdp_of_gdp(mu: float) -> float:
    """Rho of a mu-GDP mechanism: `mu^2/2`."""
    mu = not_negative("mu", mu)
    return up(0.5 * mu * mu, mu)


def gdp_of_pure(epsilon: float) -> float:
    """Mu of an epsilon-private mechanism: `2 Phi^-1(1/(1 + exp(-epsilon)))`.

    The normal laws whose trade-off curve passes through the one corner of that of randomised
    response and is below it elsewhere, being convex.
    """
    return mu_of_odds(not_negative("epsilon", epsilon))


def gdp_of_bounded_range(epsilon: float) -> float:
    """Mu of a mechanism of loss range epsilon: `2 Phi^-1(1/(1 + exp(-epsilon/2)))`.

    The worst such mechanisms have two losses, epsilon apart; of their corners the symmetric one is
    the farthest out.
    """
    return mu_of_odds(not_negative("epsilon", epsilon) / 2)


def rdp_of_pure(order: float, epsilon: float) -> float:
    """Renyi divergence at `order` of an epsilon-private mechanism: randomised response's.

    `log(cosh((A - 1/2) e)/cosh(e/2))/(A - 1)`.
    """
    order, epsilon = order_above_one(order), not_negative("epsilon", epsilon)
    # cosh(a)/cosh(b) - 1 = 2 sinh((a + b)/2) sinh((a - b)/2)/cosh(b), here a + b = A e,
    # a - b = (A - 1) e; for large ones log cosh(x) = x + log1p(exp(-2 x)) - log 2.
    if order * epsilon < 1:
        excess = 2 * math.sinh(order * epsilon / 2) * math.sinh((order - 1) * epsilon / 2)
        return up(math.log1p(excess / math.cosh(epsilon / 2)) / (order - 1), epsilon)
    # log1p(x) - log1p(y) = log1p((x - y)/(1 + y)), and x - y is written without cancellation.
    fall = math.exp(-epsilon) * math.expm1(-2 * (order - 1) * epsilon)
    return up(epsilon + math.log1p(fall / (1 + math.exp(-epsilon))) / (order - 1), epsilon)


def rdp_of_zcdp(order: float, rho: float) -> float:
    """Renyi divergence at `order` of a rho-zCDP mechanism: `A rho`."""
    order, rho = order_above_one(order), not_negative("rho", rho)
    return up(order * rho, rho)


def rdp_of_gdp(order: float, mu: float) -> float:
    """Renyi divergence at `order` of a mu-GDP mechanism: `A mu^2/2`."""
    order, mu = order_above_one(order), not_negative("mu", mu)
    return up(0.5 * order * mu * mu, mu)
