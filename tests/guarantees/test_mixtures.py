"""Mixtures of Rényi orders: their cost, design, rounding, and what stopping rules gain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from nrjax.guarantees import RenyiBoundary, RenyiMixture, log_uniform, mixtures
from tests.guarantees import oracle
from tests.marks import long_except

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

DELTA = 1e-6


@pytest.mark.parametrize(
    ("factor", "mean", "single", "weights"),
    [(2, 1.1205, 1.1266, (0.017, 0.955, 0.027)), (10, 1.1693, 1.3225, (0.295, 0.296, 0.409))],
)
def test_published_designs(factor, mean, single, weights):
    """Mean epsilon relative to one exact look, for stops within a factor around epsilon 0.3."""
    middle = 1 / brentq(lambda x: oracle.one_look(x, DELTA) - 0.3, 0.01, 1) ** 2
    wide = factor if factor == 10 else 2
    times = middle * np.geomspace(10, 0.1, 241)
    prior = log_uniform(times, middle / wide, middle * wide)
    found = RenyiMixture.design(4 * times, prior, 2.0, DELTA)
    one = RenyiBoundary.tight_at_time(middle, 1.0, DELTA)
    exact = np.array([oracle.one_look(x, DELTA) for x in 1 / np.sqrt(times)])

    def ratio(levels):
        return np.exp(prior @ np.log(np.asarray(levels, float) / exact))

    assert ratio(found.epsilon(4 * times)) == pytest.approx(mean, abs=5e-4)
    assert ratio(one.epsilon(times)) == pytest.approx(single, abs=5e-4)
    np.testing.assert_allclose(found.weights, weights, atol=0.012)
    for other in ([1, 1, 1], [0.1, 0.8, 0.1], [0.4, 0.1, 0.5]):
        worse = RenyiMixture(2.0, DELTA, found.orders, other)
        assert ratio(worse.epsilon(4 * times)) > ratio(found.epsilon(4 * times)) - 1e-6


def test_one_order_is_the_renyi_boundary():
    one = RenyiBoundary(1.5, DELTA, 40.0)
    found = RenyiMixture(1.5, DELTA, [40.0], [7.0])
    times, levels = np.geomspace(1e-3, 1e6, 50), np.array([0.35, 5.0])
    np.testing.assert_allclose(found.epsilon(times), one.epsilon(times), rtol=1e-6)
    np.testing.assert_allclose(found.time(levels), one.time(levels), rtol=1e-5)


@pytest.mark.parametrize("count", long_except((1, 3, 10), 3))
def test_epsilon_is_never_understated(count, dtype, monkeypatch):
    rng, size = np.random.default_rng(count), 5000
    sensitivity, delta = 10 ** rng.uniform(-5, 4, size), 10 ** rng.uniform(-15, -0.31, size)
    orders = 1 + 10 ** (rng.uniform(-2, 4, (size, 1)) + rng.uniform(-1, 1, (size, count)))
    weights = 10 ** rng.uniform(-6, 3, (size, count))
    times = 10 ** rng.uniform(-6, 8, size) * sensitivity**2
    parameters = [np.asarray(jnp.asarray(p)) for p in (sensitivity, delta, orders, weights)]
    times = np.asarray(jnp.asarray(times))
    assert times.dtype == dtype
    wide = [p.astype(float) for p in parameters]
    exact = oracle.mixture(wide[0] ** 2 / times.astype(float), *wide[1:])
    usual = exact > 1e-3
    # The oracle itself has errors of about 1e-11.
    slack = 1e-9 if dtype == jnp.float64 else 0

    def excess():
        stated = jax.vmap(lambda g, t: g.epsilon(t))(RenyiMixture(*parameters), times)
        return np.asarray(stated, float)[usual] / exact[usual] - 1

    assert np.all(excess() > -slack)
    assert np.quantile(excess(), 0.9) < 2e-5
    if dtype == jnp.float32:  # negative control
        monkeypatch.setattr(mixtures, "TERM_MARGIN", 0)
        monkeypatch.setattr(RenyiMixture, "margin", 0)
        monkeypatch.setattr(mixtures, "_bound", mixtures._bound.__wrapped__)
        assert np.mean(excess() < 0) > 0.01


def test_no_stopping_rule_gains_more_than_delta():
    delta, orders = 1e-3, np.array([5.0, 10.0, 20.0])
    found = RenyiMixture(1.0, delta, orders, [0.3, 0.3, 0.4])
    steps = np.full(80, 0.04)
    times = 1 / np.cumsum(steps)
    stated = np.asarray(found.epsilon(times), float)
    assert 0.5 * delta < oracle.best_gain(stated, steps, oracle.hockey_stick) <= delta
    # Negative controls: weights with sum 3, and the cheapest order chosen at the stop.
    heavy = RenyiMixture(1.0, 3 * delta, orders, [0.3, 0.3, 0.4]).epsilon(times)
    each = [np.asarray(RenyiBoundary(1.0, delta, a).epsilon(times), float) for a in orders]
    for wrong in (np.asarray(heavy, float), np.min(each, axis=0)):
        assert oracle.best_gain(wrong, steps, oracle.hockey_stick) > 1.3 * delta


def test_refuses():
    found = RenyiMixture(1.0, DELTA, [20.0, 40.0], [1.0, 1.0])
    assert found.notion == "hockey-stick"
    with pytest.raises(ValueError, match=r"epsilon must be finite and above 0\.2.*the floor"):
        found.time(0.1)
    for orders, weights, message in (
        ([1.0, 2.0], [1.0, 1.0], "orders must be above 1"),
        (20.0, 1.0, "orders must be a vector"),
        ([20.0], [1.0, 1.0], "weights must be of shape"),
        ([20.0], [0.0], "weights must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            RenyiMixture(1.0, DELTA, orders, weights)
    with pytest.raises(ValueError, match="weights must be of shape"):
        RenyiMixture.design([2.0, 1.0], [1.0], 1.0, DELTA)
    with pytest.raises(ValueError, match="sensitivity must be positive"):
        RenyiMixture.design([2.0, 1.0], [1.0, 1.0], None, DELTA)
    with pytest.raises(ValueError, match="times must be partly between"):
        log_uniform([2.0, 1.0], 3.0, 4.0)
