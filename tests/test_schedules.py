"""Grids and adaptive times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status
from tests.problems import interaction

pytestmark = pytest.mark.numerical

KEY = jax.random.key(1)
GUARANTEE = nrjax.PureGuarantee(2.0)


@pytest.mark.parametrize(
    ("name", "scale"), [("geometric", np.log), ("linear", np.asarray), ("squared", np.square)]
)
def test_levels_are_equally_spaced_on_their_scale(name, scale, dtype):
    grid = getattr(nrjax.Grid, name)(GUARANTEE, 0.2, 8.0, 30)
    epsilons = np.asarray(GUARANTEE.epsilon(grid.times), np.float64)
    steps = np.diff(scale(epsilons))
    np.testing.assert_allclose(steps, steps.mean(), rtol=2e-3 if dtype == jnp.float32 else 1e-9)
    np.testing.assert_allclose(epsilons[[0, -1]], [0.2, 8.0], rtol=1e-5)
    assert np.all(epsilons <= np.clip(epsilons, 0.2, 8.0))
    assert np.all(np.diff(grid.times) < 0)
    assert grid.max_steps == 30


def test_a_grid_returns_its_times_in_order():
    grid = nrjax.Grid.explicit([9.0, 4.0, 4.0, 1.0])
    state, time = grid.init()
    times, done = [float(time)], False
    while not done:
        state, time, done = grid.next(state, jnp.zeros(()))
        times.append(float(time))
    assert times[:-1] == [9.0, 4.0, 4.0, 1.0]


def test_one_level_and_a_traced_level():
    assert nrjax.Grid.geometric(GUARANTEE, 0.5, 0.5, 1).max_steps == 1
    plain = nrjax.Grid.geometric(GUARANTEE, 0.2, 8.0, 5).times
    traced = jax.jit(lambda low: nrjax.Grid.geometric(GUARANTEE, low, 8.0, 5).times)(0.2)
    np.testing.assert_allclose(traced, plain, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nrjax.Grid.geometric(GUARANTEE, 0.0, 1.0, 5), "low must be positive"),
        (lambda: nrjax.Grid.linear(GUARANTEE, 2.0, 1.0, 5), "high must be above low = 2.0"),
        (lambda: nrjax.Grid.squared(GUARANTEE, 0.1, np.inf, 5), "high must be finite"),
        (lambda: nrjax.Grid.linear(GUARANTEE, 1.0, 2.0, 0), "levels must be an integer"),
        (lambda: nrjax.Grid.linear(GUARANTEE, 1.0, 2.0, 2.5), "levels must be an integer"),
        (lambda: nrjax.Grid.explicit([1.0, 2.0]), "must be falling"),
        (lambda: nrjax.Grid.explicit([1.0, 0.0]), "must be positive and finite"),
        (lambda: nrjax.Grid.explicit([]), "must be a vector of numbers, not empty"),
        (lambda: nrjax.Grid.explicit([[1.0]]), "must be a vector of numbers"),
        (lambda: nrjax.AdaptiveTimes(1.0, shrink, 2.0, 5), "last must be at most"),
        (lambda: nrjax.AdaptiveTimes(-1.0, shrink, 2.0, 5), "first must be positive"),
        (lambda: nrjax.AdaptiveTimes(1.0, shrink, 0.5, 0), "max_steps must be an integer"),
        (lambda: nrjax.AdaptiveTimes(1.0, "half", 0.5, 3), "choose must be a function"),
    ],
)
def test_bad_arguments_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def shrink(parameters, time, release):
    """Choose a larger step far from the target."""
    return time * jnp.where(jnp.abs(release) > parameters, 0.25, 0.5)


def test_adaptive_times_follow_the_releases():
    schedule = nrjax.AdaptiveTimes(64.0, shrink, 0.01, 40, parameters=6.0)
    path = nrjax.scan_path(jax.random.key(3), interaction(threshold=1.0, schedule=schedule))
    times, releases = np.asarray(path.time), np.asarray(path.release)
    last = int(np.argmax(np.asarray(path.status) == Status.EXHAUSTED))
    assert times[last] == times.dtype.type(0.01)
    ratios = times[1:last] / times[: last - 1]
    expected = np.where(np.abs(releases[: last - 1]) > 6.0, 0.25, 0.5)
    np.testing.assert_allclose(ratios, expected, rtol=1e-6)
    assert set(np.unique(expected)) == {0.25, 0.5}


def run(schedule):
    return nrjax.run_until(KEY, interaction(threshold=1.0, schedule=schedule))


def test_adaptive_times_end_after_max_steps_and_refuse_to_rise():
    outcome = run(nrjax.AdaptiveTimes(64.0, shrink, 1e-9, 4, parameters=6.0))
    assert (outcome.status, outcome.step) == (Status.EXHAUSTED, 3)
    outcome = run(nrjax.AdaptiveTimes(64.0, lambda parameters, time, release: 2 * time, 0.1, 4))
    assert (outcome.status, outcome.step) == (Status.INVALID_TIME, 0)


def test_adaptive_parameters_can_be_batched():
    steps = jax.vmap(lambda limit: run(nrjax.AdaptiveTimes(64.0, shrink, 0.01, 40, limit)).step)
    assert steps(jnp.array([1e9, 0.0])).tolist() == [13, 7]
