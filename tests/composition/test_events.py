"""Requests as events of dp-accounting, and back: no direction lowers a cost."""

import dataclasses
import math
import sys
import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax.composition import conversions

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dp = pytest.importorskip("dp_accounting")

REPLACE, ADD = dp.NeighboringRelation.REPLACE_ONE, dp.NeighboringRelation.ADD_OR_REMOVE_ONE
ORDER, DELTA = 7.5, 1e-6
ADDED = c.Pure(0.7, relation="add-remove")
DISCRETE = c.DiscreteLaplaceReduction(2, 3.0)
REQUESTS = (
    *(c.ZCDP(0.03), c.GDP(0.3), c.GDP(0.125), c.Pure(0.7), c.BoundedRange(0.9), ADDED),
    *(c.LaplaceMechanism(0.3, 0.7), c.BrownianReduction(0.3, 0.7), c.LaplaceReduction(2.0, 30.0)),
)
"""Requests whose events the Rényi accountant has."""
EACH = pytest.mark.parametrize("request_", REQUESTS, ids=repr)


TARGETS: dict = {"planned": True, "accountant": "rdp"}


def theirs(event, relation):
    """Return the epsilon of an event by the Rényi accountant, at one order."""
    return dp.rdp.RdpAccountant([ORDER], relation).compose(event).get_epsilon(DELTA)


def check_epsilon(request, epsilon):
    """Assert that an epsilon is that of a request's cost, which is rounded up."""
    filter = c.RenyiFilter(ORDER, 100.0, DELTA, relation=request.relation or "replace")
    ours = conversions.epsilon_of_rdp(ORDER, float(filter.cost(request)), DELTA)
    if request is not ADDED:  # zCDP costs more than the filter's certificate
        assert epsilon <= ours * (1 + 1e-12)
    if not isinstance(request, c.LaplaceReduction):  # may stop, and costs more than a mechanism
        assert epsilon >= ours * (1 - 300 * float(jnp.finfo(jnp.result_type(float)).eps))


@pytest.mark.numerical
@EACH
def test_the_renyi_accountant_agrees(request_):
    event, relation = c.to_dp_event(request_, **TARGETS)
    assert relation == (ADD if request_ is ADDED else REPLACE)
    check_epsilon(request_, theirs(event, relation))
    if hasattr(event, "noise_multiplier"):  # a planted fault: upside down
        with pytest.raises(AssertionError):
            check_epsilon(request_, theirs(type(event)(1 / event.noise_multiplier), relation))


def test_the_accountant_of_loss_distributions_agrees():
    stated = [dataclasses.replace(one, relation="add-remove") for one in (c.GDP(0.5), DISCRETE)]
    pld = dp.pld.PLDAccountant
    delta = pld(ADD).compose(c.to_dp_event(stated[0])[0]).get_delta(1.0)
    assert delta == pytest.approx(conversions.delta_of_gdp(0.5, 1.0), rel=1e-3)
    # Pure epsilons are never exceeded, and are reached.
    for request, epsilon in ((stated[1], 2 / 3), (c.Pure(0.7), 0.7)):
        accountant = pld(*c.to_dp_event(request, planned=True)[1:])
        accountant.compose(c.to_dp_event(request, planned=True)[0])
        assert accountant.get_delta(epsilon + 1e-3) <= 1e-9 < accountant.get_delta(epsilon - 0.01)


PLANS = {
    "pure": ((c.Pure(0.1),) * 10, {"pld", "rdp"}),
    "zCDP, discrete": ((c.ZCDP(0.01), DISCRETE), {"rdp"}),
    "pure, discrete": ((c.Pure(0.3), DISCRETE), {"pld", "rdp"}),
    "discrete": (DISCRETE, {"pld", "rdp"}),
    "range, Gaussian": ((c.BoundedRange(0.3), c.GDP(0.2)), {"pld", "rdp"}),
    "Laplace": ((c.LaplaceMechanism(0.3, 0.7), c.LaplaceReduction(2.0, 30.0)), {"pld", "rdp"}),
    "no cost": ((c.Pure(0.0), c.GDP(0.0), c.BoundedRange(0.0)), {"pld", "rdp"}),
    "brownian": (c.BrownianReduction(0.3, 0.7), {"pld", "rdp"}),
}
ACCOUNTANTS = {"pld": dp.pld.PLDAccountant, "rdp": dp.rdp.RdpAccountant}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_one_accountant_takes_all_events_of_a_plan(plan, relation):
    request, able = PLANS[plan]
    stated = jax.tree.map(
        lambda one: dataclasses.replace(one, relation=relation),
        request,
        is_leaf=lambda one: not isinstance(one, tuple),
    )
    events = {}
    for name in ("pld", "rdp"):
        if name in able:
            events[name], neighbours = c.to_dp_event(stated, planned=True, accountant=name)
            accountant = ACCOUNTANTS[name](neighboring_relation=neighbours).compose(events[name])
            assert 0 <= accountant.get_epsilon(1e-6) < 40
        else:
            with pytest.raises(ValueError, match=f"accountant must be 'rdp' .*got {name!r}"):
                c.to_dp_event(stated, planned=True, accountant=name)
    assert c.to_dp_event(stated, planned=True)[0] in events.values()


