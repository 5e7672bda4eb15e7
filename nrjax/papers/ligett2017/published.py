"""The ridge regression of the program that Ligett et al. published, which is not the paper's."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax.erm import RidgeProblem, statistics
from nrjax.erm.output_utility import project
from nrjax.types import Utility

_Released = Literal["optimum", "matrix", "isometric"]


class PublishedRidgeUtility(Utility):
    """Solves, then scales; and takes a quarter of the mean squared error.

    The noisy normal equations, not symmetric, are solved as they stand and the solution is scaled
    down to the ball, which is not the minimiser over it. The risk has a quarter of the mean squared
    error where the statistics' has half; the excess is over the minimiser of the latter, and can be
    negative.

    Attributes:
        hessian: `X'X/(2 n) + lambda I`, shape (d, d).
        slope: gradient of that risk at `optimum`, shape (d,).
        optimum: the minimiser with half of the mean squared error, shape (d,).
        rows: number of rows n, scalar.
        regularisation: lambda, scalar.
        radius: of the ball, scalar.
        sensitivity: what the program takes for that of `evaluate`, scalar.
        released: what is released, static: the "optimum", or X'X and X'y laid out as "matrix" or
            "isometric" (`nrjax.erm.statistics`).
    """

    hessian: Any
    slope: Any
    optimum: Any
    rows: Any
    regularisation: Any
    radius: Any
    sensitivity: Any
    released: _Released = dataclasses.field(metadata={"static": True})

    @classmethod
    def of(
        cls, problem: RidgeProblem, sensitivity: float, released: _Released
    ) -> "PublishedRidgeUtility":
        """The utility of a problem."""
        gram, moments = problem.statistics
        hessian = gram / (2 * problem.rows) + problem.regularisation * np.eye(problem.dimension)
        return cls(
            hessian=hessian,
            slope=hessian @ problem.optimum - moments / (2 * problem.rows),
            optimum=problem.optimum,
            rows=float(problem.rows),
            regularisation=problem.regularisation,
            radius=problem.radius,
            sensitivity=sensitivity,
            released=released,
        )

    def hypothesis(self, release: Array) -> Array:
        """The solution of the noisy normal equations, scaled down to the ball; shape (d,)."""
        return project(release if self.released == "optimum" else self._solve(release), self.radius)

    def _solve(self, release: Array) -> Array:
        d = self.optimum.shape[-1]
        if self.released == "matrix":  # not symmetrised
            matrix, vector = release[: d * d].reshape(d, d), release[d * d :]
        else:
            matrix, vector = statistics.unpack(release, d, "isometric")
        ridge = self.rows * self.regularisation * jnp.eye(d, dtype=release.dtype)
        return _solution(matrix + ridge, vector)

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the excess, scalar."""
        away = hypothesis - self.optimum
        # Accelerators would round the factors to 10 or fewer bits.
        turned = jnp.matmul(self.hessian, away, precision=jax.lax.Precision.HIGHEST)
        return -jnp.sum(away * (self.slope + 0.5 * turned))


def _solution(matrix: Array, vector: Array) -> Array:
    """`A^-1 c` by Householder reflectors, for A of shape (d, d) that need not be symmetric.

    LAPACK's batched routines were seen to wait for each other in loops on more virtual devices than
    there are cores.
    """
    d = vector.size
    places = jnp.arange(d)

    def reflect(k: Array, system: Array) -> Array:
        column = jnp.where(places >= k, system[:, k], 0)
        pivot = column[k]
        ahead = jnp.where(places == k, jnp.copysign(jnp.linalg.norm(column), pivot), 0)
        reflector = column + ahead
        square = jnp.sum(reflector * reflector)
        factor = 2 / jnp.where(square > 0, square, 1)
        return system - reflector[:, None] * (factor * (reflector @ system))[None, :]

    def substitute(number: Array, solution: Array) -> Array:
        row = d - 1 - number
        rest = system[row, d] - jnp.sum(system[row, :d] * solution)
        return solution.at[row].set(rest / system[row, row])

    with jax.default_matmul_precision("highest"):
        start = jnp.concatenate([matrix, vector[:, None]], axis=1)
        system = jax.lax.fori_loop(0, d - 1, reflect, start)
        return jax.lax.fori_loop(0, d, substitute, jnp.zeros_like(vector))
