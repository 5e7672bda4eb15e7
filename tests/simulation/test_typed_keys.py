"""Typed random keys among the numbers and the results of a trial, which NumPy cannot hold."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.simulation.families import Family
from nrjax.study.fingerprint import digest
from tests.problems import interaction

KEY = jax.random.key(7)


class Shaken(nrjax.Utility):
    """A utility with random errors, by keys that it holds and that its hypothesis holds."""

    key: Any

    def hypothesis(self, release):
        return release, jax.random.fold_in(self.key, 1)

    def evaluate(self, hypothesis):
        release, key = hypothesis
        return -jnp.abs(release) + jax.random.uniform(key)


def shaken(seed):
    return interaction([4.0, 1.0], utility=Shaken(jax.random.key(seed)))


def test_a_sweep_of_utilities_with_keys_returns_their_words():
    points = [shaken(1), shaken(2), shaken(2)]
    outcome = nrjax.sweep(KEY, points, trials=4)
    release, words = outcome.hypothesis
    np.testing.assert_array_equal(release, outcome.release)
    for point, seed in enumerate((1, 2, 2)):
        expected = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), 1))
        np.testing.assert_array_equal(words[point], np.tile(expected, (4, 1)))
    error = outcome.utility + np.abs(release)
    assert np.ptp(error, axis=1).max() < 1e-5
    assert error[0, 0] != error[1, 0] == error[2, 0]
    assert Family.from_interactions(points[1:]).places.count(True) < Family.from_interactions(
        points
    ).places.count(True)


def test_keys_have_fingerprints_by_their_words():
    assert digest(jax.random.key(1)) == digest(jax.random.key(1)) != digest(jax.random.key(2))
    assert digest(jax.random.key(1)) != digest(jax.random.key_data(jax.random.key(1)))
