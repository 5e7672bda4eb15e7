"""The rule that accepts a noisy count, and the common part of the ways of releasing one.

A count is released by draws of noise, each at one of its privacy levels, until a release is
accepted or the levels end. A passage jumps over levels at which acceptance is impossible, without
drawing them. Its outcome has the distribution of the walk that checks every level.
"""

import abc
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._normals import normals
from nrjax._validation import check_probability
from nrjax.composition._state import select
from nrjax.composition.requests import BrownianReduction
from nrjax.pytrees import Pytree, static
from nrjax.types import NoiseProcess, Utility

_MOST_SKIPPED = 30
"""Most tries that doubling skips, so that `2^skipped - 1` is an int32."""


class RelativeError(Pytree):
    """A rule that accepts a noisy count once its relative error is likely below `alpha`.

    With noise of standard deviation d a noisy count y is accepted if `|y| > d` and
    `1 - alpha < |(y + d)/(y - d)| <= 1 + alpha` (Rogers 2023, section 7.2). Equivalently,
    `y >= upper d` or `y < -lower d`, where `upper = (2 + alpha)/alpha` and
    `lower = (2 - alpha)/alpha`. The rule uses only releases, so it costs no privacy.

        rule = RelativeError(0.1)
        result = release_count(key, 1000.0, rule, smallest=1e-6, largest=0.1)

    Attributes:
        alpha: relative error, scalar, strictly between 0 and 1.
    """

    alpha: ArrayLike

    def __post_init__(self):
        check_probability("alpha", self.alpha)

    @property
    def upper(self) -> Any:
        """The smallest accepted positive count, in standard deviations of the noise."""
        return (2 + self.alpha) / self.alpha

    @property
    def lower(self) -> Any:
        """Standard deviations that an accepted negative count exceeds in size."""
        return (2 - self.alpha) / self.alpha

    def accepts(self, noisy: ArrayLike, deviation: ArrayLike) -> Array:
        """Return whether noisy counts with these standard deviations are accepted (bool)."""
        noisy, deviation = jnp.asarray(noisy), jnp.asarray(deviation)
        return (noisy >= self.upper * deviation) | (noisy < -self.lower * deviation)

    def precise(self, error: ArrayLike, count: ArrayLike) -> Array:
        """Return whether noise is within the relative error, `|error| <= alpha count` (bool)."""
        return jnp.abs(jnp.asarray(error)) <= self.alpha * jnp.asarray(count)

    def utility(self, process: NoiseProcess, times: ArrayLike) -> "Margin":
        """Return the rule as a utility for noise at `times`, shape (steps,).

        With `PublicThreshold(0)`, a trial stops where this rule accepts.
        """
        return Margin(self, process.deviation(times))


class Margin(Utility):
    """A utility: the distance of a noisy count from the bounds of `RelativeError`.

    It is in standard deviations, and >= 0 where the rule accepts. Use `RelativeError.utility` to
    make one.

    Attributes:
        accuracy: the rule.
        deviations: standard deviation of the noise at each step, shape (steps,) or ().
    """

    accuracy: RelativeError
    deviations: Any

    def at(self, step: Array) -> "Margin":
        """Return the utility of a step."""
        return Margin(self.accuracy, jnp.asarray(self.deviations)[step])

    def evaluate(self, hypothesis: Array) -> Array:
        """Return the larger of `y/d - upper` and `-y/d - lower`, a scalar."""
        scaled = hypothesis / self.deviations
        return jnp.maximum(scaled - self.accuracy.upper, -scaled - self.accuracy.lower)


class Verdict(NamedTuple):
    """The result of a draw: whether it was the count's last, was accepted, and is precise."""

    ended: Array
    accepted: Array
    precise: Array


