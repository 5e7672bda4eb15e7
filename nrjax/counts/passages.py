"""The rule that accepts a noisy count, and base classes for the release of one count.

A passage releases one count under noise that falls from level to level, until the noisy count is
accepted or the levels end. It skips levels at which acceptance is practically impossible, without
drawing their noise. The result has the same distribution as if every level were checked.
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.modes import neutral_config
from nrjax._base.normals import normals
from nrjax._base.pytrees import Pytree, static
from nrjax._base.validation import check_probability
from nrjax.composition._state import select
from nrjax.composition.requests import BrownianReduction
from nrjax.types import NoiseProcess, Utility

_MOST_SKIPPED = 30
"""Largest number of tries that doubling skips, so that `2^skipped - 1` is an int32."""


class RelativeError(Pytree):
    """A rule that accepts a noisy count once its relative error is likely below `alpha`.

    With noise of standard deviation d, a noisy count y is accepted if `|y| > d` and
    `1 - alpha < |(y + d)/(y - d)| <= 1 + alpha` (Rogers 2023, section 7.2). Equivalently,
    `y >= upper d` or `y < -lower d`, where `upper = (2 + alpha)/alpha` and
    `lower = (2 - alpha)/alpha`. The rule uses only noisy counts, so it costs no privacy.

        >>> rule = nrjax.counts.RelativeError(0.1)
        >>> bool(rule.accepts(1000.0, 10.0)), bool(rule.accepts(1000.0, 100.0))
        (True, False)

    Attributes:
        alpha: requested relative error, scalar, strictly between 0 and 1.
    """

    alpha: ArrayLike

    def __post_init__(self):
        check_probability("alpha", self.alpha)

    @property
    def upper(self) -> Any:
        """The smallest accepted positive noisy count, in standard deviations of the noise."""
        return (2 + self.alpha) / self.alpha

    @property
    def lower(self) -> Any:
        """The size above which a negative noisy count is accepted, in standard deviations."""
        return (2 - self.alpha) / self.alpha

    @neutral_config()
    def accepts(self, noisy: ArrayLike, deviation: ArrayLike) -> Array:
        """Return whether each noisy count is accepted, given its noise's standard deviation."""
        noisy, deviation = jnp.asarray(noisy), jnp.asarray(deviation)
        return (noisy >= self.upper * deviation) | (noisy < -self.lower * deviation)

    @neutral_config()
    def precise(self, error: ArrayLike, count: ArrayLike) -> Array:
        """Return whether the noise `error` is at most `alpha` times the true count (bool)."""
        return jnp.abs(jnp.asarray(error)) <= self.alpha * jnp.asarray(count)

    @neutral_config()
    def utility(self, process: NoiseProcess, times: ArrayLike) -> Margin:
        """Return the rule as a utility, for noise of `process` at `times`, shape (steps,).

        A trial with this utility and `PublicThreshold(0)` stops where the rule accepts.
        """
        return Margin(self, process.deviation(times))


class Margin(Utility):
    """A utility: the distance of a noisy count from the bounds of `RelativeError`.

    The distance is in standard deviations of the noise, and >= 0 if the rule accepts the count. Use
    `RelativeError.utility` to build this utility.

    Attributes:
        accuracy: the rule that accepts a noisy count.
        deviations: standard deviation of the noise at each step, shape (steps,) or ().
    """

    accuracy: RelativeError
    deviations: Any

    def at(self, step: Array) -> Margin:
        """Return the utility for the noise of one step."""
        return Margin(self.accuracy, jnp.asarray(self.deviations)[step])

    def evaluate(self, hypothesis: Array) -> Array:
        """Return the distance of a noisy count from the rule's bounds, a scalar.

        For a noisy count y under noise of standard deviation d, it is the larger of `y/d - upper`
        and `-y/d - lower`.
        """
        scaled = hypothesis / self.deviations
        return jnp.maximum(scaled - self.accuracy.upper, -scaled - self.accuracy.lower)


class Verdict(NamedTuple):
    """The result of one draw of noise for a count (all fields are bool scalars).

    Attributes:
        ended: whether the release of the count has ended.
        accepted: whether the noisy count was accepted.
        precise: whether the noise is within the relative error of the true count.
    """

    ended: Array
    accepted: Array
    precise: Array


