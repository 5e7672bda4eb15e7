"""Private logistic regression by output perturbation.

`R(theta) = (1/n) sum log(1 + exp(-y <x, theta>)) + (lambda/2) |theta|^2`, labels +-1, rows of l2
norm at most 1. An intercept is a constant column, which is regularised like the others.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax.erm import _validation
from nrjax.erm.expansion import Expansion
from nrjax.erm.minimise import minimise
from nrjax.erm.output import OutputPerturbation, merge, risk_sensitivity
from nrjax.erm.output_utility import OutputUtility, summation_depth
from nrjax.erm.sensitivity import Ball, logistic_radius


def _signed_loss(theta: Array, signed_row: Array, _label: Array) -> Array:
    """Return `log(1 + exp(-m))` at the margin m of a row times its label, without overflow.

    The logarithm is the series of `2 artanh(s)` at `s = e/(2 + e) <= 1/3`, with `e = exp(-|m|)`,
    which takes a third of the time of `log1p`.
    """
    margin = jnp.matmul(signed_row, theta)
    small = jnp.exp(-jnp.abs(margin))
    ratio = small / (2 + small)
    square, series = ratio * ratio, jnp.zeros_like(ratio)
    # The terms that are left out are below a unit roundoff of the derivative, too.
    terms = math.ceil(math.log(4 / float(jnp.finfo(margin.dtype).eps), 9))
    for power in reversed(range(terms)):
        series = series * square + 2 / (2 * power + 1)
    # `jnp.maximum` has a derivative of its own at 0, where that of `jnp.abs` is 1.
    return jnp.where(margin < 0, -margin, 0) + ratio * series


class LogisticUtility(OutputUtility):
    """An `OutputUtility` of the logistic loss, with bounds that do not read the rows.

    It has the attributes of `OutputUtility`, with `optimum_loss` required, and:

    Attributes:
        optimum: theta*, shape (dimension,).
        expansion: derivatives of the risk at theta*.
    """

    optimum: Any = dataclasses.field(kw_only=True)
    expansion: Any = dataclasses.field(kw_only=True)

    def hypothesis(self, release: Array) -> Array:
        """Return the release, shape (dimension,), scaled down to the ball if it is outside."""
        _validation.check_length(release, self.optimum.shape[-1])
        return super().hypothesis(release)

    def bounds(self, hypothesis: Array, *, rounding: bool = True) -> tuple[Array, Array]:
        """Return a lower and an upper bound on `evaluate`, from the risk's expansion.

        The bounds hold for batches of any size and for any order of summation, also if `evaluate`
        runs in another compiled program, which may round the hypothesis differently. They are NaN
        if the hypothesis is NaN. With `rounding=False` the bounds omit most of the rounding error
        of `evaluate`, and are ten times closer to each other near the optimum in float32.
        """
        away, expansion = hypothesis - self.optimum, self.expansion
        lowest, highest = expansion.excess(away, self.regularisation)
        lowest, highest = self.optimum_loss + lowest, self.optimum_loss + highest
        dimension, longest = hypothesis.size, expansion.longest
        # The last term is the rounding of the optimum's risk, which was computed in float64.
        unit = 0.5 * float(jnp.finfo(hypothesis.dtype).eps) + 2.0**-53
        size, distance = jnp.linalg.norm(hypothesis), jnp.linalg.norm(away)
        # Rounding of the margins (dot products of rounded rows), the losses, their sum, the ridge.
        margin = jnp.minimum(longest * size, jnp.sum(expansion.typical * jnp.abs(hypothesis)))
        ridge = 0.5 * self.regularisation * size * size
        risk = jnp.minimum(highest, 1 + longest * size + ridge)
        rows, features = self.rows.shape
        depth = summation_depth(rows, features, dimension)
        error = (dimension + 10) * (margin + ridge) + (depth + 64) * risk
        error = error if rounding else 4 * highest
        # Hypothesis and optimum are rounded too: the gradient bounds the change of risk.
        moved = 2 * (dimension + 8) * size + jnp.linalg.norm(self.optimum)
        near = distance + unit * moved
        # The curvature grows exponentially, and so at most as fast as its chord on the way.
        steepest = expansion.curvatures[0] * (1 + jnp.exp(1.01 * longest * near)) / 2
        steepest = self.regularisation + jnp.minimum(0.25 * longest * longest, 1.01 * steepest)
        moved *= jnp.minimum(steepest * near, longest + self.regularisation * (size + unit * moved))
        error = unit * (error + moved + 4 * jnp.abs(self.baseline))
        return self.baseline - (highest + error), self.baseline - (lowest - error)


class LogisticProblem(OutputPerturbation):
    """A logistic regression with output perturbation. Make it with `fit`.

    The risk is `(1/n) sum_i log(1 + exp(-y_i <x_i, theta>)) + (lambda/2) |theta|^2`, with labels +1
    or -1. The optimum is released with noise scaled to its l2-sensitivity `2/(n lambda)`
    (Chaudhuri, Monteleoni and Sarwate 2011). A release is projected onto a ball of radius M
    (`nrjax.erm.sensitivity.logistic_radius`). The risk of the projection has sensitivity `M/n`,
    plus an allowance for rounding. Use `OutputProblem` for another loss.

    Stop once the risk is at most 5 % above that of the optimum, under Brownian noise:

        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(1000, 5))
        >>> features /= np.linalg.norm(features, axis=1, keepdims=True)
        >>> labels = np.where(features[:, 0] + 0.1 * rng.normal(size=1000) > 0, 1, -1)
        >>> problem = nrjax.erm.LogisticProblem.fit(features, labels, regularisation=0.05)
        >>> mechanism = problem.brownian(delta=1e-6)
        >>> interaction = mechanism.until(at_least=-1.05 * problem.optimum_loss)
        >>> interaction.steps  # nrjax.simulate(key, interaction, trials=1000) runs it
        100

    Attributes:
        rows: number of rows n.
        dimension: length d of theta, the number of features.
        regularisation: lambda.
        minimum: the optimum, with its risk and gradient norm.
        lipschitz: Lipschitz constant of the loss, 1.
        tolerance: largest gradient norm that was accepted at the optimum.
        utility: minus the risk of a release that is projected onto the ball.
        losses: largest difference between two losses at one theta of the ball, and a bound on
            risks.
    """

    _logistic: ClassVar[bool] = True

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
            tolerance: largest gradient norm that is accepted at the optimum.
            ball: ball that hypotheses are projected onto: "paper", or "tight", for which the radius
                M and the sensitivities of risk and excess risk are 0.448 times as large.

        Raises:
            ValueError: an argument is out of range, or the solver did not converge.
        """
        x, y = _validation.check_data(features, labels, regularisation)
        _validation.check_rows(np.abs(y) == 1, "labels", "+1 or -1")
        rows, dimension = x.shape
        x *= y[:, None]
        signed, weights = merge(x)
        del x  # the largest array here; `merge` may have copied it
        radius = float(logistic_radius(regularisation, ball))
        data = signed, np.ones(len(signed)), weights, float(regularisation)
        minimum = minimise(_signed_loss, data, dimension, tolerance)
        losses = radius, math.log(2)
        utility = LogisticUtility(
            *data,
            radius,
            risk_sensitivity(losses, rows),
            _signed_loss,
            minimum.value,
            tolerance=tolerance,
            optimum=minimum.argument,
            expansion=Expansion.fit(signed, weights, minimum.argument, minimum.gradient_norm),
        )
        public = rows, dimension, float(regularisation)
        return cls(*public, minimum, 1.0, float(tolerance), utility, losses)
