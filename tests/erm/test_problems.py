"""Optima, utilities and sensitivities of all problems against their definitions, row by row."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import LogisticProblem, output_utility
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
    found = risks.judged_lanes(utility, releases)
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


@pytest.mark.parametrize(
    ("loss", "rows", "weight", "share"),
    [
        ("logistic", 40, 0.05, 0.5),
        ("logistic", 1000, 0.005, 0.5),
        ("logistic", 10_000, 0.001, 0.5),
        (huber, 40, 0.05, 0.4),
        (linear, 40, 0.05, 0.999),
    ],
)
def test_no_neighbour_moves_the_optimum_further_and_one_moves_it_far(loss, rows, weight, share):
    """All rows agree but one, which pulls to one side, then to the other.

    Half of the sensitivity is what a row that is added or removed, not replaced, could do.
    """
    along, aside = np.array([1.0, 1.0]) / np.sqrt(2), np.array([1.0, -1.0]) / np.sqrt(2)
    slant = 0.3 if loss == "logistic" else 0.0  # far on the wrong side: a gradient of norm near 1
    features, problems = np.tile(along, (rows, 1)), []
    for side in (1, -1):
        features[0] = -slant * along + side * np.sqrt(1 - slant**2) * aside
        if loss == "logistic":
            problems.append(LogisticProblem.fit(features, np.ones(rows), weight))
        else:
            problems.append(fit(loss, features, np.ones(rows), regularisation=weight))
    one, other = problems
    assert one.l2_sensitivity == pytest.approx(2 / (rows * weight))
    assert one.l1_sensitivity == pytest.approx(np.sqrt(2) * one.l2_sensitivity)
    for norm, stated in ((2, one.l2_sensitivity), (1, one.l1_sensitivity)):
        assert share * stated < np.linalg.norm(one.optimum - other.optimum, norm) <= stated
    if loss is linear:  # 39 rows in 40 agree: the ball is attained
        assert np.linalg.norm(one.optimum) > 0.97 * one.utility.radius


PROMISES = [(huber, HUBER), (linear, {"loss_at_zero": (0.0, 0.0)})]
PROMISES += [(logistic, risks.LOGISTIC), (risks.squared, risks.SQUARED)]


@pytest.mark.parametrize(("loss", "promises"), PROMISES)
def test_no_row_moves_the_utility_further(loss, promises):
    """Rows along the hypothesis, at the rim of the ball, with labels of either sign."""
    problem = fit(loss, *(small_data() if loss is logistic else risks.DATA), **promises)
    rng = np.random.default_rng(7)
    along = rng.normal(size=(200, problem.dimension))
    along /= np.linalg.norm(along, axis=1)[:, None]
    signed = np.concatenate([sign * along for sign in (-1.0, 0.0, 0.2, 1.0)])
    theta = np.tile(problem.utility.radius * along, (4, 1))
    losses = np.stack([jax.vmap(loss)(theta, signed, np.full(800, y)) for y in (-1.0, 0.0, 1.0)])
    moved = np.ptp(losses.reshape(12, 200).astype(float), axis=0).max() / problem.rows
    stated = problem.utility_sensitivity
    assert stated is not None
    assert 0.999 * stated < moved <= (1 + 1e-6) * stated


def early(own, x, y, tolerance):
    """A logistic problem whose solver stops there."""
    if own:
        bounds = {"loss_at_zero": (0.0, 0.7), "lowest_loss": 0.0}
        return fit(logistic, x, y, regularisation=1e-3, tolerance=tolerance, **bounds)
    return LogisticProblem.fit(x, y, 1e-3, tolerance=tolerance)


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_excess_risk_moves_by_no_more_than_stated_however_early_the_solver_stops(own):
    """One data set just reaches the tolerance, its neighbour needs another step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(x.sum(axis=1) + 0.3 * rng.normal(size=len(x)) > 0, 1.0, -1.0)
    labels = y, np.where(np.arange(y.size) == 0, -y, y)
    tolerance = min(early(own, x, y, 1.2e-2).minimum.gradient_norm for y in labels)
    problem, other = (early(own, x, y, tolerance) for y in labels)
    assert abs(problem.minimum.iterations - other.minimum.iterations) == 1
    stated, plain = problem.excess_risk_sensitivity, problem.utility_sensitivity
    with jax.enable_x64(True):
        utilities = [one.utility.excess_risk() for one in (problem, other)]
        excess = [float(utility.evaluate(jnp.zeros(5))) for utility in utilities]
    moved = abs(excess[0] - excess[1])
    assert moved > 2 * plain  # what it would be, were the optimum exact
    assert moved <= stated == other.excess_risk_sensitivity == utilities[0].sensitivity
    assert stated == pytest.approx(2 * plain + tolerance**2 / 2e-3, rel=1e-12)
    # At the usual tolerance it is twice the plain loss's, to the last bit.
    usual = early(own, x, y, 1e-12)
    assert usual.excess_risk_sensitivity == 2 * usual.utility_sensitivity


def test_tiles_of_rows_give_the_same_risk(monkeypatch, dtype):
    problem = fit(**HUBER)
    theta = jnp.asarray(np.linspace(-1, 1, 4), dtype)
    evaluate = problem.utility.evaluate
    whole = evaluate(theta)
    for rows in (problem.utility.rows.shape[0] // 2, 7):
        monkeypatch.setattr(output_utility, "_TILE_SIZE", 4 * rows)
        # A function of its own, or a program that is compiled already could serve.
        tiled = jax.jit(lambda theta: evaluate(theta))(theta)
        np.testing.assert_allclose(tiled, whole, rtol=1e-6)


def test_matrix_products_are_exact_on_accelerators():
    """The user's own products, which ask for no precision, get the highest."""
    utility = fit(**HUBER).utility
    program = str(jax.make_jaxpr(utility.evaluate)(jnp.zeros(4)))
    assert "dot_general" in program
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in program
    bare = str(jax.make_jaxpr(jax.vmap(huber, (None, 0, 0)))(jnp.zeros(4), *risks.DATA))
    assert "HIGHEST" not in bare


def test_a_users_own_loss_has_no_ceiling():
    """How it rounds is not known; its excess risk is."""
    problem = problem_of("own")
    assert problem.utility.optimum_loss == problem.optimum_loss
    assert not overrides(problem.utility, nrjax.Utility, "ceiling")
    excess = problem.utility.excess_risk()
    assert abs(float(excess.evaluate(jnp.asarray(problem.value)))) < 1e-6


def test_programs_are_kept_apart_by_loss():
    one, other = fit(**HUBER), fit(linear)
    assert jax.tree.structure(one.utility) == jax.tree.structure(fit(**HUBER).utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(other.utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(small_logistic().utility)


def test_a_private_test_needs_a_stated_sensitivity():
    def interaction(problem, rule):
        value, moved, utility = problem.released("laplace")
        return risks.laplace_trial(value, moved, utility, rule, (0.16, 100.0, 60))

    rule = nrjax.InteractiveAboveThreshold(-0.1, 0.1, 2.0)
    with pytest.raises(ValueError, match="utility must state its sensitivity"):
        interaction(fit(), rule)
    stated = fit(**HUBER)
    low = dataclasses.replace(rule, sensitivity=0.9 * stated.utility_sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity of the rule must be at least"):
        interaction(stated, low)
