"""Differences of Skellam log probabilities, without differences of large numbers.

p(k) is the probability that a difference of Poisson counts with means m1 and m2 is k. With
`z = 2 sqrt(m1 m2)`, `w(k) = sqrt(k^2 + z^2)` and the saddle point
`theta(k) = log((k + w)/(2 m1))`, Debye's uniform expansion of `I_k(z)` (NIST Digital Library of
Mathematical Functions, DLMF, 10.41.3) reads

    log p(k) = w - m1 - m2 - k theta(k) - log(2 pi w)/2 + S(k),   S = sum_j D_j(k/w)/k^j,

for either sign of k. At z = 0 it is Stirling's series. The expansion is used for w >= 20. For
smaller w, |k| is first moved to 20 by the backward recurrence of `I_{k+1}/I_k` (DLMF 10.29.1), with
Amos's bound as its start (D. E. Amos, Computation of modified Bessel functions and their ratios,
1974).
"""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_BASE = 20  # the first omitted term of S is below 1e-10 from w = 20 on
_TERMS = 8
_WARM_UP = 12  # steps after which the start of the recurrence matters by less than 1e-14


@jax.jit
def log_ratio(k: Array, shift: Array, mean1: Array, mean2: Array, excess: Array) -> Array:
    """Return `log p(k) - log p(k + shift)` for a difference of Poisson counts, elementwise.

    p(k) is the probability that Poisson(mean1) - Poisson(mean2) is k. The result is infinite if
    p(k + shift) = 0. One of the means may be 0.

    Args:
        k: the noise, integers with p(k) > 0.
        shift: the integers that are added to k.
        mean1: mean of the positive count.
        mean2: mean of the negative count.
        excess: `mean1 - mean2`, given separately because rounded means lose its digits.
    """
    shifted = k + shift
    # A shift from k to about -k is reflected by p(k)/p(-k) = (mean1/mean2)^k: it would cancel.
    mirrored = (k * shifted < 0) & (2 * jnp.abs(k + shifted) < jnp.abs(shift))
    target = jnp.where(mirrored, -shifted, shifted)
    tilt = jnp.where(excess > 0, jnp.log1p(excess / mean2), -jnp.log1p(-excess / mean1))
    reflection = jnp.where(mirrored, -shifted * tilt, 0)

    z = 2 * jnp.sqrt(mean1) * jnp.sqrt(mean2)
    log_ratios = _log_ratios(mean1, mean2, z)
    x, step_x = _lift(k, target, mean1, mean2, z, log_ratios)
    y, step_y = _lift(target, k, mean1, mean2, z, log_ratios)

    w_x, w_y = jnp.hypot(x, z), jnp.hypot(y, z)
    theta_x = _saddle(x, w_x, mean1, mean2, excess)
    theta_y = _saddle(y, w_y, mean1, mean2, excess)
    # The main term is the integral of theta from x to y, in closed form: every factor is accurate.
    slope = (theta_x + theta_y) / 2 + (x + y) / (w_x + w_y) * _langevin((theta_y - theta_x) / 2)
    correction = jnp.log(w_y / w_x) / 2 + _series(x, w_x) - _series(y, w_y)
    loss = (y - x) * slope + correction + (step_x - step_y) + reflection
    impossible = ((shifted > 0) & (mean1 == 0)) | ((shifted < 0) & (mean2 == 0))
    return jnp.where(shift == 0, 0, jnp.where(impossible, jnp.inf, loss))


def _log_ratios(mean1, mean2, z):
    """Return the log of `prod_{j=a}^{19} (2/z) I_{j+1}(z)/I_j(z)` for a = 0 ... 20.

    The result has shape (21,).
    """
    product = mean1 * mean2

    def down(ratio, order):
        # I_{j-1} = I_{j+1} + (2j/z) I_j, in units that stay finite at z = 0.
        ratio = 1 / (order + product * ratio)
        return ratio, ratio

    top = _BASE + _WARM_UP
    start = 2 / (top + 0.5 + jnp.hypot(top + 1.5, z))
    orders = jnp.arange(1, top + 1, dtype=z.dtype)
    ratios = jax.lax.scan(down, start, orders, reverse=True)[1][:_BASE]
    return jnp.append(jax.lax.cumsum(jnp.log(ratios), reverse=True), jnp.zeros((), z.dtype))


