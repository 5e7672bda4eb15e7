"""Sweeps: every point has the outcomes of its own study, from the same random numbers."""

import chex
import jax
import numpy as np
import pytest

import nrjax
from nrjax.simulation.families import Family
from nrjax.simulation.program import _on_devices
from tests.problems import logistic_parts, small_logistic

pytestmark = pytest.mark.bits

KEY = jax.random.key(5)
TRIALS = 150
BATCHING = nrjax.Batching(tile=16, lanes=32, devices=jax.devices()[:1])
POINTS = [(tight_at, target) for tight_at in (0.5, 1.5) for target in (1.02, 1.05, 1.3)]


def points_of(points=POINTS):
    """Return interactions at levels of tightness, targets, and factors of the sensitivity."""
    return [nrjax.Interaction(**logistic_parts(*point)) for point in points]


@pytest.fixture(scope="module")
def swept():
    return nrjax.sweep(KEY, points_of(), trials=TRIALS, batching=BATCHING)


def test_every_point_has_the_outcomes_of_its_own_study(swept):
    assert swept.step.shape == (len(POINTS), TRIALS)
    assert len(np.unique(swept.step.mean(axis=1))) == len(POINTS)
    for number, trial in enumerate(points_of()):
        alone = nrjax.simulate(KEY, trial, trials=TRIALS, batching=BATCHING)
        point = jax.tree.map(lambda leaf, number=number: leaf[number], swept)
        np.testing.assert_array_equal(point.step, alone.step)
        np.testing.assert_array_equal(point.status, alone.status)
        # The two programs may round differently.
        chex.assert_trees_all_close(point, alone, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_batching_changes_no_bit(swept):
    odd = nrjax.Batching(tile=16, lanes=48, launch=47, inner_steps=3, devices=jax.devices()[:3])
    other = nrjax.sweep(KEY, points_of(), trials=TRIALS, batching=odd)
    chex.assert_trees_all_equal(other, swept, strict=True)


def test_other_numbers_and_other_trials_do_not_compile(swept):
    before = _on_devices._cache_size()
    points = [(0.7, 1.03, 2.0), (0.7, 1.04, 2.0), (0.9, 1.1, 3.0)] * 2
    other = nrjax.sweep(KEY, points_of(points), trials=140, first_trial=9, batching=BATCHING)
    assert _on_devices._cache_size() == before
    np.testing.assert_array_equal(other.step[0], other.step[3])
    assert other.epsilon.mean() != swept.epsilon.mean()


def correlation(one, two):
    return np.corrcoef(np.log(one), np.log(two))[0, 1]


def test_points_share_their_noise(swept):
    # Another level of tightness, and another target. Without common noise the correlation would be
    # within four errors of 0.
    assert correlation(swept.epsilon[1], swept.epsilon[4]) > 4 / np.sqrt(TRIALS)
    assert correlation(swept.epsilon[0], swept.epsilon[1]) > 4 / np.sqrt(TRIALS)
    # Planted fault: independent noise.
    other = nrjax.sweep(jax.random.key(6), points_of(), trials=TRIALS, batching=BATCHING)
    assert abs(correlation(swept.epsilon[1], other.epsilon[4])) < 4 / np.sqrt(TRIALS)


def test_leaves_that_all_points_share_are_kept_once():
    family = Family.from_interactions(iter(points_of()))
    largest = max(np.size(leaf) for leaf in family.shared)
    assert largest == small_logistic().utility.rows.size
    assert all(np.size(leaf) <= 60 * len(POINTS) for leaf in family.varied)
    assert Family.from_interactions(points_of([POINTS[0]] * 6)).places == family.places
