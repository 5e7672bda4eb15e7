"""Costs of private selection: never below the exact loss, attained, and as in other libraries."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.composition.conversions import epsilon_of_rdp
from nrjax.private_selection import (
    Candidate,
    RepeatedSelection,
    negative_binomial_cost,
    repeated_divergence,
)
from tests.private_selection import oracle

MODES = ("first", "best")


def base(key, epsilon):
    return Candidate(epsilon, 0)


EPS = float(jnp.finfo(jnp.result_type(float)).eps)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, 0, 0))
def costs(mode, caps, means, others, epsilon):
    """Return the costs of a success at the last stage and of nothing."""
    chosen = nrjax.PoissonSelection(base, caps, means, others=others, publish=mode)
    return chosen.cost(caps.size, epsilon), chosen.cost(0)


def stated(mode, stages, epsilons):
    """Return the costs of many mechanisms, given the epsilon of the published outcome."""
    table = np.array([[(s.cap, s.mean, s.others) for s in each] for each in stages])
    return [np.asarray(cost) for cost in costs(mode, *np.moveaxis(table, 2, 0), epsilons)]


def own_epsilon_for_cap(mode, stages, epsilons):
    pairs = zip(stages, epsilons, strict=True)
    lower = [[s._replace(cap=max(float(e), 1e-6)) for s in each] for each, e in pairs]
    return stated(mode, lower, epsilons)


FAULTS = {
    "the base once": lambda mode, stages, e: [e, 0 * e],
    "a stage too few": lambda mode, stages, e: stated(mode, [each[:-1] for each in stages], e),
    "the epsilon of the run for the cap": own_epsilon_for_cap,
    "the best as the first": lambda mode, stages, e: stated("first", stages, e),
    "the failures' bound for the best": lambda mode, stages, e: (
        2 * [e + stated(mode, stages, e)[1]]
    ),
}


@pytest.fixture(scope="module")
def mechanisms():
    """Return, by mode, random mechanisms of three stages, and their epsilons and exact losses."""
    rng, made = np.random.default_rng(0), {}
    for mode in MODES:
        rows = []
        for _ in range(400):
            each = [oracle.random_stage(rng, int(rng.integers(2, 5))) for _ in range(3)]
            given_up, success = oracle.losses(each, mode == "best")
            own = each[-1].costs[each[-1].failures :]
            rows += [(each, *pair, given_up) for pair in zip(own, success, strict=True)]
        stages, *numbers = zip(*rows, strict=True)
        made[mode] = stages, *np.abs(numbers)
    return made


def largest_ratios(mode, mechanisms, charge):
    """Return the largest exact loss as a multiple of the cost, of a success and of nothing."""
    stages, epsilons, *exact = mechanisms[mode]
    charged = charge(mode, stages, epsilons)
    return [np.max(a / np.maximum(b, 1e-12)) for a, b in zip(exact, charged, strict=True)]


@pytest.mark.numerical
@pytest.mark.parametrize("mode", MODES)
def test_no_loss_exceeds_the_cost(mode, mechanisms):
    success, given_up = largest_ratios(mode, mechanisms, stated)
    assert 0.9 < success <= 1
    assert 0.9 < given_up <= 1


@pytest.mark.parametrize(
    ("mode", "fault"),
    [*(("best", fault) for fault in FAULTS), *(("first", fault) for fault in list(FAULTS)[:3])],
)
def test_wrong_costs_are_found(mode, fault, mechanisms):
    assert largest_ratios(mode, mechanisms, FAULTS[fault])[0] > 1.02


@pytest.mark.numerical
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("mean", "cap", "others"), [(1, 1, 1), (4, 0.1, 0.1), (20, 0.5, 2), (0.01, 1, 1), (2, 0.5, 30)]
)
def test_costs_are_attained(mode, mean, cap, others):
    """Two stages of the worst kind have the losses that are stated."""
    stages = [oracle.worst(mean, cap, others, mode == "best")] * 2
    given_up, success = oracle.losses(stages, mode == "best")
    cost, failure = (float(each[0]) for each in stated(mode, [stages], np.array([cap])))
    slack = 1e-6 + 400 * EPS + 10 * EPS * (1 + 1 / mean)  # the last for the clock
    assert max(success) <= cost <= max(success) * (1 + slack)
    assert given_up <= failure <= given_up * (1 + slack)


@pytest.mark.numerical
def test_costs_are_rounded_up_over_the_whole_range():
    """One stage against the formula of statement 37 of docs/proofs, in 60 digits and more."""
    mpmath = pytest.importorskip("mpmath")
    axes = (1e-6, 1e-3, 0.1, 1, 10, 800), (1e-6, 0.1, 3, 100, 1e4), (1e-5, 1, 10, math.inf)
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 1, 3).astype(jnp.result_type(float))
    caps, means, others = np.moveaxis(grid, 2, 0)
    charged = costs("first", caps, means, others, 0 * caps[:, 0])
    for row, success, given_up in zip(grid[:, 0], *charged, strict=True):
        a, mean, b = map(mpmath.mpf, row.tolist())
        with mpmath.workdps(60 + int(2 * a)):
            p = mpmath.exp(-a) * mpmath.expm1(-b) / mpmath.expm1(-(a + b))
            more = a + mpmath.log(mpmath.expm1(-mean * p) / mpmath.expm1(-mean * p * mpmath.exp(a)))
            spent = mean * p * mpmath.expm1(a)
            clock = 10 * EPS * (1 + 1 / mean)  # of the mean, for the resolution of the clock
            assert spent <= given_up.item() <= spent * (1 + 100 * EPS + clock)
            slack = 100 * EPS * (1 + abs(mpmath.log(mean))) + clock
            assert more <= success.item() <= min(more + slack, min(a, spent / 2) * (1 + slack))


@pytest.mark.parametrize("mean", [1e-6, 1.1e-6, 1e-4, 1e-2])
def test_costs_cover_the_runs_that_a_clock_of_float32_makes(mean):
    """All 2^23 gaps of float32 are counted. As a planted fault, the exact mean is charged."""
    gaps = -jnp.log1p(-jnp.arange(2**23, dtype=jnp.float32) * jnp.float32(2**-23))
    start = float(jnp.mean(gaps < jnp.float32(mean), dtype=jnp.float32))  # P(one run or more)
    runs = -math.log1p(-start)
    small = jnp.asarray([mean], jnp.float32)
    chosen = nrjax.PoissonSelection(base, jnp.asarray([30.0], jnp.float32), small)
    assert float(chosen.cost(0)) >= runs > mean * (1 + 3e-6)


def test_runs_that_may_exceed_their_epsilon():
    """T is that of (epsilon, delta)-DP, delta + (1 - delta) tanh(epsilon/2)."""
    chosen = nrjax.PoissonSelection(base, [1.0, 2.0], 3.0, delta=1e-3)
    first, second = (1e-3 + 0.999 * math.tanh(epsilon / 2) for epsilon in (1.0, 2.0))
    expected = [3 * (first + second), 1 + 1.5 * first, 2 + 3 * first + 1.5 * second]
    np.testing.assert_allclose(chosen.cost(np.arange(3)), expected, rtol=1e-5)
    assert 6e-3 <= float(chosen.total_delta) <= 6e-3 * (1 + 1e-5)


@pytest.mark.parametrize("make", [list, np.array, lambda numbers: np.int64(numbers[0])])
def test_integers_beyond_int32_are_not_wrapped(make):
    """JAX would take 2^32 + 1 as 1, which costs less."""
    stages, large = np.arange(3), make([2**32 + 1] * 2)
    trial = nrjax.PoissonSelection(base, [1.0, 2.0], means=2.0, others=large)
    inside = jax.jit(lambda trial: trial.cost(stages))(trial)
    np.testing.assert_allclose(inside, trial.cost(stages), rtol=1e-6)


def test_traced_fields_out_of_range_have_no_cost():
    """A negative mean would pay for later stages."""
    cost = jax.jit(lambda *fields: nrjax.PoissonSelection(base, *fields).cost(2))
    caps, means = np.array([1.0, 0.1]), np.array([2.0, 7.0])
    assert np.isfinite(cost(caps, means))
    assert np.isnan(cost(caps, means * [-1, 1]))
    assert np.isnan(cost(-caps, means))


@pytest.mark.parametrize("sigma", [0.8, 4.0])
@pytest.mark.parametrize(("mean", "shape"), [(10, 0), (10, 1), (300, 1), (5, 0.5), (30, math.inf)])
def test_renyi_costs_are_those_of_dp_accounting(mean, shape, sigma):
    events = pytest.importorskip("dp_accounting.dp_event")
    rdp = pytest.importorskip("dp_accounting.rdp")
    orders = np.array([1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 257.0])
    event = events.RepeatAndSelectDpEvent(events.GaussianDpEvent(sigma), mean, shape)
    accountant = rdp.RdpAccountant(orders).compose(event)
    ours = repeated_divergence(orders, orders / (2 * sigma**2), mean, shape)
    np.testing.assert_allclose(ours, accountant._rdp, rtol=1e-7)
    epsilon = min(map(partial(epsilon_of_rdp, delta=1e-6), orders, ours))
    assert epsilon == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
def test_the_pure_cost_is_the_limit_of_large_orders(shape):
    limit = repeated_divergence([1e6, 1e9, 1e12], np.full(3, 0.7), 10.0, shape)[0]
    assert negative_binomial_cost(0.7, shape) == pytest.approx(limit, rel=1e-4)


OPENDP = {0.01: 0.02, 0.1: 0.2, 0.3: 0.6, 1.0: 2.0, 2.5: 5.0, 7.0: 14.0}
"""Cost of `make_select_private_candidate` in OpenDP 0.16.0 by the epsilon of one run.

It is `2 epsilon`, the same for the stop probabilities 0, 0.05 and 0.5."""


@pytest.mark.parametrize(("method", "shape"), [("first", 0), ("logarithmic", 0), ("geometric", 1)])
def test_fixed_costs_are_those_of_opendp_and_of_the_papers(method, shape):
    for epsilon, expected in OPENDP.items():
        cost = float(RepeatedSelection(base, epsilon, 0.1, method=method).cost(1))
        exact = expected * (2 + shape) / 2
        assert exact <= cost <= exact * (1 + 1e-6)
        assert negative_binomial_cost(epsilon, shape) == pytest.approx(exact)
    narrow = np.linspace(0.1, 3, 100, dtype=np.float16)
    assert all(negative_binomial_cost(x, shape) >= (2 + shape) * float(x) for x in narrow)
    stages = RepeatedSelection(base, np.array(list(OPENDP)), 0.1, method=method)
    total = np.cumsum(list(OPENDP)) * (2 + shape)
    np.testing.assert_allclose(stages.cost(np.arange(7)), total[np.arange(7) - 1], rtol=1e-5)
