"""Householder reduction of many symmetric matrices to tridiagonal form, and the way back.

One matrix-vector product and one rank-two update a reflector, which XLA vectorises well over a
batch, while a batched eigendecomposition is one LAPACK call after another. The trailing matrix
shrinks in a few stages of static size.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

_BLOCK = 16
"""Sizes are padded to multiples of this, so that rows fill whole vector registers."""


class Tridiagonal(NamedTuple):
    """`matrix = Q T Q'` for each of the lanes."""

    diagonal: Array
    """Of T, shape (lanes, size)."""
    off_diagonal: Array
    """Of T, shape (lanes, size - 1)."""
    reflectors: tuple[Array, ...]
    """By stage: vectors v of norm sqrt(2) or 0, Q the product of the `I - v v'` in order."""


def padded(size: int) -> int:
    """The size that `tridiagonalise` wants matrices of this size padded to."""
    return -(-size // _BLOCK) * _BLOCK


def _stages(size: int) -> list[tuple[int, int]]:
    """Where each stage starts, and how many columns it reduces; at most three stages."""
    whole = padded(size)
    length = -(-whole // (3 * _BLOCK)) * _BLOCK
    last = max(size - 2, 0)
    return [(at, min(length, last - at)) for at in range(0, last, length)]


def _diagonal(matrix: Array) -> Array:
    """Diagonals of a batch; by a sum, since a gather takes one element at a time."""
    return jnp.sum(jnp.where(jnp.eye(matrix.shape[1], dtype=bool), matrix, 0), axis=2)


def tridiagonalise(matrix: Array, size: int) -> Tridiagonal:
    """Reduce by orthogonal transformations that keep the first coordinate.

    The matrices have shape (lanes, padded(size), padded(size)) and are symmetric, zero beyond
    `size`, and of the order of 1, for the squares not to overflow.
    """
    lanes, whole, _ = matrix.shape
    v = w = jnp.zeros((lanes, whole), matrix.dtype)
    off = jnp.zeros((size - 1, lanes), matrix.dtype)
    diagonal, reflectors, reached = [], [], 0
    for at, count in _stages(size):
        diagonal.append(_diagonal(matrix)[:, : at - reached])
        matrix = matrix[:, at - reached :, at - reached :]
        v, w = v[:, at - reached :], w[:, at - reached :]
        reached = at
        index = jnp.arange(whole - at)

        def reflect(
            k: Array, carry: tuple[Array, ...], index: Array = index, at: int = at
        ) -> tuple[Array, ...]:
            matrix, v, w, stored, off = carry
            # The update of the step before: fused with this step's products it would be taken
            # again for each of them.
            matrix = matrix - v[:, :, None] * w[:, None, :] - w[:, :, None] * v[:, None, :]
            column = jnp.where(index > k, jax.lax.dynamic_index_in_dim(matrix, k, 1, False), 0)
            norm = jnp.sqrt(jnp.einsum("bi,bi->b", column, column))
            # By a sum: an index that moves would be looked up anew wherever XLA fuses this in.
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

        stored = jnp.zeros((lanes, count, whole - at), matrix.dtype)
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
    """`Q vector`; both of shape (lanes, size)."""
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
