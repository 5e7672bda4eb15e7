"""Private ridge regression by covariance perturbation: noise on X'X and X'y.

`R(theta) = (1/(2n)) sum (y - <x, theta>)^2 + (lambda/2) |theta|^2`, labels in [-1, 1], rows of l2
norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax.erm import _door, sensitivity, statistics
from nrjax.erm._lanczos import solution_norm
from nrjax.erm.minimise import Minimum
from nrjax.erm.statistics import Constants, Layout, Noise
from nrjax.erm.trust_region import minimise_in_ball
from nrjax.pytrees import register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True)
class RidgeUtility:
    """Minus the regularised risk of the minimiser that noisy statistics give.

    The risk is a quadratic around its optimum, `R(theta*) + (1/2) (theta - theta*)' H (theta -
    theta*)`: nothing cancels, and the rows are not needed. In float32 it was off by 2e-7 of
    itself at most, at 10,000 rows 1e-4 of its sensitivity.

    Attributes:
        hessian: `H = X'X/n + lambda I`, shape (d, d).
        optimum: theta*, shape (d,).
        optimum_loss: R(theta*), scalar.
        rows: number of rows n, scalar; public.
        regularisation: lambda, scalar.
        radius: l2 radius `1/sqrt(lambda)` of the ball that holds the optimum, scalar.
        sensitivity: how far the replacement of one row moves `evaluate`, scalar, in units of the
            loss.
        layout: of the releases, static; see `nrjax.erm.statistics`.
    """

    hessian: Any
    optimum: Any
    optimum_loss: Any
    rows: Any
    regularisation: Any
    radius: Any
    sensitivity: Any
    layout: Layout = dataclasses.field(metadata={"static": True})

    def hypothesis(self, release: Array) -> Array:
        """The minimiser of the noisy risk over the ball, shape (d,); the risk may be indefinite."""
        return minimise_in_ball(*self._quadratic(release), self.radius).argument

    def _quadratic(self, release: Array) -> tuple[Array, Array]:
        """A and c of the noisy risk `(1/2) theta'A theta - c'theta`, a constant aside."""
        d = self.optimum.shape[-1]
        matrix, vector = statistics.unpack(release, d, self.layout)
        # Products: compiled for another number of devices, divisions by one number may round apart.
        share = 1 / self.rows
        matrix = matrix * share + self.regularisation * jnp.eye(d, dtype=release.dtype)
        return matrix, vector * share

    def ceiling(self, release: Array) -> Array:
        """Upper bound of the utility of what a release gives, without solving for that, scalar.

        The minimiser of the noisy risk over the ball is either that over all space or on the
        sphere, which bounds its norm from below by a cheap look; and the risk grows around its
        optimum by `(lambda/2) |theta - theta*|^2` at the least.
        """
        matrix, vector = self._quadratic(release)
        norm = solution_norm(matrix, vector)
        norm = jnp.where(jnp.isnan(norm), 0, jnp.minimum(norm, self.radius))
        away = jnp.maximum(norm - jnp.linalg.norm(self.optimum), 0)
        excess = 0.5 * self.regularisation * away * away
        # Higher by ten times what `evaluate` may be off; NaN where the release is.
        return -(1 - 1e-5) * (self.optimum_loss + excess) + 0 * jnp.sum(release)

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the regularised risk, scalar."""
        away = hypothesis - self.optimum
        # Accelerators would round the factors to 10 or fewer bits.
        slope = jnp.matmul(self.hessian, away, precision=jax.lax.Precision.HIGHEST)
        return -(self.optimum_loss + 0.5 * jnp.sum(away * slope))

    def bounds(self, hypothesis: Array) -> tuple[Array, Array]:
        """The utility itself, twice."""
        utility = self.evaluate(hypothesis)
        return utility, utility


class Released(NamedTuple):
    """What a mechanism needs to know of a ridge problem."""

    value: np.ndarray
    """The private value f(x), a vector of float64; its shape is the process's."""
    sensitivity: float
    """Of the value, in the norm that the noise asks for: l2 for Gaussian, l1 for Laplace."""
    utility: RidgeUtility


@dataclasses.dataclass(frozen=True)
class RidgeProblem:
    """A data set, its non-private optimum, and what covariance perturbation needs to know of it.

    Neighbouring data sets differ in one row (replacement); their number n is public.

    Example:
        Brownian noise on the statistics::

            problem = RidgeProblem.fit(features, labels, 0.05)
            value, sensitivity, utility = problem.released("gaussian")

    Attributes:
        rows: number of rows n.
        dimension: number of features d.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm; from one linear solve.
        statistics: X'X, shape (d, d), and X'y, shape (d,).
    """

    rows: int
    dimension: int
    regularisation: float
    minimum: Minimum
    statistics: tuple[np.ndarray, np.ndarray]

    @classmethod
    def fit(cls, features: ArrayLike, labels: ArrayLike, regularisation: float) -> "RidgeProblem":
        """Find the optimum and prepare the statistics.

        Args:
            features: shape (rows, dimension), each row of l2 norm at most 1.
            labels: shape (rows,), each in [-1, 1].
            regularisation: lambda > 0.

        Raises:
            ValueError: an argument is out of range.
        """
        x, y = _door.checked(features, labels, regularisation)
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
        return cls(rows, dimension, float(regularisation), minimum, (gram, moments))

    def released(self, noise: Noise, constants: Constants = "paper") -> Released:
        """The private value, its sensitivity and the utility, for one kind of noise.

        Args:
            noise: "gaussian" or "laplace".
            constants: "paper" for the sensitivities of Whitehouse 2022, "tight" for smaller ones
                that hold; see `nrjax.erm.statistics`.

        Raises:
            ValueError: there is no such noise, or no such constants.
        """
        layout = statistics.layout(noise, constants)
        moved = self.l2_sensitivity if noise == "gaussian" else self.l1_sensitivity
        return Released(
            statistics.pack(*self.statistics, layout), moved(constants), self._utility(layout)
        )

    def _utility(self, layout: Layout) -> RidgeUtility:
        gram, _ = self.statistics
        return RidgeUtility(
            hessian=gram / self.rows + self.regularisation * np.eye(self.dimension),
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
        """l2 radius `1/sqrt(lambda)` of a ball that holds the optimum, whatever the data."""
        return 1 / math.sqrt(self.regularisation)

    @property
    def optimum(self) -> np.ndarray:
        """The non-private minimiser, shape (dimension,)."""
        return self.minimum.argument

    @property
    def optimum_loss(self) -> float:
        """Its regularised risk."""
        return self.minimum.value

    def l2_sensitivity(self, constants: Constants = "paper") -> float:
        """l2-sensitivity of what is released under Gaussian noise."""
        return statistics.l2_sensitivity(constants)

    def l1_sensitivity(self, constants: Constants = "paper") -> float:
        """l1-sensitivity of what is released under Laplace noise."""
        return statistics.l1_sensitivity(self.dimension, constants)

    @property
    def utility_sensitivity(self) -> float:
        """Sensitivity `(M + 1)^2/(2n)` of the utility at any one hypothesis in the ball."""
        return sensitivity.squared_loss(self.rows, self.radius)

    @property
    def excess_risk_sensitivity(self) -> float:
        """Sensitivity of the excess risk `R(hypothesis) - R(optimum)`: twice as much."""
        return sensitivity.excess_risk(self.utility_sensitivity)
