"""Certificates of pure ex-post rounds with a cap, and of discrete Laplace noise reduction.

In the sense of `nrjax.composition.certificates`, and rounded up as those are; proofs in
`docs/frontier.md`.
"""

import math

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.composition.certificates import (
    _MARGIN,
    _enlarged,
    _log_over,
    _phi,
    _stated,
    laplace_reduction,
)

_TERMS = 14
"""Of a series in `(A m)^2 <= 4`: what is left out is below `4^14/29!`, 1e-22 of the sum."""


def capped(order: ArrayLike, epsilon: ArrayLike, cap: ArrayLike) -> Array:
    """Certificate of a pure ex-post round whose epsilon is at most `cap`, whatever comes out.

    `C(e; m) = e - log(1 + s (1 - exp(-e)))/l`, `s = sinh(l m)/(sinh(A m) - sinh(l m))`, A the order
    and `l = A - 1`. It is below e; at `e = m` it is the divergence of randomised response (`pure`),
    and no certificate that attains that is smaller anywhere. The cap is fixed before the round.

    An epsilon above the cap has no certificate: NaN.
    """
    dtype = float_dtype(order, epsilon, cap)
    order, excess, epsilon, usable = _enlarged(jnp.asarray(order, dtype), epsilon)
    top = jnp.asarray(cap, dtype)
    held = usable & (jnp.asarray(epsilon, dtype) <= top * (1 + 8 * float(jnp.finfo(dtype).eps)))
    # A larger cap is safe.
    top = jnp.where(top >= epsilon, top, epsilon) * (1 + 4 * float(jnp.finfo(dtype).eps))
    top = jnp.where(top > 0, top, 1)
    both, share = order + excess, -jnp.expm1(-epsilon)
    slope = jnp.exp(-top) * -jnp.expm1(-2 * excess * top)
    slope /= -jnp.expm1(-top) * (1 + jnp.exp(-both * top))
    grown = slope * share
    # `exp(l e) - 1 - s (1 - exp(-e))` as a sum of positive terms, over `1 + s (1 - exp(-e))`.
    small = jnp.where(excess * epsilon < 40, epsilon, 0)
    first = excess * (excess * small) * small * _phi(excess * small)
    second = excess * small * small * _phi(-small)
    rest = _excess_less_slope(order, excess, top, slope) * share
    scaled = (first + second + rest) / (1 + grown) / excess
    near = _log_over(scaled, excess)
    far = epsilon - jnp.log1p(grown) / excess
    raw = jnp.where(excess * epsilon < 40, near, far)
    found = _stated(jnp.minimum(raw, epsilon), epsilon, usable, 2 * _MARGIN)
    return jnp.where(held, jnp.minimum(found, _stated(epsilon, epsilon, usable, 2)), jnp.nan)


def _excess_less_slope(order: Array, excess: Array, top: Array, slope: Array) -> Array:
    """`l - s`, which is positive: a series in `(A m)^2` where the difference would cancel."""
    m = jnp.where(order * top < 2, top, 0)
    a, b = (order * m) ** 2, (excess * m) ** 2
    total, power, symmetric = jnp.zeros_like(m), jnp.ones_like(m), jnp.ones_like(m)
    for k in range(1, _TERMS):
        total += symmetric * (1 / math.factorial(2 * k + 1))
        power *= b
        symmetric = a * symmetric + power
    spread = jnp.where(m > 0, 2 * jnp.sinh(0.5 * m) / jnp.where(m > 0, m, 1), 1)
    both = order + excess
    series = order * excess * both * m * m * total / (spread * jnp.cosh(0.5 * both * m))
    return jnp.where(order * top < 2, series, jnp.maximum(excess - slope, 0))


def discrete_laplace_reduction(order: ArrayLike, sensitivity: ArrayLike, time: ArrayLike) -> Array:
    """Certificate of discrete Laplace noise reduction of integer sensitivity D1, stopped at t.

    That of `laplace_reduction` at `e = D1/t` is false here. An upper bound of the least one known:

        C(e) + A/(6 l) [(exp(c x) (c x - 1) + 1)/c^2 - x^2/2],   x = 1/t, c = 2 l D1

    For a vector D1 is all that matters, since both terms are superadditive.
    """
    dtype = float_dtype(order, sensitivity, time)
    whole = jnp.asarray(sensitivity, dtype)
    epsilon = whole / jnp.asarray(time, dtype)
    base = laplace_reduction(order, epsilon)
    order, excess, epsilon, usable = _enlarged(jnp.asarray(order, dtype), epsilon)
    y = 2 * excess * epsilon  # c x
    # `(e^y (y - 1) + 1)/y^2 - 1/2 = sum_(k>=3) (k - 1) y^(k-2)/k!`
    near = jnp.minimum(y, 1)
    series, term = jnp.zeros_like(y), jnp.ones_like(y)
    for k in range(3, 22):
        term = near ** (k - 2) * ((k - 1) / math.factorial(k))
        series += term
    far = jnp.maximum(y, 1)
    bracket = jnp.where(y < 1, series, (jnp.exp(far) * (far - 1) + 1) / far / far - 0.5)
    x = epsilon / whole
    extra = order / (6 * excess) * (x * x * bracket)
    raw = _stated(extra, epsilon, usable, 2 * _MARGIN)
    return base + raw
