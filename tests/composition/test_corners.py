"""Corners: numbers at the ends of their range, the wrong shape or dtype, and mixed precision."""

import dataclasses
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax.composition import (
    ZCDP,
    BrownianOdometer,
    BrownianReduction,
    ExPost,
    ExPostFilter,
    ExPostOdometer,
    GaussianFilter,
    LaplaceMechanism,
    LaplaceReduction,
    OneSidedBrownianOdometer,
    Pure,
    RenyiFilter,
    RenyiOdometer,
    SideBySideFilter,
    UnifiedFilter,
    ZCDPFilter,
)
from nrjax.composition import conversions as c
from tests.composition import exact
from tests.composition.cases import FILTERS, ODOMETERS, SMALL, each_filter, of_name
from tests.composition.test_odometers import FAMILIES, exact_bound

pytestmark = pytest.mark.numerical


def test_orders_near_one_and_deltas_near_one():
    """`log(1 - 1/A)` must not be that of a rounded `1/A`."""
    for excess in (1e-5, 4e-8, 2e-9, 1e-12):
        for delta in (1 - 1e-6, 1 - 1e-12):
            true = 30 + exact.premium(1 + excess, delta)
            stated = c.epsilon_of_rdp(1 + excess, 30, delta)
            assert true <= stated <= max(true, 0) * (1 + 1e-9) + 1e-10
            if true < 59:
                assert c.rdp_for(1 + excess, 30, delta) <= 60 - true


def test_gaussian_conversions_at_the_ends():
    # These ran for ever, out of memory, or to 0.
    assert c.gdp_for(1e-200, 1e-6) == pytest.approx(math.sqrt(2 * math.pi) * 1e-6, rel=1e-6)
    for epsilon in (5e-324, 1e20, 1e300):
        mu = c.gdp_for(epsilon, 1e-6)
        assert mu > 0
        assert mu * mu / 2 <= epsilon + 1e-11
    for mu in (1e5, 1e10, 1e17, 1e300):
        assert c.delta_of_gdp(mu, 1.0) == 1
    assert exact.delta_of_gdp(1e-200, c.epsilon_of_gdp(1e-200, 1e-202)) <= 1e-202
    # Where z0 is the difference of large numbers.
    for mu, start in ((3e4, 1.5), (4e4, -2.5), (2e4, 0.0)):
        epsilon = (start + mu / 2) * mu
        with mp.workdps(80):
            m, e = mp.mpf(mu), mp.mpf(epsilon)
            true = exact.phi(m / 2 - e / m) - mp.exp(e) * exact.phi(-m / 2 - e / m)
        assert true <= c.delta_of_gdp(mu, epsilon) <= true * (1 + 1e-8)


def test_underflow_is_not_free():
    for of in (c.zcdp_of_gdp, c.zcdp_of_pure, c.zcdp_of_bounded_range):
        assert of(1e-200) > 0
    for of in (c.rdp_of_zcdp, c.rdp_of_gdp, c.rdp_of_pure):
        assert of(1.5, 5e-324) > 0
        assert of(1.5, 0) == 0
    assert c.gdp_of_pure(5e-324) > 5e-324
    rho, delta = 1e-320, 1 - 2**-53
    assert c.epsilon_of_zcdp(rho, delta) >= exact.epsilon_of_zcdp(rho, delta, "standard")
    rho = c.zcdp_for(1e-160, 0.5)
    assert exact.epsilon_of_zcdp(rho, 0.5, "standard") <= 1e-160


@each_filter
def test_several_numbers_are_no_request(case):
    """Each would have the whole budget to itself."""
    filter = case.build(1.0, 1e-6)
    small = SMALL[case.kinds[0]]
    first = dataclasses.fields(small)[0].name
    several = dataclasses.replace(small, **{first: np.asarray([1e-3, 2e-3])})
    for call in (filter.cost, lambda r: filter.admits(filter.init(), r)):
        with pytest.raises(ValueError, match=r"= float.*: must be a single number"):
            call(several)
    with pytest.raises(ValueError, match=r"must be a single number"):
        jax.jit(filter.spend)(filter.init(), several)


