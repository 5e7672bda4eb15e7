"""A user's own loss: its sensitivities and its program."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.erm import output_utility, radius
from tests.erm.losses import DATA, HUBER, LAMBDA, fit, huber, linear, logistic
from tests.erm.risks import laplace_trial
from tests.problems import small_logistic

pytestmark = pytest.mark.numerical


AT_ZERO = {"loss_at_zero": (0.0, 0.0)}
LOGISTIC = {"loss_at_zero": (np.log(2), np.log(2)), "lowest_loss": 0.0}
LOGISTIC |= {"loss_spread": radius.logistic_radius(LAMBDA)}


@pytest.mark.parametrize(
    ("loss", "promises"), [(huber, HUBER), (linear, AT_ZERO), (logistic, LOGISTIC)]
)
def test_no_row_moves_the_utility_further(loss, promises):
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
    assert 0.999 * stated < moved <= (1 + 1e-6) * stated


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


def test_a_private_test_needs_a_stated_sensitivity():
    def interaction(problem, rule):
        value, moved, utility = problem.released("laplace")
        return laplace_trial(value, moved, utility, rule, (0.16, 100.0, 60))

    rule = nrjax.InteractiveAboveThreshold(-0.1, 0.1, 2.0)
    with pytest.raises(ValueError, match="utility = OutputUtility: must state its sensitivity"):
        interaction(fit(), rule)
    stated = fit(**HUBER)
    low = dataclasses.replace(rule, sensitivity=0.9 * stated.utility_sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity of the rule = .*: must be at least"):
        interaction(stated, low)
