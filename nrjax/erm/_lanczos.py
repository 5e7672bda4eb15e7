"""A cheap look at a linear system: how long its solution is at least."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

_STEPS = 4
_MARGIN = 1e-3
"""Relative; far above the rounding of a few steps, also in float32."""


def solution_norm(
    times: Callable[[Array], Array], vector: Array, apart: float, off: Array
) -> Array:
    """A lower bound of `|B^-1 h|` for all systems near one; infinite where none has B >= 0.

    `|g|^2 (T^-1)_11` is at most `g'A^-1 g`, with a tridiagonal T, which is A on a subspace, from a
    few Lanczos steps from g (Golub and Meurant 2010). See docs/mathematics.md, "Ceilings".

    Args:
        times: the product of A, which is symmetric, with a vector of shape (d,).
        vector: g, shape (d,); where it is 0 or not finite the bound is NaN or 0.
        apart: at most how far B is from A, in the spectral norm.
        off: at most how far h is from g.
    """

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple, tuple[Array, Array]]:
        before, now, beta = carry
        image = times(now)
        alpha = jnp.dot(now, image)
        rest = image - alpha * now - beta * before
        beta = jnp.linalg.norm(rest)
        return (now, jnp.where(beta > 0, rest / beta, 0), beta), (alpha, beta)

    # In units in which neither large nor small numbers are lost in their squares.
    largest = jnp.max(jnp.abs(vector))
    scaled = vector / jnp.where(largest > 0, largest, 1)
    length = jnp.linalg.norm(scaled)
    start = jnp.where(largest > 0, scaled / length, 0)
    length = length * largest
    first = (jnp.zeros_like(start), start, jnp.zeros((), vector.dtype))
    _, (alphas, betas) = jax.lax.scan(step, first, None, length=_STEPS)
    # T + margin I in place of T: longer solutions and negative pivots only where T has them.
    margin = jnp.maximum(_MARGIN * jnp.max(jnp.abs(alphas) + betas), 2 * apart)
    pivot, weight = alphas[0] + margin, jnp.ones((), vector.dtype)
    negative, inverse = pivot < 0, 1 / pivot
    for alpha, beta in zip(alphas[1:], betas[:-1], strict=True):
        factor = beta / pivot
        pivot, weight = alpha + margin - beta * factor, -factor * weight
        negative |= pivot < 0
        inverse += weight * weight / pivot
    lost = off / jnp.sqrt(margin - apart)
    root = (1 - _MARGIN) * jnp.maximum(length * jnp.sqrt(inverse) - lost, 0)
    return jnp.where(negative, jnp.inf, root * (root / (length + off)))
