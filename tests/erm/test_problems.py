"""Optima, utilities and sensitivities of all problems, against their definitions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import LogisticProblem, minimise, output_utility
from nrjax.erm.logistic import _signed_loss
from nrjax.types import overrides
from tests.erm import risks
from tests.erm.risks import HUBER, KINDS, LAMBDA, fit, huber, linear, logistic, problem_of
from tests.problems import small_data, small_logistic

pytestmark = pytest.mark.numerical

each_kind = pytest.mark.parametrize("kind", KINDS)


def optimum_released(problem):
    return getattr(problem, "released_optimum", problem.released)("laplace")


@each_kind
def test_the_optimum_is_the_one_that_scipy_finds(kind):
    problem, (risk, data) = problem_of(kind), KINDS[kind]
    expected = optimize.minimize(risk, np.zeros(problem.dimension), (*data, LAMBDA), tol=1e-12)
    np.testing.assert_allclose(problem.optimum, expected.x, atol=1e-5)
    np.testing.assert_allclose(problem.optimum_loss, expected.fun, rtol=1e-10)
    assert problem.minimum.gradient_norm <= (1e-14 if kind == "ridge" else 1e-12)
    assert problem.optimum.dtype == np.float64
    value, _, utility = optimum_released(problem)
    assert value is problem.optimum
    assert np.linalg.norm(value) <= utility.radius
    assert utility.sensitivity == problem.utility_sensitivity


@each_kind
def test_the_utility_is_minus_the_loss_of_the_projected_release(kind, dtype):
    """In float32 the error of the ridge loss was 2e-7 of it."""
    risk, data = KINDS[kind]
    value, _, utility = optimum_released(problem_of(kind))
    noise = np.random.default_rng(1).normal(size=(5, value.size))
    releases = (np.array([[0.0], [0.1], [1.0], [10.0], [1e4]]) * noise).astype(dtype)
    norms = np.linalg.norm(releases.astype(float), axis=1, keepdims=True)
    thetas = releases * np.minimum(1.0, utility.radius / np.maximum(norms, 1e-300))
    hypotheses = jax.jit(jax.vmap(utility.hypothesis))(releases)
    np.testing.assert_allclose(hypotheses, thetas, rtol=1e-5)
    np.testing.assert_array_equal(hypotheses[:2], releases[:2])  # inside the ball
    utilities = risks.judged_lanes(utility, releases)
    assert utilities.dtype == hypotheses.dtype == dtype
    losses = [risk(theta, *data, LAMBDA) for theta in thetas]
    np.testing.assert_allclose(-utilities, losses, rtol=2e-6 if dtype == jnp.float32 else 1e-12)


def test_equal_rows_merge_also_across_labels():
    x, y = small_data()
    problem = LogisticProblem.fit(np.concatenate([x, -x]), np.concatenate([y, -y]), LAMBDA)
    distinct = np.unique(x * y[:, None], axis=0).shape[0]
    assert problem.utility.rows.shape == (distinct, 5)
    assert problem.rows == 600
    np.testing.assert_allclose(np.sum(problem.utility.weights), 1.0, rtol=1e-12)
    np.testing.assert_allclose(problem.optimum_loss, small_logistic().optimum_loss, rtol=1e-12)
    assert problem_of("own").utility.rows.shape[0] < 120


@pytest.mark.parametrize(
    ("loss", "rows", "weight", "fraction"),
    [
        ("logistic", 40, 0.05, 0.5),
        ("logistic", 1000, 0.005, 0.5),
        ("logistic", 10_000, 0.001, 0.5),
        pytest.param(huber, 40, 0.05, 0.4, marks=pytest.mark.long),
        (linear, 40, 0.05, 0.999),
    ],
)
def test_no_neighbour_moves_the_optimum_further_and_one_moves_it_far(loss, rows, weight, fraction):
    """One row differs from all others, and pulls to one side, then to the other.

    A row that is added or removed, not replaced, could reach half of the sensitivity.
    """
    along, aside = np.array([1.0, 1.0]) / np.sqrt(2), np.array([1.0, -1.0]) / np.sqrt(2)
    slant = 0.3 if loss == "logistic" else 0.0  # misclassified by far: a gradient of norm near 1
    features, problems = np.tile(along, (rows, 1)), []
    for side in (1, -1):
        features[0] = -slant * along + side * np.sqrt(1 - slant**2) * aside
        if loss == "logistic":
            problems.append(LogisticProblem.fit(features, np.ones(rows), weight))
        else:
            problems.append(fit(loss, features, np.ones(rows), regularisation=weight))
    first, second = problems
    assert first.l2_sensitivity == pytest.approx(2 / (rows * weight))
    assert first.l1_sensitivity == pytest.approx(np.sqrt(2) * first.l2_sensitivity)
    for norm, stated in ((2, first.l2_sensitivity), (1, first.l1_sensitivity)):
        assert fraction * stated < np.linalg.norm(first.optimum - second.optimum, norm) <= stated
    if loss is linear:  # 39 of 40 rows agree: the radius is attained
        assert np.linalg.norm(first.optimum) > 0.97 * first.utility.radius


STATED = [(huber, HUBER), (logistic, risks.LOGISTIC)]
STATED += [
    pytest.param(loss, bounds, marks=pytest.mark.long)
    for loss, bounds in ((linear, {"loss_at_zero": (0.0, 0.0)}), (risks.squared, risks.SQUARED))
]


@pytest.mark.parametrize(("loss", "bounds"), STATED)
def test_no_row_moves_the_utility_further(loss, bounds):
    """Rows along a hypothesis on the boundary of the ball, with labels of either sign."""
    problem = fit(loss, *(small_data() if loss is logistic else risks.DATA), **bounds)
    rng = np.random.default_rng(7)
    along = rng.normal(size=(200, problem.dimension))
    along /= np.linalg.norm(along, axis=1)[:, None]
    signed = np.concatenate([sign * along for sign in (-1.0, 0.0, 0.2, 1.0)])
    theta = np.tile(problem.utility.radius * along, (4, 1))
    lanes = jax.jit(jax.vmap(loss))
    losses = np.stack([lanes(theta, signed, np.full(800, y)) for y in (-1.0, 0.0, 1.0)])
    change = np.ptp(losses.reshape(12, 200).astype(float), axis=0).max() / problem.rows
    stated = problem.utility_sensitivity
    assert stated is not None
    assert 0.999 * stated < change <= (1 + 1e-6) * stated


def fit_early(custom, x, y, tolerance):
    """Return a logistic problem whose solver stops at a tolerance."""
    if custom:
        bounds = {"loss_at_zero": (0.0, 0.7), "lowest_loss": 0.0}
        return fit(logistic, x, y, regularisation=1e-3, tolerance=tolerance, **bounds)
    return LogisticProblem.fit(x, y, 1e-3, tolerance=tolerance)


@pytest.mark.parametrize("custom", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_excess_risk_moves_by_no_more_than_stated_however_early_the_solver_stops(custom):
    """The solver needs one step more on one of two neighbouring data sets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(x.sum(axis=1) + 0.3 * rng.normal(size=len(x)) > 0, 1.0, -1.0)
    labels = y, np.where(np.arange(y.size) == 0, -y, y)
    tolerance = min(fit_early(custom, x, y, 3e-2).minimum.gradient_norm for y in labels)
    problem, other = (fit_early(custom, x, y, tolerance) for y in labels)
    assert abs(problem.minimum.iterations - other.minimum.iterations) == 1
    stated, plain = problem.excess_risk_sensitivity, problem.utility_sensitivity
    with jax.enable_x64(True):
        utilities = [p.utility.excess_risk() for p in (problem, other)]
        excess = [float(utility.evaluate(jnp.zeros(5))) for utility in utilities]
    change = abs(excess[0] - excess[1])
    assert change > 2 * plain  # the sensitivity if the optimum were exact
    assert change <= stated == other.excess_risk_sensitivity == utilities[0].sensitivity
    assert stated == pytest.approx(2 * plain + tolerance**2 / 2e-3, rel=1e-12)
    # At the default tolerance it is exactly twice the sensitivity of the risk.
    usual = fit_early(custom, x, y, 1e-12)
    assert usual.excess_risk_sensitivity == 2 * usual.utility_sensitivity


