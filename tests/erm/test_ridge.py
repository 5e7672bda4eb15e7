"""Ridge regression: its statistics, their layouts, and what is made of a release of them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import RidgeProblem, statistics
from tests.erm.risks import cast, in_ball, judged, problem_of, ridge_data

pytestmark = pytest.mark.numerical

LAMBDA = 0.05
LAYOUTS = {
    "isometric": ("gaussian", "paper"),
    "matrix": ("laplace", "paper"),
    "triangle": ("laplace", "tight"),
}


@pytest.mark.parametrize(
    ("layout", "ball"), [*((layout, "paper") for layout in LAYOUTS), ("isometric", "tight")]
)
def test_a_release_is_unpacked_and_its_risk_minimised_over_the_ball(layout, ball, dtype):
    problem = RidgeProblem.fit(*ridge_data(), LAMBDA, ball=ball)
    value, _, utility = problem.released(*LAYOUTS[layout])
    assert utility.layout == layout
    rng = np.random.default_rng(3)
    d, n = 4, problem.rows
    find = jax.jit(lambda utility, release: utility.hypothesis(release))
    find = functools.partial(find, cast(utility, dtype))
    rtol = 2e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(find(value.astype(dtype)), problem.optimum, rtol=rtol)
    points = in_ball(rng, 4000, d, problem.radius)
    for spread in (10.0, 100.0, 1000.0):
        gram_noise, moment_noise = spread * rng.normal(size=(d, d)), spread * rng.normal(size=d)
        if layout != "matrix":
            gram_noise = np.tril(gram_noise) + np.tril(gram_noise, -1).T
        gram = problem.statistics[0] + gram_noise
        moments = problem.statistics[1] + moment_noise
        release = statistics.pack(gram, moments, layout)
        assert release.shape == value.shape
        theta = np.asarray(find(release.astype(dtype)), np.float64)
        assert np.linalg.norm(theta) <= problem.radius * (1 + 8 * np.finfo(dtype).eps)

        def risk(theta, gram=gram, moments=moments):
            quadratic = np.einsum("...i,ij,...j", theta, gram, theta)
            return (0.5 * quadratic - theta @ moments) / n + 0.5 * LAMBDA * np.sum(theta**2, -1)

        scale = np.abs(gram).sum() * problem.radius**2 / n
        assert np.all(risk(points) > risk(theta) - 1e-6 * scale)
        # And it is a minimum to second order: the best of the points comes near.
        assert np.min(risk(points)) < risk(theta) + 0.05 * scale
    assert np.linalg.norm(theta) == pytest.approx(problem.radius, rel=1e-6)


def covariance(dimension, layout):
    """Of the symmetric matrix that unit noise on the release gives, entry by entry."""
    size = statistics.pack(np.zeros((dimension,) * 2), np.zeros(dimension), layout).size
    matrices = jax.vmap(lambda row: statistics.unpack(row, dimension, layout)[0])(jnp.eye(size))
    flat = np.asarray(matrices).reshape(size, -1)
    return flat.T @ flat


def test_isometric_noise_is_in_law_the_symmetric_part_of_noise_on_all_entries():
    """Gaussian laws are their covariances; the mirrored triangle has another."""
    every = covariance(4, "matrix")
    np.testing.assert_allclose(covariance(4, "isometric"), every, atol=1e-6)
    assert np.diag(covariance(4, "triangle")).max() == np.diag(every).max() == 1
    assert np.abs(covariance(4, "triangle") - every).max() == pytest.approx(0.5)
    for layout in LAYOUTS:
        gram, moments = np.arange(16.0).reshape(4, 4), np.arange(4.0)
        packed = jnp.asarray(statistics.pack(gram + gram.T, moments, layout))
        matrix, vector = statistics.unpack(packed, 4, layout)
        np.testing.assert_allclose(matrix, gram + gram.T, rtol=1e-6)
        np.testing.assert_array_equal(vector, moments)


def test_the_utility_survives_vmap_over_its_parameters(dtype):
    value, _, utility = problem_of("ridge").released("gaussian")
    lanes = 4
    releases = value + 50 * np.random.default_rng(5).normal(size=(lanes, value.size))
    many = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype)] * lanes), utility)
    many = dataclasses.replace(many, regularisation=np.linspace(0.01, 0.2, lanes, dtype=dtype))
    together = jax.jit(jax.vmap(judged))(many, releases.astype(dtype))
    one = jax.jit(judged)
    alone = [
        one(jax.tree.map(lambda leaf, i=i: leaf[i], many), releases[i].astype(dtype))
        for i in range(lanes)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-4 if dtype == jnp.float32 else 1e-10)
    assert np.std(alone) > 0.01 * np.abs(np.mean(alone))
