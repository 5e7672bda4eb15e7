"""Ridge regression: the optimum, its statistics and their layouts, and a release's loss."""

import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax import datasets
from nrjax.erm import RidgeOutputUtility, RidgeProblem, statistics
from tests.erm.risks import (
    in_ball,
    judged,
    judged_lanes,
    ridge_data,
    ridge_risk,
)

pytestmark = pytest.mark.numerical

SHARED = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))
LAMBDA = 0.05
LAYOUTS = (("gaussian", "paper"), ("laplace", "paper"), ("laplace", "tight"))
DATA = ridge_data()
PROBLEM = RidgeProblem.fit(*DATA, LAMBDA)


@pytest.fixture(scope="module")
def flights():
    data = datasets.load("flights", "ridge")
    return data, RidgeProblem.fit(data.x, data.y, LAMBDA)


def test_the_optimum_is_stationary_and_no_other_point_is_better():
    assert PROBLEM.minimum.gradient_norm <= 1e-14
    least = ridge_risk(PROBLEM.optimum, *DATA, LAMBDA)
    assert PROBLEM.optimum_loss == pytest.approx(least, rel=1e-14)
    assert np.linalg.norm(PROBLEM.optimum) <= PROBLEM.radius
    steps = 1e-4 * np.concatenate([np.eye(4), -np.eye(4)])
    others = in_ball(np.random.default_rng(1), 1000, 4, PROBLEM.radius)
    for theta in (*others, *(PROBLEM.optimum + steps)):
        assert ridge_risk(theta, *DATA, LAMBDA) > PROBLEM.optimum_loss


def test_the_optimum_on_flights(flights):
    data, problem = flights
    assert data.x.shape == (10_000, problem.dimension)
    assert problem.optimum_loss == pytest.approx(0.02232, abs=5e-6)


def test_the_optimum_on_the_paper_data():
    if not any(one.name == "twitter" and one.where for one in datasets.available(SHARED)):
        pytest.skip("the Twitter data are not on this machine")
    data = datasets.load("twitter", "ridge", data_dir=SHARED)
    problem = RidgeProblem.fit(data.x, data.y, LAMBDA)
    assert problem.dimension == 77
    assert problem.optimum_loss == pytest.approx(0.013443, abs=1e-6)


def test_the_utility_is_minus_the_loss_over_the_rows(flights, dtype):
    """In float32 it was off by 2e-7 of the loss."""
    data, problem = flights
    rng = np.random.default_rng(2)
    near = problem.optimum + 1e-3 * rng.normal(size=(50, problem.dimension))
    far = in_ball(rng, 100, problem.dimension, problem.radius)
    thetas = np.concatenate([far, near, problem.optimum[None]]).astype(dtype)
    losses = [ridge_risk(theta, data.x, data.y, LAMBDA) for theta in thetas.astype(float)]
    got = jax.jit(jax.vmap(problem.released("gaussian").utility.evaluate))(thetas)
    assert got.dtype == dtype
    np.testing.assert_allclose(-got, losses, rtol=2e-6 if dtype == jnp.float32 else 1e-13)


@pytest.mark.parametrize(("noise", "constants"), LAYOUTS)
def test_a_release_is_unpacked_and_its_risk_minimised_over_the_ball(noise, constants, dtype):
    value, _, utility = PROBLEM.released(noise, constants)
    rng = np.random.default_rng(3)
    d, n = 4, PROBLEM.rows
    find = jax.jit(utility.hypothesis)
    rtol = 2e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(find(value.astype(dtype)), PROBLEM.optimum, rtol=rtol)
    points = in_ball(rng, 4000, d, PROBLEM.radius)
    for spread in (10.0, 100.0, 1000.0):
        gram_noise, moment_noise = spread * rng.normal(size=(d, d)), spread * rng.normal(size=d)
        if utility.layout != "matrix":
            gram_noise = np.tril(gram_noise) + np.tril(gram_noise, -1).T
        gram = PROBLEM.statistics[0] + gram_noise
        moments = PROBLEM.statistics[1] + moment_noise
        release = statistics.pack(gram, moments, utility.layout)
        assert release.shape == value.shape
        theta = np.asarray(find(release.astype(dtype)), np.float64)
        assert np.linalg.norm(theta) <= PROBLEM.radius * (1 + 8 * np.finfo(dtype).eps)

        def risk(theta, gram=gram, moments=moments):
            quadratic = np.einsum("...i,ij,...j", theta, gram, theta)
            return (0.5 * quadratic - theta @ moments) / n + 0.5 * LAMBDA * np.sum(theta**2, -1)

        scale = np.abs(gram).sum() * PROBLEM.radius**2 / n
        assert np.all(risk(points) > risk(theta) - 1e-6 * scale)
        # And it is a minimum to second order: the best of the points comes near.
        assert np.min(risk(points)) < risk(theta) + 0.05 * scale


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
    for layout in ("isometric", "matrix", "triangle"):
        gram, moments = np.arange(16.0).reshape(4, 4), np.arange(4.0)
        gram = gram + gram.T
        packed = jnp.asarray(statistics.pack(gram, moments, layout))
        matrix, vector = statistics.unpack(packed, 4, layout)
        np.testing.assert_allclose(matrix, gram, rtol=1e-6)
        np.testing.assert_array_equal(vector, moments)


