"""Baselines for counts of unknown keys: one release at an epsilon that is fixed in advance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.keys import check_key
from nrjax._base.normals import normals
from nrjax._base.pytrees import Pytree, record, static
from nrjax._base.threefry import jax_key
from nrjax._base.validation import (
    as_floats,
    check,
    check_choice,
    check_number,
    check_numbers,
    check_positive,
)
from nrjax.counts.unknown_keys import check_held, common_changes, laplace_quantile
from nrjax.guarantees import HockeyStickBoundary
from nrjax.processes._kernel import laplace, random_bits, uniform

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
    * "geometric": integer noise, geometric and cut off at the threshold, with `epsilon/M` per key
      (Desfontaines, Voss and Gipson 2022), which shows the most keys possible if m = 1. Draws in
      float32 are too coarse for a small delta: 1e-6 becomes 1.2e-6 at epsilon 0.1, and 1e-8 becomes
      3.4e-8 at epsilon 0.5. Use float64 (JAX_ENABLE_X64=1).

    The parameter of the noise allows for the factor `(1 - p)^-m` between neighbours.

        >>> trial = nrjax.counts.KeyThreshold.fitted(
        ...     [900, 400, 1, 1], "laplace", epsilon=1.0, delta=1e-6, keys_per_user=1)
        >>> round(trial.threshold, 1), int(trial.run(jax.random.key(0)).found)
        (14.1, 2)

    Attributes:
        counts: number of users who hold each key, at least 1, shape (keys,).
        scale: scale of the Laplace noise, standard deviation of the Gaussian noise, or `1/epsilon`
            of the geometric noise per key.
        threshold: noisy count above which a key is shown. Geometric noise is cut off at it.
        least: smallest noisy count that `found` includes.
        method: "laplace", "gaussian" or "geometric" (static).
    """

    counts: Any
    scale: Any
    threshold: Any
    least: ArrayLike = -math.inf
    method: str = static(default="laplace")

    def __post_init__(self):
        check_held(self.counts)
        check_positive("scale", self.scale)
        check_positive("threshold", self.threshold)
        check_numbers("least", self.least, lambda n: ~np.isnan(n), "a number, not NaN")
        check_choice("method", self.method, METHODS)

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
            ValueError: an argument is out of range, or epsilon is too small for delta.
        """
        changes = common_changes(keys_per_user, relation)
        check_choice("method", method, METHODS)
        epsilon = check_number("epsilon", epsilon)  # a narrow one would round the scale
        fits, expected = lambda n: (n > 0) & (n <= 0.1), "above 0 and at most 0.1"
        delta = check_number("delta", delta, fits, expected)
        part = delta / 2 if method == "gaussian" else delta
        # Geometric noise has an end, which every change moves: changes share delta, not keys.
        chance = -math.expm1(
            math.log1p(-part) / (changes if method == "geometric" else keys_per_user)
        )
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
            scale, threshold = 1 / each, _cut(each, chance)
            distances = np.arange(1, threshold + 1)
            weights = np.exp(-each * distances)
            deviation = math.sqrt(2 * weights @ distances**2 / (1 + 2 * weights.sum()))
        else:
            scale = changes / rest * _UP
            deviation = math.sqrt(2) * scale
            threshold = 1 + scale * laplace_quantile(chance) * _UP
        least = deviation / error
        counts = as_floats("counts", counts, lambda n: n.ndim == 1, "a vector of whole numbers")
        return cls(counts, scale, float(threshold), least, method)

    def run(self, key: Array) -> KeyCounts:
        """Run the trial with a random key, also under `jit` and `vmap`."""
        dtype = jnp.result_type(float)
        counts, scale = jnp.asarray(self.counts, dtype), jnp.asarray(self.scale, dtype)
        key = jax_key(check_key(key))
        if self.method == "gaussian":
            noise = scale * normals(key, counts.shape, dtype)
        else:
            bits = random_bits(key, counts.shape, dtype)
            noise = scale * laplace(bits, dtype)
            if self.method == "geometric":
                noise = _geometric(jax.random.fold_in(key, 1), bits, self.threshold, scale)
        # For a count of 1 the right side is the threshold minus 1, without further rounding.
        is_shown = noise > jnp.asarray(self.threshold, dtype) - counts
        release = jnp.where(is_shown, counts + noise, 0)
        found = jnp.sum(is_shown & (release >= self.least), dtype=jnp.int32)
        return KeyCounts(release, found)


def _cut(epsilon: float, delta: float) -> int:
    """Return the largest absolute value k of geometric noise, whose probability is <= delta."""
    grown = math.exp(epsilon)
    k = math.ceil(math.log((grown + 2 * delta - 1) / ((grown + 1) * delta)) / epsilon * (1 + 1e-12))
    return max(k, 1)


def _geometric(key: Array, bits: Array, cut: Any, scale: Array) -> Array:
    """Return geometric noise on the integers from -cut to cut, by inverse transform.

    `P(|X| >= j) = (exp(-(j - 1) e) - exp(-cut e)) / (exp(e)/2 + 1/2 - exp(-cut e))` for j >= 1.
    """
    e, dtype = 1 / scale, scale.dtype
    end = jnp.exp(-jnp.asarray(cut, dtype) * e)
    draw = uniform(bits, dtype) * ((jnp.exp(e) + 1) / 2 - end) + end
    distance = jnp.where(draw > 1, 0, 1 + jnp.floor(-jnp.log(draw) * scale))
    sign = jax.random.rademacher(key, bits.shape, dtype)
    return sign * jnp.minimum(distance, cut)