class Passage(Pytree):
    """A way of releasing one count: `start`, then one `step` per draw, charged to a filter.

    Attributes:
        accuracy: the rule.
        smallest: squared privacy parameter of the first level, scalar.
        levels: number of levels (static).
    """

    accuracy: RelativeError
    smallest: ArrayLike
    levels: int = static()
    kind: ClassVar[Any] = BrownianReduction
    """The kind of request that is charged, of sensitivity and time."""

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Return random numbers for `number` (static) draws, with a leading axis."""
        return normals(key, (number,), dtype)

    def time_of(self, square: Array) -> Array:
        """Return the time of a squared privacy parameter."""
        return 1 / square

    def first_request(self, dtype: Any) -> Any:
        """Return the request for the first level."""
        return self.kind(1.0, self.time_of(jnp.asarray(self.smallest, dtype)))


class OnLevels(Passage, abc.ABC):
    """A noise reduction at equally spaced squared privacy parameters, charged where it ends."""

    @abc.abstractmethod
    def init(self, last_time: Array) -> Any:
        """Return the state before the first draw, for a last level at `last_time`."""

    @abc.abstractmethod
    def move(self, state: Any, count: Array, draw: Array) -> tuple[Any, Array, Array]:
        """Make one draw: return the state, and whether it has ended and was accepted."""

    def until(self, last_time: Array) -> Any:
        """Return the state before the first draw, for a last level no later than the first."""
        first = self.time_of(jnp.asarray(self.smallest, last_time.dtype))
        return self.init(jnp.minimum(first, last_time))

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Any]:
        """Return the filter's state and the passage up to the largest level it still admits."""
        return spent, self.until(jnp.asarray(filter.smallest_time(spent, self.kind), count.dtype))

    def step(
        self, filter: Any, spent: Any, state: Any, count: Array, draw: Array
    ) -> tuple[Any, Any, Verdict]:
        """Make one draw. The level that it ends at is charged, accepted or not."""
        state, ended, accepted = self.move(state, count, draw)
        paid, admitted = filter.spend(spent, self.kind(1.0, state.time))
        # Admitted when the levels were chosen. If the filter refuses it after all, it counts.
        verdict = Verdict(ended, accepted & admitted, self.accuracy.precise(state.noise, count))
        return select(ended, paid, spent), state, verdict


class DoublingPassage(Passage):
    """The baseline of Rogers 2023, section 7.1: fresh noise whose squared parameter doubles.

    A try is Gaussian noise of variance t (the state), charged as a Brownian reduction with a single
    time. The first tries are skipped as long as acceptance would take noise of `skip_quantile`
    standard deviations; they are charged in one sum, a geometric series. `levels` is the number of
    tries that `skip_quantile` allows for.
    """

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Array]:
        """Charge the tries that cannot be accepted, as many as the filter admits."""
        dtype, eps = count.dtype, float(jnp.finfo(count.dtype).eps)
        first = jnp.asarray(self.smallest, dtype)
        quantile, accuracy = skip_quantile(max(self.levels, 64)), self.accuracy
        # Try k is impossible if sqrt(first 2^k) count <= upper - quantile.
        ratio = jnp.square((accuracy.upper - quantile) / count) / first
        safe = accuracy.upper > quantile
        safe &= accuracy.lower + count * jnp.sqrt(first) >= quantile
        impossible = jnp.where(safe & (ratio >= 1), jnp.floor(jnp.log2(ratio)) + 1, 0)
        # `number` tries cost `first (2^number - 1)`, which must fit into what is left.
        left = 1 / jnp.asarray(filter.smallest_time(spent, self.kind), dtype)
        fits = jnp.floor(jnp.log2(1 + left / first * (1 - 16 * eps)))
        number = jnp.clip(jnp.minimum(impossible, fits), 0, _MOST_SKIPPED).astype(jnp.int32)
        factor = jnp.left_shift(jnp.int32(1), number)
        skipped = jnp.maximum(factor - 1, 1).astype(dtype) * first
        # A time is rounded to more cost.
        paid, admitted = filter.take(spent, self.kind(1.0, (1 - 4 * eps) / skipped))
        # Logarithms round. If the sum is refused, all tries are drawn: the same distribution.
        skips = (number > 0) & admitted
        return select(skips, paid, spent), 1 / (first * jnp.where(skips, factor, 1))

    def step(
        self, filter: Any, spent: Any, state: Array, count: Array, draw: Array
    ) -> tuple[Any, Array, Verdict]:
        """Make the next try by a standard normal `draw`, unless the filter refuses it."""
        spent, admitted = filter.take(spent, self.kind(1.0, state))
        deviation = jnp.sqrt(state)
        noise = deviation * draw
        accepted = admitted & self.accuracy.accepts(count + noise, deviation)
        verdict = Verdict(accepted | ~admitted, accepted, self.accuracy.precise(noise, count))
        return spent, state / 2, verdict


def skip_quantile(levels: int, chance: float = 1e-12) -> float:
    """Return z with `2 levels Phi(-z) <= chance`, a little larger because of float32.

    A level is skipped if acceptance would take noise of z standard deviations. No level is skipped
    twice, so the probability that a release of a count misses an acceptance is at most `chance`.
    """
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        too_likely = levels * math.erfc(middle / math.sqrt(2)) > chance
        low, high = (middle, high) if too_likely else (low, middle)
    # Rounding moves the end of a jump by 1e-4 levels, which is worth less than this.
    return high + 0.01
