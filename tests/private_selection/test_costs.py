"""Costs of private selection: never below the exact loss, attained, and as in other libraries."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.composition.conversions import epsilon_of_rdp
from nrjax.private_selection import negative_binomial_cost, repeated_divergence
from nrjax.private_selection.costs import advantage
from tests.private_selection import oracle

MODES = ("first", "best")
EPS = float(jnp.finfo(jnp.result_type(float)).eps)


def nothing(key, epsilon):
    """Stand for a base mechanism that is never run."""


def selection(mode, caps, means, others, delta=0.0):
    return nrjax.PoissonSelection(nothing, caps, means, others=others, delta=delta, publish=mode)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, 0, 0, 0))
def costs(mode, caps, means, others, stage, epsilon):
    """Return the costs of a success and of nothing."""
    chosen = selection(mode, caps, means, others)
    return chosen.cost(stage, epsilon), chosen.cost(0)


def stated(mode, stages, epsilons):
    """Return the costs of mechanisms of several stages that publish at the last one."""
    table = np.array([[(s.cap, s.mean, s.others) for s in each] for each in stages])
    last = np.full(len(stages), table.shape[1])
    return map(np.asarray, costs(mode, *np.moveaxis(table, 2, 0), last, np.asarray(epsilons)))


def only_base(mode, stages, epsilons):
    """Charge the published run alone."""
    return np.asarray(epsilons), np.zeros(len(stages))


def stage_before(mode, stages, epsilons):
    """Charge one stage too few."""
    success, given_up = stated(mode, [each[:-1] for each in stages], epsilons)
    return success, given_up


def best_as_first(mode, stages, epsilons):
    """Charge the best candidate like the first one."""
    return stated("first", stages, epsilons)


def others_of_failures(mode, stages, epsilons):
    """Let the failures' bound hold for worse successes, which are no failures."""
    success, given_up = stated("first", stages, epsilons)
    last = [each[-1] for each in stages]
    first = np.array([oracle_extra(s.mean, s.cap, s.others) for s in last])
    more = [s.mean * np.asarray(advantage(*map(jnp.asarray, (s.cap, s.others, 0.0)))) for s in last]
    return success - first + more, given_up


def own_epsilon_for_cap(mode, stages, epsilons):
    """Use the ex-post epsilon of the published run in place of the cap."""
    lower = [
        [s._replace(cap=float(np.maximum(e, 1e-6))) for s in each]
        for each, e in zip(stages, epsilons, strict=True)
    ]
    return stated(mode, lower, epsilons)


def oracle_extra(mean, cap, others):
    """Return h of `docs/frontier.md`, as printed there, in float64."""
    p = math.expm1(others) / math.expm1(cap + others)
    return cap + math.log(-math.expm1(-mean * p) / -math.expm1(-mean * p * math.exp(cap)))


@pytest.fixture(scope="module")
def mechanisms():
    """Return, by mode, random mechanisms with a published outcome, its epsilon and its losses."""
    rng, made = np.random.default_rng(0), {}
    for mode in MODES:
        stages, epsilons, exact = [], [], []
        for _ in range(400):
            each = [oracle.random_stage(rng, int(rng.integers(2, 5))) for _ in range(3)]
            given_up, success = oracle.losses(each, mode == "best")
            for loss, epsilon in zip(success, each[-1].costs[each[-1].failures :], strict=True):
                stages.append(each)
                epsilons.append(epsilon)
                exact.append((abs(loss), abs(given_up)))
        made[mode] = stages, epsilons, np.array(exact).T
    return made


def largest_ratios(mode, mechanisms, charge):
    """Return the largest exact loss as a multiple of the cost, of a success and of nothing."""
    stages, epsilons, exact = mechanisms[mode]
    pairs = zip(exact, charge(mode, stages, epsilons), strict=True)
    return [float(np.max(loss / np.maximum(cost, 1e-12))) for loss, cost in pairs]


@pytest.mark.numerical
@pytest.mark.parametrize("mode", MODES)
def test_no_loss_exceeds_the_cost(mode, mechanisms):
    success, given_up = largest_ratios(mode, mechanisms, stated)
    assert 0.9 < success <= 1
    assert 0.9 < given_up <= 1


@pytest.mark.parametrize(
    ("mode", "charge"),
    [
        ("first", only_base),
        ("best", only_base),
        ("first", stage_before),
        ("best", stage_before),
        ("best", best_as_first),
        ("best", others_of_failures),
        ("first", own_epsilon_for_cap),
    ],
)
def test_wrong_costs_are_found(mode, charge, mechanisms):
    assert largest_ratios(mode, mechanisms, charge)[0] > 1.02


