"""A logistic risk around its optimum: bounds from its derivatives there, without the rows.

What the Taylor polynomial of third order leaves is bounded by the quadratic form that it has anyway
(docs/mathematics.md, "Certified stopping"; Bach 2010 does so for the second order). The third
derivative, a tensor, is kept where the rows are long alone.
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
"""Share of the curvature that may lie outside of where the third derivative is kept."""

_LARGEST = 48
"""Most directions in which it is kept: their third power is the cost."""


_BLOCK = 8
"""Directions that go together: a symmetric tensor's blocks of several orders are kept once."""


def _blocks(size: int) -> list[tuple[int, int]]:
    """Where each begins and ends; what follows one is of whole blocks, as vectors of a CPU are."""
    ends = [0, *range(size % _BLOCK or min(_BLOCK, size), size + 1, _BLOCK)]
    return list(itertools.pairwise(ends))


def _pairs(along: Any, begin: int, end: int) -> Any:
    """Products of the numbers of a block, along the last axis, with its own and all that follow."""
    products = along[..., begin:end, None] * along[..., None, begin:]
    return products.reshape(*along.shape[:-1], -1)


class Expansion(Pytree):
    """Derivatives of a logistic risk at its optimum, without the regularisation.

    Attributes:
        basis: eigenvectors of the Hessian in columns, shape (d, d), largest eigenvalue first.
        curvatures: the eigenvalues, shape (d,).
        cubic: third derivative in the first k of the eigenvectors: for each of `_blocks` what has
            it as the first of its three, shape (k - begin, pairs); weighed, so that the sum over
            these is that over all of the tensor.
        longest: largest l2 norm of a row, scalar.
        flattest: smallest `phi''` of a row at the optimum, scalar.
        slope: largest l2 norm that the regularised risk's gradient can have at the optimum, scalar.
        doubt: relative error of the numbers above, scalar.
    """

    basis: Any
    curvatures: Any
    cubic: Any
    longest: Any
    flattest: Any
    slope: Any
    doubt: Any

    @classmethod
    def fit(cls, rows: np.ndarray, weights: np.ndarray, optimum: np.ndarray, slope: float) -> Self:
        """The expansion at `optimum`, shape (d,), in float64.

        `rows` are label times features, shape (distinct rows, d), `weights` their shares, summing
        to 1; `slope` is the norm of the regularised risk's gradient at the optimum.
        """
        margins = rows @ optimum
        fading = np.exp(-np.abs(margins))
        second = fading / (1 + fading) ** 2
        third = second * -np.tanh(0.5 * margins)
        blocks = row_blocks(*rows.shape)
        hessian: Any = sum(
            (rows[some] * (weights * second)[some, None]).T @ rows[some] for some in blocks
        )
        curvatures, basis = np.linalg.eigh(hessian)
        curvatures, basis = np.maximum(curvatures[::-1], 0.0), basis[:, ::-1]
        tails = np.cumsum(curvatures[::-1])[::-1]
        # In eights, so that data sets that are much alike share a program.
        kept = 8 * -(-int(np.sum(tails > _TAIL * tails[0])) // 8)
        kept = max(1, min(kept, optimum.size, _LARGEST))
        cubic: list[Any] = [0.0] * len(_blocks(kept))
        for part in row_blocks(len(rows), max(kept * kept, optimum.size)):
            some = rows[part] @ basis[:, :kept]
            weighed = (some * (weights * third)[part, None]).T
            for i, (begin, end) in enumerate(_blocks(kept)):
                cubic[i] += weighed[begin:] @ _pairs(some, begin, end)
        for i, (begin, end) in enumerate(_blocks(kept)):
            within = (np.arange(begin, kept) < end).astype(int)  # the others follow
            often = 3 / (1 + within[:, None] + np.tile(within, end - begin))
            cubic[i] *= often
        return cls(
            basis=np.ascontiguousarray(basis),
            curvatures=curvatures,
            cubic=tuple(cubic),
            longest=max(float(np.linalg.norm(rows[some], axis=1).max()) for some in blocks),
            flattest=float(second.min()),
            slope=float(slope),
            # Sums over the rows, and an eigendecomposition.
            doubt=(len(rows) + 100 * optimum.size) * float(np.finfo(np.float64).eps),
        )

    def third(self, along: Array) -> Array:
        """The third derivative in a direction, given in the first k of the eigenvectors; scalar."""
        found = jnp.zeros((), along.dtype)
        for part, (begin, end) in zip(self.cubic, _blocks(along.size), strict=True):
            pairs = _pairs(along, begin, end)
            turned = jnp.matmul(part, pairs, precision=jax.lax.Precision.HIGHEST)
            found += jnp.sum(along[begin:] * turned)
        return found

    def excess(self, away: Array, regularisation: Array) -> tuple[Array, Array]:
        """Bounds of `R(theta* + away) - R(theta*)`, rounding included; NaN where `away` is."""
        kept = len(self.cubic[0])
        square = jnp.sum(away * away)
        distance = jnp.sqrt(square)
        reach = self.longest * distance  # no margin moves further
        along = jnp.matmul(away, self.basis, precision=jax.lax.Precision.HIGHEST)
        forms = self.curvatures * along * along
        form, tail = jnp.sum(forms), jnp.sum(forms[kept:])
        third = self.third(along[:kept]) / 6
        cut = 0.5 * reach * jnp.sqrt(tail * form)
        # `(exp(s) - 1 - s - s^2/2 - s^3/6)/s^2` and less, by a chord of the exponential.
        growth = reach * reach / 24 * (1 + jnp.expm1(reach) / 5)
        even = reach * reach / self.flattest
        # Zero over zero, where a margin is so large that its `phi''` is none, says nothing.
        above = jnp.fmin(growth, even / 576)
        below = jnp.fmin(0.5 * growth, even / 192)
        unit = 0.5 * float(jnp.finfo(away.dtype).eps)
        doubt = ((4 * (away.size + kept) + 64) * unit + self.doubt) * square
        trace = jnp.sum(self.curvatures)
        sizes = trace * (1 + reach + above)
        sizes += jnp.sqrt(sum(jnp.sum(part * part) for part in self.cubic)) * distance
        error = doubt * sizes
        most = 0.5 * form + third + cut + above * form + error
        # No second derivative is above 1/4: a bound also where the others overflow.
        # Infinite where numbers overflow; valid ones are never negative.
        most = jnp.where(most >= 0, most, jnp.inf)
        most = jnp.fmin(most, reach * reach / 8 + doubt * self.longest * self.longest)
        least = 0.5 * form + third - cut - below * form - error
        # Far away the polynomial says nothing: the curvature falls by `exp(-s)` at the most.
        far = 0.5 * jnp.exp(-reach / 3) * (form - doubt * trace * (1 + reach))
        # Not below the tangent; and where numbers overflow that is all that is known.
        least = jnp.fmax(jnp.fmax(least, far), 0)
        ridge = 0.5 * regularisation * square
        common = doubt * regularisation + 2 * self.slope * distance
        return ridge + least - common, ridge + most + common
