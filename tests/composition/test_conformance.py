"""What every filter and odometer must do, eagerly, under jit and under vmap."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.composition import (
    ExPost,
    ExPostFilter,
    RenyiFilter,
    SideBySideFilter,
    ZCDPFilter,
)
from tests.composition.cases import (
    FILTERS,
    ODOMETERS,
    SMALL,
    assert_same,
    each_filter,
    each_odometer,
    of_name,
    stack,
)

each_of_both = of_name(FILTERS + ODOMETERS)

BAD = (-1.0, math.nan, math.inf, -math.inf)
LEVELS = ((10.0, 1e-6), (2.0, 1e-3), (5.0, 1e-5))


def small(case):
    """A tuple request of all kinds that a case takes."""
    return tuple(SMALL[kind] for kind in case.kinds)


def expensive(case):
    """A request of the case's first kind that is over every budget."""
    request = SMALL[case.kinds[0]]
    name = dataclasses.fields(request)[0].name
    return dataclasses.replace(request, **{name: 1e6})


def variants(case):
    """A good request; one that does not fit; and each field out of range by turns."""
    good = small(case)
    leaves, structure = jax.tree.flatten(good)
    faulty = [
        jax.tree.unflatten(structure, [*leaves[:n], jnp.asarray(bad), *leaves[n + 1 :]])
        for n in range(len(leaves))
        for bad in (BAD if n == 0 else BAD[n % 4 : n % 4 + 1])
    ]
    return [good, (expensive(case), *good[1:]), *faulty]


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
        assert before.dtype == now.dtype == jnp.result_type(float)
    # What is out of range has no cost.
    cost, left = (x.reshape(*accepted.shape, -1) for x in (cost, left))
    assert np.all(cost[:, :2] > 0)
    assert np.isnan(cost[:, 2:]).any(-1).all()
    assert len(np.unique(left[:, 0, 0])) == len(several)
    for lane, filter in enumerate(several):
        whole = np.atleast_1d(filter.remaining(filter.init()))
        np.testing.assert_allclose(whole - left[lane, 0], 2 * cost[lane, 0], rtol=1e-3)
    # Eagerly the same; and a whole is as much as its parts.
    first = several[0]
    state, fits = first.spend(starts[0], good, good)
    assert fits
    assert first.admits(starts[0], good)
    assert not first.admits(starts[0], asked[1])
    np.testing.assert_allclose(np.atleast_1d(first.remaining(state)), left[0, 0], rtol=1e-5)
    parts = sum(np.atleast_1d(first.cost(part)) for part in good)
    np.testing.assert_allclose(parts, cost[0, 0], rtol=1e-5)


def bounds_around(odometer, state, request):
    after = odometer.spend(state, request)
    return odometer.bound(state), odometer.bound(after)


@each_odometer
def test_odometer(case):
    """Under jit and vmap, over odometers and requests at once; the same eagerly."""
    several, good = [case.build(v, d) for v, d in ((2.0, 1e-6), (0.5, 1e-3))], small(case)
    starts = [odometer.spend(odometer.init(), good) for odometer in several]
    lost = [jax.tree.map(lambda x: jnp.full_like(x, np.inf), state) for state in starts]
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
    for kind in case.kinds:
        assert not filter.admits(state, SMALL[kind])
    after, accepted = filter.take(state, SMALL[case.kinds[0]])
    assert not accepted
    assert_same(after, state)
    after, accepted = filter.spend(state, SMALL[case.kinds[0]])
    assert not accepted
    assert np.all(np.asarray(filter.remaining(after)) == 0)


@each_filter
def test_what_happened_is_always_counted(case):
    """What was not admitted leaves nothing; `take` asks first, and leaves the state as it was."""
    filter = case.build(10.0, 1e-6)
    asked, more = SMALL[case.kinds[0]], expensive(case)
    state, accepted = filter.spend(filter.init(), asked, asked)
    assert accepted
    same, accepted = filter.take(state, more)
    assert not accepted
    assert_same(same, state)
    pairs, compiled = ((asked, more), (asked, asked)), jax.jit(filter.spend)
    faults = [(filter.spend, *pairs), (compiled, *pairs), (filter.spend, more, more)]
    faults.append((filter.spend, more, None))
    if case.takes_delta:
        request = dataclasses.replace(asked, delta=1e-8)
        assert filter.spend(state, request)[1]
        faults.append((filter.spend, dataclasses.replace(asked, delta=0.1), None))
        faults += [(spend, request, asked) for spend in (filter.spend, compiled)]
    for spend, spent, admitted in faults:
        after, accepted = spend(state, spent, admitted)
        assert not accepted
        assert_nothing_left(filter, after, case)


