"""Private logistic regression by output perturbation.

`R(theta) = (1/n) sum log(1 + exp(-y <x, theta>)) + (lambda/2) |theta|^2`, labels +-1, rows of l2
norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check
from nrjax.erm.minimise import Minimum, minimise
from nrjax.erm.sensitivity import output_l1, output_l2
from nrjax.pytrees import register_dataclass

_NORM_SLACK = 1e-6
"""Rows scaled to unit norm in float32 may exceed it by rounding."""


def _log_loss(margins: Array) -> Array:
    """`log(1 + exp(-m))` without overflow."""
    return jnp.maximum(-margins, 0) + jnp.log1p(jnp.exp(-jnp.abs(margins)))


@register_dataclass
@dataclasses.dataclass(frozen=True)
class LogisticUtility:
    """Minus the regularised logistic loss of a release projected onto a ball.

    Attributes:
        signed_rows: label times row, duplicates merged, shape (distinct rows, dimension).
        weights: share of each among all rows, shape (distinct rows,), summing to 1.
        regularisation: lambda, scalar.
        radius: l2 radius of the ball that holds the optimum, scalar.
    """

    signed_rows: Any
    weights: Any
    regularisation: Any
    radius: Any

    def hypothesis(self, release: Array) -> Array:
        """The release, scaled down to the ball if its norm is larger; shape (dimension,)."""
        norm = jnp.linalg.norm(release)
        # Not larger than the radius, zero included: left as it is.
        return jnp.where(norm > self.radius, release * (self.radius / norm), release)

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the regularised loss, scalar."""
        # Accelerators would round the factors to 10 or fewer bits: an error of 1e-4 in the loss.
        margins = jnp.matmul(self.signed_rows, hypothesis, precision=jax.lax.Precision.HIGHEST)
        losses = _log_loss(margins)
        penalty = 0.5 * self.regularisation * jnp.sum(hypothesis * hypothesis)
        return -(jnp.sum(self.weights * losses) + penalty)

    def bounds(self, hypothesis: Array) -> tuple[Array, Array]:
        """The utility itself, twice."""
        utility = self.evaluate(hypothesis)
        return utility, utility


def _regularised_loss(data: tuple[Array, Array, Array], theta: Array) -> Array:
    signed_rows, weights, regularisation = data
    penalty = 0.5 * regularisation * jnp.sum(theta * theta)
    margins = jnp.matmul(signed_rows, theta, precision=jax.lax.Precision.HIGHEST)
    return jnp.sum(weights * _log_loss(margins)) + penalty


def _merge(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows and the share of each."""
    rows = np.ascontiguousarray(rows + 0.0)  # turns -0.0, which differs in bits, into 0.0
    raw = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, index, counts = np.unique(raw, return_index=True, return_counts=True)
    return rows[index], counts / rows.shape[0]


@dataclasses.dataclass(frozen=True)
class LogisticProblem:
    """A data set, its non-private optimum, and what output perturbation needs to know of it.

    Attributes:
        rows: number of rows n.
        dimension: number of features d.
        regularisation: lambda.
        tolerance: gradient norm that the optimum had to reach.
        minimum: the optimum, with its loss and gradient norm.
        utility: how a release is turned into a hypothesis and judged.
    """

    rows: int
    dimension: int
    regularisation: float
    tolerance: float
    minimum: Minimum
    utility: LogisticUtility

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        regularisation: float,
        *,
        tolerance: float = 1e-12,
    ) -> "LogisticProblem":
        """Find the optimum and prepare the data.

        Args:
            features: shape (rows, dimension), each row of l2 norm at most 1.
            labels: shape (rows,), each +1 or -1.
            regularisation: lambda > 0.
            tolerance: gradient norm that the optimum must reach.

        Raises:
            ValueError: an argument is out of range, or the optimum was not found.
        """
        x = np.asarray(features, np.float64)
        y = np.asarray(labels, np.float64)
        if x.ndim != 2 or x.size == 0:
            raise ValueError(f"features has shape {x.shape}: must be (rows, dimension), not empty")
        if y.shape != x.shape[:1]:
            raise ValueError(f"labels has shape {y.shape}: must be {x.shape[:1]}, one for each row")
        if not np.all(np.isfinite(x)):
            row = int(np.argwhere(~np.isfinite(x))[0, 0])
            raise ValueError(f"features[{row}] = {x[row]!r}: must be finite")
        wrong = y[np.abs(y) != 1]
        if wrong.size:
            raise ValueError(f"labels holds {float(wrong[0])!r}: must be +1 or -1")
        number = np.ndim(regularisation) == 0 and np.isfinite(regularisation)
        check(number and regularisation > 0, "regularisation", regularisation, "above 0")
        norms = np.linalg.norm(x, axis=1)
        if norms.max() > 1 + _NORM_SLACK:
            row = int(norms.argmax())
            raise ValueError(
                f"features[{row}] has l2 norm {norms[row]:.6g}: must be at most 1, "
                "for the sensitivity to hold; divide each row by its norm"
            )
        x = x / np.maximum(norms, 1)[:, None]  # what rounding left above 1
        signed, weights = _merge(x * y[:, None])
        data = (signed, weights, np.float64(regularisation))
        minimum = minimise(_regularised_loss, data, x.shape[1], tolerance=tolerance)
        utility = LogisticUtility(
            signed, weights, float(regularisation), math.sqrt(2 * math.log(2) / regularisation)
        )
        rows, dimension = x.shape
        return cls(rows, dimension, float(regularisation), tolerance, minimum, utility)

    @property
    def optimum(self) -> np.ndarray:
        """The non-private minimiser, shape (dimension,): the private value f(x)."""
        return self.minimum.argument

    @property
    def optimum_loss(self) -> float:
        """Its regularised loss."""
        return self.minimum.value

    @property
    def l2_sensitivity(self) -> float:
        """l2-sensitivity of the optimum, `2/(n lambda)`, and 1e-8 or so for the solver."""
        return output_l2(self.rows, self.regularisation, tolerance=self.tolerance)

    @property
    def l1_sensitivity(self) -> float:
        """l1-sensitivity of the optimum, `2 sqrt(d)/(n lambda)`."""
        return output_l1(self.rows, self.regularisation, self.dimension, tolerance=self.tolerance)
