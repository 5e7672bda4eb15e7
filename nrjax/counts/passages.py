"""When a noisy count is good enough, and releasing it: what the ways have in common; doubling.

A count is released by draws of noise, each at one of its levels of privacy, until a release is
accepted or the levels end. Levels at which acceptance is out of the question are not drawn: a
passage goes in jumps, and yet has the law of the walk that looks at every level.
"""

import abc
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._normals import normals
from nrjax._validation import check_probability
from nrjax.composition.requests import BrownianReduction
from nrjax.pytrees import Pytree, static
from nrjax.types import NoiseProcess, Utility

_MOST_SKIPPED = 30
"""So that `2^skipped - 1` is an int32; tries beyond it are drawn, accepted or not."""


class RelativeError(Pytree):
    """Accept a noisy count once its noise is likely to be within `alpha` of the count.

    The rule of Rogers 2023, section 7.2: with noise of standard deviation d a noisy count y is
    accepted when `1 - alpha < |(y + d)/(y - d)| <= 1 + alpha` and `|y| > d`. That is the same as
    `y >= upper d` or `y < -lower d`, with `upper = (2 + alpha)/alpha`, `lower = (2 - alpha)/alpha`.
    It looks only at releases, so it costs no privacy.

    Attributes:
        alpha: relative error, scalar, strictly between 0 and 1.
    """

    alpha: ArrayLike

    def __post_init__(self):
        check_probability("alpha", self.alpha)

    @property
    def upper(self) -> Any:
        """How many deviations a count above zero must have, `(2 + alpha)/alpha`."""
        return (2 + self.alpha) / self.alpha

    @property
    def lower(self) -> Any:
        """How many deviations a count below zero must have, `(2 - alpha)/alpha`."""
        return (2 - self.alpha) / self.alpha

    def accepts(self, noisy: ArrayLike, deviation: ArrayLike) -> Array:
        """Whether a noisy count is good enough, given its noise's deviation (bool, elementwise)."""
        noisy, deviation = jnp.asarray(noisy), jnp.asarray(deviation)
        return (noisy >= self.upper * deviation) | (noisy < -self.lower * deviation)

    def precise(self, error: ArrayLike, count: ArrayLike) -> Array:
        """Whether noise is as small as was asked for: `|error| <= alpha count` (bool)."""
        return jnp.abs(jnp.asarray(error)) <= self.alpha * jnp.asarray(count)

    def utility(self, process: NoiseProcess, times: ArrayLike) -> "Margin":
        """As a utility, with `PublicThreshold(0)`, of noise at the schedule's times, (steps,)."""
        return Margin(self, process.deviation(times))


class Margin(Utility):
    """How far a noisy count is on the accepted side of `RelativeError`, in deviations; >= 0 there.

    Attributes:
        accuracy: the rule.
        deviations: standard deviation of the noise at each step, shape (steps,); or of one, ().
    """

    accuracy: RelativeError
    deviations: Any

    def at(self, step: Array) -> "Margin":
        """The utility of a step."""
        return Margin(self.accuracy, jnp.asarray(self.deviations)[step])

    def evaluate(self, hypothesis: Array) -> Array:
        """Largest of `y/d - upper` and `-y/d - lower`, a scalar."""
        scaled = hypothesis / self.deviations
        return jnp.maximum(scaled - self.accuracy.upper, -scaled - self.accuracy.lower)


class Verdict(NamedTuple):
    """Whether a draw was a count's last, whether its release was accepted, and is precise."""

    ended: Array
    accepted: Array
    precise: Array


