"""One release by a bound on the curvature: it is good enough as often as stated, and costs that."""

import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.notions import Notion
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.one_release import bounded_release

ROWS, LAMBDA, TRIALS = 400, 0.5, 100_000
X, Y = np.ones((ROWS, 1)), np.where(np.arange(ROWS) % 2, 1.0, -1.0)  # the optimum is 0


def met(problem, loss, release, excess):
    """Return the fraction of releases that are good enough, drawn by NumPy."""
    rng = np.random.default_rng(2)
    if release.noise == "brownian":
        noise = rng.normal(scale=np.sqrt(release.time), size=TRIALS)
    else:  # in one dimension, spherical Laplace noise is Laplace noise
        noise = rng.laplace(scale=release.time, size=TRIALS)
    theta = problem.optimum + noise
    risk = loss(theta) + LAMBDA / 2 * theta**2
    return np.mean(risk - problem.optimum_loss <= excess)


@pytest.mark.numerical
@pytest.mark.parametrize("delta", [1e-6, 0.4])
@pytest.mark.parametrize("kind", [LogisticProblem, RidgeProblem])
def test_the_bound_is_attained_on_the_worst_rows(kind, delta):
    """The curvature without the penalty is the planted fault."""
    problem, excess = kind.fit(X, Y, LAMBDA), 1e-2 if kind is RidgeProblem else 1e-4
    if kind is RidgeProblem:

        def loss(theta):
            return (1 + theta**2) / 2
    else:

        def loss(theta):
            return np.logaddexp(0, theta) / 2 + np.logaddexp(0, -theta) / 2

    release = bounded_release(problem, excess, 0.9, delta)
    assert release.noise == ("brownian" if delta == 0.4 else "spherical laplace")
    error = 4 * np.sqrt(0.09 / TRIALS)
    assert abs(met(problem, loss, release, excess) - 0.9) < error
    curvature = 1.0 if kind is RidgeProblem else 0.25
    power = 1 if release.noise == "brownian" else 0.5
    faulty = release._replace(time=release.time * ((curvature + LAMBDA) / curvature) ** power)
    assert met(problem, loss, faulty, excess) < 0.9 - error


@pytest.mark.parametrize("delta", [1e-6, 0.4])
def test_the_cost_is_that_of_a_fixed_release(delta):
    """It is no lower, and doubles if a neighbour may replace two rows."""
    problem = LogisticProblem.fit(X, Y, LAMBDA)
    release = bounded_release(problem, 1e-3, 0.9, delta)
    parts = {"delta": delta} if release.noise == "brownian" else {}
    mechanism = problem.released(release.noise).mechanism(**parts)
    fixed = nrjax.FixedRelease.at_time(mechanism, release.time, Notion.PROBABILISTIC)
    assert fixed.epsilon <= release.epsilon < 1.0001 * fixed.epsilon
    two = bounded_release(problem, 1e-3, 0.9, delta, "replace, 2 rows")
    assert two.epsilon >= 1.99 * release.epsilon
    if release.noise == "brownian":  # the formula, next to SciPy's normal distribution
        shift = float(problem.released("brownian").sensitivity) / np.sqrt(release.time)
        exceeded = stats.norm.sf((release.epsilon - shift**2 / 2) / shift)
        assert 0.999 * delta < exceeded <= delta


def test_arguments_out_of_range_are_refused():
    problem = LogisticProblem.fit(X, Y, LAMBDA)
    for arguments in ((0.0, 0.9, 1e-6), (0.1, 1.0, 1e-6), (0.1, 0.9, 0.0)):
        with pytest.raises(ValueError, match="must be"):
            bounded_release(problem, *arguments)
