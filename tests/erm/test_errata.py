"""Errata of Ligett 2017: the printed algorithms fail where the implemented ones do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import RidgeProblem, sensitivity, theory
from tests.erm.risks import laplace_trial, logistic_risk
from tests.problems import small_data, small_logistic

ALPHA = 0.05


def project_as_printed(release, radius):
    """Project by Algorithm 5 as printed: "if |theta| <= M then theta = M theta/|theta|"."""
    norm = np.linalg.norm(release)
    return radius * release / norm if norm <= radius else release


def excess_risk(theta, x, y):
    """Return the excess risk by its definition, in float64."""
    least = optimize.minimize(logistic_risk, np.zeros(5), (x, y, 0.05), tol=1e-9).fun
    return logistic_risk(theta, x, y, 0.05) - least


def test_algorithm_5_scales_the_wrong_hypotheses_and_stays_inaccurate(dtype):
    problem, rng = small_logistic(), np.random.default_rng(0)
    for scale in (1e-3, 1e-5):
        release = problem.value + rng.laplace(scale=scale, size=problem.shape)
        printed = project_as_printed(release, problem.utility.radius)
        ours = np.asarray(problem.utility.hypothesis(jnp.asarray(release, dtype)), np.float64)
        assert excess_risk(printed, *small_data()) > 2 * ALPHA
        assert abs(excess_risk(ours, *small_data())) < 1e-4


def test_algorithm_5_exceeds_the_stated_sensitivity(dtype):
    """Hypotheses outside the ball are not projected, so that a row moves the risk further."""
    (x, y), problem = small_data(), small_logistic()
    radius, stated = problem.utility.radius, problem.excess_risk_sensitivity
    # Claim A.12 prints this for the plain loss, whose sensitivity is half of it.
    printed_bound = 2 / 300 * np.log((1 + np.exp(radius)) / (1 + np.exp(-radius)))
    assert printed_bound == pytest.approx(2 * sensitivity.logistic_loss(300, radius))
    assert stated == pytest.approx(printed_bound, rel=1e-4)
    release = 10 * radius * np.ones(5) / np.sqrt(5)
    printed = project_as_printed(release, radius)
    ours = np.asarray(problem.utility.hypothesis(jnp.asarray(release, dtype)), np.float64)
    y[0], risks = 1.0, []
    for side in (1, -1):
        x[0] = side * np.ones(5) / np.sqrt(5)
        risks.append([excess_risk(theta, x, y) for theta in (printed, ours)])
    change = np.abs(np.subtract(*risks))
    assert change[0] > 4 * stated
    assert change[1] <= stated * (1 + 1e-5)


@pytest.mark.long
def test_the_printed_threshold_is_never_reached():
    """The printed threshold is alpha/2, and `R(theta*) - R(theta)` is at most 0."""
    problem = small_logistic()
    steps, gamma = 60, 0.1
    utility = problem.utility.excess_risk()
    epsilon = 16 * utility.sensitivity * np.log(2 * steps / gamma) / ALPHA
    most = 4 * theory.output_logistic_epsilon(ALPHA, problem.rows, problem.dimension, 0.05)
    levels = (1 / problem.rows, most, steps)

    def run(threshold):
        rule = nrjax.InteractiveAboveThreshold(threshold, utility.sensitivity, epsilon)
        trial = laplace_trial(problem.value, problem.l1_sensitivity, utility, rule, levels)
        batching = nrjax.Batching(tile=64, lanes=64)
        return nrjax.simulate(jax.random.key(0), trial, trials=256, batching=batching)

    ours, printed = run(-ALPHA / 2), run(ALPHA / 2)
    assert np.all(ours.status == nrjax.Status.STOPPED)
    assert np.mean(np.asarray(ours.utility) >= -ALPHA) > 1 - gamma
    # Without a positive answer the algorithm outputs theta*, at infinite cost.
    assert np.all(printed.status == nrjax.Status.EXHAUSTED)


def test_theorem_a9_as_printed_is_too_small():
    """It takes `(1/n + lambda) p` for the trace of H, which is `1 + lambda p` for unit rows."""
    x, _ = small_data()
    rows, dimension, weight = *x.shape, 0.005
    problem = RidgeProblem.fit(x, 0.5 * x[:, 0], weight)
    _, stated, utility = problem.released_optimum("laplace")
    squared_l1 = (1 / np.sqrt(weight) + 1) ** 2 * dimension / (rows * weight)
    printed = np.sqrt((1 / rows + weight) * dimension * squared_l1 / ALPHA)
    ours = theory.output_ridge_epsilon(ALPHA, rows, dimension, weight)
    means = [(stated / level) ** 2 * np.trace(utility.hessian) for level in (printed, ours)]
    assert means[0] > 10 * ALPHA
    assert means[1] == pytest.approx(ALPHA)
