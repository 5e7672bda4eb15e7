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

from nrjax.composition import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    ExPost,
    ExPostFilter,
    GaussianFilter,
    LaplaceMechanism,
    LaplaceReduction,
    RenyiFilter,
    UnifiedFilter,
    ZCDPFilter,
    _filter,
    _spending,
    _state,
    zcdp,
)
from tests.composition import exact
from tests.composition.cases import stack

pytestmark = pytest.mark.numerical

SPENDS = 1500
BUDGETS = ((10.0, 1e-6), (0.3, 1e-9), (7.1, 0.01))

FILTERS = {
    "zcdp": lambda e, d: ZCDPFilter(e, d, 0.3 * d),
    "unified": lambda e, d: UnifiedFilter(e, d, 0.3 * d, conversion="renyi"),
    "gaussian": GaussianFilter,
    "renyi": lambda e, d: RenyiFilter(80.0, e, d),
    "ex-post": ExPostFilter,
}
names = pytest.mark.parametrize("name", FILTERS)


def request_of(name, x, share):
    """A request of about the size x, in the filter's currency, and a delta of its own."""
    if name == "ex-post":
        return ExPost(x, share)
    if name == "gaussian":
        return BrownianReduction(1.0, 2 / x), GDP(jnp.sqrt(0.5 * x))
    if name == "zcdp":
        return ZCDP(0.5 * x, share), GDP(jnp.sqrt(0.5 * x)), BoundedRange(jnp.sqrt(2 * x))
    if name == "unified":
        return ZCDP(0.5 * x, share), BrownianReduction(1.5, 2.25 / x)
    return ExPost(0.25 * x), ZCDP(x / 320), BrownianReduction(1.0, 80 / x)


def exact_costs(name, order, request):
    """The exact costs of a request: in the currency, and its deltas."""
    square = {"gaussian": Fraction(1)}.get(name, Fraction(1, 2))
    scale = exact.rational(order) if name == "renyi" else Fraction(1)
    total, deltas = [], []
    for one in request if isinstance(request, tuple) else (request,):
        number = {field: exact.rational(value) for field, value in vars(one).items()}
        deltas.append(number.get("delta", Fraction(0)))
        if isinstance(one, ExPost):
            total.append(number["epsilon"])
        elif isinstance(one, ZCDP):
            total.append(scale * number["rho"])
        elif isinstance(one, GDP):
            total.append(scale * square * number["mu"] ** 2)
        elif isinstance(one, BoundedRange):
            total.append(scale * number["epsilon"] ** 2 / 8)
        else:
            total.append(scale * square * number["sensitivity"] ** 2 / number["time"])
    return total, deltas


def run(name, filters, keys):
    """Spend at random, in four manners by turns, for each of the stacked filters.

    Many small ones; any magnitude; what is just about left; numbers near the smallest one.

    Returns:
        The requests, whether each was accepted, the last state and what remains.
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
            request = request_of(name, jnp.maximum(sizes[manner], 1e3 * tiny), share)
            state, accepted = filter.take(state, request)
            return state, (request, accepted)

        inputs = jnp.arange(SPENDS), jax.random.split(key, SPENDS)
        state, (requests, accepted) = jax.lax.scan(step, filter.init(), inputs)
        return requests, accepted, state, filter.remaining(state)

    return jax.jit(jax.vmap(one))(filters, keys)


def audit(name, filters, result):
    """Assert that nothing was overspent, and return the least share of a budget that was used."""
    requests, accepted, state, left = jax.tree.map(np.asarray, result)
    used = []
    for lane in range(accepted.shape[0]):
        single = jax.tree.map(lambda x, lane=lane: x[lane], filters)
        costs, deltas = [], []
        for number in np.nonzero(accepted[lane])[0]:
            request = jax.tree.map(lambda x, lane=lane, n=number: x[lane, n], requests)
            cost, delta = exact_costs(name, single.__dict__.get("order", 1), request)
            costs += cost
            deltas += delta
        spent, budget = exact.ceiling_sum(costs), exact.rational(single.budget)
        assert spent <= budget, f"overspent by {float(spent / budget - 1):.2e}"
        assert spent + exact.rational(left[lane]) <= budget
        limit = {"zcdp": "approximation", "unified": "approximation", "ex-post": "delta"}.get(name)
        if limit:
            share = exact.rational(getattr(single, limit))
            assert exact.ceiling_sum(deltas) <= share
            assert sum(exact.rational(part[lane, 1]) for part in state.spent) <= share
        total = sum(exact.rational(part[lane, 0]) for part in state.spent)
        assert spent <= total
        assert accepted[lane].sum() > SPENDS // 2
        used.append(float(spent / budget))
        # What rounding, of costs too, has lost.
        assert float((total - spent) / budget) < 100 * float(jnp.finfo(left.dtype).eps)
    return min(used)


def cases(name):
    filters = stack([FILTERS[name](e, d) for e, d in BUDGETS])
    return filters, jax.random.split(jax.random.key(3), len(BUDGETS))


@names
def test_never_overspent(name):
    filters, keys = cases(name)
    used = audit(name, filters, run(name, filters, keys))
    assert used > 1 - 1e-5  # and what just fits is let through


def test_planted_plain_sum_is_found(monkeypatch):
    def plain(spending, cost):
        return _spending.Spending(spending.total + cost, spending.rest)

    monkeypatch.setattr(_state, "add", plain)
    filters, keys = cases("ex-post")
    with pytest.raises(AssertionError, match="overspent"):
        audit("ex-post", filters, run("ex-post", filters, keys))


def test_planted_rounding_of_costs_is_found(monkeypatch):
    """Costs rounded to the nearest number: their exact sum is then above the filter's."""
    for module in (_filter, zcdp):
        monkeypatch.setattr(module, "enlarged", lambda value, dtype: jnp.asarray(value, dtype))
    monkeypatch.setattr(zcdp, "cost", lambda raw, argument, ulps: raw)
    filters, keys = cases("zcdp")
    with pytest.raises(AssertionError):
        audit("zcdp", filters, run("zcdp", filters, keys))


