"""What every filter and odometer must do, eagerly, under jit and under vmap."""

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

pytestmark = pytest.mark.numerical

BAD = (-1.0, math.nan, math.inf, -math.inf)
LEVELS = ((10.0, 1e-6), (2.0, 1e-3), (5.0, 1e-5))


def small(case):
    """A tuple request of all kinds that a case takes."""
    return tuple(SMALL[kind] for kind in case.kinds)


def with_first(request, value):
    """A request with another first field."""
    return dataclasses.replace(request, **{dataclasses.fields(request)[0].name: value})


def variants(case):
    """A good request; one that does not fit; and each field out of range by turns."""
    good = small(case)
    leaves, structure = jax.tree.flatten(good)
    faulty = [
        jax.tree.unflatten(structure, [*leaves[:n], jnp.asarray(bad), *leaves[n + 1 :]])
        for n in range(len(leaves))
        for bad in (BAD if n == 0 else BAD[n % 4 : n % 4 + 1])
    ]
    return [good, (with_first(good[0], 1e6), *good[1:]), *faulty]


def ask(filter, state, request):
    """What a request costs, and spending it."""
    after, accepted = filter.take(state, request)
    return after, accepted, filter.cost(request), filter.remaining(after)


@each_filter
def test_filter(case):
    """Under jit and vmap, over filters with different budgets and over requests at once."""
    several, asked = [case.build(*level) for level in LEVELS], variants(case)
    good = small(case)
    starts = [filter.spend(filter.init(), good)[0] for filter in several]
    go = jax.jit(jax.vmap(jax.vmap(ask, in_axes=(None, None, 0)), in_axes=(0, 0, None)))
    result = go(stack(several), stack(starts), stack(asked))
    after, accepted, cost, left = jax.tree.map(np.asarray, result)
    # What fits is accepted; all else leaves the state as it was, bit for bit.
    assert accepted[:, 0].all()
    assert not accepted[:, 1:].any()
    for before, now in zip(jax.tree.leaves(stack(starts)), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(now[:, 1:], np.repeat(before[:, None], len(asked) - 1, 1))
        assert before.dtype == now.dtype
    # What is out of range has no cost.
    cost, left = (x.reshape(*accepted.shape, -1) for x in (cost, left))
    assert left.dtype == jnp.result_type(float)
    assert np.all(cost[:, :2] > 0)
    assert np.isnan(cost[:, 2:]).any(-1).all()
    assert len(np.unique(left[:, 0, 0])) == len(several)
    for lane, filter in enumerate(several):
        whole = np.atleast_1d(filter.remaining(filter.init()))
        np.testing.assert_allclose(whole - left[lane, 0], 2 * cost[lane, 0], rtol=1e-3)
    # Eagerly the same; and a whole is as much as its parts.
    first = several[0]
    state = granted(first.spend(starts[0], good, good))
    assert first.admits(starts[0], good)
    assert not first.admits(starts[0], asked[1])
    np.testing.assert_allclose(np.atleast_1d(first.remaining(state)), left[0, 0], rtol=1e-5)
    parts = sum(np.atleast_1d(first.cost(part)) for part in good)
    np.testing.assert_allclose(parts, cost[0, 0], rtol=1e-5)
    # And the ledger is the one of all.
    assert isinstance(first, Ledger)
    assert not set(vars(type(first))) & {"admits", "take", "spend", "open", "rewind", "close"}


def bounds_around(odometer, state, request):
    after = odometer.spend(state, request)
    return odometer.bound(state), odometer.bound(after)


@each_odometer
def test_odometer(case):
    """Under jit and vmap, over odometers and requests at once; the same eagerly."""
    several, good = [case.build(v, d) for v, d in ((2.0, 1e-6), (0.5, 1e-3))], small(case)
    starts = [odometer.spend(odometer.init(), good) for odometer in several]
    lost = [state.happened(state.spent, jnp.asarray(False)) for state in starts]
    go = jax.jit(jax.vmap(jax.vmap(bounds_around, in_axes=(None, None, 0)), in_axes=(0, 0, None)))
    states, asked = stack([*starts, *lost]), stack(variants(case))
    before, after = (np.asarray(x) for x in go(stack([*several, *several]), states, asked))
    # The first two requests are in range, of the others nothing is known any more.
    assert np.all(before[:2] > 0)
    assert np.all(before[:2, :2] < after[:2, :2])
    assert np.all(np.isfinite(after[:2, :2]))
    assert np.all(after[:2, 2:] == np.inf)
    # Nor ever again.
    assert np.all(after[2:] == np.inf)
    for lane, odometer in enumerate(several):
        assert odometer.bound(odometer.init()) == 0
        bounds = bounds_around(odometer, starts[lane], good)
        np.testing.assert_allclose(bounds, (before[lane, 0], after[lane, 0]), rtol=1e-5)


def assert_nothing_left(filter, state, case):
    """For good: not even the smallest request is admitted again."""
    assert np.all(np.asarray(filter.remaining(state)) == 0)
    assert not any(filter.admits(state, SMALL[kind]) for kind in case.kinds[::4])
    assert_same(refused(filter.take(state, SMALL[case.kinds[0]])), state)
    after = refused(filter.spend(state, SMALL[case.kinds[0]]))
    assert np.all(np.asarray(filter.remaining(after)) == 0)


@each_filter
def test_what_happened_is_always_counted(case):
    """What was not admitted leaves nothing; `take` asks first, and leaves the state as it was."""
    filter, asked = case.build(10.0, 1e-6), SMALL[case.kinds[0]]
    more = with_first(asked, 1e6)
    state = granted(filter.spend(filter.init(), asked, asked))
    assert_same(refused(filter.take(state, more)), state)
    pairs, compiled = ((asked, more), (asked, asked)), jax.jit(filter.spend)
    faults = [(filter.spend, *pairs), (compiled, *pairs), (filter.spend, more, more)]
    faults.append((filter.spend, more, None))
    if case.share:
        request = dataclasses.replace(asked, delta=1e-8)
        assert filter.spend(state, request)[1]
        faults.append((filter.spend, dataclasses.replace(asked, delta=0.1), None))
        faults += [(spend, request, asked) for spend in (filter.spend, compiled)]
    for spend, spent, admitted in faults:
        assert_nothing_left(filter, refused(spend(state, spent, admitted)), case)


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
    """Or the best could be picked afterwards: an error where there are numbers, else nothing."""
    build, request = OTHERS[name]
    own, other = build(20.0), build(50.0)
    field, kind, is_filter = name.split()[0].strip(","), type(own), isinstance(own, Ledger)
    state, ask = other.spend(other.init(), request), kind.remaining if is_filter else kind.bound
    state, compiled = state[0] if is_filter else state, jax.jit(ask)
    if is_filter:
        admits = jax.jit(kind.admits)
        assert [admits(one, state, request) for one in (other, own)] == [True, False]
        assert not admits(own, state, c.ExPost(0.0))
        assert not jax.jit(kind.spend)(own, state, request)[1]
    assert 0 < compiled(other, state) < np.inf
    assert compiled(own, state) == (0 if is_filter else np.inf)
    match = rf"state must be for {kind.__name__}'s own {field}, 20\.0"
    with pytest.raises(ValueError, match=match):
        ask(own, state)
    with pytest.raises(ValueError, match=r"must be of ExPostFilter, from its init"):
        c.ExPostFilter(1.0).admits(state, request)


@each_filter
def test_smallest_time(case, dtype):
    """What is still admitted, after more and more was spent; hardly less is not."""
    filter = case.build(10.0, 1e-6)
    state = filter.init()
    if not case.rewound:
        with pytest.raises(TypeError, match=r"a smallest time under .* is known for none"):
            filter.smallest_time(state, type(SMALL[case.kinds[0]]))
        return

    @jax.jit
    def look(state, sensitivity):
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
            found, (state, accepted) = look(state, sensitivity)
            assert accepted
            for time, admitted, less in found:
                assert np.isfinite(time)
                assert admitted
                assert not less
            times.append(found[0][0])
        assert np.all(np.diff(times) > 0)
    # No finite time that is then not admitted: of a sensitivity out of range, or 0 on its way in.
    for size in (-1.0, 0.0, math.nan, math.inf, 1e-50 if dtype == jnp.float32 else 1e-320):
        assert all(time == np.inf for time, *_ in look(filter.init(), size)[0])
    # Nothing left: no time.
    state = refused(filter.spend(filter.init(), tuple(kind(1.0, 1e-6) for kind in case.rewound)))
    for kind in case.rewound:
        assert filter.smallest_time(state, kind) == np.inf
        norm = nrjax.Sensitivity(1.0, "l1" if kind is c.BrownianReduction else "l2")
        for wrong in (0.0, -1.0, math.nan, norm):
            with pytest.raises(ValueError, match=r"sensitivity must be (positive|an l)"):
                filter.smallest_time(filter.init(), kind, wrong)
    with pytest.raises(TypeError, match=r"is known for|must be a class"):
        filter.smallest_time(state, kind(1.0, 1.0))


@each_of_both
def test_kinds_without_a_proof(case):
    owner = case.build(10.0, 1e-6)
    for kind, request in SMALL.items():
        if kind not in case.kinds:
            valid = "but for .*" + case.kinds[0].__name__
            with pytest.raises(
                TypeError, match=f"{kind.__name__}: .* has no proof for it, {valid}"
            ):
                owner.spend(owner.init(), (SMALL[case.kinds[0]], request))
        elif hasattr(request, "delta") and not case.share:
            approximate = dataclasses.replace(request, delta=1e-9)
            with pytest.raises(ValueError, match=r"delta must be 0 for"):
                owner.spend(owner.init(), approximate)
    with pytest.raises(TypeError, match=r"float: .* has no proof"):
        owner.spend(owner.init(), 0.1)


@pytest.mark.parametrize("kind", SMALL)
def test_concrete_requests_out_of_range(kind):
    """Python's numbers and a device's, at the constructor."""
    for field in dataclasses.fields(SMALL[kind]):
        for bad in (*BAD, jnp.asarray(-1.0)):
            with pytest.raises(ValueError, match=f"{kind.__name__}.{field.name} must be"):
                dataclasses.replace(SMALL[kind], **{field.name: bad})


@each_of_both
def test_several_numbers_are_no_request(case):
    """Each would have the whole budget to itself."""
    owner, first = case.build(1.0, 1e-6), SMALL[case.kinds[0]]
    for several in (np.asarray([1e-3, 2e-3]), jnp.asarray([1e-3, 2e-3])):
        for spend in (owner.spend, jax.jit(owner.spend)):
            with pytest.raises(ValueError, match=r"= .*: must be a single number"):
                spend(owner.init(), with_first(first, several))


@of_name((*FILTERS[2:5], ODOMETERS[0]))
def test_numbers_that_xla_takes_for_0(case, dtype):
    """Subnormal sensitivities and times, or their reciprocals: refused, or infinite."""
    owner, limits = case.build(10.0, 1e-6), jnp.finfo(dtype)
    tiny, large = float(limits.tiny), jnp.asarray(0.9 * float(limits.max), dtype)
    for kind in {c.LaplaceMechanism, *REDUCTIONS} & set(case.kinds):
        spend = jax.jit(lambda *two, kind=kind: owner.spend(owner.init(), kind(*two)))
        # As a constant of a program, by what XLA takes for its reciprocal it multiplies.
        huge = jax.jit(lambda size, kind=kind: owner.spend(owner.init(), kind(size, large)))
        pairs = (tiny / 8, 8 * tiny), (tiny / 8, 1.0), (tiny, tiny / 2)
        for after in (*(spend(*pair) for pair in pairs), huge(large)):
            if isinstance(after, tuple):
                assert not after[1]
            else:
                assert after.spent.total[0] == np.inf
        if isinstance(owner, Ledger):
            assert not any(owner.admits(owner.init(), kind(*pair)) for pair in pairs)
            if kind in case.rewound:
                assert owner.smallest_time(owner.init(), kind, large) == jnp.inf
