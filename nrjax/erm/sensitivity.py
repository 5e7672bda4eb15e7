"""Sensitivities of optima and of risks, and balls that contain every optimum.

Unless stated otherwise, neighbouring data sets differ in one row (replacement), and the number n of
rows is public. Rows have
l2 norm at most 1, unless a function states otherwise. The sensitivity of a risk is its largest
change at one hypothesis in a ball of radius M. `regularisation` is the lambda > 0 of
`(lambda/2) |theta|^2`, and `tolerance` is the gradient norm at which a solver stops. Proofs:
`docs/proofs/regression.md`.

Hypotheses are projected onto a ball around 0, or minimise a risk over the ball. A smaller ball
makes risks less sensitive. The radius of the "paper" ball is derived from the risk at 0, which is
at least the risk of the optimum (Ligett 2017). The radius of the "tight" ball, which is not in the
paper, is derived from the gradient at the optimum, which is 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from nrjax.erm._validation import as_positive, check_version

Ball = Literal["paper", "tight"]
OutputConstants = Literal["paper", "tight"]

_LAMBERT = 0.2784645427610738
"""The value `W(1/e)` of Lambert's function, rounded up.

It is the maximum of `m/(1 + exp(m))`, which is attained at `m = 1 + W(1/e)`.
"""

_ROUNDING = 4
"""The assumed bound on the rounding error of a risk, in machine epsilons of the risk.

The largest measured error is 2.9, with 1000 to 1,000,000 rows, 2 to 60 features and lambda from
0.001 to 0.05. With 10,000 rows or more the largest is 1.9.
"""


def ridge_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Return the radius M of a ball with every ridge optimum in it, elementwise in float64.

    Labels are in [-1, 1], and rows have any norm. The "paper" radius is `1/sqrt(lambda)` (Ligett
    2017, Lemma A.4). The "tight" radius is half of that, and is attained by equal rows of norm
    `sqrt(lambda)` with labels 1.

    Raises:
        ValueError: lambda is not positive and finite, or `ball` is unknown.
    """
    check_version("ball", ball)
    return (1 if ball == "paper" else 0.5) / np.sqrt(as_positive("regularisation", regularisation))


def logistic_radius(regularisation: ArrayLike, ball: Ball = "paper") -> np.float64 | np.ndarray:
    """Return the radius M of a ball with every logistic optimum in it, elementwise in float64.

    Labels are +1 or -1, and rows have any norm. The "paper" radius is `sqrt(2 log 2/lambda)`, or
    `1.1774/sqrt(lambda)` (Ligett 2017, Claim A.11). The "tight" radius is `sqrt(W(1/e)/lambda)`, or
    `0.5277/sqrt(lambda)`, where W is Lambert's function. Equal rows of margin `1 + W(1/e)` attain
    the "tight" radius.

    Raises:
        ValueError: lambda is not positive and finite, or `ball` is unknown.
    """
    check_version("ball", ball)
    square = 2 * math.log(2) if ball == "paper" else _LAMBERT
    return np.sqrt(square / as_positive("regularisation", regularisation))


def output_l2(
    rows: int, regularisation: float, lipschitz: float = 1.0, tolerance: float = 0.0
) -> float:
    """Return the l2-sensitivity `2 L/(n lambda)` of an optimum (Chaudhuri et al. 2011).

    L, or `lipschitz`, is the Lipschitz constant (l2) in theta of the loss of one row, on a convex
    set that contains the optima. L is 1 for the logistic loss.
    """
    return 2.0 * (float(lipschitz) / rows + float(tolerance)) / float(regularisation)


def removed_output_l2(
    least_rows: int,
    regularisation: float,
    lipschitz: float = 1.0,
    tolerance: float = 0.0,
    *,
    logistic: bool = False,
) -> float:
    """Return the l2-sensitivity of an optimum if a row is added or removed.

    The number n of rows is then private, and at least `least_rows`, which is public. The larger of
    two neighbours has at least `m = least_rows + 1` rows. Its gradient at the optimum of the
    smaller one is `(lambda theta + g)/n`, where both terms have norm at most L. The bound is
    `2 L/(m lambda)`, and for the logistic loss `1.0518/(m lambda)`, since a row's gradient g is
    large only if the optimum theta is.
    """
    changed = 1.0518 if logistic else 2.0 * float(lipschitz)
    return (changed / (int(least_rows) + 1) + 2 * float(tolerance)) / float(regularisation)


