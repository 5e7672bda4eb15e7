"""Baselines for counts of unknown keys: one release at an epsilon that is fixed in advance."""

from __future__ import annotations

import dataclasses
import decimal
import math
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.keys import check_key
from nrjax._base.modes import neutral_config
from nrjax._base.normals import normals
from nrjax._base.numerics import check_wide
from nrjax._base.pytrees import Pytree, record, static
from nrjax._base.threefry import jax_key
from nrjax._base.validation import (
    as_floats,
    check,
    check_choice,
    check_made_in,
    check_number,
    check_numbers,
    check_positive,
    widest_made,
)
from nrjax.counts.unknown_keys import check_held, common_changes, laplace_quantile
from nrjax.guarantees import HockeyStickBoundary
from nrjax.processes._kernel import laplace, random_bits

_ONE, _SHIFT = 2**64, 192
"""The probability 1 in units of the chances, and the number of bits of fractions of numbers."""
_ROUNDING = decimal.Decimal("1e-15")
"""Relative rounding error of an epsilon and a delta per key."""
_LARGEST = 16.0
"""Largest epsilon of geometric noise per key, beyond which it is no larger than at this one."""
_MOST = 2**20
"""Largest number of counts that geometric noise may hide."""
_LEAST = 0.001
"""Smallest epsilon per changed key that Laplace noise in float32 resolves."""
METHODS = ("laplace", "gaussian", "geometric")

_UP = 1 + 32 * float(np.finfo(np.float32).eps)
"""Factor of scales and thresholds, for the rounding of noise and of thresholds."""


@record
class KeyCounts(NamedTuple):
    """The result of a `KeyThreshold` trial.

    Attributes:
        release: noisy counts of the keys that are shown, and 0 for the others, shape (keys,).
        found: number of keys shown whose noisy count is at least `least`, int32.
    """

    release: Array
    found: Array


