"""Output perturbation: noise on the minimiser of a regularised empirical risk.

`R(theta) = (1/n) sum_i loss(theta, x_i, y_i) + (lambda/2) |theta|^2`, for any convex and
differentiable loss that is Lipschitz in theta (Chaudhuri, Monteleoni & Sarwate 2011).
"""

import dataclasses
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike

from nrjax._validation import check_integer
from nrjax.erm import _validation, sensitivity
from nrjax.erm._stated_bounds import StatedBounds, check_signature, spot_check
from nrjax.erm.minimise import minimise
from nrjax.erm.output_utility import Loss, OutputUtility
from nrjax.erm.released import Problem, Released
from nrjax.sensitivities import Noise, Sensitivity, norm_of


def merge(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of a float64 table, and the share of each among all; for speed alone.

    The table is the caller's to give away: it is sorted where it lies, and none of its size is made
    beside it unless some rows are alike.
    """
    table = np.ascontiguousarray(table)
    table += 0.0  # turns -0.0, which differs in bits, into 0.0
    raw = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    raw.sort()
    first = np.append(True, raw[1:] != raw[:-1])
    counts = np.diff(np.append(np.flatnonzero(first), len(table)))
    return table if first.all() else table[first], counts / len(table)


@dataclasses.dataclass(frozen=True, repr=False)
class OutputPerturbation(Problem):
    """A problem whose optimum is released.

    Attributes, besides those of all problems:
        lipschitz: Lipschitz constant L of the loss in theta (l2).
        tolerance: gradient norm that the optimum had to reach.
        utility: how a release is turned into a hypothesis and judged.
    """

    lipschitz: float
    tolerance: float
    utility: OutputUtility

    @property
    def shape(self) -> tuple[int]:
        """Shape of the private value, and of the noise: (dimension,)."""
        return (self.dimension,)

    @property
    def value(self) -> np.ndarray:
        """The private value f(x): the optimum, shape (dimension,)."""
        return self.optimum

    def released(self, noise: Noise) -> Released[OutputUtility]:
        """The optimum, its sensitivity and the utility, for "gaussian" or "laplace" noise."""
        moved = self.l2_sensitivity if norm_of(noise) == "l2" else self.l1_sensitivity
        return Released(self.value, moved, self.utility)

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """l2-sensitivity of the value, `2 L/(n lambda)`, and 1e-8 or so of it for the solver."""
        public = self.rows, self.regularisation, self.lipschitz, self.tolerance
        return Sensitivity(sensitivity.output_l2(*public), "l2")

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """l1-sensitivity of the value, `sqrt(d)` times the l2 one."""
        public = self.rows, self.regularisation, self.dimension, self.lipschitz, self.tolerance
        return Sensitivity(sensitivity.output_l1(*public), "l1")

    @property
    def utility_sensitivity(self) -> Any:
        """Sensitivity of the utility at any one hypothesis, a float; None if none was stated."""
        return self.utility.sensitivity

    @property
    def excess_risk_sensitivity(self) -> Any:
        """Sensitivity of the excess risk; see `nrjax.erm.sensitivity.excess_risk`."""
        return self.utility.excess_risk().sensitivity


@dataclasses.dataclass(frozen=True, repr=False)
class OutputProblem(OutputPerturbation):
    """A user's own loss and data, by output perturbation; `OutputProblem.fit` makes it.

    Example:
        A robust regression on labels in [-1, 1]::

            def huber(theta, row, label):
                error = jnp.abs(row @ theta - label)
                return jnp.where(error < 0.5, error**2, error - 0.25)

            problem = nrjax.erm.OutputProblem.fit(
                huber, features, labels, regularisation=0.05, lipschitz=1.0,
                loss_at_zero=(0.0, 0.75), lowest_loss=0.0, label_range=(-1.0, 1.0))
    """

    @classmethod
    def fit(
        cls,
        loss: Loss,
        features: ArrayLike,
        labels: ArrayLike,
        regularisation: float,
        lipschitz: float,
        *,
        max_norm: float = 1.0,
        label_range: tuple[float, float] | None = None,
        radius: float | None = None,
        loss_at_zero: tuple[float, float] | None = None,
        lowest_loss: float | None = None,
        loss_spread: float | None = None,
        dimension: int | None = None,
        tolerance: float = 1e-12,
    ) -> Self:
        """Check the stated bounds, find the optimum and prepare the data.

        The bounds must hold for every row that could be in the data: for every l2 norm up to
        `max_norm`, and every label in `label_range`. Nothing unstated is read off the data, which
        would disclose it. A spot check on the data's rows, at a few points of the ball, can refute
        a bound but not prove it; its messages quote the data. How the ball's radius and the
        sensitivities follow from the bounds: docs/mathematics.md, "Output perturbation". Without
        `loss_spread` or `loss_at_zero` only public rules can use the utility.

        Args:
            loss: `loss(theta, row, label)` of ONE example, a scalar that JAX can differentiate, in
                the dtype of its arguments: convex, and smooth enough for the solver to get there.
                Its products are of the highest precision, where it asks for none of its own.
            features: shape (rows, features), each row of l2 norm at most `max_norm`.
            labels: shape (rows,).
            regularisation: lambda > 0.
            lipschitz: L > 0; no gradient of `loss` in theta has a larger l2 norm, in the ball of
                radius `radius` and `sqrt(2 (high - lowest_loss)/lambda)` if stated, else anywhere.
            max_norm: largest l2 norm of an admissible row.
            label_range: smallest and largest admissible label. Without it the spot check uses
                the given labels only.
            radius: l2 radius of a ball that holds the optimum of every admissible data set.
            loss_at_zero: smallest and largest loss (low, high) of an admissible row at theta = 0.
            lowest_loss: a bound that no loss is below, in that ball; 0 for most losses.
            loss_spread: largest difference between the losses of two admissible rows at one theta
                of the ball; M for the logistic loss.
            dimension: length of theta; as many as there are features if None.
            tolerance: gradient norm that the optimum must reach, in units of `lipschitz`.

        Raises:
            ValueError: an argument is out of range, a bound does not hold, or the optimum was not
                found.
        """
        bounds = label_range, radius, loss_at_zero, lowest_loss, loss_spread
        stated = StatedBounds(regularisation, lipschitz, max_norm, *bounds)
        x, y = _validation.checked(features, labels, regularisation, max_norm=max_norm)
        stated.check_labels(y)
        width = x.shape[1] if dimension is None else dimension
        width = check_integer("dimension", width, 1)
        check_signature(loss, x[0], y[0], width)
        spot_check(loss, x, y, stated, np.full(width, stated.ball / np.sqrt(width)))
        table, weights = merge(np.column_stack([x, y]))
        data = table[:, :-1], table[:, -1], weights, float(regularisation)
        tolerance = tolerance * lipschitz
        minimum = minimise(loss, data, width, tolerance)
        if minimum.argument.any():
            # First: where the Lipschitz constant is wrong at the optimum, so is the radius.
            spot_check(loss, x, y, stated, minimum.argument)
        stated.check_optimum(minimum.argument)
        utility = OutputUtility(
            *data, stated.ball, stated.sensitivity(len(y)), loss, minimum.value, tolerance=tolerance
        )
        public = len(y), width, float(regularisation)
        return cls(*public, minimum, float(lipschitz), float(tolerance), utility)
