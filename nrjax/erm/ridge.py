"""Private ridge regression: noise on X'X and X'y, or on the optimum.

`R(theta) = (1/(2n)) sum (y - <x, theta>)^2 + (lambda/2) |theta|^2`, labels in [-1, 1], rows of l2
(or l1) norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike

from nrjax._validation import check
from nrjax.erm import _validation, sensitivity, statistics
from nrjax.erm._validation import RowNorm
from nrjax.erm.minimise import Minimum
from nrjax.erm.radius import Ball, ridge_radius
from nrjax.erm.released import Problem, Released
from nrjax.erm.ridge_utility import RidgeOutputUtility, RidgeUtility
from nrjax.erm.sensitivity import OutputConstants
from nrjax.erm.statistics import Constants
from nrjax.sensitivities import Noise, Sensitivity, norm_of

_TOLERANCE = 1e-12
"""Gradient norm that the computed optimum must have reached to be released."""
_SHARE = 5e-7
"""Of the utility's sensitivity: what the linear solve may have left in it, on either data set."""


@dataclasses.dataclass(frozen=True, repr=False)
class RidgeProblem(Problem):
    """Ridge regression on a data set; its optimum is from one linear solve.

    Example:
        Brownian noise on the statistics::

            problem = RidgeProblem.fit(features, labels, 0.05)
            value, sensitivity, utility = problem.released("gaussian")

        Laplace noise on the optimum, judged by the excess risk::

            value, sensitivity, utility = problem.released_optimum("laplace", "tight")
            utility = utility.excess_risk()

    Attributes, besides those of all problems:
        statistics: X'X, shape (d, d), and X'y, shape (d,).
        row_norm: "l2" or "l1", the norm in which admissible rows have length at most 1.
        ball: "paper" or "tight", the ball that hypotheses lie in; see `radius`.
    """

    statistics: tuple[np.ndarray, np.ndarray]
    row_norm: RowNorm = "l2"
    ball: Ball = "paper"

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        regularisation: float,
        row_norm: RowNorm = "l2",
        *,
        ball: Ball = "paper",
    ) -> Self:
        """Find the optimum and prepare the statistics.

        Args:
            features: shape (rows, dimension), each row of norm at most 1.
            labels: shape (rows,), each in [-1, 1].
            regularisation: lambda > 0.
            row_norm: "l2", or "l1" (Ligett 2017), which asks more of the rows and has smaller
                sensitivities: constants "l1_rows".
            ball: of hypotheses, "paper", or "tight" with half the radius M, which makes the
                sensitivities of the utility and of the optimum smaller.

        What is out of range is a `ValueError`.
        """
        _validation.check_version("ball", ball)
        x, y = _validation.checked(features, labels, regularisation, row_norm)
        _validation.check_labels(y, np.abs(y) <= 1, "in [-1, 1]")
        rows, dimension = x.shape
        gram, moments = x.T @ x, x.T @ y
        hessian = gram / rows + regularisation * np.eye(dimension)
        optimum = np.linalg.solve(hessian, moments / rows)
        errors = y - x @ optimum
        risk = 0.5 * np.mean(errors**2) + 0.5 * regularisation * optimum @ optimum
        gradient = regularisation * optimum - x.T @ errors / rows
        minimum = Minimum(optimum, float(risk), float(np.linalg.norm(gradient)), 0)
        return cls(rows, dimension, float(regularisation), minimum, (gram, moments), row_norm, ball)

    def released(self, noise: Noise, constants: Constants = "paper") -> Released[RidgeUtility]:
        """X'X and X'y as one private value, its sensitivity and the utility, for a kind of noise.

        The noise is "gaussian" or "laplace"; for the constants see `nrjax.erm.statistics`.

        Raises:
            ValueError: there is no such noise, there are no such constants, they are not for
                these rows, or the optimum was not computed exactly enough for the utility.
        """
        layout = statistics.layout(noise, constants)
        ok = constants != "l1_rows" or self.row_norm == "l1"
        right = "'paper' or 'tight', since the rows were not checked: fit with row_norm='l1'"
        check(ok, "constants", constants, right)
        moved = statistics.sensitivity(noise, constants, self.dimension)
        utility = RidgeUtility(*self._quadratic, float(self.rows), layout)
        return Released(statistics.pack(*self.statistics, layout), moved, utility)

    def released_optimum(
        self, noise: Noise, constants: OutputConstants = "paper"
    ) -> Released[RidgeOutputUtility]:
        """The optimum as the private value (output perturbation), its sensitivity and the utility.

        The noise is "gaussian" or "laplace"; for the constants see
        `nrjax.erm.sensitivity.ridge_output_l2`.

        Raises:
            ValueError: there is no such noise, there are no such constants, or the optimum was not
                computed as exactly as the sensitivity takes for granted.
        """
        norm = norm_of(noise)
        self._check_gradient(_TOLERANCE)
        moved = sensitivity.ridge_output_l2(
            self.rows, self.regularisation, constants, _TOLERANCE, ball=self.ball
        )
        if norm == "l1":
            moved *= math.sqrt(self.dimension)
        utility = RidgeOutputUtility(*self._quadratic)
        return Released(self.optimum, Sensitivity(float(moved), norm), utility)

    def _check_gradient(self, most: float) -> None:
        if not self.minimum.gradient_norm <= most:
            raise ValueError(
                f"the gradient norm at the optimum is {self.minimum.gradient_norm:.3g}: must be at "
                f"most {most:.3g}; raise the regularisation"
            )

    @property
    def _quadratic(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """What both utilities know: the risk as a quadratic around its computed optimum."""
        # A gradient g left by the linear solve makes it wrong by `g (2M + g/lambda)` at most, on
        # the other data set as well.
        moved = self.utility_sensitivity
        doubt = _SHARE * moved / (4 * self.radius)
        self._check_gradient(min(doubt, self.regularisation * self.radius))
        hessian = self.statistics[0] / self.rows + self.regularisation * np.eye(self.dimension)
        known = hessian, self.optimum, self.optimum_loss
        return *known, self.regularisation, self.radius, moved

    @property
    def radius(self) -> float:
        """l2 radius M of the ball that holds the optimum; see `nrjax.erm.radius.ridge_radius`."""
        return float(ridge_radius(self.regularisation, self.ball))

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """l2-sensitivity of `released("gaussian").value`; other constants have their own."""
        return statistics.sensitivity("gaussian", "paper", self.dimension)

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """l1-sensitivity of `released("laplace").value`; other constants have their own."""
        return statistics.sensitivity("laplace", "paper", self.dimension)

    @property
    def utility_sensitivity(self) -> float:
        """Sensitivity `(M + 1)^2/(2n)` of the utility at any one hypothesis, and its rounding."""
        return sensitivity.evaluated(sensitivity.squared_loss(self.rows, self.radius), 0.5)

    @property
    def excess_risk_sensitivity(self) -> float:
        """Sensitivity of the excess risk `R(hypothesis) - R(optimum)`: twice as much."""
        return sensitivity.excess_risk(self.utility_sensitivity)
