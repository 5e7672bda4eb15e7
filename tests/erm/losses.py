"""Losses of a user's own, and a problem made of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nrjax.erm import OutputProblem

LAMBDA = 0.05
REACH = 1 + np.sqrt(1 / LAMBDA)
HUBER = {"loss_at_zero": (0.0, 0.75), "lowest_loss": 0.0, "label_range": (-1.0, 1.0)}


def huber(theta, row, label):
    """Slope at most 1, and 0.75 at an error of 1."""
    error = jnp.abs(row @ theta - label)
    return jnp.where(error < 0.5, error**2, error - 0.25)


def logistic(theta, row, label):
    return jnp.logaddexp(0, -label * (row @ theta))


def linear(theta, row, label):
    """Every bound is attained by it."""
    return -label * (row @ theta)


def squared(theta, row, label):
    return 0.5 * (row @ theta - label) ** 2


def with_offset(theta, row, label):
    """One parameter more than there are features."""
    return huber(theta[:-1], row, label - theta[-1])


def sigmoid(theta, row, label):
    return jax.nn.sigmoid(-label * (row @ theta))


def norm(theta, row, label):
    return jnp.linalg.norm(theta) + 0 * label * row[0]


def vector(theta, row, label):
    return label * row * theta


def narrow(theta, row, label):
    return huber(theta, row, label).astype(jnp.float32)


def regression(rows=120, dimension=4):
    """Rows of norm at most 1, duplicates among them, and labels in [-1, 1] with outliers."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows // 2, dimension)).round(1)
    x = np.concatenate([x, x]) / np.maximum(1, np.linalg.norm(x, axis=1).max())
    y = np.clip(x @ np.full(dimension, 0.9) + 0.2 * rng.standard_t(2, rows), -1, 1).round(1)
    return x, y


DATA = regression()


def huber_risk(theta, x, y, weight):
    """The definition, without merging."""
    error = np.abs(x @ theta - y)
    losses = np.where(error < 0.5, error**2, error - 0.25)
    return np.mean(losses) + 0.5 * weight * theta @ theta


def fit(loss: Any = huber, features=DATA[0], labels=DATA[1], **changes: Any):
    arguments: Any = {"regularisation": LAMBDA, "lipschitz": 1.0} | changes
    return OutputProblem.fit(loss, features, labels, **arguments)
