"""A user's own loss: the optimum, its utility and its sensitivities."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import output_utility
from tests.erm.losses import DATA, HUBER, LAMBDA, fit, huber, linear, logistic, plain_risk
from tests.erm.risks import judged_lanes
from tests.problems import small_data, small_logistic

pytestmark = pytest.mark.numerical


def test_optimum_and_utility_against_the_definition(dtype):
    problem = fit(**HUBER)
    found = optimize.minimize(plain_risk, np.zeros(4), DATA, tol=1e-12)
    np.testing.assert_allclose(problem.value, found.x, atol=1e-5)
    np.testing.assert_allclose(problem.optimum_loss, found.fun, rtol=1e-10)
    assert problem.minimum.gradient_norm <= 1e-12
    assert problem.utility.rows.shape[0] < 120  # merged
    np.testing.assert_allclose(problem.utility.weights.sum(), 1.0)
    releases = np.array([[0.1], [1.0], [100.0]]) * np.random.default_rng(0).normal(size=(3, 4))
    norms = np.linalg.norm(releases, axis=1, keepdims=True)
    thetas = releases * np.minimum(1.0, problem.utility.radius / norms)
    found = judged_lanes(problem.utility, jnp.asarray(releases))
    risks = [plain_risk(theta, *DATA) for theta in thetas]
    np.testing.assert_allclose(-found, risks, rtol=2e-6 if dtype == jnp.float32 else 1e-12)
    assert found.dtype == dtype


def test_the_logistic_loss_gives_the_logistic_problem():
    x, y = small_data()
    known = small_logistic(LAMBDA)
    radius = known.utility.radius
    at_zero = (np.log(2), np.log(2))
    own = fit(logistic, x, y, loss_at_zero=at_zero, lowest_loss=0.0, loss_spread=radius)
    assert own.utility.radius == radius
    np.testing.assert_allclose(own.value, known.value, atol=1e-9)
    np.testing.assert_allclose(own.optimum_loss, known.optimum_loss, rtol=1e-12)
    for name in ("l1_sensitivity", "l2_sensitivity", "excess_risk_sensitivity"):
        assert getattr(own, name) == pytest.approx(getattr(known, name), rel=1e-12)
    theta = jnp.linspace(-1, 1, 5)
    np.testing.assert_allclose(
        own.utility.evaluate(theta), known.utility.evaluate(theta), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("loss", "promises", "share"),
    [(huber, HUBER, 0.999), (linear, {"loss_at_zero": (0.0, 0.0)}, 0.999)],
)
def test_no_row_moves_the_utility_further(loss, promises, share):
    """Rows along the hypothesis, at the rim of the ball, with labels of either sign."""
    problem = fit(loss, **promises)
    rng = np.random.default_rng(7)
    theta = rng.normal(size=(200, 4))
    theta *= problem.utility.radius / np.linalg.norm(theta, axis=1)[:, None]
    along = theta / np.linalg.norm(theta, axis=1)[:, None]
    losses = [
        jax.vmap(loss)(theta, sign * along, np.full(200, label))
        for sign in (-1.0, 0.0, 0.2, 1.0)
        for label in (-1.0, 0.0, 1.0)
    ]
    moved = np.ptp(np.asarray(losses, np.float64), axis=0).max() / problem.rows
    stated = problem.utility_sensitivity
    assert stated is not None
    assert share * stated < moved <= (1 + 1e-6) * stated


@pytest.mark.parametrize("loss", [huber, linear])
def test_no_neighbour_moves_the_value_further_and_one_moves_it_far(loss):
    """All rows agree but one, which pulls to one side, then to the other."""
    features = np.tile([1.0, 0.0], (40, 1))
    values = []
    for side in (1, -1):
        features[0] = 0.0, side
        problem = fit(loss, features.copy(), np.ones(40))
        values.append(problem.value)
    moved = values[0] - values[1]
    assert problem.l2_sensitivity == pytest.approx(2 / (40 * LAMBDA))
    assert problem.l1_sensitivity == pytest.approx(np.sqrt(2) * problem.l2_sensitivity)
    assert np.linalg.norm(moved) <= problem.l2_sensitivity
    # The linear loss attains it; half of it would do for a row that is added or removed.
    share = 0.999 if loss is linear else 0.4
    assert np.linalg.norm(moved) > share * problem.l2_sensitivity


def test_tiles_of_rows_give_the_same_risk(monkeypatch, dtype):
    problem = fit(**HUBER)
    theta = jnp.asarray(np.linspace(-1, 1, 4), dtype)
    evaluate = problem.utility.evaluate
    whole = evaluate(theta)
    for rows in (50, problem.utility.rows.shape[0] // 2, 7):
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
    bare = str(jax.make_jaxpr(jax.vmap(huber, (None, 0, 0)))(jnp.zeros(4), *DATA))
    assert "HIGHEST" not in bare


def test_programs_are_kept_apart_by_loss():
    one, other = fit(**HUBER), fit(linear)
    assert jax.tree.structure(one.utility) == jax.tree.structure(fit(**HUBER).utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(other.utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(small_logistic().utility)


def simulated(problem, rule):
    released = problem.released("gaussian")
    parts = released.mechanism(delta=1e-6, tight_at_epsilon=0.3)
    grid = nrjax.Grid.geometric(parts.guarantee, 0.16, 100.0, 60)
    trial = parts.interaction(grid, released.utility, rule)
    return nrjax.simulate(jax.random.key(0), trial, trials=64)


@pytest.mark.long  # test_notebooks.py has a user's own problem as far as a public test
def test_the_whole_path_with_a_public_and_a_private_test(dtype):
    problem = fit(**HUBER)
    target = 1.5 * problem.optimum_loss
    public = simulated(problem, nrjax.PublicThreshold(-target))
    assert np.all(public.status == nrjax.Status.STOPPED)
    assert np.all(public.utility >= -target)
    for trial in range(4):
        risk = plain_risk(np.asarray(public.hypothesis[trial], np.float64), *DATA)
        np.testing.assert_allclose(-public.utility[trial], risk, rtol=2e-6)
    private = nrjax.InteractiveAboveThreshold(-target, problem.utility_sensitivity, 2.0)
    noisy = simulated(problem, private)
    np.testing.assert_allclose(noisy.test_epsilon, 2.0)
    assert np.any(noisy.utility < -target)  # the answers are noisy
    # Without noise to speak of, it stops where the public test does.
    sure = simulated(problem, dataclasses.replace(private, epsilon=1e6))
    assert np.mean(sure.step == public.step) > 0.95
    assert np.mean(noisy.step == public.step) < 0.5


def test_a_private_test_needs_a_stated_sensitivity():
    silent = fit()
    rule = nrjax.InteractiveAboveThreshold(-0.1, 0.1, 2.0)
    with pytest.raises(ValueError, match="utility = OutputUtility: must state its sensitivity"):
        simulated(silent, rule)
    stated = fit(**HUBER)
    assert stated.utility_sensitivity is not None
    low = dataclasses.replace(rule, sensitivity=0.9 * stated.utility_sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity of the rule = .*: must be at least"):
        simulated(stated, low)
