"""Results depend neither on the number of trials, nor on chunks, lanes, devices or neighbours."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from nrjax.erm import RidgeProblem
from nrjax.simulation import montecarlo
from nrjax.simulation.program import _on_devices
from tests.marks import long_except
from tests.problems import Ceiled, Distance, interaction, logistic_parts, scalar, small_data
from tests.simulation.small import KEY, ONE, SMALL, simulate

pytestmark = pytest.mark.bits


def ridge_parts():
    """Return ridge regression with Laplace noise and a solve for each hypothesis."""
    rng = np.random.default_rng(4)
    x, _ = small_data(rows=2000)
    problem = RidgeProblem.fit(x, 0.5 * x[:, 0] + 0.1 * rng.uniform(-1, 1, len(x)), 0.2)
    value, sensitivity, utility = problem.released("laplace")
    guarantee = nrjax.PureGuarantee(sensitivity)
    return {
        "value": value,
        "process": nrjax.Laplace(value.shape),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.3, 60.0, 40),
        "utility": utility,
        "rule": nrjax.ReducedAboveThreshold(
            -1.5 * problem.optimum_loss, problem.utility_sensitivity
        ),
        "shift": np.full(value.shape, 0.01),
    }


def process_parts(process):
    shape = process.shape
    return scalar(
        np.geomspace(40.0, 0.02, 30),
        threshold=-2.0,
        process=process,
        guarantee=None,
        value=np.full(shape, 3.0),
        utility=Distance(np.full(shape, 3.0)),
        shift=np.ones(shape),
    )


def doubling_parts():
    """Return a doubling method: independent releases and tests, all of them paid for."""
    return process_parts(nrjax.IndependentLaplace((3,))) | {
        "guarantee": nrjax.PureGuarantee(1.0),
        "rule": nrjax.LaplaceTests(-2.0, 0.1, 0.2),
        "shift": None,
    }


PARTS = {
    "brownian": lambda: process_parts(nrjax.Brownian((3,))),
    "laplace": lambda: process_parts(nrjax.Laplace((3,))),
    "jumps": lambda: process_parts(nrjax.LaplaceJumps((3,), 0.02, 40.0)),
    "skellam": lambda: process_parts(nrjax.Skellam((3,), 2.0, 2.0)),
    "doubling": doubling_parts,
    "logistic": logistic_parts,
    "ridge": ridge_parts,
}
KINDS = long_except(PARTS, "logistic")  # the others take long to compile


@functools.cache
def whole(name):
    """Return an interaction and 150 trials of it."""
    trial = nrjax.Interaction(**PARTS[name]())
    return trial, simulate(trial, 150)


@pytest.mark.parametrize("name", KINDS)
def test_results_do_not_depend_on_places_or_batching(name):
    """Vary the number of trials, lanes, inner steps, chunks and devices, but not the tile."""
    trial, all_of_them = whole(name)
    assert np.unique(all_of_them.step).size > 5
    if name != "skellam":  # with integer releases
        assert np.unique(all_of_them.release, axis=0).shape[0] == 150
    # Fewer trials, but enough for the same program.
    some = jax.tree.map(lambda leaf: leaf[11:144], all_of_them)
    chex.assert_trees_all_equal(simulate(trial, 133, first_trial=11), some, strict=True)
    turn = 1 if name == "brownian" else 3  # XLA unrolls a loop of one step
    odd = nrjax.Batching(tile=16, lanes=48, launch=67, inner_steps=turn)
    chex.assert_trees_all_equal(simulate(trial, 150, odd), all_of_them, strict=True)


@pytest.mark.parametrize("name", long_except(("brownian", "logistic", "doubling"), "logistic"))
def test_trials_are_those_of_run_until(name, dtype):
    trial, many = whole(name)
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    for number in (0, 1, 77, 149):
        one = nrjax.run_until(nrjax.trial_key(KEY, number), trial)
        same = jax.tree.map(lambda leaf, number=number: leaf[number], many)
        assert (one.step, one.status) == (same.step, same.status)
        chex.assert_trees_all_close(one, same, rtol=tolerance, atol=tolerance)


@pytest.mark.long
def test_the_default_tile_gives_the_same_stops():
    trial, other = whole("logistic")
    default = nrjax.simulate(KEY, trial, trials=150)
    np.testing.assert_array_equal(default.step, other.step)
    np.testing.assert_array_equal(default.release, other.release)
    np.testing.assert_allclose(default.utility, other.utility, rtol=1e-6)


@pytest.mark.long
def test_a_single_trial_is_the_trial_among_others():
    """A tile of one would have a single lane, which rounds differently."""
    batching, trial = nrjax.Batching(tile=1, lanes=4, devices=ONE), interaction()
    many = simulate(trial, 10, batching)
    alone = [simulate(trial, 1, batching, first_trial=number) for number in range(10)]
    together = jax.tree.map(lambda *rows: np.concatenate(rows), *alone)
    chex.assert_trees_all_equal(together, many, strict=True)
    single = simulate(trial, 10, nrjax.Batching(1, 1, devices=ONE))
    np.testing.assert_allclose(single.epsilon, many.epsilon, rtol=1e-6)


@pytest.mark.long
def test_a_lane_is_not_refilled_before_its_trial_has_ended():
    # Short and long trials alternate: each must appear once, in its place.
    trial = interaction(threshold=-0.05)
    outcome = simulate(trial, 500)
    assert set(np.unique(outcome.status)) == {Status.STOPPED, Status.EXHAUSTED}
    later = simulate(trial, 500, nrjax.Batching(tile=512, lanes=512))
    chex.assert_trees_all_equal(outcome, later, strict=True)


def test_statuses_of_mixed_trials():
    with pytest.warns(nrjax.FailedTrialsWarning):
        outcome = simulate(interaction(threshold=-0.05, utility=Distance(3.0, 12.0)), 500)
    broken = outcome.status == Status.NAN_UTILITY
    assert 0.1 < broken.mean() < 0.9
    np.testing.assert_array_equal(np.isnan(outcome.utility), broken)
    assert np.all(outcome.release[broken] > 12.0)
    assert np.all(outcome.utility[outcome.status == Status.STOPPED] >= -0.05)


@pytest.mark.long
def test_trials_that_fail_at_the_start_are_all_reported():
    # A buffer of one jump, where about fourteen are needed: nearly every trial overflows.
    process = nrjax.LaplaceJumps((), 0.02, 40.0, size=1)
    trial = interaction(np.geomspace(40.0, 0.02, 30), process=process, guarantee=None)
    with pytest.warns(nrjax.FailedTrialsWarning, match="OVERFLOW"):
        outcome = simulate(trial, 500)
    failed = outcome.status == Status.OVERFLOW
    assert failed.mean() > 0.98
    assert set(np.unique(outcome.status)) <= {Status.OVERFLOW, Status.STOPPED, Status.EXHAUSTED}
    assert np.all(outcome.step[failed] == -1)
    assert np.all(np.isnan(outcome.release[failed]))


def numpy_stops(rng, times, trials, fresh):
    """Return stop steps of the scalar problem by NumPy. `fresh` plants a fault."""
    stops = np.full(trials, len(times))
    noise = np.sqrt(times[0]) * rng.normal(size=trials)
    for step, time in enumerate(times):
        if step > 0:
            now = times[step - 1]
            kept = 0.0 if fresh else time / now
            variance = time if fresh else time * (now - time) / now
            noise = kept * noise + np.sqrt(variance) * rng.normal(size=trials)
        stops = np.where((stops == len(times)) & (np.abs(noise) <= 0.5), step, stops)
    return stops


def stop_p_value(steps, others):
    """Return the p-value of equal distributions of two samples of stop steps (chi-square)."""
    edges = np.unique(np.quantile(others, np.linspace(0, 1, 13)[1:-1]))
    table = [
        np.bincount(np.searchsorted(edges, s), minlength=edges.size + 1) for s in (steps, others)
    ]
    return stats.chi2_contingency(table).pvalue


@pytest.mark.long
def test_stop_steps_have_the_distribution_of_a_numpy_loop():
    times = np.geomspace(100.0, 0.01, 50)
    steps = nrjax.simulate(KEY, interaction(times), trials=40_000).step
    rng = np.random.default_rng(0)
    assert stop_p_value(steps, numpy_stops(rng, times, 40_000, fresh=False)) > 1e-4
    # Negative control: fresh noise at each step, which has the same marginals.
    assert stop_p_value(steps, numpy_stops(rng, times, 40_000, fresh=True)) < 1e-12


@pytest.mark.long
def test_paths_are_those_of_scan_path():
    parts = logistic_parts()
    trial = nrjax.Interaction(**parts)
    first = montecarlo.paths(trial, 70, ("time", "utility", "epsilon"), SMALL).run(KEY, 70)
    np.testing.assert_array_equal(first["time"][0], parts["schedule"].times)
    for number in (0, 69):
        path = nrjax.scan_path(nrjax.trial_key(KEY, number), trial)
        np.testing.assert_allclose(first["utility"][number], path.utility, rtol=2e-5)
    odd = montecarlo.paths(trial, 41, ("utility",), nrjax.Batching(tile=16))
    np.testing.assert_array_equal(odd.run(KEY, 29, 41)["utility"], first["utility"][41:])


def _norm(outcome):
    return jnp.linalg.norm(outcome.hypothesis)


def _ends_and_release(outcome):
    return jnp.stack([outcome.epsilon, jnp.sum(outcome.release)])


DERIVED = (("norm", _norm), ("two", _ends_and_release))


@pytest.mark.long
def test_derived_results_are_functions_of_the_outcome(dtype):
    """Also if bounds decide the last answer, so that its hypothesis is computed late."""
    parts = doubling_parts() | {"max_steps": 12}
    kept = simulate(nrjax.Interaction(**parts), 100)
    assert set(np.unique(kept.status)) == {Status.STOPPED, Status.EXHAUSTED}
    # With bounds, so that most hypotheses are not computed, and the last one late.
    trial = nrjax.Interaction(**parts | {"utility": Ceiled(np.full(3, 3.0), slack=0.1)})
    found = montecarlo.outcomes(trial, 100, ("step",), SMALL, DERIVED).run(KEY, 100)
    assert set(found) == {"step", "norm", "two"}
    chex.assert_type([found["norm"], found["two"]], dtype)
    np.testing.assert_array_equal(found["step"], kept.step)
    norms = np.linalg.norm(kept.hypothesis, axis=1)
    np.testing.assert_allclose(found["norm"], norms, rtol=1e-5)
    assert np.unique(found["norm"]).size == 100
    np.testing.assert_array_equal(found["two"][:, 0], kept.epsilon)
    np.testing.assert_allclose(found["two"][:, 1], kept.release.sum(axis=1), rtol=1e-4, atol=1e-4)
    before = _on_devices._cache_size()
    again = montecarlo.outcomes(trial, 100, ["step"], SMALL, list(DERIVED)).run(KEY, 33, 7)
    np.testing.assert_array_equal(again["norm"], found["norm"][7:40])
    assert _on_devices._cache_size() == before


@pytest.mark.long
def test_the_last_trials_that_have_keys():
    # On eight devices, of which some are idle.
    outcome = nrjax.simulate(KEY, interaction(), trials=3, first_trial=2**32 - 3)
    assert np.unique(outcome.release).size == 3
    with pytest.raises(ValueError, match=r"first_trial \+ trials must be at most"):
        nrjax.simulate(KEY, interaction(), trials=4, first_trial=2**32 - 3)


class Shaken(nrjax.Brownian):
    """A process with draws that JAX makes only from its own keys."""

    def rewind(self, key, state, time):
        rewound = super().rewind(key, state, time)
        return rewound._replace(value=rewound.value + jax.random.poisson(key, 1.0))


@pytest.mark.long
def test_a_process_may_use_jax_random_poisson():
    trial = interaction(process=Shaken(()))
    outcome = simulate(trial, 3)
    one = nrjax.run_until(nrjax.trial_key(KEY, 2), trial)
    assert outcome.step[2] == one.step
    np.testing.assert_allclose(outcome.release[2], one.release, rtol=1e-5)


def test_a_second_simulation_does_not_compile():
    simulate(interaction(), 300)
    before = _on_devices._cache_size()
    other = interaction(value=2)
    nrjax.simulate(jax.random.key(9), other, trials=320, batching=SMALL)
    assert _on_devices._cache_size() == before
