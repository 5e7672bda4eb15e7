"""Utilities of ridge regression, from noisy statistics or from a noisy optimum.

The risk is a quadratic around its optimum, `R(theta*) + (1/2) (theta - theta*)' H (theta -
theta*)`. No digits cancel in this form, and the rows are not needed. The largest relative error
measured in float32 was 2e-7, which the stated sensitivity includes. `docs/proofs/regression.md`
proves the bounds on the utility.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.pytrees import static
from nrjax._base.validation import widest_made
from nrjax.erm import sensitivity, statistics
from nrjax.erm._lanczos import solution_norm
from nrjax.erm._validation import check_length
from nrjax.erm.output_utility import project
from nrjax.erm.statistics import Layout
from nrjax.erm.trust_region import minimise_in_ball
from nrjax.types import Utility


def _rounding(terms: int, dtype: Any) -> float:
    """Return the relative rounding error of a sum of `terms` numbers of one sign.

    A few more operations are included.
    """
    return (terms + 8) * float(jnp.finfo(dtype).eps)


class RidgeOutputUtility(Utility):
    """Minus the regularised risk of a noisy optimum that is projected onto a ball.

    `nrjax.erm.RidgeProblem.released_optimum` makes it.

    Attributes:
        hessian: `H = X'X/n + lambda I`, shape (d, d).
        optimum: theta*, shape (d,).
        optimum_loss: R(theta*), or 0 if the utility is minus the excess risk, scalar.
        regularisation: lambda, scalar.
        radius: l2 radius M of the ball that contains the optimum, scalar; public.
        sensitivity: largest change of `evaluate` if one row is replaced, scalar, in units of the
            loss.
        relation: relation of the neighbours that `sensitivity` is for, static. Interactions refuse
            a mechanism for another one.
        made_in: float dtype whose rounding `sensitivity` allows for, static. Private rules refuse a
            run in a narrower one.
    """

    hessian: Any
    optimum: Any
    optimum_loss: Any
    regularisation: Any
    radius: Any
    sensitivity: Any
    relation: str = static(default="replace", kw_only=True)
    made_in: str | None = static(default=None, repr=False, kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    @property
    def best(self) -> Any:
        """The utility of the optimum, scalar."""
        return -self.optimum_loss

    def excess_risk(self) -> Self:
        """Return the utility `R(theta*) - R(hypothesis)`, which has twice the sensitivity."""
        own = self.sensitivity
        doubled = None if own is None else sensitivity.excess_risk(own)
        return dataclasses.replace(self, optimum_loss=0.0, sensitivity=doubled)

    def hypothesis(self, release: Array) -> Array:
        """Return the release, shape (d,), scaled down to the ball if its norm is larger."""
        check_length(release, self.optimum.shape[-1])
        return project(release, self.radius)

    def evaluate(self, hypothesis: Array) -> Array:
        """Return minus the regularised risk, or minus the excess risk, scalar."""
        away = hypothesis - self.optimum
        # By default accelerators round the factors to 10 or fewer bits.
        slope = jnp.matmul(self.hessian, away, precision=jax.lax.Precision.HIGHEST)
        # Rounding, which can exceed a tiny `lambda`, must not put the risk below the optimum's.
        return -(self.optimum_loss + jnp.maximum(0.5 * jnp.sum(away * slope), 0))

    def bounds_from_release(self, release: Array) -> tuple[float, Array]:
        """Return bounds on the utility of a release, from its distance to the optimum only.

        The lower bound is minus infinity.
        """
        # Another program may compute the hypothesis with other last bits.
        hypothesis = self.hypothesis(release)
        error = _rounding(hypothesis.size, hypothesis.dtype)
        away = (1 - error) * jnp.linalg.norm(hypothesis - self.optimum)
        away = jnp.maximum(away - error * jnp.linalg.norm(hypothesis), 0)
        return -math.inf, self._highest(away)

    def _highest(self, away: Array) -> Array:
        """Return an upper bound on `evaluate` at distance `away` or more from the optimum."""
        # The risk grows by at least `(lambda/2) |theta - theta*|^2`. The margins are for rounding.
        size = jnp.sqrt(jnp.sum(jnp.square(self.hessian)))
        error = 0.5 * _rounding(self.optimum.shape[-1], away.dtype) * size
        curvature = jnp.maximum(0.5 * (1 - 1e-5) * self.regularisation - error, 0)
        return -((1 - 1e-5) * self.optimum_loss + curvature * away * away)


class RidgeUtility(RidgeOutputUtility):
    """Minus the regularised risk of the minimiser of noisy statistics.

    `nrjax.erm.RidgeProblem.released` makes it. It has the attributes of `RidgeOutputUtility`, and:

    Attributes:
        rows: number of rows n, scalar; public.
        layout: layout of the releases, static; see `nrjax.erm.statistics`.
    """

    rows: Any
    layout: Layout = static()

    @property
    def noise(self) -> str | tuple[str, ...] | None:
        """The kinds of noise that the layout is made for, or None if it suits every kind."""
        kinds = {"isometric": ("gaussian", "spherical laplace"), "triangle": "laplace"}
        return kinds.get(self.layout)

    def hypothesis(self, release: Array) -> Array:
        """Return the minimiser, shape (d,), of the noisy risk over the ball."""
        return minimise_in_ball(*self._quadratic(release), self.radius).argument

    def _quadratic(self, release: Array) -> tuple[Array, Array]:
        """Return the matrix A and vector c of the noisy risk `(1/2) theta'A theta - c'theta`."""
        d = self.optimum.shape[-1]
        matrix, vector = statistics.unpack(release, d, self.layout)
        # Products, since divisions may round differently on another number of devices.
        weight = 1 / self.rows
        matrix = matrix * weight + self.regularisation * jnp.eye(d, dtype=release.dtype)
        return matrix, vector * weight

    def bounds_from_release(self, release: Array) -> tuple[float, Array]:
        """Return bounds on the utility of a release, without solving for the hypothesis.

        The lower bound is minus infinity.
        """
        # The minimiser is on the sphere, or it solves `A theta = c`. In the second case
        # `A (theta - theta*) = g` with `g = c - A theta*`, where digits cancel only in g.
        d = self.optimum.shape[-1]
        matrix, vector = statistics.unpack(release, d, self.layout)
        weight, error = 1 / self.rows, _rounding(d, release.dtype)
        # `size` is above |A| and |c|, or infinite. `least` covers squares that are flushed to zero.
        least = math.sqrt(d * d * jnp.finfo(release.dtype).tiny)
        twice = 2 if self.layout == "triangle" else 1
        length = jnp.sqrt(twice * jnp.sum(jnp.square(release))) + least
        size = weight * length + self.regularisation * math.sqrt(d)

        def multiply(direction: Array) -> Array:
            image = jnp.matmul(matrix, direction, precision=jax.lax.Precision.HIGHEST)
            return (weight / size) * image + (self.regularisation / size) * direction

        optimum = jnp.linalg.norm(self.optimum)
        # `0 * release[0]` gives each lane its own optimum: otherwise XLA lays the matrices out
        # twice, for two kinds of products.
        gradient = (weight / size) * vector - multiply(self.optimum + 0 * release[0])
        # Errors of A theta* and c, and of the solver: see `minimise_in_ball`.
        solver_error = 48 * float(jnp.finfo(release.dtype).eps)
        vector_error = error * (optimum + 1) + solver_error * (2 * self.radius + optimum + 1)
        away = solution_norm(multiply, gradient, error + solver_error, vector_error)
        # A minimiser on the sphere is at least this far away, rounding of the norms included.
        sphere = (1 - error) * self.radius - (1 + error) * optimum
        away = jnp.maximum(jnp.where(jnp.isnan(away), 0, jnp.minimum(away, sphere)), 0)
        # The bound is NaN if the release is NaN or the solver overflows: so is the hypothesis.
        total = jnp.sum(jnp.abs(release))
        return -math.inf, self._highest(away) + 0 * (total + total / self.radius)
