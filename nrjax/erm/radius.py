"""Balls round 0 that hold the optimum whatever the data are.

A hypothesis is projected onto one, or sought in it; the smaller it is, the less one row can move
the loss there. Two bounds of the optimum's norm hold:

* "paper": its risk is at most that of 0 (Ligett 2017, Lemma A.4 and Claim A.11), which
  forgets the loss that an optimum far from 0 still has;
* "tight": the gradient at the optimum is 0, and its inner product with theta* says that
  `lambda |theta*|^2 = -(1/n) sum_i <grad loss_i(theta*), theta*>`. What a row can add to the right
  side is bounded, whatever the row (not in the paper).

Elementwise, in float64 on the host; the regularisation is the lambda > 0 of `(lambda/2) |theta|^2`.
What is out of range is a `ValueError`.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nrjax._numerics import check

Ball = Literal["paper", "tight"]

_LAMBERT = 0.2784645427610738
"""`W(1/e)`, rounded up: the maximum of `m/(1 + exp(m))`, at `m = 1 + W(1/e)`."""


def ridge_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Radius M that no ridge optimum's norm exceeds; labels in [-1, 1], rows of any length.

    "paper": `1/sqrt(lambda)`, from `(lambda/2) |theta*|^2 <= R(theta*) <= R(0) <= 1/2` (Ligett
    2017, Lemma A.4). "tight": `1/(2 sqrt(lambda))`, since a row with label y and prediction p adds
    `p (y - p) <= y^2/4 <= 1/4`; reached by rows that are all alike, of norm `sqrt(lambda)`, labels
    1, as long as such rows are admissible (lambda <= 1).
    """
    weight = _checked(regularisation, ball)
    return (1 if ball == "paper" else 0.5) / np.sqrt(weight)


def logistic_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Radius M that no logistic optimum's norm exceeds; labels +-1, rows of any length.

    "paper": `sqrt(2 log 2/lambda) = 1.1774/sqrt(lambda)`, from `(lambda/2) |theta*|^2 <= R(theta*)
    <= R(0) = log 2` (Ligett 2017, Claim A.11). "tight": `sqrt(W(1/e)/lambda) =
    0.5277/sqrt(lambda)`, Lambert's W, since a row of margin m adds `m/(1 + exp(m)) <= W(1/e)`, most
    at `m = 1 + W(1/e) = 1.2785`; reached by rows that are all alike and give this margin, as long
    as rows of norm at most 1 can (lambda <= 0.17).
    """
    weight = _checked(regularisation, ball)
    return np.sqrt((2 * math.log(2) if ball == "paper" else _LAMBERT) / weight)


def check_ball(ball: str) -> None:
    """Raise a `ValueError` unless there is such a ball."""
    check(ball in ("paper", "tight"), "ball", ball, "'paper' or 'tight'")


def _checked(regularisation: ArrayLike, ball: str) -> np.float64 | np.ndarray:
    check_ball(ball)
    weight = np.asarray(regularisation, np.float64)[()]
    ok = np.isfinite(weight) & (weight > 0)
    check(ok, "regularisation", regularisation, "positive and finite")
    return weight