@each_filter
def test_states_of_another_filter(case):
    filter = case.build(10.0, 1e-6)
    for other in FILTERS:
        if other is not case:
            state = other.build(10.0, 1e-6).init()
            with pytest.raises(ValueError, match=r"state = .*of .*: must be of .*Filter, from its"):
                filter.admits(state, SMALL[case.kinds[0]])


def test_states_of_another_order():
    """An error where the orders have numbers, else nothing is admitted."""
    low, high = RenyiFilter(20.0, 5.0, 1e-6), RenyiFilter(50.0, 5.0, 1e-6)
    state, _ = high.take(high.init(), ExPost(0.1))
    with pytest.raises(ValueError, match=r"state = .*50\.0.*: must be for RenyiFilter's own order"):
        low.admits(state, ExPost(0.1))
    admits = jax.jit(RenyiFilter.admits)
    assert admits(high, state, ExPost(0.1))
    assert not admits(low, state, ExPost(0.1))
    assert not admits(low, state, ExPost(0.0))
    assert jax.jit(RenyiFilter.remaining)(low, state) == 0
    assert not jax.jit(RenyiFilter.spend)(low, state, ExPost(0.1))[1]


@each_filter
def test_smallest_time(case):
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
    # Nothing left: no time.
    state, accepted = filter.spend(filter.init(), tuple(kind(1.0, 1e-6) for kind in case.rewound))
    assert not accepted
    for kind in case.rewound:
        assert filter.smallest_time(state, kind) == np.inf
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"sensitivity = .*: must be positive and finite"):
            filter.smallest_time(filter.init(), case.rewound[0], wrong)


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
        elif hasattr(request, "delta") and not case.takes_delta:
            approximate = dataclasses.replace(request, delta=1e-9)
            with pytest.raises(ValueError, match=r"delta = 1e-09: must be 0 for"):
                owner.spend(owner.init(), approximate)
    with pytest.raises(TypeError, match=r"float: .* has no proof"):
        owner.spend(owner.init(), 0.1)


@each_of_both
def test_concrete_requests_out_of_range(case):
    """Python's numbers and a device's, at the constructor."""
    for kind in case.kinds:
        request = SMALL[kind]
        for field in dataclasses.fields(request):
            for bad in BAD:
                match = f"{kind.__name__}.{field.name} = .*: must be"
                with pytest.raises(ValueError, match=match):
                    dataclasses.replace(request, **{field.name: bad})
            with pytest.raises(ValueError, match=match):
                dataclasses.replace(request, **{field.name: jnp.asarray(-1.0)})


@each_filter
def test_fields_out_of_range(case):
    for epsilon, delta, name in (
        (0.0, 1e-6, "epsilon"),
        (1.0, 2.0, "delta"),
        (math.nan, 0.1, "eps"),
    ):
        with pytest.raises(ValueError, match=f"{name}.* = .*: must be"):
            case.build(epsilon, delta)


def test_budget_is_not_carried_to_another_epsilon():
    filter = ZCDPFilter(1.0, 1e-6)
    assert dataclasses.replace(filter, epsilon=0.5) == ZCDPFilter(0.5, 1e-6)
    # Nor given by hand: one a little larger than epsilon was let through.
    with pytest.raises(TypeError, match="budget"):
        ExPostFilter(1.0, budget=np.float32(1.00009))  # type: ignore
    # As it comes back from a device, or from a file.
    assert jax.tree.map(np.asarray, jax.tree.map(jnp.asarray, filter)).budget == filter.budget


def test_side_by_side_spends_of_both_or_of_neither():
    filter = FILTERS[-1].build(2.0, 1e-6)
    assert isinstance(filter, SideBySideFilter)
    assert filter.epsilon == 2.0
    assert filter.delta == pytest.approx(1e-6)
    state = filter.init()
    mixed = (SMALL[FILTERS[0].kinds[0]], ExPost(3.0))
    same, accepted = filter.take(state, mixed)
    assert not accepted
    assert_same(same, state)
    assert np.all(filter.remaining(filter.spend(state, mixed)[0]) == 0)
    after, accepted = filter.spend(state, (mixed[0], ExPost(0.5)))
    assert accepted
    assert np.all(filter.remaining(after) < filter.remaining(state))
    after, accepted = filter.spend(state, ExPost(0.5))
    assert accepted
    assert filter.remaining(after)[0] == filter.remaining(state)[0]