def test_little_is_lost_by_adding(dtype):
    """Ten thousand numbers of any magnitude, which are in the dtype as they are."""
    rng = np.random.default_rng(4)
    costs = (10 ** rng.uniform(-12, 0, 10_000)).astype(dtype)
    add = jax.jit(lambda s, c: jax.lax.scan(lambda s, c: (_spending.add(s, c), None), s, c)[0])
    total = sum(exact.rational(x) for x in add(_spending.nothing(dtype), costs))
    true = sum(exact.rational(x) for x in costs)
    assert true <= total <= true * (1 + Fraction(1e-9 if dtype == jnp.float32 else 1e-26))


def test_one_call_at_a_time(dtype):
    """The same from plain Python, with Python's numbers, which have more digits."""
    rng = np.random.default_rng(1)
    filter = ExPostFilter(1.0, 1e-6)
    state = filter.init()
    spent, shares = Fraction(0), Fraction(0)
    for size in [0.3, 1e-50, *(0.09 * rng.random(12)), 1e-9, 0.1, 0.01]:
        state, accepted = filter.take(state, ExPost(float(size), 1e-7 * float(size)))
        if accepted:
            spent += Fraction(float(size))
            shares += Fraction(1e-7 * float(size))
    assert spent > Fraction(9, 10)
    assert spent <= 1
    left = float(filter.remaining(state))
    assert spent + Fraction(left) <= 1
    assert shares <= Fraction(1e-6)
    state, accepted = filter.take(state, ExPost(filter.remaining(state)))
    assert accepted
    assert not filter.admits(state, ExPost(1e-5))
    assert not filter.admits(state, ExPost(float(jnp.finfo(dtype).eps) * 4))


def test_what_is_left_fits(dtype):
    """A request for all that remains is accepted, no more than that, and then nothing remains."""
    for filter, kind in ((ZCDPFilter(3.0, 1e-5), ZCDP), (ExPostFilter(3.0), ExPost)):
        more = float(np.nextafter(np.asarray(filter.budget, dtype), np.asarray(9, dtype)))
        assert filter.admits(filter.init(), kind(filter.budget))
        assert not filter.admits(filter.init(), kind(more))
        for first in (0.0, 1e-3, 0.7):
            state, _ = filter.take(filter.init(), kind(first * filter.budget))
            state, accepted = filter.take(state, kind(filter.remaining(state)))
            assert accepted
            assert filter.remaining(state) <= 1e-5 * filter.budget


