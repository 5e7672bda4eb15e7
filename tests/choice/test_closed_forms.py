"""Numbers that `choose` shares with closed forms, held against samples and the leaderboard."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

import nrjax
from nrjax import questions
from nrjax.statistics.closed_forms import (
    gaussian_time_at_distance,
    laplace_time_at_distance,
    time_within,
)


@pytest.mark.parametrize("noise", ["laplace", "brownian", "discrete laplace"])
def test_closed_forms_agree_with_samples(noise):
    tolerances, confidence, size = np.array([2.0, 3.0, 3.0]), 0.9, 200_000
    time = time_within(noise, tolerances, confidence)
    rng = np.random.default_rng(1)
    if noise == "brownian":
        draws = rng.normal(scale=math.sqrt(time), size=(size, 3))
    elif noise == "laplace":
        draws = rng.laplace(scale=time, size=(size, 3))
    else:
        p = -math.expm1(-1 / time)
        draws = rng.geometric(p, (size, 3)) - rng.geometric(p, (size, 3))
    met = np.mean(np.all(np.abs(draws) <= tolerances, axis=1))
    assert met == pytest.approx(confidence, abs=4 * math.sqrt(0.09 / size))


def test_the_distance_of_gaussian_noise():
    time = gaussian_time_at_distance(2.0, 1, 0.9)
    assert math.sqrt(time) == pytest.approx(2.0 / ndtri(0.95))


@pytest.mark.parametrize(("dimension", "confidence"), [(1, 0.9), (3, 0.5), (3, 0.999), (1000, 0.9)])
def test_the_distance_of_laplace_noise(dimension, confidence):
    time = laplace_time_at_distance(2.0, dimension, confidence)
    if dimension == 1:
        assert time == pytest.approx(2.0 / math.log(10), rel=2e-3)
    size = 200_000 if dimension < 10 else 8_000
    draws = np.random.default_rng(1).laplace(scale=time, size=(size, dimension))
    met = np.mean(np.linalg.norm(draws, axis=1) <= 2.0)
    error = math.sqrt(confidence * (1 - confidence) / size)
    assert met == pytest.approx(confidence, abs=4 * error + 1e-3)
    assert time < laplace_time_at_distance(2.1, dimension, confidence)


class Constant(nrjax.Utility):
    score: float

    def evaluate(self, hypothesis):
        return self.score + 0 * hypothesis


@pytest.mark.long
def test_the_numbers_of_the_leaderboard_are_found():
    """Of 10 looks trials stop at the middle one, where it states 0.3 and 0.278."""
    line = nrjax.LinearBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
    times = float(line.time(0.3)) * 100 ** ((4 - np.arange(10)) / 9)
    exact = line.on(nrjax.Grid(times))
    scores = [Constant(float(look == 4)) for look in range(10)]

    def cases(error):
        parts = {
            "value": 0.0,
            "process": nrjax.Brownian(()),
            "schedule": nrjax.Grid(exact.times),
            "utility": nrjax.UtilitySequence.of(scores),
            "rule": nrjax.PublicThreshold(error),
        }
        boundaries = {"linear": line, "grid": exact}
        trials = {n: nrjax.Interaction(**parts, guarantee=b) for n, b in boundaries.items()}
        return {name: nrjax.Case(trial=trial) for name, trial in trials.items()}

    choice = nrjax.choose(questions.custom(cases), 0.5, trials=256, progress=False)
    medians = {row.name: row.median for row in choice.table}
    assert choice.best == "grid"
    assert medians == {
        "linear": pytest.approx(0.3, rel=1e-4),
        "grid": pytest.approx(0.278, abs=5e-4),
    }


def test_confidences_near_0_have_exact_times():
    """The inverse distributions of one coordinate whose error is at most 1."""
    low = 1e-6
    assert time_within("brownian", np.ones(1), low) == pytest.approx(
        1 / ndtri(0.5 + low / 2) ** 2, rel=1e-6
    )
    for noise in ("laplace", "spherical laplace"):  # the same noise in one dimension
        exact = -1 / math.log1p(-low)
        assert time_within(noise, np.ones(1), low) == pytest.approx(exact, rel=1e-7)
    fall = -math.expm1(-1 / time_within("discrete laplace", np.ones(1), low))
    assert fall * (3 - 2 * fall) / (2 - fall) == pytest.approx(low, rel=1e-9)
    assert math.isfinite(time_within("brownian", np.ones(1), 1e-300))
