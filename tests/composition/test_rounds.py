"""Rounds that are open at the same time: exact rationals over random calls, and handles.

What is added up, after every call, is what was published: the costs of closed rounds, and the
largest admitted release of each open one. That must be within the budget with probability 1.
"""

import dataclasses
import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax import composition as c
from nrjax.composition._state import LedgerState, Round
from tests.composition.cases import (
    FILTERS,
    REDUCTIONS,
    SMALL,
    assert_same,
    each_filter,
    granted,
    of_name,
    refused,
    stack,
)
from tests.composition.exact import rational

pytestmark = pytest.mark.numerical

PLACES, STEPS, LANES = 4, 300, 3
OPEN, REWIND, CLOSE, TAKE, SPEND = range(5)
EPSILON, DELTA = 3.0, 1e-3


def _with_handle(result, handle):
    """Return what a call returned, with the number of its own handle or of the given one."""
    state, *opened, ok = result
    return state, (opened[0] if opened else handle).number, ok


def _spend_if_admitted(filter, state, request):
    ok = filter.admits(state, request)
    after, paid = filter.spend(state, request)
    return jax.tree.map(lambda new, old: jnp.where(ok, new, old), after, state), ok & paid


def play(filter, key):
    """Open, rewind, close, take and spend at random, as in private tests.

    Returns:
        The call of each step (which, of which round, epsilon, delta), and whether it was admitted.
    """

    def step(carry, key):
        state, numbers, reserved = carry
        first, second, third, fourth = jax.random.uniform(key, (4,))
        place = (first * PLACES).astype(jnp.int32)
        handle = Round(numbers[place], (None,), (c.ExPost,))
        busy = numbers[place] > 0
        # A free place is opened, and an open round is rewound twice as often as closed.
        call = jnp.where(busy, OPEN + 1 + (second > 0.7), OPEN)
        call = jnp.where(second < 0.1, TAKE + (second < 0.05), call)
        left = filter.remaining(state, handle)
        size = left * jnp.where(fourth < 0.7, 0.3 * third, jnp.where(fourth < 0.9, 1.0, 1.01))
        size = jnp.where(call == CLOSE, reserved[place] * jnp.where(third < 0.5, 0.5, 1.0), size)
        size = jnp.where(call >= TAKE, 0.1 * size, size)
        delta = jnp.where(call >= TAKE, 0, DELTA * 0.05 * fourth)
        calls = (
            lambda state: filter.open(state, c.ExPost(size, delta)),
            lambda state: filter.rewind(state, handle, c.ExPost(size)),
            lambda state: filter.close(state, handle, c.ExPost(size)),
            lambda state: filter.take(state, c.ExPost(size)),
            lambda state: _spend_if_admitted(filter, state, c.ExPost(size)),
        )
        branches = [lambda state, f=f: _with_handle(f(state), handle) for f in calls]
        state, number, ok = jax.lax.switch(call, branches, state)
        number = jnp.where(call == CLOSE, 0, number)
        largest = jnp.where(call == OPEN, size, jnp.maximum(reserved[place], size))
        reserved = reserved.at[place].set(jnp.where(ok & (call < CLOSE), largest, reserved[place]))
        return (state, numbers.at[place].set(number), reserved), (call, place, size, delta, ok)

    zero = jnp.zeros(PLACES, filter._dtype())
    start = filter.init(PLACES), jnp.zeros(PLACES, jnp.int32), zero
    return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]


@functools.cache
def games(kind):
    """The calls under an ex-post filter of a kind, and whether they were admitted, per lane."""
    filter, keys = kind(EPSILON, DELTA), jax.random.split(jax.random.key(5), LANES)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key: play(filter, key)))(keys))


