"""Which time comes next: fixed grids of levels, and times chosen from the last release."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, check_integer, check_numbers, check_positive, concrete_or_none
from nrjax.pytrees import static
from nrjax.types import Guarantee, Schedule

_MOST_LEVELS = 10_000_000
"""Most levels of a grid by epsilons: its times, 80 MB of them, are worked out all at once."""


class Grid(Schedule):
    """Times fixed in advance, falling; or those that a guarantee gives for levels of epsilon.

    Attributes:
        times: shape (levels,), each positive and none larger than the one before.

    Raises:
        ValueError: `times` rise, are not positive and finite, or are not a vector.
    """

    times: Any

    def __post_init__(self):
        right = "a non-empty vector of numbers"
        if isinstance(self.times, (list, tuple)):
            try:
                object.__setattr__(self, "times", np.asarray(self.times, float))
            except (TypeError, ValueError):
                check(False, "times", self.times, right)
        check_numbers("times", self.times, lambda n: n.ndim == 1 and n.size > 0, right)
        check_positive("times", self.times)
        check_numbers("times", self.times, lambda n: np.diff(n) <= 0, "falling")

    @classmethod
    def explicit(cls, times: ArrayLike) -> "Grid":
        """A grid of given times, shape (levels,), largest first."""
        known = concrete_or_none(times)  # not of text, lists and traced arrays
        real = known is not None and known.dtype.kind in "iuf"
        return cls(known.astype(float) if known is not None and real else times)

    @classmethod
    def geometric(
        cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int
    ) -> "Grid":
        """`levels` epsilons from `low` to `high` in equal ratios."""
        return cls._of(guarantee, low, high, levels, "log", "exp")

    @classmethod
    def linear(cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int) -> "Grid":
        """`levels` epsilons from `low` to `high` in equal steps."""
        return cls._of(guarantee, low, high, levels, "asarray", "asarray")

    @classmethod
    def squared(cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int) -> "Grid":
        """`levels` epsilons from `low` to `high` whose squares are in equal steps."""
        return cls._of(guarantee, low, high, levels, "square", "sqrt")

    @classmethod
    def _of(
        cls, guarantee: Guarantee, low: Any, high: Any, levels: int, scale: str, back: str
    ) -> "Grid":
        """The times of epsilons equally spaced after `scale`, of which the ends are exact."""
        check_integer("levels", levels, 1, _MOST_LEVELS)
        ends = check_positive("low", low), check_numbers("high", high, np.isfinite, "finite")
        xp: Any = jnp
        if ends[0] is not None and ends[1] is not None:
            xp, low, high = np, float(ends[0]), float(ends[1])
            check(high > low or (levels == 1 and high == low), "high", high, f"above low = {low!r}")
        start, stop = (getattr(xp, scale)(end) for end in (low, high))
        spaced = getattr(xp, back)(xp.linspace(start, stop, levels))
        if xp is np:
            spaced = np.clip(spaced, low, high)
            spaced[0], spaced[-1] = low, (high if levels > 1 else low)
        check(hasattr(guarantee, "time"), "guarantee", guarantee, "one, whose time can be asked")
        times = guarantee.time(spaced)
        number = concrete_or_none(times)
        if number is None:
            return cls(jax.lax.cummin(times))
        # Rounding to more noise may make neighbours of a very fine grid rise by an ulp.
        return cls(np.minimum.accumulate(number))

    @property
    def max_steps(self) -> int:
        """Number of times in the grid."""
        return self.times.shape[0]

    @property
    def last_time(self) -> Any:
        """The last time, the smallest."""
        return self.times[-1]

    def init(self) -> tuple[Array, Array]:
        """State (the index of the present time) and the first time."""
        return jnp.int32(0), jnp.asarray(self.times)[0]

    def next(self, state: Array, release: Array) -> tuple[Array, Array, Array]:
        """The next time of the grid; done after the last."""
        times = jnp.asarray(self.times)
        following = state + 1
        last = self.max_steps - 1
        return following, times[jnp.minimum(following, last)], following > last


class AdaptiveState(NamedTuple):
    """Present time and how many times were handed out, itself included."""

    time: Array
    given: Array


class AdaptiveTimes(Schedule):
    """Times chosen from the last release.

    The choice may look only at releases: a boundary holds for every such sequence of times
    (Whitehouse 2022, Definition 3.1), so it costs nothing.

    Attributes:
        first: first time.
        choose: `choose(parameters, time, release) -> next time`, written for one trial. A time
            that is larger than the present one, or not positive, ends the trial as
            `Status.INVALID_TIME`. Define it once and vary `parameters`: each new function is
            compiled anew.
        last: smallest time of interest; a choice below it is raised to it, and it ends the
            schedule.
        max_steps: largest number of times (static).
        parameters: any pytree handed to `choose`, so that it can be batched over.

    Raises:
        ValueError: `first` or `last` is not positive, `last` is above `first`, or `max_steps` is
            below 1.
    """

    first: Any
    choose: Callable[[Any, Array, Array], Array] = static()
    last: Any
    max_steps: int = static()  # pyright: ignore[reportIncompatibleVariableOverride]
    parameters: Any = None

    def __post_init__(self):
        first, last = check_positive("first", self.first), check_positive("last", self.last)
        if first is not None and last is not None:
            check(last <= first, "last", self.last, f"at most first = {self.first!r}")
        check(callable(self.choose), "choose", self.choose, "a function")
        check_integer("max_steps", self.max_steps, 1)

    @property
    def last_time(self) -> Any:
        """The smallest time, `last`."""
        return self.last

    def init(self) -> tuple[AdaptiveState, Array]:
        """State and the first time."""
        time = jnp.asarray(self.first, float_dtype(self.first, self.last))
        return AdaptiveState(time, jnp.int32(1)), time

    def next(self, state: AdaptiveState, release: Array) -> tuple[AdaptiveState, Array, Array]:
        """The chosen time; done once `last` or `max_steps` was reached."""
        chosen = jnp.asarray(self.choose(self.parameters, state.time, release), state.time.dtype)
        last = jnp.asarray(self.last, state.time.dtype)
        # NaN and non-positive choices pass through, for the engine to report.
        time = jnp.where((chosen > 0) & (chosen < last), last, chosen)
        done = (state.time <= last) | (state.given >= self.max_steps)
        return AdaptiveState(time, state.given + 1), time, done
