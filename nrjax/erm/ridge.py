"""Private ridge regression: noise on X'X and X'y, or on the optimum."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.pytrees import static
from nrjax._base.sensitivities import Noise, Sensitivity, norm_of, split_relation
from nrjax._base.validation import check
from nrjax.erm import _validation, sensitivity, statistics
from nrjax.erm._validation import RowNorm
from nrjax.erm.minimise import Minimum
from nrjax.erm.released import Problem, Released, released_as
from nrjax.erm.ridge_utility import RidgeOutputUtility, RidgeUtility
from nrjax.erm.sensitivity import Ball, OutputConstants, ridge_radius
from nrjax.erm.statistics import Constants

_TOLERANCE = 1e-12
"""Largest gradient norm that is accepted at an optimum that is released."""
_SHARE = 5e-7
"""Largest accepted error of the linear solve, as a fraction of the utility's sensitivity."""
_SUM = 64 * float(np.finfo(float).eps)
"""Rounding error to allow for in the sums of X'X and X'y, per row, relative to the sensitivity.

It is not proved. The error that was measured for a million rows, 4e-13 of the sensitivity, is a
small part of this allowance.
"""


class RidgeProblem(Problem):
    """A ridge regression with noise on its statistics or optimum. Make it with `fit`.

    The risk is `(1/(2n)) sum_i (y_i - <x_i, theta>)^2 + (lambda/2) |theta|^2`, with labels in
    [-1, 1] and rows of l2 (or l1) norm at most 1. An intercept is a constant column, which is
    regularised like the others. The optimum comes from one linear solve. There are two ways to
    release it:

    * `released` adds noise to X'X and X'y (covariance perturbation; Ligett 2017, Whitehouse 2022),
      d(d + 3)/2 or more numbers. The sensitivity does not depend on lambda.
    * `released_optimum` adds noise to the optimum (output perturbation), d numbers. The sensitivity
      grows as lambda falls.

    The same data released in two ways:

        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(1000, 5))
        >>> features /= np.linalg.norm(features, axis=1, keepdims=True)
        >>> labels = np.clip(features @ np.ones(5), -1, 1)
        >>> problem = nrjax.erm.RidgeProblem.fit(features, labels, regularisation=0.05)
        >>> problem.brownian(delta=1e-6).process  # on X'X and X'y
        Brownian(shape=(20,))
        >>> problem.released_optimum("laplace", "tight").mechanism().process
        Laplace(shape=(5,))

    Attributes:
        rows: number of rows n.
        dimension: length d of theta, the number of features.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm.
        statistics: X'X, shape (d, d), and X'y, shape (d,).
        row_norm: "l2" or "l1", the norm in which admissible rows have length at most 1.
        ball: "paper" or "tight", the choice of the ball that contains all hypotheses.
    """

    statistics: tuple[np.ndarray, np.ndarray]
    row_norm: RowNorm = static(default="l2")
    ball: Ball = static(default="paper")

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
            row_norm: norm of the rows that is at most 1: "l2", or "l1" (Ligett 2017), which permits
                the smaller sensitivities of `released` with constants "l1_rows".
            ball: ball that contains all hypotheses: "paper", or "tight" with half the radius M,
                which makes the sensitivities of the utility and of the optimum smaller.

        Raises:
            ValueError: an argument is out of range.
        """
        _validation.check_version("ball", ball)
        x, y = _validation.check_data(features, labels, regularisation, row_norm)
        _validation.check_rows(np.abs(y) <= 1, "labels", "in [-1, 1]")
        rows, dimension = x.shape
        gram, moments = x.T @ x, x.T @ y
        hessian = gram / rows + regularisation * np.eye(dimension)
        optimum = np.linalg.solve(hessian, moments / rows)
        errors = y - x @ optimum
        risk = 0.5 * np.mean(errors**2) + 0.5 * regularisation * optimum @ optimum
        gradient = regularisation * optimum - x.T @ errors / rows
        minimum = Minimum(optimum, float(risk), float(np.linalg.norm(gradient)), 0)
        return cls(rows, dimension, float(regularisation), minimum, (gram, moments), row_norm, ball)

    def released(
        self, noise: Noise, constants: Constants = "paper", relation: str = "replace"
    ) -> Released[RidgeUtility]:
        """Return X'X and X'y as one private value, with its sensitivity and the utility.

        Args:
            noise: "brownian" (or "gaussian"), "laplace" or "spherical laplace".
            constants: "paper", "tight" or "l1_rows"; see `nrjax.erm.statistics.sensitivity`. The
                last two are attained, and get an allowance for the rounding of sums over rows.
            relation: relation of the neighbours: "replace", or for people with several rows such as
                "replace, 3 rows".

        Raises:
            ValueError: an argument is unknown, the constants are for rows of another norm, or the
                error of the computed optimum is too large for the utility.
        """
        layout = statistics.layout(noise, constants)
        ok = constants != "l1_rows" or self.row_norm == "l1"
        hint = "For 'l1_rows', fit with row_norm='l1', which checks the rows."
        check(ok, "constants", constants, "'paper' or 'tight'", hint)
        group = self._group(relation)
        single = statistics.sensitivity(noise, constants, self.dimension)
        if constants != "paper":  # those are never attained, so that they cover the rounding
            single = Sensitivity(single * (1 + _SUM * self.rows), single.norm, single.relation)
        sensitivity = single.of_rows(group)
        utility = RidgeUtility(*self._quadratic(group), float(self.rows), layout, relation=relation)
        value = statistics.pack(*self.statistics, layout)
        return released_as(noise, value, sensitivity, utility)

    def released_optimum(
        self, noise: Noise, constants: OutputConstants = "paper", relation: str = "replace"
    ) -> Released[RidgeOutputUtility]:
        """Return the optimum as a private value, with its sensitivity and the utility.

        Args:
            noise: "brownian" (or "gaussian"), "laplace" or "spherical laplace".
            constants: "paper" or "tight"; see `nrjax.erm.sensitivity.ridge_output_l2`.
            relation: as for `released`.

        Raises:
            ValueError: an argument is unknown, or the gradient norm at the computed optimum is
                larger than the sensitivity allows for.
        """
        norm, group = norm_of(noise), self._group(relation)
        self._check_gradient(_TOLERANCE)
        public = self.rows, self.regularisation, constants, _TOLERANCE
        number = sensitivity.ridge_output_l2(*public, ball=self.ball)
        if norm == "l1":
            number *= math.sqrt(self.dimension)
        utility = RidgeOutputUtility(*self._quadratic(group), relation=relation)
        single = Sensitivity(float(number), norm, "replace")
        return released_as(noise, self.optimum, single.of_rows(group), utility)

    def _group(self, relation: str) -> int:
        """Return the number of rows that are replaced under a relation."""
        base, rows = split_relation(relation)
        hint = "For 'add-remove' use nrjax.erm.OutputProblem with its least_rows."
        check(
            base == "replace", "relation", relation, "'replace', or such as 'replace, 3 rows'", hint
        )
        return rows

    def _check_gradient(self, most: float) -> None:
        norm, name = self.minimum.gradient_norm, "the gradient norm at the optimum"
        check(norm <= most, name, norm, f"at most {most:.3g}", "Raise the regularisation.")

    def _quadratic(self, group: int) -> tuple[Any, Any, Any, Any, Any, Any]:
        """Return the fields that both utilities share, with the sensitivity to `group` rows.

        They are the risk as a quadratic around its optimum.
        """
        # If the linear solve leaves a gradient g, it errs by at most `g (2M + g/lambda)`, as it may
        # for a neighbouring data set.
        sensitivity = self.utility_sensitivity
        allowed = _SHARE * sensitivity / (4 * self.radius)
        self._check_gradient(min(allowed, self.regularisation * self.radius))
        hessian = self.statistics[0] / self.rows + self.regularisation * np.eye(self.dimension)
        around = hessian, self.optimum, self.optimum_loss
        return *around, self.regularisation, self.radius, self._risk_sensitivity(group)

    @property
    def radius(self) -> float:
        """The l2 radius M of the ball that holds the optimum of every admissible data set.

        See `nrjax.erm.sensitivity.ridge_radius`.
        """
        return float(ridge_radius(self.regularisation, self.ball))

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """The l2-sensitivity of `released("gaussian").value`, with constants "paper"."""
        return statistics.sensitivity("gaussian", "paper", self.dimension)

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """The l1-sensitivity of `released("laplace").value`, with constants "paper"."""
        return statistics.sensitivity("laplace", "paper", self.dimension)

    @property
    def utility_sensitivity(self) -> float:
        """The utility's sensitivity, `(radius + 1)^2/(2 rows)` and an allowance for rounding."""
        return self._risk_sensitivity(1)

    def _risk_sensitivity(self, group: int) -> float:
        """Return the utility's sensitivity to `group` rows."""
        changed = group * sensitivity.squared_loss(self.rows, self.radius)
        return sensitivity.evaluated(changed, 0.5)

    @property
    def excess_risk_sensitivity(self) -> float:
        """The sensitivity of the excess risk, twice `utility_sensitivity`."""
        return sensitivity.excess_risk(self.utility_sensitivity)
