"""Filters and odometers: casts and rounding of numbers, and arguments that are refused."""

import dataclasses
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax.composition import conversions
from tests.composition import exact
from tests.composition.cases import FILTERS, granted

pytestmark = [pytest.mark.numerical, pytest.mark.bits]


NUMBERS = (0.1, 0.3, 0.7, 1e-5, 0.123456789)


def test_fields_are_rounded_down(dtype):
    """Compiled functions round Python numbers to the nearest, sometimes upwards."""
    for number in NUMBERS:
        for filter, name in (
            (c.ExPostFilter(number), "budget"),
            (dataclasses.replace(c.ExPostFilter(1.0, 1e-6), delta=number), "delta"),
            (c.UnifiedFilter(1.0, 0.8, approximation=number), "approximation"),
        ):
            read = jax.jit(lambda filter, name=name: jnp.asarray(getattr(filter, name)))
            assert exact.rational(read(filter)) <= Fraction(number)
    filter = dataclasses.replace(c.RenyiFilter(30.0, 1.0, 1e-6), order=30.1)
    assert filter.order == float(np.asarray(30.1, dtype))
    assert c.ExPostFilter(1e39).budget <= 1e39
    assert int(c.ExPostFilter(2**53 + 3).budget) <= 2**53 + 3


@pytest.mark.parametrize(
    ("filter", "kind"),
    [
        (c.ExPostFilter(1.0), c.Pure),
        (c.GaussianFilter(1.0, 1e-6), c.GDP),
        (c.ExPostFilter(1.0), lambda size: c.LaplaceReduction(size, np.full(2, 4.0))),
        (c.GaussianFilter(1.0, 1e-6), lambda size: c.BrownianReduction(size, np.full(2, 4.0))),
    ],
)
def test_integers_beyond_int32_are_not_wrapped(filter, kind):
    """JAX would take 2^32 + 1 as 1, which costs less."""
    cost = jax.vmap(lambda request: jnp.ravel(jnp.asarray(filter.cost(request)))[0])
    large = np.array([3, 2**32 + 1])
    np.testing.assert_allclose(cost(kind(large)), cost(kind(large.astype(float))), rtol=1e-6)


@pytest.mark.parametrize("make", [np.int64, np.array])
def test_fields_beyond_int32_are_not_wrapped(make):
    filter, size = c.GaussianFilter(1.0, 1e-6), make(2**32 + 1)
    grid, kind = nrjax.Grid([1e24]), c.BrownianReduction
    paid = c.FilteredSchedule(grid, filter, filter.init(), kind, size)
    cost = jax.jit(lambda paid: paid.filter.cost(paid.request(1e24)))(paid)
    np.testing.assert_allclose(cost, filter.cost(kind(float(2**32 + 1), 1e24)), rtol=1e-6)
    both = c.SideBySideFilter(c.UnifiedFilter(1.0, 1e-6), c.ExPostFilter(size))
    assert float(jax.jit(lambda both: both.epsilon * 1.0)(both)) >= 2**32


def test_filters_and_states_of_another_dtype(dtype):
    """Refused where a cast would raise a budget, or lower what was spent."""
    narrow = jnp.float32 if dtype == jnp.float64 else jnp.float16
    filter = c.ExPostFilter(0.1)
    state = jax.tree.map(lambda x: x.astype(narrow), filter.init())
    for admits in (filter.admits, jax.jit(filter.admits)):
        with pytest.raises(ValueError, match=r"state must be in float"):
            admits(state, c.ExPost(0.01))
    with jax.enable_x64(True):
        filter = c.ExPostFilter(0.1)
        state = filter.init()
    with jax.enable_x64(False):
        for admits in (c.ExPostFilter.admits, jax.jit(c.ExPostFilter.admits)):
            with pytest.raises(ValueError, match=r"ExPostFilter must be made in float32"):
                admits(filter, c.ExPostFilter(0.1).init(), c.ExPost(0.01))
        with pytest.raises(ValueError, match=r"state must be in float64"):
            jax.jit(c.ExPostFilter.admits)(c.ExPostFilter(0.1), state, c.ExPost(0.01))
        state = c.ExPostFilter(0.1).init()
    # A float32 filter may be used in float64.
    with jax.enable_x64(True):
        filter = c.ExPostFilter(0.1)
        state = granted(jax.jit(c.ExPostFilter.take)(filter, filter.init(), c.ExPost(0.05)))


