"""Conversions against 40 digits and dp-accounting: to 1e-9, and never to the unsafe side."""

import itertools
import math
import warnings

import mpmath as mp
import numpy as np
import pytest

from nrjax.composition import conversions as c
from tests.composition import exact

RNG = np.random.default_rng(5)
TIGHT = 1e-9


def above(stated, true, tight=TIGHT):
    """Return whether a number is at least the true one, and hardly more."""
    return true <= stated <= true * (1 + tight)


def below(stated, true, tight=TIGHT):
    return true * (1 - tight) <= stated <= true


def pairs(n, low=-3, high=2, least=-12):
    return zip(10 ** RNG.uniform(low, high, n), 10 ** RNG.uniform(least, -0.05, n), strict=True)


@pytest.mark.parametrize(
    ("conversion", "first", "second"),
    [("standard", 2.7060, 0.03494), ("renyi", 3.0786, 0.04871), ("gdp", 3.4156, 0.05603)],
)
def test_published_budgets(conversion, first, second):
    """The table of `docs/proofs/composition.md`: `sum D2^2/t` at (10, 1e-6) and (1, 1e-6)."""
    for epsilon, wanted in ((10, first), (1, second)):
        gdp = conversion == "gdp"
        got = c.gdp_for(epsilon, 1e-6) ** 2 if gdp else 2 * c.zcdp_for(epsilon, 1e-6, conversion)
        assert got == pytest.approx(wanted, abs=6e-5 if epsilon == 10 else 6e-6)


@pytest.mark.parametrize("conversion", ["standard", "renyi"])
def test_zcdp(conversion):
    for rho, delta in pairs(20, -6, 2):
        true = exact.epsilon_of_zcdp(rho, delta, conversion)
        stated = c.epsilon_of_zcdp(rho, delta, conversion)
        assert above(stated, true) or stated - true < 1e-12
        # And back: no more than rho, by little.
        if stated > 1e-6:
            rho = c.zcdp_for(stated, delta, conversion)
            assert exact.epsilon_of_zcdp(rho, delta, conversion) <= stated
            assert exact.epsilon_of_zcdp(rho * (1 + 1e-9), delta, conversion) > stated
    assert c.epsilon_of_zcdp(0, 0.1, conversion) == 0
    # Where numbers underflow.
    rho, delta = 1e-320, 1 - 2**-53
    assert c.epsilon_of_zcdp(rho, delta) >= exact.epsilon_of_zcdp(rho, delta, "standard")
    assert exact.epsilon_of_zcdp(c.zcdp_for(1e-160, 0.5), 0.5, "standard") <= 1e-160
    assert c.epsilon_of_zcdp(1, 1e-6, "renyi") < c.epsilon_of_zcdp(1, 1e-6)


def test_rdp():
    for epsilon, delta in pairs(100):
        order = 1 + 10 ** RNG.uniform(-3, 4)
        true = exact.premium(order, delta)
        divergence = 10 ** RNG.uniform(-3, 2)
        stated = c.epsilon_of_rdp(order, divergence, delta)
        assert above(stated, divergence + true) or (stated == 0 and divergence + true <= 0)
        left = mp.mpf(epsilon) - true
        if left > 1e-6 * epsilon:
            assert below(c.rdp_for(order, epsilon, delta), left, 1e-8)
        elif left < 0:
            with pytest.raises(ValueError, match=r"order must be larger for epsilon = "):
                c.rdp_for(order, epsilon, delta)
    # `log(1 - 1/A)` must not be that of a rounded `1/A`.
    for excess, delta in itertools.product((1e-5, 4e-8, 2e-9, 1e-12), (1 - 1e-6, 1 - 1e-12)):
        true = 30 + exact.premium(1 + excess, delta)
        stated = c.epsilon_of_rdp(1 + excess, 30, delta)
        assert true <= stated <= max(true, 0) * (1 + 1e-9) + 1e-10
        if true < 59:
            assert c.rdp_for(1 + excess, 30, delta) <= 60 - true


def test_delta_of_gdp():
    for mu, epsilon in 10 ** RNG.uniform(-3, (1.3, 2), (40, 2)):
        if epsilon / mu < 35:
            assert above(c.delta_of_gdp(mu, epsilon), exact.delta_of_gdp(mu, epsilon), 1e-11)
    assert c.delta_of_gdp(0, 1) == 0
    assert above(c.delta_of_gdp(0.5, 0), 2 * exact.phi(mp.mpf(0.25)) - 1)
    # Far out, where even the tail underflows, it is still not 0; and it never exceeds 1.
    assert 0 < c.delta_of_gdp(0.01, 1) < 1e-300
    assert above(c.delta_of_gdp(37, 3), exact.delta_of_gdp(37, 3)) or c.delta_of_gdp(37, 3) == 1
    assert c.delta_of_gdp(1e4, 1) == 1


