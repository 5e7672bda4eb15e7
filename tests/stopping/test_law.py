"""The law of the stopping step on fixed query values, against exact integration."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Exponential
from nrjax.stopping import AboveThreshold, ReducedAboveThreshold
from tests.processes.laws import FAULTY, SOUND, bonferroni, draw_paths, fresh, law_p, mean_p
from tests.stopping.oracle import first_yes_counts, law_options, stopping_law

pytestmark = pytest.mark.numerical

TRIALS = 100_000
STEPS = 6
DEVIATIONS = 4.0  # for 140 counts: a correct sampler passes with probability 99.1 % per key
SENSITIVITY = 0.5
STEP = np.arange(STEPS)

SEQUENCES = np.array(
    [
        np.zeros(STEPS),
        np.linspace(-8.0, 3.0, STEPS),
        np.where(STEP % 2, -2.5, 1.0),
        np.linspace(2.0, -3.0, STEPS),
    ]
)
THRESHOLDS = np.array([1.0, -2.0, 3.0, 0.0, -1.0, 4.0])
CLASSICAL = np.full(STEPS, 0.7)
RISING = np.array([0.15, 0.2, 0.3, 0.3, 0.5, 0.8])


def classical(**options):
    return AboveThreshold(THRESHOLDS, SENSITIVITY, CLASSICAL[0], **options)


def reduced(**options):
    return ReducedAboveThreshold(THRESHOLDS, SENSITIVITY, **options)


CASES = {
    "classical": (classical(), CLASSICAL),
    "reduced": (reduced(), RISING),
    "monotone": (classical(monotone=True, share=0.4), CLASSICAL),
    "one-sided": (classical(noise="exponential"), CLASSICAL),
    "one-sided, reduced": (reduced(noise="exponential", share=0.4), RISING),
}


@cache
def counts(case):
    """Count first positive answers by step (last column: none), one row per sequence."""
    return first_yes_counts(jax.random.key(0), *CASES[case], SEQUENCES + THRESHOLDS, TRIALS)


def expected(case, scaled=(1, 1), **fault):
    """Return the counts expected by the law, with scaled threshold and query noise."""
    rule, epsilons = CASES[case]
    options = law_options(rule) | fault
    options["factors"] = np.multiply(options["factors"], scaled)
    stop, none = stopping_law(SEQUENCES, epsilons, SENSITIVITY, **options)
    return TRIALS * np.concatenate([stop, none[:, -1:]], axis=1)


def verdict(seen, want):
    """Return the largest deviation in standard errors, and the smallest chi-square p-value."""
    deviations = np.abs(seen - want) / np.sqrt(want * (1 - want / TRIALS))
    chi = ((seen - want) ** 2 / want).sum(axis=1)
    return np.max(deviations), stats.chi2.sf(chi, STEPS).min()


@pytest.mark.parametrize("case", CASES)
def test_stopping_step_has_the_exact_law(case):
    want = expected(case)
    deviations, p = verdict(counts(case), want)
    assert want.min() > 30
    assert deviations < DEVIATIONS
    assert p > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_it_has_no_other_law(case):
    """Planted faults: threshold noise new at each step or narrower, and other query noise."""
    other = "laplace" if CASES[case][0].noise == "exponential" else "exponential"
    faults = ((1, 1), {"fresh": True}), ((0.5, 1), {}), ((1, 0.7), {}), ((1, 1), {"noise": other})
    for scaled, fault in faults:
        deviations, p = verdict(counts(case), expected(case, scaled, **fault))
        assert deviations > 2 * DEVIATIONS
        assert p < 1e-9


def test_constant_epsilons_make_the_reduced_rule_the_classical_one_draw_for_draw():
    utilities = SEQUENCES + THRESHOLDS
    seen = first_yes_counts(jax.random.key(0), reduced(), CLASSICAL, utilities, TRIALS)
    np.testing.assert_array_equal(seen, counts("classical"))


def test_exponential_noise_is_rewound_by_its_kernel():
    times = np.array([5.0, 2.0, 1.5])
    path = draw_paths(Exponential((2,)), times, 60_000, seed=4)[0]

    def p(path):
        found = [law_p((path / times[None, :, None]).reshape(len(path), -1), stats.expon.cdf)]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            found.append(mean_p(path[:, i] == path[:, j], times[j] / times[i]))
            found.append(mean_p(path[:, i] * path[:, j], times[j] ** 2 + times[i] * times[j]))
        return bonferroni(found)

    assert p(path) > SOUND
    assert p(fresh(path)) < FAULTY
    assert p(np.where(path == path[:, :1], path, path + 0.05)) < FAULTY
