"""Poisson and binomial draws that are accurate up to the dtype's largest exact integer.

The samplers of `jax.random` compare log probabilities as large as the count, in float32. Their
distributions are measurably wrong from counts of 1e6 on: at a Poisson mean of 1e7 the standard
deviation is 1 % off, even under x64. The samplers here use only differences from the mode.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import xlogy

REJECTION_FROM = 10.0
"""Smallest mean for draws by transformed rejection (Hörmann 1993).

Below this mean, draws count random gaps.
"""

_TABLE = 16
# log k! - k log k + k for small k, where Stirling's series is not exact.
_STIRLING = np.array([math.lgamma(k + 1) - (k and k * math.log(k)) + k for k in range(_TABLE)])


def largest_count(dtype) -> float:
    """Return the largest count up to which `dtype` holds every integer: 2^24 or 2^53."""
    return 2.0 ** (jnp.finfo(dtype).nmant + 1)


@partial(jax.jit, static_argnames="shape")
def poisson(key: Array, mean: Array, shape: tuple[int, ...]) -> Array:
    """Return Poisson counts of `shape`, in the dtype of `mean`, which broadcasts to `shape`.

    A count is NaN unless its mean is from 0 to 2^24 (2^53 in float64).
    """
    valid = (mean >= 0) & (mean <= largest_count(mean.dtype))
    mean = jnp.broadcast_to(jnp.where(valid, mean, 0), shape)
    large = mean >= REJECTION_FROM
    # An exponential draw is 0 with probability 2^-23, which must not count if the mean is 0.
    floor = float(jnp.finfo(mean.dtype).tiny)
    few = _gaps(key, shape, jnp.where(large, 0, mean), lambda gap: jnp.maximum(gap, floor))
    centre = jnp.where(large, mean, REJECTION_FROM)

    def log_weight(k):
        return -_stirling(k) - centre * _entropy((k - centre) / centre)

    # The Poisson distribution is the binomial's limit at probability 0, with the same hat function.
    many = _rejection(key, large, centre, jnp.sqrt(centre), 0.0, jnp.inf, log_weight)
    return jnp.where(valid, jnp.where(large, many, few), jnp.nan)


@jax.jit
def binomial(key: Array, n: Array, kept: Array, lost: Array) -> Array:
    """Return Binomial(n, kept) draws in the dtype of `n`, where `kept + lost = 1`.

    Both probabilities are arguments so that each has full precision. The result is NaN where an
    argument is negative or NaN.
    """
    shape, dtype = n.shape, n.dtype
    valid = (n >= 0) & (kept >= 0) & (lost >= 0)
    n = jnp.where(valid, n, 0)
    p = jnp.where(valid, jnp.minimum(kept, lost), 0)
    mean = n * p
    large = mean >= REJECTION_FROM
    # Failures between successes are geometric: an exponential in units of -log(1 - p), rounded up.
    unit = -jnp.log1p(-p)
    trials = jnp.where(large, 0, n)
    few = _gaps(key, shape, trials, lambda e: jnp.maximum(jnp.ceil(e / unit), 1))
    # Where rejection is not used, n = 40 and p = 1/4 are harmless.
    size = jnp.where(large, n, 40).astype(dtype)
    p = jnp.where(large, p, 0.25).astype(dtype)
    success, failure = size * p, size * (1 - p)

    def log_weight(k):
        return (
            -_stirling(k)
            - _stirling(size - k)
            - success * _entropy((k - success) / success)
            - failure * _entropy((success - k) / failure)
        )

    deviation = jnp.sqrt(success * (1 - p))
    many = _rejection(key, large, success, deviation, p, size, log_weight)
    drawn = jnp.where(large, many, few)
    return jnp.where(valid, jnp.where(kept <= lost, drawn, n - drawn), jnp.nan)


def _gaps(key, shape, horizon, gap):
    """Return the number of points up to `horizon` in a random sequence with given gaps.

    The gaps are `gap(e)` for standard exponential draws e.
    """

    def body(carry):
        step, total, count = carry
        draw = jax.random.exponential(jax.random.fold_in(key, step), shape, horizon.dtype)
        total = total + gap(draw)
        return step + 1, total, count + (total <= horizon)

    zero = jnp.zeros(shape, horizon.dtype)
    start = (jnp.uint32(0), zero, zero)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1] <= horizon), body, start)[2]


def _rejection(key, active, mean, deviation, p, most, log_weight):
    """Draw counts by transformed rejection, where `active` is true.

    The method is BTRS without its squeeze (Hörmann 1993). Its hat function is above f(k)/f(mode),
    where f(k) is the probability of k, for every mean >= 10 and p <= 1/2.
    """
    shape, dtype = mean.shape, mean.dtype
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    height = jnp.log((2.83 + 5.1 / b) * deviation) + log_weight(jnp.floor(mean + p))

    def draw(step):
        # One key per step, distinct from the keys of `_gaps`, which uses the same `key`.
        streams = jax.random.split(jax.random.fold_in(key, step ^ jnp.uint32(2**31)))
        u = jax.random.uniform(streams[0], shape, dtype) - 0.5
        return u, -jax.random.exponential(streams[1], shape, dtype)

    def body(carry):
        step, drawn, open_, u, log_v = carry
        left = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / left + b) * u + mean + 0.5)
        inside = (k >= 0) & (k <= most)
        weight = log_weight(jnp.where(inside, k, 0))
        accepted = inside & (log_v + height - jnp.log(a / (left * left) + b) <= weight)
        drawn = jnp.where(open_ & accepted, k, drawn)
        return step + 1, drawn, open_ & ~accepted, *draw(step + 1)

    # Draws are made one step ahead: XLA would repeat the hash wherever a step uses its own draw.
    start = (jnp.uint32(0), jnp.zeros(shape, dtype), active, *draw(jnp.uint32(0)))
    return jax.lax.while_loop(lambda carry: jnp.any(carry[2]), body, start)[1]


def _stirling(k):
    """Return `log k! - k log k + k`, which is small, without computing the large terms."""
    table = jnp.asarray(_STIRLING, k.dtype)
    small = table[jnp.clip(k, 0, _TABLE - 1).astype(jnp.int32)]
    safe = jnp.maximum(k, _TABLE)
    square = 1 / (safe * safe)
    series = (1 / 12 - square * (1 / 360 - square / 1260)) / safe
    return jnp.where(k < _TABLE, small, 0.5 * jnp.log(2 * jnp.pi * safe) + series)


def _entropy(x):
    """Return `(1 + x) log(1 + x) - x` for x >= -1, accurately near 0 (Loader 2000)."""
    r = x / (2 + x)
    square = r * r
    tail = 1 / 13
    for n in (11, 9, 7, 5, 3):
        tail = 1 / n + square * tail
    near = x * r + 2 * (1 + x) * r * square * tail
    return jnp.where(jnp.abs(x) < 0.1, near, xlogy(1 + x, 1 + x) - x)
