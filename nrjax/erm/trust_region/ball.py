"""Minimisation of a quadratic over a ball, made for `vmap`.

`jax.custom_batching.custom_vmap` turns nested `vmap`s into one long batch. The loop over
multipliers stops when all problems of the batch (lanes) are solved.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import record
from nrjax._base.tracing import INLINE
from nrjax._base.validation import check, concrete_or_none
from nrjax.erm.trust_region.secular import minimiser, multiplier
from nrjax.erm.trust_region.tridiagonal import Tridiagonal, padded, rotate_back, tridiagonalise

_TILE = 16
"""Number of matrices that a CPU reduces together, few enough for a core's level-2 cache."""


@record
class BallMinimum(NamedTuple):
    """The minimiser of `(1/2) theta'A theta - c'theta` over a ball.

    All attributes are NaN if an input is not finite or the radius is not positive.

    Attributes:
        argument: minimiser theta, shape (d,), of norm at most the radius up to rounding.
        multiplier: the mu >= 0, scalar, with `(A + mu I) theta = c`. It is 0 if theta is inside the
            ball.
        residual: `|(A + mu I) theta - c| / (|A| |theta| + |c|)`, scalar, where |A| is computed to
            within a factor of sqrt(3).
    """

    argument: Array
    multiplier: Array
    residual: Array


def _reduce(matrix: Array, vector: Array, unit: Array) -> Tridiagonal:
    """Return `[[0, c'], [c, A]] / unit` in tridiagonal form, padded with zeros before."""
    d = vector.shape[1]
    rest = padded(d + 1) - d - 1
    body = jnp.concatenate([vector[:, :, None], matrix], axis=2) * (1 / unit)[:, None, None]
    top = jnp.pad(vector * (1 / unit)[:, None], ((0, 0), (1, rest)))[:, None, :]
    border = jnp.concatenate([top, jnp.pad(body, ((0, 0), (0, rest), (0, rest)))], axis=1)
    return tridiagonalise(border, d + 1)


def _reduce_in_tiles(*problem: Array) -> Tridiagonal:
    """Reduce a batch of matrices to tridiagonal form, in tiles of `_TILE` matrices."""
    lanes = len(problem[0])

    def split(array: Array) -> Array:
        rest = ((0, -lanes % _TILE), *((0, 0),) * (array.ndim - 1))
        array = jnp.pad(array, rest, constant_values=1)
        return array.reshape(-1, _TILE, *array.shape[1:])

    parts = jax.lax.map(lambda tile: _reduce(*tile), tuple(map(split, problem)))
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:lanes], parts)


@partial(jax.jit, inline=INLINE)  # a jitted function is traced once
def _solve(matrix: Array, vector: Array, radius: Array) -> tuple[Array, Array, Array]:
    """Return the minimisers, multipliers and residuals of a batch of problems."""
    # Divisions by one number per lane are written as products: XLA rounds divisions in one of two
    # ways, depending on the number of devices.
    # The units are such that the ball has radius 1 and the largest entry is 1.
    radius = jnp.where(radius > 0, radius, jnp.nan)
    linear = vector * (1 / radius)[:, None]
    unit = jnp.maximum(jnp.max(jnp.abs(matrix), axis=(1, 2)), jnp.max(jnp.abs(linear), axis=1))
    unit = jnp.where(unit > 0, unit, 1)
    tiles = _reduce if len(matrix) <= _TILE else _reduce_in_tiles
    form = jax.lax.platform_dependent(matrix, linear, unit, cpu=tiles, default=_reduce)

    diagonal, off = form.diagonal[:, 1:].T, form.off_diagonal[:, 1:].T
    along = form.off_diagonal[:, 0]
    sizes = jnp.pad(jnp.abs(off), ((1, 1), (0, 0)))
    norm = jnp.max(jnp.abs(diagonal) + sizes[1:] + sizes[:-1], axis=0)
    scale = jnp.maximum(norm, jnp.abs(along))
    scale = jnp.where(scale > 0, scale, 1)
    n = jnp.abs(along) / scale
    diagonal, off = diagonal * (1 / scale), off * (1 / scale)
    mu = multiplier(diagonal, off, n)
    x, mu = minimiser(diagonal, off, n, mu)
    x = jnp.where(along < 0, -x, x).T
    x = rotate_back(form, jnp.pad(x, ((0, 0), (1, 0))))[:, 1:]
    # The reflectors change the length of x by a few units in the last place.
    length = jnp.linalg.norm(x, axis=1)
    x = jnp.where(((mu > 0) | (length > 1))[:, None], x * (1 / length)[:, None], x)

    linear = linear * (1 / unit)[:, None]
    product = jnp.einsum("bij,bj->bi", matrix, x, precision=jax.lax.Precision.HIGHEST)
    error = product * (1 / unit)[:, None] + (scale * mu)[:, None] * x - linear
    against = norm * jnp.linalg.norm(x, axis=1) + jnp.linalg.norm(linear, axis=1)
    residual = jnp.linalg.norm(error, axis=1) / jnp.where(against > 0, against, 1)
    return radius[:, None] * x, unit * scale * mu, residual


