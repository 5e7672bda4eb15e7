"""Errors in print in Rogers 2023, shown by closed forms and exact sums.

The printed Theorem 5 is also attacked in the engine, in `test_validity.py`.
"""

import math

import numpy as np
import pytest

from nrjax.composition import BrownianOdometer, BrownianReduction, UnifiedFilter

pytestmark = pytest.mark.numerical

EPSILON, DELTA = 10.0, 1e-6


def tail(z):
    """Return `P(N(0, 1) > z)`."""
    return math.erfc(z / math.sqrt(2)) / 2


@pytest.mark.parametrize("total", [2.706, 10.0, 50.0])
def test_theorem_5_drops_half_of_v(total):
    """One round without stopping shows it: its loss is N(V/2, V)."""
    odometer = BrownianOdometer.tight_at(2.706, DELTA)
    gamma, spread = float(odometer.gamma), total + float(odometer.gamma)
    state = odometer.spend(odometer.init(), BrownianReduction(1.0, 1 / total))
    bound = float(odometer.bound(state))
    printed = math.sqrt(spread * math.log(spread / (DELTA**2 * gamma)))  # psi(V), without V/2
    assert printed + total / 2 <= bound <= (printed + total / 2) * (1 + 1e-4)
    assert tail((bound - total / 2) / math.sqrt(total)) < DELTA
    exceeded = tail((printed - total / 2) / math.sqrt(total))
    assert (exceeded > DELTA) == (total > 5)
    if total == 50:
        assert exceeded > 1e4 * DELTA


def test_theorem_6_has_a_factor_too_much():
    """`2 sqrt(2 rho log(1/delta))` is true, but larger than what Lemma 2.3 gives."""
    budget = float(UnifiedFilter(EPSILON, DELTA).budget)
    level = math.log(1 / DELTA)
    assert budget + 2 * math.sqrt(budget * level) == pytest.approx(EPSILON, rel=1e-6)
    assert 2 * budget == pytest.approx(2.7060, abs=5e-5)
    printed = (math.sqrt(2 * level + EPSILON) - math.sqrt(2 * level)) ** 2
    assert printed + 2 * math.sqrt(2 * printed * level) == pytest.approx(EPSILON)
    assert 2 * printed < 0.6 * 2 * budget


def test_equation_10_and_the_display_above():
    """`E exp(m (L - (m + 1)/(2t))) = 1` for a Gaussian mechanism of variance t, rho = 1/(2t).

    With 1/t for 1/(2t) it is below 1, so that the divergence would be bounded by twice as much;
    with rho/2 for rho it is above 1, and no supermartingale.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    for time, m in ((2.0, 1.0), (0.7, 0.5), (5.0, 3.0)):
        loss, rho = 0.5 / time + nodes / math.sqrt(time), 0.5 / time
        mean = {c: weights @ np.exp(m * (loss - (m + 1) * c * rho)) for c in (0.5, 1.0, 2.0)}
        assert mean[1.0] == pytest.approx(1, rel=1e-9)
        assert mean[2.0] < 0.99 < 1.01 < mean[0.5]
