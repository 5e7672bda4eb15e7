"""Utility theorems: the epsilon for a bound on the expected excess risk, and the inverse.

Use the functions to choose a privacy level before any data are seen (the "theory approach" of
Ligett 2017), for ONE release under independent Laplace noise. Neighbours differ in one row. The
bound is on the excess risk `R(theta) - R(theta*)` averaged over the noise: a single release may be
worse. Each `NAME_epsilon` decreases in `excess_risk`, and `NAME_excess_risk` is the inverse of
`NAME_epsilon` up to rounding. Sources and proofs: `docs/proofs/regression.md`.

All functions are elementwise in float64 on the host, and raise a ValueError for an argument out of
range. The arguments:

* `excess_risk`: alpha > 0, the largest expected excess risk, in units of the loss.
* `epsilon`: privacy level > 0, for the inverse functions.
* `rows` and `dimension`: numbers n of rows and p of features.
* `regularisation`: lambda > 0 of `(lambda/2) |theta|^2`.
* `constants`: "paper" or "tight".
* `ball`: "paper" or "tight", as in `RidgeProblem.fit(..., ball=...)`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from nrjax._base.validation import check
from nrjax.erm import sensitivity
from nrjax.erm._validation import as_positive, check_version
from nrjax.erm.sensitivity import Ball, OutputConstants, ridge_radius

Number = np.float64 | np.ndarray


def covariance_epsilon(
    excess_risk: ArrayLike,
    rows: ArrayLike,
    dimension: ArrayLike,
    regularisation: ArrayLike,
    constants: OutputConstants = "paper",
    *,
    ball: Ball = "paper",
) -> Number:
    """Return an epsilon that suffices for `excess_risk` by covariance perturbation (ridge).

    By Ligett 2017, Theorem 3.1, it is `c (2 sqrt(p) M + p M^2)/(n alpha)`, where alpha is
    `excess_risk`, p is `dimension` and M is `ridge_radius(lambda, ball)`. The factor c is
    `4 sqrt(2)` as printed ("paper"), or `2 sqrt(2)`, which the proof gives ("tight"). The theorem
    holds for rows of l1 norm at most 1, labels in [-1, 1], noise `Lap(4/epsilon)` on all entries of
    X'X and X'y, and the minimiser over the ball.
    """
    alpha = as_positive("excess_risk", excess_risk)
    at_one = covariance_excess_risk(1.0, rows, dimension, regularisation, constants, ball=ball)
    return at_one / alpha


def covariance_excess_risk(
    epsilon: ArrayLike,
    rows: ArrayLike,
    dimension: ArrayLike,
    regularisation: ArrayLike,
    constants: OutputConstants = "paper",
    *,
    ball: Ball = "paper",
) -> Number:
    """Return a bound on the expected excess risk, as the inverse of `covariance_epsilon`."""
    level = as_positive("epsilon", epsilon)
    check_version("constants", constants)
    n, p, weight = _checked_floats(rows, dimension, regularisation)
    factor = (4 if constants == "paper" else 2) * math.sqrt(2)
    reach = ridge_radius(1.0, ball)  # M in units of 1/sqrt(lambda)
    return factor * (2 * reach * np.sqrt(p / weight) + reach**2 * p / weight) / n / level


def output_logistic_epsilon(
    excess_risk: ArrayLike, rows: ArrayLike, dimension: ArrayLike, regularisation: ArrayLike
) -> Number:
    """Return an epsilon that suffices for `excess_risk` by output perturbation (logistic).

    By Ligett 2017, Theorem 3.3, it is the positive solution of `2 sqrt(2) p/(n lambda eps) + 4
    p^2/(n^2 lambda eps^2) = alpha`, where alpha is `excess_risk`. The theorem holds for rows of l2
    norm at most 1 and Laplace noise of scale `2 sqrt(p)/(n lambda eps)` on the optimum, with or
    without a projection onto a ball that contains the optimum.
    """
    alpha = as_positive("excess_risk", excess_risk)
    linear, square = _logistic(rows, dimension, regularisation)
    # The equivalent `2 square/(root - linear)` would lose digits if alpha is small.
    return (linear + np.sqrt(linear * linear + 4 * square * alpha)) / (2 * alpha)


def output_logistic_excess_risk(
    epsilon: ArrayLike, rows: ArrayLike, dimension: ArrayLike, regularisation: ArrayLike
) -> Number:
    """Return a bound on the expected excess risk, inverting `output_logistic_epsilon`."""
    level = as_positive("epsilon", epsilon)
    linear, square = _logistic(rows, dimension, regularisation)
    return (linear + square / level) / level


def output_ridge_epsilon(
    excess_risk: ArrayLike,
    rows: ArrayLike,
    dimension: ArrayLike,
    regularisation: ArrayLike,
    constants: OutputConstants = "paper",
    *,
    ball: Ball = "paper",
) -> Number:
    """Return an epsilon that suffices for `excess_risk` by output perturbation (ridge).

    By Ligett 2017, Theorem A.9, corrected, it is `D1 sqrt((1 + lambda p)/alpha)`, where alpha is
    `excess_risk` and D1 the l1-sensitivity of the optimum, `sqrt(p)` times
    `nrjax.erm.sensitivity.ridge_output_l2`. The paper prints `(1/n + lambda) p` in place of
    `1 + lambda p`. The theorem holds for rows of l2 norm at most 1 and noise `Lap(D1/eps)`. No
    bound is proved for releases that are projected onto a ball.
    """
    alpha = as_positive("excess_risk", excess_risk)
    at_one = output_ridge_excess_risk(1.0, rows, dimension, regularisation, constants, ball=ball)
    return np.sqrt(at_one / alpha)


def output_ridge_excess_risk(
    epsilon: ArrayLike,
    rows: ArrayLike,
    dimension: ArrayLike,
    regularisation: ArrayLike,
    constants: OutputConstants = "paper",
    *,
    ball: Ball = "paper",
) -> Number:
    """Return a bound on the expected excess risk, inverting `output_ridge_epsilon`."""
    level = as_positive("epsilon", epsilon)
    n, p, weight = _checked_floats(rows, dimension, regularisation)
    l1 = np.sqrt(p) * sensitivity.ridge_output_l2(n, weight, constants, ball=ball)
    return l1**2 * (1 + weight * p) / level**2


def _checked_floats(
    rows: ArrayLike, dimension: ArrayLike, regularisation: ArrayLike
) -> list[Number]:
    """Check `rows`, `dimension` and `regularisation`, and return them in float64."""
    named = {"rows": rows, "dimension": dimension, "regularisation": regularisation}
    n, p, weight = (as_positive(name, value) for name, value in named.items())
    for name, number in (("rows", n), ("dimension", p)):
        check(number == np.floor(number), name, named[name], "a whole number, at least 1")
    return [n, p, weight]


def _logistic(*public: ArrayLike) -> tuple[Number, Number]:
    """Return the coefficients of `1/eps` and `1/eps^2` in the bound on the excess risk."""
    n, p, weight = _checked_floats(*public)
    return np.sqrt(8) * p / (n * weight), 4 * p**2 / (n**2 * weight)
