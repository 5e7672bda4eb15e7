"""Balls that hold every optimum: no data set leaves them, and some reach their rim."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nrjax.erm import LogisticProblem, RidgeProblem, radius, sensitivity, theory
from tests.problems import small_data

TRIES, ROWS, DIMENSION = 300, 7, 3
REACH = 1 + float(mpmath.lambertw(mpmath.exp(-1)).real)
"""The margin at which a row pulls most."""


def ridge_optima(rows, labels, weight):
    """Shape (tries, dimension), from the normal equations."""
    n, d = rows.shape[1:]
    hessian = np.einsum("tri,trj->tij", rows, rows) / n + weight * np.eye(d)
    return np.linalg.solve(hessian, np.einsum("tri,tr->ti", rows, labels)[..., None] / n)[..., 0]


def logistic_optima(rows, labels, weight):
    """The same by Newton steps, each of the length that is best for the risk."""
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
        # Where they agree to within rounding, the whole step.
        best = np.argmax(risks <= risks.min(axis=0) + 1e-14, axis=0)
        theta = tried[best, np.arange(len(rows))]
    assert np.abs(gradient).max() < 1e-12
    return theta


# Optima, radius, and the norm of rows that, all alike, have the longest optimum.
TASKS = {
    "ridge": (ridge_optima, radius.ridge_radius, np.sqrt),
    "logistic": (
        logistic_optima,
        radius.logistic_radius,
        lambda weight: REACH / radius.logistic_radius(weight, "tight"),
    ),
}
each_task = pytest.mark.parametrize("task", TASKS)


def shortened(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1)


def draw(task):
    """Random admissible rows of all lengths, half of them much alike; labels of every kind."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(TRIES, ROWS, DIMENSION)) * rng.uniform(0, 2, size=(TRIES, 1, 1))
    rows[::2] = rows[::2, :1] + 0.2 * rng.normal(size=rows[::2].shape)
    labels = rng.choice([-1.0, 1.0], size=(TRIES, ROWS))
    if task == "ridge":
        labels[::3] = rng.uniform(-1, 1, size=labels[::3].shape)
    labels[::2] = 1
    return rng, shortened(rows), labels


@each_task
@pytest.mark.parametrize("weight", [1e-4, 0.01, 0.05, 0.16, 1.0, 20.0])
def test_no_optimum_leaves_the_ball_and_a_climb_reaches_its_rim(task, weight):
    """From random data sets, rows are changed as long as that makes the optimum longer."""
    optima, stated, _ = TASKS[task]
    bound = stated(weight, "tight")
    rng, rows, labels = draw(task)
    best = np.linalg.norm(optima(rows, labels, weight), axis=1)
    for step in range(60):
        size = 0.9**step * rng.choice([0.03, 0.1, 0.3, 1], size=(TRIES, 1, 1))
        # All rows of a data set grow or shrink at once, and each moves on its own.
        other = rows * np.exp(2 * size * rng.normal(size=(TRIES, 1, 1)))
        other = shortened(other + 0.3 * size * rng.normal(size=rows.shape))
        norms = np.linalg.norm(optima(other, labels, weight), axis=1)
        assert np.all(norms <= bound * (1 + 1e-12))
        rows = np.where((norms > best)[:, None, None], other, rows)
        best = np.maximum(best, norms)
    if weight in (0.01, 0.05, 0.16):
        # Negative control: a ball that is 5 % smaller is left.
        assert best.max() > 0.95 * bound
    if weight > 1:  # no admissible rows are long enough to get near
        assert best.max() < 0.5 * bound


@each_task
@pytest.mark.parametrize("weight", [1e-4, 0.05, 0.17])
def test_rows_that_are_all_alike_attain_it(task, weight):
    optima, stated, length = TASKS[task]
    bound = stated(weight, "tight")
    assert length(weight) <= 1
    rows, labels = np.zeros((1, 2, DIMENSION)), np.ones((1, 2))
    rows[..., 0] = length(weight)
    norm = np.linalg.norm(optima(rows, labels, weight))
    assert norm == pytest.approx(bound, rel=1e-12)
    assert norm > 0.95 * bound


