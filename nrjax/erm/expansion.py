"""A logistic risk around its optimum: bounds from its derivatives there, without the rows.

What the Taylor polynomial of third order leaves is bounded by the quadratic form that it has anyway
(docs/mathematics.md, "Certified stopping"; Bach 2010 does so for the second order). The third
derivative, a tensor, is kept where the rows are long alone.
"""

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


class Expansion(Pytree):
    """Derivatives of a logistic risk at its optimum, without the regularisation.

    Attributes:
        basis: eigenvectors of the Hessian in columns, shape (d, d), largest eigenvalue first.
        curvatures: the eigenvalues, shape (d,).
        cubic: third derivative in the first k of the eigenvectors, shape (k, k, k).
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
        cubic = np.zeros((kept, kept * kept))
        for part in row_blocks(len(rows), max(kept * kept, optimum.size)):
            some = rows[part] @ basis[:, :kept]
            pairs = (some[:, :, None] * some[:, None, :]).reshape(len(some), -1)
            cubic += (some * (weights * third)[part, None]).T @ pairs
        return cls(
            basis=np.ascontiguousarray(basis),
            curvatures=curvatures,
            cubic=cubic.reshape(kept, kept, kept),
            longest=max(float(np.linalg.norm(rows[some], axis=1).max()) for some in blocks),
            flattest=float(second.min()),
            slope=float(slope),
            # Sums over the rows, and an eigendecomposition.
            doubt=(len(rows) + 100 * optimum.size) * float(np.finfo(np.float64).eps),
        )

    def excess(self, away: Array, regularisation: Array) -> tuple[Array, Array]:
        """Bounds of `R(theta* + away) - R(theta*)`, rounding included; NaN where `away` is."""
        kept = self.cubic.shape[0]
        square = jnp.sum(away * away)
        distance = jnp.sqrt(square)
        reach = self.longest * distance  # no margin moves further
        along = jnp.matmul(away, self.basis, precision=jax.lax.Precision.HIGHEST)
        forms = self.curvatures * along * along
        form, tail = jnp.sum(forms), jnp.sum(forms[kept:])
        leading = along[:kept]
        pairs = (leading[:, None] * leading).reshape(-1)
        turned = jnp.matmul(
            self.cubic.reshape(kept, -1), pairs, precision=jax.lax.Precision.HIGHEST
        )
        third = jnp.sum(leading * turned) / 6
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
        sizes += jnp.sqrt(jnp.sum(self.cubic * self.cubic)) * distance
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
