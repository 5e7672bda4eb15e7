"""Trials that take their steps together end as `run_until` says, for all kinds of parts."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status
from nrjax.composition import BrownianReduction, FilteredSchedule, UnifiedFilter
from nrjax.simulation import blocks, lanes, montecarlo
from tests.conformance.processes import PROCESSES
from tests.conformance.rules import RULES
from tests.marks import long_except
from tests.problems import Ceiled, Distance, logistic_parts, scalar

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

KEY = jax.random.key(5)
TRIALS = 300
TIMES = np.geomspace(50.0, 0.3, 20)
SMALL = nrjax.Batching(tile=16, inner_steps=3, devices=jax.devices()[:1])


class Custom(nrjax.NoiseProcess):
    """Brownian noise with JAX's draws and a state of its own."""

    shape: tuple[int, ...] = nrjax.static(default=())
    noise = "gaussian"

    def init(self, key, time):
        return {"time": time, "noise": jnp.sqrt(time) * jax.random.normal(key, self.shape)}

    def rewind(self, key, state, time):
        kept = time / state["time"]
        spread = jnp.sqrt(time * (1 - kept))
        draw = jax.random.normal(key, self.shape)
        return {"time": time, "noise": kept * state["noise"] + spread * draw}

    def value(self, state):
        return state["noise"]


class Overflowing(Custom):
    """Noise that overflows below a time, or at the start if the noise is large."""

    least: Any = 1.0

    def status(self, state):
        failed = (state["time"] < self.least) | (state["noise"] > 10)
        return jnp.where(failed, Status.OVERFLOW, Status.RUNNING)


class TwoInARow(nrjax.PublicThreshold):
    """Stops at the second good release in a row, with noise from JAX's draws."""

    def init(self, key, epsilon):
        return jnp.int32(0), 0.1 * jax.random.laplace(key)

    def step(self, key, state, epsilon, utility) -> Any:
        count, noise = state
        good = utility + noise + 0.1 * jax.random.normal(key) >= self.threshold
        count = jnp.where(good, count + 1, 0)
        return (count, noise), count >= 2


class Redrawn(nrjax.PublicThreshold):
    """A threshold with noise from a key in its state, which is another one at each step."""

    def init(self, key, epsilon):
        return key

    def step(self, key, state, epsilon, utility) -> Any:
        state = jax.random.fold_in(state, 1)
        return state, utility + 0.1 * jax.random.normal(state) >= self.threshold


class Doubled(Distance):
    """A distance of a hypothesis that differs from the release."""

    def hypothesis(self, release) -> Any:
        return {"twice": 2 * release}

    def evaluate(self, hypothesis):
        return super().evaluate(hypothesis["twice"] / 2)


def choose(factor, time, release):
    """Return the next time, which is invalid after a large release."""
    return jnp.where(release > 12, 2 * time, jnp.where(release > 3, 0.7, factor) * time)


def filtered():
    """Return a schedule that ends when a filter is exhausted."""
    spent = UnifiedFilter(epsilon=3.0, delta=1e-5)
    return FilteredSchedule(nrjax.Grid(TIMES), spent, spent.init(), BrownianReduction, 1.0)


