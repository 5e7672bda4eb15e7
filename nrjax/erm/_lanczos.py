"""A cheap look at a linear system: how long its solution is at least."""

import jax
import jax.numpy as jnp
from jax import Array

_STEPS = 8
_MARGIN = 1e-3
"""Relative; far above the rounding of a few steps, also in float32."""


def solution_norm(matrix: Array, vector: Array) -> Array:
    """A lower bound of `|A^-1 c|`; infinite where A is seen not to be positive semidefinite.

    `|c| (T^-1)_11` with a tridiagonal T, which is A on a subspace, from a few Lanczos steps from c
    (Golub and Meurant 2010). A has shape (d, d) and is symmetric, c has shape (d,); where it is 0
    or not finite, so is the bound, or it is NaN.
    """

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple, tuple[Array, Array]]:
        before, now, beta = carry
        image = jnp.matmul(matrix, now, precision=jax.lax.Precision.HIGHEST)
        alpha = jnp.dot(now, image)
        rest = image - alpha * now - beta * before
        beta = jnp.linalg.norm(rest)
        return (now, jnp.where(beta > 0, rest / beta, 0), beta), (alpha, beta)

    # In units in which neither large nor small numbers are lost in their squares.
    size, largest = jnp.max(jnp.abs(matrix)), jnp.max(jnp.abs(vector))
    size = jnp.where(size < jnp.finfo(matrix.dtype).tiny, 1, size)
    matrix, scaled = matrix / size, vector / jnp.where(largest > 0, largest, 1)
    length = jnp.linalg.norm(scaled)
    start = jnp.where(largest > 0, scaled / length, 0)
    length = length * (largest / size)
    first = (jnp.zeros_like(start), start, jnp.zeros((), matrix.dtype))
    _, (alphas, betas) = jax.lax.scan(step, first, None, length=_STEPS)
    # T + margin I in place of T: longer solutions and negative pivots only where T has them.
    margin = _MARGIN * jnp.max(jnp.abs(alphas) + betas)
    pivot, weight = alphas[0] + margin, jnp.ones((), matrix.dtype)
    negative, inverse = pivot < 0, 1 / pivot
    for alpha, beta in zip(alphas[1:], betas[:-1], strict=True):
        factor = beta / pivot
        pivot, weight = alpha + margin - beta * factor, -factor * weight
        negative |= pivot < 0
        inverse += weight * weight / pivot
    return jnp.where(negative, jnp.inf, (1 - _MARGIN) * length * inverse)
