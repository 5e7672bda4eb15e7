"""The private rules inside the engine."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.stopping import first_yes
from nrjax.types import Status
from tests.problems import scalar

KEY = jax.random.key(21)
TRIALS = 64
TIMES = np.geomspace(100.0, 0.05, 24)

RULES = {
    "interactive": nrjax.InteractiveAboveThreshold(-0.6, 0.05, 0.5),
    "reduced": nrjax.ReducedAboveThreshold(np.linspace(-0.9, -0.3, 24), 0.05),
}


def parts(rule):
    return scalar(TIMES, rule=rule)


@pytest.mark.parametrize("name", ["reduced", pytest.param("interactive", marks=pytest.mark.long)])
def test_simulate_scan_path_and_first_yes_agree(name):
    rule = RULES[name]
    many = nrjax.simulate(KEY, nrjax.Interaction(**parts(rule)), trials=TRIALS)
    stopped = np.asarray(many.status) == Status.STOPPED
    assert np.all(stopped | (np.asarray(many.status) == Status.EXHAUSTED))
    assert len(np.unique(many.step)) > 3
    keys = jax.vmap(lambda i: nrjax.trial_key(KEY, i))(jnp.arange(TRIALS))
    path = jax.vmap(lambda key: nrjax.scan_path(key, nrjax.Interaction(**parts(rule))))(keys)
    yes = np.asarray(path.status) == Status.STOPPED
    np.testing.assert_array_equal(np.where(yes.any(1), yes.argmax(1), 23), many.step)
    np.testing.assert_array_equal(yes.any(1), stopped)
    # Given the releases the utilities are a fixed sequence.
    found = jax.vmap(first_yes, (0, None, 0, 0))(keys, rule, path.utility, path.mechanism_epsilon)
    np.testing.assert_array_equal(found.step, many.step)
    np.testing.assert_allclose(found.cost, many.test_epsilon, rtol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_the_total_is_that_of_releases_and_test(name):
    """Shares its program with the test above."""
    rule = RULES[name]
    for thresholds in (rule.threshold, np.full_like(rule.threshold, np.inf)):
        trial = nrjax.Interaction(**parts(dataclasses.replace(rule, threshold=thresholds)))
        outcome = nrjax.simulate(KEY, trial, trials=TRIALS)
        mechanism, test = np.asarray(outcome.mechanism_epsilon), np.asarray(outcome.test_epsilon)
        stopped = np.asarray(outcome.status) == Status.STOPPED
        assert np.any(stopped) == (np.max(thresholds) < 0)
        own = mechanism if name == "reduced" else np.full_like(mechanism, 0.5)
        np.testing.assert_array_equal(test, np.where(stopped, own, own / 2))
        np.testing.assert_array_equal(outcome.epsilon, mechanism + test)
        stated = parts(rule)["guarantee"].epsilon(outcome.time)
        np.testing.assert_allclose(mechanism, stated, rtol=1e-6)


def test_a_guarantee_whose_epsilon_falls_ends_a_reduced_trial():
    class Broken(nrjax.LinearBoundary):
        """Says less for later releases."""

        def epsilon(self, time):
            return jnp.where(time < 10.0, 0.01, super().epsilon(time))

    sound = parts(nrjax.ReducedAboveThreshold(np.inf, 0.05))
    broken = Broken(*jax.tree.leaves(sound["guarantee"]))
    outcome = nrjax.run_until(KEY, nrjax.Interaction(**sound | {"guarantee": broken}))
    assert outcome.status == Status.INVALID_COST
    assert outcome.epsilon == np.inf
    assert outcome.step == np.argmax(TIMES < 10)


def test_a_rule_that_does_not_fit_the_rest_is_refused():
    with pytest.raises(ValueError, match="guarantee = None: ReducedAboveThreshold sets its noise"):
        nrjax.run_until(KEY, nrjax.Interaction(**parts(RULES["reduced"]) | {"guarantee": None}))
    short = nrjax.AboveThreshold(np.zeros(23), 0.05, 0.5)
    with pytest.raises(ValueError, match="AboveThreshold for 23 steps: must cover the 24 steps"):
        nrjax.run_until(KEY, nrjax.Interaction(**parts(short)))
    assert nrjax.run_until(KEY, nrjax.Interaction(**parts(short), max_steps=23)).step <= 22