LAPLACE = {"process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(1.0)}
OTHERS: dict[str, dict[str, Any]] = {
    "custom": {"process": Custom(), "rule": TwoInARow(-0.5), "utility": Doubled(3.0)},
    "key in a state": {"rule": Redrawn(-0.5)},
    "vector": {
        "value": np.full(9, 3.0),
        "process": nrjax.Brownian((9,)),
        "utility": Distance(np.full(9, 3.0)),
        "rule": nrjax.PublicThreshold(-9.0),
    },
    "adaptive": {"schedule": nrjax.AdaptiveTimes(50.0, choose, 0.3, 15, 0.85)},
    "filtered": {"schedule": filtered()},
    "statuses": {"process": Overflowing(), "utility": Distance(3.0, 7.0), "guarantee": None},
    "one step": {"schedule": nrjax.Grid([2.0]), "utility": Ceiled(3.0)},
    "few steps": {"max_steps": 7, "shift": 0.7},
    "sequence": {"utility": nrjax.UtilitySequence.of([Distance(3 + i / 50) for i in range(20)])},
    "Laplace losses": LAPLACE | {"shift": 0.7, "rule": RULES[3].build(-0.5)},
    "doubling": {
        "process": nrjax.IndependentLaplace(()),
        "guarantee": nrjax.PureGuarantee(1.0),
        "rule": nrjax.LaplaceTests(-0.5, 1.0, 2.0),
    },
    "Gaussian test": {"rule": nrjax.GaussianThreshold(-0.5, 0.25, -1.0, 0.0, 0.5, 1.0, steps=20)},
}
TABLE = (
    OTHERS
    | {case.name: {"process": case.build(()), "guarantee": None} for case in PROCESSES}
    | {case.name: {"rule": case.build(-0.5)} for case in RULES}
)
CASES = long_except(TABLE, "custom")


def trial_of(name):
    return nrjax.Interaction(**scalar(TIMES, **TABLE[name]))


def run_program(trial, batching=SMALL, code_fingerprint="", **options):
    """Return outcomes by the program of `nrjax.simulate`."""
    program = montecarlo.outcomes(trial, 128, batching=batching)
    assert program.work is blocks.run
    return dataclasses.replace(program, code_fingerprint=code_fingerprint).run_all(KEY, **options)


def one_by_one(trial):
    """Return the outcomes of `run_until`."""

    def run(number):
        return nrjax.run_until(nrjax.trial_key(KEY, number), trial)

    outcome = jax.jit(jax.vmap(run))(jnp.arange(TRIALS, dtype=jnp.uint32))
    return jax.device_get(outcome)._asdict()


@pytest.mark.parametrize("name", CASES)
def test_outcomes_are_those_of_run_until(name, dtype):
    trial = trial_of(name)
    found, expected = run_program(trial, trials=TRIALS), one_by_one(trial)
    assert np.unique(expected["step"]).size > (3 if name != "one step" else 0)
    for field in ("step", "status"):
        np.testing.assert_array_equal(found[field], expected[field])
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    chex.assert_trees_all_close(found, expected, rtol=tolerance, atol=tolerance)
    # Other trials beside it, and other chunks, change no bit.
    some = run_program(trial, trials=150, first_trial=77)
    chex.assert_trees_all_equal(some, jax.tree.map(lambda leaf: leaf[77:227], found), strict=True)


@pytest.mark.parametrize("name", long_except(("custom", "vector", "AboveThreshold")))
def test_devices_and_steps_between_checks_change_no_bit(name):
    trial = trial_of(name)
    other = nrjax.Batching(tile=16, inner_steps=8, devices=jax.devices()[::-1])
    found, same = (run_program(trial, batching, trials=TRIALS) for batching in (SMALL, other))
    chex.assert_trees_all_equal(found, same, strict=True)


@pytest.mark.parametrize(
    "name", long_except(("adaptive", "vector", "ReducedAboveThreshold"), "adaptive")
)
def test_the_program_of_an_accelerator_takes_the_same_steps(name, dtype):
    """Here it runs on the CPU, where it may round otherwise."""
    trial, small = (
        trial_of(name),
        nrjax.Batching(tile=16, inner_steps=10, devices=jax.devices()[:1]),
    )
    program = montecarlo.outcomes(trial, 128, batching=small)
    options = program.options._replace(accelerated=True)
    assert 1 < options.unroll < options.inner_steps
    found = dataclasses.replace(program, options=options).run_all(KEY, TRIALS)
    expected = run_program(trial, trials=TRIALS)
    for field in ("step", "status"):
        np.testing.assert_array_equal(found[field], expected[field])
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    chex.assert_trees_all_close(found, expected, rtol=tolerance, atol=tolerance)


def test_a_trial_that_keeps_stepping_after_its_stop_is_found(monkeypatch):
    trial = trial_of("custom")
    expected = run_program(trial, trials=TRIALS)["step"]
    monkeypatch.setattr(blocks, "_until_ended", lambda records, new: new)
    found = run_program(trial, code_fingerprint="planted fault", trials=TRIALS)["step"]
    assert np.all(found >= expected)
    assert np.mean(found > expected) > 0.3


@pytest.mark.long
def test_all_statuses_are_among_the_cases():
    found = run_program(trial_of("statuses"), trials=TRIALS)
    listed = {Status.STOPPED, Status.OVERFLOW, Status.NAN_UTILITY}
    assert set(found["status"].tolist()) == listed
    assert np.min(found["step"]) == -1
    found = run_program(trial_of("adaptive"), trials=TRIALS)
    listed = {Status.STOPPED, Status.EXHAUSTED, Status.INVALID_TIME}
    assert set(found["status"].tolist()) == listed


@pytest.mark.long
def test_points_of_a_sweep_are_those_of_their_own_runs():
    points = [nrjax.Interaction(**scalar(TIMES, level)) for level in (-0.5, -0.1, -2.0)]
    swept = nrjax.sweep(KEY, points, trials=130, batching=SMALL)
    for row, point in enumerate(points):
        alone = nrjax.simulate(KEY, point, trials=130, batching=SMALL)
        np.testing.assert_array_equal(swept.step[row], alone.step)
        np.testing.assert_array_equal(swept.status[row], alone.status)
    other = dataclasses.replace(SMALL, launch_size=33, devices=jax.devices())
    again = nrjax.sweep(KEY, points, trials=130, batching=other)
    chex.assert_trees_all_equal(again, swept, strict=True)


def test_bounds_that_spare_work_use_lanes():
    def work(parts, *fields):
        trial = nrjax.Interaction(**parts)
        return montecarlo.outcomes(trial, 64, fields or ("utility",)).work

    learned = logistic_parts()
    once: dict[str, Any] = learned | {"schedule": nrjax.Grid([0.25])}
    assert work(scalar(TIMES)) is blocks.run
    assert work(learned) is lanes.run
    assert work(once, "step", "epsilon") is lanes.run
    assert work(once, "step", "utility") is blocks.run


@pytest.mark.parametrize("size", [1, 5, 48, 16 * 1025])
def test_flags_are_ranked_as_they_are_counted(size):
    flags = np.random.default_rng(size).random(size) < 0.4
    ranks, count = blocks._ranks(jnp.asarray(flags))
    assert int(count) == flags.sum()
    # Down the columns of a table of 16 rows, or as many as divide the number of flags.
    columns = flags.reshape(np.gcd(16, size), -1).T
    expected = np.cumsum(columns).reshape(columns.shape).T.reshape(-1)
    np.testing.assert_array_equal(np.asarray(ranks)[flags], expected[flags])
