"""Ridge regression: statistics, their layouts, and the hypothesis of a release."""

import dataclasses
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import RidgeProblem, statistics
from tests.erm.risks import LAMBDA, cast, in_ball, judged, problem_of, ridge_data

pytestmark = pytest.mark.numerical


@jax.jit
def solve(utility, release):
    """Return hypothesis and utility."""
    return utility.hypothesis(release), judged(utility, release)


@pytest.mark.parametrize("ball", ["paper", "tight"])
def test_the_risk_of_a_release_is_minimised_over_the_ball(ball, dtype):
    problem = RidgeProblem.fit(*ridge_data(), LAMBDA, ball=ball)
    value, _, utility = problem.released("gaussian")
    utility, rng = cast(utility, dtype), np.random.default_rng(3)
    rtol = 2e-5 if dtype == jnp.float32 else 1e-12
    at_value, _ = solve(utility, value.astype(dtype))
    np.testing.assert_allclose(at_value, problem.optimum, rtol=rtol)
    points = in_ball(rng, 4000, 4, problem.radius)
    for spread in (10.0, 100.0, 1000.0):
        noise = spread * rng.normal(size=(4, 4))
        gram = problem.statistics[0] + np.tril(noise) + np.tril(noise, -1).T
        moments = problem.statistics[1] + spread * rng.normal(size=4)
        release = statistics.pack(gram, moments, "isometric")
        assert release.shape == value.shape
        theta = np.asarray(solve(utility, release.astype(dtype))[0], np.float64)
        assert np.linalg.norm(theta) <= problem.radius * (1 + 8 * np.finfo(dtype).eps)

        def risk(theta, gram=gram, moments=moments):
            quadratic = 0.5 * np.einsum("...i,ij,...j", theta, gram, theta) - theta @ moments
            return quadratic / problem.rows + 0.5 * LAMBDA * np.sum(theta**2, -1)

        scale = np.abs(gram).sum() * problem.radius**2 / problem.rows
        assert np.all(risk(points) > risk(theta) - 1e-6 * scale)
        # The best of the points comes near it.
        assert np.min(risk(points)) < risk(theta) + 0.05 * scale
    assert np.linalg.norm(theta) == pytest.approx(problem.radius, rel=1e-6)


def test_isometric_noise_has_the_distribution_of_symmetrised_noise_on_all_entries():
    """Covariances determine Gaussian noise. That of the mirrored triangle differs."""
    gram, moments, covariance = np.arange(16.0).reshape(4, 4), np.arange(4.0), {}
    gram += gram.T
    for layout, noise, constants in (
        ("isometric", "gaussian", "paper"),
        ("matrix", "laplace", "paper"),
        ("triangle", "laplace", "tight"),
    ):
        assert problem_of("ridge").released(noise, constants).utility.layout == layout
        packed = statistics.pack(gram, moments, layout)
        unpack = jax.jit(jax.vmap(lambda row, kind=layout: statistics.unpack(row, 4, kind)))
        matrices, vectors = unpack(jnp.asarray(np.vstack([packed, np.eye(packed.size)])))
        np.testing.assert_allclose(matrices[0], gram, rtol=1e-6)
        np.testing.assert_array_equal(vectors[0], moments)
        # Covariance of the symmetric matrix, entry by entry, under unit noise on the release.
        flat = np.asarray(matrices[1:]).reshape(packed.size, -1)
        covariance[layout] = flat.T @ flat
    np.testing.assert_allclose(covariance["isometric"], covariance["matrix"], atol=1e-6)
    assert np.diag(covariance["triangle"]).max() == np.diag(covariance["matrix"]).max() == 1
    assert np.abs(covariance["triangle"] - covariance["matrix"]).max() == pytest.approx(0.5)


def test_the_utility_survives_vmap_over_its_parameters(dtype):
    value, _, utility = problem_of("ridge").released("gaussian")
    noises = 50 * np.random.default_rng(5).normal(size=(4, value.size))
    releases = (value + noises).astype(dtype)
    many = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype)] * 4), utility)
    many = dataclasses.replace(many, regularisation=np.linspace(0.01, 0.2, 4, dtype=dtype))
    together = jax.jit(jax.vmap(judged))(many, releases)
    alone = [solve(*jax.tree.map(lambda leaf, i=i: leaf[i], (many, releases)))[1] for i in range(4)]
    np.testing.assert_allclose(together, alone, rtol=1e-4 if dtype == jnp.float32 else 1e-10)
    assert np.std(alone) > 0.01 * np.abs(np.mean(alone))


def test_the_tight_sensitivity_covers_the_rounding_of_sums():
    """Two tables whose first rows attain the constant, compared in exact fractions."""
    rng, n = np.random.default_rng(0), 20_000
    x, y = rng.normal(size=(n, 2)), rng.uniform(-1, 1, n)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    released = []
    for row, label in (((1.0, 0.0), 1.0), ((0.5, math.sqrt(0.75)), -1.0)):
        x[0], y[0] = row, label
        released.append(RidgeProblem.fit(x, y, 0.05).released("gaussian", "tight"))
    pairs = zip(released[0].value, released[1].value, strict=True)
    apart = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in pairs)
    stated = Fraction(float(released[0].sensitivity)) ** 2
    assert 1 - 1e-7 < apart / stated <= 1
    assert apart > Fraction(3 / math.sqrt(2)) ** 2  # the case is one that needs the allowance
