"""What output perturbation makes of a release for the logistic loss, which knows its bounds."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from nrjax.erm._ball import check_length
from nrjax.erm.output_utility import OutputUtility, summation_depth


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
        check_length(release, self.optimum.shape[-1])
        return super().hypothesis(release)

    def bounds(self, hypothesis: Array) -> tuple[Array, Array]:
        """Lower and upper bound of `evaluate`, from the risk's expansion around its optimum.

        Right for what `evaluate` computes in this dtype, in whatever batch and order of summation,
        and for a hypothesis that another program rounds otherwise; NaN where the hypothesis is.
        """
        away = hypothesis - self.optimum
        lowest, highest = self.expansion.excess(away, self.regularisation)
        lowest, highest = self.optimum_loss + lowest, self.optimum_loss + highest
        error = self._error(hypothesis, away, highest)
        return self.baseline - (highest + error), self.baseline - (lowest - error)

    def _error(self, hypothesis: Array, away: Array, highest: Array) -> Array:
        """How far `evaluate` can be from the risk at a hypothesis, and the bounds from theirs."""
        dimension, longest = hypothesis.size, self.expansion.longest
        # The optimum's risk was taken in float64, which is as wrong where that is the dtype here.
        unit = 0.5 * float(jnp.finfo(hypothesis.dtype).eps) + 2.0**-53
        size = jnp.linalg.norm(hypothesis)
        ridge = 0.5 * self.regularisation * size * size
        risk = jnp.minimum(highest, 1 + longest * size + ridge)
        rows, features = self.rows.shape
        depth = summation_depth(rows, features, dimension)
        # Margins, as dot products of rounded rows; then losses, their sum, and the ridge.
        evaluated = (dimension + 10) * longest * size + (depth + dimension + 64) * risk
        # Hypothesis and optimum are rounded too, which the gradient turns into risk.
        moved = 2 * (dimension + 8) * size + jnp.linalg.norm(self.optimum)
        steepest = self.regularisation + 0.25 * longest * longest
        near = steepest * (jnp.linalg.norm(away) + unit * moved)
        moved *= jnp.minimum(near, longest + self.regularisation * (size + unit * moved))
        return unit * (evaluated + moved + 4 * jnp.abs(self.baseline))
