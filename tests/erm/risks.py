"""Losses, risks, data, problems and trials for the tests of `erm`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.erm import OutputProblem, RidgeProblem
from nrjax.erm.sensitivity import logistic_radius, ridge_radius
from tests.problems import small_data, small_logistic

LAMBDA = 0.05
LONG = ridge_radius(LAMBDA) + 1
HUBER = {"loss_at_zero": (0.0, 0.75), "lowest_loss": 0.0, "label_range": (-1.0, 1.0)}
SQUARED = HUBER | {"loss_at_zero": (0.0, 0.5), "lipschitz": LONG, "loss_spread": 0.5 * LONG**2}
LOGISTIC = {"loss_at_zero": (np.log(2), np.log(2)), "lowest_loss": 0.0}
LOGISTIC |= {"loss_spread": logistic_radius(LAMBDA)}
"""Bounds on the losses, as arguments of `OutputProblem.fit`."""


def huber(theta, row, label):
    """Return a loss of slope at most 1, and of 0.75 at an error of 1."""
    error = jnp.abs(row @ theta - label)
    return jnp.where(error < 0.5, error**2, error - 0.25)


def logistic(theta, row, label):
    return jnp.logaddexp(0, -label * (row @ theta))


def linear(theta, row, label):
    """Return a loss that attains every bound."""
    return -label * (row @ theta)


def squared(theta, row, label):
    return 0.5 * (row @ theta - label) ** 2


def with_offset(theta, row, label):
    """Return a loss with one parameter more than there are features."""
    return huber(theta[:-1], row, label - theta[-1])


def sigmoid(theta, row, label):
    return jax.nn.sigmoid(-label * (row @ theta))


def norm(theta, row, label):
    return jnp.linalg.norm(theta) + 0 * label * row[0]


def vector(theta, row, label):
    return label * row * theta


def narrow(theta, row, label):
    return huber(theta, row, label).astype(jnp.float32)


def regression():
    """Return rows of norm at most 1, with duplicates, and labels in [-1, 1] with outliers."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 4)).round(1)
    x = np.concatenate([x, x]) / np.maximum(1, np.linalg.norm(x, axis=1).max())
    return x, np.clip(x @ np.full(4, 0.9) + 0.2 * rng.standard_t(2, 120), -1, 1).round(1)


DATA = regression()


def huber_risk(theta, x, y, weight):
    """Return the risk by its definition, without merged rows."""
    error = np.abs(x @ theta - y)
    losses = np.where(error < 0.5, error**2, error - 0.25)
    return np.mean(losses) + 0.5 * weight * theta @ theta


def fit(loss: Any = huber, features=DATA[0], labels=DATA[1], **changes: Any):
    arguments: Any = {"regularisation": LAMBDA, "lipschitz": 1.0} | changes
    return OutputProblem.fit(loss, features, labels, **arguments)


def logistic_risk(theta, x, y, weight):
    """Return the risk by its definition, without merged rows."""
    return np.mean(np.logaddexp(0, -y * (x @ theta))) + 0.5 * weight * theta @ theta


def ridge_risk(theta, x, y, weight):
    return 0.5 * np.mean((y - x @ theta) ** 2) + 0.5 * weight * theta @ theta


def ridge_data(rows=300, dimension=4, norm=2):
    """Return rows of unit norm, and labels that are nearly linear in them."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(rows, dimension))
    x /= np.linalg.norm(x, norm, axis=1, keepdims=True)
    y = 0.5 * x @ np.linspace(-1, 1, dimension) + 0.2 * rng.uniform(-1, 1, size=rows)
    return x, y


def in_ball(rng, count, dimension, radius=1.0):
    """Return points of the ball, half of them on its surface."""
    points = rng.normal(size=(count, dimension))
    points /= np.linalg.norm(points, axis=1)[:, None]
    points[::2] *= rng.uniform(size=(len(points[::2]), 1)) ** (1 / dimension)
    return radius * points


def cast(utility, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), utility)


def judged(utility, release):
    """Return the utility of a release."""
    return utility.evaluate(utility.hypothesis(release))


judged_lanes = jax.jit(jax.vmap(judged, (None, 0)))


class WithoutBounds(nrjax.Utility):
    """A utility that has evaluations only, and no bounds."""

    utility: Any

    @property
    def sensitivity(self):
        return self.utility.sensitivity

    def hypothesis(self, release):
        return self.utility.hypothesis(release)

    def evaluate(self, hypothesis):
        return self.utility.evaluate(hypothesis)


def laplace_trial(value, sensitivity, utility, rule, levels):
    """Return an interaction under Laplace noise, with `levels` (low, high, count) of epsilon."""
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
    """Return one problem of each kind."""
    if kind == "ridge":
        return RidgeProblem.fit(*ridge_data(), LAMBDA)
    return fit(**HUBER) if kind == "own" else small_logistic(LAMBDA)


KINDS = {
    "logistic": (logistic_risk, small_data()),
    "own": (huber_risk, DATA),
    "ridge": (ridge_risk, ridge_data()),
}
"""The definition of the risk, and the data, of each kind of problem."""
