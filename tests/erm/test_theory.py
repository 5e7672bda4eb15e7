"""Utility theorems: both ways, and against the excess risk measured at the epsilon they name."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity, theory
from tests.erm.risks import judged

LAMBDA = 0.05
DRAWS = 4096
TASKS = ("covariance", "output_logistic", "output_ridge")
OPTIONS: dict[str, Any] = {
    "": {},
    ", tight": {"constants": "tight"},
    ", tight ball": {"ball": "tight"},
}
PAIRS = {
    task + name: tuple(
        functools.partial(getattr(theory, f"{task}_{what}"), **options)
        for what in ("epsilon", "excess_risk")
    )
    for task in TASKS
    for name, options in OPTIONS.items()
    if task != "output_logistic" or not options
}
each_pair = pytest.mark.parametrize(("epsilon", "excess_risk"), PAIRS.values(), ids=PAIRS)


@each_pair
def test_each_inverts_the_other(epsilon, excess_risk):
    alpha = np.geomspace(1e-9, 1e3, 25)[:, None, None]
    problem = (np.array([100, 10**6])[:, None], 77, np.array([1e-5, 0.05, 1.0]))
    levels = epsilon(alpha, *problem)
    assert levels.shape == (25, 2, 3)
    assert np.all(np.diff(levels, axis=0) < 0)
    np.testing.assert_allclose(
        excess_risk(levels, *problem), np.broadcast_to(alpha, levels.shape), rtol=1e-13
    )
    one = epsilon(0.05, 1000, 5, 0.05)
    assert isinstance(one, float)
    assert one == epsilon(np.array([0.05]), 1000, 5, 0.05)


def test_values():
    """By hand: n = 100,000, p = 64, lambda = 0.01, so that M = 10."""
    public = (100_000, 64, 0.01)
    assert theory.covariance_epsilon(0.05, *public) == pytest.approx(
        4 * np.sqrt(2) * (160 + 6400) / 5000
    )
    paper, tight = (
        theory.covariance_excess_risk(2.0, *public, name) for name in ("paper", "tight")
    )
    assert paper == pytest.approx(2 * tight)
    # With M = 5.
    small = theory.covariance_epsilon(0.05, *public, "tight", ball="tight")
    assert small == pytest.approx(2 * np.sqrt(2) * (80 + 1600) / 5000)
    # 0.5 = 2 sqrt(2) 64/(1000 eps) + 4 64^2/(10^8 eps^2)
    level = theory.output_logistic_epsilon(0.5, *public)
    assert 2 * np.sqrt(2) * 0.064 / level + 16384e-8 / level**2 == pytest.approx(0.5, rel=1e-14)
    assert theory.output_ridge_excess_risk(2.0, *public) == pytest.approx(
        (11 * 8 / np.sqrt(1000) / 2) ** 2 * 1.64
    )
    assert theory.output_ridge_excess_risk(2.0, *public, "tight") == pytest.approx(
        (22 * 8 / 1000 / 2) ** 2 * 1.64
    )
    assert theory.output_ridge_excess_risk(2.0, *public, "tight", ball="tight") == pytest.approx(
        (12 * 8 / 1000 / 2) ** 2 * 1.64
    )


def problem_data(rows=2000):
    """Rows of unit l1 norm, and labels that follow them."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(rows, 3))
    x /= np.abs(x).sum(axis=1, keepdims=True)
    y = np.clip(x @ np.array([0.8, -0.5, 0.3]) + 0.2 * rng.uniform(-1, 1, rows), -1, 1)
    return x, y


def covariance(ball="paper"):
    x, y = problem_data()
    problem = RidgeProblem.fit(x, y, LAMBDA, "l1", ball=ball)
    value, moved, utility = problem.released("laplace", "l1_rows")
    assert moved == 4  # the theorem's noise
    epsilon = functools.partial(theory.covariance_epsilon, constants="tight", ball=ball)
    return problem, value, moved, utility.excess_risk(), epsilon


def covariance_over_the_tight_ball():
    return covariance("tight")


def logistic():
    x, y = problem_data()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    problem = LogisticProblem.fit(x, np.where(y > 0, 1, -1), LAMBDA)
    utility = problem.utility.excess_risk()
    assert problem.l1_sensitivity == pytest.approx(2 * np.sqrt(3) / (2000 * LAMBDA))
    return problem, problem.value, problem.l1_sensitivity, utility, theory.output_logistic_epsilon


