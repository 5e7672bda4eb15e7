"""Bounds on a logistic risk from its derivatives at the optimum, without the data rows.

The remainder of the third-order Taylor polynomial is bounded by the quadratic term of the same
polynomial, and by the fourth moment of the rows (`docs/proofs/regression.md`, "Certified stopping";
Bach 2010 for the second order). The third derivative, a tensor, is stored only in the directions of
the largest curvatures.
"""

import itertools
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.numerics import row_blocks
from nrjax._base.pytrees import Pytree
from nrjax.erm._fourth import fourth_moment

_TAIL = 1e-4
"""Largest fraction of the total curvature in directions without a third derivative."""

_LARGEST = 48
"""Maximum number k of directions with a third derivative, which costs O(k^3)."""

_FOURTH = 24
"""Maximum number k of directions with a fourth moment, which costs O(k^4) per row."""

_FLOOR = 1e-3
"""Least curvature of a direction in `Expansion.metric`, as a fraction of the mean curvature."""

_BLOCK = 8
"""Number of directions per block of the symmetric tensor. Equal blocks are stored once."""


def _blocks(size: int) -> list[tuple[int, int]]:
    """Split `size` indices into blocks (start, end). Only the first block can be smaller."""
    ends = [0, *range(size % _BLOCK or min(_BLOCK, size), size + 1, _BLOCK)]
    return list(itertools.pairwise(ends))


def _pairs(along: Any, begin: int, end: int) -> Any:
    """Return the products of each entry of a block with each entry of that and later blocks."""
    products = along[..., begin:end, None] * along[..., None, begin:]
    return products.reshape(*along.shape[:-1], -1)


