"""What ridge regression makes of a release, of noisy statistics or of a noisy optimum.

The risk is a quadratic around its optimum, `R(theta*) + (1/2) (theta - theta*)' H (theta -
theta*)`: nothing cancels, and the rows are not needed. In float32 it was off by 2e-7 of itself at
most, which the stated sensitivity includes. Ceilings: docs/mathematics.md.
"""

import dataclasses
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.erm import sensitivity, statistics
from nrjax.erm._lanczos import solution_norm
from nrjax.erm._validation import check_length
from nrjax.erm.output_utility import project
from nrjax.erm.statistics import Layout
from nrjax.erm.trust_region import minimise_in_ball
from nrjax.pytrees import static
from nrjax.types import Utility


def _rounding(terms: int, dtype: Any) -> float:
    """Relative error of a sum of so many terms of one sign, and of a few operations more."""
    return (terms + 8) * float(jnp.finfo(dtype).eps)


class RidgeOutputUtility(Utility):
    """Minus the regularised risk of a noisy optimum, projected onto a ball.

    Attributes:
        hessian: `H = X'X/n + lambda I`, shape (d, d).
        optimum: theta*, shape (d,).
        optimum_loss: R(theta*), or 0 for the excess risk, scalar.
        regularisation: lambda, scalar.
        radius: l2 radius M of the ball that holds the optimum, scalar; public.
        sensitivity: how far one row moves `evaluate`, scalar, in units of the loss.
    """

    hessian: Any
    optimum: Any
    optimum_loss: Any
    regularisation: Any
    radius: Any
    sensitivity: Any

    def excess_risk(self) -> Self:
        """Minus the excess risk, `R(theta*) - R(hypothesis)`: never above 0, twice as sensitive."""
        moved = None if self.sensitivity is None else sensitivity.excess_risk(self.sensitivity)
        return dataclasses.replace(self, optimum_loss=0.0, sensitivity=moved)

    def hypothesis(self, release: Array) -> Array:
        """The release, scaled down to the ball if its norm is larger; shape (d,)."""
        check_length(release, self.optimum.shape[-1])
        return project(release, self.radius)

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the regularised risk, or minus the excess risk, scalar."""
        away = hypothesis - self.optimum
        # Accelerators would round the factors to 10 or fewer bits.
        slope = jnp.matmul(self.hessian, away, precision=jax.lax.Precision.HIGHEST)
        # Never below the optimum's, not by rounding either, which may be above a tiny `lambda`.
        return -(self.optimum_loss + jnp.maximum(0.5 * jnp.sum(away * slope), 0))

    def ceiling(self, release: Array) -> Array:
        """Upper bound of the utility of what a release gives, from its distance alone, scalar."""
        # Compiled into another program, the same hypothesis may differ in its last bits.
        hypothesis = self.hypothesis(release)
        error = _rounding(hypothesis.size, hypothesis.dtype)
        away = (1 - error) * jnp.linalg.norm(hypothesis - self.optimum)
        return self._highest(jnp.maximum(away - error * jnp.linalg.norm(hypothesis), 0))

    def _highest(self, away: Array) -> Array:
        """What `evaluate` is at most for a hypothesis that is `away` from the optimum, or more."""
        # The risk grows by `(lambda/2) |theta - theta*|^2` at the least; the rest is for rounding.
        size = jnp.sqrt(jnp.sum(jnp.square(self.hessian)))
        error = 0.5 * _rounding(self.optimum.shape[-1], away.dtype) * size
        curvature = jnp.maximum(0.5 * (1 - 1e-5) * self.regularisation - error, 0)
        return -((1 - 1e-5) * self.optimum_loss + curvature * away * away)


class RidgeUtility(RidgeOutputUtility):
    """Minus the regularised risk of the minimiser that noisy statistics give.

    Attributes, besides those of `RidgeOutputUtility`:
        rows: number of rows n, scalar; public.
        layout: of the releases, static; see `nrjax.erm.statistics`.
    """

    rows: Any
    layout: Layout = static()

    @property
    def noise(self) -> str | None:
        """The noise of the releases, or None if the layout suits every kind."""
        return {"isometric": "gaussian", "triangle": "laplace"}.get(self.layout)

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
        """Upper bound of the utility of what a release gives, without solving for that, scalar."""
        # The minimiser over the ball is on the sphere; or it is that over all space, `A theta = c`,
        # and `A (theta - theta*) = g`, where nothing cancels but in g.
        d = self.optimum.shape[-1]
        matrix, vector = statistics.unpack(release, d, self.layout)
        share, error = 1 / self.rows, _rounding(d, release.dtype)
        # Above |A| and |c|, or infinite; squares below the normal numbers are lost.
        least = math.sqrt(d * d * jnp.finfo(release.dtype).tiny)
        twice = 2 if self.layout == "triangle" else 1
        length = jnp.sqrt(twice * jnp.sum(jnp.square(release))) + least
        size = share * length + self.regularisation * math.sqrt(d)

        def times(direction: Array) -> Array:
            image = jnp.matmul(matrix, direction, precision=jax.lax.Precision.HIGHEST)
            return (share / size) * image + (self.regularisation / size) * direction

        optimum = jnp.linalg.norm(self.optimum)
        # The lane's own, for products of one kind: else XLA lays the matrices out twice.
        gradient = (share / size) * vector - times(self.optimum + 0 * release[0])
        # Of A theta* and c, and of what solves the system: see `minimise_in_ball`.
        solved = 48 * float(jnp.finfo(release.dtype).eps)
        off = error * (optimum + 1) + solved * (2 * self.radius + optimum + 1)
        away = solution_norm(times, gradient, error + solved, off)
        # On the sphere up to rounding, that of the norms included.
        sphere = (1 - error) * self.radius - (1 + error) * optimum
        away = jnp.maximum(jnp.where(jnp.isnan(away), 0, jnp.minimum(away, sphere)), 0)
        # NaN where the release is, or where what is solved overflows: the hypothesis is NaN then.
        total = jnp.sum(jnp.abs(release))
        return self._highest(away) + 0 * (total + total / self.radius)
