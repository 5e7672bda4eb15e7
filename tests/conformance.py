"""What every noise process and every guarantee must do; add a case for a new one.

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
from nrjax.processes import Brownian, Laplace, LaplaceJumps, Skellam
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
        value, loss, status = run(process, key, times, shift)
        assert (value.shape, value.dtype) == ((len(times), *shape), dtype)
        assert (loss.shape, loss.dtype) == ((len(times),), dtype)
        assert (status.shape, status.dtype) == ((len(times),), jnp.int32)
    process, key, _, _ = _inputs(case)
    for time in (3, 3.0):
        assert process.value(process.init(key, time)).dtype == jnp.result_type(float)


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
    assert not np.any(run(process, key, times, 0 * shift)[1])


def check_wide_times(case):
    """From 1e-3 to 1e6, in strides of any length: finite, and sound by its own account."""
    levels = np.geomspace(1e6, 1e-3, 10)
    times = levels[np.sort(np.random.default_rng(0).integers(10, size=(LANES, 4)), axis=1)]
    times[0] = [1e6, 1e-3, 1e-3, 1e-3]
    _, (values, losses, status) = _lanes(case, seed=4, times=times)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(losses))
    np.testing.assert_array_equal(status, np.full(status.shape, Status.RUNNING))
    again = times[:, 1:] == times[:, :-1]
    assert again.any()
    np.testing.assert_array_equal(values[:, 1:][again], values[:, :-1][again])


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
