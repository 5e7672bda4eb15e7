"""What output perturbation makes of a release, and how good that is."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from nrjax.erm import sensitivity
from nrjax.pytrees import static
from nrjax.types import Utility

Loss = Callable[[Array, Array, Array], Array]
"""`loss(theta, row, label)` of one example, a scalar."""

_TILE_SIZE = 2**20
"""Numbers of the data that are evaluated at once; 64 trials of a loss that keeps them all in
float32 then take 256 MiB."""


def project(release: Array, radius: Array) -> Array:
    """The release, scaled down to the ball if its norm is larger; shape (dimension,)."""
    norm = jnp.linalg.norm(release)
    # Not larger than the radius, zero included: left as it is.
    return jnp.where(norm > radius, release * (radius / norm), release)


def _tile_rows(features: int, dimension: int) -> int:
    return max(1, _TILE_SIZE // max(features, dimension))


def _block(terms: int) -> int:
    """The square root, rounded up."""
    return math.isqrt(max(terms - 1, 0)) + 1


def _sum(terms: Array) -> Array:
    """The sum of a vector, by blocks: in whatever order a device adds, it rounds less often."""
    block = _block(terms.size)
    padded = jnp.pad(terms, (0, -terms.size % block)).reshape(-1, block)
    # XLA would make one sum of the two.
    return jnp.sum(jax.lax.optimization_barrier(jnp.sum(padded, axis=1)))


def summation_depth(rows: int, features: int, dimension: int) -> int:
    """Most additions that one row's loss goes through on its way into the mean; each rounds."""
    tile = _tile_rows(features, dimension)
    if rows < 2 * tile:  # as `mean_risk`: one sum
        return 2 * _block(rows)
    return 2 * _block(tile) + -(-rows // tile) + 1


def mean_risk(loss: Loss, data: tuple[Any, Any, Any, Any], theta: Array) -> Array:
    """The regularised risk at theta; the data are rows, labels, weights and lambda."""
    rows, labels, weights, regularisation = data

    def total(rows: Array, labels: Array, weights: Array) -> Array:
        losses = jax.vmap(lambda row, label: loss(theta, row, label))(rows, labels)
        return _sum(weights * losses)

    # Accelerators would round the factors to 10 or fewer bits: an error of 1e-4 in the loss.
    with jax.default_matmul_precision("highest"):
        tile = _tile_rows(rows.shape[1], theta.shape[0])
        whole = rows.shape[0] // tile * tile
        if whole <= tile:
            mean = total(rows, labels, weights)
        else:
            # Sliced in the loop, and again for a gradient: no copy of the rows is made or kept.
            @jax.checkpoint
            def of_tile(at: Array) -> Array:
                data = rows, labels, weights
                return total(*(jax.lax.dynamic_slice_in_dim(a, at, tile) for a in data))

            mean = jnp.sum(jax.lax.map(of_tile, jnp.arange(0, whole, tile)))
            if whole < rows.shape[0]:
                mean += total(rows[whole:], labels[whole:], weights[whole:])
    return mean + 0.5 * regularisation * jnp.sum(theta * theta)


class OutputUtility(Utility):
    """Minus the regularised risk of a release projected onto a ball, or minus its excess risk.

    Attributes:
        rows: shape (distinct rows, features), duplicates merged.
        labels: shape (distinct rows,).
        weights: share of each among all rows, shape (distinct rows,), summing to 1.
        regularisation: lambda, scalar.
        radius: l2 radius of the ball that holds the optimum, scalar; public.
        sensitivity: how far the replacement of one row moves `evaluate`, rounding included,
            scalar, in units of the loss; None (not known) is refused by private stopping rules.
        loss: of one example, static: a program is compiled for each function, so define it once.
        optimum_loss: R(theta*) at the computed optimum, scalar; None if it is not known.
        baseline: what the risk is subtracted from, scalar: 0, or R(theta*) for the excess risk.
        tolerance: largest gradient norm at a computed optimum, whatever the data, scalar.
    """

    rows: Any
    labels: Any
    weights: Any
    regularisation: Any
    radius: Any
    sensitivity: Any
    loss: Loss = static()
    optimum_loss: Any = None
    baseline: Any = 0.0
    tolerance: Any = 0.0

    def excess_risk(self) -> Self:
        """Minus the excess risk, `R(theta*) - R(hypothesis)`, for the plain utility.

        At most 0 up to rounding and `tolerance`, and more sensitive
        (`nrjax.erm.sensitivity.excess_risk`). A `ValueError` where `optimum_loss` is None.
        """
        if self.optimum_loss is None:
            raise ValueError("optimum_loss = None: must be known for the excess risk")
        moved = self.sensitivity
        if moved is not None:
            moved = sensitivity.excess_risk(moved, self.regularisation, self.tolerance)
        return dataclasses.replace(self, baseline=self.optimum_loss, sensitivity=moved)

    def hypothesis(self, release: Array) -> Array:
        """The release, scaled down to the ball if its norm is larger; shape (dimension,)."""
        return project(release, self.radius)

    def evaluate(self, hypothesis: Array) -> Array:
        """Minus the regularised risk, plus the baseline, scalar."""
        data = self.rows, self.labels, self.weights, self.regularisation
        return self.baseline - mean_risk(self.loss, data, hypothesis)
