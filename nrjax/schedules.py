"""Schedules: fixed grids of times, and times chosen from the last release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.pytrees import static
from nrjax._base.validation import (
    as_floats,
    check,
    check_integer,
    check_normal,
    check_numbers,
    check_positive,
    concrete_or_none,
)
from nrjax.types import Guarantee, Schedule

_MAX_LEVELS = 10_000_000
"""Largest number of levels of a grid, whose times (80 MB) are computed at once."""


class Grid(Schedule):
    """A schedule of times that are fixed in advance.

    A grid is usually made from levels of epsilon, in equal ratios (`geometric`) or equal steps
    (`linear`). For times that depend on the releases use `AdaptiveTimes`.

        >>> guarantee = nrjax.PureGuarantee(sensitivity=1.0)
        >>> grid = nrjax.Grid.geometric(guarantee, 0.1, 10.0, levels=3)
        >>> [round(float(time), 3) for time in grid.times]  # that cost 0.1, 1 and 10
        [10.0, 1.0, 0.1]

    Attributes:
        times: times (noise levels), shape (levels,), positive. No time is above the one before.

    Raises:
        ValueError: `times` rise, are not positive and finite, or are not a vector.
    """

    times: Any

    def __post_init__(self):
        fits, expected = lambda n: n.ndim == 1, "a vector of numbers"
        if isinstance(self.times, (list, tuple)):
            object.__setattr__(self, "times", as_floats("times", self.times, fits, expected))
        check_numbers("times", self.times, fits, expected)
        check_positive("times", self.times)
        check_numbers("times", self.times, lambda n: np.diff(n.astype(float)) <= 0, "falling")

    @classmethod
    def explicit(cls, times: ArrayLike) -> Grid:
        """Return a grid of the given times, shape (levels,), largest first."""
        number = concrete_or_none(times)  # None for text, lists and traced arrays
        real = number is not None and number.dtype.kind in "iuf"
        return cls(number.astype(float) if number is not None and real else times)

    @classmethod
    def geometric(cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int) -> Grid:
        """Return a grid for `levels` epsilons from `low` to `high` in equal ratios."""
        return cls._from_epsilons(guarantee, low, high, levels, "log", "exp")

    @classmethod
    def linear(cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int) -> Grid:
        """Return a grid for `levels` epsilons from `low` to `high` in equal steps."""
        return cls._from_epsilons(guarantee, low, high, levels, "asarray", "asarray")

    @classmethod
    def squared(cls, guarantee: Guarantee, low: ArrayLike, high: ArrayLike, levels: int) -> Grid:
        """Return a grid for `levels` epsilons, `low` to `high`, with equally spaced squares."""
        return cls._from_epsilons(guarantee, low, high, levels, "square", "sqrt")

    @classmethod
    def _from_epsilons(
        cls, guarantee: Guarantee, low: Any, high: Any, levels: int, scale: str, inverse: str
    ) -> Grid:
        """Return a grid for epsilons whose values of the function `scale` are equally spaced."""
        check_integer("levels", levels, 1, _MAX_LEVELS)
        ends = check_positive("low", low), check_numbers("high", high, np.isfinite, "finite")
        check(np.ndim(low) == np.ndim(high) == 0, "low and high", (low, high), "single numbers")
        xp: Any = jnp
        if ends[0] is not None and ends[1] is not None:
            xp, low, high = np, float(ends[0]), float(ends[1])
            check(high > low or (levels == 1 and high == low), "high", high, f"above low = {low!r}")
        check_normal("high", high, ends[1])
        with np.errstate(over="ignore", under="ignore"):
            start, stop = (getattr(xp, scale)(end) for end in (low, high))
        held = xp is not np or (np.isfinite(stop) and (start > 0 or scale == "log"))
        check(held, "low and high", (low, high), "such that a float holds their squares")
        spaced = getattr(xp, inverse)(xp.linspace(start, stop, levels))
        if xp is np:
            spaced = np.clip(spaced, low, high)
            spaced[0], spaced[-1] = low, (high if levels > 1 else low)
        expected = "a nrjax.Guarantee with time(epsilon)"
        hint = (
            "Use mechanism.until(...), or the guarantee that recipe.on(nrjax.Grid(times)) returns."
        )
        check(isinstance(guarantee, Guarantee), "guarantee", guarantee, expected, hint)
        times = guarantee.time(spaced)
        number = concrete_or_none(times)
        if number is None:
            return cls(jax.lax.cummin(times))
        # Times are rounded up, so that neighbours on a very fine grid may rise by an ulp.
        return cls(np.minimum.accumulate(number))

    @property
    def max_steps(self) -> int:
        """The number of times in the grid, which is the largest number of releases."""
        return self.times.shape[0]

    @property
    def last_time(self) -> Any:
        """The last and smallest time of the grid."""
        return self.times[-1]

    def init(self) -> tuple[Array, Array]:
        """Return the state (the index of the current time) and the first time."""
        return jnp.int32(0), jnp.asarray(self.times)[0]

    def next(self, state: Array, release: Array) -> tuple[Array, Array, Array]:
        """Return the new state, the next time, and whether the grid has ended."""
        times = jnp.asarray(self.times)
        index = state + 1
        last = self.max_steps - 1
        return index, times[jnp.minimum(index, last)], index > last


class AdaptiveState(NamedTuple):
    """The current time, and the number of times so far, including the current time."""

    time: Array
    number: Array


class AdaptiveTimes(Schedule):
    """A schedule that chooses each time from the last release.

    The choice costs no privacy as long as it depends on releases only, because a guarantee without
    `fixed_times` holds for every such sequence of times (Whitehouse 2022, Definition 3.1). For
    fixed times use `Grid`.

        >>> def halve(parameters, time, release):
        ...     return time / 2
        >>> nrjax.AdaptiveTimes(first=100.0, choose=halve, last=1.0, max_steps=10)
        AdaptiveTimes(first=100.0, choose=halve, last=1.0, max_steps=10, parameters=None)

    Attributes:
        first: first time.
        choose: `choose(parameters, time, release) -> next time`, written for one trial. A time that
            is larger than the current one, or not positive, ends the trial with
            `Status.INVALID_TIME`. Define the function once and vary `parameters`, since each new
            function is compiled again.
        last: smallest time. A smaller choice is raised to it, and the schedule ends after it.
        max_steps: largest number of times (static).
        parameters: any pytree. It is passed to `choose`, and can be batched by `vmap`.

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
        """The smallest time that the schedule can choose, `last`."""
        return self.last

    def init(self) -> tuple[AdaptiveState, Array]:
        """Return the state and the first time."""
        time = jnp.asarray(self.first, float_dtype(self.first, self.last))
        return AdaptiveState(time, jnp.int32(1)), time

    def next(self, state: AdaptiveState, release: Array) -> tuple[AdaptiveState, Array, Array]:
        """Return the new state, the chosen time, and whether the schedule has ended."""
        chosen = jnp.asarray(self.choose(self.parameters, state.time, release), state.time.dtype)
        last = jnp.asarray(self.last, state.time.dtype)
        # NaN and non-positive choices are left as they are, for the engine to report.
        time = jnp.where((chosen > 0) & (chosen < last), last, chosen)
        done = (state.time <= last) | (state.number >= self.max_steps)
        return AdaptiveState(time, state.number + 1), time, done
