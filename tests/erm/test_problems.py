"""Optima and utilities of all problems against their definitions, row by row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from nrjax import datasets
from nrjax.erm import LogisticProblem, RidgeProblem
from tests.erm.losses import LAMBDA, fit, logistic
from tests.erm.risks import KINDS, in_ball, judged_lanes, problem_of, ridge_risk
from tests.problems import small_data, small_logistic

pytestmark = pytest.mark.numerical

each_kind = pytest.mark.parametrize("kind", KINDS)


def optimum_released(problem):
    return getattr(problem, "released_optimum", problem.released)("laplace")


@each_kind
def test_the_optimum_is_the_one_that_scipy_finds(kind):
    problem, (risk, data) = problem_of(kind), KINDS[kind]
    found = optimize.minimize(risk, np.zeros(problem.dimension), (*data, LAMBDA), tol=1e-12)
    np.testing.assert_allclose(problem.optimum, found.x, atol=1e-5)
    np.testing.assert_allclose(problem.optimum_loss, found.fun, rtol=1e-10)
    assert problem.minimum.gradient_norm <= (1e-14 if kind == "ridge" else 1e-12)
    assert problem.optimum.dtype == np.float64
    value, _, utility = optimum_released(problem)
    assert value is problem.optimum
    assert np.linalg.norm(value) <= utility.radius
    assert utility.sensitivity == problem.utility_sensitivity


@each_kind
def test_the_utility_is_minus_the_loss_of_the_projected_release(kind, dtype):
    """In float32 that of ridge was off by 2e-7 of the loss."""
    risk, data = KINDS[kind]
    value, _, utility = optimum_released(problem_of(kind))
    noise = np.random.default_rng(1).normal(size=(5, value.size))
    releases = (np.array([[0.0], [0.1], [1.0], [10.0], [1e4]]) * noise).astype(dtype)
    norms = np.linalg.norm(releases.astype(float), axis=1, keepdims=True)
    thetas = releases * np.minimum(1.0, utility.radius / np.maximum(norms, 1e-300))
    hypotheses = jax.vmap(utility.hypothesis)(releases)
    np.testing.assert_allclose(hypotheses, thetas, rtol=1e-5)
    np.testing.assert_array_equal(hypotheses[:2], releases[:2])  # as they are
    found = judged_lanes(utility, releases)
    assert found.dtype == hypotheses.dtype == dtype
    losses = [risk(theta, *data, LAMBDA) for theta in thetas]
    np.testing.assert_allclose(-found, losses, rtol=2e-6 if dtype == jnp.float32 else 1e-12)


def test_equal_rows_merge_also_across_labels():
    x, y = small_data()
    problem = LogisticProblem.fit(np.concatenate([x, -x]), np.concatenate([y, -y]), LAMBDA)
    distinct = np.unique(x * y[:, None], axis=0).shape[0]
    assert problem.utility.rows.shape == (distinct, 5)
    assert problem.rows == 600
    np.testing.assert_allclose(np.sum(problem.utility.weights), 1.0, rtol=1e-12)
    np.testing.assert_allclose(problem.optimum_loss, small_logistic().optimum_loss, rtol=1e-12)
    assert problem_of("own").utility.rows.shape[0] < 120


def test_the_logistic_loss_gives_the_logistic_problem():
    known = small_logistic(LAMBDA)
    radius = known.utility.radius
    promises = {"loss_at_zero": (np.log(2), np.log(2)), "lowest_loss": 0.0}
    own = fit(logistic, *small_data(), loss_spread=radius, **promises)
    assert own.utility.radius == radius == pytest.approx(np.sqrt(2 * np.log(2) / LAMBDA), rel=1e-12)
    assert known.utility_sensitivity == pytest.approx(radius / 300, rel=1e-4)
    np.testing.assert_allclose(own.value, known.value, atol=1e-9)
    np.testing.assert_allclose(own.optimum_loss, known.optimum_loss, rtol=1e-12)
    for name in ("l1_sensitivity", "l2_sensitivity", "excess_risk_sensitivity"):
        assert getattr(own, name) == pytest.approx(getattr(known, name), rel=1e-12)
    theta = jnp.linspace(-1, 1, 5)
    np.testing.assert_allclose(
        own.utility.evaluate(theta), known.utility.evaluate(theta), rtol=1e-6
    )


@pytest.mark.parametrize("slant", [0.3, 0.6])
@pytest.mark.parametrize(("rows", "regularisation"), [(40, 0.05), (1000, 0.005), (10_000, 0.001)])
def test_the_sensitivity_of_the_logistic_optimum_holds_within_a_factor_of_two(
    rows, regularisation, slant
):
    """A pair of neighbours whose optima lie more than half of it apart.

    All rows agree but one, which lies far on the wrong side (a gradient of norm nearly 1), slanted
    to the left in one data set and to the right in the other.
    """
    along, aside = np.array([1.0, 1.0]) / np.sqrt(2), np.array([1.0, -1.0]) / np.sqrt(2)
    features = np.tile(along, (rows, 1))
    problems = []
    for side in (1, -1):
        features[0] = -slant * along + side * np.sqrt(1 - slant**2) * aside
        problems.append(LogisticProblem.fit(features, np.ones(rows), regularisation))
    one, other = problems
    assert one.l2_sensitivity == pytest.approx(2 / (rows * regularisation))
    assert one.l1_sensitivity == pytest.approx(np.sqrt(2) * one.l2_sensitivity)
    # Half of it is what a row that is added or removed, not replaced, could do.
    for norm, stated in ((2, one.l2_sensitivity), (1, one.l1_sensitivity)):
        assert 0.5 * stated < np.linalg.norm(one.optimum - other.optimum, norm) <= stated


def test_ridge_on_flights(dtype):
    data = datasets.load("flights", "ridge")
    problem = RidgeProblem.fit(data.x, data.y, LAMBDA)
    assert data.x.shape == (10_000, problem.dimension)
    assert problem.optimum_loss == pytest.approx(0.02232, abs=5e-6)
    rng = np.random.default_rng(2)
    near = problem.optimum + 1e-3 * rng.normal(size=(50, problem.dimension))
    far = in_ball(rng, 100, problem.dimension, problem.radius)
    thetas = np.concatenate([far, near, problem.optimum[None]]).astype(dtype)
    losses = [ridge_risk(theta, data.x, data.y, LAMBDA) for theta in thetas.astype(float)]
    got = jax.jit(jax.vmap(problem.released("gaussian").utility.evaluate))(thetas)
    assert got.dtype == dtype
    np.testing.assert_allclose(-got, losses, rtol=2e-6 if dtype == jnp.float32 else 1e-13)