def test_several_numbers_are_no_request_of_an_odometer():
    odometer = ExPostOdometer()
    with pytest.raises(ValueError, match=r"ExPost.epsilon = .*: must be a single number"):
        odometer.spend(odometer.init(), ExPost(jnp.asarray([0.1, 0.2])))


NUMBERS = (0.1, 0.3, 0.7, 1e-5, 0.123456789)


def as_a_trace_has_it(filter, name):
    return Fraction(float(jax.jit(lambda f: jnp.asarray(getattr(f, name)))(filter)))


def test_fields_are_rounded_down(dtype):
    """Compiled functions round Python's numbers to the nearest: upwards now and then."""
    for number in NUMBERS:
        filter = ExPostFilter(number)
        assert as_a_trace_has_it(filter, "budget") <= Fraction(number)
        filter = dataclasses.replace(ExPostFilter(1.0, 1e-6), delta=number)
        assert as_a_trace_has_it(filter, "delta") <= Fraction(number)
        filter = UnifiedFilter(1.0, 0.8, approximation=number)
        assert as_a_trace_has_it(filter, "approximation") <= Fraction(number)
    filter = dataclasses.replace(RenyiFilter(30.0, 1.0, 1e-6), order=30.1)
    assert filter.order == float(np.asarray(30.1, dtype))


def test_filters_and_states_of_another_dtype(dtype):
    """Where they would be rounded: a budget to more, what was spent to less."""
    narrow = jnp.float32 if dtype == jnp.float64 else jnp.float16
    filter = ExPostFilter(0.1)
    state = jax.tree.map(lambda x: x.astype(narrow), filter.init())
    for admits in (filter.admits, jax.jit(filter.admits)):
        with pytest.raises(ValueError, match=r"state = .*in float.*: must be in float"):
            admits(state, ExPost(0.01))
    with jax.enable_x64(True):
        filter = ExPostFilter(0.1)
        state = filter.init()
    with jax.enable_x64(False):
        for admits in (ExPostFilter.admits, jax.jit(ExPostFilter.admits)):
            with pytest.raises(ValueError, match=r"ExPostFilter = .*: must be made in float32"):
                admits(filter, ExPostFilter(0.1).init(), ExPost(0.01))
        with pytest.raises(ValueError, match=r"state = .*under float32.*: must be in float64"):
            jax.jit(ExPostFilter.admits)(ExPostFilter(0.1), state, ExPost(0.01))
        state = ExPostFilter(0.1).init()
    # The other way nothing is rounded.
    with jax.enable_x64(True):
        filter = ExPostFilter(0.1)
        state, accepted = jax.jit(ExPostFilter.take)(filter, filter.init(), ExPost(0.05))
        assert accepted


def test_asked_with_a_python_number_and_paid_with_a_device_number(dtype):
    filter = ExPostFilter(1.0, 1e-6)
    for number in NUMBERS:
        paid, asked = ExPost(jnp.asarray(number), 0.5e-6), ExPost(number, 0.5e-6)
        assert filter.spend(filter.init(), paid, asked)[1]
        assert filter.spend(filter.init(), asked, paid)[1]
        more = ExPost(number * (1 + 1e-4))
        assert not filter.spend(filter.init(), more, asked)[1]
    # The whole of it: what was admitted is what is charged.
    whole = ExPost(filter.budget)
    paid = jax.tree.map(
        lambda x: x * (1 + 3 * float(jnp.finfo(dtype).eps)), jax.tree.map(jnp.asarray, whole)
    )
    state, accepted = filter.spend(filter.init(), paid, whole)
    assert accepted
    assert state.spent.total[0] == filter.budget
    gaussian = GaussianFilter(10.0, 1e-6)
    assert gaussian.spend(gaussian.init(), Pure(jnp.asarray(0.3)), Pure(0.3))[1]


