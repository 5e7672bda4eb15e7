"""Times at which one release meets an error, held against samples."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from nrjax.choice.closed_forms import (
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
    size = 200_000 if dimension < 10 else 20_000
    draws = np.random.default_rng(1).laplace(scale=time, size=(size, dimension))
    met = np.mean(np.linalg.norm(draws, axis=1) <= 2.0)
    error = math.sqrt(confidence * (1 - confidence) / size)
    assert met == pytest.approx(confidence, abs=4 * error + 1e-3)
    assert time < laplace_time_at_distance(2.1, dimension, confidence)
