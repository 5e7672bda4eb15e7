"""Sums of costs against exact rationals, and budgets to 40 digits.

`test_filters.py` checks that costs are rounded up, `test_rounds.py` that no calls overspend.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax import composition as c
from nrjax.composition import _state, filters
from tests.composition import exact
from tests.composition.cases import LONE, granted, of_name, refused

pytestmark = pytest.mark.numerical

ZCDP_CASE, UNIFIED, GAUSSIAN, RENYI, EX_POST = LONE


def sum_of(spending):
    """Return the exact sum that a `Spending` stands for."""
    return sum(exact.rational(part) for part in spending)


MANY = 2**20


def added(add, costs, number):
    """Add the costs of each row in turn, `number` times in all, to 1."""
    sequence, (_, period) = jnp.asarray(costs), costs.shape

    @jax.jit
    @jax.vmap
    def total(row):
        one = _state.Spending(jnp.ones((), row.dtype), jnp.zeros((), row.dtype))
        return jax.lax.fori_loop(0, number, lambda i, sum: add(sum, row[i % period]), one)

    return jax.tree.map(np.asarray, total(sequence))


def excess(add, costs, number=MANY):
    """Return the relative excess of each sum over the exact one."""
    sums = added(add, costs, number)
    assert number % costs.shape[1] == 0
    for row, *parts in zip(costs, *sums, strict=True):
        true = 1 + number // costs.shape[1] * sum(map(exact.rational, row))
        yield float(sum_of(parts) / true - 1) if sum_of(parts) != true else 0.0


def hard_costs(dtype):
    """Costs that a float sum from 1 on rounds away, or rounds down by up to half an ulp each."""
    eps = float(jnp.finfo(dtype).eps)
    least = _state.least_cost(dtype)
    rows = [
        [eps / 4] * 4,
        [eps * (0.5 - eps)] * 4,
        [least] * 4,
        [eps * eps / 3] * 4,
        [eps * 0.49, 2 * eps, least, 1.49 * eps],
        [eps * (1.5 - 2 * eps), eps**2 * 0.7, eps**3, eps / 3],
        [1.0, eps / 3, 2 / 3, eps**2 / 3],
        [0.1, 1e-3, 1e-7, 1e-12],
    ]
    return np.asarray(rows, dtype)


def test_sums_of_a_million_costs_are_never_understated(dtype):
    found = list(excess(_state.add, hard_costs(dtype)))
    print([f"{x:.1e}" for x in found])
    assert min(found) >= 0
    assert max(found) <= 2 * (MANY + 1) * float(jnp.finfo(dtype).eps) ** 2


def test_planted_sums_that_understate_are_found(dtype):
    """A plain sum, and a compensated one that rounds to the nearest."""

    def plain(spending, cost):
        return _state.Spending(spending.total + cost, spending.residual)

    def nearest(spending, cost):
        total, error = _state.two_sum(spending.total, cost)
        return _state.Spending(*_state.two_sum(total, spending.residual + error))

    for add in (plain, nearest):
        assert min(excess(add, hard_costs(dtype), MANY // 16)) < 0


def test_unusable_costs_leave_nothing(dtype):
    """NaN, infinite and negative costs, and sums that overflow, are absorbing."""
    half, zero = jnp.asarray(0.5, dtype), jnp.zeros((), dtype)
    start = _state.Spending(half, zero)
    for bad in (np.nan, np.inf, -np.inf, -0.1, float(jnp.finfo(dtype).max)):
        spent = _state.add(start, jnp.asarray(bad, dtype))
        spent = spent if bad < 1e30 or bad == np.inf else _state.add(spent, jnp.asarray(bad, dtype))
        for _ in range(2):
            assert spent.total == np.inf
            assert not _state.is_within(spent, jnp.finfo(dtype).max)
            assert _state.remaining_after(spent, half) == 0
            spent = _state.add(spent, zero)
    assert _state.add(start, zero) == start


@pytest.mark.parametrize("part", [0.0, 4e-7])
def test_what_is_left_fits(dtype, part):
    """A request for all that remains is admitted, no more than that, and then little remains.

    So is one for all that remains of delta.
    """
    zcdp, plain = c.ZCDPFilter(3.0, 1e-6, part), c.ZCDPFilter(3.0, 1e-6 - part)
    assert zcdp.budget == pytest.approx(plain.budget, rel=1e-6)
    for filter, kind in ((zcdp, c.ZCDP), (c.ExPostFilter(3.0, part), c.ExPost)):
        more = float(np.nextafter(np.asarray(filter.budget, dtype), np.asarray(9, dtype)))
        assert filter.admits(filter.init(), kind(filter.budget))
        assert not filter.admits(filter.init(), kind(more))
        for first in (0.0, 1e-3, 0.7):
            state, _ = filter.take(filter.init(), kind(first * filter.budget, first * part))
            left, delta = filter.remaining(state), filter.remaining_delta(state)
            assert delta == pytest.approx((1 - first) * part, rel=1e-5)
            assert not filter.admits(state, kind(left, delta + 1e-10))
            state = granted(filter.take(state, kind(left, delta)))
            assert filter.remaining(state) <= 1e-5 * filter.budget


def test_exact_shares(dtype):
    """Parts whose sum is exact, such as four quarters, fill a budget, and no more fits."""
    least = float(jnp.finfo(dtype).eps)
    for budget in (1.0, 0.7, 3.3):
        whole = float(c.ExPostFilter(budget).budget)
        for shares in ([0.25] * 4, [0.5, 0.25, 0.125, 0.125], [2.0**-20] * 3 + [0.75]):
            filter = c.ExPostFilter(budget, 0.5)
            state = filter.init()
            for share in shares:
                state = granted(filter.take(state, c.ExPost(share * whole, share / 2)))
            left = whole * (1 - sum(shares))
            assert filter.remaining(state) <= left
            assert not filter.admits(state, c.ExPost(left + 4 * least))
            assert not filter.admits(state, c.ExPost(0.0, (1 - sum(shares)) / 2 + least))
    filter = c.ExPostFilter(1.0, 0.5)
    halves = (c.ExPost(0.5, 0.25), c.ExPost(0.5, 0.25))
    assert filter.cost(halves) == 1
    assert filter.admits(filter.init(), halves)
    for request in ((c.ExPost(1 / 3),) * 3, (c.ExPost(1.0), c.ExPost(1e-20))):
        true = sum(Fraction(one.epsilon) for one in request)
        assert exact.rational(filter.cost(request)) >= true
    # The float next to 0.1 is larger, so only nine fit; what they leave is nearly a tenth.
    state, admitted = filter.init(), []
    for _ in range(10):
        state, ok = filter.take(state, c.ExPost(0.1))
        admitted.append(bool(ok))
    assert admitted == [True] * 9 + [False]
    assert filter.take(state, c.ExPost(filter.remaining(state)))[1]


def test_smallest_costs_count(dtype):
    """A cost below `least_cost`, even a subnormal one, counts as `least_cost`."""
    least, tiny = _state.least_cost(dtype), float(jnp.finfo(dtype).tiny)
    small = jnp.asarray(np.nextafter(np.asarray(0, dtype), np.asarray(1, dtype)))
    filter = c.ExPostFilter(1.0)
    for request in (c.ExPost(small), c.ExPost(tiny / 8), c.ExPost(least / 2)):
        assert filter.cost(request) == jax.jit(filter.cost)(request) == least
        assert filter.take(filter.init(), request)[0].spent.total[0] == least
    assert not filter.admits(filter.init(), c.ExPost(0.1, small))
    assert filter.cost(c.ExPost(0.0)) == 0


def test_admitted_compiled_and_spent_eagerly():
    """Compiled and eager costs may differ in the last places: what was admitted can be spent."""
    rng = np.random.default_rng(3)
    for filter in (c.RenyiFilter(60.0, 5.0, 1e-6), c.GaussianFilter(5.0, 1e-6)):
        admits = jax.jit(filter.admits)
        smallest = jax.jit(lambda s, x, f=filter: f.smallest_time(s, c.BrownianReduction, x))
        for size in rng.uniform(0.5, 2.0, 4):
            state, _ = filter.take(filter.init(), c.BrownianReduction(1.0, 30.0 * size))
            time = smallest(state, size)
            eps = float(jnp.finfo(time.dtype).eps)
            for place in range(-40, 20, 5):
                request = c.BrownianReduction(jnp.asarray(size), time * (1 + place * eps))
                if admits(state, request):
                    after = granted(filter.spend(state, request))
                    assert filter.remaining(after) <= 1e-4 * filter.budget
            # Beyond that tolerance it is refused.
            refused(filter.spend(state, c.BrownianReduction(size, time * (1 - 300 * eps))))


@of_name(LONE)
def test_budget_is_never_more_than_epsilon_buys(case):
    rng = np.random.default_rng(2)
    epsilons, deltas = 10 ** rng.uniform(-0.5, 1.5, 8), 10 ** rng.uniform(-9, -2, 8)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        filter = case.build(epsilon, delta)
        assert float(np.asarray(filter.budget, jnp.result_type(float))) == filter.budget
        budget = mp.mpf(filter.budget)
        if case is GAUSSIAN:
            assert exact.delta_of_gdp(mp.sqrt(budget), epsilon) <= delta
            assert exact.delta_of_gdp(mp.sqrt(budget * (1 + 1e-6)), epsilon) > delta
            continue
        bought = budget
        if case is RENYI:
            bought = budget + exact.premium(filter.order, delta)
        elif case is not EX_POST:
            left = mp.mpf(delta) - mp.mpf(float(filter.approximation))
            bought = exact.epsilon_of_zcdp(budget, left, filter.conversion)
        assert mp.mpf(epsilon) * (1 - 1e-6) < bought <= epsilon


def test_planted_cast_of_the_budget_is_found(monkeypatch):
    monkeypatch.setattr(filters.costs, "cast_down", lambda value, dtype: float(np.float32(value)))
    with pytest.raises(AssertionError):
        test_budget_is_never_more_than_epsilon_buys(ZCDP_CASE)
