"""Balls round 0 that hold the optimum whatever the data are (proofs in docs/mathematics.md).

A hypothesis is projected onto one, or sought in it; the smaller it is, the less one row can move
the loss there. "paper" is from the risk at 0, which the optimum's does not exceed (Ligett 2017);
"tight", not in the paper, from the gradient at the optimum, which is 0.

Elementwise, in float64 on the host; the regularisation is the lambda > 0 of `(lambda/2) |theta|^2`.
What is out of range is a `ValueError`.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nrjax.erm._validation import check_version, positive

Ball = Literal["paper", "tight"]

_LAMBERT = 0.2784645427610738
"""`W(1/e)`, rounded up: the maximum of `m/(1 + exp(m))`, at `m = 1 + W(1/e)`."""


def ridge_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Radius M that no ridge optimum's norm exceeds; labels in [-1, 1], rows of any length.

    "paper": `1/sqrt(lambda)` (Ligett 2017, Lemma A.4). "tight": half of it, reached by rows that
    are all alike, of norm `sqrt(lambda)`, labels 1.
    """
    check_version("ball", ball)
    return (1 if ball == "paper" else 0.5) / np.sqrt(positive("regularisation", regularisation))


def logistic_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Radius M that no logistic optimum's norm exceeds; labels +-1, rows of any length.

    "paper": `sqrt(2 log 2/lambda) = 1.1774/sqrt(lambda)` (Ligett 2017, Claim A.11). "tight":
    `sqrt(W(1/e)/lambda) = 0.5277/sqrt(lambda)`, Lambert's W, reached by rows that are all alike
    and have the margin `1 + W(1/e)`.
    """
    check_version("ball", ball)
    square = 2 * math.log(2) if ball == "paper" else _LAMBERT
    return np.sqrt(square / positive("regularisation", regularisation))
