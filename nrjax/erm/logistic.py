"""Private logistic regression by output perturbation.

`R(theta) = (1/n) sum log(1 + exp(-y <x, theta>)) + (lambda/2) |theta|^2`, labels +-1, rows of l2
norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax.erm import _validation, sensitivity
from nrjax.erm.expansion import Expansion
from nrjax.erm.minimise import minimise
from nrjax.erm.output import OutputPerturbation, merge
from nrjax.erm.output_utility import OutputUtility, summation_depth
from nrjax.erm.radius import Ball, logistic_radius


def _signed_loss(theta: Array, signed_row: Array, _label: Array) -> Array:
    """`log(1 + exp(-m))` at the margin m, without overflow; the label is in the row."""
    margin = jnp.matmul(signed_row, theta)
    return jnp.maximum(-margin, 0) + jnp.log1p(jnp.exp(-jnp.abs(margin)))


class LogisticUtility(OutputUtility):
    """`OutputUtility` of the logistic loss, with bounds that do not look at the rows.

    Attributes:
        optimum: theta*, shape (dimension,).
        expansion: of the risk around it; `optimum_loss` must be given.
    """

    optimum: Any = dataclasses.field(kw_only=True)
    expansion: Any = dataclasses.field(kw_only=True)

    def hypothesis(self, release: Array) -> Array:
        """The release, scaled down to the ball if its norm is larger; shape (dimension,)."""
        _validation.check_length(release, self.optimum.shape[-1])
        return super().hypothesis(release)

    def bounds(self, hypothesis: Array) -> tuple[Array, Array]:
        """Lower and upper bound of `evaluate`, from the risk's expansion around its optimum.

        Right for what `evaluate` computes in this dtype, in whatever batch and order of summation,
        and for a hypothesis that another program rounds otherwise; NaN where the hypothesis is.
        """
        return self._bounds(hypothesis, evaluated=True)

    def enclosure(self, hypothesis: Array) -> tuple[Array, Array]:
        """Lower and upper bound of the utility itself; near the optimum ten times closer.

        In float32 the worst that `evaluate` may round is most of how far `bounds` are apart there.
        """
        return self._bounds(hypothesis, evaluated=False)

    def _bounds(self, hypothesis: Array, evaluated: bool) -> tuple[Array, Array]:
        away = hypothesis - self.optimum
        lowest, highest = self.expansion.excess(away, self.regularisation)
        lowest, highest = self.optimum_loss + lowest, self.optimum_loss + highest
        dimension, longest = hypothesis.size, self.expansion.longest
        # The optimum's risk was taken in float64, which is as wrong where that is the dtype here.
        unit = 0.5 * float(jnp.finfo(hypothesis.dtype).eps) + 2.0**-53
        size = jnp.linalg.norm(hypothesis)
        # Margins, as dot products of rounded rows; then losses, their sum, and the ridge.
        ridge = 0.5 * self.regularisation * size * size
        risk = jnp.minimum(highest, 1 + longest * size + ridge)
        rows, features = self.rows.shape
        depth = summation_depth(rows, features, dimension)
        error = (dimension + 10) * longest * size + (depth + dimension + 64) * risk
        error = error if evaluated else 4 * highest
        # Hypothesis and optimum are rounded too, which the gradient turns into risk.
        moved = 2 * (dimension + 8) * size + jnp.linalg.norm(self.optimum)
        steepest = self.regularisation + 0.25 * longest * longest
        near = steepest * (jnp.linalg.norm(away) + unit * moved)
        moved *= jnp.minimum(near, longest + self.regularisation * (size + unit * moved))
        error = unit * (error + moved + 4 * jnp.abs(self.baseline))
        return self.baseline - (highest + error), self.baseline - (lowest - error)


@dataclasses.dataclass(frozen=True, repr=False)
class LogisticProblem(OutputPerturbation):
    """Logistic regression on a data set: `OutputProblem` with its loss and constants known.

    The loss has Lipschitz constant 1, the ball `nrjax.erm.radius.logistic_radius`, and the utility
    sensitivity `M/n`, and a little for rounding. A label only turns its row round, so the data are
    label times row.
    """

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        regularisation: float,
        *,
        tolerance: float = 1e-12,
        ball: Ball = "paper",
    ) -> Self:
        """Find the optimum and prepare the data.

        Args:
            features: shape (rows, dimension), each row of l2 norm at most 1.
            labels: shape (rows,), each +1 or -1.
            regularisation: lambda > 0.
            tolerance: gradient norm that the optimum must reach.
            ball: radius M of the ball that hypotheses are projected onto: "paper", or "tight" for
                0.448 of it, which makes both sensitivities of the utility smaller by as much.

        Raises:
            ValueError: an argument is out of range, or the optimum was not found.
        """
        x, y = _validation.checked(features, labels, regularisation)
        _validation.check_labels(y, np.abs(y) == 1, "+1 or -1")
        rows, dimension = x.shape
        x *= y[:, None]
        signed, weights = merge(x)
        del x
        radius = float(logistic_radius(regularisation, ball))
        data = signed, np.ones(len(signed)), weights, float(regularisation)
        minimum = minimise(_signed_loss, data, dimension, tolerance)
        moved = sensitivity.evaluated(sensitivity.logistic_loss(rows, radius), math.log(2))
        expansion = Expansion.fit(signed, weights, minimum.argument, minimum.gradient_norm)
        known = *data, radius, moved, _signed_loss, minimum.value
        own = {"optimum": minimum.argument, "expansion": expansion}
        utility = LogisticUtility(*known, tolerance=tolerance, **own)
        public = rows, dimension, float(regularisation)
        return cls(*public, minimum, 1.0, float(tolerance), utility)
