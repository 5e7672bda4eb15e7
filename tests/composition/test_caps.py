"""Capped rounds in the ledger: what is fixed when they are opened, and adversaries against it."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import nrjax
from nrjax import Status
from nrjax import composition as c
from nrjax.composition import _ledger, certificates
from nrjax.composition._state import Round
from tests.composition.cases import granted, refused
from tests.composition.test_capped import backwards, exact, law, payoff
from tests.composition.test_schedule import run, wrap

pytestmark = pytest.mark.numerical

ORDER, CAP = 4.0, 0.25
RENYI = c.RenyiFilter(ORDER, 10.0, 1e-6)
DTYPE = np.dtype(jnp.result_type(float))
EPS = float(np.finfo(DTYPE).eps)


def kinds(epsilon, cap):
    """The requests that have a cap, at an epsilon."""
    laplace = c.LaplaceReduction, c.DiscreteLaplaceReduction
    return c.ExPost(epsilon, cap=cap), *(kind(3.0, 3.0 / epsilon, cap) for kind in laplace)


def test_charged_never_below_the_certificate():
    """Of the cap as it was given, in the filter and in the odometer; eagerly and compiled."""
    rng, odometer = np.random.default_rng(3), c.RenyiOdometer(ORDER, 1e-6)
    caps = np.exp(rng.uniform(-8, 2, 20)).astype(DTYPE)
    epsilons = (caps * np.exp(-rng.exponential(1.0, 20))).astype(DTYPE)
    epsilons[:5] = caps[:5]
    together = jax.jit(jax.vmap(lambda *x: [RENYI.cost(one) for one in kinds(*x)]))
    for number, costs in enumerate(zip(*map(np.asarray, together(epsilons, caps)), strict=True)):
        e, cap = epsilons[number], caps[number]
        for request, compiled in zip(kinds(e, cap), costs, strict=True):
            true = e
            if not isinstance(request, c.ExPost):
                true = mpmath.mpf(3) / mpmath.mpf(float(request.time))
            want = exact(ORDER, true, cap) if true <= cap else mpmath.mpf(0)
            for found in (compiled, RENYI.cost(request)):
                assert want <= float(found) <= exact(ORDER, e, cap) * (1 + 1000 * EPS)
        state = odometer.spend(odometer.init(), kinds(e, cap)[0])
        level = np.log(1e6) / (ORDER - 1)
        assert odometer.bound(state) - level >= float(exact(ORDER, e, cap)) - 4 * level * EPS


def test_published_rounds():
    """100 rounds stopped at 0.1, delta = 1e-6: 10 by adding up, 5.85, and 5.07 with a cap there."""
    reduction = c.LaplaceReduction(1.0, 10.0)
    for request, total in (
        (c.ExPost(0.1), 10.0),
        (reduction, 5.849),
        (c.ExPost(0.1, cap=0.1), 5.073),
        (dataclasses.replace(reduction, cap=0.2), 6.374),
    ):
        for epsilon, enough in ((total * 1.001, True), (total * 0.999, False)):
            filter = c.RenyiFilter.tuned(epsilon, 1e-6, request)
            assert (filter.budget >= 100 * filter.cost(request)) == enough


OPENED = c.ExPost(0.1, cap=CAP), c.ExPost(0.1), c.LaplaceReduction(1.0, 10.0, CAP)
OTHERS = {
    "smaller": (c.ExPost(0.1, cap=0.1), *OPENED[1:]),
    "larger": (*OPENED[:2], c.LaplaceReduction(1.0, 10.0, 2 * CAP)),
    "none": (c.ExPost(0.1), *OPENED[1:]),
    "of another part": (c.ExPost(0.1), c.ExPost(0.1, cap=CAP), OPENED[2]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_fixed_when_a_round_is_opened(name):
    other = OTHERS[name]
    state, round, _ = RENYI.open(RENYI.init(1), OPENED)
    match = (
        r"must be with the caps that it was admitted, or the round opened with .*\[0\.25, -1\.0, "
    )
    calls = (
        lambda request: RENYI.rewind(state, round, request),
        lambda request: RENYI.close(state, round, request),
        lambda request: RENYI.spend(RENYI.init(), request, OPENED),
    )
    for call in calls:
        assert call(OPENED)[1]
        with pytest.raises(ValueError, match=match):
            call(other)
        if name in ("smaller", "larger"):
            after = refused(jax.jit(call)(jax.tree.map(jnp.asarray, other)))
            assert (RENYI.remaining(after) > 0) == (call is calls[0])
    # A handle that was put together anew knows no other cap.
    again = Round(round.number, round.kinds)
    assert jax.jit(RENYI.close)(state, again, jax.tree.map(jnp.asarray, OPENED))[1]


def test_smallest_times_are_of_requests_without_a_cap():
    both = c.BrownianReduction(1.0, 100.0), c.LaplaceReduction(1.0, 10.0, CAP)
    state, round, _ = RENYI.open(RENYI.init(1), both)
    assert RENYI.smallest_time(state, c.LaplaceReduction, 1.0, round) == np.inf
    time = RENYI.smallest_time(state, c.BrownianReduction, 1.0, round)
    for share, fits in ((1, True), (0.999, False)):
        asked = c.BrownianReduction(1.0, share * time), c.LaplaceReduction(1.0, 1e20, CAP)
        assert bool(RENYI.rewind(state, round, asked)[1]) == fits
    with pytest.raises(ValueError, match=r"request = .*: must be one whose caps are among its fir"):
        RENYI.open(RENYI.init(1), (c.Pure(0.1),) * 4 + (c.ExPost(0.1, cap=CAP),))


def test_nothing_above_the_cap():
    """It is refused, and closing with it leaves nothing; for every filter that takes the kind."""
    for filter in (RENYI, c.ExPostFilter(10.0, 1e-3)):
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


TIMES = np.geomspace(10.0, 1.0, 9)
PLACES = np.arange(-70, 71)


def best_interleaving(order, shift, charges):
    """The largest `E exp(l (L - C))` of two open rounds of discrete noise reduction.

    Which of them is rewound, and when all ends, is chosen from both; by dynamic programming.
    """
    z, steps = PLACES, range(TIMES.size - 1, -1, -1)
    moves = [backwards(t, s, z) for t, s in itertools.pairwise(TIMES)]
    ends = [payoff(order, shift, t, one, z) for t, one in zip(TIMES, charges, strict=True)]
    value = {}
    for i in steps:
        for j in steps:
            options = [np.outer(ends[i], ends[j])]
            if i + 1 < TIMES.size:
                options.append(moves[i] @ value[i + 1, j])
            if j + 1 < TIMES.size:
                options.append(value[i, j + 1] @ moves[j].T)
            value[i, j] = np.max(options, axis=0)
    first = law(TIMES[0], z)
    return float(first @ value[0, 0] @ first)


def closed_at(filter, shift, cap_at_close):
    """What a ledger charges a round that is open beside another and closed at each of the times."""
    times, cap = jnp.asarray(TIMES, DTYPE), shift / TIMES[-1]

    def one(time):
        state, _, _ = filter.open(filter.init(2), c.LaplaceReduction(shift, times[0], cap))
        state, round, _ = filter.open(state, c.ExPost(shift / times[0], cap=cap))
        state, rewound = filter.rewind(state, round, c.ExPost(shift / time, cap=cap))
        request = c.ExPost(shift / time, cap=cap_at_close(time))
        state, closed = filter.close(state, round, request)
        return state.spent.total[0], rewound & closed

    return map(np.asarray, jax.vmap(one)(times))


@pytest.mark.long
@pytest.mark.parametrize(("order", "shift"), [(2.0, 1.0), (4.0, 1.0)])
def test_adversary_of_interleaved_rounds(order, shift, monkeypatch):
    """The best policy attains the certificate; a cap chosen at close breaks it, if it is let."""
    filter, cap = c.RenyiFilter(order, 60.0, 1e-6), shift / TIMES[-1]
    charges, ok = closed_at(filter, shift, lambda time: cap)
    assert ok.all()
    sound = best_interleaving(order, shift, charges)
    e = shift / TIMES
    own = np.array([certificates.discrete_laplace_reduction(order, shift, t) for t in TIMES])
    at_stop = np.asarray(certificates.pure(order, e), float)
    least = best_interleaving(order, shift, np.minimum(own, charges))
    print(f"A = {order}: {sound:.4f}; least of two {least:.4f}", end="")
    assert 0.99 < sound <= 1
    assert least > 1.05
    assert best_interleaving(order, shift, at_stop) > 1.1
    # The ledger refuses it; one that does not look charges too little.
    _, ok = closed_at(filter, shift, lambda time: shift / time)
    assert not ok[:-1].any()
    monkeypatch.setattr(_ledger, "same_caps", lambda *given: jnp.asarray(True))
    charges, ok = closed_at(filter, shift, lambda time: shift / time)
    assert ok.all()
    fault = best_interleaving(order, shift, charges)
    print(f", cap at close {fault:.4f}")
    assert fault > 1.1


RULES = {
    "fixed": (nrjax.InteractiveAboveThreshold(-0.1, 1.0, 0.25), 0.25),
    "many": (nrjax.LaplaceTests(-0.1, 1.0, 0.25), 60 * 0.25),
    "as the releases": (nrjax.ReducedAboveThreshold(-0.1, 1.0), 100.0),
}


@pytest.mark.parametrize("name", RULES)
def test_private_answers_have_the_dearest_for_a_cap(name):
    """And the releases, where they are ex-post, the epsilon of the last time."""
    (rule, cap), pure = RULES[name], nrjax.PureGuarantee(1.0)
    wrapped = wrap(RENYI, c.ExPost, sensitivity=None, rule=rule, guarantee=pure)
    releases, test = wrapped.request(jnp.asarray(2.0, DTYPE), 3)
    for request, most in ((releases, 100.0), (test, cap)):
        assert most <= request.cap <= most * (1 + 1e-4)
        assert RENYI.cost(request) < (1 if most > 1 else 0.8) * request.epsilon * (1 + 9 * EPS)
    outcome = run(wrapped, rule=rule, process=nrjax.Laplace(()), guarantee=pure)
    state = granted(wrapped.close(RENYI.init(), outcome))
    paid = RENYI.cost(wrapped.spent(outcome))
    assert paid <= outcome.epsilon * (1 + 9 * EPS)
    assert state.spent.total[0] == pytest.approx(float(paid), rel=1e-5)
    # By adding up nothing is different, nor where the last time is not known.
    add_up = dataclasses.replace(wrapped, filter=c.ExPostFilter(10.0), state=None)
    assert all(part.cap is None for part in add_up.request(jnp.asarray(2.0)))


@pytest.mark.long
def test_closing_what_released_nothing():
    """Of a boundary that is for its looks alone, and of a rule that is paid for as pure."""
    boundary = nrjax.GridBoundary.of(
        nrjax.LinearBoundary.tight_at_epsilon(0.5, 1.0, 1e-3), [40.0, 20.0, 10.0]
    )
    grid = nrjax.Grid(boundary.times)
    add_up, gaussian = c.ExPostFilter(0.001, 1e-2), c.GaussianFilter(0.01, 1e-9)
    rule = nrjax.AboveThreshold(0.0, 1.0, 0.25)
    for wrapped, parts in (
        (wrap(add_up, c.ExPost, None, grid, None, guarantee=boundary), {"guarantee": boundary}),
        (wrap(gaussian, times=grid, rule=rule), {"rule": rule}),
    ):
        outcome = run(wrapped, **parts)
        assert outcome.status == Status.NO_TIME
        state = granted(wrapped.close(wrapped.filter.init(), outcome))
        assert wrapped.filter.remaining(state) == wrapped.filter.remaining(wrapped.state)
