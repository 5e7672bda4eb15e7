"""No filter is ever overspent by rounding: exact rationals over random sequences of spends.

What a filter accepted is added up exactly, and held against its budget. That budgets are at most
what epsilon and delta allow is checked to 40 digits.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax import composition as c
from nrjax.composition import _prices, _spending, _state, filters
from tests.composition import exact
from tests.composition.cases import LONE, granted, of_name, stack

pytestmark = pytest.mark.numerical

SPENDS = 1500
BUDGETS = ((10.0, 1e-6), (0.3, 1e-9), (7.1, 0.01))
ZCDP_CASE, UNIFIED, GAUSSIAN, RENYI, EX_POST = LONE


def request_of(case, x, share):
    """A request of about the size x, in the filter's currency, and a delta of its own."""
    if case is EX_POST:
        return (c.ExPost(x, share),)
    return c.ZCDP(0.5 * x, share), c.GDP(jnp.sqrt(0.5 * x)), c.BoundedRange(jnp.sqrt(2 * x))


def run(case):
    """Spend at random, in four manners by turns, for each of some filters.

    Many small ones; any magnitude; what is just about left; numbers near the smallest one.

    Returns:
        The filters, the requests, whether each was accepted, the last state and what remains.
    """

    def one(filter, key):
        tiny = float(jnp.finfo(jnp.asarray(filter.budget).dtype).tiny)

        def step(state, inputs):
            number, key = inputs
            first, second, third = jax.random.uniform(key, (3,))
            left = filter.remaining(state)
            near = left * (1 + jnp.round(8 * second - 4) * jnp.finfo(left.dtype).eps)
            sizes = jnp.stack(
                [
                    filter.budget * 2 * first / SPENDS,
                    filter.budget * 10 ** (-2 - 25 * first),
                    jnp.where(third < 0.5, 0.02 * left * first, near),
                    # Not so near for a time, and for a share of it: these must be finite.
                    jnp.asarray((1e3 + 1e4 * first) * tiny, left.dtype),
                ]
            )
            # What just fits leaves nothing for others: late, and rarely.
            late = (number > 0.9 * SPENDS) & (second < 0.2)
            manner = jnp.where(late, 2, jnp.asarray([0, 0, 1, 3])[number % 4])
            share = 0.3 * filter.delta * jnp.where(third < 0.1, 1e-30, 2 * third / SPENDS)
            request = request_of(case, jnp.maximum(sizes[manner], 1e3 * tiny), share)
            state, accepted = filter.take(state, request)
            return state, (request, accepted)

        inputs = jnp.arange(SPENDS), jax.random.split(key, SPENDS)
        state, (requests, accepted) = jax.lax.scan(step, filter.init(), inputs)
        return requests, accepted, state, filter.remaining(state)

    filters = stack([case.build(*budget) for budget in BUDGETS])
    keys = jax.random.split(jax.random.key(3), len(BUDGETS))
    return jax.tree.map(np.asarray, (filters, *jax.jit(jax.vmap(one))(filters, keys)))


def audit(case):
    """Assert that nothing was overspent, and return the least share of a budget that was used."""
    result, used = run(case), []
    for lane in range(len(BUDGETS)):
        filter, requests, accepted, state, left = jax.tree.map(lambda x, n=lane: x[n], result)
        costs, deltas = [], []
        for part in requests:
            sizes, *shares = (column[accepted] for column in jax.tree.leaves(part))
            costs += [case.costs[type(part)](exact.rational(size)) for size in sizes]
            deltas += [exact.rational(share) for column in shares for share in column]
        spent, budget = exact.ceiling_sum(costs), exact.rational(filter.budget)
        # "inf{n: rho = sum}" (Rogers 2023, Theorem 6) does not happen.
        assert spent < budget, f"overspent by {float(spent / budget - 1):.2e}"
        assert spent + exact.rational(left) <= budget
        share = exact.rational(getattr(filter, case.share))
        assert exact.ceiling_sum(deltas) <= share
        assert sum(exact.rational(part[1]) for part in state.spent) <= share
        total = sum(exact.rational(part[0]) for part in state.spent)
        assert spent <= total
        assert accepted.sum() > SPENDS // 2
        used.append(float(spent / budget))
        # What rounding, of costs too, has lost.
        assert float((total - spent) / budget) < 100 * float(jnp.finfo(left.dtype).eps)
    return min(used)