def test_pure_requests_have_the_loss_of_randomised_response():
    """Of an added row too: discrete Laplace noise of sensitivity 1 has exactly this loss."""
    for relation in ("replace", "add-remove"):
        once = c.Pure(1.0, relation=relation)
        event, neighbours = c.to_dp_event(once)
        accountant = dp.pld.PLDAccountant(neighbours).compose(event)
        # P(L > 1/2) = e/(1 + e), so that delta is (e - exp(1/2))/(1 + e).
        exact = (math.e - math.exp(0.5)) / (1 + math.e)
        assert exact <= accountant.get_delta(0.5) <= exact * (1 + 3e-4)
        event, neighbours = c.to_dp_event((c.Pure(0.1, relation=relation),) * 10)
        accountant = dp.pld.PLDAccountant(neighbours).compose(event)
        ten = epsilon_of_ten(0.1, 1e-6)
        assert ten == pytest.approx(0.99937, abs=1e-5)
        assert ten <= accountant.get_epsilon(1e-6) <= ten + 1.1e-3  # ten steps of its grid
    fault = dp.rdp.RdpAccountant(neighboring_relation=ADD)
    fault.compose(c.to_dp_event((c.Pure(0.1, relation="add-remove"),) * 10, accountant="rdp")[0])
    assert fault.get_epsilon(1e-6) > 1.4


def epsilon_of_ten(each, delta):
    """Return the epsilon of ten randomised responses at a delta, by exact sums and bisection."""
    p, n = 1 / (1 + math.exp(-each)), 10
    laws = [(math.comb(n, k) * p**k * (1 - p) ** (n - k), (2 * k - n) * each) for k in range(n + 1)]
    low, high = 0.0, n * each
    for _ in range(60):
        middle = (low + high) / 2
        gain = sum(chance * -math.expm1(middle - loss) for chance, loss in laws if loss > middle)
        low, high = (middle, high) if gain > delta else (low, middle)
    return high


@EACH
def test_events_become_requests_that_cost_at_least_as_much(request_):
    event, relation = c.to_dp_event(request_, **TARGETS)
    back = c.from_dp_event(event, relation, change=1)
    assert back.relation == ("add-remove" if request_ is ADDED else "replace")
    epsilon, again = theirs(event, relation), theirs(*c.to_dp_event(back, accountant="rdp"))
    assert epsilon <= again <= epsilon * (1 + 1e-13)


@pytest.mark.numerical
@pytest.mark.parametrize("x", [0.1, 0.3, 1 / 3, 7.0, 1e-30, 1e30])
@pytest.mark.parametrize("cast", [float, jnp.asarray])
def test_numbers_are_rounded_to_the_safe_side(x, cast):
    x = cast(x)
    exact, (event, _) = Fraction(float(x)), c.to_dp_event(c.GDP(x))
    assert Fraction(event.noise_multiplier) * exact <= 1
    assert Fraction(c.from_dp_event(event, ADD).mu) * Fraction(event.noise_multiplier) >= 1
    event, _ = c.to_dp_event(c.LaplaceMechanism(x, 0.7))
    assert Fraction(event.noise_multiplier) * exact <= Fraction(0.7)
    event, _ = c.to_dp_event(c.BrownianReduction(x, 0.7), planned=True)
    squared = (Fraction(event.noise_multiplier) * exact) ** 2 / Fraction(0.7)
    assert 1 - Fraction(1e-15) <= squared <= 1
    with mp.workdps(60):
        if x < 100:  # exp(-x) is usable
            p = mp.mpf(c.to_dp_event(c.Pure(x))[0].noise_parameter)
            assert mp.log((2 - p) / p) >= mp.mpf(float(x))
    assert c.to_dp_event(c.Pure(5000.0))[0].noise_parameter == 0  # no privacy


def test_tuples_and_counts():
    plan = (c.GDP(0.5), (c.ZCDP(0.1), c.ZCDP(0.1)), c.GDP(0.0), c.ZCDP(0.1))
    event, relation = c.to_dp_event(plan)
    rho = dp.ZCDpEvent(0.1)
    parts = [dp.GaussianDpEvent(2.0), dp.SelfComposedDpEvent(rho, 2), dp.NoOpDpEvent(), rho]
    assert event == dp.ComposedDpEvent(parts)
    stated = [dataclasses.replace(one, relation="replace") for one in (c.GDP(0.5), c.ZCDP(0.1))]
    assert c.from_dp_event(event, relation, change=1) == (stated[0], *[stated[1]] * 3)
    assert c.from_dp_event(dp.SelfComposedDpEvent(event, 2), relation) == 2 * c.from_dp_event(
        event, relation
    )
    assert c.to_dp_event(()) == (dp.ComposedDpEvent([]), REPLACE)