def test_values():
    weights = np.array([0.01, 0.05, 4.0])
    np.testing.assert_array_equal(radius.ridge_radius(weights), 1 / np.sqrt(weights))
    np.testing.assert_array_equal(radius.ridge_radius(weights, "tight"), 0.5 / np.sqrt(weights))
    np.testing.assert_allclose(
        radius.logistic_radius(weights), np.sqrt(2 * np.log(2) / weights), rtol=1e-15
    )
    exact = mpmath.lambertw(mpmath.exp(-1)).real
    np.testing.assert_allclose(
        radius.logistic_radius(weights, "tight"), np.sqrt(float(exact) / weights), rtol=1e-15
    )
    # Rounded up, in the digits that are written down.
    with mpmath.workdps(40):
        constant = mpmath.mpf(radius._LAMBERT)
        assert 0 <= constant - mpmath.lambertw(mpmath.exp(-1)).real < 1e-16
    assert isinstance(radius.ridge_radius(0.05), float)


def fitted(task, ball, rows=300, weight=0.05):
    x, y = small_data(rows)
    if task == "ridge":
        return RidgeProblem.fit(x, 0.9 * y, weight, ball=ball)
    return LogisticProblem.fit(x, y, weight, ball=ball)


@pytest.mark.numerical
@each_task
def test_a_fit_with_the_tight_ball_changes_what_depends_on_it_alone(task, dtype):
    paper, tight = fitted(task, "paper"), fitted(task, "tight")
    np.testing.assert_array_equal(tight.optimum, paper.optimum)
    assert tight.optimum_loss == paper.optimum_loss
    if task == "ridge":
        utilities = [problem.released_optimum("laplace").utility for problem in (paper, tight)]
        reach = np.array([1, 0.5]) / np.sqrt(0.05) + 1
        factor, moved = 0.5, (reach[1] / reach[0]) ** 2
        assert (paper.ball, tight.ball) == ("paper", "tight")
        assert tight.radius == utilities[1].radius
        for constants in ("paper", "tight"):
            for noise in ("gaussian", "laplace"):
                large, small = (
                    problem.released_optimum(noise, constants).sensitivity
                    for problem in (paper, tight)
                )
                assert small / large == pytest.approx(reach[1] / reach[0], rel=1e-9)
                # The statistics and their sensitivity know of no ball.
                large, small = (p.released(noise, constants) for p in (paper, tight))
                np.testing.assert_array_equal(large.value, small.value)
                assert large.sensitivity == small.sensitivity
                assert small.utility.radius == tight.radius
                assert small.utility.sensitivity == tight.utility_sensitivity
    else:
        utilities = [paper.utility, tight.utility]
        factor = moved = np.sqrt((REACH - 1) / (2 * np.log(2)))
        assert factor == pytest.approx(0.4482, abs=5e-5)
        assert tight.l1_sensitivity == paper.l1_sensitivity
    assert utilities[1].radius / utilities[0].radius == pytest.approx(factor, rel=1e-14)
    for name in ("utility_sensitivity", "excess_risk_sensitivity"):
        ratio = getattr(tight, name) / getattr(paper, name)
        assert ratio == pytest.approx(moved, rel=1e-4)  # rounding knows no ball
    assert utilities[1].sensitivity == tight.utility_sensitivity
    assert utilities[1].excess_risk().sensitivity == tight.excess_risk_sensitivity
    # Releases are projected onto it, and the optimum is left where it is.
    release = jnp.full((5,), 100.0, dtype)
    for utility in utilities:
        norm = np.linalg.norm(utility.hypothesis(release))
        assert norm == pytest.approx(utility.radius, rel=1e-6)
    value = jnp.asarray(tight.optimum, dtype)
    np.testing.assert_array_equal(utilities[1].hypothesis(value), value)


