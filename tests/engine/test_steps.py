"""One trial: the compiled loop against its oracles, and every status."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.keys import Role, role_key, step_key
from nrjax._base.outcome import Status
from nrjax._base.threefry import unrolled_key
from nrjax.stopping import first_yes
from tests.problems import Distance, interaction, scalar

KEY = jax.random.key(7)
PURE = {"guarantee": nrjax.PureGuarantee(1.0)}


def eager(key, value, process, guarantee, schedule, utility, rule):
    """Run the engine in a dozen lines of eager Python."""
    noise = role_key(unrolled_key(key), Role.NOISE)
    releases = []
    for step, time in enumerate(np.asarray(schedule.times)):
        time = jnp.asarray(time, jnp.result_type(float))
        if step == 0:
            state = process.init(step_key(noise, 0), time)
        else:
            state = process.rewind(step_key(noise, step), state, time)
        releases.append(np.asarray(value + process.value(state)))
        if utility.evaluate(releases[-1]) >= rule.threshold:
            break
    return step, time, releases, guarantee.epsilon(time)


def run(key=KEY, *given, **changes):
    return nrjax.run_until(key, interaction(*given, **changes))


@pytest.mark.parametrize(
    ("process", "guarantee"),
    [
        (nrjax.Brownian(()), nrjax.LinearBoundary.tight_at_epsilon(0.5, 1.0, 1e-6)),
        (nrjax.Laplace(()), nrjax.PureGuarantee(1.0)),
    ],
)
def test_stops_where_an_eager_loop_stops(process, guarantee, dtype):
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-11
    parts = scalar(np.geomspace(30.0, 1e-3, 20), process=process, guarantee=guarantee)
    for number in range(3):
        key = jax.random.fold_in(KEY, number)
        outcome = nrjax.run_until(key, nrjax.Interaction(**parts, shift=1.0))
        step, time, releases, epsilon = eager(key, **parts)
        assert (outcome.step, outcome.status, outcome.test_epsilon) == (step, Status.STOPPED, 0)
        np.testing.assert_allclose(outcome.time, time, rtol=1e-6)
        np.testing.assert_allclose(outcome.release, releases[-1], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(outcome.mechanism_epsilon, epsilon, rtol=1e-6)
        np.testing.assert_allclose(outcome.epsilon, epsilon, rtol=1e-6)
        chex.assert_type([outcome.release, outcome.time, outcome.epsilon], dtype)


def test_run_until_is_the_first_stop_of_the_path():
    keys, trial = jax.random.split(KEY, 50), interaction(shift=1.0)
    outcomes = jax.vmap(lambda key: nrjax.run_until(key, trial))(keys)
    paths = jax.vmap(lambda key: nrjax.scan_path(key, trial))(keys)
    first = np.argmax(np.asarray(paths.status) == Status.STOPPED, axis=1)
    np.testing.assert_array_equal(outcomes.step, first)
    at_stop = jax.tree.map(lambda leaf: leaf[np.arange(50), first], paths._asdict())
    found = {name: getattr(outcomes, name) for name in at_stop}
    chex.assert_trees_all_close(found, at_stop, rtol=2e-5, atol=2e-5)


def test_a_path_continues_after_a_stop_and_marks_the_end_of_the_grid():
    path = nrjax.scan_path(KEY, interaction(threshold=-1e9))
    np.testing.assert_array_equal(path.status, np.full(50, Status.STOPPED))
    assert np.unique(path.release).size == 50
    path = nrjax.scan_path(KEY, interaction(threshold=1.0))
    expected = np.array([Status.RUNNING] * 49 + [Status.EXHAUSTED])
    np.testing.assert_array_equal(path.status, expected)


def test_the_last_row_of_a_path_is_repeated():
    rule = nrjax.AboveThreshold(-1e4, 1.0, 1.0)
    path = nrjax.scan_path(KEY, interaction([4.0, 2.0], rule=rule, max_steps=5))
    np.testing.assert_array_equal(path.status, np.full(5, Status.STOPPED))
    np.testing.assert_array_equal(path.test_epsilon, np.ones(5))
    np.testing.assert_array_equal(path.epsilon[1:], np.full(4, path.epsilon[1]))


class Falling(nrjax.Guarantee):
    """A guarantee whose epsilon falls by less than the tolerance at each step."""

    noise = "gaussian"
    delta = 0.0

    def epsilon(self, time):
        return 1 - 16 * float(jnp.finfo(time.dtype).eps) * (100 - time)


def test_a_traced_number_of_steps_ends_a_path_of_accepted_releases():
    def steps(number):
        trial = interaction(np.geomspace(100, 1, 6), threshold=-1e9, max_steps=number)
        return nrjax.scan_path(KEY, trial).time

    times = np.asarray(jax.jit(steps)(3))
    assert np.unique(times).size == 3
    np.testing.assert_array_equal(times[3:], times[2])


def test_the_largest_cost_is_charged():
    changes = {"times": np.arange(100.0, 0.0, -1.0), "threshold": 1.0, "guarantee": Falling()}
    outcome = run(**changes, max_steps=2)
    assert (outcome.status, outcome.mechanism_epsilon) == (Status.EXHAUSTED, 1)
    # Many small falls are a fall.
    outcome = run(**changes)
    assert (outcome.status, outcome.mechanism_epsilon) == (Status.INVALID_COST, np.inf)


def test_a_copy_has_all_steps_of_its_schedule():
    trial = interaction([4.0, 2.0], threshold=1.0)
    longer = dataclasses.replace(trial, schedule=nrjax.Grid([8.0, 4.0, 2.0, 1.0]), shift=0.5)
    outcome = nrjax.run_until(KEY, longer)
    assert (outcome.status, outcome.step) == (Status.EXHAUSTED, 3)
    # The value keeps the remainder of its cast.
    exact = interaction(value=0.1)
    assert dataclasses.replace(exact, rule=nrjax.PublicThreshold(0.0)).value == exact.value
    if jnp.result_type(float) == jnp.float32:
        guarantee, process = nrjax.PureGuarantee(1e3), nrjax.Laplace(())
        large = interaction([2e4, 1e4], value=2.0**30 + 0.3, guarantee=guarantee, process=process)
        with pytest.raises(ValueError, match=r"must be below 2\^24 times the sensitivity 1,"):
            dataclasses.replace(large, guarantee=nrjax.PureGuarantee(1.0))


def test_a_traced_number_of_steps_ends_with_a_sequence():
    """The last utility of the sequence is not used twice."""
    utility = nrjax.UtilitySequence.of([Distance(3.0), Distance(2.0)])
    parts = {"times": [8.0, 4.0, 2.0, 1.0], "threshold": 1.0, "utility": utility}
    outcome = jax.jit(lambda steps: run(**parts, max_steps=steps))(4)
    assert (outcome.status, outcome.step) == (Status.EXHAUSTED, 1)


@pytest.mark.parametrize(
    ("changes", "status", "step"),
    [
        ({"threshold": 1.0}, Status.EXHAUSTED, 49),
        ({"threshold": 1.0, "max_steps": 3}, Status.EXHAUSTED, 2),
        ({"threshold": -1e9, "utility": Distance(3.0, broken=-1e9)}, Status.NAN_UTILITY, 0),
        ({"process": nrjax.LaplaceJumps((), 0.01, 100.0, size=1), **PURE}, Status.OVERFLOW, -1),
    ],
)
def test_a_trial_that_does_not_stop_pays_for_its_releases(changes, status, step):
    """The buffer of jumps holds one, and the horizon needs about ten."""
    outcome = run(**changes)
    assert (outcome.status, outcome.step) == (status, step)
    assert np.isnan(outcome.utility) == (status != Status.EXHAUSTED)
    if step < 0:
        assert not np.isfinite(outcome.epsilon)
    else:
        parts = scalar()
        paid = parts["guarantee"].epsilon(parts["schedule"].times[step])
        np.testing.assert_allclose(outcome.epsilon, paid, rtol=1e-6)


@jax.jit
def traced_grid(times):
    """Run a grid that the constructor cannot check."""
    return run(threshold=1.0, schedule=nrjax.Grid(times))


@pytest.mark.parametrize(
    ("times", "status", "released"),
    [
        ([4.0, 2.0, 3.0], Status.INVALID_TIME, True),
        ([4.0, -1.0, 1.0], Status.INVALID_TIME, True),
        ([4.0, np.nan, 1.0], Status.INVALID_TIME, True),
        ([np.inf, 2.0, 1.0], Status.NO_TIME, False),
        ([0.0, 2.0, 1.0], Status.INVALID_TIME, False),
        ([4.0, np.inf, 1.0], Status.NO_TIME, True),
    ],
)
def test_bad_times_under_a_trace_are_statuses(times, status, released):
    outcome = traced_grid(jnp.asarray(times, float))
    assert outcome.status == status
    assert outcome.step < 2
    assert (outcome.step >= 0) == released
    for number in (outcome.time, outcome.release, outcome.epsilon):
        assert np.isfinite(number) if released else np.isnan(number)


def test_a_traced_epsilon_without_a_time_is_a_status():
    def status(low):
        guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
        grid = nrjax.Grid.geometric(guarantee, low, 2.0, 5)
        return run(guarantee=guarantee, schedule=grid).status

    assert jax.jit(status)(0.1) == Status.NO_TIME
    assert jax.jit(status)(0.16) in (Status.STOPPED, Status.EXHAUSTED)
    with pytest.raises(ValueError, match=r"epsilon must be .*above sensitivity \* a"):
        status(0.1)


class Counting(nrjax.PublicThreshold):
    """A rule that charges 1 per answer, and 100 for a stop."""

    def cost(self, epsilon, stopped=True, answers=1):
        return (answers + 100 * jnp.asarray(stopped)) * jnp.ones_like(epsilon)


class Failing(Counting):
    """A rule that fails at its third query."""

    def status(self, state):
        return jnp.where(state == 3, Status.INVALID_TIME, Status.RUNNING)


def test_the_cost_depends_on_the_number_of_answers():
    outcome = run(rule=Counting(1.0))
    assert (outcome.status, outcome.test_epsilon) == (Status.EXHAUSTED, 50)
    outcome = run(rule=Counting(-0.5))
    assert (outcome.status, outcome.test_epsilon) == (Status.STOPPED, outcome.step + 101)
    path = nrjax.scan_path(KEY, interaction(rule=Counting(-1e9)))
    np.testing.assert_array_equal(path.test_epsilon, np.arange(101, 151))
    # The query at which the rule fails is counted, as a negative answer.
    outcome = run(rule=Failing(1.0))
    assert (outcome.status, outcome.step, outcome.test_epsilon) == (Status.INVALID_TIME, 2, 3)
    found = jax.jit(lambda u: first_yes(KEY, Failing(1.0), u))(jnp.zeros(5))
    assert (found.status, found.step, found.cost) == (Status.INVALID_TIME, 1, 3)


def test_without_a_guarantee_epsilon_is_nan_and_the_loss_is_reported():
    outcome = run(guarantee=None, shift=1.0)
    assert np.isnan(outcome.epsilon)
    expected = (0.5 + (outcome.release - 3.0)) / outcome.time
    np.testing.assert_allclose(outcome.privacy_loss, expected, rtol=1e-4, atol=1e-6)
    assert np.isnan(run(guarantee=None).privacy_loss)
    # The cost of a stop is unknown, and that of a trial that never stops is infinite.
    assert np.isnan(outcome.stopping_epsilon)
    assert run(guarantee=None, threshold=1.0).stopping_epsilon == np.inf
    assert run(threshold=1.0).stopping_epsilon == np.inf
    assert run().stopping_epsilon == run().epsilon


def test_vmap_over_sensitivity_and_tightness_traces_once():
    @jax.jit
    @jax.vmap
    @chex.assert_max_traces(n=1)
    def epsilon(sensitivity, level):
        guarantee = nrjax.LinearBoundary.tight_at_epsilon(level, sensitivity, 1e-6)
        grid = nrjax.Grid.geometric(guarantee, 1.5 * level, 20.0, 10)
        return run(guarantee=guarantee, schedule=grid).epsilon

    first = epsilon(jnp.array([0.5, 1.0]), jnp.array([0.2, 0.4]))
    second = epsilon(jnp.array([0.6, 2.0]), jnp.array([0.3, 0.5]))
    chex.assert_tree_all_finite((first, second))


def test_numbers_of_any_type_share_a_trace():
    from nrjax.engine.steps import _run_until

    before = _run_until.jitted._cache_size()
    for number in (1, 1.0, np.float32(1), np.float64(1), jnp.float32(1)):
        parts = {"process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(number)}
        run(times=np.array([9.0, 4.0, 1.0]), **parts, value=float(number))
    assert _run_until.jitted._cache_size() <= before + 1