class Passage(Pytree):
    """A release of one count, charged to a filter: one `start`, then one `step` per draw.

    Attributes:
        accuracy: the rule that accepts a noisy count.
        smallest: squared privacy parameter of the first level, scalar.
        levels: number of levels (static).
    """

    accuracy: RelativeError
    smallest: ArrayLike
    levels: int = static()
    kind: ClassVar[Any] = BrownianReduction
    """The request class that a filter charges, made of a sensitivity and a time."""

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Return the random numbers of `number` (static) draws, shape (number, ...)."""
        return normals(key, (number,), dtype)

    def time_of(self, square: Array) -> Array:
        """Return the time (noise level) of a squared privacy parameter."""
        return 1 / square

    def first_request(self, dtype: Any) -> Any:
        """Return the request that a filter charges for the first level."""
        return self.kind(1.0, self.time_of(jnp.asarray(self.smallest, dtype)))


class OnLevels(Passage, abc.ABC):
    """A `Passage` with equally spaced squared privacy parameters, charged once, at its end."""

    @abc.abstractmethod
    def init(self, last_time: Array) -> Any:
        """Return the state before the first draw, given the time of the last level."""

    @abc.abstractmethod
    def move(self, state: Any, count: Array, draw: Array) -> tuple[Any, Array, Array]:
        """Make one draw of noise.

        Returns:
            The state, whether the release has ended, and whether it was accepted.
        """

    def until(self, last_time: Array) -> Any:
        """Return `init(last_time)`, with `last_time` at most the time of the first level."""
        first = self.time_of(jnp.asarray(self.smallest, last_time.dtype))
        return self.init(jnp.minimum(first, last_time))

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Any]:
        """Return the filter's state and the passage's state before the first draw.

        The release ends at the latest at the most expensive level that the filter admits.
        """
        return spent, self.until(jnp.asarray(filter.smallest_time(spent, self.kind), count.dtype))

    def step(
        self, filter: Any, spent: Any, state: Any, count: Array, draw: Array
    ) -> tuple[Any, Any, Verdict]:
        """Make one draw. If the release ends, charge its level, whether accepted or not."""
        state, ended, accepted = self.move(state, count, draw)
        paid, admitted = filter.spend(spent, self.kind(1.0, state.time))
        # `start` chose levels that the filter admits. Even if it refuses one, the cost counts.
        verdict = Verdict(ended, accepted & admitted, self.accuracy.precise(state.noise, count))
        return select(ended, paid, spent), state, verdict


class DoublingPassage(Passage):
    """The doubling baseline: fresh noise per try, with a squared parameter that doubles.

    This is the baseline of Rogers 2023, section 7.1. A try has Gaussian noise of variance t, which
    is the state, and is charged as a Brownian reduction with a single time. The first tries are
    skipped while acceptance would take noise of `skip_quantile` standard deviations. Their costs
    are a geometric series, charged as one sum. `levels` is the number of tries, at least 64, from
    which `skip_quantile` is computed.
    """

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Array]:
        """Charge, without drawing, the first tries, which practically never succeed.

        Returns:
            The filter's state, and the variance of the next try.
        """
        dtype, eps = count.dtype, float(jnp.finfo(count.dtype).eps)
        first = jnp.asarray(self.smallest, dtype)
        quantile, accuracy = skip_quantile(max(self.levels, 64)), self.accuracy
        # Try k cannot be accepted if sqrt(first 2^k) count <= upper - quantile.
        ratio = jnp.square((accuracy.upper - quantile) / count) / first
        safe = accuracy.upper > quantile
        safe &= accuracy.lower + count * jnp.sqrt(first) >= quantile
        impossible = jnp.where(safe & (ratio >= 1), jnp.floor(jnp.log2(ratio)) + 1, 0)
        # `number` tries cost `first (2^number - 1)`, which must be at most `left`.
        left = 1 / jnp.asarray(filter.smallest_time(spent, self.kind), dtype)
        fits = jnp.floor(jnp.log2(1 + left / first * (1 - 16 * eps)))
        number = jnp.clip(jnp.minimum(impossible, fits), 0, _MOST_SKIPPED).astype(jnp.int32)
        factor = jnp.left_shift(jnp.int32(1), number)
        skipped = jnp.maximum(factor - 1, 1).astype(dtype) * first
        # The time is rounded down, so the cost is rounded up.
        paid, admitted = filter.take(spent, self.kind(1.0, (1 - 4 * eps) / skipped))
        # If the filter refuses the sum because of rounding, no try is skipped. The distribution
        # is the same.
        skips = (number > 0) & admitted
        return select(skips, paid, spent), 1 / (first * jnp.where(skips, factor, 1))

    def step(
        self, filter: Any, spent: Any, state: Array, count: Array, draw: Array
    ) -> tuple[Any, Array, Verdict]:
        """Make the next try with a standard normal `draw`, unless the filter refuses its cost."""
        spent, admitted = filter.take(spent, self.kind(1.0, state))
        deviation = jnp.sqrt(state)
        noise = deviation * draw
        accepted = admitted & self.accuracy.accepts(count + noise, deviation)
        verdict = Verdict(accepted | ~admitted, accepted, self.accuracy.precise(noise, count))
        return spent, state / 2, verdict


def skip_quantile(levels: int, chance: float = 1e-12) -> float:
    """Return z: a level is skipped if acceptance takes noise of z standard deviations.

    The result is the smallest z with `2 levels Phi(-z) <= chance`, where Phi is the normal
    distribution function, plus 0.01 for rounding in float32. No level is skipped twice, so the
    probability that the release of a count misses an acceptance is at most `chance`.
    """
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        too_likely = levels * math.erfc(middle / math.sqrt(2)) > chance
        low, high = (middle, high) if too_likely else (low, middle)
    # Rounding moves the end of a jump by 1e-4 levels, which changes z by less than 0.01.
    return high + 0.01
