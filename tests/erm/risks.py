"""Definitions of the risks in float64, data, problems and trials, for the tests of erm."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.erm import RidgeProblem
from tests.erm.losses import DATA, HUBER, LAMBDA, fit, huber_risk
from tests.problems import small_data, small_logistic


def logistic_risk(theta, x, y, weight):
    """Row by row, without merging."""
    return np.mean(np.logaddexp(0, -y * (x @ theta))) + 0.5 * weight * theta @ theta


def ridge_risk(theta, x, y, weight):
    return 0.5 * np.mean((y - x @ theta) ** 2) + 0.5 * weight * theta @ theta


def ridge_data(rows=300, dimension=4, norm=2):
    """Rows of unit norm, and labels that nearly follow them."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(rows, dimension))
    x /= np.linalg.norm(x, norm, axis=1, keepdims=True)
    y = 0.5 * x @ np.linspace(-1, 1, dimension) + 0.2 * rng.uniform(-1, 1, size=rows)
    return x, y


def in_ball(rng, count, dimension, radius=1.0):
    """Points of the ball, half of them on its surface."""
    points = rng.normal(size=(count, dimension))
    points /= np.linalg.norm(points, axis=1)[:, None]
    points[::2] *= rng.uniform(size=(len(points[::2]), 1)) ** (1 / dimension)
    return radius * points


def cast(utility, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), utility)


def judged(utility, release):
    """The utility of a release."""
    return utility.evaluate(utility.hypothesis(release))


judged_lanes = jax.jit(jax.vmap(judged, (None, 0)))


class WithoutBounds(nrjax.Utility):
    """A utility that is known by its evaluations alone."""

    utility: Any

    @property
    def sensitivity(self):
        return self.utility.sensitivity

    def hypothesis(self, release):
        return self.utility.hypothesis(release)

    def evaluate(self, hypothesis):
        return self.utility.evaluate(hypothesis)


def laplace_trial(value, sensitivity, utility, rule, levels):
    """Laplace noise reduction of a value at these levels of epsilon: first, last, how many."""
    guarantee = nrjax.PureGuarantee(sensitivity)
    return nrjax.Interaction(
        value=value,
        process=nrjax.Laplace(value.shape),
        guarantee=guarantee,
        schedule=nrjax.Grid.geometric(guarantee, *levels),
        utility=utility,
        rule=rule,
    )


@functools.cache
def problem_of(kind):
    """One problem of each kind."""
    if kind == "ridge":
        return RidgeProblem.fit(*ridge_data(), LAMBDA)
    return fit(**HUBER) if kind == "own" else small_logistic(LAMBDA)


KINDS = {
    "logistic": (logistic_risk, small_data()),
    "own": (huber_risk, DATA),
    "ridge": (ridge_risk, ridge_data()),
}
"""The definition of the risk, and the data, of each."""