def audit(lanes, early=False):
    """Return the largest fraction of the budget that was out at any time.

    With `early`, refunds are computed before the last release of a round.
    """
    largest = Fraction(0)
    for lane in range(LANES):
        spent, deltas, open_now = Fraction(0), Fraction(0), {}
        for call, place, size, delta, ok in zip(*(part[lane] for part in lanes), strict=True):
            if call == CLOSE:
                assert ok  # what was admitted can be closed
                published = open_now.pop(int(place))
                spent += published if early else rational(size)
            elif ok and call >= TAKE:
                spent += rational(size)
            elif ok:
                open_now[int(place)] = max(open_now.get(int(place), 0), rational(size))
                deltas += rational(delta) if call == OPEN else 0
            total = spent + sum(open_now.values())
            largest = max(largest, total / Fraction(EPSILON), deltas / Fraction(DELTA))
    return largest


def test_no_order_of_calls_overspends():
    calls, *_, ok = games(c.ExPostFilter)
    assert np.all(np.bincount(calls[ok], minlength=5) > 0)
    assert np.all(np.bincount(calls[~ok & (calls != CLOSE)], minlength=5)[[OPEN, REWIND]] > 0)
    largest = audit(games(c.ExPostFilter))
    assert 1 - 1e-4 < largest <= 1


class _Lowering(c.ExPostFilter):
    def rewind(self, state, round, request):
        """Reserve the last cost, not the largest."""
        after, ok = super().rewind(state, round, request)
        own = (state.number == round.number) & ok
        cost = self._sum(request, state.spent.total.dtype).at[1].set(state.reserved[0, 1])
        return after.with_round(own, round.number, cost), ok


class _RefundingDeltas(c.ExPostFilter):
    def _refunded(self):
        return jnp.asarray((True, True))

    def close(self, state, round, request):
        return super().close(state, round, c.ExPost(request.epsilon))


@pytest.mark.long
def test_planted_faults_are_found(monkeypatch):
    """Refunds before the last release, refunded deltas, and reservations that are not counted."""
    assert audit(games(c.ExPostFilter), early=True) > 1.1
    assert audit(games(_RefundingDeltas)) > 1.1
    monkeypatch.setattr(LedgerState, "committed", lambda state, spent, own=None: spent)
    assert audit(games.__wrapped__(c.ExPostFilter)) > 1.5


def test_planted_lowered_reservations_are_found():
    """A cheaper rewind sets nothing free: the more expensive release is published."""
    for kind, overspends in ((c.ExPostFilter, False), (_Lowering, True)):
        filter = kind(1.0, 0.1)
        state, first, _ = filter.open(filter.init(2), c.ExPost(0.5))
        state, _ = filter.rewind(state, first, c.ExPost(0.9))
        state, _ = filter.rewind(state, first, c.ExPost(0.1))
        assert bool(filter.admits(state, c.ExPost(0.5))) == overspends


@of_name((FILTERS[2], FILTERS[-1]))
def test_handles(case):
    """Handles of open, closed and refused rounds."""
    filter = case.build(10.0, 1e-6)
    request = (SMALL[case.kinds[0]], SMALL[case.kinds[-1]])
    start = filter.init(rounds=2)
    one, first, opened = filter.open(start, request)
    two, second, also = filter.open(one, request)
    full, third, none = filter.open(two, request)
    three, again = filter.rewind(full, first, request)
    four, closed = filter.close(three, first, request)
    five, fourth, reopened = jax.jit(filter.open)(four, request)
    _, stale = filter.rewind(five, first, request)
    lost, twice = filter.close(five, first, request)
    unopened, _ = filter.close(full, third, ())
    assert np.all([opened, also, not none, again, closed, reopened, not stale, not twice])
    assert [int(round.number) for round in (first, second, third, fourth)] == [1, 2, 0, 3]
    # A round reserves its cost, which is spent when it is closed; the second time, nothing is left.
    cost, whole = np.asarray(filter.cost(request)), np.asarray(filter.remaining(start))
    for state, times in zip((one, two, full, three, four, five), (1, 2, 2, 2, 2, 3), strict=True):
        left = np.asarray(filter.remaining(state))
        np.testing.assert_allclose(whole - left, times * cost, rtol=1e-3, atol=1e-5)
    assert np.all(np.asarray(filter.remaining(lost)) == 0)
    assert_same(full, unopened)
    # A round that does not fit is not opened.
    same, handle, opened = filter.open(one, c.Pure(1e6))
    assert not opened
    assert handle.number == 0
    assert_same(same, one)


