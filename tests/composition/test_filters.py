"""What each kind of request costs under each filter, against 40 digits; and the tuned order."""

import functools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax import composition as c
from nrjax.composition import _prices
from nrjax.composition.conversions import rdp_for
from tests.composition import cases

pytestmark = pytest.mark.numerical

N, ORDER = 120, 3.75
GAUSSIAN, UNIFIED = c.GaussianFilter(10.0, 1e-6), c.UnifiedFilter(10.0, 1e-6)
DIVERGENCE = cases.divergence(ORDER)
for kind in (c.LaplaceReduction, c.DiscreteLaplaceReduction):
    del DIVERGENCE[kind]  # see test_certificates.py, test_capped.py
FILTERS = {
    "unified": (UNIFIED, cases.UNIFIED),
    "gaussian": (GAUSSIAN, cases.SQUARED_MU),
    "renyi": (c.RenyiFilter(ORDER, 10.0, 1e-6), DIVERGENCE),
    "ex-post": (c.ExPostFilter(10.0, 1e-6), cases.EX_POST),
}


def request(kind, x, sensitivity, time):
    return kind(sensitivity, time) if hasattr(kind, "noise") else kind(x)


@functools.cache
def costs():
    """All costs, by filter and kind, and the numbers they are for, over many decades."""
    rng, dtype = np.random.default_rng(8), jnp.result_type(float)
    x, sensitivity = 10 ** rng.uniform(-9, 1, N), 10 ** rng.uniform(-5, 5, N)
    given = [a.astype(dtype) for a in (x, sensitivity, sensitivity / x)]

    @jax.jit
    @jax.vmap
    def all_costs(*numbers):
        return [
            [filter.cost(request(kind, *numbers)) for kind in exact]
            for filter, exact in FILTERS.values()
        ]

    found = jax.tree.map(lambda cost: np.asarray(cost, float), all_costs(*given))
    return given, dict(zip(FILTERS, found, strict=True))


def assert_costs(name, smaller=1.0):
    given, stated = costs()
    loose = 150 if name != "renyi" else 1000  # at order - 1, 2 machine epsilons of the order
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    for (kind, exact), each in zip(FILTERS[name][1].items(), stated[name], strict=True):
        for *numbers, got in zip(*given, each, strict=True):
            x, sensitivity, time = (mp.mpf(float(number)) for number in numbers)
            with mp.workdps(60):
                power = 2 if kind is c.BrownianReduction else 1
                wanted = exact(sensitivity**power / time if hasattr(kind, "noise") else x)
            assert wanted <= got * smaller <= wanted * (1 + loose * eps), (kind, float(x))


@pytest.mark.parametrize("name", FILTERS)
def test_costs(name):
    assert_costs(name)


def test_planted_costs_to_the_nearest_are_found():
    """Smaller by what they are rounded up by: caught for each filter."""
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    for name in FILTERS:
        with pytest.raises(AssertionError):
            assert_costs(name, 1 - 70 * eps)


def test_epsilon_too_large_is_refused():
    """Not NaN; and squared mu rises without a seam."""
    for epsilon in (200.0, 1e3, 1e30):
        assert GAUSSIAN.cost(c.Pure(epsilon)) > 100
        assert not GAUSSIAN.admits(GAUSSIAN.init(), c.Pure(epsilon))
    for filter in (UNIFIED, GAUSSIAN):
        assert filter.cost(c.LaplaceMechanism(1e4, 1.0)) >= 1e4 - 1
    values = np.asarray(_prices.squared_mu_of_odds(jnp.linspace(0.0, 80.0, 2001)))
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("delta", [0.0, 4e-7])
def test_approximation_is_taken_from_delta(delta):
    """Approximate mechanisms are let in for a part of delta, which the conversion then lacks."""
    filter = c.UnifiedFilter(1.0, 1e-6, delta)
    plain = c.UnifiedFilter(1.0, 1e-6 - delta)
    assert filter.budget == pytest.approx(plain.budget, rel=1e-6)
    state, accepted = filter.init(), []
    for _ in range(3):
        state, ok = filter.take(state, c.ZCDP(1e-4, 1.5e-7))
        accepted.append(bool(ok))
    assert accepted == ([True, True, False] if delta else [False] * 3)
    assert filter.admits(state, c.ZCDP(1e-4, filter.remaining_delta(state)))
    assert filter.admits(state, c.BrownianReduction(1.0, 1e4))


def test_tuned_order():
    """A hundred mechanisms stopped at 0.1 within 5.85 at delta = 1e-6, with A = 5."""
    request = c.LaplaceReduction(1.0, 10.0)
    filter = c.RenyiFilter.tuned(5.86, 1e-6, request)
    assert filter.order == pytest.approx(5.01, abs=0.02)
    rounds = filter.budget / float(filter.cost(request))
    assert 100 < rounds < 101
    for factor in (0.97, 1.03):
        other = c.RenyiFilter(1 + (filter.order - 1) * factor, 5.86, 1e-6)
        assert other.budget / float(other.cost(request)) < rounds
    # For Brownian rounds it is the best conversion of zCDP.
    brownian = c.RenyiFilter.tuned(10.0, 1e-6, c.BrownianReduction(1.0, 10.0))
    assert 2 * brownian.budget / brownian.order == pytest.approx(3.0786, abs=1e-4)
    mixed = c.RenyiFilter.tuned(1.0, 1e-6, (request, c.GDP(0.01)))
    most = rdp_for(mixed.order, 1.0, 1e-6)
    assert most * (1 - 1e-6) <= mixed.budget <= most
    # In float32 the cost at order 2 is infinite here, and the best order very near 1.
    assert 1 < float(c.RenyiFilter.tuned(200.0, 0.5, c.LaplaceReduction(1.0, 0.01)).order) < 1.1