@of_name((ZCDP_CASE, EX_POST))
def test_never_overspent(case):
    assert audit(case) > 1 - 1e-5  # and what just fits is let through


def test_planted_plain_sum_is_found(monkeypatch):
    def plain(spending, cost):
        return _spending.Spending(spending.total + cost, spending.rest)

    monkeypatch.setattr(_state, "add", plain)
    with pytest.raises(AssertionError, match="overspent"):
        audit(EX_POST)


def test_planted_rounding_of_costs_is_found(monkeypatch):
    """Costs rounded to the nearest number: their exact sum is then above the filter's."""
    monkeypatch.setattr(_prices, "enlarged", lambda value, dtype: jnp.asarray(value, dtype))
    monkeypatch.setattr(_prices, "cost", lambda raw, argument, ulps: raw)
    with pytest.raises(AssertionError):
        audit(ZCDP_CASE)


def test_little_is_lost_by_adding(dtype):
    """Ten thousand numbers of any magnitude, which are in the dtype as they are."""
    rng = np.random.default_rng(4)
    costs = (10 ** rng.uniform(-12, 0, 10_000)).astype(dtype)
    total = jax.jit(_spending.add_all)(_spending.nothing(dtype), costs)
    total, true = (sum(exact.rational(x) for x in each) for each in (total, costs))
    assert true <= total <= true * (1 + Fraction(1e-9 if dtype == jnp.float32 else 1e-26))


def test_one_call_at_a_time(dtype):
    """The same from plain Python, with Python's numbers, which have more digits."""
    rng = np.random.default_rng(1)
    filter = c.ExPostFilter(1.0, 1e-6)
    state = filter.init()
    spent, shares = Fraction(0), Fraction(0)
    for size in [0.3, 1e-50, *(0.09 * rng.random(12)), 1e-9, 0.1, 0.01]:
        state, accepted = filter.take(state, c.ExPost(float(size), 1e-7 * float(size)))
        if accepted:
            spent += Fraction(float(size))
            shares += Fraction(1e-7 * float(size))
    assert Fraction(9, 10) < spent <= 1 - Fraction(float(filter.remaining(state)))
    assert shares <= Fraction(1e-6)
    state = granted(filter.take(state, c.ExPost(filter.remaining(state))))
    assert not filter.admits(state, c.ExPost(float(jnp.finfo(dtype).eps) * 4))


@pytest.mark.parametrize("kept", [0.0, 4e-7])
def test_what_is_left_fits(dtype, kept):
    """A request for all that remains is accepted, no more than that, and then nothing remains.

    So is one for all that remains of delta, of which the conversion lacks what is kept for it.
    """
    zcdp, plain = c.ZCDPFilter(3.0, 1e-6, kept), c.ZCDPFilter(3.0, 1e-6 - kept)
    assert zcdp.budget == pytest.approx(plain.budget, rel=1e-6)
    for filter, kind in ((zcdp, c.ZCDP), (c.ExPostFilter(3.0, kept), c.ExPost)):
        more = float(np.nextafter(np.asarray(filter.budget, dtype), np.asarray(9, dtype)))
        assert filter.admits(filter.init(), kind(filter.budget))
        assert not filter.admits(filter.init(), kind(more))
        for first in (0.0, 1e-3, 0.7):
            state, _ = filter.take(filter.init(), kind(first * filter.budget, first * kept))
            left, share = filter.remaining(state), filter.remaining_delta(state)
            assert share == pytest.approx((1 - first) * kept, rel=1e-5)
            assert not filter.admits(state, kind(left, share + 1e-10))
            state = granted(filter.take(state, kind(left, share)))
            assert filter.remaining(state) <= 1e-5 * filter.budget