class KeyThreshold(Pytree):
    """A custom trial that shows the keys whose noisy count is above a threshold, once.

    Use it as the baseline of `unknown_keys`, which finds the epsilon that is needed. The release is
    (epsilon, delta)-differentially private. With m keys per user, of whose counts M change
    (`M = m`, or `2m` for replacement), the methods of `fitted` are:

    * "laplace": noise of scale `M/epsilon`, which shows a key of one user with probability p, where
      `1 - (1 - p)^m = delta` (Korolova et al. 2009).
    * "gaussian": noise of the exact Gaussian mechanism at half of delta, and p for the other half.
    * "geometric": integer noise with `epsilon/M` per key, geometric and cut off at both ends, which
      shows a key with the largest probability possible if M = 1. The probability is that of the
      optimal partition selection (Desfontaines, Voss, Gipson and Mandayam 2022), rounded down.
      Draws have 64 bits, in float32 too.

    The parameter of the noise allows for the factor `(1 - p)^-m` between neighbours.

    Epsilon and delta hold for real numbers, and for "geometric" as computed. The low bits of floats
    reveal more. In float32 Laplace noise has 32 random bits. For one key (M = 1) and noisy counts
    that are rounded to whole numbers, the table states the delta at the stated epsilon, and the
    epsilon at a delta of 1e-6 as a multiple of the stated epsilon, both computed exactly:

    ==============  =====  =====  =====  =====  =====  ============
    stated epsilon  1      0.1    0.01   0.003  0.001  0.0001
    delta           2e-9   1e-7   2e-6   8e-6   2e-5   4e-4
    multiple        1      1      1.001  1.03   2      above 500
    ==============  =====  =====  =====  =====  =====  ============

    `fitted` refuses Laplace noise in float32 if `epsilon/M` is below 0.001.

        >>> trial = nrjax.counts.KeyThreshold.fitted(
        ...     [900, 400, 1, 1], "laplace", epsilon=1.0, delta=1e-6, keys_per_user=1)
        >>> round(trial.threshold, 1), int(trial.run(jax.random.key(0)).found)
        (14.1, 2)

    Attributes:
        counts: number of users who hold each key, at least 1, shape (keys,).
        scale: scale of the Laplace noise, standard deviation of the Gaussian noise, or `1/epsilon`
            of the geometric noise per key.
        threshold: noisy count above which a key is shown, and the largest geometric noise.
        least: smallest noisy count that `found` includes.
        method: "laplace", "gaussian" or "geometric" (static).
        chances: probabilities with which counts 1, 2, ... are shown, times 2^64, in two words,
            uint32, shape (2, size), for geometric noise; else None.
        made_in: float dtype for which the counts and the threshold were made (static). `run`
            refuses a narrower one.
    """

    counts: Any
    scale: Any
    threshold: Any
    least: ArrayLike = -math.inf
    method: str = static(default="laplace")
    chances: Any = dataclasses.field(default=None, repr=False)
    made_in: str | None = static(default=None, repr=False)

    def __post_init__(self):
        check_held(self.counts)
        check_positive("scale", self.scale)
        check_positive("threshold", self.threshold)
        check_numbers("least", self.least, lambda n: ~np.isnan(n), "a number, not NaN")
        check_choice("method", self.method, METHODS)
        fits = (self.chances is not None) == (self.method == "geometric")
        hint = "Use KeyThreshold.fitted."
        check(fits, "chances", self.chances, "given for geometric noise only", hint)
        object.__setattr__(self, "made_in", widest_made(self.made_in))

    @classmethod
    def fitted(
        cls,
        counts: ArrayLike,
        method: str,
        *,
        epsilon: float,
        delta: float,
        keys_per_user: int,
        relation: str = "add-remove",
        error: float = math.inf,
    ) -> KeyThreshold:
        """Return the trial whose release costs `epsilon` and `delta`.

        Args:
            counts: number of users who hold each key, at least 1, shape (keys,).
            method: kind of noise.
            epsilon: epsilon of the release.
            delta: delta of the release, at most 0.1.
            keys_per_user: largest number of keys that a user holds.
            relation: "add-remove" or "replace".
            error: largest standard deviation, relative to the noisy count, of a key in `found`.

        Raises:
            ValueError: an argument is out of range, or epsilon is too small for delta or for the
                bits of the noise.
        """
        changes = common_changes(keys_per_user, relation)
        check_choice("method", method, METHODS)
        fits, expected = lambda n: (n >= 1e-12) & (n <= 300), "from 1e-12 to 300"
        epsilon = check_number("epsilon", epsilon, fits, expected)  # a narrow one rounds the scale
        fits, expected = lambda n: (n > 0) & (n <= 0.1), "above 0 and at most 0.1"
        delta = check_number("delta", delta, fits, expected)
        part, chances = delta / 2 if method == "gaussian" else delta, None
        # Geometric noise has an end, which every change moves: changes share delta, not keys.
        chance = -math.expm1(
            math.log1p(-part) / (changes if method == "geometric" else keys_per_user)
        )
        expected = f"large enough for {keys_per_user} keys per user"
        check(chance >= 1e-300, "delta", delta, expected)
        rest = epsilon + keys_per_user * math.log1p(-chance)
        check(rest > 0, "epsilon", epsilon, f"above delta = {delta}, or much above it")
        if method == "gaussian":
            from scipy.special import ndtri  # slow to import

            width = math.sqrt(changes)
            time = HockeyStickBoundary.single(width, delta - part, epsilon=rest).times[0]
            deviation = scale = math.sqrt(float(time)) * _UP
            threshold = 1 - scale * float(ndtri(chance)) * _UP
        elif method == "geometric":
            each = epsilon / changes
            found = _chances(each, chance)
            weights = np.diff(np.array(found, float) / _ONE, prepend=0.0)
            scale, threshold = 1 / each, int(np.argmax(weights))  # the likeliest noise is 0
            deviation = math.sqrt(weights @ (threshold - np.arange(len(found))) ** 2)
            found += [_ONE] * (2 ** math.ceil(math.log2(len(found) + 1)) - len(found))
            words = np.array([min(number, _ONE - 1) for number in found], np.uint64)
            chances = np.stack([words >> 32, words & 0xFFFFFFFF]).astype(np.uint32)
        else:
            scale = changes / rest * _UP
            _check_resolved(epsilon, changes)
            deviation = math.sqrt(2) * scale
            threshold = 1 + scale * laplace_quantile(chance) * _UP
        least = deviation / error
        counts = as_floats("counts", counts, lambda n: n.ndim == 1, "a vector of whole numbers")
        return cls(counts, scale, float(threshold), least, method, chances)

    @neutral_config()
    def run(self, key: Array) -> KeyCounts:
        """Run the trial with a random key, also under `jit` and `vmap`.

        Raises:
            ValueError: `key` is not a key, or the trial was made in a wider float dtype.
        """
        check_wide("trial", self)
        dtype = jnp.result_type(float)
        check_made_in("KeyThreshold", self.made_in, dtype)
        counts, scale = jnp.asarray(self.counts, dtype), jnp.asarray(self.scale, dtype)
        key = jax_key(check_key(key))
        if self.method == "gaussian":
            noise = scale * normals(key, counts.shape, dtype)
        elif self.method == "geometric":
            words = jax.random.bits(key, (2, *counts.shape), jnp.uint32)
            noise = self.threshold - _below(jnp.asarray(self.chances), *words).astype(dtype)
        else:
            noise = scale * laplace(random_bits(key, counts.shape, dtype), dtype)
        # For a count of 1 the right side is the threshold minus 1, without further rounding.
        is_shown = noise > jnp.asarray(self.threshold, dtype) - counts
        release = jnp.where(is_shown, counts + noise, 0)
        found = jnp.sum(is_shown & (release >= self.least), dtype=jnp.int32)
        return KeyCounts(release, found)