def test_the_released_optimum_is_projected_and_judged_by_the_definition(dtype):
    value, moved, utility = PROBLEM.released_optimum("laplace", "tight")
    assert value is PROBLEM.optimum
    assert isinstance(moved, float)
    assert isinstance(utility, RidgeOutputUtility)
    assert utility.sensitivity == PROBLEM.utility_sensitivity
    rng = np.random.default_rng(1)
    releases = np.array([[0.0], [0.1], [1.0], [1e4]]) * rng.normal(size=(4, 4))
    norms = np.linalg.norm(releases, axis=1, keepdims=True)
    thetas = releases * np.minimum(1, PROBLEM.radius / np.maximum(norms, 1e-300))
    found = judged_lanes(utility, jnp.asarray(releases, dtype))
    assert found.dtype == dtype
    losses = [ridge_risk(theta, *DATA, LAMBDA) for theta in thetas]
    np.testing.assert_allclose(-found, losses, rtol=2e-6 if dtype == jnp.float32 else 1e-12)
    hypotheses = jax.vmap(utility.hypothesis)(jnp.asarray(releases, dtype))
    np.testing.assert_array_equal(hypotheses[:3], releases[:3].astype(dtype))  # as they are


def test_the_utility_survives_vmap_over_its_parameters(dtype):
    value, _, utility = PROBLEM.released("gaussian")
    releases = value + 50 * np.random.default_rng(5).normal(size=(16, value.size))
    many = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype)] * 16), utility)
    many = dataclasses.replace(many, regularisation=np.linspace(0.01, 0.2, 16, dtype=dtype))
    together = jax.jit(jax.vmap(judged))(many, releases.astype(dtype))
    one = jax.jit(judged)
    alone = [
        one(jax.tree.map(lambda leaf, i=i: leaf[i], many), releases[i].astype(dtype))
        for i in range(16)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-4 if dtype == jnp.float32 else 1e-10)
    assert np.std(alone) > 0.01 * np.abs(np.mean(alone))


def bad(**changes):
    x, y = ridge_data(rows=20)
    return lambda: RidgeProblem.fit(
        **{"features": x, "labels": y, "regularisation": LAMBDA} | changes
    )


def rough(gradient_norm):
    return dataclasses.replace(
        PROBLEM, minimum=PROBLEM.minimum._replace(gradient_norm=gradient_norm)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (bad(features=np.full((20, 4), 2.0)), r"features\[0\] has l2 norm 4.*: must be at most 1"),
        (bad(features=np.full((20, 4), np.nan)), r"features\[0\] = .*must be finite"),
        (bad(labels=np.full(20, 1.5)), r"labels holds 1.5: must be in \[-1, 1\]"),
        (bad(labels=np.full(20, np.nan)), r"labels holds nan: must be in \[-1, 1\]"),
        (bad(labels=np.zeros(19)), r"labels has shape \(19,\): must be \(20,\)"),
        (bad(regularisation=-1.0), "regularisation = -1.0: must be above 0"),
        (bad(row_norm="l1"), r"features\[\d+\] has l1 norm 1\.\d*: must be at most 1"),
        (bad(row_norm="l0"), "row_norm = 'l0': must be 'l2' or 'l1'"),
        (lambda: PROBLEM.released("cauchy"), "noise = 'cauchy': must be 'gaussian' or 'laplace'"),
        (lambda: PROBLEM.released("laplace", "best"), "constants = 'best': must be 'paper' or"),
        (lambda: PROBLEM.released("laplace", "l1_rows"), r"'l1_rows': must be .*row_norm='l1'"),
        (lambda: PROBLEM.released("gaussian", "l1_rows"), r"'l1_rows': must be .*row_norm='l1'"),
        (lambda: PROBLEM.released_optimum("cauchy"), "noise = 'cauchy': must be 'gaussian' or"),
        (
            lambda: PROBLEM.released_optimum("laplace", "l1_rows"),
            "constants = 'l1_rows': must be 'paper' or 'tight'",
        ),
        (
            lambda: rough(1e-9).released_optimum("laplace"),
            "gradient norm at the optimum is 1e-09: must be at most",
        ),
        (
            lambda: rough(1e-8).released("laplace"),
            "gradient norm at the optimum is 1e-08: must be at most",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