class Passage(Pytree):
    """A way of releasing one count: `start`, then a `step` a draw, with what it costs a filter.

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
        """Random numbers for `number` (static) draws, with a leading axis: by default normals."""
        return normals(key, (number,), dtype)

    def time_of(self, square: Array) -> Array:
        """Time of a squared privacy parameter."""
        return 1 / square

    def first_request(self, dtype: Any) -> Any:
        """What must be admitted for the first level to be drawn at all."""
        return self.kind(1.0, self.time_of(jnp.asarray(self.smallest, dtype)))


class OnLevels(Passage, abc.ABC):
    """A noise reduction whose squared privacy parameters are equally spaced; pays where it ends."""

    @abc.abstractmethod
    def init(self, last_time: Array) -> Any:
        """The passage before its first draw; the last level has this time."""

    @abc.abstractmethod
    def move(self, state: Any, count: Array, draw: Array) -> tuple[Any, Array, Array]:
        """One draw: the passage, whether it has ended, and whether it was accepted."""

    def until(self, last_time: Array) -> Any:
        """The passage that ends at this time, or that of the first level if this is earlier."""
        first = self.time_of(jnp.asarray(self.smallest, last_time.dtype))
        return self.init(jnp.minimum(first, last_time))

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Any]:
        """Levels up to the largest that the filter would still admit."""
        return spent, self.until(jnp.asarray(filter.smallest_time(spent, self.kind), count.dtype))

    def step(
        self, filter: Any, spent: Any, state: Any, count: Array, draw: Array
    ) -> tuple[Any, Any, Verdict]:
        """One draw; the level that it ends at is paid for, accepted or not."""
        state, ended, accepted = self.move(state, count, draw)
        paid, admitted = filter.spend(spent, self.kind(1.0, state.time))
        # It was admitted when the levels were chosen; a filter that says otherwise has its way.
        verdict = Verdict(ended, accepted & admitted, self.accuracy.precise(state.noise, count))
        return where(ended, paid, spent), state, verdict


class DoublingPassage(Passage):
    """The baseline of Rogers 2023, section 7.1: the squared parameter doubles from try to try.

    A try is Gaussian noise of variance t, the state, charged as a Brownian reduction that stops at
    its only time. The first tries are not drawn as long as the noise would have to be
    `skip_quantile` deviations off to be accepted; they are paid for in one sum, a geometric series.
    `levels` is the number of tries that `skip_quantile` allows for.
    """

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Array]:
        """Pay for the tries that cannot be accepted, as many as the filter admits."""
        dtype, eps = count.dtype, float(jnp.finfo(count.dtype).eps)
        first = jnp.asarray(self.smallest, dtype)
        quantile, accuracy = skip_quantile(max(self.levels, 64)), self.accuracy
        # Try k is out of the question if sqrt(first 2^k) count <= upper - quantile.
        hopeless = jnp.square((accuracy.upper - quantile) / count) / first
        safe = accuracy.upper > quantile
        safe &= accuracy.lower + count * jnp.sqrt(first) >= quantile
        wanted = jnp.where(safe & (hopeless >= 1), jnp.floor(jnp.log2(hopeless)) + 1, 0)
        # `number` tries cost `first (2^number - 1)`, which must fit into what is left.
        left = 1 / jnp.asarray(filter.smallest_time(spent, self.kind), dtype)
        fits = jnp.floor(jnp.log2(1 + left / first * (1 - 16 * eps)))
        number = jnp.clip(jnp.minimum(wanted, fits), 0, _MOST_SKIPPED).astype(jnp.int32)
        factor = jnp.left_shift(jnp.int32(1), number)
        skipped = jnp.maximum(factor - 1, 1).astype(dtype) * first
        # A time is rounded to more cost.
        paid, admitted = filter.take(spent, self.kind(1.0, (1 - 4 * eps) / skipped))
        # Logarithms round: without a sure yes all tries are drawn, which has the same law.
        some = (number > 0) & admitted
        return where(some, paid, spent), 1 / (first * jnp.where(some, factor, 1))

    def step(
        self, filter: Any, spent: Any, state: Array, count: Array, draw: Array
    ) -> tuple[Any, Array, Verdict]:
        """The next try, unless the filter refuses to start it; `draw` is standard normal."""
        spent, admitted = filter.take(spent, self.kind(1.0, state))
        deviation = jnp.sqrt(state)
        noise = deviation * draw
        accepted = admitted & self.accuracy.accepts(count + noise, deviation)
        verdict = Verdict(accepted | ~admitted, accepted, self.accuracy.precise(noise, count))
        return spent, state / 2, verdict


def where(condition: Array, new: Any, old: Any) -> Any:
    """`jnp.where` of whole states."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def skip_quantile(levels: int, chance: float = 1e-12) -> float:
    """Deviations z with `2 levels Phi(-z) <= chance`, a little larger for float32's sake.

    A level is skipped unseen where the noise would have to be z deviations off, up or down, for
    its release to be accepted. No level is skipped twice, so that one was missed anywhere in the
    release of a count has probability at most `chance`.
    """
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        too_likely = levels * math.erfc(middle / math.sqrt(2)) > chance
        low, high = (middle, high) if too_likely else (low, middle)
    # Rounding moves the place where a jump lands by 1e-4 levels, which is worth less than this.
    return high + 0.01
