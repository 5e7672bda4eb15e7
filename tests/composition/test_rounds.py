"""Rounds that are open at the same time: exact rationals over random interleavings, and handles.

What is added up is what was published, at every step: the costs of rounds that are closed, and of
open ones the largest release that was admitted. That is what must be within the budget surely.
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
OPEN, REWIND, CLOSE, TAKE = range(4)
EPSILON, DELTA = 3.0, 1e-3


def _with_handle(done, handle):
    """What a call has returned, with the number of its own handle or of the one it was given."""
    state, *made, ok = done
    return state, (made[0] if made else handle).number, ok


def play(filter, key):
    """Open, rewind, close and take at random. Rounds are private tests: a no is cheaper.

    Returns what was asked at each step (what, which round, epsilon, delta), and if it was granted.
    """

    def step(carry, key):
        state, numbers, held = carry
        first, second, third, fourth = jax.random.uniform(key, (4,))
        place = (first * PLACES).astype(jnp.int32)
        handle = Round(numbers[place], (c.ExPost,))
        busy = numbers[place] > 0
        # Where no round is open one is opened, and open ones are rewound twice as often as closed.
        what = jnp.where(second < 0.1, TAKE, jnp.where(busy, OPEN + 1 + (second > 0.7), OPEN))
        left = filter.remaining(state, handle)
        size = left * jnp.where(fourth < 0.7, 0.3 * third, jnp.where(fourth < 0.9, 1.0, 1.01))
        size = jnp.where(what == CLOSE, held[place] * jnp.where(third < 0.5, 0.5, 1.0), size)
        share = jnp.where(what == TAKE, 0, DELTA * 0.05 * fourth)

        size = jnp.where(what == TAKE, 0.1 * size, size)
        ways = (
            lambda state: filter.open(state, c.ExPost(size, share)),
            lambda state: filter.rewind(state, handle, c.ExPost(size)),
            lambda state: filter.close(state, handle, c.ExPost(size)),
            lambda state: filter.take(state, c.ExPost(size)),
        )
        state, made, ok = jax.lax.switch(
            what, [lambda state, way=way: _with_handle(way(state), handle) for way in ways], state
        )
        number = jnp.where(what == CLOSE, 0, made)
        largest = jnp.where(what == OPEN, size, jnp.maximum(held[place], size))
        held = held.at[place].set(jnp.where(ok & (what < CLOSE), largest, held[place]))
        return (state, numbers.at[place].set(number), held), (what, place, size, share, ok)

    start = filter.init(PLACES), jnp.zeros(PLACES, jnp.int32), jnp.zeros(PLACES, filter._dtype())
    return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]


@functools.cache
def games(kind):
    """What was asked and granted, under a filter of a kind of ex-post filters, in some lanes."""
    filter, keys = kind(EPSILON, DELTA), jax.random.split(jax.random.key(5), LANES)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key: play(filter, key)))(keys))


def audit(lanes, early=False):
    """Largest share of the budget that was out at any time; `early` refunds before a last one."""
    largest = Fraction(0)
    for lane in range(LANES):
        spent, deltas, open_now, seen = Fraction(0), Fraction(0), {}, set()
        for what, place, size, share, ok in zip(*(part[lane] for part in lanes), strict=True):
            seen.add((int(what), bool(ok)))
            if what == CLOSE:
                assert ok  # what was admitted can be closed
                published = open_now.pop(int(place))
                spent += published if early else rational(size)
            elif ok and what == TAKE:
                spent += rational(size)
            elif ok:
                open_now[int(place)] = max(open_now.get(int(place), 0), rational(size))
                deltas += rational(share) if what == OPEN else 0
            total = spent + sum(open_now.values())
            largest = max(largest, total / Fraction(EPSILON), deltas / Fraction(DELTA))
        assert {(OPEN, True), (REWIND, True), (TAKE, True)} <= seen
    return largest


def test_never_overspent():
    largest = audit(games(c.ExPostFilter))
    assert 1 - 1e-4 < largest <= 1


class _Lowered(c.ExPostFilter):
    def rewind(self, state, round, request):
        """Holds the last cost, not the largest."""
        after, ok = super().rewind(state, round, request)
        own = (state.number == round.number) & ok
        cost = self._sum(request, state.spent.total.dtype).at[1].set(state.held[0, 1])
        return after.put(own, round.number, cost), ok


class _GivingBack(c.ExPostFilter):
    _refunded = (True, True)

    def close(self, state, round, request):
        return super().close(state, round, c.ExPost(request.epsilon))


@pytest.mark.long
def test_planted_faults_are_found(monkeypatch):
    """Refunds before the last release, deltas that are given back, a ledger of what was spent."""
    assert audit(games(c.ExPostFilter), early=True) > 1.1
    assert audit(games(_GivingBack)) > 1.1
    monkeypatch.setattr(LedgerState, "total", lambda state, spent, own=None: spent)
    assert audit(games.__wrapped__(c.ExPostFilter)) > 1.5


def test_planted_lowered_reservations_are_found():
    """A rewind that costs less sets nothing free, or what was published counts no more."""
    for kind, overspends in ((c.ExPostFilter, False), (_Lowered, True)):
        filter = kind(1.0, 0.1)
        state, first, _ = filter.open(filter.init(2), c.ExPost(0.5))
        state, _ = filter.rewind(state, first, c.ExPost(0.9))
        state, _ = filter.rewind(state, first, c.ExPost(0.1))
        assert bool(filter.admits(state, c.ExPost(0.5))) == overspends


@of_name((FILTERS[2], FILTERS[-1]))
def test_handles(case):
    """Open, rewind and close; and a handle that is used again."""
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
    assert [int(one.number) for one in (first, second, third, fourth)] == [1, 2, 0, 3]
    # Held as what it costs; the same is spent when it is closed; nothing is left at the second.
    cost, whole = np.asarray(filter.cost(request)), np.asarray(filter.remaining(start))
    for state, times in zip((one, two, full, three, four, five), (1, 2, 2, 2, 2, 3), strict=True):
        left = np.asarray(filter.remaining(state))
        np.testing.assert_allclose(whole - left, times * cost, rtol=1e-3, atol=1e-5)
    assert np.all(np.asarray(filter.remaining(lost)) == 0)
    assert_same(full, unopened)
    # What does not fit is not opened.
    same, handle, opened = filter.open(one, c.Pure(1e6))
    assert not opened
    assert handle.number == 0
    assert_same(same, one)


def test_a_round_is_alone_in_what_it_holds():
    """For a rewind of its own what it holds is free; and smallest times say so."""
    filter = c.GaussianFilter(10.0, 1e-6)
    state, one, _ = filter.open(filter.init(2), c.BrownianReduction(1.0, 1.0))
    for _ in range(3):
        time = filter.smallest_time(state, c.BrownianReduction, 1.0, one)
        state = granted(filter.rewind(state, one, c.BrownianReduction(1.0, time)))
        assert not filter.rewind(state, one, c.BrownianReduction(1.0, time * (1 - 1e-4)))[1]
        assert filter.smallest_time(state, c.BrownianReduction) > 1e4 * time
    # What costs less than it holds is admitted, and lowers nothing.
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
        (
            lambda: filter.open(filter.init(), request),
            r"state must be from init\(rounds=\.\.",
        ),
        (lambda: filter.init(-1), "rounds must be an integer, at least 0"),
        (lambda: filter.init(1.5), "rounds must be an integer, at least 0"),
        (lambda: filter.init(True), "rounds must be an integer, at least 0"),
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
    # A handle that was put together anew knows no other cap.
    again = Round(round.number, round.kinds)
    calls = {
        "rewind": lambda request: CAPPED.rewind(state, again, request),
        "close": lambda request: CAPPED.close(state, again, request),
        "spend": lambda request: CAPPED.spend(CAPPED.init(), request, OPENED),
    }
    for way, call in calls.items():
        assert call(OPENED)[1]
        compiled = jax.jit(call)
        assert compiled(jax.tree.map(jnp.asarray, OPENED))[1]
        for name, other in OTHERS.items():
            terms = r"with the caps .* \(-1: none\), .*\[0\.25, -1\.0, "
            if name == "another kind":
                terms = "of the kinds .*: ExPost, ExPost, LaplaceReduction"
            with pytest.raises(ValueError, match=f"must be {terms}"):
                call(other)
            if "r cap" in name:
                after = refused(compiled(jax.tree.map(jnp.asarray, other)))
                assert (CAPPED.remaining(after) > 0) == (way == "rewind")


def test_smallest_times_beside_what_was_taken():
    """They are of requests without a cap."""
    gaussian = c.GaussianFilter(10.0, 1e-6)
    capped = c.LaplaceReduction(1.0, 10.0, CAP), c.LaplaceReduction(1.0, 1e20, CAP)
    for filter, opened, later in ((gaussian, c.Pure(0.5), c.Pure(0.5)), (CAPPED, *capped)):
        first = c.BrownianReduction(1.0, 100.0), opened
        state, round, _ = filter.open(filter.init(1), first)
        time = filter.smallest_time(state, c.BrownianReduction, 1.0, round)
        for share, fits in ((1, True), (1 - 1e-3, False)):
            asked = c.BrownianReduction(1.0, share * time), later
            assert bool(filter.rewind(state, round, asked)[1]) == fits
    assert CAPPED.smallest_time(state, c.LaplaceReduction, 1.0, round) == np.inf
    with pytest.raises(ValueError, match=r"request must be one whose caps are among its fir"):
        CAPPED.open(CAPPED.init(1), (c.Pure(0.1),) * 4 + (c.ExPost(0.1, cap=CAP),))


def test_nothing_above_the_cap():
    """It is refused, and closing with it leaves nothing; for every filter that takes the kind."""
    for filter in (CAPPED, c.ExPostFilter(10.0, 1e-3)):
        state, round, _ = filter.open(filter.init(2), c.ExPost(0.2, cap=CAP))
        for epsilon, fits in ((CAP, True), (CAP * (1 + 1e-4), False)):
            more = c.ExPost(epsilon, cap=CAP)
            calls = filter.admits(state, more), filter.rewind(state, round, more)[1]
            assert all(ok == fits for ok in calls)
        assert filter.remaining(refused(filter.close(state, round, more))) == 0
        assert np.isnan(filter.cost(more))
    # What adds up is not changed by a cap; and deltas are taken when the round is opened.
    state, round, _ = filter.open(filter.init(1), c.ExPost(0.2, 9e-4, CAP))
    after = granted(filter.close(state, round, c.ExPost(0.1, cap=CAP)))
    assert filter.remaining(after) == pytest.approx(9.9, rel=1e-5)
    assert not filter.admits(after, c.ExPost(0.1, 2e-4))


def test_deltas_are_fixed_when_a_round_is_opened():
    both = c.SideBySideFilter(c.UnifiedFilter(1.0, 1e-6), c.ExPostFilter(1.0, 1e-3))
    asked = c.BrownianReduction(1.0, 1e3), c.ExPost(0.1, 4e-4)
    state, round, _ = both.open(both.init(2), asked)
    assert both.rewind(state, round, asked)[1]
    assert not both.rewind(state, round, (asked[0], c.ExPost(0.1, 5e-4)))[1]
    lost = refused(both.close(state, round, (asked[0], c.ExPost(0.1, 5e-4))))
    assert np.all(both.remaining(lost) == 0)
    # All comes back only where nothing was released; closed for less, the delta does not.
    assert both.admits(both.close(state, round, ())[0], c.ExPost(1.0, 9e-4))
    state = granted(both.close(state, round, (asked[0], c.ExPost(0.05))))
    assert both.remaining(state)[1] == pytest.approx(0.95, rel=1e-5)
    assert both.admits(state, c.ExPost(0.1, 5e-4))
    assert not both.admits(state, c.ExPost(0.1, 7e-4))
    # So does what was admitted and spent.
    state = granted(both.spend(both.init(), c.ExPost(0.1), c.ExPost(0.5, 1e-3)))
    assert not both.admits(state, c.ExPost(0.1, 1e-4))


@each_filter
def test_what_is_given_back(case):
    """The rest of a cost that holds at the stop. A no of a pure test is dearer than its own epsilon
    where the cost is a square: such kinds are charged as they were admitted."""
    filter = case.build(10.0, 1e-6)
    start, adds_up = filter.init(1), isinstance(filter, c.ExPostFilter)
    for kind in case.kinds:
        dear = SMALL[kind]
        field = dataclasses.fields(dear)[0].name
        cheap = dataclasses.replace(dear, **{field: 0.01 * getattr(dear, field)})
        back = adds_up or kind is c.ExPost or kind in REDUCTIONS
        open_now, round, _ = filter.open(start, dear)
        closed, one = filter.close(open_now, round, cheap)
        spent, two = filter.spend(start, cheap, dear)
        assert one & two
        left = [filter.remaining(state) for state in (open_now, closed, spent)]
        for after in left[1:]:
            assert np.any(after > left[0]) == back
            assert back or np.all(after == left[0])
        # Nor may it grow on the way: it would be chosen by what was seen.
        assert filter.rewind(filter.open(start, cheap)[0], round, dear)[1] == back
        # All of it where nothing was released.
        for free in (filter.close(open_now, round, ())[0], filter.spend(start, (), dear)[0]):
            np.testing.assert_array_equal(filter.remaining(free), filter.remaining(start))