def test_exact_shares(dtype):
    """Where the numbers are in the dtype and so is their sum, all of the budget can be had."""
    for shares in ([0.25] * 4, [0.125] * 8, [0.5, 0.25, 0.125, 0.125], [2.0**-20] * 3 + [0.75]):
        filter = ExPostFilter(1.0, 0.5)
        state = filter.init()
        for share in shares:
            state, accepted = filter.take(state, ExPost(share, share / 2))
            assert accepted
        left, least = 1 - sum(shares), float(jnp.finfo(dtype).eps)
        assert filter.remaining(state) <= left
        assert not filter.admits(state, ExPost(left + least))
        assert not filter.admits(state, ExPost(0.0, left / 2 + least))
    # Ten of the double next to 0.1 are more than 1; nine leave a little less than a tenth.
    assert 10 * Fraction(0.1) > 1
    filter = ExPostFilter(1.0)
    state = filter.init()
    accepted = []
    for _ in range(10):
        state, ok = filter.take(state, ExPost(0.1))
        accepted.append(bool(ok))
    assert accepted == [True] * 9 + [False]
    assert filter.take(state, ExPost(filter.remaining(state)))[1]


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
    for filter in (RenyiFilter(60.0, 5.0, 1e-6), GaussianFilter(5.0, 1e-6)):
        admits = jax.jit(filter.admits)
        smallest = jax.jit(lambda s, x, f=filter: f.smallest_time(s, BrownianReduction, x))
        asked = 0
        for size in rng.uniform(0.5, 2.0, 12):
            state, _ = filter.take(filter.init(), BrownianReduction(1.0, 30.0 * size))
            time = smallest(state, size)
            for place in range(-40, 20, 4):
                request = BrownianReduction(
                    size, time * (1 + place * float(jnp.finfo(time.dtype).eps))
                )
                request = jax.tree.map(jnp.asarray, request)
                if admits(state, request):
                    asked += not filter.admits(state, request)
                    after, accepted = filter.spend(state, request)
                    assert accepted
                    assert filter.remaining(after) <= 1e-4 * filter.budget
        print(f"{type(filter).__name__}: {asked} admitted by the one and not by the other")


def exact_epsilon(name, filter):
    """Epsilon that a budget stands for, to 40 digits."""
    budget, delta = mp.mpf(float(filter.budget)), mp.mpf(float(filter.delta))
    if name == "ex-post":
        return budget
    if name == "renyi":
        return budget + exact.premium(float(filter.order), delta)
    left = delta - mp.mpf(float(filter.approximation))
    return exact.epsilon_of_zcdp(budget, left, filter.conversion)


def assert_budget(name, epsilon, delta):
    filter = FILTERS[name](epsilon, delta)
    assert float(np.asarray(filter.budget, jnp.result_type(float))) == filter.budget
    if name == "gaussian":
        assert exact.delta_of_gdp(mp.sqrt(filter.budget), epsilon) <= delta
        assert exact.delta_of_gdp(mp.sqrt(filter.budget * (1 + 1e-6)), epsilon) > delta
        return
    assert mp.mpf(epsilon) * (1 - 1e-6) < exact_epsilon(name, filter) <= epsilon


def settings(n):
    rng = np.random.default_rng(2)
    return zip(10 ** rng.uniform(-0.5, 1.5, n), 10 ** rng.uniform(-9, -2, n), strict=True)


@names
def test_budget_is_never_more_than_epsilon_buys(name):
    for epsilon, delta in settings(8):
        assert_budget(name, epsilon, delta)


def test_planted_cast_of_the_budget_is_found(monkeypatch):
    monkeypatch.setattr(_filter, "rounded_down", lambda value, dtype: float(np.float32(value)))
    with pytest.raises(AssertionError):
        test_budget_is_never_more_than_epsilon_buys("zcdp")


@pytest.mark.parametrize("kind", [LaplaceReduction, LaplaceMechanism])
def test_times_whose_reciprocal_is_subnormal_are_refused(kind, dtype):
    """As constants of a program; XLA multiplies by what it takes for their reciprocal."""
    large = jnp.asarray(0.9 * float(jnp.finfo(dtype).max), dtype)
    filter = ExPostFilter(0.5)
    take = jax.jit(lambda state, s: filter.take(state, kind(s, large))[1])
    assert not take(filter.init(), large)
    time = filter.smallest_time(filter.init(), LaplaceReduction, large)
    assert time == jnp.inf


def test_subnormal_costs_count(dtype):
    """XLA takes them for 0; a filter takes them for the smallest normal number."""
    limits = jnp.finfo(dtype)
    small = jnp.asarray(np.nextafter(np.asarray(0, dtype), np.asarray(1, dtype)))
    filter = ExPostFilter(1.0)
    for request in (ExPost(small), ExPost(float(limits.tiny) / 8)):
        assert filter.cost(request) >= limits.tiny
        assert filter.take(filter.init(), request)[0].spent.total[0] > 0
        assert jax.jit(filter.cost)(request) >= limits.tiny
    assert not filter.admits(filter.init(), ExPost(0.1, small))
    assert filter.cost(ExPost(0.0)) == 0
