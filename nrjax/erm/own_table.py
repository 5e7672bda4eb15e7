"""Choices for a regression on your table: its penalty, and the losses that it must beat."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from nrjax._base.pytrees import record
from nrjax._base.validation import check_choice, check_integer
from nrjax.erm.logistic import LogisticProblem
from nrjax.erm.ridge import RidgeProblem

_STEPS = 100
"""Number of Newton steps. The first ones move b by about 1, and the last ones square the error."""


def default_regularisation(task: Literal["logistic", "ridge"], rows: int) -> float:
    """Return the factor lambda of the l2 penalty for a table with this number of rows.

    * logistic: `min(0.005, 0.15/sqrt(n))`. Noise on the optimum is proportional to `1/(n lambda)`.
    * ridge: `min(0.03, max(20/n, 0.2/sqrt(n)))`. Noise on X'X and X'y does not depend on lambda,
      which keeps the noisy X'X from being singular.

    Both are functions of n only, which is public if neighbours differ by a replaced row. The
    numbers were chosen on 56 public tables of 32 to 8,000 rows, prepared by
    `nrjax.datasets.from_frame`: the non-private model is better than the base rate (the mean, for
    ridge) on each of them, and a released model gains half of what can be gained at the least
    epsilon, or nearly.

        >>> nrjax.erm.default_regularisation("logistic", rows=10_000)
        0.0015

    Args:
        task: "logistic" or "ridge".
        rows: number of rows n.

    Raises:
        ValueError: the task is unknown, or `rows` is not positive.
    """
    check_choice("task", task, ("logistic", "ridge"))
    n = check_integer("rows", rows, 1)
    if task == "logistic":
        return min(0.005, 0.15 / math.sqrt(n))
    return min(0.03, max(20 / n, 0.2 / math.sqrt(n)))


@record
class TrivialLosses(NamedTuple):
    """The regularised risks of the models that a regression must beat to be of use.

    They depend on the data, and no epsilon covers them.

    Attributes:
        zero: risk of theta = 0.
        constant: least risk of a model that uses the intercept only, or of theta = 0 if the
            problem has no intercept.
    """

    zero: float
    constant: float

    def met(self, loss: float) -> str:
        """Return which of the models has at most this loss in words, or "" if none has."""
        if self.zero <= loss:
            return f"the zero model, whose loss is {self.zero:.4g}"
        if self.constant <= loss:
            return f"the best constant model, whose loss is {self.constant:.4g}"
        return ""


def trivial_losses(problem: LogisticProblem | RidgeProblem, features: np.ndarray) -> TrivialLosses:
    """Return the risks of the zero model and of the best constant model.

    The intercept is the last column of `features` that holds one positive number in all rows.

    Args:
        problem: problem that was fitted to the features.
        features: features, shape (rows, dimension).
    """
    first = features[0]
    places = np.flatnonzero((first > 0) & (features == first).all(axis=0))
    place = int(places[-1]) if places.size else None
    penalty = float(problem.regularisation)
    if isinstance(problem, LogisticProblem):
        zero = math.log(2)
        if place is None:
            return TrivialLosses(zero, zero)
        signs = np.asarray(problem.utility.rows)[:, place] > 0
        positive = float(np.asarray(problem.utility.weights)[signs].sum())
        return TrivialLosses(zero, _logistic(positive, penalty / float(first[place]) ** 2))
    gram, moments = problem.statistics
    hessian = gram / problem.rows + penalty * np.eye(problem.dimension)
    zero = problem.optimum_loss + 0.5 * float(problem.optimum @ hessian @ problem.optimum)
    if place is None:
        return TrivialLosses(zero, zero)
    gain = 0.5 * float(moments[place] / problem.rows) ** 2 / float(hessian[place, place])
    return TrivialLosses(zero, zero - gain)


def _logistic(positive: float, penalty: float) -> float:
    """Return the least of `p log(1 + exp(-b)) + (1 - p) log(1 + exp(b)) + (penalty/2) b^2`.

    p is `positive`, the fraction of positive labels. Newton's method from 0 approaches the minimum
    from one side, and never passes it.
    """
    b = 0.0
    for _ in range(_STEPS):
        mean = 1 / (1 + math.exp(-b))
        b -= (mean - positive + penalty * b) / (mean * (1 - mean) + penalty)
    losses = positive * np.logaddexp(0, -b) + (1 - positive) * np.logaddexp(0, b)
    return float(losses) + 0.5 * penalty * b * b
