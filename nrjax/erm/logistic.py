"""Private logistic regression by output perturbation.

`R(theta) = (1/n) sum log(1 + exp(-y <x, theta>)) + (lambda/2) |theta|^2`, labels +-1, rows of l2
norm at most 1, no intercept (it would not be regularised).
"""

import dataclasses
import math
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax.erm import _door, sensitivity
from nrjax.erm.expansion import Expansion
from nrjax.erm.logistic_utility import LogisticUtility
from nrjax.erm.minimise import minimise
from nrjax.erm.output import OutputPerturbation, merge
from nrjax.erm.radius import Ball, logistic_radius


def _signed_loss(theta: Array, signed_row: Array, _label: Array) -> Array:
    """`log(1 + exp(-m))` at the margin m, without overflow; the label is in the row."""
    margin = jnp.matmul(signed_row, theta)
    return jnp.maximum(-margin, 0) + jnp.log1p(jnp.exp(-jnp.abs(margin)))


@dataclasses.dataclass(frozen=True, repr=False)
class LogisticProblem(OutputPerturbation):
    """Logistic regression on a data set: `OutputProblem` with its loss and constants known.

    The loss has Lipschitz constant 1; no optimum is outside the ball of radius M
    (`nrjax.erm.radius.logistic_radius`); and the utility has sensitivity `M/n`, and a little for
    rounding. A label only turns its row round, so the data are label times row.
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
        x, y = _door.checked(features, labels, regularisation)
        _door.check_labels(y, np.abs(y) == 1, "+1 or -1")
        rows, dimension = x.shape
        signed, weights = merge(x * y[:, None])
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