def _lift(k, partner, mean1, mean2, z, log_ratios):
    """Move k to 20 or -20 if w(k) < 20. Return the new k and `log p(k) - log p(new k)`."""
    # k = 0 moves to the partner's side, which is in the support and needs no reflection.
    side = jnp.where(jnp.where(k == 0, partner, k) < 0, -1, 1)
    size = jnp.abs(k)
    small = jnp.hypot(k, z) < _BASE
    size_small = jnp.where(small, size, _BASE)
    log_mean = jnp.where(side > 0, jnp.log(mean1), jnp.log(mean2))
    step = -(_BASE - size_small) * log_mean - log_ratios[size_small.astype(jnp.int32)]
    return jnp.where(small, side * _BASE, k).astype(k.dtype), jnp.where(small, step, 0)


def _saddle(k, w, mean1, mean2, excess):
    """Return the saddle point `theta(k)`, accurately even near the mean, where it is small."""
    side = jnp.where(k < 0, -1, 1)
    mean = jnp.where(k < 0, mean2, mean1)
    size = jnp.abs(k) + w
    near = side * (k - excess) * (size + 2 * mean) / ((w + mean1 + mean2) * 2 * mean)
    # Square roots first, because the quotient itself may overflow.
    far = 2 * jnp.log(jnp.sqrt(size) / jnp.sqrt(2 * mean))
    return side * jnp.where(jnp.abs(near) < 0.5, jnp.log1p(near), far)


def _langevin(h):
    """Return the function `h coth h - 1`, accurately even near h = 0."""
    s = h * h
    series = s / 3 * (1 - s / 15 * (1 - s * 2 / 21 * (1 - s / 10 * (1 - s * 10 / 99))))
    far = jnp.abs(h) > 0.1
    safe = jnp.where(far, h, 1)
    return jnp.where(far, safe / jnp.tanh(safe) - 1, series)


def _series(k, w):
    """Return the correction `S(k) = sum_j D_j(k/w)/k^j` of Debye's expansion."""
    square = (k / w) ** 2
    total = 0.0
    for row in reversed(_DEBYE):
        term = 0.0
        for coefficient in reversed(row):
            term = term * square + coefficient
        total = (total + term) / w
    return total


def _debye(terms: int) -> list[list[float]]:
    """Return the coefficients of `D_j(p)/p^j` in p^2, where `exp(sum D_j/k^j) = sum U_j/k^j`.

    They follow from the recurrence of U (DLMF 10.41.9). With `a = p^2 (1 - p^2)` and `d_j = D_j'`,
    `d_{j+1} = ((a d_j)' + a sum_{i<j} d_i d_{j-i})/2`, `d_1 = (1 - 5 p^2)/8`, `D_j(0) = 0`.
    """
    one, times = Fraction(1), np.convolve  # exact coefficients in rising powers of p
    a = np.array([0, 0, one, 0, -one])
    slopes = [np.array([one / 8, 0, -5 * one / 8])]
    for j in range(1, terms):
        square: Any = sum(times(slopes[i], slopes[j - 2 - i]) for i in range(j - 1))
        derivative = (np.arange(3 * j + 4) * times(a, slopes[-1]))[1:]
        slopes.append((derivative + (times(a, square) if j > 1 else 0)) / 2)
    rows = []
    for j, slope in enumerate(slopes, start=1):
        rows.append([float(c / (i + 1)) for i, c in enumerate(slope)][j - 1 :: 2])
    return rows


_DEBYE = _debye(_TERMS)
