"""What the excess risk's sensitivity says of an optimum that a solver stopped short of; and bounds
of the risk on so many rows that summation rounds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import LogisticProblem, OutputProblem
from tests.erm.risks import cast

pytestmark = pytest.mark.numerical

REGULARISATION = 1e-3


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.where(x.sum(axis=1) + 0.3 * rng.normal(size=count) > 0, 1.0, -1.0)


def logistic(x, y, tolerance):
    return LogisticProblem.fit(x, y, REGULARISATION, tolerance=tolerance)


def own(x, y, tolerance):
    def loss(theta, row, label):
        return jnp.logaddexp(0.0, -label * jnp.dot(row, theta))

    promises: Any = {"loss_at_zero": (0.0, 0.7), "lowest_loss": 0.0, "tolerance": tolerance}
    spread = np.sqrt(2 * 0.7 / REGULARISATION)
    return OutputProblem.fit(loss, x, y, REGULARISATION, 1.0, loss_spread=spread, **promises)


@pytest.mark.parametrize("fit", [logistic, pytest.param(own, marks=pytest.mark.long)])
def test_the_excess_risk_moves_by_no_more_than_stated_however_early_the_solver_stops(fit):
    """One data set just reaches the tolerance, its neighbour needs another step."""
    x, y = rows(20_000)
    other_y = np.where(np.arange(y.size) == 0, -y, y)
    tolerance = min(fit(x, labels, 1.2e-2).minimum.gradient_norm for labels in (y, other_y))
    problem, other = (fit(x, labels, tolerance) for labels in (y, other_y))
    assert abs(problem.minimum.iterations - other.minimum.iterations) == 1
    stated, plain = problem.excess_risk_sensitivity, problem.utility_sensitivity
    with jax.enable_x64(True):
        utilities = [one.utility.excess_risk() for one in (problem, other)]
        excess = [float(utility.evaluate(jnp.zeros(5))) for utility in utilities]
    moved = abs(excess[0] - excess[1])
    assert moved > 2 * plain  # what it would be, were the optimum exact
    assert moved <= stated == other.excess_risk_sensitivity == utilities[0].sensitivity
    assert stated == pytest.approx(2 * plain + tolerance**2 / (2 * REGULARISATION), rel=1e-12)
    # At the usual tolerance it is twice the plain loss's, to the last bit.
    usual = fit(x, y, 1e-12)
    assert usual.excess_risk_sensitivity == 2 * usual.utility_sensitivity


def one_by_one(terms):
    """The sum of blocks that are added up in order, each addition rounded."""
    block = int(np.ceil(np.sqrt(terms.size)))
    padded = np.pad(terms, (0, -terms.size % block)).reshape(-1, block)
    return np.cumsum(np.cumsum(padded, axis=1)[:, -1])[-1]


@pytest.mark.long
def test_bounds_hold_in_whatever_order_a_million_rows_are_summed(dtype):
    """With all losses alike every addition rounds the same way: off by more than 1e-5."""
    count, size = 500_000, 12
    x = np.stack([np.full(2 * count, 0.6), np.repeat(np.linspace(1e-6, 0.8, count), 2)], axis=1)
    x[::2, 1] *= -1  # so that the optimum, like theta, is along the first axis
    problem = LogisticProblem.fit(x, np.ones(2 * count), 0.05, tolerance=1e-10)
    utility = cast(problem.utility, dtype)
    near = problem.optimum[0] * np.linspace(0.98, 1.02, size)
    theta = np.stack([near, np.zeros(size)], axis=1).astype(dtype)
    low, high = jax.jit(jax.vmap(utility.bounds))(theta)
    evaluate = jax.jit(lambda theta: jax.lax.map(utility.evaluate, theta))
    found = np.asarray(evaluate(theta))
    losses = np.log1p(np.exp(-theta[:, 0] * dtype.type(0.6)))
    weights = np.asarray(utility.weights)
    worst = -np.array([one_by_one(weights * loss) for loss in losses])
    worst -= dtype.type(0.025) * np.sum(theta * theta, axis=1)
    assert worst.dtype == dtype
    assert np.all((low <= found) & (found <= high))
    assert np.all((low <= worst) & (worst <= high))
    if dtype == jnp.float32:
        exact = np.log1p(np.exp(-0.6 * near)) + 0.025 * near**2
        assert np.max(np.abs(worst + exact) / exact) > 1e-5