@pytest.mark.numerical
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("mean", "cap", "others"), [(1, 1, 1), (4, 0.1, 0.1), (20, 0.5, 2), (0.01, 1, 1), (2, 0.5, 30)]
)
def test_costs_are_attained(mode, mean, cap, others):
    """Two stages of the worst kind: the losses are those stated, up to rounding."""
    stages = [oracle.worst(mean, cap, others, mode == "best")] * 2
    given_up, success = oracle.losses(stages, mode == "best")
    cost, failure = (float(each[0]) for each in stated(mode, [stages], [float(cap)]))
    tolerance = 400 * EPS + 1e-6
    assert max(success) <= cost <= max(success) * (1 + tolerance)
    assert given_up <= failure <= given_up * (1 + tolerance)


@pytest.mark.numerical
def test_costs_are_rounded_up_over_the_whole_range():
    """Of one stage, against the printed formula in 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    grid = [
        (10.0**a, 10.0**b if b < 4 else math.inf, 10.0**m)
        for a in (-6, -3, -1, 0, 1, 2.9)
        for b in (-5, 0, 1, 4)
        for m in (-6, -1, 0.5, 2, 6)
    ]
    caps, others, means = (
        np.asarray(each, jnp.result_type(float)) for each in zip(*grid, strict=True)
    )
    ones = np.ones(len(grid), int)
    success, given_up = costs(
        "first", caps[:, None], means[:, None], others[:, None], ones, 0 * caps
    )
    for i, (a, b, mean) in enumerate(
        zip(*(map(mpmath.mpf, each.tolist()) for each in (caps, others, means)), strict=True)
    ):
        with mpmath.workdps(60 + int(2 * min(a, 400))):
            p = mpmath.exp(-a) * mpmath.expm1(-b) / mpmath.expm1(-(a + b))
            more = a + mpmath.log(mpmath.expm1(-mean * p) / mpmath.expm1(-mean * p * mpmath.exp(a)))
            spent = mean * p * mpmath.expm1(a)
            # Below, h may lose what the two logarithms of its formula lose.
            slack = 100 * EPS * (1 + abs(mpmath.log(mean)))
            assert more <= success[i].item() <= more * (1 + slack) + min(slack, spent, a)
            assert spent <= given_up[i].item() <= spent * (1 + slack)


def test_runs_that_may_exceed_their_epsilon():
    """(epsilon, delta)-DP bases: T is delta + (1 - delta) tanh(epsilon/2)."""
    chosen = selection("first", [1.0, 2.0], 3.0, None, delta=1e-3)
    first, second = (1e-3 + 0.999 * math.tanh(epsilon / 2) for epsilon in (1.0, 2.0))
    expected = [3 * (first + second), 1 + 1.5 * first, 2 + 3 * first + 1.5 * second]
    np.testing.assert_allclose(chosen.cost(np.arange(3)), expected, rtol=1e-5)
    assert float(chosen.total_delta) == pytest.approx(6e-3, rel=1e-5)
    assert float(chosen.total_delta) >= 6e-3
    # The failure of one stage, by the worst pair of (epsilon, delta)-DP.
    p, other = (1 - 1e-3) / (1 + math.e), (math.e + 1e-3) / (1 + math.e)
    assert float(selection("first", [1.0], 3.0, None, 1e-3).cost(0)) >= 3 * (other - p)


SETTINGS = [
    (mean, shape, sigma)
    for sigma in (0.8, 4.0)
    for mean, shape in ((10, 0), (10, 1), (300, 1), (5, 0.5), (30, math.inf))
]


@pytest.mark.parametrize(("mean", "shape", "sigma"), SETTINGS)
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
    orders = np.array([1e6, 1e9, 1e12])
    limit = repeated_divergence(orders, np.full(3, 0.7), 10.0, shape)[0]
    assert negative_binomial_cost(0.7, shape) == pytest.approx(limit, rel=1e-4)


OPENDP = {0.01: 0.02, 0.1: 0.2, 0.3: 0.6, 1.0: 2.0, 2.5: 5.0, 7.0: 14.0}
"""`make_select_private_candidate(...).map(1.0)` of OpenDP 0.16.0 by the epsilon of one run.

It is `2 epsilon`. Its values for the stop probabilities 0, 0.05 and 0.5 are equal."""


@pytest.mark.parametrize(("method", "shape"), [("first", 0), ("logarithmic", 0), ("geometric", 1)])
def test_fixed_costs_are_those_of_opendp_and_of_the_papers(method, shape):
    for epsilon, expected in OPENDP.items():
        repeated = nrjax.private_selection.RepeatedSelection(nothing, epsilon, 0.1, method=method)
        cost = negative_binomial_cost(epsilon, shape)
        assert cost == pytest.approx(expected * (2 + shape) / 2)
        assert expected * (2 + shape) / 2 <= float(repeated.cost(0)) <= cost * (1 + 1e-6)
        assert float(repeated.cost()) == float(repeated.cost(0))
