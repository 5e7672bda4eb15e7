"""The law of the stopping step on fixed query values, against exact integration."""

import jax
import numpy as np
import pytest
from scipy import stats

from nrjax.stopping import AboveThreshold, InteractiveAboveThreshold, ReducedAboveThreshold
from tests.stopping.faults import (
    FreshAboveThreshold,
    FreshReduced,
    HalfAboveThreshold,
    HalfReduced,
)
from tests.stopping.oracle import first_yes_counts, stopping_law

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


def counts(rule, epsilons):
    """How often each step was the first yes (last column: none), one row a sequence."""
    utilities = np.stack([u + THRESHOLDS for u in SEQUENCES.values()])
    return first_yes_counts(jax.random.key(0), rule, utilities, epsilons, TRIALS)


def verdict(rule, epsilons):
    """Largest deviation from the law in standard errors, and the smallest chi-square p-value."""
    stop, none = stopping_law(np.stack(list(SEQUENCES.values())), epsilons, SENSITIVITY)
    law, seen = np.concatenate([stop, none[:, -1:]], axis=1), counts(rule, epsilons)
    assert TRIALS * law.min() > 50
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
    deviations, p = verdict(*CASES[case])
    assert deviations < DEVIATIONS
    assert p > 1e-3


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    deviations, p = verdict(*FAULTS[fault])
    assert deviations > 2 * DEVIATIONS
    assert p < 1e-9


def test_constant_epsilons_make_the_reduced_rule_the_classical_one_draw_for_draw():
    seen = counts(ReducedAboveThreshold(THRESHOLDS, SENSITIVITY), CLASSICAL)
    np.testing.assert_array_equal(seen, counts(CASES["classical"][0], CLASSICAL))
    interactive = InteractiveAboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0])
    np.testing.assert_array_equal(seen, counts(interactive, CLASSICAL))
