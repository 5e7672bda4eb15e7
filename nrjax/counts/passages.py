"""What the ways of releasing one count have in common.

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

from nrjax.counts.relative_error import RelativeError
from nrjax.pytrees import Pytree, static


class Verdict(NamedTuple):
    """What became of a count by a draw."""

    ended: Array
    """Whether that was its last draw (bool)."""
    accepted: Array
    """Whether the release was accepted, and is returned (bool)."""
    precise: Array
    """Whether it is within the relative error of the true count (bool)."""


class Passage(Pytree, abc.ABC):
    """A way of releasing one count, and what it charges a filter for it.

    Attributes:
        accuracy: the rule.
        smallest: squared privacy parameter of the first level, scalar.
        levels: number of levels (static).
    """

    accuracy: RelativeError
    smallest: ArrayLike
    levels: int = static()

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Random numbers for `number` (static) draws, with a leading axis: by default normals."""
        return jax.random.normal(key, (number,), dtype)

    @abc.abstractmethod
    def first_request(self, dtype: Any) -> Any:
        """What must be admitted for the first level to be drawn at all."""

    @abc.abstractmethod
    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Any]:
        """Filter state and passage of a count, before its first draw."""

    @abc.abstractmethod
    def step(
        self, filter: Any, spent: Any, state: Any, count: Array, draw: Array
    ) -> tuple[Any, Any, Verdict]:
        """One draw: filter state, passage and verdict."""


class OnLevels(Passage):
    """A noise reduction whose squared privacy parameters are equally spaced; pays where it ends."""

    kind: ClassVar[Any]
    """The kind of request that is charged, of sensitivity and time."""

    @abc.abstractmethod
    def first_time(self, dtype: Any) -> Array:
        """Time of the first level."""

    @abc.abstractmethod
    def init(self, last_time: Array) -> Any:
        """The passage before its first draw; the last level has this time."""

    @abc.abstractmethod
    def move(self, state: Any, count: Array, draw: Array) -> tuple[Any, Array, Array]:
        """One draw: the passage, whether it has ended, and whether it was accepted."""

    def first_request(self, dtype: Any) -> Any:
        """The reduction stopped at its first level."""
        return self.kind(1.0, self.first_time(dtype))

    def start(self, filter: Any, spent: Any, count: Array) -> tuple[Any, Any]:
        """Levels up to the largest that the filter would still admit."""
        first = self.first_time(count.dtype)
        last = jnp.asarray(filter.smallest_time(spent, self.kind), first.dtype)
        return spent, self.init(jnp.minimum(first, last))

    def step(
        self, filter: Any, spent: Any, state: Any, count: Array, draw: Array
    ) -> tuple[Any, Any, Verdict]:
        """One draw; the level that it ends at is paid for, accepted or not."""
        state, ended, accepted = self.move(state, count, draw)
        paid, admitted = filter.spend(spent, self.kind(1.0, state.time))
        spent = jax.tree.map(lambda new, old: jnp.where(ended, new, old), paid, spent)
        # It was admitted when the levels were chosen; a filter that says otherwise has its way.
        accepted = accepted & admitted
        return spent, state, Verdict(ended, accepted, self.accuracy.precise(state.noise, count))


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
