"""Householder reduction of many symmetric matrices to tridiagonal form, and its inverse.

Each reflector takes one matrix-vector product and one rank-two update, which XLA vectorises over
the batch. (A batched eigendecomposition on a CPU is a sequence of LAPACK calls.) The part of the
matrix that is not yet reduced shrinks in a few stages of static size.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

_BLOCK = 16
"""The number whose multiples are the padded sizes, so that rows fill vector registers."""


class Tridiagonal(NamedTuple):
    """The factors of `matrix = Q T Q'` for each lane.

    Attributes:
        diagonal: diagonal of T, shape (lanes, size).
        off_diagonal: off-diagonal of T, shape (lanes, size - 1).
        reflectors: one array per stage, shape (lanes, columns, rows), of vectors v with norm
            sqrt(2) or 0. Q is the product of all `I - v v'` in order.
    """

    diagonal: Array
    off_diagonal: Array
    reflectors: tuple[Array, ...]


def padded(size: int) -> int:
    """Return the size to which a matrix must be padded for `tridiagonalise`."""
    return -(-size // _BLOCK) * _BLOCK


def _stages(size: int) -> list[tuple[int, int]]:
    """Split the columns into at most three stages, each (first column, number of columns)."""
    length = -(-padded(size) // (3 * _BLOCK)) * _BLOCK
    last = max(size - 2, 0)
    return [(at, min(length, last - at)) for at in range(0, last, length)]


def _diagonal(matrix: Array) -> Array:
    """Return the diagonals of a batch, by sums, since XLA gathers one element at a time."""
    return jnp.sum(jnp.where(jnp.eye(matrix.shape[1], dtype=bool), matrix, 0), axis=2)


def tridiagonalise(matrix: Array, size: int) -> Tridiagonal:
    """Reduce matrices to tridiagonal form by reflections that keep the first coordinate.

    The matrices have shape (lanes, padded(size), padded(size)). They are symmetric, zero beyond
    `size`, and of the order of 1, so that squares do not overflow.
    """
    lanes, length, _ = matrix.shape
    v = w = jnp.zeros((lanes, length), matrix.dtype)
    off = jnp.zeros((size - 1, lanes), matrix.dtype)
    diagonal, reflectors, reached = [], [], 0
    for at, count in _stages(size):
        diagonal.append(_diagonal(matrix)[:, : at - reached])
        matrix = matrix[:, at - reached :, at - reached :]
        v, w = v[:, at - reached :], w[:, at - reached :]
        reached = at
        index = jnp.arange(length - at)

        def reflect(
            k: Array, carry: tuple[Array, ...], index: Array = index, at: int = at
        ) -> tuple[Array, ...]:
            matrix, v, w, stored, off = carry
            # The update of the previous step is made here, because XLA would otherwise fuse it with
            # the products of this step and repeat it for each of them.
            matrix = matrix - v[:, :, None] * w[:, None, :] - w[:, :, None] * v[:, None, :]
            column = jnp.where(index > k, jax.lax.dynamic_index_in_dim(matrix, k, 1, False), 0)
            norm = jnp.sqrt(jnp.einsum("bi,bi->b", column, column))
            # A sum, because XLA would repeat a dynamic index wherever it fuses this expression.
            first = jnp.sum(jnp.where(index == k + 1, column, 0), axis=1)
            target = jnp.where(first >= 0, -norm, norm)  # no cancellation in first - target
            half = norm * (norm + jnp.abs(first))  # half the squared norm of the reflector
            scale = jnp.where(half > 0, jax.lax.rsqrt(jnp.where(half > 0, half, 1)), 0)
            v = (column - jnp.where(index == k + 1, target[:, None], 0)) * scale[:, None]
            p = jnp.einsum("bij,bj->bi", matrix, v, precision=jax.lax.Precision.HIGHEST)
            w = p - 0.5 * jnp.einsum("bi,bi->b", p, v)[:, None] * v
            stored = jax.lax.dynamic_update_index_in_dim(stored, v, k, 1)
            off = jax.lax.dynamic_update_index_in_dim(off, target, at + k, 0)
            return matrix, v, w, stored, off

        stored = jnp.zeros((lanes, count, length - at), matrix.dtype)
        matrix, v, w, stored, off = jax.lax.fori_loop(
            0, count, reflect, (matrix, v, w, stored, off)
        )
        reflectors.append(stored)
    matrix = matrix - v[:, :, None] * w[:, None, :] - w[:, :, None] * v[:, None, :]
    diagonal.append(_diagonal(matrix)[:, : size - reached])
    if size > 1:
        off = off.at[size - 2].set(matrix[:, size - 2 - reached, size - 1 - reached])
    return Tridiagonal(jnp.concatenate(diagonal, axis=1), off.T, tuple(reflectors))


def rotate_back(tridiagonal: Tridiagonal, vector: Array) -> Array:
    """Return the product of Q and `vector` for each lane, shape (lanes, size)."""
    size = vector.shape[1]
    stages = list(zip(_stages(size), tridiagonal.reflectors, strict=True))
    for (at, count), stored in reversed(stages):
        tail = jnp.pad(vector[:, at:], ((0, 0), (0, padded(size) - size)))

        def reflect(i: Array, tail: Array, stored: Array = stored, count: int = count) -> Array:
            v = jax.lax.dynamic_index_in_dim(stored, count - 1 - i, 1, False)
            return tail - jnp.einsum("bi,bi->b", v, tail)[:, None] * v

        tail = jax.lax.fori_loop(0, count, reflect, tail)
        vector = jnp.concatenate([vector[:, :at], tail[:, : size - at]], axis=1)
    return vector
