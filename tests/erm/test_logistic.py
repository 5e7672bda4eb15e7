"""Logistic regression: the optimum, its sensitivity, and the loss of a release."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from nrjax.erm import LogisticProblem
from tests.erm.risks import cast, judged, judged_lanes, logistic_risk
from tests.problems import small_data, small_logistic

pytestmark = pytest.mark.numerical


def test_optimum_is_the_one_that_scipy_finds():
    x, y = small_data()
    problem = LogisticProblem.fit(x, y, 0.05)
    found = optimize.minimize(logistic_risk, np.zeros(5), (x, y, 0.05), tol=1e-12)
    np.testing.assert_allclose(problem.optimum, found.x, atol=1e-5)
    np.testing.assert_allclose(problem.optimum_loss, found.fun, rtol=1e-10)
    assert problem.minimum.gradient_norm <= 1e-9
    assert problem.optimum.dtype == np.float64
    assert problem.value is problem.optimum
    assert problem.shape == (5,)
    for regularisation in (1e-4, 0.05, 10.0):
        problem = small_logistic(regularisation)
        assert np.linalg.norm(problem.optimum) <= problem.utility.radius


def test_utility_is_minus_the_loss_of_the_projected_release(dtype):
    x, y = small_data()
    problem = small_logistic()
    rng = np.random.default_rng(1)
    radius = np.sqrt(2 * np.log(2) / 0.05)
    assert problem.utility.radius == pytest.approx(radius, rel=1e-12)
    for scale in (0.1, 1.0, 10.0, 1e4):
        release = scale * rng.normal(size=5)
        hypothesis = problem.utility.hypothesis(jnp.asarray(release))
        norm = np.linalg.norm(release)
        expected = release * min(1.0, radius / norm)
        np.testing.assert_allclose(hypothesis, expected, rtol=1e-5)
        utility = problem.utility.evaluate(hypothesis)
        rtol = 2e-6 if dtype == jnp.float32 else 1e-12
        np.testing.assert_allclose(-utility, logistic_risk(expected, x, y, 0.05), rtol=rtol)
        assert hypothesis.dtype == dtype
    np.testing.assert_array_equal(problem.utility.hypothesis(jnp.zeros(5)), np.zeros(5))


def test_rows_merge_also_across_labels():
    x, y = small_data()
    problem = LogisticProblem.fit(np.concatenate([x, -x]), np.concatenate([y, -y]), 0.05)
    distinct = np.unique(x * y[:, None], axis=0).shape[0]
    assert problem.utility.rows.shape == (distinct, 5)
    assert problem.rows == 600
    np.testing.assert_allclose(np.sum(problem.utility.weights), 1.0, rtol=1e-12)
    np.testing.assert_allclose(problem.optimum_loss, small_logistic().optimum_loss, rtol=1e-12)


def test_no_neighbour_moves_the_optimum_further_than_the_sensitivity():
    x, y = small_data(rows=40)
    regularisation = 0.05
    problem = LogisticProblem.fit(x, y, regularisation)
    assert problem.l2_sensitivity == pytest.approx(2 / (40 * regularisation))
    assert problem.l1_sensitivity == pytest.approx(np.sqrt(5) * problem.l2_sensitivity)
    for row in range(0, 40, 8):
        direction = x[row] / max(np.linalg.norm(x[row]), 1e-9)
        for new in (-direction, direction):
            for label in (-1.0, 1.0):
                other_x, other_y = x.copy(), y.copy()
                other_x[row], other_y[row] = new, label
                other = LogisticProblem.fit(other_x, other_y, regularisation)
                moved = other.optimum - problem.optimum
                assert np.linalg.norm(moved) <= problem.l2_sensitivity
                assert np.sum(np.abs(moved)) <= problem.l1_sensitivity


@pytest.mark.parametrize("slant", [0.3, 0.5, 0.6])
@pytest.mark.parametrize(("rows", "regularisation"), [(40, 0.05), (1000, 0.005), (10_000, 0.001)])
def test_the_sensitivity_is_within_a_factor_of_two(rows, regularisation, slant):
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
    moved = problems[0].optimum - problems[1].optimum
    # Half of it is what a row that is added or removed, not replaced, could do.
    for norm, stated in ((2, problems[0].l2_sensitivity), (1, problems[0].l1_sensitivity)):
        assert 0.5 * stated < np.linalg.norm(moved, norm) <= stated


def test_a_row_moves_the_utility_by_the_stated_sensitivity_at_most_and_nearly(dtype):
    """Rows along the hypothesis, which is at the rim of the ball, and elsewhere.

    Rounding is part of what is stated: at 300 rows it is below 1e-4 of the sensitivity.
    """
    problem = small_logistic()
    radius = np.sqrt(2 * np.log(2) / 0.05)
    stated = problem.utility_sensitivity
    assert stated == problem.utility.sensitivity == pytest.approx(radius / 300, rel=1e-4)
    assert problem.excess_risk_sensitivity == pytest.approx(2 * radius / 300, rel=1e-4)
    rng = np.random.default_rng(5)
    theta = rng.normal(size=5)
    theta *= radius / np.linalg.norm(theta)
    utility = cast(problem.utility, dtype)
    weights = jnp.full((300,), 1 / 300, dtype)
    x, y = small_data()
    signed = x * y[:, None]
    changed = rng.normal(size=(32, 5))
    changed /= np.linalg.norm(changed, axis=1)[:, None]
    changed[:2] = theta / radius, -theta / radius

    @jax.jit
    @jax.vmap
    def evaluate(row):
        rows = jnp.asarray(signed, dtype).at[0].set(row)
        other = dataclasses.replace(utility, rows=rows, labels=weights, weights=weights)
        return other.evaluate(other.hypothesis(jnp.asarray(theta, dtype)))

    utilities = np.asarray(evaluate(jnp.asarray(changed, dtype)), np.float64)
    moved = np.ptp(utilities)
    assert moved == np.abs(utilities[0] - utilities[1])
    assert (1 - 1e-4) * stated < moved <= (1 + 1e-4) * stated
    assert np.ptp(utilities[2:]) < 0.95 * stated  # random rows alone would not show it


def test_utility_survives_vmap_and_tree_map(dtype):
    releases = jax.random.normal(jax.random.key(0), (4, 5))
    utility = cast(small_logistic().utility, dtype)
    one = jax.jit(judged)
    alone = [one(utility, release) for release in releases]
    np.testing.assert_allclose(judged_lanes(utility, releases), alone, rtol=1e-5)


def bad(**changes):
    x, y = small_data(rows=20)
    arguments = {"features": x, "labels": y, "regularisation": 0.05} | changes
    return lambda: LogisticProblem.fit(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (bad(features=np.full((20, 5), 2.0)), r"features\[0\] has l2 norm 4.47.*: must be at mo"),
        (bad(features=np.full((20, 5), np.nan)), r"features\[0\] = .*must be finite"),
        (bad(features=np.zeros(20)), r"features has shape \(20,\)"),
        (bad(labels=np.zeros(20)), r"labels holds 0.0: must be \+1 or -1"),
        (bad(labels=np.ones(19)), r"labels has shape \(19,\): must be \(20,\)"),
        (bad(regularisation=0.0), "regularisation = 0.0: must be above 0"),
        (bad(regularisation=np.nan), "regularisation = nan: must be above 0"),
        (bad(tolerance=1e-30), "the optimum was not found: gradient norm"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