BUILDS = (
    (lambda: UnifiedFilter(1.0, 1e-6), BrownianReduction),
    (lambda: ExPostFilter(1.0), LaplaceReduction),
    (lambda: RenyiFilter(30.0, 1.0, 1e-6), LaplaceReduction),
)


@pytest.mark.parametrize(("build", "kind"), BUILDS, ids=("unified", "ex-post", "renyi"))
def test_smallest_time_of_a_sensitivity_out_of_range(build, kind, dtype):
    """No finite time that is then not admitted."""
    filter = build()
    state = filter.init()
    ask = jax.jit(jax.vmap(lambda size: filter.smallest_time(state, kind, size)))
    assert np.all(np.asarray(ask(jnp.asarray([-1.0, 0.0, math.nan, math.inf]))) == np.inf)
    small = 1e-50 if dtype == jnp.float32 else 1e-320  # 0 on its way in
    assert filter.smallest_time(state, kind, small) == np.inf
    with pytest.raises(TypeError, match=r"is known for"):
        filter.smallest_time(state, kind(1.0, 1.0))


@pytest.mark.parametrize("name", FAMILIES)
def test_odometers_of_a_delta_near_one(name):
    """Where the cast of delta moves `log(1/delta)` by far more than a machine epsilon."""
    spend = jax.jit(lambda odo, rho: odo.bound(odo.spend(odo.init(), ZCDP(rho))))
    for delta in (0.9, 0.999, 1 - 1e-5):
        for v in (2**-20, 2**-10):
            true = exact_bound(name, v, delta, 1.0)
            assert true <= float(spend(FAMILIES[name](delta, 1.0), v / 2)) <= true * (1 + 1e-2)