def test_exact_shares(dtype):
    """Where the numbers are in the dtype and so is their sum, all of the budget can be had."""
    least = float(jnp.finfo(dtype).eps)
    for shares in ([0.25] * 4, [0.5, 0.25, 0.125, 0.125], [2.0**-20] * 3 + [0.75]):
        filter = c.ExPostFilter(1.0, 0.5)
        state = filter.init()
        for share in shares:
            state = granted(filter.take(state, c.ExPost(share, share / 2)))
        left = 1 - sum(shares)
        assert filter.remaining(state) <= left
        assert not filter.admits(state, c.ExPost(left + least))
        assert not filter.admits(state, c.ExPost(0.0, left / 2 + least))
    # In one request alike; and what is not exact is still rounded up.
    halves = (c.ExPost(0.5, 0.25), c.ExPost(0.5, 0.25))
    assert filter.cost(halves) == 1
    assert filter.admits(filter.init(), halves)
    assert filter.open(filter.init(np.int64(2)), halves)[2]
    for request in ((c.ExPost(1 / 3),) * 3, (c.ExPost(1.0), c.ExPost(1e-20))):
        true = sum(Fraction(one.epsilon) for one in request)
        assert exact.rational(filter.cost(request)) >= true
    # Ten of the double next to 0.1 are more than 1; nine leave a little less than a tenth.
    state, accepted = filter.init(), []
    for _ in range(10):
        state, ok = filter.take(state, c.ExPost(0.1))
        accepted.append(bool(ok))
    assert accepted == [True] * 9 + [False]
    assert filter.take(state, c.ExPost(filter.remaining(state)))[1]


def test_exact_sums_near_the_smallest_numbers(dtype):
    """An error that is subnormal would be taken for none."""
    limits = jnp.finfo(dtype)
    tiny, eps = float(limits.tiny), float(limits.eps)
    for size in (tiny, tiny / eps / 4, tiny / eps, 8 * tiny / eps):
        for more in (tiny * (1 + eps), 3 * tiny, max(tiny, size * (1 + eps) / 2)):
            spent = _spending.add(_spending.nothing(dtype), jnp.asarray(size, dtype))
            total = _spending.add(spent, jnp.asarray(more, dtype))
            true = sum(exact.rational(dtype.type(number)) for number in (size, more))
            assert sum(exact.rational(part) for part in total) >= true


def test_asked_compiled_and_spent_eagerly():
    """Compiled and plain prices differ in the last places: what was admitted is accepted."""
    rng = np.random.default_rng(3)
    for filter in (c.RenyiFilter(60.0, 5.0, 1e-6), c.GaussianFilter(5.0, 1e-6)):
        admits = jax.jit(filter.admits)
        smallest = jax.jit(lambda s, x, f=filter: f.smallest_time(s, c.BrownianReduction, x))
        asked = 0
        for size in rng.uniform(0.5, 2.0, 5):
            state, _ = filter.take(filter.init(), c.BrownianReduction(1.0, 30.0 * size))
            time = smallest(state, size)
            eps = float(jnp.finfo(time.dtype).eps)
            for place in range(-40, 20, 4):
                request = c.BrownianReduction(jnp.asarray(size), time * (1 + place * eps))
                if admits(state, request):
                    asked += not filter.admits(state, request)
                    after = granted(filter.spend(state, request))
                    assert filter.remaining(after) <= 1e-4 * filter.budget
        print(f"{type(filter).__name__}: {asked} admitted by the one and not by the other")


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
    monkeypatch.setattr(filters, "rounded_down", lambda value, dtype: float(np.float32(value)))
    with pytest.raises(AssertionError):
        test_budget_is_never_more_than_epsilon_buys(ZCDP_CASE)


def test_subnormal_costs_count(dtype):
    """XLA takes them for 0; a filter takes them for the smallest normal number."""
    limits = jnp.finfo(dtype)
    small = jnp.asarray(np.nextafter(np.asarray(0, dtype), np.asarray(1, dtype)))
    filter = c.ExPostFilter(1.0)
    for request in (c.ExPost(small), c.ExPost(float(limits.tiny) / 8)):
        assert filter.cost(request) >= limits.tiny
        assert filter.take(filter.init(), request)[0].spent.total[0] > 0
        assert jax.jit(filter.cost)(request) >= limits.tiny
    assert not filter.admits(filter.init(), c.ExPost(0.1, small))
    assert filter.cost(c.ExPost(0.0)) == 0
