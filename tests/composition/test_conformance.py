"""Conformance of every filter and odometer, eagerly, under jit and under vmap."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax.composition._ledger import Ledger
from tests.composition.cases import (
    FILTERS,
    ODOMETERS,
    REDUCTIONS,
    SMALL,
    assert_same,
    each_filter,
    each_odometer,
    each_of_both,
    granted,
    of_name,
    refused,
    stack,
)
from tests.marks import long_except

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

BAD = (-1.0, math.nan, math.inf, -math.inf)
LEVELS = ((10.0, 1e-6), (2.0, 1e-3), (5.0, 1e-5))


def long_for(name):
    """Return the filters, of which the one that compiles for seconds is long."""
    return of_name(long_except(FILTERS, *(case for case in FILTERS if case.name != name)))


def small(case):
    """Return a tuple request of all kinds that a case takes."""
    return tuple(SMALL[kind] for kind in case.kinds)


def with_first(request, value):
    """Return a request with another first field."""
    return dataclasses.replace(request, **{next(request.fields())[0]: value})


def variants(case):
    """Return a good request, one that does not fit, and each field out of range in turn."""
    good = small(case)
    leaves, structure = jax.tree.flatten(good)
    faulty = [
        jax.tree.unflatten(structure, [*leaves[:n], jnp.asarray(bad), *leaves[n + 1 :]])
        for n in range(len(leaves))
        for bad in (BAD if n == 0 else BAD[n % 4 : n % 4 + 1])
    ]
    return [good, (with_first(good[0], 1e6), *good[1:]), *faulty]


def take(filter, state, request):
    after, admitted = filter.take(state, request)
    return after, admitted, filter.cost(request), filter.remaining(after)


@long_for("side-by-side")
def test_filter(case):
    """Under jit and vmap, over filters with different budgets and over requests at once."""
    several, requests = [case.build(*level) for level in LEVELS], variants(case)
    good = small(case)
    starts = [filter.spend(filter.init(), good)[0] for filter in several]
    go = jax.jit(jax.vmap(jax.vmap(take, in_axes=(None, None, 0)), in_axes=(0, 0, None)))
    result = go(stack(several), stack(starts), stack(requests))
    after, admitted, cost, left = jax.tree.map(np.asarray, result)
    # A request that fits is admitted; all others leave the state unchanged, bit for bit.
    assert admitted[:, 0].all()
    assert not admitted[:, 1:].any()
    for before, now in zip(jax.tree.leaves(stack(starts)), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(now[:, 1:], np.repeat(before[:, None], len(requests) - 1, 1))
        assert before.dtype == now.dtype
    # A request that is out of range costs infinitely much.
    cost, left = (x.reshape(*admitted.shape, -1) for x in (cost, left))
    assert left.dtype == jnp.result_type(float)
    assert np.all(cost[:, :2] > 0)
    assert np.isfinite(cost[:, :2]).all()
    assert np.isinf(cost[:, 2:]).any(-1).all()
    assert len(np.unique(left[:, 0, 0])) == len(several)
    for lane, filter in enumerate(several):
        whole = np.atleast_1d(filter.remaining(filter.init()))
        np.testing.assert_allclose(whole - left[lane, 0], 2 * cost[lane, 0], rtol=1e-3)
    # Eagerly it is the same, and a tuple costs as much as its parts.
    first = several[0]
    state = granted(first.spend(starts[0], good))
    assert first.admits(starts[0], good)
    assert not first.admits(starts[0], requests[1])
    np.testing.assert_allclose(np.atleast_1d(first.remaining(state)), left[0, 0], rtol=1e-5)
    parts = sum(np.atleast_1d(first.cost(part)) for part in good)
    np.testing.assert_allclose(parts, cost[0, 0], rtol=1e-5)
    # All filters share one ledger.
    assert isinstance(first, Ledger)
    assert not set(vars(type(first))) & {"admits", "take", "spend", "open", "rewind", "close"}


def bounds_around(odometer, state, request):
    after = odometer.spend(state, request)
    return odometer.bound(state), odometer.bound(after)


@each_odometer
def test_odometer(case):
    """Under jit and vmap, over odometers and requests at once, and eagerly."""
    several, good = [case.build(v, d) for v, d in ((2.0, 1e-6), (0.5, 1e-3))], small(case)
    starts = [odometer.spend(odometer.init(), good) for odometer in several]
    lost = [state.spent_or_void(state.spent, jnp.asarray(False)) for state in starts]
    go = jax.jit(jax.vmap(jax.vmap(bounds_around, in_axes=(None, None, 0)), in_axes=(0, 0, None)))
    states, requests = stack([*starts, *lost]), stack(variants(case))
    before, after = (np.asarray(x) for x in go(stack([*several, *several]), states, requests))
    # After the first two requests, which are in range, the bound is finite; after others never.
    assert np.all(before[:2] > 0)
    assert np.all(before[:2, :2] < after[:2, :2])
    assert np.all(np.isfinite(after[:2, :2]))
    assert np.all(after[:2, 2:] == np.inf)
    assert np.all(after[2:] == np.inf)
    for lane, odometer in enumerate(several):
        assert odometer.bound(odometer.init()) == 0
        bounds = bounds_around(odometer, starts[lane], good)
        np.testing.assert_allclose(bounds, (before[lane, 0], after[lane, 0]), rtol=1e-5)


@each_filter
def test_spending_is_always_counted(case):
    """After a cost that does not fit, nothing is ever left, while `take` changes nothing."""
    filter, request = case.build(10.0, 1e-6), SMALL[case.kinds[0]]
    more = with_first(request, 1e6)
    state = granted(filter.spend(filter.init(), request))
    assert_same(refused(filter.take(state, more)), state)
    faults = [(filter.spend, more), (jax.jit(filter.spend), more)]
    if case.share:
        assert filter.spend(state, dataclasses.replace(request, delta=1e-8))[1]
        faults.append((filter.spend, dataclasses.replace(request, delta=0.1)))
    for spend, fault in faults:
        lost = refused(spend(state, fault))
        assert np.all(np.asarray(filter.remaining(lost)) == 0)
        assert not any(filter.admits(lost, SMALL[kind]) for kind in case.kinds[::4])
        assert_same(refused(filter.take(lost, request)), lost)
        assert np.all(np.asarray(filter.remaining(refused(filter.spend(lost, request)))) == 0)


@each_filter
def test_states_of_another_filter(case):
    filter = case.build(10.0, 1e-6)
    for other in FILTERS:
        if other is not case:
            state = other.build(10.0, 1e-6).init()
            with pytest.raises(ValueError, match=r"state must be of .*Filter, from its"):
                filter.admits(state, SMALL[case.kinds[0]])


OTHERS = {
    "order of a filter": (lambda order: c.RenyiFilter(order, 5.0, 1e-6), c.ExPost(0.1)),
    "order of an odometer": (lambda order: c.RenyiOdometer(order, 1e-6), c.ExPost(0.1)),
    "gamma": (lambda gamma: c.BrownianOdometer(1e-6, gamma), c.ZCDP(0.1)),
    "gamma, one-sided": (lambda gamma: c.OneSidedBrownianOdometer(1e-6, gamma), c.ZCDP(0.1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_states_of_another_order_or_gamma(name):
    """An error outside of traces, else nothing is left: the best of several would be no bound."""
    build, request = OTHERS[name]
    own, other = build(20.0), build(50.0)
    field, kind, is_filter = name.split()[0].strip(","), type(own), isinstance(own, Ledger)
    state, read = other.spend(other.init(), request), kind.remaining if is_filter else kind.bound
    state, compiled = state[0] if is_filter else state, jax.jit(read)
    if is_filter:
        admits = jax.jit(kind.admits)
        assert [admits(one, state, request) for one in (other, own)] == [True, False]
        assert not admits(own, state, c.ExPost(0.0))
        assert not jax.jit(kind.spend)(own, state, request)[1]
    assert 0 < compiled(other, state) < np.inf
    assert compiled(own, state) == (0 if is_filter else np.inf)
    match = rf"state must be for {kind.__name__}'s own {field}, 20\.0"
    with pytest.raises(ValueError, match=match):
        read(own, state)
    with pytest.raises(ValueError, match=r"must be of ExPostFilter, from its init"):
        c.ExPostFilter(1.0).admits(state, request)


@long_for("renyi")
def test_smallest_time(case, dtype):
    """It is admitted, after more and more was spent, and a slightly smaller time is not."""
    filter = case.build(10.0, 1e-6)
    state = filter.init()
    if not case.rewound:
        with pytest.raises(TypeError, match=r"has no smallest time for .*, only for none"):
            filter.smallest_time(state, type(SMALL[case.kinds[0]]))
        return

    @jax.jit
    def probe(state, sensitivity):
        out = []
        for kind in case.rewound:
            time = filter.smallest_time(state, kind, sensitivity)
            now, less = kind(sensitivity, time), kind(sensitivity, time * (1 - 1e-3))
            out.append((time, filter.admits(state, now), filter.admits(state, less)))
        time = 1.3 * out[0][0]
        return out, filter.spend(state, case.rewound[0](sensitivity, time))

    for sensitivity in (1.0, 1e-12, 3e10):
        state, times = filter.init(), []
        for _ in range(4):
            probes, (state, accepted) = probe(state, sensitivity)
            assert accepted
            for time, admitted, less in probes:
                assert np.isfinite(time)
                assert admitted
                assert not less
            times.append(probes[0][0])
        assert np.all(np.diff(times) > 0)
    # No time for a sensitivity that is out of range, or becomes 0 when it is cast.
    for size in (-1.0, 0.0, math.nan, math.inf, 1e-50 if dtype == jnp.float32 else 1e-320):
        assert all(time == np.inf for time, *_ in probe(filter.init(), size)[0])
    # No time if nothing is left.
    state = refused(filter.spend(filter.init(), tuple(kind(1.0, 1e-6) for kind in case.rewound)))
    for kind in case.rewound:
        assert filter.smallest_time(state, kind) == np.inf
        norm = nrjax.Sensitivity(1.0, "l1" if kind is c.BrownianReduction else "l2")
        for wrong in (0.0, -1.0, math.nan, norm):
            with pytest.raises(ValueError, match=r"sensitivity must be (positive|an l)"):
                filter.smallest_time(filter.init(), kind, wrong)
    with pytest.raises(TypeError, match=r"has no (smallest time|proof) for"):
        filter.smallest_time(state, kind(1.0, 1.0))


@each_of_both
def test_kinds_without_a_proof(case):
    owner = case.build(10.0, 1e-6)
    for kind, request in SMALL.items():
        if kind not in case.kinds:
            match = f"has no proof for {kind.__name__}, only for .*{case.kinds[0].__name__}"
            with pytest.raises(TypeError, match=match):
                owner.spend(owner.init(), (SMALL[case.kinds[0]], request))
        elif hasattr(request, "delta") and not case.share:
            approximate = dataclasses.replace(request, delta=1e-9)
            with pytest.raises(ValueError, match=r"delta must be 0 for"):
                owner.spend(owner.init(), approximate)
    with pytest.raises(TypeError, match=r"has no proof for float, only for"):
        owner.spend(owner.init(), 0.1)


@pytest.mark.parametrize("kind", SMALL)
def test_concrete_requests_out_of_range(kind):
    """The constructor refuses Python numbers and arrays, and None, which would cost nothing."""
    for field in dataclasses.fields(SMALL[kind]):
        if field.metadata.get("static"):
            continue
        for bad in (*BAD, jnp.asarray(-1.0), *(() if field.name == "cap" else (None,))):
            with pytest.raises(ValueError, match=f"{kind.__name__}.{field.name} must be"):
                dataclasses.replace(SMALL[kind], **{field.name: bad})


@each_of_both
def test_arrays_are_no_request(case):
    """Each number would have the whole budget to itself."""
    owner, first = case.build(1.0, 1e-6), SMALL[case.kinds[0]]
    for several in (np.asarray([1e-3, 2e-3]), jnp.asarray([1e-3, 2e-3])):
        for spend in (owner.spend, jax.jit(owner.spend)):
            with pytest.raises(ValueError, match=r"must be a single number"):
                spend(owner.init(), with_first(first, several))


@of_name((*FILTERS[2:5], ODOMETERS[0]))
def test_subnormal_sensitivities_and_times(case, dtype):
    """They, or their reciprocals, count as 0 in XLA: refused, or infinite."""
    owner, limits = case.build(10.0, 1e-6), jnp.finfo(dtype)
    tiny, large = float(limits.tiny), 0.9 * float(limits.max)
    pairs = (tiny / 8, 8 * tiny), (tiny / 8, 1.0), (tiny, tiny / 2), (large, large)
    for kind in {c.LaplaceMechanism, *REDUCTIONS} & set(case.kinds):
        spend = jax.jit(lambda *two, kind=kind: owner.spend(owner.init(), kind(*two)))
        for pair in pairs:
            after = spend(*pair)
            state = refused(after) if isinstance(owner, Ledger) else after
            assert state.spent.total[0] == np.inf
        if isinstance(owner, Ledger):
            assert not any(owner.admits(owner.init(), kind(*pair)) for pair in pairs)
            if kind in case.rewound:
                assert owner.smallest_time(owner.init(), kind, large) == jnp.inf
