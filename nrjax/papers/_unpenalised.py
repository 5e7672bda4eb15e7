"""The models without a penalty, with which a report compares the penalised optimum."""

from __future__ import annotations

from typing import Literal

import numpy as np

_STEPS = 50
"""Largest number of Newton steps. If the labels can be separated, no step is the last."""

_HALVINGS = 40
"""Largest number of times that a Newton step is halved."""

_RELATIVE = 1e-10
"""Predicted decrease, as a fraction of the loss, at which the steps end."""


def unpenalised(task: Literal["logistic", "ridge"], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a model of least loss without penalty, shape (d,).

    Of several such models, ridge regression gets the shortest. If a logistic regression separates
    the labels, no model has the least loss, and the result is a model with a loss close to 0. It is
    not private.

    Args:
        task: "logistic" or "ridge".
        x: features, shape (n, d).
        y: labels -1 and 1 (logistic) or targets (ridge), shape (n,).
    """
    if task == "ridge":
        return np.linalg.lstsq(x, y)[0]
    theta = np.zeros(x.shape[1])
    loss = _loss(x, y, theta)
    for _ in range(_STEPS):
        chance = 0.5 * (1 - np.tanh(0.5 * y * (x @ theta)))  # of the other label
        gradient = -(x.T @ (y * chance)) / len(y)
        curvature = (x.T * (chance * (1 - chance))) @ x / len(y)
        step = np.linalg.lstsq(curvature, gradient)[0]
        is_last = float(gradient @ step) <= _RELATIVE * loss
        for halving in range(_HALVINGS):
            there = theta - 0.5**halving * step
            if (lower := _loss(x, y, there)) < loss:
                theta, loss = there, lower
                break
        else:  # rounding
            is_last = True
        if is_last:
            break
    return theta


def _loss(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    return float(np.logaddexp(0, -y * (x @ theta)).mean())
