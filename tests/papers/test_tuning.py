"""The study of private tuning: noise of its base mechanisms, costs, report and figure."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.papers import tuning
from nrjax.papers.tuning.curves import epsilon_at
from nrjax.papers.tuning.trials import Table, Tuning, reduced_model, scored_model
from tests.papers.shared import run
from tests.study import small

TRIALS = 20_000
ROWS = jnp.ones((4, 2)), jnp.zeros(4)
TABLE = Table(jnp.ones((1, 2)), jnp.asarray([[0.5, 0.0]]), ROWS, ROWS, 0.5, 0.1, False)
"""One model (1, 1), of sensitivity 0.5 in its only noisy coordinate. Its loss is clipped to 0.5."""
KEYS = jax.random.split(jax.random.key(0), TRIALS)


def sizes(noise, scale):
    """Return the mean size of Laplace noise in units of its scale, less 1, in standard errors."""
    return (float(jnp.mean(jnp.abs(noise))) / scale - 1) * TRIALS**0.5


def test_models_and_scores_have_the_noise_that_is_paid_for():
    epsilon = jnp.asarray(0.2)
    score, model, _ = jax.jit(jax.vmap(scored_model, (0, None, None)))(KEYS, epsilon, TABLE)
    loss = jax.vmap(TABLE.loss, (0, None))(model, ROWS)
    np.testing.assert_array_equal(model[:, 1], 1.0)
    for noise, scale in ((model[:, 0] - 1, 0.5 / 0.2), (score + loss, 0.1 / 0.2)):
        assert abs(sizes(noise, scale)) < 4
        assert abs(sizes(noise, 1.1 * scale)) > 8  # planted fault


@pytest.mark.parametrize("target", [-99.0, 99.0])
def test_reduced_noise_stops_at_its_epsilon(target):
    """A run that fails reports any step, with a score below the target."""
    cap = jnp.asarray(0.8)
    run = jax.jit(jax.vmap(reduced_model, (0, None, None, None)))
    score, model, epsilon = run(KEYS, cap, TABLE, jnp.asarray(target))
    success = np.asarray(score >= -target)
    assert success.all() == (target > 0)
    np.testing.assert_allclose(epsilon, 0.1, rtol=1e-6)  # the first step, an eighth of the cap
    assert abs(sizes(model[:, 0] - 1, 0.5 / 0.1)) < 4
    loss = jax.vmap(TABLE.loss, (0, None))(model, ROWS)
    if target > 0:
        # Half of epsilon is for the scores, which are lowered by log(10) scales.
        assert abs(sizes(score + loss + 2 * math.log(10), 2.0)) < 4


def test_every_stage_of_liu_and_talwar_is_paid_for():
    run, stages = jax.jit(Tuning.run), jnp.asarray([0.1, 0.2, 0.4])
    for target, paid in ((99.0, 0.2), (-99.0, 1.4)):
        trial = Tuning(TABLE, jnp.asarray([target]), stages, 1.0, 0.5, "liu_talwar")
        outcome = run(trial, jax.random.key(0))
        np.testing.assert_allclose(outcome.paid, paid, rtol=1e-5)
    np.testing.assert_array_equal(outcome.test_loss, 0.0)  # of the zero model


def test_epsilons_at_a_loss_are_interpolated():
    curve = np.array([1.0, 4.0, 9.0]), np.array([[0.6, 0.4, 0.3]])
    assert epsilon_at(curve, 0.5) == pytest.approx(2)
    assert (epsilon_at(curve, 0.7), epsilon_at(curve, 0.2)) == (1.0, None)


@pytest.mark.long
def test_the_report_and_the_figure(tmp_path):
    small.data(tmp_path)
    results = run(small.study("tuning", tmp_path), tmp_path / "run", trials=20)
    names = {name for case in results.summary()["cases"] for name in case["curves"]}
    assert names == {"no_tuning", "oracle", "liu_talwar", "poisson_reduction"}
    single = results.summary()["cases"][0]["curves"]
    assert np.all(np.array(single["oracle"]["loss"]) <= single["no_tuning"]["loss"])
    text = str(results.table())
    assert "| logistic no tuning |" in text
    assert "only a simulation may report" in text
    (axes,) = results.plot()["loss"].axes
    assert axes.get_xlabel() == "mean ε that was paid (nat)"
    assert len(axes.get_legend_handles_labels()[0]) == 0  # the legend is below the panels
    assert tuning.reporting.case_facts[0] == "task"