TIGHT = pytest.param(covariance_over_the_tight_ball, marks=pytest.mark.long)


@pytest.mark.parametrize("build", [covariance, TIGHT, logistic])
def test_the_mean_excess_risk_is_below_the_goal(build, dtype):
    """Mean and 4 standard errors; the theorems are loose, so the control is at epsilon/100."""
    problem, value, moved, utility, epsilon = build()
    rng = np.random.default_rng(1)

    @jax.jit
    def excess(releases):
        return jax.lax.map(lambda release: -judged(utility, release), releases, batch_size=64)

    def measured(level):
        noise = rng.laplace(scale=moved / level, size=(DRAWS, value.size))
        risks = np.asarray(excess((value + noise).astype(dtype)), np.float64)
        return risks.mean(), risks.std() / np.sqrt(DRAWS)

    for alpha in (0.02, 0.1):
        level = epsilon(alpha, problem.rows, problem.dimension, LAMBDA)
        mean, error = measured(level)
        assert mean > 4 * error  # there is a risk to speak of
        assert mean + 4 * error <= alpha
        mean, error = measured(level / 100)
        assert mean - 4 * error > alpha


@pytest.mark.parametrize(
    ("constants", "ball"), [("paper", "paper"), ("tight", "paper"), ("tight", "tight")]
)
def test_the_mean_excess_risk_of_a_noisy_ridge_optimum_is_exact_and_below_the_goal(
    constants, ball, dtype
):
    """It is `r^2 tr(H)`; rows of unit norm have the largest trace, and meet the goal exactly."""
    x, y = problem_data()
    rng = np.random.default_rng(2)
    for scale in (1.0, 0.5):
        rows = scale * x / np.linalg.norm(x, axis=1, keepdims=True)
        problem = RidgeProblem.fit(rows, y, LAMBDA, ball=ball)
        value, moved, utility = problem.released_optimum("laplace", constants)
        # Not projected: the theorem is for the release itself.
        excess = jax.jit(jax.vmap(utility.excess_risk().evaluate))
        alpha = 0.1
        level = theory.output_ridge_epsilon(alpha, problem.rows, 3, LAMBDA, constants, ball=ball)
        noise = rng.laplace(scale=moved / level, size=(DRAWS, 3))
        risks = -np.asarray(excess((value + noise).astype(dtype)), np.float64)
        mean, error = risks.mean(), risks.std() / np.sqrt(DRAWS)
        exact = (moved / level) ** 2 * (scale**2 + 3 * LAMBDA)
        assert abs(mean - exact) < 4 * error
        assert exact <= alpha * (1 + 1e-6)  # what the solver's tolerance adds to the sensitivity
        if scale == 1.0:
            assert exact == pytest.approx(alpha, rel=1e-6)
            # Negative control: noise that is a fifth larger.
            assert mean * 1.2**2 - 4 * error * 1.2**2 > alpha
        else:
            assert mean + 4 * error <= alpha


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f(0.0, 100, 3, 0.05), r" = 0.0: must be positive and finite"),
        (lambda f: f(np.nan, 100, 3, 0.05), r" = nan: must be positive and finite"),
        (lambda f: f(0.1, -1, 3, 0.05), "rows = -1: must be positive"),
        (lambda f: f(0.1, 100, 2.5, 0.05), "dimension = 2.5: must be a whole number, at least 1"),
        (lambda f: f(0.1, 100, 3, np.inf), "regularisation = inf: must be positive and finite"),
    ],
)
@each_pair
def test_bad_arguments_are_named(epsilon, excess_risk, call, message):
    for function in (epsilon, excess_risk):
        with pytest.raises(ValueError, match=message):
            call(function)


def test_unknown_constants_are_named():
    message = "constants = 'best': must be 'paper' or 'tight'"
    calls = (
        lambda: theory.covariance_epsilon(0.1, 100, 3, 0.05, "best"),
        lambda: theory.output_ridge_excess_risk(0.1, 100, 3, 0.05, "best"),
        lambda: sensitivity.ridge_output_l2(100, 0.05, "best"),
    )
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


def test_jax_precision_does_not_matter():
    """Float64 on the host, whatever the arguments are."""
    level = theory.output_ridge_epsilon(jnp.asarray(0.125), 1000, 5, 0.05)
    assert level == theory.output_ridge_epsilon(0.125, 1000, 5, 0.05)
    assert level.dtype == np.float64