def test_a_rewind_may_use_its_own_reservation():
    """A reservation is left for the rewinds of its round, also in smallest times."""
    filter = c.GaussianFilter(10.0, 1e-6)
    state, one, _ = filter.open(filter.init(2), c.BrownianReduction(1.0, 1.0))
    for _ in range(3):
        time = filter.smallest_time(state, c.BrownianReduction, 1.0, one)
        state = granted(filter.rewind(state, one, c.BrownianReduction(1.0, time)))
        assert not filter.rewind(state, one, c.BrownianReduction(1.0, time * (1 - 1e-4)))[1]
        assert filter.smallest_time(state, c.BrownianReduction) > 1e4 * time
    # A cheaper rewind is admitted, and lowers nothing.
    after = granted(filter.rewind(state, one, c.BrownianReduction(1.0, 2.0)))
    assert_same(after, state)
    state = granted(filter.close(state, one, c.BrownianReduction(1.0, 1.0)))
    assert filter.remaining(state) == pytest.approx(filter.budget - 1, rel=1e-5)


def test_one_state_and_one_handle_at_a_time():
    filter, request = c.GaussianFilter(10.0, 1e-6), SMALL[c.BrownianReduction]
    state, one, _ = filter.open(filter.init(2), request)
    state, two, _ = filter.open(state, request)
    both, several = stack([one, two]), stack([state, state])
    for call, match in (
        (lambda: filter.rewind(state, both, request), r"round must be one handle; `vmap`"),
        (lambda: filter.close(state, both, request), r"round must be one handle; `vmap`"),
        (lambda: filter.open(several, request), r"state must be a single one; `vmap`"),
        (lambda: filter.open(filter.init(), request), r"state must be from init\(rounds=\.\."),
        (lambda: filter.init(-1), "rounds must be an integer, at least 0"),
        (lambda: filter.init(1.5), "rounds must be an integer, at least 0"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


ORDER, CAP = 4.0, 0.25
CAPPED = c.RenyiFilter(ORDER, 10.0, 1e-6)
OPENED = c.ExPost(0.1, cap=CAP), c.ExPost(0.1), c.LaplaceReduction(1.0, 10.0, CAP)
OTHERS = {
    "a smaller cap": (c.ExPost(0.1, cap=0.1), *OPENED[1:]),
    "a larger cap": (*OPENED[:2], c.LaplaceReduction(1.0, 10.0, 2 * CAP)),
    "no cap": (c.ExPost(0.1), *OPENED[1:]),
    "another part's cap": (c.ExPost(0.1), c.ExPost(0.1, cap=CAP), OPENED[2]),
    "another kind": (*OPENED[:2], c.ExPost(0.1, cap=CAP)),
}


def test_terms_are_fixed_when_a_round_is_opened():
    state, round, _ = CAPPED.open(CAPPED.init(1), OPENED)
    calls = {
        "rewind": lambda request: CAPPED.rewind(state, round, request),
        "close": lambda request: CAPPED.close(state, round, request),
    }
    for call_name, call in calls.items():
        assert call(OPENED)[1]
        compiled = jax.jit(call)
        assert compiled(jax.tree.map(jnp.asarray, OPENED))[1]
        for name, other in OTHERS.items():
            terms = "with the caps .*0\\.25.*None"
            if name == "another kind":
                terms = "of the kinds .*: ExPost, ExPost, LaplaceReduction"
            with pytest.raises(ValueError, match=f"request must be {terms}"):
                call(other)
            if name in ("a smaller cap", "a larger cap"):
                after = refused(compiled(jax.tree.map(jnp.asarray, other)))
                assert (CAPPED.remaining(after) > 0) == (call_name == "rewind")


def test_smallest_times_of_rounds_with_other_parts():
    """They leave the cost of the other parts, and are for requests without a cap."""
    gaussian = c.GaussianFilter(10.0, 1e-6)
    capped = c.LaplaceReduction(1.0, 10.0, CAP), c.LaplaceReduction(1.0, 1e20, CAP)
    for filter, opened, later in ((gaussian, c.Pure(0.5), c.Pure(0.5)), (CAPPED, *capped)):
        first = c.BrownianReduction(1.0, 100.0), opened
        state, round, _ = filter.open(filter.init(1), first)
        time = filter.smallest_time(state, c.BrownianReduction, 1.0, round)
        for share, fits in ((1, True), (1 - 1e-3, False)):
            request = c.BrownianReduction(1.0, share * time), later
            assert bool(filter.rewind(state, round, request)[1]) == fits
    assert CAPPED.smallest_time(state, c.LaplaceReduction, 1.0, round) == np.inf


def test_nothing_above_the_cap():
    """It is refused, and closing with it leaves nothing."""
    for filter in (CAPPED, c.ExPostFilter(10.0, 1e-3)):
        state, round, _ = filter.open(filter.init(2), c.ExPost(0.2, cap=CAP))
        for epsilon, fits in ((CAP, True), (CAP * (1 + 1e-4), False)):
            more = c.ExPost(epsilon, cap=CAP)
            calls = filter.admits(state, more), filter.rewind(state, round, more)[1]
            assert all(ok == fits for ok in calls)
        assert filter.remaining(refused(filter.close(state, round, more))) == 0
        assert filter.cost(more) == np.inf
    # A cap changes no sum of epsilons, and deltas are fixed when the round is opened.
    state, round, _ = filter.open(filter.init(1), c.ExPost(0.2, 9e-4, CAP))
    after = granted(filter.close(state, round, c.ExPost(0.1, cap=CAP)))
    assert filter.remaining(after) == pytest.approx(9.9, rel=1e-5)
    assert not filter.admits(after, c.ExPost(0.1, 2e-4))


def test_deltas_are_fixed_when_a_round_is_opened():
    both = c.SideBySideFilter(c.UnifiedFilter(1.0, 1e-6), c.ExPostFilter(1.0, 1e-3))
    request = c.BrownianReduction(1.0, 1e3), c.ExPost(0.1, 4e-4)
    state, round, _ = both.open(both.init(2), request)
    assert both.rewind(state, round, request)[1]
    assert not both.rewind(state, round, (request[0], c.ExPost(0.1, 5e-4)))[1]
    lost = refused(both.close(state, round, (request[0], c.ExPost(0.1, 5e-4))))
    assert np.all(both.remaining(lost) == 0)
    # Everything is refunded only if nothing was released; at a lower cost, the delta is not.
    assert both.admits(both.close(state, round, ())[0], c.ExPost(1.0, 9e-4))
    state = granted(both.close(state, round, (request[0], c.ExPost(0.05))))
    assert both.remaining(state)[1] == pytest.approx(0.95, rel=1e-5)
    assert both.admits(state, c.ExPost(0.1, 5e-4))
    assert not both.admits(state, c.ExPost(0.1, 7e-4))


@each_filter
def test_what_is_refunded(case):
    """The rest of a cost that holds at the stop, only.

    A no of a pure test costs more than its own epsilon where the cost is a square. Such kinds are
    charged as they were admitted.
    """
    filter = case.build(10.0, 1e-6)
    start, adds_up = filter.init(1), isinstance(filter, c.ExPostFilter)
    for kind in case.kinds:
        large = SMALL[kind]
        field = next(large.fields())[0]
        cheap = dataclasses.replace(large, **{field: 0.01 * getattr(large, field)})
        back = adds_up or kind is c.ExPost or kind in REDUCTIONS
        open_now, round, _ = filter.open(start, large)
        closed = granted(filter.close(open_now, round, cheap))
        left = filter.remaining(open_now)
        assert np.any(filter.remaining(closed) > left) == back
        assert back or np.all(filter.remaining(closed) == left)
        # Nor may it grow on the way: it would be chosen by what was seen.
        state, round, _ = filter.open(start, cheap)
        assert filter.rewind(state, round, large)[1] == back
        # Everything is refunded if nothing was released.
        free = granted(filter.close(state, round, ()))
        np.testing.assert_array_equal(filter.remaining(free), filter.remaining(start))