def test_a_replaced_row_changes_a_sum_by_twice_its_norm():
    event = dp.LaplaceDpEvent(4.0)
    assert c.from_dp_event(event, REPLACE).sensitivity == 2
    assert c.from_dp_event(event, REPLACE, change=1).sensitivity == 1
    assert c.from_dp_event(event, ADD).sensitivity == 1
    event = dp.dp_event.DiscreteLaplaceDpEvent(1 / 3, 2)
    assert c.from_dp_event(event, REPLACE).sensitivity == 4


def test_narrow_numbers_of_events_are_computed_with_in_full():
    """NumPy would wrap `2 * np.uint8(200)` to 144, and round the odds in float16."""
    request = c.from_dp_event(dp.dp_event.DiscreteLaplaceDpEvent(0.5, np.uint8(200)), REPLACE)
    assert request.sensitivity == 400
    chances = np.float16(0.37), float(np.float16(0.37))
    costs = [c.from_dp_event(dp.RandomizedResponseDpEvent(p, 3), REPLACE).epsilon for p in chances]
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (c.ExPost(0.5), "fixed before the mechanism runs .*hockey-stick"),
        (c.BrownianReduction(1.0, 2.0), "fixed before the mechanism runs .*planned=True"),
        ((c.GDP(0.1), DISCRETE), "planned=True"),
        (c.ZCDP(0.1, delta=1e-9), r"ZCDP.delta must be 0 \(got 1e-09\)"),
        (c.GDP(jnp.ones(2)), "a single number"),
        ((c.GDP(0.1, relation="replace"), ADDED), "relation of the request 1 must be 'replace'"),
        (c.GDP(0.1, relation="replace, 3 rows"), "no groups of rows"),
        ("GDP", "request must be one of ZCDP, GDP"),
    ],
)
def test_requests_without_an_event_are_refused(request_, message):
    with pytest.raises(ValueError, match=message):
        c.to_dp_event(request_)


def test_traced_requests_are_refused():
    with pytest.raises(ValueError, match="of concrete numbers"):
        jax.jit(lambda mu: c.to_dp_event(c.GDP(mu)) and mu)(0.1)


@pytest.mark.parametrize(
    ("event", "relation", "message"),
    [
        (dp.NonPrivateDpEvent(), ADD, "private noise or zCDP, without sampling"),
        (dp.GaussianDpEvent(0.0), ADD, "event must be private"),
        (dp.ZCDpEvent(0.1, xi=0.1), ADD, "event must be private"),
        (dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0)), ADD, "without sampling"),
        (dp.RandomizedResponseDpEvent(0.5, 2), ADD, "for ADD_OR_REMOVE_ONE"),
        *(
            (event, REPLACE, "event must be private")
            for event in (
                *(dp.GaussianDpEvent(x) for x in (-1.0, math.nan, math.inf)),
                *(dp.LaplaceDpEvent(x) for x in (-1.0, math.nan, math.inf)),
                *(dp.dp_event.DiscreteLaplaceDpEvent(x, 1) for x in (-1.0, math.nan, math.inf)),
                *(dp.RandomizedResponseDpEvent(x, 2) for x in (-0.5, 0.0, 1.5, math.nan)),
                *(dp.RandomizedResponseDpEvent(0.5, x) for x in (-3, 0, math.nan)),
            )
        ),
        (dp.GaussianDpEvent(5e-324), ADD, "mu must be finite"),
        (dp.ZCDpEvent(-0.1), ADD, "rho must be finite and not negative"),
        (dp.dp_event.DiscreteLaplaceDpEvent(0.5, 0), ADD, "sensitivity must be positive"),
        (dp.SelfComposedDpEvent(dp.ZCDpEvent(0.1), 10**6), ADD, "count must be .*at most 100000"),
        (dp.SelfComposedDpEvent(dp.ZCDpEvent(0.1), -1), ADD, "count must be .*at least 0"),
        (dp.ZCDpEvent(0.1), dp.NeighboringRelation.REPLACE_SPECIAL, "neighbours must be one of"),
    ],
)
def test_events_without_a_request_are_refused(event, relation, message):
    with pytest.raises(ValueError, match=message):
        c.from_dp_event(event, relation)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(
        ModuleNotFoundError, match=r'dp_accounting: run pip install "\.\[accounting'
    ):
        nrjax.composition.to_dp_event(c.GDP(0.1))
