"""What every process, guarantee and stopping rule must do; add a case for a new one.

Checks take a case and assert. They share two compiled functions, so that a case costs few programs.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    PureGuarantee,
)
from nrjax.processes import Brownian, IndependentLaplace, Laplace, LaplaceJumps, Skellam
from nrjax.stopping import (
    AboveThreshold,
    InteractiveAboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
)
from nrjax.types import Status

SHAPE = (2, 3)
LANES = 256


@dataclasses.dataclass(frozen=True)
class ProcessCase:
    """A process to check, and how its constructor must fail."""

    name: str
    build: Callable[[tuple[int, ...]], Any]
    """The process of a given shape, for times from 0.9e-3 to 1.1e6."""
    errors: tuple[tuple[Callable[[], Any], str], ...]
    """Faulty constructions, and what the message of the `ValueError` must say."""
    chain: bool = True
    """Whether releases form a noise-reduction chain, paid for by the last one; if not, each is new
    noise, all are paid for, and the realised loss is not known."""


BAD_SHAPES = ((3, r"shape = 3"), ([3], r"shape = \[3\]"), ((-1,), r"shape = \(-1,\)"))


def _bad_shapes(build):
    return tuple((lambda s=shape: build(s), match) for shape, match in BAD_SHAPES)


def _jumps(shape):
    return LaplaceJumps(shape, 0.9e-3, 1.1e6)


def _skellam(shape):
    return Skellam(shape, 12.0, 8.0)


PROCESSES = (
    ProcessCase("brownian", Brownian, _bad_shapes(Brownian)),
    ProcessCase("laplace", Laplace, _bad_shapes(Laplace)),
    ProcessCase("independent", IndependentLaplace, _bad_shapes(IndependentLaplace), chain=False),
    ProcessCase(
        "jumps",
        _jumps,
        (
            *_bad_shapes(_jumps),
            (lambda: LaplaceJumps((), 0.0, 1.0), r"eta = 0.0: must be positive"),
            (lambda: LaplaceJumps((), np.nan, 1.0), r"eta = nan: must be positive"),
            (lambda: LaplaceJumps((), 1.0, np.inf), r"horizon = inf: must be positive and finite"),
            (lambda: LaplaceJumps((), 2.0, 1.0), r"horizon = 1.0: must be at least eta = 2.0"),
            (lambda: LaplaceJumps((), 1.0, 2.0, size=-1), r"size = -1: must be"),
            (lambda: LaplaceJumps((), 1.0, 2.0, size=2.5), r"size = 2.5: must be"),  # type: ignore
        ),
    ),
    ProcessCase(
        "skellam",
        _skellam,
        (
            *_bad_shapes(_skellam),
            (lambda: Skellam((), -1.0, 1.0), r"rate1 = -1.0: must be"),
            (lambda: Skellam((), 1.0, np.inf), r"rate2 = inf: must be finite"),
            (lambda: Skellam((), 0.0, 0.0), r"\(0.0, 0.0\): must be such that one is positive"),
        ),
    ),
)


def _observe(process, state, shift):
    return process.value(state), process.privacy_loss(state, shift), process.status(state)


def _run(process, key, times, shift):
    """Noise, loss and status at falling times; the first is a start and a rewind on the spot."""

    def step(state, inputs):
        i, time = inputs
        state = process.rewind(jax.random.fold_in(key, i), state, time)
        return state, _observe(process, state, shift)

    start = process.init(key, times[0])
    return jax.lax.scan(step, start, (jnp.arange(len(times)), times))[1]


def _run_eagerly(process, key, times, shift):
    state, seen = process.init(key, times[0]), []
    for i, time in enumerate(times):
        state = process.rewind(jax.random.fold_in(key, i), state, time)
        seen.append(_observe(process, state, shift))
    return tuple(jnp.stack(column) for column in zip(*seen, strict=True))


run = jax.jit(_run)
run_lanes = jax.jit(jax.vmap(_run, (0, 0, 0, None)))


def _inputs(case, shape=SHAPE, dtype=None):
    """Process, key, times and an integer shift (Skellam takes no other)."""
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    times = np.array([50.0, 20.0, 19.9, 0.5], dtype)
    return case.build(shape), jax.random.key(0), times, np.ones(shape, dtype)


def _lanes(case, seed, times=None):
    """`LANES` trials in one program, parameters mapped too; all checks share it."""
    process, _, usual, shift = _inputs(case)
    times = np.tile(usual, (LANES, 1)) if times is None else times.astype(usual.dtype)
    many = jax.tree.map(lambda leaf: np.full(LANES, leaf, usual.dtype), process)
    keys = jax.random.split(jax.random.key(seed), LANES)
    return keys, run_lanes(many, keys, times, shift)


def _close(got, want):
    """Equal but for a few units in the last place of the largest number."""
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        if g.dtype.kind == "f":
            eps = float(np.finfo(g.dtype).eps)
            np.testing.assert_allclose(g, w, rtol=16 * eps, atol=16 * eps * np.abs(w).max())
        else:
            np.testing.assert_array_equal(g, w)


def check_purity(case):
    """The same key gives the same result, another key another; states are left alone."""
    process, key, times, shift = _inputs(case)
    first, again = (run(process, key, times, shift) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = run(process, jax.random.key(1), times, shift)
    assert not np.array_equal(first[0], other[0])
    state = process.init(key, times[0])
    before = jax.tree.map(np.array, state)
    process.rewind(key, state, times[-1])
    jax.tree.map(np.testing.assert_array_equal, before, state)


def check_noise_is_unique(case):
    """No two coordinates, no two trials and no two steps share their noise, not even a part."""
    process, _, times, _ = _inputs(case)
    noise = np.asarray(_lanes(case, seed=2)[1][0], float)
    noise = noise.reshape(*noise.shape[:2], -1)
    for step in (noise[:, 0], noise[:, -1], noise[:, 0] - noise[:, -1]):
        assert len(np.unique(step, axis=0)) == LANES
        assert np.unique(step, axis=1).shape == step.shape
        pairs = np.corrcoef(step.T)[np.triu_indices(step.shape[1], 1)]
        assert np.abs(pairs).max() < 5 / np.sqrt(LANES)
        assert np.abs(pairs.mean()) < 5 / np.sqrt(LANES * pairs.size)
    # What all trials share is missing from the spread over trials. A mean square of Laplace noise,
    # the heaviest tail here, has a variance of 5/n.
    for i in (0, -1):
        ratio = noise[:, i].var(axis=0, ddof=1).mean() / float(process.deviation(times[i])) ** 2
        assert abs(ratio - 1) < 5 * np.sqrt(5 / noise[:, i].size)


def check_dtype_and_shape(case):
    """Results have the dtype of time, in every shape; loss and status are scalars."""
    default = jnp.result_type(float)
    for shape, dtype in (((), default), (SHAPE, default), (SHAPE, np.float32)):
        process, key, times, shift = _inputs(case, shape, dtype)
        assert process.shape == shape
        value, loss, status = jax.eval_shape(_run, process, key, times, shift)
        assert (value.shape, value.dtype) == ((len(times), *shape), dtype)
        assert (loss.shape, loss.dtype) == ((len(times),), dtype)
        assert (status.shape, status.dtype) == ((len(times),), jnp.int32)
    process, key, _, _ = _inputs(case)
    for time in (3, 3.0):
        value = jax.eval_shape(lambda time=time: process.value(process.init(key, time)))
        assert value.dtype == jnp.result_type(float)


def check_jit_against_eager(case):
    inputs = _inputs(case)
    _close(run(*inputs), _run_eagerly(*inputs))


def check_vmap_against_loop(case):
    """Over keys, times and parameters at once."""
    process, _, times, shift = _inputs(case)
    keys, lanes = _lanes(case, seed=3)
    for i in range(5):
        _close([part[i] for part in lanes], run(process, keys[i], times, shift))


def check_traces(case):
    """New keys, times, shifts and parameters reuse the program; a new shape does not."""
    traces = 0

    def counted(*inputs):
        nonlocal traces
        traces += 1
        return _run(*inputs)

    trace = jax.jit(counted).trace  # the same cache, without compiling
    process, key, times, shift = _inputs(case)
    trace(process, key, times, shift)
    trace(process, jax.random.key(9), times, shift)
    trace(process, key, times * times.dtype.type(0.7), shift)
    trace(process, key, times, 2 * shift)
    trace(jax.tree.map(lambda leaf: 1.01 * leaf, process), key, times, shift)
    assert traces == 1
    trace(*_inputs(case, (3,)))
    assert traces == 2


def check_pytree(case):
    """Parameters and states survive the tree functions."""
    process, key, times, _ = _inputs(case)
    leaves, tree = jax.tree.flatten(process)
    assert jax.tree.unflatten(tree, leaves) == process
    for sentinel in (None, object()):
        jax.tree.unflatten(tree, [sentinel] * len(leaves))
    state = process.init(key, times[0])
    copy = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(state))
    assert type(copy) is type(state)
    jax.tree.map(np.testing.assert_array_equal, copy, state)


def check_no_shift_costs_nothing(case):
    process, key, times, shift = _inputs(case)
    if not case.chain:  # the loss is not known: `check_price_of_all_releases`
        pytest.skip("the realised loss is not known")
    assert not np.any(run(process, key, times, 0 * shift)[1])


def check_wide_times(case):
    """From 1e-3 to 1e6, in strides of any length: finite, and sound by its own account."""
    levels = np.geomspace(1e6, 1e-3, 10)
    times = levels[np.sort(np.random.default_rng(0).integers(10, size=(LANES, 4)), axis=1)]
    times[0] = [1e6, 1e-3, 1e-3, 1e-3]
    _, (values, losses, status) = _lanes(case, seed=4, times=times)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(losses) if case.chain else np.isnan(losses))
    np.testing.assert_array_equal(status, np.full(status.shape, Status.RUNNING))
    again = times[:, 1:] == times[:, :-1]
    assert again.any()
    stays = values[:, 1:][again] == values[:, :-1][again]
    assert np.all(stays) if case.chain else not np.any(stays)


def check_price_of_all_releases(case):
    """Of a chain that of the last one; else more with each, and what its `composed_time` says."""
    process, key, times, _ = _inputs(case)
    state = process.init(key, times[0])
    if case.chain:
        assert process.composed_time(state, times[0]) == times[0]
        return
    for count, time in enumerate(times[1:], 2):
        state = process.rewind(key, state, time)
        composed = process.composed_time(state, time)
        assert (composed.shape, composed.dtype) == ((), times.dtype)
        paid = np.sum(1 / times[:count].astype(float))
        assert composed <= 1 / paid
        np.testing.assert_allclose(composed, 1 / paid, rtol=1e-5)


def check_errors(case):
    """A faulty construction names the argument, its value and what would be right."""
    assert case.errors
    for build, match in case.errors:
        with pytest.raises(ValueError, match=match):
            build()


PROCESS_CHECKS = (
    check_purity,
    check_noise_is_unique,
    check_dtype_and_shape,
    check_jit_against_eager,
    check_vmap_against_loop,
    check_traces,
    check_pytree,
    check_no_shift_costs_nothing,
    check_wide_times,
    check_price_of_all_releases,
    check_errors,
)


@dataclasses.dataclass(frozen=True)
class GuaranteeCase:
    """A guarantee to check; `build` takes a sensitivity, which may be traced."""

    name: str
    build: Callable[[Any], Any]
    lowest: float
    """An epsilon that `build(1.0)` reaches."""


GUARANTEES = (
    GuaranteeCase("linear", lambda s: LinearBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.3),
    GuaranteeCase("mixture", lambda s: MixtureBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.01),
    GuaranteeCase(
        "one-sided", lambda s: OneSidedMixtureBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.01
    ),
    GuaranteeCase("pure", PureGuarantee, 1e-4),
)

_both = jax.jit(lambda guarantee, epsilon: (guarantee.time(epsilon), guarantee.epsilon(epsilon)))
_both_lanes = jax.jit(jax.vmap(lambda g, e: (g.time(e), g.epsilon(e))))


def _levels(case, size=200):
    return np.geomspace(case.lowest, 50.0, size).astype(jnp.result_type(float))


def check_inverse_is_safe(case):
    """`epsilon(time(e)) <= e`, and hardly below it, inside one program and across two."""
    guarantee, levels = case.build(1.0), _levels(case)
    back = np.asarray(_both(guarantee, _both(guarantee, levels)[0])[1])
    assert np.all(back <= levels)
    np.testing.assert_allclose(back, levels, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(guarantee.epsilon(guarantee.time(levels))) > levels, 0)


def check_guarantee_falls_with_time(case):
    times = np.geomspace(1e-2, 1e4, 200).astype(jnp.result_type(float))
    epsilon = np.asarray(case.build(1.0).epsilon(times))
    assert np.all(np.diff(epsilon) < 0)
    assert np.all(epsilon > 0)


def check_guarantee_dtype(case):
    guarantee = case.build(1.0)
    for dtype in {jnp.result_type(float), jnp.dtype("float32")}:
        held = jax.tree.map(lambda leaf, dtype=dtype: jnp.asarray(leaf, dtype), guarantee)
        for result in (*_both(held, jnp.asarray(2.0, dtype)), held.time(2.0)):
            assert (result.shape, result.dtype) == ((), dtype)
    assert 0 <= guarantee.delta < 1


def check_guarantee_jit_against_eager(case):
    guarantee, levels = case.build(1.0), _levels(case, 20)
    _close(_both(guarantee, levels), (guarantee.time(levels), guarantee.epsilon(levels)))


def check_guarantee_vmap_against_loop(case):
    """Over parameters and arguments at once, and over a traced sensitivity."""
    sensitivities = np.linspace(0.5, 2.0, 7)
    many = [case.build(float(s)) for s in sensitivities]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.result_type(float)), *many)
    levels = np.linspace(1.0, 3.0, 7, dtype=jnp.result_type(float))
    want = [_both(one, level) for one, level in zip(many, levels, strict=True)]
    _close(_both_lanes(stacked, levels), tuple(map(jnp.stack, zip(*want, strict=True))))
    traced = jax.vmap(lambda s: case.build(s).time(2.0))(jnp.asarray(sensitivities))
    np.testing.assert_allclose(traced, [one.time(2.0) for one in many], rtol=1e-4)


def check_guarantee_traces(case):
    """New parameters and arguments reuse the program."""
    traces = 0

    def counted(guarantee, epsilon):
        nonlocal traces
        traces += 1
        return guarantee.time(epsilon)

    trace = jax.jit(counted).trace
    trace(case.build(1.0), 2.0)
    trace(case.build(1.5), 3.0)
    assert traces == 1


def check_guarantee_refuses(case):
    """An epsilon no time reaches: an error when concrete, infinite in a trace."""
    guarantee = case.build(1.0)
    for epsilon in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="epsilon = "):
            guarantee.time(epsilon)
        assert np.isposinf(_both(guarantee, epsilon)[0])
    with pytest.raises(ValueError, match="time = "):
        guarantee.epsilon(0.0)
    with pytest.raises(ValueError, match=r"sensitivity = 0\.0: must be"):
        case.build(0.0)


def check_guarantee_pytree(case):
    guarantee = case.build(1.0)
    leaves, tree = jax.tree.flatten(guarantee)
    assert jax.tree.unflatten(tree, leaves) == guarantee
    for sentinel in (None, object()):
        jax.tree.unflatten(tree, [sentinel] * len(leaves))


GUARANTEE_CHECKS = (
    check_inverse_is_safe,
    check_guarantee_falls_with_time,
    check_guarantee_dtype,
    check_guarantee_jit_against_eager,
    check_guarantee_vmap_against_loop,
    check_guarantee_traces,
    check_guarantee_refuses,
    check_guarantee_pytree,
)


@dataclasses.dataclass(frozen=True)
class RuleCase:
    """A stopping rule to check; `build` takes a threshold, which may be traced or a vector."""

    name: str
    build: Callable[[Any], Any]
    errors: tuple[tuple[Callable[[], Any], str], ...]
    """Faulty constructions, and what the message of the `ValueError` must say."""
    private: bool = True
    """Whether it has a sensitivity, draws noise and charges for its answers."""
    separate: bool = False
    """Whether each answer is a mechanism of its own: noise from the query's key alone, and a price
    for each, be it yes or no. If not, all noes are paid for by half of what a yes costs."""


def _bad_thresholds(build):
    faults = ((np.nan, "nan"), ([1.0, np.nan], "float"), (np.zeros(0), "float"))
    return tuple(
        (lambda t=threshold: build(t), rf"threshold = {shown}.*: must be a number")
        for threshold, shown in faults
    )


def _bad_parameters(build, *names):
    faults = ((0.0, r"0\.0"), (-1.0, r"-1\.0"), (np.nan, "nan"), (np.inf, "inf"))
    return tuple(
        (lambda n=name, v=value: build(**{n: v}), f"{name} = {shown}: must be positive and finite")
        for name in names
        for value, shown in faults
    )


def _classical(kind, **traits):
    def build(threshold=0.5, sensitivity=1.0, epsilon=2.0):
        return kind(threshold, sensitivity, epsilon)

    errors = (*_bad_thresholds(build), *_bad_parameters(build, "sensitivity", "epsilon"))
    return RuleCase(kind.__name__, build, errors, **traits)


def _reduced(threshold=0.5, sensitivity=1.0):
    return ReducedAboveThreshold(threshold, sensitivity)


RULES = (
    RuleCase("PublicThreshold", PublicThreshold, _bad_thresholds(PublicThreshold), private=False),
    _classical(AboveThreshold),
    _classical(InteractiveAboveThreshold),
    _classical(LaplaceTests, separate=True),
    RuleCase(
        "ReducedAboveThreshold",
        _reduced,
        (*_bad_thresholds(_reduced), *_bad_parameters(_reduced, "sensitivity")),
    ),
)

STEPS = 6


def _ask(rule, keys, epsilons, utilities):
    """Answers, costs of a yes and of noes, statuses, and the states, step by step."""

    def step(state, inputs):
        i, epsilon, utility = inputs
        state, stop = rule.step(jax.random.fold_in(keys[1], i), state, epsilon, utility)
        costs = rule.cost(epsilon, stopped=True), rule.cost(epsilon, stopped=False)
        return state, (stop, costs, rule.status(state), _plain(state))

    start = rule.init(keys[0], epsilons[0])
    return jax.lax.scan(step, start, (jnp.arange(STEPS), epsilons, utilities))[1]


def _plain(state):
    """A state with its keys as numbers."""
    return jax.tree.map(
        lambda leaf: (
            jax.random.key_data(leaf)
            if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
            else leaf
        ),
        state,
    )


def _ask_eagerly(rule, keys, epsilons, utilities):
    state, seen = rule.init(keys[0], epsilons[0]), []
    for i, (epsilon, utility) in enumerate(zip(epsilons, utilities, strict=True)):
        state, stop = rule.step(jax.random.fold_in(keys[1], i), state, epsilon, utility)
        costs = rule.cost(epsilon), rule.cost(epsilon, False)
        seen.append((stop, costs, rule.status(state), _plain(state)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen)


ask = jax.jit(_ask)
ask_lanes = jax.jit(jax.vmap(_ask))


def _questions(case, dtype=None, seed=0, threshold=0.5):
    """Rule, keys, rising epsilons and utilities about the threshold."""
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    utilities = np.random.default_rng(seed).normal(0.5, 3.0, STEPS).astype(dtype)
    epsilons = np.geomspace(0.5, 4.0, STEPS).astype(dtype)
    return case.build(threshold), jax.random.split(jax.random.key(seed)), epsilons, utilities


def _lanes_of_questions(case, seed):
    """Parameters, keys, epsilons and utilities that differ between lanes."""
    rng, dtype = np.random.default_rng(seed), jnp.result_type(float)
    rule, _, epsilons, _ = _questions(case)
    factors = rng.uniform(0.5, 2.0, LANES).astype(dtype)
    many = jax.tree.map(lambda leaf: (leaf * factors).astype(dtype), rule)
    keys = jax.random.split(jax.random.key(seed), (LANES, 2))
    utilities = rng.normal(0.5, 3.0, (LANES, STEPS)).astype(dtype)
    return many, keys, np.outer(factors, epsilons).astype(dtype), utilities


def check_rule_purity(case):
    """The same keys give the same answers; other keys others, where there is noise."""
    inputs = _lanes_of_questions(case, seed=1)
    first, again = ask_lanes(*inputs), ask_lanes(*inputs)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    rule, keys, epsilons, utilities = inputs
    for changed, draws in (
        (keys.at[:, 0].set(keys[:, 1]), case.private and not case.separate),
        (keys.at[:, 1].set(keys[:, 0]), case.private),
    ):
        stops = ask_lanes(rule, changed, epsilons, utilities)[0]
        assert np.any(stops != first[0]) == draws


def check_rule_dtype(case):
    """Floats have the dtype of epsilon; answers are bool, statuses and counts int32."""
    for dtype in (jnp.result_type(float), np.float32):
        stop, costs, status, states = jax.eval_shape(_ask, *_questions(case, dtype))
        assert stop.dtype == bool
        assert status.dtype == jnp.int32
        assert all(cost.dtype == dtype for cost in costs)
        floats = [leaf for leaf in jax.tree.leaves(states) if leaf.dtype.kind == "f"]
        assert all(leaf.dtype == dtype for leaf in floats)


def check_rule_jit_against_eager(case):
    inputs = _questions(case)
    _close(ask(*inputs), _ask_eagerly(*inputs))


def check_rule_vmap_against_loop(case):
    """Over keys, parameters, epsilons and utilities at once; also over thresholds alone."""
    inputs = _lanes_of_questions(case, seed=3)
    lanes = ask_lanes(*inputs)
    for i in range(5):
        _close(
            jax.tree.map(lambda leaf, i=i: leaf[i], lanes),
            ask(*(jax.tree.map(lambda leaf, i=i: leaf[i], part) for part in inputs)),
        )
    _, keys, epsilons, utilities = _questions(case)
    thresholds = np.array([-9.0, 0.5, 9.0], epsilons.dtype)

    def answers(threshold):
        return _ask(case.build(threshold), keys, epsilons, utilities)[0]

    want = [ask(case.build(threshold), keys, epsilons, utilities)[0] for threshold in thresholds]
    np.testing.assert_array_equal(jax.jit(jax.vmap(answers))(thresholds), want)


def check_rule_is_monotone(case):
    """Under one key a better utility never turns a yes into a no; and some turn a no into a yes."""
    rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=4)
    order = np.argsort(np.argsort(utilities, axis=0), axis=0)
    better = np.sort(utilities, axis=0)[np.minimum(order + LANES // 4, LANES - 1), range(STEPS)]
    low = np.asarray(ask_lanes(rule, keys, epsilons, utilities)[0])
    high = np.asarray(ask_lanes(rule, keys, epsilons, better.astype(utilities.dtype))[0])
    assert np.all(high >= low)
    assert np.any(high > low)
    for utility, stops in ((np.inf, True), (-np.inf, False), (np.nan, False)):
        extreme = np.full_like(utilities, utility)
        assert np.all(ask_lanes(rule, keys, epsilons, extreme)[0] == stops)


def check_rule_state_is_blind(case):
    """The new state does not depend on the utility."""
    rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=5)
    seen = ask_lanes(rule, keys, epsilons, utilities)[3]
    for other in (-utilities, np.full_like(utilities, np.inf), np.full_like(utilities, np.nan)):
        unseen = ask_lanes(rule, keys, epsilons, other)[3]
        jax.tree.map(np.testing.assert_array_equal, seen, unseen)


def check_rule_sequence_of_thresholds(case):
    """Thresholds that move are utilities that move the other way; past their end there is no."""
    for seed in range(20):  # until some answers are yes and some no
        rule, keys, epsilons, utilities = _questions(case, seed=seed)
        want = np.asarray(ask(rule, keys, epsilons, utilities)[0])
        if want.any() and not want.all():
            break
    shifts = np.arange(STEPS, dtype=utilities.dtype)
    moved, same = case.build(0.5 + shifts), case.build(np.full(STEPS, 0.5).tolist())
    assert rule.max_steps is None
    assert moved.max_steps == same.max_steps == STEPS
    assert want.any()
    assert not want.all()
    np.testing.assert_array_equal(ask(same, keys, epsilons, utilities)[0], want)
    np.testing.assert_array_equal(ask(moved, keys, epsilons, utilities + shifts)[0], want)
    short = case.build(np.full(STEPS - 2, -np.inf))
    stops = ask(short, keys, epsilons, utilities)[0]
    np.testing.assert_array_equal(stops, np.arange(STEPS) < STEPS - 2)
    with pytest.raises(ValueError, match=r"threshold has shape \(2, 6\): must be a scalar or a"):
        ask(case.build(np.zeros((2, STEPS))), keys, epsilons, utilities)


def check_rule_cost(case):
    """Noes cost half of what a yes does, at any epsilon; public answers cost nothing.

    Where each answer is paid for, noes cost as much as a yes, and all of them together their sum.
    """
    rule, _, epsilons, _ = _questions(case)
    yes, noes = rule.cost(epsilons), rule.cost(epsilons, stopped=False)
    assert yes.shape == noes.shape == epsilons.shape
    if case.separate:
        np.testing.assert_array_equal(noes, yes)
        answers = np.arange(STEPS, dtype=np.int32)
        total = np.asarray(rule.cost(epsilons, answers % 2 == 0, answers))
        np.testing.assert_allclose(total, answers * yes, rtol=1e-6)
        assert total[0] == 0
    else:
        np.testing.assert_array_equal(2 * noes, yes)
        np.testing.assert_array_equal(rule.cost(epsilons, True, 7), yes)
    np.testing.assert_array_equal(rule.cost(epsilons, np.arange(STEPS) % 2 == 0)[::2], yes[::2])
    assert np.all(yes > 0) == np.any(yes > 0) == case.private
    assert (rule.sensitivity is not None) == case.private


def check_rule_status(case):
    """All is well at rising epsilons."""
    status = ask_lanes(*_lanes_of_questions(case, seed=6))[2]
    np.testing.assert_array_equal(status, np.full((LANES, STEPS), Status.RUNNING))


def check_rule_scale(case):
    """In other units of the utility, a power of two, the answers are the same."""
    if not case.private:
        return
    rule, keys, epsilons, utilities = _questions(case)
    other = dataclasses.replace(rule, threshold=4 * rule.threshold, sensitivity=4.0)
    for seed in range(5):
        keys = jax.random.split(jax.random.key(seed))
        np.testing.assert_array_equal(
            ask(rule, keys, epsilons, utilities)[0], ask(other, keys, epsilons, 4 * utilities)[0]
        )


def check_rule_traces(case):
    """New keys, parameters, epsilons and utilities reuse the program."""
    traces = 0

    def counted(*inputs):
        nonlocal traces
        traces += 1
        return _ask(*inputs)

    trace = jax.jit(counted).trace
    rule, keys, epsilons, utilities = _questions(case)
    trace(rule, keys, epsilons, utilities)
    trace(rule, keys[::-1], 2 * epsilons, utilities + 1)
    trace(jax.tree.map(lambda leaf: 1.5 * leaf, rule), keys, epsilons, utilities)
    assert traces == 1


def check_rule_pytree(case):
    rule, keys, epsilons, _ = _questions(case)
    leaves, tree = jax.tree.flatten(rule)
    assert jax.tree.unflatten(tree, leaves) == rule
    for sentinel in (None, object()):
        jax.tree.unflatten(tree, [sentinel] * len(leaves))
    state = rule.init(keys[0], epsilons[0])
    copy = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(state))
    assert type(copy) is type(state)
    jax.tree.map(np.testing.assert_array_equal, _plain(copy), _plain(state))


RULE_CHECKS = (
    check_rule_purity,
    check_rule_dtype,
    check_rule_jit_against_eager,
    check_rule_vmap_against_loop,
    check_rule_is_monotone,
    check_rule_state_is_blind,
    check_rule_sequence_of_thresholds,
    check_rule_cost,
    check_rule_status,
    check_rule_scale,
    check_rule_traces,
    check_rule_pytree,
    check_errors,
)
