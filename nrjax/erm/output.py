"""Output perturbation: noise on the minimiser of a regularised empirical risk."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.sensitivities import Noise, Sensitivity, norm_of, split_relation
from nrjax._base.validation import check, check_integer
from nrjax.erm import _validation, sensitivity
from nrjax.erm._stated_bounds import StatedBounds, check_signature, spot_check
from nrjax.erm.minimise import minimise
from nrjax.erm.output_utility import Loss, OutputUtility
from nrjax.erm.released import Problem, Released, released_as


def merge(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of a float64 table and the fraction of each among all rows.

    `table` is sorted in place: do not use it afterwards. The function needs memory for a copy of
    the distinct rows only, and for none if all rows are distinct; `np.unique(axis=0)` would need
    two copies of the table.
    """
    table = np.ascontiguousarray(table)
    table += 0.0  # turns -0.0, whose bits differ, into 0.0
    raw = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    raw.sort()
    first = np.append(True, raw[1:] != raw[:-1])
    counts = np.diff(np.append(np.flatnonzero(first), len(table)))
    return table if first.all() else table[first], counts / len(table)


def risk_sensitivity(losses: Any, rows: int, group: int = 1) -> float | None:
    """Return the sensitivity of a computed risk to `group` rows, or None if it is unknown.

    `losses` are the largest difference between two losses at one theta, and a bound on risks.
    """
    if losses is None:
        return None
    spread, size = losses
    return sensitivity.evaluated(group * sensitivity.bounded_loss(rows, spread), size)


class OutputPerturbation(Problem):
    """A problem whose optimum is released. `OutputProblem` documents the attributes."""

    lipschitz: float
    tolerance: float
    utility: OutputUtility
    losses: tuple[float, float] | None
    _logistic: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int]:
        """The shape of the private value and of the noise, (dimension,)."""
        return (self.dimension,)

    @property
    def value(self) -> np.ndarray:
        """The private value: the optimum, shape (dimension,)."""
        return self.optimum

    def released(
        self, noise: Noise, relation: str = "replace", least_rows: int | None = None
    ) -> Released[OutputUtility]:
        """Return the optimum with its sensitivity and utility, for one kind of noise.

        Args:
            noise: "brownian" (or "gaussian"), "laplace" or "spherical laplace".
            relation: relation of the neighbours: "replace", "add-remove", or for people with
                several rows such as "replace, 3 rows".
            least_rows: for "add-remove", a public lower bound of the number of rows, which is
                private. It must hold for every data set that could be there.

        Raises:
            ValueError: an argument is unknown, out of range or missing.
        """
        norm, (base, group) = norm_of(noise), split_relation(relation)
        number, rows = float(self.l2_sensitivity), self.rows
        if base == "add-remove":
            hint = "The number of rows is private under add-remove."
            known = least_rows is not None
            check(known, "least_rows", None, "given, a public lower bound of the rows", hint)
            least_rows = check_integer("least_rows", least_rows, 1, self.rows)
            bounds: Any = least_rows, self.regularisation, self.lipschitz, self.tolerance
            number = sensitivity.removed_output_l2(*bounds, logistic=self._logistic)
            rows = least_rows + 1
        else:
            check(least_rows is None, "least_rows", least_rows, "None for replacement")
        number *= math.sqrt(self.dimension) if norm == "l1" else 1.0
        utility, single = self.utility, Sensitivity(number, norm, base)
        if relation != "replace":
            is_own = utility.sensitivity == risk_sensitivity(self.losses, self.rows)
            changed = risk_sensitivity(self.losses, rows, group) if is_own else None
            utility = dataclasses.replace(utility, sensitivity=changed, relation=relation)
        return released_as(noise, self.value, single.of_rows(group), utility)

    @property
    def l2_sensitivity(self) -> Sensitivity:
        """The l2-sensitivity of the value, `2 (L/n + tolerance)/lambda`."""
        public = self.rows, self.regularisation, self.lipschitz, self.tolerance
        return Sensitivity(sensitivity.output_l2(*public), "l2", "replace")

    @property
    def l1_sensitivity(self) -> Sensitivity:
        """The l1-sensitivity of the value, `sqrt(d)` times its l2-sensitivity."""
        public = self.rows, self.regularisation, self.dimension, self.lipschitz, self.tolerance
        return Sensitivity(sensitivity.output_l1(*public), "l1", "replace")

    @property
    def utility_sensitivity(self) -> Any:
        """The sensitivity of the utility at one hypothesis, or None if it is unknown."""
        return self.utility.sensitivity

    @property
    def excess_risk_sensitivity(self) -> Any:
        """The sensitivity of the excess risk (`nrjax.erm.sensitivity.excess_risk`)."""
        return self.utility.excess_risk().sensitivity