def test_epsilons_side_by_side_are_added_up():
    for first, second in ((0.1, 0.7), (0.3, 0.6), (1.0, 2.0)):
        both = SideBySideFilter(ZCDPFilter(first, 1e-6), ExPostFilter(second))
        assert Fraction(both.epsilon) >= Fraction(first) + Fraction(second)
        assert both.epsilon == pytest.approx(first + second, rel=1e-15)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: RenyiFilter(2.0, 1.0, 1e-6), r"order = 2.0: must be larger for"),
        (lambda: RenyiFilter(1.0, 1.0, 1e-6), r"order = 1.0: must be above 1"),
        (lambda: RenyiFilter(1 + 1e-18, 1.0, 1e-6), r"order = 1.0: must be above 1"),
        (lambda: RenyiFilter.tuned(1.0, 1e-6, Pure(0.0)), r"request = Pure.*: must be one that"),
        (lambda: RenyiFilter.tuned(1.0, 1e-6, ()), r"request = \(\): must be one that costs"),
        (lambda: RenyiFilter.tuned(1.0, 1e-6, ZCDP(0.1, 0.1)), r"ZCDP.delta = 0.1: must be 0 for"),
        (
            lambda: jax.jit(lambda e: RenyiFilter.tuned(1.0, 1e-6, Pure(e)).budget)(0.1),
            r"request = Pure.*: must be of concrete numbers",
        ),
        (lambda: RenyiFilter.tuned(0.0, 1e-6, Pure(0.1)), r"epsilon = 0.0: must be positive"),
        (lambda: UnifiedFilter(1.0, 1e-6, 1e-6), r"approximation = 1e-06: must be"),
        (lambda: UnifiedFilter(1.0, 1e-6, conversion="x"), r"conversion = 'x': must"),
        (lambda: UnifiedFilter(1.0, 1e-6, jnp.asarray(-1e-7)), r"approximation = .*: must be"),
        (
            lambda: jax.jit(lambda e: UnifiedFilter(e, 1e-6).budget)(1.0),
            "epsilon = .*: must be a single concrete",
        ),
        (
            lambda: jax.jit(lambda e: ZCDPFilter(1.0, 1e-6, e).budget)(1.0),
            "approximation = .*: must be a single concrete",
        ),
        (lambda: ExPostFilter(1.0, jnp.asarray(1.5)), r"delta = .*: must be at least 0"),
        (lambda: ExPostFilter(np.asarray([1.0, 2.0])), r"epsilon = float.*: must be a single"),
        (lambda: ExPost(2**53 + 1), r"ExPost\.epsilon = .*: must be"),
        (lambda: ExPost(np.longdouble(0.1)), r"ExPost\.epsilon = .*: must be"),
        (lambda: BrownianOdometer(0.0, 1.0), r"delta = 0.0: must be strictly between"),
        (lambda: BrownianOdometer(0.1, -1.0), r"gamma = -1.0: must be positive"),
        (lambda: OneSidedBrownianOdometer.tight_at(0.0, 0.1), r"total = 0.0: must be positive"),
        (lambda: RenyiOdometer(1.0, 0.1), r"order = 1.0: must be above 1"),
        (
            lambda: SideBySideFilter(GaussianFilter(1.0, 1e-6), ExPostFilter(1.0)),  # type: ignore
            r"zcdp = Gauss.*: must be a ZCDPFilter or UnifiedFilter",
        ),
        (
            lambda: SideBySideFilter(ZCDPFilter(1.0, 1e-6), ZCDPFilter(1.0, 1e-6)),  # type: ignore
            r"ex_post = .*: must be a ExPostFilter",
        ),
    ],
)
def test_what_is_no_filter_nor_odometer(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_a_number_is_no_request():
    with pytest.raises(TypeError, match=r"float: RenyiFilter has no proof"):
        RenyiFilter.tuned(1.0, 1e-6, 0.1)


def test_order_is_found_where_most_cost_too_much():
    """In float32 the cost at order 2 is infinite here, and the best order very near 1."""
    filter = RenyiFilter.tuned(200.0, 0.5, LaplaceReduction(1.0, 0.01))
    assert 1 < float(filter.order) < 1.1  # pyright: ignore


def test_budget_beyond_the_dtype():
    assert ExPostFilter(1e39).budget <= 1e39


@of_name(FILTERS + ODOMETERS)
def test_subnormal_sensitivities_and_times(case, dtype):
    """XLA takes them for 0, and the cost for next to nothing: refused, or infinite."""
    owner, tiny = case.build(10.0, 1e-6), float(jnp.finfo(dtype).tiny)
    for kind in {BrownianReduction, LaplaceMechanism, LaplaceReduction} & set(case.kinds):
        spend = jax.jit(lambda *two, kind=kind: owner.spend(owner.init(), kind(*two)))
        for numbers in ((tiny / 8, 8 * tiny), (tiny / 8, 1.0), (tiny, tiny / 2)):
            after = spend(*numbers)
            if isinstance(after, tuple):
                assert not after[1]
                assert not owner.admits(owner.init(), kind(*numbers))
            else:
                assert after.spent.total[0] == np.inf


def test_exact_shares_in_one_request():
    """Admitted, opened and spent alike; and what is not exact is still rounded up."""
    filter = ExPostFilter(1.0, 0.5)
    halves = (ExPost(0.5, 0.25), ExPost(0.5, 0.25))
    assert filter.cost(halves) == 1
    assert filter.admits(filter.init(), halves)
    _, _, ok = filter.open(filter.init(np.int64(2)), halves)
    assert ok
    thirds = (ExPost(1 / 3),) * 3
    assert exact.rational(filter.cost(thirds)) >= 3 * Fraction(1 / 3)
    assert exact.rational(filter.cost((ExPost(1.0), ExPost(1e-20)))) > 1


def test_whole_numbers_beyond_int32():
    filter = ExPostFilter(1.0)
    for time in (10**10, 2**31, np.int64(2**32)):
        for cost in (filter.cost, jax.jit(filter.cost)):
            stated = exact.rational(cost(LaplaceReduction(1, time)))
            assert 1 <= stated * int(time) <= 1 + Fraction(1, 10**6)
        assert not filter.admits(filter.init(), ExPost(time))
    assert filter.cost(ExPost(2**31)) == 2.0**31