def test_side_by_side_adds_up_and_spends_apart():
    """Epsilons add up, rounded up, and a request is charged in one of the two budgets."""
    for first, second in ((0.1, 0.7), (0.3, 0.6), (1.0, 2.0)):
        both = c.SideBySideFilter(c.ZCDPFilter(first, 1e-6), c.ExPostFilter(second, 1e-6))
        assert Fraction(both.epsilon) >= Fraction(first) + Fraction(second)
        assert both.epsilon == pytest.approx(first + second, rel=1e-15)
        assert both.delta == pytest.approx(2e-6)
        seen = jax.jit(lambda both: both.epsilon)(both)
        assert exact.rational(seen) >= sum(map(exact.rational, jnp.asarray([first, second])))
        for request, other in ((c.ExPost(0.2), 0), (c.ZCDP(1e-3), 1)):
            assert both.cost(request)[other] == 0 < both.cost(request)[1 - other]


L1, L2 = nrjax.Sensitivity(1.0, "l1"), nrjax.Sensitivity(1.0, "l2")
ERRORS = [
    (lambda: c.RenyiFilter(1.0, 1e-6), r"delta must be given.*RenyiFilter\(order, epsilon, delta"),
    (lambda: c.RenyiFilter(2.0, 1.0, 1e-6), "order must be larger for"),
    (lambda: c.RenyiFilter(1.0, 1.0, 1e-6), "order must be above 1"),
    (lambda: c.RenyiFilter(1 + 1e-18, 1.0, 1e-6), "order must be above 1"),
    (lambda: c.RenyiFilter.tuned(1.0, 1e-6, c.Pure(0.0)), "request must be one that"),
    (lambda: c.RenyiFilter.tuned(1.0, 1e-6, ()), r"request must be one that costs"),
    (lambda: c.RenyiFilter.tuned(2.0, 1e-6, c.ExPost(1.0, cap=0.5)), "must be of an epsilon up to"),
    (lambda: c.RenyiFilter.tuned(1.0, 1e-6, c.ZCDP(0.1, 0.1)), "ZCDP.delta must be 0 for"),
    (
        lambda: jax.jit(lambda e: c.RenyiFilter.tuned(1.0, 1e-6, c.Pure(e)).budget)(0.1),
        "request must be of concrete numbers",
    ),
    (lambda: c.RenyiFilter.tuned(0.0, 1e-6, c.Pure(0.1)), "epsilon must be positive"),
    (lambda: c.RenyiFilter.tuned(True, 1e-6, c.Pure(0.1)), "epsilon must be positive"),
    (lambda: c.UnifiedFilter(1.0, 1e-6, 1e-6), "approximation must be"),
    (lambda: c.UnifiedFilter(1.0, 1e-6, np.array("a")), "approximation must be"),
    (lambda: c.UnifiedFilter(1.0, 1e-6, conversion="x"), "conversion must"),
    (lambda: c.UnifiedFilter(1.0, 1e-6, jnp.asarray(-1e-7)), "approximation must be"),
    (
        lambda: jax.jit(lambda e: c.UnifiedFilter(e, 1e-6).budget)(1.0),
        "epsilon must be a single concrete",
    ),
    (
        lambda: jax.jit(lambda e: c.ZCDPFilter(1.0, 1e-6, e).budget)(1.0),
        "approximation must be a single concrete",
    ),
    (lambda: c.ExPostFilter(1.0, jnp.asarray(1.5)), "delta must be at least 0"),
    (lambda: c.ExPostFilter(np.asarray([1.0, 2.0])), "epsilon must be a single"),
    (lambda: c.ExPost(2**53 + 1), r"ExPost\.epsilon must be"),
    (lambda: c.ExPost(np.longdouble(0.1)), r"ExPost\.epsilon must be"),
    (lambda: c.BrownianReduction(L1, 2.0), "sensitivity must be an l2-sensitivity"),
    (lambda: c.LaplaceReduction(L2, 2.0), "sensitivity must be an l1-sensitivity"),
    (lambda: c.BrownianOdometer(0.0, 1.0), "delta must be strictly between"),
    (lambda: c.BrownianOdometer(0.1, -1.0), "gamma must be positive"),
    (lambda: c.OneSidedBrownianOdometer.tight_at(0.0, 0.1), "total must be positive"),
    (lambda: c.RenyiOdometer(1.0, 0.1), "order must be above 1"),
    (
        lambda: c.SideBySideFilter(c.GaussianFilter(1.0, 1e-6), c.ExPostFilter(1.0)),  # type: ignore
        "zcdp must be a ZCDPFilter or UnifiedFilter",
    ),
    (
        lambda: c.SideBySideFilter(c.ZCDPFilter(1.0, 1e-6), c.ZCDPFilter(1.0, 1e-6)),  # type: ignore
        "ex_post must be a ExPostFilter",
    ),
    (lambda: conversions.epsilon_of_zcdp(-1, 0.1), "rho must be finite and not negative"),
    (lambda: conversions.zcdp_for(0, 0.1), "epsilon must be positive and finite"),
    (lambda: conversions.zcdp_for(1, 0), "delta must be strictly between 0 and 1"),
    (lambda: conversions.zcdp_for(1, 0.1, "best"), "conversion must be 'standard' or 'renyi'"),
    (lambda: conversions.rdp_for(1, 1, 0.1), "order must be above 1"),
    (lambda: conversions.gdp_for(np.nan, 0.1), "epsilon must be positive"),
    *(
        (lambda build=case.build, bad=bad: build(*bad), f"{name}.* must be")
        for case in FILTERS
        for *bad, name in ((0.0, 1e-6, "epsilon"), (1.0, 2.0, "delta"), (np.nan, 0.1, "eps"))
    ),
]