class Expansion(Pytree):
    """The derivatives of a logistic risk at its optimum, without the regularisation.

    Attributes:
        basis: eigenvectors of the Hessian in columns, shape (d, d), largest eigenvalue first.
        curvatures: eigenvalues of the Hessian, shape (d,).
        cubic: third derivative along the first k eigenvectors, one array of shape
            (k - begin, pairs) per block of `_blocks`. It holds the entries with an index in the
            block and none in an earlier block, weighted so that a sum over all arrays is the sum
            over the whole tensor.
        metric: weights of the first k coordinates in the squared length of which `fourth` bounds
            the fourth moment, shape (k,).
        fourth: bounds (low, high) on `mean(phi'' <row, v>^4)^(1/4)` over v in the first k
            directions, of length 1.
        longest: largest l2 norm of a row, scalar.
        typical: mean absolute values of the features, shape (d,).
        flattest: smallest second derivative `phi''` of a row's loss at the optimum, scalar.
        slope: bound on the l2 norm of the regularised risk's gradient at the optimum, scalar.
        error: relative rounding error of the other attributes, scalar.
    """

    basis: Any
    curvatures: Any
    cubic: Any
    metric: Any
    fourth: Any
    longest: Any
    typical: Any
    flattest: Any
    slope: Any
    error: Any

    @classmethod
    def fit(cls, rows: np.ndarray, weights: np.ndarray, optimum: np.ndarray, slope: float) -> Self:
        """Return the expansion at `optimum`, shape (d,), in float64.

        Args:
            rows: label times features, shape (distinct rows, d).
            weights: fraction of each distinct row, shape (distinct rows,), with sum 1.
            optimum: optimum of the regularised risk, shape (d,).
            slope: l2 norm of the regularised risk's gradient at `optimum`.
        """
        margins = rows @ optimum
        fading = np.exp(-np.abs(margins))
        second = fading / (1 + fading) ** 2
        third = second * -np.tanh(0.5 * margins)
        blocks = row_blocks(*rows.shape)
        hessian: Any = sum(
            (rows[part] * (weights * second)[part, None]).T @ rows[part] for part in blocks
        )
        curvatures, basis = np.linalg.eigh(hessian)
        curvatures, basis = np.maximum(curvatures[::-1], 0.0), basis[:, ::-1]
        tails = np.cumsum(curvatures[::-1])[::-1]
        # Rounded up to a multiple of eight, so that similar data sets share a compiled program.
        kept = 8 * -(-int(np.sum(tails > _TAIL * tails[0])) // 8)
        kept = max(1, min(kept, optimum.size, _LARGEST))
        cubic: list[Any] = [0.0] * len(_blocks(kept))
        for part in row_blocks(len(rows), max(kept * kept, optimum.size)):
            along = rows[part] @ basis[:, :kept]
            weighted = (along * (weights * third)[part, None]).T
            for i, (begin, end) in enumerate(_blocks(kept)):
                cubic[i] += weighted[begin:] @ _pairs(along, begin, end)
        for i, (begin, end) in enumerate(_blocks(kept)):
            # The weight of an entry is 3 (permutations) over its number of indices in the block.
            within = (np.arange(begin, kept) < end).astype(int)
            cubic[i] *= 3 / (1 + within[:, None] + np.tile(within, end - begin))
        # Between the l2 norm and the Hessian's, which are best for some data and poor for others.
        floor = _FLOOR * curvatures.mean()
        metric = np.sqrt(curvatures[:_FOURTH] + floor) if floor > 0 else np.ones(1)
        directions = basis[:, : metric.size] / np.sqrt(metric)
        fourth = fourth_moment(rows, weights * second, directions)
        return cls(
            basis=np.ascontiguousarray(basis),
            curvatures=curvatures,
            cubic=tuple(cubic),
            metric=metric,
            fourth=tuple(float(moment**0.25) for moment in fourth),
            longest=max(float(np.linalg.norm(rows[part], axis=1).max()) for part in blocks),
            typical=sum(weights[part] @ np.abs(rows[part]) for part in blocks),
            flattest=float(second.min()),
            slope=float(slope),
            # The error of the sums over the rows, and of the eigendecomposition.
            error=(len(rows) + 100 * optimum.size) * float(np.finfo(np.float64).eps),
        )

    def third(self, along: Array) -> Array:
        """Return the third derivative, scalar, along k coordinates in the eigenvectors."""
        total = jnp.zeros((), along.dtype)
        for part, (begin, end) in zip(self.cubic, _blocks(along.size), strict=True):
            pairs = _pairs(along, begin, end)
            product = jnp.matmul(part, pairs, precision=jax.lax.Precision.HIGHEST)
            total += jnp.sum(along[begin:] * product)
        return total

    def excess(self, away: Array, regularisation: Array) -> tuple[Array, Array]:
        """Return a lower and an upper bound on `R(theta* + away) - R(theta*)`.

        Both bounds allow for rounding.
        """
        kept, unit = len(self.cubic[0]), 0.5 * float(jnp.finfo(away.dtype).eps)
        relative = (2 * away.size + 32) * unit  # error of lengths and of their sums
        square = jnp.sum(away * away)
        distance = jnp.sqrt(square)
        reach = self.longest * distance  # no margin changes by more
        along = jnp.matmul(away, self.basis, precision=jax.lax.Precision.HIGHEST)
        forms = self.curvatures * along * along
        form, tail = jnp.sum(forms), jnp.sum(forms[kept:])
        trace, root = jnp.sum(self.curvatures), jnp.sqrt(form)
        slip = relative * distance * jnp.sqrt(trace)  # error of `root`
        third = self.third(along[:kept]) / 6
        cut = 0.5 * reach * jnp.sqrt(tail * form)
        # A chord of the exponential function bounds `(exp(s) - 1 - s - s^2/2 - s^3/6)/s^2`.
        growth = reach * reach / 24 * (1 + jnp.expm1(reach) / 5)
        even = reach * reach / self.flattest
        # `fmin` ignores the NaN of 0/0, if a margin is so large that its `phi''` is 0.
        above = jnp.fmin(growth, even / 576)
        below = jnp.fmin(0.5 * growth, even / 192)
        rounding = (4 * (away.size + kept) + 64) * unit + self.error
        entries = jnp.sqrt(sum(jnp.sum(part * part) for part in self.cubic))
        sizes = 1 + 2 * (reach + above + below)
        error = rounding * entries * square * distance
        error += sizes * (slip * (root + slip) + relative * form + self.error * trace * square)
        fifth, fourths = self._moments(reach, root + slip, along, distance, relative)
        above = jnp.fmin(above * form, fourths[1] + fifth)
        below = jnp.fmin(below * form, fourths[0] + fifth)
        most = 0.5 * form + third + cut + above + error
        # A valid upper bound is never negative: an overflow gives none. The bound in the next line
        # holds even then, as no second derivative of the loss is above 1/4.
        most = jnp.where(most >= 0, most, jnp.inf)
        most = jnp.fmin(most, reach * reach / 8 + rounding * square * self.longest * self.longest)
        least = 0.5 * form + third - cut - below - error
        # Far away the polynomial is no bound, but the curvature falls by at most `exp(-s)`.
        near = jnp.maximum(root - slip, 0)
        far = near * near - (relative * form + self.error * trace * square) * (1 + reach)
        # The risk is not below its tangent, which is the only bound if numbers overflow.
        least = jnp.fmax(jnp.fmax(least, 0.5 * jnp.exp(-reach / 3) * far), 0)
        ridge = 0.5 * regularisation * square
        common = (relative + self.error) * ridge + 2 * self.slope * distance
        return ridge + least - common, ridge + most + common

    def _moments(
        self, reach: Array, root: Array, along: Array, distance: Array, relative: float
    ) -> Any:
        """Return bounds on the remainder from the fourth moment.

        Args:
            reach: largest change of a margin, scalar.
            root: upper bound on the square root of the Hessian's quadratic form, scalar.
            along: coordinates in the eigenvectors, shape (d,).
            distance: length of `along`, scalar.
            relative: relative error of `distance`.

        Returns:
            A bound on the term of fifth order, and bounds (low, high) on that of fourth order, the
            low one with its sign changed.
        """
        size, wide = self.metric.size, relative * distance
        inside, outside = along[:size], along[size:]
        length = jnp.sqrt(jnp.sum(self.metric * inside * inside))
        slip = wide * jnp.sqrt(jnp.sum(self.metric))
        tail = jnp.sqrt(jnp.sum(self.curvatures[size:] * outside * outside))
        tail += wide * jnp.sqrt(jnp.sum(self.curvatures[size:]))
        # Mean fourth powers are fourth powers of a norm.
        tail, slack = jnp.sqrt(reach * tail), 1 + 8 * (relative + self.error)
        low = jnp.maximum(self.fourth[0] * (length - slip) - tail, 0) ** 4 / slack
        high = slack * jnp.fmin((self.fourth[1] * (length + slip) + tail) ** 4, (reach * root) ** 2)
        low = jnp.fmin(low, high)
        steepest = jnp.fmin(1 + jnp.expm1(reach) / 6, 0.128 / self.flattest)
        bend = 1 - 6 * self.flattest * (1 - 1e-6)
        fifth = reach * high / 120 * steepest
        return fifth, (high / 48, bend * jnp.where(bend > 0, high, low) / 24)
