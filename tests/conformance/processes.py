"""The conformance suite of processes. Add a case for a new process.

The checks share two compiled functions, so that a case costs few programs.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax._base.outcome import Status
from nrjax.processes import (
    Brownian,
    DiscreteLaplace,
    Exponential,
    IndependentLaplace,
    Laplace,
    LaplaceJumps,
    Skellam,
    SphericalLaplace,
)
from tests.conformance import common

SHAPE = (2, 3)
LANES = 256


@dataclasses.dataclass(frozen=True)
class ProcessCase:
    """A process to check, and how its constructor must fail.

    Attributes:
        name: identifier of the test.
        build: returns the process of a shape, for times from 0.9e-3 to 1.1e6.
        faults: faulty constructions, with patterns of their messages.
        largest: largest time tried.
        smallest: smallest time tried.
        scale: unit of usual times; noise of integers is not unique at small ones.
        chain: whether the process is a noise-reduction chain, so that only the last release is paid
            for; otherwise every release has new noise, and all are paid for.
        loss: whether the process has a realised loss.
        integral: whether shifts must be integers.
    """

    name: str
    build: Callable[[tuple[int, ...]], Any]
    faults: tuple[tuple[Callable[[], Any], str], ...] = ()
    largest: float = 1e6
    smallest: float = 1e-3
    scale: float = 1.0
    chain: bool = True
    loss: bool = True
    integral: bool = False

    @property
    def errors(self):
        for shape in (3, [3], (-1,)):
            yield partial(self.build, shape), "shape must be a tuple"
        yield from self.faults


PROCESSES = (
    ProcessCase("brownian", Brownian),
    ProcessCase("laplace", Laplace),
    ProcessCase("exponential", Exponential, loss=False),
    ProcessCase("integers", DiscreteLaplace, scale=20.0, largest=1e3, smallest=0.2, integral=True),
    ProcessCase("independent", IndependentLaplace, chain=False, loss=False),
    ProcessCase(
        "jumps",
        lambda shape: LaplaceJumps(shape, 0.9e-3, 1.1e6),
        (
            (partial(LaplaceJumps, (), 0.0, 1.0), r"eta must be positive"),
            (partial(LaplaceJumps, (), np.nan, 1.0), r"eta must be positive"),
            (partial(LaplaceJumps, (), 1.0, np.inf), r"horizon must be positive and finite"),
            (partial(LaplaceJumps, (), 2.0, 1.0), r"horizon must be at least eta = 2.0"),
            (partial(LaplaceJumps, (), 1.0, 2.0, size=-1), r"size must be"),
            (partial(LaplaceJumps, (), 1.0, 2.0, size=2.5), r"size must be"),
        ),
    ),
    ProcessCase(
        "skellam",
        lambda shape: Skellam(shape, 12.0, 8.0),
        (
            (partial(Skellam, (), -1.0, 1.0), r"rate1 must be"),
            (partial(Skellam, (), np.nan, 1.0), r"rate1 must be"),
            (partial(Skellam, (), 1.0, np.inf), r"rate2 must be finite"),
            (partial(Skellam, (3,), np.ones(3), 1.0), r"rate1 must be .*a single number"),
            (partial(Skellam, (), 0.0, 0.0), r"\(rate1, rate2\) must be such that one is positive"),
        ),
        integral=True,
    ),
    ProcessCase("spherical", SphericalLaplace),
)


def _observe(process, state, shift):
    return process.value(state), process.privacy_loss(state, shift), process.status(state)


def _run(process, key, times, shift):
    """Return noise, loss and status at falling times, after a rewind to the first time."""

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
    """Return a process, a key, times and an integer shift."""
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    times = case.scale * np.array([50.0, 20.0, 19.9, 0.5], dtype)
    return case.build(shape), jax.random.key(0), times, np.ones(shape, dtype)


def _lanes(case, seed, times=None):
    """Run `LANES` trials with mapped parameters, in one program that all checks share."""
    process, _, usual, shift = _inputs(case)
    times = np.tile(usual, (LANES, 1)) if times is None else times.astype(usual.dtype)
    many = jax.tree.map(lambda leaf: np.full(LANES, leaf, usual.dtype), process)
    keys = jax.random.split(jax.random.key(seed), LANES)
    return keys, run_lanes(many, keys, times, shift)


def check_purity(case):
    """Results depend on the key, and on nothing else, and states are not modified."""
    process, key, times, shift = _inputs(case)
    first, again = (run(process, key, times, shift) for _ in range(2))
    common.assert_same(first, again)
    other = run(process, jax.random.key(1), times, shift)
    assert not np.array_equal(first[0], other[0])
    state = process.init(key, times[0])
    before = jax.tree.map(np.array, state)
    process.rewind(key, state, times[-1])
    common.assert_same(before, state)


def check_jit_against_eager(case):
    inputs = _inputs(case)
    common.assert_close(run(*inputs), _run_eagerly(*inputs))


def check_noise_is_unique(case):
    """Coordinates, trials and steps share no part of their noise."""
    process, _, times, _ = _inputs(case)
    noise = np.asarray(_lanes(case, seed=2)[1][0], float)
    noise = noise.reshape(*noise.shape[:2], -1)
    for step in (noise[:, 0], noise[:, -1], noise[:, 0] - noise[:, -1]):
        assert len(np.unique(step, axis=0)) == LANES
        assert np.unique(step, axis=1).shape == step.shape
        pairs = np.corrcoef(step.T)[np.triu_indices(step.shape[1], 1)]
        assert np.abs(pairs).max() < 5 / np.sqrt(LANES)
        assert np.abs(pairs.mean()) < 5 / np.sqrt(LANES * pairs.size)
    # Noise shared by all trials would be missing from the variance over trials. The mean square of
    # Laplace noise, which has the heaviest tails here, has a variance of 5/n.
    for i in (0, -1):
        ratio = noise[:, i].var(axis=0, ddof=1).mean() / float(process.deviation(times[i])) ** 2
        assert abs(ratio - 1) < 5 * np.sqrt(5 / noise[:, i].size)


def check_noise_has_its_name(case):
    """Guarantees go by the name of the noise, whose parameter is the time itself."""
    process, _, times, _ = _inputs(case)
    stated = {
        "gaussian": np.sqrt,
        "laplace": lambda time: np.sqrt(2) * time,
        "spherical laplace": lambda time: np.sqrt(np.prod(process.shape) + 1) * time,
    }.get(process.noise)
    if stated is not None:
        times = np.asarray(times)
        np.testing.assert_allclose(process.deviation(times), stated(times), rtol=1e-6)


def check_dtype_and_shape(case):
    """Results have the dtype of time in every shape, and loss and status are scalars."""
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
        assert value.dtype == default


def check_vmap_against_loop(case):
    """`vmap` over keys, times and parameters at once equals a loop."""
    process, _, times, shift = _inputs(case)
    keys, lanes = _lanes(case, seed=3)
    for i in range(5):
        common.assert_close(common.lane(lanes, i), run(process, keys[i], times, shift))


def check_traces(case):
    """New keys, times, shifts and parameters reuse the program (a new shape does not)."""
    process, key, times, shift = _inputs(case)
    changed = (
        (process, jax.random.key(9), times * times.dtype.type(0.7), 2 * shift),
        (jax.tree.map(lambda leaf: 1.01 * leaf, process), key, times, shift),
    )
    assert common.count_traces(_run, (process, key, times, shift), *changed) == 1
    assert common.count_traces(_run, (process, key, times, shift), _inputs(case, (3,))) == 2


def check_pytree(case):
    process, key, times, _ = _inputs(case)
    common.assert_pytree(process, jax.eval_shape(process.init, key, times[0]))


def check_no_shift_costs_nothing(case):
    if not case.loss:
        pytest.skip("the realised loss is not known")
    process, key, times, shift = _inputs(case)
    assert not np.any(run(process, key, times, 0 * shift)[1])


def check_shifts(case):
    """Noise of integers refuses other shifts, which cost infinitely in a trace."""
    process, key, times, shift = _inputs(case)
    state = process.init(key, times[0])
    for value in (0.5, np.nan, np.inf) if case.integral else ():
        shift[0, 1] = value
        assert np.all(np.isposinf(run(process, key, times, shift)[1]))
        with pytest.raises(ValueError, match=r"shift must be integers"):
            process.privacy_loss(state, shift)


def check_wide_times(case):
    """Noise is finite, and status `RUNNING`, from the largest to the smallest times.

    A rewind to the present time keeps the noise of a chain, and draws new noise otherwise.
    """
    levels = np.geomspace(case.largest, case.smallest, 10)
    times = levels[np.sort(np.random.default_rng(0).integers(10, size=(LANES, 4)), axis=1)]
    times[0] = [case.largest, *[case.smallest] * 3]
    _, (values, losses, status) = _lanes(case, seed=4, times=times)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(losses) if case.loss else np.isnan(losses))
    np.testing.assert_array_equal(status, np.full(status.shape, Status.RUNNING))
    again = times[:, 1:] == times[:, :-1]
    assert again.any()
    stays = values[:, 1:][again] == values[:, :-1][again]
    assert np.all(stays) if case.chain else not np.any(stays)


def check_price_of_all_releases(case):
    """A chain pays for its last release, other processes for all (`equivalent_time`)."""
    process, key, times, _ = _inputs(case)
    state = process.init(key, times[0])
    if case.chain:
        assert process.equivalent_time(state, times[0]) == times[0]
        return
    for count, time in enumerate(times[1:], 2):
        state = process.rewind(key, state, time)
        composed = process.equivalent_time(state, time)
        assert (composed.shape, composed.dtype) == ((), times.dtype)
        paid = np.sum(1 / times[:count].astype(float))
        assert composed <= 1 / paid
        np.testing.assert_allclose(composed, 1 / paid, rtol=1e-5)


check_errors = common.check_errors

# Compared only in float32: bits, and compiled functions with eager ones.
ONCE = (check_purity, check_jit_against_eager)
NUMERICAL = tuple(
    check
    for name, check in list(globals().items())
    if name.startswith("check_") and check not in ONCE
)
