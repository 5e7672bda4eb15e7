"""Bounds on a logistic risk from its derivatives at the optimum, without the data rows.

The remainder of the third-order Taylor polynomial is bounded by the quadratic term of the same
polynomial (`docs/proofs/regression.md`, "Certified stopping"; Bach 2010 for the second order). The
third derivative, a tensor, is stored only in the directions of the largest curvatures.
"""

import itertools
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import row_blocks
from nrjax.pytrees import Pytree

_TAIL = 1e-4
"""Largest fraction of the total curvature in directions without a third derivative."""

_LARGEST = 48
"""Maximum number k of directions with a third derivative, which costs O(k^3)."""

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
        longest: largest l2 norm of a row, scalar.
        flattest: smallest second derivative `phi''` of a row's loss at the optimum, scalar.
        slope: bound on the l2 norm of the regularised risk's gradient at the optimum, scalar.
        error: relative rounding error of the other attributes, scalar.
    """

    basis: Any
    curvatures: Any
    cubic: Any
    longest: Any
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
        return cls(
            basis=np.ascontiguousarray(basis),
            curvatures=curvatures,
            cubic=tuple(cubic),
            longest=max(float(np.linalg.norm(rows[part], axis=1).max()) for part in blocks),
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
        kept = len(self.cubic[0])
        square = jnp.sum(away * away)
        distance = jnp.sqrt(square)
        reach = self.longest * distance  # no margin changes by more
        along = jnp.matmul(away, self.basis, precision=jax.lax.Precision.HIGHEST)
        forms = self.curvatures * along * along
        form, tail = jnp.sum(forms), jnp.sum(forms[kept:])
        third = self.third(along[:kept]) / 6
        cut = 0.5 * reach * jnp.sqrt(tail * form)
        # A chord of the exponential function bounds `(exp(s) - 1 - s - s^2/2 - s^3/6)/s^2`.
        growth = reach * reach / 24 * (1 + jnp.expm1(reach) / 5)
        even = reach * reach / self.flattest
        # `fmin` ignores the NaN of 0/0, if a margin is so large that its `phi''` is 0.
        above = jnp.fmin(growth, even / 576)
        below = jnp.fmin(0.5 * growth, even / 192)
        unit = 0.5 * float(jnp.finfo(away.dtype).eps)
        rounding = ((4 * (away.size + kept) + 64) * unit + self.error) * square
        trace = jnp.sum(self.curvatures)
        sizes = trace * (1 + reach + above)
        sizes += jnp.sqrt(sum(jnp.sum(part * part) for part in self.cubic)) * distance
        error = rounding * sizes
        most = 0.5 * form + third + cut + above * form + error
        # A valid upper bound is never negative: an overflow gives none. The bound in the next line
        # holds even then, as no second derivative of the loss is above 1/4.
        most = jnp.where(most >= 0, most, jnp.inf)
        most = jnp.fmin(most, reach * reach / 8 + rounding * self.longest * self.longest)
        least = 0.5 * form + third - cut - below * form - error
        # Far away the polynomial is no bound, but the curvature falls by at most `exp(-s)`.
        far = 0.5 * jnp.exp(-reach / 3) * (form - rounding * trace * (1 + reach))
        # The risk is not below its tangent, which is the only bound if numbers overflow.
        least = jnp.fmax(jnp.fmax(least, far), 0)
        ridge = 0.5 * regularisation * square
        common = rounding * regularisation + 2 * self.slope * distance
        return ridge + least - common, ridge + most + common
