"""The law of the stopping step on fixed query values, against exact integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.stopping import (
    AboveThreshold,
    InteractiveAboveThreshold,
    ReducedAboveThreshold,
    first_yes,
)
from tests.stopping.faults import (
    FreshAboveThreshold,
    FreshReduced,
    HalfAboveThreshold,
    HalfReduced,
)
from tests.stopping.oracle import stopping_law

pytestmark = pytest.mark.numerical

TRIALS = 100_000
STEPS = 10
DEVIATIONS = 4.0  # of 88 counts: with any other keys a right sampler passes with 99.4 %
SENSITIVITY = 0.5
STEP = np.arange(STEPS)

SEQUENCES = {
    "flat": np.zeros(STEPS),
    "rising": np.linspace(-8.0, 3.0, STEPS),
    "alternating": np.where(STEP % 2, -2.5, 1.0),
    "falling": np.linspace(2.0, -3.0, STEPS),
}
THRESHOLDS = np.array([1.0, -2.0, 3.0, 0.0, -1.0, 4.0, 0.5, -3.0, 2.0, 1.0])
CLASSICAL = np.full(STEPS, 0.7)
RISING = np.array([0.15, 0.2, 0.3, 0.3, 0.35, 0.5, 0.5, 0.7, 1.1, 1.6])


@jax.jit
def _steps(rule, key, utilities, epsilons):
    """Steps of the first yes (STEPS if none): (sequences, TRIALS)."""
    keys = jax.random.split(key, TRIALS)

    def one(key, utilities):
        found = first_yes(key, rule, utilities, epsilons)
        return jnp.where(found.stopped, found.step, STEPS)

    return jax.vmap(lambda values: jax.vmap(lambda key: one(key, values))(keys))(utilities)


def counts(rule, epsilons, thresholds=THRESHOLDS, seed=0):
    """How often each step was the first yes (last column: none), one row a sequence."""
    utilities = np.stack([u + thresholds for u in SEQUENCES.values()])
    dtype = jnp.result_type(float)
    rule = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), rule)
    steps = _steps(rule, jax.random.key(seed), utilities.astype(dtype), epsilons.astype(dtype))
    return np.stack([np.bincount(row, minlength=STEPS + 1) for row in np.asarray(steps)])


def expected(epsilons):
    stop, none = stopping_law(np.stack(list(SEQUENCES.values())), epsilons, SENSITIVITY)
    return np.concatenate([stop, none[:, -1:]], axis=1)


def verdict(seen, law):
    """Largest deviation in standard errors, and the smallest chi-square p-value."""
    error = np.sqrt(TRIALS * law * (1 - law))
    chi = (((seen - TRIALS * law) ** 2) / (TRIALS * law)).sum(axis=1)
    return np.max(np.abs(seen - TRIALS * law) / error), stats.chi2.sf(chi, STEPS).min()


CASES = {
    "classical": (AboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0]), CLASSICAL),
    "reduced": (ReducedAboveThreshold(THRESHOLDS, SENSITIVITY), RISING),
}
FAULTS = {
    "classical, fresh": (FreshAboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0]), CLASSICAL),
    "classical, half": (HalfAboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0]), CLASSICAL),
    "reduced, fresh": (FreshReduced(THRESHOLDS, SENSITIVITY), RISING),
    "reduced, half": (HalfReduced(THRESHOLDS, SENSITIVITY), RISING),
}


@pytest.mark.parametrize("case", CASES)
def test_stopping_step_has_the_exact_law(case):
    rule, epsilons = CASES[case]
    law = expected(epsilons)
    assert TRIALS * law.min() > 50
    deviations, p = verdict(counts(rule, epsilons), law)
    assert deviations < DEVIATIONS
    assert p > 1e-3


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    rule, epsilons = FAULTS[fault]
    deviations, p = verdict(counts(rule, epsilons), expected(epsilons))
    assert deviations > 2 * DEVIATIONS
    assert p < 1e-9


def test_constant_epsilons_make_the_reduced_rule_the_classical_one_draw_for_draw():
    seen = counts(ReducedAboveThreshold(THRESHOLDS, SENSITIVITY), CLASSICAL)
    np.testing.assert_array_equal(seen, counts(CASES["classical"][0], CLASSICAL))
    interactive = InteractiveAboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0])
    np.testing.assert_array_equal(seen, counts(interactive, CLASSICAL))