@pytest.mark.numerical
def test_noisy_statistics_are_minimised_over_the_tight_ball(dtype):
    problem = fitted("ridge", "tight")
    value, _, utility = problem.released("gaussian")
    noise = 300 * np.random.default_rng(0).normal(size=(40, value.size))
    noise[0] = 0
    found = jax.jit(jax.vmap(utility.hypothesis))((value + noise).astype(dtype))
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(problem.radius, rel=1e-6)
    rtol = 2e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(found[0], problem.optimum, rtol=rtol, atol=rtol)


def losses(task, prediction, label):
    if task == "ridge":
        return 0.5 * (label - prediction) ** 2
    return np.logaddexp(0, -label * prediction)


@each_task
def test_a_row_moves_the_excess_risk_by_no_more_than_stated_for_the_tight_ball(task):
    """The optimum is that over all space, which the ball is to hold; neighbours pull apart."""
    optima, stated, _ = TASKS[task]
    weight, rows = 0.05, 40
    small, large = (stated(weight, ball) for ball in ("tight", "paper"))
    plain = getattr(sensitivity, {"ridge": "squared_loss", "logistic": "logistic_loss"}[task])
    rng = np.random.default_rng(2)
    x = shortened(rng.normal(size=(TRIES, rows, 2)) * rng.uniform(0, 1, size=(TRIES, 1, 1)))
    y = np.where(rng.uniform(size=(TRIES, rows)) < rng.uniform(size=(TRIES, 1)), 1.0, -1.0)
    # Rows that are all alike, of the length at which the optimum is longest, and nearly so.
    x[::2] = 0
    x[::2, :, 0] = rng.uniform(0.2, 1, size=(TRIES // 2, 1))
    y[::2] = 1
    theta = rng.normal(size=(TRIES, 2))
    theta[::4] = [1.0, 0.0]
    theta[2::4] = [-1.0, 0.0]
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    other_x, other_y = x.copy(), y.copy()
    x[:, 0], y[:, 0] = theta, -1
    other_x[:, 0], other_y[:, 0] = theta, 1

    def risk(x, y, at):
        predictions = np.einsum("tri,ti->tr", x, at)
        return losses(task, predictions, y).mean(axis=1) + 0.5 * weight * np.sum(at**2, axis=1)

    def moves(length):
        one, other = (
            risk(*data, length * theta) - risk(*data, optima(*data, weight))
            for data in ((x, y), (other_x, other_y))
        )
        return np.abs(one - other)

    moved = moves(small)
    assert np.all(moved <= 2 * plain(rows, small) * (1 + 1e-12))
    # At longer hypotheses, which the tight ball leaves out, a row does more.
    assert moves(large).max() > 2 * plain(rows, small)
    assert moves(large).max() <= 2 * plain(rows, large)
    # The plain loss at the rim, between the two labels that differ: reached.
    spread = np.ptp([losses(task, small, label) for label in (-1.0, 1.0)])
    if task == "ridge":
        spread = losses(task, small, -1.0)  # against a row that fits
    assert spread / rows == pytest.approx(plain(rows, small), rel=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fitted("ridge", "small"),
        lambda: fitted("logistic", "small"),
        lambda: radius.ridge_radius(0.05, "small"),
        lambda: radius.logistic_radius(0.05, "small"),
        lambda: sensitivity.ridge_output_l2(100, 0.05, ball="small"),
        lambda: theory.covariance_epsilon(0.1, 100, 3, 0.05, ball="small"),
        lambda: theory.output_ridge_excess_risk(0.1, 100, 3, 0.05, ball="small"),
    ],
)
def test_an_unknown_ball_is_named(call):
    with pytest.raises(ValueError, match="ball = 'small': must be 'paper' or 'tight'"):
        call()


@each_task
@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_regularisation_that_is_not_positive_is_named(task, weight):
    with pytest.raises(ValueError, match=r"regularisation = .*: must be positive and finite"):
        TASKS[task][1](weight, "tight")