def test_both_solvers_find_the_same_optimum(monkeypatch):
    """The L-BFGS of optax serves if the small one fails, and is its oracle."""
    served, original = [], minimise._lbfgs
    monkeypatch.setattr(minimise, "_lbfgs", lambda *a: served.append(None) or original(*a))
    usual = fit(**HUBER).minimum
    assert not served
    monkeypatch.setattr(minimise, "_TRIED_SIZES", 0)
    other = fit(**HUBER).minimum
    assert served
    assert other.argument == pytest.approx(usual.argument, abs=1e-11)
    assert other.value == pytest.approx(usual.value, rel=1e-14)


def test_tiles_of_rows_give_the_same_risk(monkeypatch, dtype):
    problem = fit(**HUBER)
    theta = jnp.asarray(np.linspace(-1, 1, 4), dtype)
    evaluate = problem.utility.evaluate
    whole = evaluate(theta)
    for rows in (problem.utility.rows.shape[0] // 2, 7):
        monkeypatch.setattr(output_utility, "_TILE_SIZE", 4 * rows)
        # A new function, so that it is compiled again.
        tiled = jax.jit(lambda theta: evaluate(theta))(theta)
        np.testing.assert_allclose(tiled, whole, rtol=1e-6)


def test_matrix_products_of_a_loss_get_the_highest_precision():
    utility = fit(**HUBER).utility
    program = str(jax.make_jaxpr(utility.evaluate)(jnp.zeros(4)))
    assert "dot_general" in program
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in program
    bare = str(jax.make_jaxpr(jax.vmap(huber, (None, 0, 0)))(jnp.zeros(4), *risks.DATA))
    assert "HIGHEST" not in bare


def test_a_custom_loss_has_no_bounds():
    """Its excess risk is known, but not how its loss rounds."""
    problem = problem_of("own")
    assert problem.utility.optimum_loss == problem.optimum_loss
    assert not overrides(problem.utility, nrjax.Utility, "bounds_from_release")
    excess = problem.utility.excess_risk()
    assert abs(float(excess.evaluate(jnp.asarray(problem.value)))) < 1e-6


def test_a_private_test_needs_a_stated_sensitivity():
    def interaction(problem, rule):
        value, stated, utility = problem.released("laplace")
        return risks.laplace_trial(value, stated, utility, rule, (0.16, 100.0, 60))

    rule = nrjax.InteractiveAboveThreshold(-0.1, 0.1, 2.0)
    with pytest.raises(ValueError, match="must state its sensitivity"):
        interaction(fit(), rule)
    stated = fit(**HUBER)
    low = dataclasses.replace(rule, sensitivity=0.9 * stated.utility_sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity of the rule must be at least"):
        interaction(stated, low)


def test_the_logistic_loss_and_its_derivative_are_exact_to_a_few_roundings(dtype):
    margins = np.concatenate([np.linspace(-40, 40, 4001), [1e-8, -1e-8, -800, 80]]).astype(dtype)
    one, label = np.ones(1, dtype), np.ones((), dtype)
    both = jax.value_and_grad(lambda margin: _signed_loss(one, margin[None], label))
    found, slope = jax.jit(jax.vmap(both))(margins)
    exact = margins.astype(np.longdouble)
    assert found.dtype == slope.dtype == dtype
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, np.logaddexp(0, -exact), rtol=tolerance)
    np.testing.assert_allclose(slope, -1 / (1 + np.exp(exact)), rtol=tolerance)