class OutputProblem(OutputPerturbation):
    """A problem with a custom loss and output perturbation. Make it with `fit`.

    Use it for a convex loss with a Lipschitz constant L. The risk is
    `R(theta) = (1/n) sum_i loss(theta, x_i, y_i) + (lambda/2) |theta|^2`. The optimum is released
    with noise scaled to its l2-sensitivity `2 L/(n lambda)` (Chaudhuri, Monteleoni & Sarwate 2011).
    `LogisticProblem` and `RidgeProblem` need no stated bounds, and their risks have smaller
    sensitivities.

    A robust regression on labels in [-1, 1]:

        >>> def huber(theta, row, label):
        ...     error = jnp.abs(row @ theta - label)
        ...     return jnp.where(error < 0.5, error**2, error - 0.25)
        >>> features = np.random.default_rng(0).uniform(-0.5, 0.5, size=(1000, 4))
        >>> labels = np.clip(features @ np.ones(4), -1, 1)
        >>> problem = nrjax.erm.OutputProblem.fit(
        ...     huber, features, labels, regularisation=0.05, lipschitz=1.0,
        ...     loss_at_zero=(0.0, 0.75), lowest_loss=0.0, label_range=(-1.0, 1.0))
        >>> problem.laplace().process
        Laplace(shape=(4,))

    Attributes:
        rows: number of rows n.
        dimension: length d of theta.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm.
        lipschitz: the stated Lipschitz constant L.
        tolerance: largest gradient norm that was accepted at the optimum.
        utility: minus the risk of a release that is projected onto a ball.
        losses: largest difference between two losses at one theta of the ball, and a bound on
            risks; or None.
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
        `max_norm`, and every label in `label_range`. Bounds that you do not state are not computed
        from the data, since that would disclose the data. A spot check on the rows of the data, at
        a few points of the ball, can refute a bound but not prove it. The error messages contain
        numbers that depend on the data: do not publish them. If neither `loss_spread` nor
        `loss_at_zero` is given, only public rules can use the utility. `docs/proofs/regression.md`,
        "Output perturbation", derives the radius of the ball and the sensitivities from the bounds.

        Args:
            loss: `loss(theta, row, label)` of ONE example, a scalar that JAX can differentiate, in
                the dtype of its arguments. It must be convex, and smooth enough for the solver to
                converge. Matrix products in `loss` have the highest precision by default.
            features: shape (rows, features), each row of l2 norm at most `max_norm`.
            labels: shape (rows,).
            regularisation: lambda > 0.
            lipschitz: L > 0, a bound on the l2 norm of the gradient of `loss` in theta. It must
                hold in the ball whose radius is the smaller of `radius` and
                `sqrt(2 (high - lowest_loss)/lambda)`, or everywhere if neither is stated.
            max_norm: largest l2 norm of an admissible row.
            label_range: smallest and largest admissible label. Without it the spot check uses
                the labels of the data only.
            radius: l2 radius of a ball that contains the optimum of every admissible data set.
            loss_at_zero: smallest and largest loss (low, high) of an admissible row at theta = 0.
            lowest_loss: lower bound on all losses in the ball; 0 suits most losses.
            loss_spread: largest difference between the losses of two admissible rows at one theta
                of the ball; for the logistic loss it is the radius.
            dimension: length of theta. None means the number of features.
            tolerance: largest gradient norm that is accepted at the optimum, in units of
                `lipschitz`.

        Raises:
            ValueError: an argument is out of range, a bound does not hold, or the solver did not
                converge.
        """
        bounds = label_range, radius, loss_at_zero, lowest_loss, loss_spread
        stated = StatedBounds(regularisation, lipschitz, max_norm, *bounds)
        x, y = _validation.check_data(features, labels, regularisation, max_norm=max_norm)
        stated.check_labels(y)
        width = x.shape[1] if dimension is None else dimension
        width = check_integer("dimension", width, 1)
        check_signature(loss, x[0], y[0], width)
        spot_check(loss, x, y, stated, np.full(width, stated.ball / np.sqrt(width)))
        table, weights = merge(np.column_stack([x, y]))
        data = table[:, :-1], table[:, -1], weights, float(regularisation)
        tolerance = float(tolerance) * float(lipschitz)
        minimum = minimise(loss, data, width, tolerance)
        if minimum.argument.any():
            # Checked before the radius, which is wrong if the Lipschitz constant is wrong.
            spot_check(loss, x, y, stated, minimum.argument)
        stated.check_optimum(minimum.argument)
        changed = risk_sensitivity(stated.losses, len(y))
        utility = OutputUtility(
            *data, stated.ball, changed, loss, minimum.value, tolerance=tolerance
        )
        public = len(y), width, float(regularisation)
        numbers = float(lipschitz), float(tolerance)
        return cls(*public, minimum, *numbers, utility, stated.losses)
