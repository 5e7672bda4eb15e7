"""How far one row can move what is released, or how good a release is.

Neighbouring data sets differ in one row (replacement); the number n of rows is public; rows have l2
norm at most 1, or whatever the stated constants were derived for. A risk is taken at one and the
same hypothesis, in a ball of radius M, where only the changed row counts. Proofs, and what a
solver's `tolerance` (the gradient norm where it stops) adds: docs/mathematics.md.
"""

import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from nrjax.erm._validation import check_version
from nrjax.erm.radius import Ball, ridge_radius

OutputConstants = Literal["paper", "tight"]

_ROUNDING = 4
"""Machine epsilons of its size that an evaluated risk is off by, at most: 2.9 were measured, with
1000 to 1,000,000 rows, 2 to 60 features and lambda from 0.001 to 0.05; 1.9 from 10,000 rows on."""


def output_l2(
    rows: int, regularisation: float, lipschitz: float = 1.0, tolerance: float = 0.0
) -> float:
    """l2-sensitivity `2 L/(n lambda)` of a regularised minimiser (Chaudhuri et al. 2011).

    L is the Lipschitz constant of the per-row loss in theta (l2), on a convex set that holds the
    minimisers; 1 for the logistic loss.
    """
    return 2.0 * (lipschitz / rows + tolerance) / regularisation


def output_l1(
    rows: int, regularisation: float, dimension: int, lipschitz: float = 1.0, tolerance: float = 0.0
) -> float:
    """l1-sensitivity of the same, `sqrt(d)` times the l2 one."""
    return math.sqrt(dimension) * output_l2(rows, regularisation, lipschitz, tolerance)


def ridge_output_l2(
    rows: Any,
    regularisation: Any,
    constants: OutputConstants = "paper",
    tolerance: float = 0.0,
    *,
    ball: Ball = "paper",
) -> Any:
    """l2-sensitivity of the ridge optimum, with `M = ridge_radius(lambda, ball)`; elementwise.

    "paper": `(M + 1)/sqrt(n lambda)` (Ligett 2017, Lemma A.8, whose l1 bound is `sqrt(p)` times
    it). "tight": the smaller of that and `2 (M + 1)/(n lambda)`, which is smaller once `n lambda >
    4`: at an optimum a row's gradient `(<x, theta> - y) x` is at most `M + 1` long. A `ValueError`
    where there are no such constants, or there is no such ball.
    """
    check_version("constants", constants)
    reach = ridge_radius(regularisation, ball) + 1
    moved = reach / np.sqrt(rows * regularisation)
    if constants == "tight":
        moved = np.minimum(moved, 2 * reach / (rows * regularisation))
    return moved + 2 * tolerance / regularisation


def ridge_output_l1(
    rows: Any,
    regularisation: Any,
    dimension: Any,
    constants: OutputConstants = "paper",
    tolerance: float = 0.0,
    *,
    ball: Ball = "paper",
) -> Any:
    """l1-sensitivity of the same, `sqrt(p)` times the l2 one; p features."""
    moved = ridge_output_l2(rows, regularisation, constants, tolerance, ball=ball)
    return np.sqrt(dimension) * moved


def bounded_loss(rows: int, spread: float) -> float:
    """Sensitivity `s/n` of a mean of losses of which no two lie further than s apart, anywhere."""
    return spread / rows


def evaluated(moved: float, risk: float) -> float:
    """Sensitivity of the risk as it is computed, in the default dtype: two evaluations round.

    The allowance was measured, not proved. `moved` is the exact risk's sensitivity; `risk`, public,
    the size of the risks to be told apart: a target's, or that of theta = 0, the largest of use.
    """
    return moved + 2 * _ROUNDING * float(jnp.finfo(jnp.result_type(float)).eps) * risk


def logistic_loss(rows: int, radius: float) -> float:
    """Sensitivity `M/n` of the mean of `log(1 + exp(-y <x, theta>))`: margins lie in [-M, M].

    Ligett 2017, Claim A.12, prints the excess risk's `2M/n`.
    """
    return bounded_loss(rows, radius)


def squared_loss(rows: int, radius: float) -> float:
    """Sensitivity `(M + 1)^2/(2n)` of the mean of `(y - <x, theta>)^2/2`; labels in [-1, 1]."""
    return bounded_loss(rows, 0.5 * (radius + 1.0) ** 2)


def excess_risk(sensitivity: Any, regularisation: Any = 1.0, tolerance: Any = 0.0) -> Any:
    """Sensitivity of the loss less its minimum over the ball: twice the loss's own, and a little.

    The minimum moves by no more than the loss does, and may move the other way (Ligett 2017). A
    solver may have stopped `tolerance^2/(2 lambda)` above it, on one data set and not the other.
    """
    return 2.0 * sensitivity + tolerance * tolerance / (2 * regularisation)


def logistic_excess_risk(rows: int, radius: float) -> float:
    """Sensitivity `2M/n` of the excess logistic risk."""
    return excess_risk(logistic_loss(rows, radius))


def squared_excess_risk(rows: int, radius: float) -> float:
    """Sensitivity `(M + 1)^2/n` of the excess squared risk."""
    return excess_risk(squared_loss(rows, radius))
