"""Balls that hold every optimum: none is outside, and some reach the boundary."""

import mpmath
import numpy as np
import pytest

from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity
from tests.problems import small_data

TRIES, ROWS, DIMENSION = 150, 7, 3
REACH = 1 + float(mpmath.lambertw(mpmath.exp(-1)).real)
"""The margin at which the gradient of a row is strongest."""


def ridge_optima(rows, labels, weight):
    """Return optima, shape (tries, dimension), from the normal equations."""
    n, d = rows.shape[1:]
    hessian = np.einsum("tri,trj->tij", rows, rows) / n + weight * np.eye(d)
    return np.linalg.solve(hessian, np.einsum("tri,tr->ti", rows, labels)[..., None] / n)[..., 0]


def logistic_optima(rows, labels, weight):
    """Return optima, shape (tries, dimension), by Newton steps with a line search."""
    signed = rows * labels[..., None]
    n, d = rows.shape[1:]
    theta, lengths = np.zeros((len(rows), d)), 0.5 ** np.arange(0, 10, 2)[:, None, None]
    for _ in range(25):
        pull = 1 / (1 + np.exp(np.einsum("tri,ti->tr", signed, theta)))
        gradient = weight * theta - np.einsum("tri,tr->ti", signed, pull) / n
        hessian = np.einsum("tri,tr,trj->tij", signed, pull * (1 - pull), signed) / n
        step = np.linalg.solve(hessian + weight * np.eye(d), gradient[..., None])[..., 0]
        tried = theta - lengths * step
        risks = np.logaddexp(0, -np.einsum("tri,lti->ltr", signed, tried)).mean(axis=2)
        risks += 0.5 * weight * np.sum(tried**2, axis=2)
        # The full step where the risks agree to within rounding.
        best = np.argmax(risks <= risks.min(axis=0) + 1e-14, axis=0)
        theta = tried[best, np.arange(len(rows))]
    assert np.abs(gradient).max() < 1e-12
    return theta


# Optima, radius, and the norm of the equal rows that have the longest optimum.
TASKS = {
    "ridge": (ridge_optima, sensitivity.ridge_radius, np.sqrt),
    "logistic": (
        logistic_optima,
        sensitivity.logistic_radius,
        lambda weight: REACH / sensitivity.logistic_radius(weight, "tight"),
    ),
}
each_task = pytest.mark.parametrize("task", TASKS)


def shortened(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1)


def draw(task):
    """Return a generator, random admissible rows, half of them similar, and their labels."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(TRIES, ROWS, DIMENSION)) * rng.uniform(0, 2, size=(TRIES, 1, 1))
    rows[::2] = rows[::2, :1] + 0.2 * rng.normal(size=rows[::2].shape)
    labels = rng.choice([-1.0, 1.0], size=(TRIES, ROWS))
    if task == "ridge":
        labels[::3] = rng.uniform(-1, 1, size=labels[::3].shape)
    labels[::2] = 1
    return rng, shortened(rows), labels


@each_task
@pytest.mark.parametrize("weight", [1e-4, 0.05, 20.0])
def test_no_optimum_is_outside_the_ball_and_a_climb_reaches_its_boundary(task, weight):
    """From random data sets, rows are changed where that makes the optimum longer."""
    optima, stated, _ = TASKS[task]
    bound = stated(weight, "tight")
    rng, rows, labels = draw(task)
    best = np.linalg.norm(optima(rows, labels, weight), axis=1)
    for step in range(60):
        size = 0.9**step * rng.choice([0.03, 0.1, 0.3, 1], size=(TRIES, 1, 1))
        # All rows of a data set are scaled together, and each is moved separately.
        other = rows * np.exp(2 * size * rng.normal(size=(TRIES, 1, 1)))
        other = shortened(other + 0.3 * size * rng.normal(size=rows.shape))
        norms = np.linalg.norm(optima(other, labels, weight), axis=1)
        assert np.all(norms <= bound * (1 + 1e-12))
        rows = np.where((norms > best)[:, None, None], other, rows)
        best = np.maximum(best, norms)
    if weight == 0.05:
        # Negative control: some optimum is outside a ball that is 5 % smaller.
        assert best.max() > 0.95 * bound
    if weight > 1:  # no admissible rows are long enough to get near
        assert best.max() < 0.5 * bound


@each_task
@pytest.mark.parametrize("weight", [1e-4, 0.05, 0.17])
def test_equal_rows_attain_the_radius(task, weight):
    optima, stated, length = TASKS[task]
    bound = stated(weight, "tight")
    assert length(weight) <= 1
    rows, labels = np.zeros((1, 2, DIMENSION)), np.ones((1, 2))
    rows[..., 0] = length(weight)
    assert np.linalg.norm(optima(rows, labels, weight)) == pytest.approx(bound, rel=1e-12)


def test_values():
    weights = np.array([0.01, 0.05, 4.0])
    np.testing.assert_array_equal(sensitivity.ridge_radius(weights), 1 / np.sqrt(weights))
    expected = np.sqrt(2 * np.log(2) / weights)
    np.testing.assert_allclose(sensitivity.logistic_radius(weights), expected, rtol=1e-15)
    # The constant is rounded up.
    with mpmath.workdps(40):
        constant = mpmath.mpf(sensitivity._LAMBERT)
        assert 0 <= constant - mpmath.lambertw(mpmath.exp(-1)).real < 1e-16
    assert isinstance(sensitivity.ridge_radius(0.05), float)


@each_task
def test_the_tight_ball_changes_the_radius_and_sensitivities_of_risks_only(task):
    fit = (RidgeProblem if task == "ridge" else LogisticProblem).fit
    paper, tight = (fit(*small_data(), 0.05, ball=ball) for ball in ("paper", "tight"))
    np.testing.assert_array_equal(tight.optimum, paper.optimum)
    assert tight.optimum_loss == paper.optimum_loss
    for noise in ("gaussian", "laplace"):
        large, small = (problem.released(noise) for problem in (paper, tight))
        np.testing.assert_array_equal(large.value, small.value)
        assert large.sensitivity == small.sensitivity
    assert small.utility.sensitivity == tight.utility_sensitivity
    assert small.utility.excess_risk().sensitivity == tight.excess_risk_sensitivity
    if task == "ridge":
        reach = np.array([1, 0.5]) / np.sqrt(0.05) + 1
        radius, risk = 0.5, (reach[1] / reach[0]) ** 2
        for constants in ("paper", "tight"):
            optima = [p.released_optimum("laplace", constants).sensitivity for p in (paper, tight)]
            assert optima[1] / optima[0] == pytest.approx(reach[1] / reach[0], rel=1e-9)
    else:
        radius = risk = np.sqrt((REACH - 1) / (2 * np.log(2)))
        assert radius == pytest.approx(0.4482, abs=5e-5)
    assert small.utility.radius / large.utility.radius == pytest.approx(radius, rel=1e-14)
    # To the allowance for rounding, which does not scale with the ball.
    assert tight.utility_sensitivity / paper.utility_sensitivity == pytest.approx(risk, rel=1e-4)