def output_l1(
    rows: int, regularisation: float, dimension: int, lipschitz: float = 1.0, tolerance: float = 0.0
) -> float:
    """Return the l1-sensitivity of an optimum, `sqrt(dimension)` times `output_l2`."""
    return math.sqrt(dimension) * output_l2(rows, regularisation, lipschitz, tolerance)


def ridge_output_l2(
    rows: Any,
    regularisation: Any,
    constants: OutputConstants = "paper",
    tolerance: float = 0.0,
    *,
    ball: Ball = "paper",
) -> Any:
    """Return the l2-sensitivity of the ridge optimum, for each element of the arguments.

    M is `ridge_radius(lambda, ball)`. The "paper" bound is `(M + 1)/sqrt(n lambda)` (Ligett 2017,
    Lemma A.8, which states `sqrt(p)` times this bound, for the l1 norm). The "tight" bound is the
    smaller of the "paper" bound and `2 (M + 1)/(n lambda)`, which is smaller if `n lambda > 4`. The
    latter holds because the gradient `(<x, theta> - y) x` of a row's loss at an optimum has norm at
    most `M + 1`.

    Raises:
        ValueError: `constants` or `ball` is unknown.
    """
    check_version("constants", constants)
    reach = ridge_radius(regularisation, ball) + 1
    regularisation = np.asarray(regularisation, np.float64)[()]
    bound = reach / np.sqrt(rows * regularisation)
    if constants == "tight":
        bound = np.minimum(bound, 2 * reach / (rows * regularisation))
    return bound + 2 * float(tolerance) / regularisation


def bounded_loss(rows: int, spread: float) -> float:
    """Return the sensitivity `s/n` of the mean of n losses with spread s.

    The spread s is the largest difference between the losses of two rows at one hypothesis.
    """
    return float(spread) / rows


def logistic_loss(rows: int, radius: float) -> float:
    """Return the sensitivity `M/n` of the mean of `log(1 + exp(-y <x, theta>))`.

    M is the radius of the ball, so that the margins `y <x, theta>` lie in [-M, M]. Ligett 2017,
    Claim A.12, states `2M/n`, which is the sensitivity of the excess risk.
    """
    return bounded_loss(rows, radius)


def squared_loss(rows: int, radius: float) -> float:
    """Return the sensitivity `(M + 1)^2/(2n)` of the mean of `(y - <x, theta>)^2/2`.

    Labels y are in [-1, 1], and M is the radius of the ball.
    """
    return bounded_loss(rows, 0.5 * (float(radius) + 1.0) ** 2)


def evaluated(sensitivity: float, risk: float) -> float:
    """Return the sensitivity of a risk plus an allowance for rounding in the default dtype.

    The risks of both neighbouring data sets are rounded. The allowance was measured, not proved.

    Args:
        sensitivity: sensitivity of the exact risk.
        risk: public bound on the risks to allow for, such as the target or the risk of theta = 0.
    """
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    return float(sensitivity) + 2 * _ROUNDING * eps * float(risk)


def excess_risk(sensitivity: Any, regularisation: Any = 1.0, tolerance: Any = 0.0) -> Any:
    """Return the sensitivity of the excess risk, given the sensitivity of the risk.

    The excess risk is the risk minus its minimum over the ball. Its sensitivity is twice the
    sensitivity of the risk, plus `tolerance^2/(2 lambda)`. The factor is 2 because the minimum
    changes by at most as much as the risk, possibly in the opposite direction (Ligett 2017). The
    second term bounds how far above the minimum a solver may stop on one of the two data sets.
    """
    numbers = sensitivity, regularisation, tolerance
    change, weight, slack = (float(n) if isinstance(n, np.generic) else n for n in numbers)
    return 2.0 * change + slack * slack / (2 * weight)
