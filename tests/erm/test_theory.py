"""Utility theorems: inverses, values, the measured excess risk, and errata of Ligett 2017."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity, theory
from tests.erm.risks import judged, laplace_trial, logistic_risk
from tests.problems import small_data, small_logistic

LAMBDA = 0.05
DRAWS = 4096
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"constants": "tight"}, {"ball": "tight"})


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("output_logistic", {}),
        *((task, options) for task in ("covariance", "output_ridge") for options in OPTIONS),
    ],
)
def test_each_inverts_the_other(task, options):
    epsilon = functools.partial(getattr(theory, f"{task}_epsilon"), **options)
    excess_risk = functools.partial(getattr(theory, f"{task}_excess_risk"), **options)
    alpha = np.geomspace(1e-9, 1e3, 25)[:, None, None]
    problem = (np.array([100, 10**6])[:, None], 77, np.array([1e-5, 0.05, 1.0]))
    levels = epsilon(alpha, *problem)
    assert levels.shape == (25, 2, 3)
    assert np.all(np.diff(levels, axis=0) < 0)
    np.testing.assert_allclose(
        excess_risk(levels, *problem), np.broadcast_to(alpha, levels.shape), rtol=1e-13
    )
    level = epsilon(0.125, 1000, 5, 0.05)
    assert isinstance(level, np.float64)  # also for arguments on a device
    assert level == epsilon(np.array([0.125]), 1000, 5, 0.05)
    assert level == epsilon(jnp.asarray(0.125), 1000, 5, 0.05)


def test_values():
    """Values by hand for n = 100,000, p = 64 and lambda = 0.01: M is 10, or 5 if tight."""
    public, tight = (100_000, 64, 0.01), {"constants": "tight"}
    small = tight | {"ball": "tight"}
    c = 2 * np.sqrt(2) / 5000
    for options, expected in (({}, 2 * c * 6560), (tight, c * 6560), (small, c * 1680)):
        assert theory.covariance_epsilon(0.05, *public, **options) == pytest.approx(expected)
    for options, l2 in (({}, 11 / np.sqrt(1000)), (tight, 22 / 1000), (small, 12 / 1000)):
        risk = theory.output_ridge_excess_risk(2.0, *public, **options)
        assert risk == pytest.approx((l2 * 8 / 2) ** 2 * 1.64)
    # 0.5 = 2 sqrt(2) 64/(1000 eps) + 4 64^2/(10^8 eps^2)
    level = theory.output_logistic_epsilon(0.5, *public)
    assert 2 * np.sqrt(2) * 0.064 / level + 16384e-8 / level**2 == pytest.approx(0.5, rel=1e-14)


def problem_data(rows=2000):
    """Return rows of unit l1 norm, and labels that depend on them."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(rows, 3))
    x /= np.abs(x).sum(axis=1, keepdims=True)
    y = np.clip(x @ np.array([0.8, -0.5, 0.3]) + 0.2 * rng.uniform(-1, 1, rows), -1, 1)
    return x, y


TASKS = (("ridge", "paper"), ("ridge", "tight"), ("logistic", "paper"))


@pytest.mark.long
@pytest.mark.parametrize(("task", "ball"), TASKS)
def test_the_mean_excess_risk_is_below_the_bound(task, ball, dtype):
    """To 4 standard errors. The theorems are loose, so the control is at epsilon/100."""
    x, y = problem_data()
    if task == "ridge":
        problem = RidgeProblem.fit(x, y, LAMBDA, "l1", ball=ball)
        value, stated, utility = problem.released("laplace", "l1_rows")
        assert stated == 4  # the theorem's noise
        epsilon = functools.partial(theory.covariance_epsilon, constants="tight", ball=ball)
    else:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        problem = LogisticProblem.fit(x, np.where(y > 0, 1, -1), LAMBDA)
        value, stated, utility = problem.released("laplace")
        assert stated == pytest.approx(2 * np.sqrt(3) / (2000 * LAMBDA))
        epsilon = theory.output_logistic_epsilon
    utility = utility.excess_risk()
    rng = np.random.default_rng(1)

    @jax.jit
    def excess(releases):
        return jax.lax.map(lambda release: -judged(utility, release), releases, batch_size=64)

    def measured(level):
        noise = rng.laplace(scale=stated / level, size=(DRAWS, value.size))
        risks = np.asarray(excess((value + noise).astype(dtype)), np.float64)
        return risks.mean(), risks.std() / np.sqrt(DRAWS)

    for alpha in (0.02, 0.1):
        level = epsilon(alpha, problem.rows, problem.dimension, LAMBDA)
        mean, error = measured(level)
        assert mean > 4 * error  # the risk is not negligible
        assert mean + 4 * error <= alpha
        mean, error = measured(level / 100)
        assert mean - 4 * error > alpha


@pytest.mark.parametrize(
    ("constants", "ball"), [("paper", "paper"), ("tight", "paper"), ("tight", "tight")]
)
def test_the_mean_excess_risk_of_a_noisy_ridge_optimum_is_exact(constants, ball, dtype):
    """It is `r^2 tr(H)`. Rows of unit norm have the largest trace, and attain the bound."""
    x, y = problem_data()
    rng = np.random.default_rng(2)
    for scale in (1.0, 0.5):
        rows = scale * x / np.linalg.norm(x, axis=1, keepdims=True)
        problem = RidgeProblem.fit(rows, y, LAMBDA, ball=ball)
        value, stated, utility = problem.released_optimum("laplace", constants)
        # The theorem is for the release itself, not its projection.
        excess = jax.jit(jax.vmap(utility.excess_risk().evaluate))
        alpha = 0.1
        level = theory.output_ridge_epsilon(alpha, problem.rows, 3, LAMBDA, constants, ball=ball)
        noise = rng.laplace(scale=stated / level, size=(DRAWS, 3))
        risks = -np.asarray(excess((value + noise).astype(dtype)), np.float64)
        mean, error = risks.mean(), risks.std() / np.sqrt(DRAWS)
        exact = (stated / level) ** 2 * (scale**2 + 3 * LAMBDA)
        assert abs(mean - exact) < 4 * error
        assert exact <= alpha * (1 + 1e-6)  # the sensitivity allows for the solver's tolerance
        if scale == 1.0:
            assert exact == pytest.approx(alpha, rel=1e-6)
            # Negative control: noise that is a fifth larger.
            assert mean * 1.2**2 - 4 * error * 1.2**2 > alpha
        else:
            assert mean + 4 * error <= alpha


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

    ours = run(-ALPHA / 2)
    with pytest.warns(nrjax.NoStopWarning):
        printed = run(ALPHA / 2)
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