@jax.custom_jvp
def _undifferentiable(matrix: Array, vector: Array) -> tuple[Array, Array]:
    return matrix, vector


@_undifferentiable.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise TypeError("minimise_in_ball has no derivatives, since it solves by loops")


@custom_vmap
def _batch(matrix: Array, vector: Array, radius: Array) -> tuple[Array, Array, Array]:
    return _solve(matrix, vector, radius)


@_batch.def_vmap
def _flatten(size: int, batched: list[bool], *problem: Array) -> tuple[Any, Any]:
    def flat(array: Array, has_axis: bool) -> Array:
        array = array if has_axis else jnp.broadcast_to(array, (size, *array.shape))
        return array.reshape(-1, *array.shape[2:])

    results = _batch(*map(flat, problem, batched))
    results = tuple(leaf.reshape(size, -1, *leaf.shape[1:]) for leaf in results)
    return results, (True, True, True)


@neutral_config()
def minimise_in_ball(matrix: ArrayLike, vector: ArrayLike, radius: ArrayLike) -> BallMinimum:
    """Minimise `(1/2) theta'A theta - c'theta` over the ball `|theta| <= radius`.

    If several minimisers exist, one of them is returned. Under `vmap`, if the length of the batch
    is a power of two and at least 16, the result of a problem does not depend on the batch, bit for
    bit. Without `vmap` the result may be rounded differently.

        >>> minimum = nrjax.erm.minimise_in_ball(jnp.diag(jnp.array([1.0, -1.0])), jnp.ones(2), 1.0)
        >>> round(float(jnp.linalg.norm(minimum.argument)), 5)
        1.0

    Args:
        matrix: A, shape (d, d), symmetric; it may be indefinite or singular.
        vector: c, shape (d,).
        radius: radius of the ball, a positive scalar.

    Raises:
        ValueError: a shape does not fit, or a concrete radius is not positive.
        TypeError: a derivative is requested.
    """
    matrix, vector = jnp.asarray(matrix), jnp.asarray(vector)
    dtype = float_dtype(matrix, vector, radius)
    matrix, vector = _undifferentiable(matrix.astype(dtype), vector.astype(dtype))
    ok = vector.ndim == 1 and vector.size > 0
    check(ok, "vector", vector.shape, "an array of shape (d,), d at least 1")
    expected = f"an array of shape {2 * vector.shape}"
    check(matrix.shape == 2 * vector.shape, "matrix", matrix.shape, expected)
    number = concrete_or_none(radius)
    if number is not None:
        check(number.ndim == 0 and number > 0, "radius", radius, "a positive number")
    radius = jnp.asarray(radius, dtype)
    results = _batch(matrix[None], vector[None], radius[None])
    return BallMinimum(*(leaf[0] for leaf in results))