def test_wrong_arguments_are_refused():
    for call, match in ERRORS:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="RenyiFilter has no proof for float"):
        c.RenyiFilter.tuned(1.0, 1e-6, 0.1)


def test_budget_is_not_carried_to_another_epsilon():
    filter = c.ZCDPFilter(1.0, 1e-6)
    assert dataclasses.replace(filter, epsilon=0.5) == c.ZCDPFilter(0.5, 1e-6)
    # Nor can it be set by hand.
    with pytest.raises(TypeError, match="budget"):
        c.ExPostFilter(1.0, budget=np.float32(1.00009))  # type: ignore
    # It is unchanged by a round trip to a device.
    assert jax.tree.map(np.asarray, jax.tree.map(jnp.asarray, filter)).budget == filter.budget


def test_whole_numbers_beyond_int32():
    filter = c.ExPostFilter(1.0)
    for time in (10**10, 2**31, np.int64(2**32)):
        for cost in (filter.cost, jax.jit(filter.cost)):
            stated = exact.rational(cost(c.LaplaceReduction(1, time)))
            assert 1 <= stated * int(time) <= 1 + Fraction(1, 10**6)
        assert not filter.admits(filter.init(), c.ExPost(time))
    assert filter.cost(c.ExPost(2**31)) == 2.0**31


def test_a_constant_order_does_not_make_a_release_free():
    """XLA may multiply the epsilons first, whose square is 0. The largest order is 1e12."""
    filter = c.RenyiFilter(1e12, 5.0, 1e-6)
    tiny = float(jnp.finfo(jnp.result_type(float)).tiny)
    for time in (1e3, 1e6, 1e12, 1e18, 4e19, 1 / (16 * tiny)):
        request = c.LaplaceReduction(1.0, time)
        eager = np.asarray(filter.cost(request))
        compiled = np.asarray(jax.jit(lambda t: filter.cost(c.LaplaceReduction(1.0, t)))(time))
        np.testing.assert_allclose(compiled, eager, rtol=1e-4)
    with pytest.raises(ValueError, match="order must be above 1 and at most 1e12"):
        c.RenyiFilter(1e13, 5.0, 1e-6)


def test_a_state_narrower_than_its_filter_is_refused():
    """A float32 budget, rounded to the nearest, may be more than the filter's."""
    with jax.enable_x64(False):
        state = c.ExPostFilter(0.1).init()
    with jax.enable_x64(True):
        filter = c.ExPostFilter(0.1)
        with pytest.raises(ValueError, match="state must be"):
            filter.take(state, c.ExPost(float(np.float32(0.1))))


@pytest.mark.parametrize("epsilon", [np.nan, np.inf, -1.0])
def test_no_number_closes_a_round_near_the_largest_float(epsilon, dtype):
    filter = c.ExPostFilter(float(jnp.finfo(dtype).max) * (1 - 1e-6))
    state, round, ok = filter.open(filter.init(rounds=1), c.ExPost(float(filter.budget)))
    assert ok
    for method in (filter.close, filter.rewind):
        assert not jax.jit(lambda e, f=method: f(state, round, c.ExPost(e)))(epsilon)[1]


