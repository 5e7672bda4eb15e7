"""Private ridge regression: noise on X'X and X'y, or on the optimum.

`R(theta) = (1/(2n)) sum (y - <x, theta>)^2 + (lambda/2) |theta|^2`, labels in [-1, 1], rows of l2
(or l1) norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jax.typing import ArrayLike

from nrjax._numerics import check
from nrjax.erm import _door, sensitivity, statistics
from nrjax.erm._door import RowNorm
from nrjax.erm.minimise import Minimum
from nrjax.erm.radius import Ball, check_ball, ridge_radius
from nrjax.erm.ridge_utility import RidgeOutputUtility, RidgeUtility
from nrjax.erm.sensitivity import OutputConstants
from nrjax.erm.statistics import Constants, Layout, Noise

U = TypeVar("U")

_TOLERANCE = 1e-12
"""Gradient norm that the computed optimum must have reached to be released."""


class Released(NamedTuple, Generic[U]):
    """What a mechanism needs to know of a ridge problem."""

    value: np.ndarray
    """The private value f(x), a vector of float64; its shape is the process's."""
    sensitivity: float
    """Of the value, in the norm that the noise asks for: l2 for Gaussian, l1 for Laplace."""
    utility: U


@dataclasses.dataclass(frozen=True)
class RidgeProblem:
    """A data set, its non-private optimum, and what the mechanisms need to know of it.

    Neighbouring data sets differ in one row (replacement); their number n is public.

    Example:
        Brownian noise on the statistics::

            problem = RidgeProblem.fit(features, labels, 0.05)
            value, sensitivity, utility = problem.released("gaussian")

        Laplace noise on the optimum, judged by the excess risk::

            value, sensitivity, utility = problem.released_optimum("laplace", "tight")
            utility = utility.excess_risk()

    Attributes:
        rows: number of rows n.
        dimension: number of features d.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm; from one linear solve.
        statistics: X'X, shape (d, d), and X'y, shape (d,).
        row_norm: "l2" or "l1", the norm in which admissible rows have length at most 1.
        ball: "paper" or "tight", the ball that hypotheses lie in; see `radius`.
    """

    rows: int
    dimension: int
    regularisation: float
    minimum: Minimum
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
    ) -> "RidgeProblem":
        """Find the optimum and prepare the statistics.

        Args:
            features: shape (rows, dimension), each row of norm at most 1.
            labels: shape (rows,), each in [-1, 1].
            regularisation: lambda > 0.
            row_norm: "l2", or "l1" (Ligett 2017), which asks more of the rows and has smaller
                sensitivities: constants "l1_rows".
            ball: radius M of the ball that hypotheses lie in: "paper" for `1/sqrt(lambda)`,
                "tight" for half of it, which makes the sensitivities of the utility and of the
                optimum smaller, those of X'X and X'y not.

        Raises:
            ValueError: an argument is out of range.
        """
        check_ball(ball)
        x, y = _door.checked(features, labels, regularisation, row_norm)
        wrong = y[~(np.abs(y) <= 1)]
        if wrong.size:
            raise ValueError(f"labels holds {float(wrong[0])!r}: must be in [-1, 1]")
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

        Args:
            noise: "gaussian" or "laplace".
            constants: "paper" for the sensitivities of Whitehouse 2022, "tight" for smaller ones
                that hold, "l1_rows" where the rows' l1 norms are at most 1; see
                `nrjax.erm.statistics`.

        Raises:
            ValueError: there is no such noise, there are no such constants, or they are not for
                these rows.
        """
        layout = statistics.layout(noise, constants)
        moved = self.l2_sensitivity if noise == "gaussian" else self.l1_sensitivity
        return Released(
            statistics.pack(*self.statistics, layout), moved(constants), self._utility(layout)
        )

    def released_optimum(
        self, noise: Noise, constants: OutputConstants = "paper"
    ) -> Released[RidgeOutputUtility]:
        """The optimum as the private value (output perturbation), its sensitivity and the utility.

        Args:
            noise: "gaussian" or "laplace".
            constants: "paper" for Ligett 2017, Lemma A.8, "tight" for the smaller of that and a
                bound that falls as 1/n; see `nrjax.erm.sensitivity.ridge_output_l2`.

        Raises:
            ValueError: there is no such noise, there are no such constants, or the optimum was not
                computed as exactly as the sensitivity takes for granted.
        """
        check(noise in ("gaussian", "laplace"), "noise", noise, "'gaussian' or 'laplace'")
        if not self.minimum.gradient_norm <= _TOLERANCE:
            raise ValueError(
                f"the gradient norm at the optimum is {self.minimum.gradient_norm:.3g}: must be at "
                f"most {_TOLERANCE:.3g}; raise the regularisation"
            )
        moved = sensitivity.ridge_output_l2(
            self.rows, self.regularisation, constants, _TOLERANCE, ball=self.ball
        )
        if noise == "laplace":
            moved *= math.sqrt(self.dimension)
        utility = RidgeOutputUtility(
            hessian=self._hessian,
            optimum=self.optimum,
            optimum_loss=self.optimum_loss,
            regularisation=self.regularisation,
            radius=self.radius,
            sensitivity=self.utility_sensitivity,
        )
        return Released(self.optimum, float(moved), utility)

    @property
    def _hessian(self) -> np.ndarray:
        gram, _ = self.statistics
        return gram / self.rows + self.regularisation * np.eye(self.dimension)

    def _utility(self, layout: Layout) -> RidgeUtility:
        return RidgeUtility(
            hessian=self._hessian,
            optimum=self.optimum,
            optimum_loss=self.optimum_loss,
            rows=float(self.rows),
            regularisation=self.regularisation,
            radius=self.radius,
            sensitivity=self.utility_sensitivity,
            layout=layout,
        )

    @property
    def radius(self) -> float:
        """l2 radius M of the ball, which holds the optimum, whatever the data.

        `1/sqrt(lambda)`, or half of it; see `nrjax.erm.radius.ridge_radius`.
        """
        return float(ridge_radius(self.regularisation, self.ball))

    @property
    def optimum(self) -> np.ndarray:
        """The non-private minimiser, shape (dimension,)."""
        return self.minimum.argument

    @property
    def optimum_loss(self) -> float:
        """Its regularised risk."""
        return self.minimum.value

    def l2_sensitivity(self, constants: Constants = "paper") -> float:
        """l2-sensitivity of what is released under Gaussian noise, as for `released`."""
        self._check_rows(constants)
        return statistics.l2_sensitivity(constants)

    def l1_sensitivity(self, constants: Constants = "paper") -> float:
        """l1-sensitivity of what is released under Laplace noise, as for `released`."""
        self._check_rows(constants)
        return statistics.l1_sensitivity(self.dimension, constants)

    def _check_rows(self, constants: Constants) -> None:
        ok = constants != "l1_rows" or self.row_norm == "l1"
        right = "'paper' or 'tight', since the rows were not checked: fit with row_norm='l1'"
        check(ok, "constants", constants, right)

    @property
    def utility_sensitivity(self) -> float:
        """Sensitivity `(M + 1)^2/(2n)` of the utility at any one hypothesis in the ball."""
        return sensitivity.squared_loss(self.rows, self.radius)

    @property
    def excess_risk_sensitivity(self) -> float:
        """Sensitivity of the excess risk `R(hypothesis) - R(optimum)`: twice as much."""
        return sensitivity.excess_risk(self.utility_sensitivity)