def _check_resolved(epsilon: float, changes: int) -> None:
    """Check that Laplace noise has enough random bits for the epsilon of each changed key."""
    least = _LEAST * changes
    expected = f"at least {least:g} for Laplace noise in float32, whose bits resolve no less"
    hint = "Use method='geometric', or float64 (JAX_ENABLE_X64=1)."
    wide = jnp.finfo(jnp.result_type(float)).bits > 32
    check(wide or epsilon >= least, "epsilon", epsilon, expected, hint)


def _chances(epsilon: float, delta: float) -> list[int]:
    """Return the largest probabilities with which counts 1, 2, ... may be shown, times 2^64.

    They are the optimal ones, `p(n + 1) = min(e p(n) + delta, 1 - (1 - p(n) - delta)/e, 1)` with
    `p(0) = 0` and `e = exp(epsilon)` (Desfontaines, Voss, Gipson and Mandayam 2022),
    rounded down, up to the first that is 1.
    """
    with decimal.localcontext(prec=60):
        level = decimal.Decimal(min(epsilon, _LARGEST)) * (1 - _ROUNDING)
        grown = level.exp() * (1 - decimal.Decimal("1e-55"))
        e = int(grown * 2**_SHIFT)

    def curve(step: int) -> list[int]:
        found = [0]
        while found[-1] < _ONE and len(found) <= _MOST:
            rest = _ONE - found[-1] - step
            up, down = (found[-1] * e >> _SHIFT) + step, _ONE + ((-rest << _SHIFT) // e)
            found.append(min(up, down, _ONE))
        return found[1:]

    step = int(Fraction(delta) * Fraction(1 - _ROUNDING) * _ONE)
    # Each number is rounded down by less than 1, which adds at most e to each term of a divergence.
    step -= (2 * len(curve(step)) + 8) * ((e >> _SHIFT) + 1)
    expected = "above 1e-10, or much larger for a small epsilon"
    check(step > 0, "delta", delta, expected)
    found = curve(step)
    check(found[-1] == _ONE, "epsilon", epsilon, f"such that counts up to {_MOST:,} are shown")
    return found


def _below(chances: Array, high: Array, low: Array) -> Array:
    """Return how many of the rising `chances` are at most a random number, by bisection.

    Args:
        chances: high and low words of the numbers, uint32, shape (2, 2^k).
        high: high words of random numbers.
        low: low words of random numbers.
    """
    place, size = jnp.zeros(high.shape, jnp.int32), chances.shape[1]
    while size > 1:
        size //= 2
        first, second = chances[:, place + (size - 1)]
        is_below = (first < high) | ((first == high) & (second <= low))
        place = jnp.where(is_below, place + size, place)
    return place