def test_times_that_are_offered_are_admitted(dtype):
    """A sensitivity at the edge of the normal numbers has no time, or one that fits."""
    filter, tiny = c.GaussianFilter(1.0, 1e-6), float(jnp.finfo(dtype).tiny)
    for sensitivity in (tiny, 2 * tiny):
        time = filter.smallest_time(filter.init(), c.BrownianReduction, sensitivity)
        if not np.isinf(time):
            assert filter.admits(filter.init(), c.BrownianReduction(sensitivity, time))


def test_a_round_may_be_rewound_to_less_after_a_tolerated_charge():
    filter = c.ExPostFilter(1.0)
    state, round, _ = filter.open(filter.init(rounds=1), c.ExPost(0.5))
    assert filter.admits(state, c.ExPost(0.5))
    state, ok = jax.jit(lambda s, e: filter.spend(s, c.ExPost(e)))(state, 0.5)
    assert ok
    assert filter.rewind(state, round, c.ExPost(0.4))[1]
    assert not filter.rewind(state, round, c.ExPost(0.6))[1]


def test_exact_quotients_are_not_rounded_up():
    """Four requests of a quarter fit into a budget of 1."""
    filter, kind = c.ExPostFilter(1), c.LaplaceMechanism
    for size, time, number in (
        (1, 4, 4),
        (3, 3, 1),
        (0.5, 4.0, 8),
        (1.0, 2.0**20, 2**20),
        (7, 28, 4),
    ):
        for cast in (float, int, np.float32, jnp.asarray):
            if cast is int and size == 0.5:
                continue
            once = kind(cast(size), cast(time))
            plan = (once,) * number
            assert filter.admits(filter.init(), plan)
            assert not filter.admits(filter.init(), (*plan, once))
    eight = (c.DiscreteLaplaceReduction(2, 16.0),) * 8
    assert filter.admits(filter.init(), eight)
    compiled = jax.jit(lambda time: filter.admits(filter.init(), (kind(1.0, time),) * 4))
    assert not compiled(4.0)  # unknown numbers are rounded up
    for size, time in ((1, 3), (0.1, 0.3), (1.0, 7.0), (2**24 + 1, 2**24), (1e-30, 1e10)):
        cost = filter.cost(kind(size, time))
        assert exact.rational(cost) >= Fraction(size) / Fraction(time)
    assert Fraction(float(np.asarray(2**24 + 1, np.float32) / 2**24)) < Fraction(2**24 + 1, 2**24)


@pytest.mark.parametrize("name", ["one object", "equal objects", "two in turn"])
def test_equal_requests_are_charged_once(name, monkeypatch):
    """The sums are those of requests that are taken one by one."""
    filter, odometer = c.ZCDPFilter(1.0, 1e-6, 1e-7), c.RenyiOdometer(5.0, 1e-6)
    one, two = c.ZCDP(1e-7), c.GDP(1e-4)
    of_size = {
        "one object": lambda n: (one,) * n,
        "equal objects": lambda n: tuple(c.ZCDP(1e-7) for _ in range(n)),
        "two in turn": lambda n: ((one, two),) * (n // 2),
    }[name]
    few, state, spent = of_size(70), filter.init(), odometer.init()
    for part in c.requests.parts(few):
        state, spent = granted(filter.take(state, part)), odometer.spend(spent, part)
    assert granted(filter.take(filter.init(), few)) == state
    assert granted(filter.spend(filter.init(), few)) == state
    assert odometer.spend(odometer.init(), few) == spent
    charged, charge = [], c.ZCDPFilter._charge

    def counted(self, request, dtype):
        charged.append(request)
        return charge(self, request, dtype)

    monkeypatch.setattr(c.ZCDPFilter, "_charge", counted)
    size = 100_000 if name == "one object" else 5_000
    many = of_size(size)
    state = granted(filter.take(filter.init(), many))
    assert len(charged) <= 2
    total = size * Fraction(1e-7)
    total = total if name != "two in turn" else (total + size * Fraction(1e-4) ** 2 / 2) / 2
    excess = exact.rational(state.spent.total[0]) + exact.rational(state.spent.residual[0]) - total
    assert -total * Fraction(2, 2**53) <= excess <= total * Fraction(1e-6)
    opened, round, ok = filter.open(filter.init(1), many)
    assert ok
    assert filter.rewind(opened, round, many)[1]
    assert filter.close(opened, round, many)[1]
    assert len(charged) <= 8