def test_gdp_for():
    for epsilon, delta in pairs(12, -2, 1.5):
        mu = c.gdp_for(epsilon, delta)
        assert (
            exact.delta_of_gdp(mu, epsilon) <= delta < exact.delta_of_gdp(mu * (1 + 1e-9), epsilon)
        )


def test_pure_is_concentrated_at_every_order():
    """`epsilon tanh(epsilon/2)` bounds D_A/A of randomised response, attained at A to 1."""
    for epsilon in (1e-3, 0.1, 1, 3, 10, 40):
        rho = epsilon * mp.tanh(mp.mpf(epsilon) / 2)
        ratios = [exact.rdp_of_pure(a, epsilon) / a for a in (1.000001, 1.01, 1.5, 2, 5, 30, 1000)]
        assert max(ratios) <= rho
        assert ratios[0] > rho * (1 - 1e-4)


def corner(epsilon, top):
    """Return the errors at the corner for the losses `top` and `top - epsilon`.

    P gives the first a probability p with `p exp(-top) + (1 - p) exp(epsilon - top) = 1`, so that Q
    is a distribution too. The test of Q against P rejects Q there.
    """
    p = mp.expm1(epsilon - top) / (mp.exp(epsilon - top) - mp.exp(-top))
    return p * mp.exp(-top), 1 - p


def over_the_curve(mu, errors):
    """Return by how much the second error exceeds what mu-GDP allows at the first."""
    first, second = errors
    return second - exact.phi(mp.sqrt(2) * mp.erfinv(1 - 2 * first) - mu)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 4, 15])
def test_corners_of_bounded_range_keep_to_the_normal_curve(epsilon):
    """Every mechanism of two losses that far apart is mu-GDP, the symmetric one for no less."""
    mu = exact.mu_of_odds(mp.mpf(epsilon) / 2) * (1 + mp.mpf(10) ** -30)
    tops = [mp.mpf(epsilon) * k / 20 for k in range(1, 20)]
    assert min(over_the_curve(mu, corner(epsilon, top)) for top in tops) >= 0
    assert over_the_curve(mu * (1 - 1e-6), corner(epsilon, mp.mpf(epsilon) / 2)) < 0


def test_gaussian_conversions_at_the_ends():
    # Arguments near the ends of float64.
    assert c.gdp_for(1e-200, 1e-6) == pytest.approx(math.sqrt(2 * math.pi) * 1e-6, rel=1e-6)
    for epsilon in (5e-324, 1e20, 1e300):
        mu = c.gdp_for(epsilon, 1e-6)
        assert mu > 0
        assert mu * mu / 2 <= epsilon + 1e-11
    for mu in (1e5, 1e10, 1e17, 1e300):
        assert c.delta_of_gdp(mu, 1.0) == 1
    # Where z0 is the difference of large numbers.
    for mu, start in ((3e4, 1.5), (4e4, -2.5), (2e4, 0.0)):
        epsilon = (start + mu / 2) * mu
        with mp.workdps(80):
            m, e = mp.mpf(mu), mp.mpf(epsilon)
            true = exact.phi(m / 2 - e / m) - mp.exp(e) * exact.phi(-m / 2 - e / m)
        assert true <= c.delta_of_gdp(mu, epsilon) <= true * (1 + 1e-8)


@pytest.mark.long
def test_against_dp_accounting():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dp_accounting
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

        orders = 1 + np.exp(np.linspace(np.log(0.01), np.log(1e4), 2000))
        for epsilon, delta in ((10, 1e-6), (1, 1e-6), (0.1, 1e-3)):
            mu = c.gdp_for(epsilon, delta)
            theirs = 1 / dp_accounting.get_sigma_gaussian(epsilon, delta)
            assert mu == pytest.approx(theirs, rel=1e-7)
            theirs = GaussianPrivacyLoss(1 / mu).get_delta_for_epsilon(epsilon)
            assert c.delta_of_gdp(mu, epsilon) == pytest.approx(theirs, rel=1e-9)
            theirs = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
            assert epsilon == pytest.approx(theirs, rel=1e-7)
            rho = c.zcdp_for(epsilon, delta, "renyi")
            theirs, best = dp_accounting.rdp.compute_epsilon(orders, rho * orders, delta)
            assert epsilon == pytest.approx(theirs, rel=1e-4)
            theirs, _ = dp_accounting.rdp.compute_epsilon([best], [rho * best], delta)
            assert c.epsilon_of_rdp(best, rho * best, delta) == pytest.approx(theirs, rel=1e-12)
