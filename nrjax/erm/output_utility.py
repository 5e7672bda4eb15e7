"""The utility of output perturbation: the risk of a noisy optimum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._base.pytrees import static
from nrjax._base.validation import check, widest_made
from nrjax.erm import sensitivity
from nrjax.types import Utility

Loss = Callable[[Array, Array, Array], Array]
"""A function `loss(theta, row, label)` that returns the loss of one example, a scalar."""

_TILE_SIZE = 2**20
"""Maximum number of data entries that are evaluated at once.

A loss that stores one float32 number per entry then takes 256 MiB in 64 trials.
"""

_BRANCHES = 8
"""Number of terms that are added at once in a sum by a tree."""


def project(release: Array, radius: Array) -> Array:
    """Return the release, shape (dimension,), scaled down to the ball if its norm is larger."""
    norm = jnp.linalg.norm(release)
    # A release inside the ball, possibly zero, is left as it is.
    return jnp.where(norm > radius, release * (radius / norm), release)


def _tile_rows(features: int, dimension: int) -> int:
    return max(1, _TILE_SIZE // max(features, dimension))


def _sum(terms: Array) -> Array:
    """Return the sum of a vector, by a tree in which each term is rounded a few times."""
    while terms.size > _BRANCHES:
        size = -(-terms.size // _BRANCHES)
        padded = jnp.pad(terms, (0, _BRANCHES * size - terms.size)).reshape(_BRANCHES, size)
        # The barrier keeps XLA from fusing two sums.
        terms = jax.lax.optimization_barrier(jnp.sum(padded, axis=0))
    return jnp.sum(terms)


def _tree_depth(terms: int) -> int:
    """Return the maximum number of rounded additions of a term in `_sum`."""
    depth = 0
    while terms > _BRANCHES:
        terms, depth = -(-terms // _BRANCHES), depth + _BRANCHES - 1
    return depth + terms - 1


def summation_depth(rows: int, features: int, dimension: int) -> int:
    """Return the maximum number of rounded additions between one row's loss and the mean."""
    tile = _tile_rows(features, dimension)
    if rows < 2 * tile:  # one sum, as in `mean_risk`
        return _tree_depth(rows)
    return _tree_depth(tile) + _tree_depth(rows // tile) + 1


def mean_risk(loss: Loss, data: tuple[Any, Any, Any, Any], theta: Array) -> Array:
    """Return the regularised risk at theta, where `data` is rows, labels, weights and lambda."""
    rows, labels, weights, regularisation = data

    def total(rows: Array, labels: Array, weights: Array) -> Array:
        losses = jax.vmap(lambda row, label: loss(theta, row, label))(rows, labels)
        return _sum(weights * losses)

    # By default accelerators round factors to 10 or fewer bits: an error of 1e-4 in the loss.
    with jax.default_matmul_precision("highest"):
        tile = _tile_rows(rows.shape[1], theta.shape[0])
        whole = rows.shape[0] // tile * tile
        if whole <= tile:
            mean = total(rows, labels, weights)
        else:
            # The rows are sliced in the loop, and again for a gradient, so that no copy is kept.
            @jax.checkpoint
            def of_tile(at: Array) -> Array:
                data = rows, labels, weights
                return total(*(jax.lax.dynamic_slice_in_dim(a, at, tile) for a in data))

            mean = _sum(jax.lax.map(of_tile, jnp.arange(0, whole, tile)))
            if whole < rows.shape[0]:
                mean += total(rows[whole:], labels[whole:], weights[whole:])
    return mean + 0.5 * regularisation * jnp.sum(theta * theta)


class OutputUtility(Utility):
    """Minus the regularised risk, or excess risk, of a release that is projected onto a ball.

    `nrjax.erm.OutputProblem.released` makes it for a custom loss.

    Attributes:
        rows: distinct rows of the data, shape (distinct rows, features).
        labels: labels of the distinct rows, shape (distinct rows,).
        weights: fraction of each distinct row among all rows, shape (distinct rows,), with sum 1.
        regularisation: lambda, scalar.
        radius: l2 radius of the ball that contains the optimum, scalar; public.
        sensitivity: largest change of `evaluate` if one row is replaced, rounding included, scalar,
            in units of the loss. None means unknown, which private stopping rules refuse.
        loss: loss of one example, static. Each new function object is compiled: define it once.
        optimum_loss: R(theta*) at the computed optimum, scalar, or None if unknown.
        baseline: number from which the risk is subtracted: R(theta*) for the excess risk, else 0.
        tolerance: largest gradient norm at the computed optimum of any data set, scalar.
        relation: relation of the neighbours that `sensitivity` is for, static. Interactions refuse
            a mechanism for another one.
        made_in: float dtype whose rounding `sensitivity` allows for, static. Private rules refuse a
            run in a narrower one.
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
    relation: str = static(default="replace")
    made_in: str | None = static(default=None, repr=False, kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    @property
    def best(self) -> Any:
        """The utility of the optimum, scalar, or None if `optimum_loss` is None."""
        return None if self.optimum_loss is None else self.baseline - self.optimum_loss

    def excess_risk(self) -> Self:
        """Return the utility `R(theta*) - R(hypothesis)`, which is minus the excess risk.

        The new utility is at most 0, up to rounding and `tolerance`, and has a larger sensitivity
        (`nrjax.erm.sensitivity.excess_risk`).

        Raises:
            ValueError: `optimum_loss` is None.
        """
        known = self.optimum_loss is not None
        check(known, "optimum_loss", None, "a number, to compute the excess risk")
        own = self.sensitivity
        if own is not None:
            own = sensitivity.excess_risk(own, self.regularisation, self.tolerance)
        return dataclasses.replace(self, baseline=self.optimum_loss, sensitivity=own)

    def hypothesis(self, release: Array) -> Array:
        """Return the release, shape (dimension,), scaled down to the ball if it is outside."""
        return project(release, self.radius)

    def evaluate(self, hypothesis: Array) -> Array:
        """Return the baseline minus the regularised risk, scalar."""
        data = self.rows, self.labels, self.weights, self.regularisation
        return self.baseline - mean_risk(self.loss, data, hypothesis)
