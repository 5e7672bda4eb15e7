"""The minimiser of a quadratic over a ball, indefinite matrices included.

The matrix bordered by the linear term is reduced to tridiagonal form (`_tridiagonal.py`), the
multiplier is found there (`_secular.py`), and the minimiser is rotated back: one way for all
cases, described in docs/mathematics.md. Batches go through `jax.custom_batching.custom_vmap`:
nested `vmap`s become one long batch, whose loop over multipliers ends when all lanes are done.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from nrjax._format import representation
from nrjax._numerics import float_dtype
from nrjax._validation import check, concrete_or_none
from nrjax.erm._secular import minimiser, multiplier
from nrjax.erm._tridiagonal import Tridiagonal, padded, rotate_back, tridiagonalise

_TILE = 16
"""Matrices that are reduced together; a tile of them should fit into a core's second cache."""


class BallMinimum(NamedTuple):
    """The minimiser over a ball; NaN if an input is not finite or the radius not positive."""

    argument: Array
    """Shape (d,); of norm at most the radius, up to rounding."""
    multiplier: Array
    """mu >= 0, scalar: `(A + mu I) theta = c`, and 0 where theta is inside the ball."""
    residual: Array
    """`|(A + mu I) theta - c| / (|A| |theta| + |c|)`, scalar; |A| to within a factor of sqrt(3)."""

    __repr__ = representation


def _reduce(problem: tuple[Array, Array, Array]) -> Tridiagonal:
    """`[[0, c'], [c, A]] / unit`, padded with zeros, in tridiagonal form."""
    matrix, vector, unit = problem
    d = vector.shape[1]
    rest = padded(d + 1) - d - 1
    body = jnp.concatenate([vector[:, :, None], matrix], axis=2) * (1 / unit)[:, None, None]
    top = jnp.pad(vector * (1 / unit)[:, None], ((0, 0), (1, rest)))[:, None, :]
    border = jnp.concatenate([top, jnp.pad(body, ((0, 0), (0, rest), (0, rest)))], axis=1)
    return tridiagonalise(border, d + 1)


def _in_tiles(problem: tuple[Array, Array, Array]) -> Tridiagonal:
    def split(array: Array) -> Array:
        rest = ((0, -lanes % _TILE), *((0, 0),) * (array.ndim - 1))
        array = jnp.pad(array, rest, constant_values=1)
        return array.reshape(-1, _TILE, *array.shape[1:])

    lanes = problem[0].shape[0]
    if lanes <= _TILE:
        return _reduce(problem)
    parts = jax.lax.map(_reduce, tuple(map(split, problem)))
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:lanes], parts)


@partial(jax.jit, inline=True)  # traced once, wherever it is used
def _solve(matrix: Array, vector: Array, radius: Array) -> tuple[Array, Array, Array]:
    # Divisions by one number a lane are written as products: XLA rounds them in one of two ways,
    # and not the same for every number of devices.
    # In units in which the ball has radius 1 and the largest entry is 1.
    radius = jnp.where(radius > 0, radius, jnp.nan)
    linear = vector * (1 / radius)[:, None]
    unit = jnp.maximum(jnp.max(jnp.abs(matrix), axis=(1, 2)), jnp.max(jnp.abs(linear), axis=1))
    unit = jnp.where(unit > 0, unit, 1)
    form = _in_tiles((matrix, linear, unit))

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
    # The reflectors have changed its length by a few units in the last place.
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
    raise TypeError("minimise_in_ball has no derivatives: its solution is found in loops")


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


def minimise_in_ball(matrix: ArrayLike, vector: ArrayLike, radius: ArrayLike) -> BallMinimum:
    """Minimise `(1/2) theta'A theta - c'theta` over the ball `|theta| <= radius`.

    A, shape (d, d), is symmetric and may be indefinite or singular; c has shape (d,). Of several
    minimisers one is given. Made for `jit` and `vmap`: batches of powers of two, from 16 on, give
    each problem the same bits whatever its neighbours; alone, a problem may round otherwise.

    Raises:
        ValueError: a shape does not fit, or the radius is not positive (where concrete).
        TypeError: a derivative was asked for.
    """
    matrix, vector = jnp.asarray(matrix), jnp.asarray(vector)
    dtype = float_dtype(matrix, vector, radius)
    matrix, vector = _undifferentiable(matrix.astype(dtype), vector.astype(dtype))
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"vector has shape {vector.shape}: must be (d,), d at least 1")
    if matrix.shape != 2 * vector.shape:
        raise ValueError(f"matrix has shape {matrix.shape}: must be {2 * vector.shape}")
    number = concrete_or_none(radius)
    if number is not None:
        check(number.ndim == 0 and number > 0, "radius", radius, "a positive number")
    radius = jnp.asarray(radius, dtype)
    results = _batch(matrix[None], vector[None], radius[None])
    return BallMinimum(*(leaf[0] for leaf in results))
