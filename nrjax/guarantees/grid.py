"""Boundaries that are exact on a fixed grid of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config
from nrjax._base.sensitivities import relation_of, with_relation
from nrjax._base.validation import OTHER_UNIT, check, check_integer, check_normal, concrete_or_none
from nrjax.guarantees._crossing import (
    Curve,
    crossing,
    lowest_curve,
    raise_until_certified,
    solve_for_crossing,
)
from nrjax.guarantees._fixed_times import (
    FixedTimesBoundary,
    certified_array,
    certified_number,
    check_delta,
    falling_times,
)
from nrjax.guarantees._rounding import SafeGuarantee, check_time, round_up

_HIGHEST = 1e60
"""Bound on the heights in standard deviations, so that their quotients stay within float64."""


class GridBoundary(FixedTimesBoundary):
    """A boundary on times fixed in advance, `psi(t_i) = D2^2/(2 t_i) + (D2/t_i) c_i`.

    Use it in place of another boundary if the schedule is a fixed grid: `boundary.on(grid)` lowers
    the curve of the other boundary as far as the times of the grid allow. It is not in the papers.

    Brownian motion exceeds `c_i` at some `t_i` with probability at most delta, as a recursion
    certifies (statement 10 of `docs/proofs`). So the loss exceeds psi with probability at most
    delta, however a trial chooses among the times. Another time is refused (under a trace its
    epsilon is NaN).

        >>> line = nrjax.LinearBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=1e-6)
        >>> grid = nrjax.Grid.geometric(line, 0.2, 3.0, 10)
        >>> bool(jnp.all(line.on(grid).epsilon(grid.times) < line.epsilon(grid.times)))
        True

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the loss may exceed the stated epsilon.
        times: times, falling, shape (n,), at most 5000. They are rounded to the default precision.
        heights: heights c of the curve, shape (n,), > 0, in units of the noise.

    Raises:
        ValueError: `times` do not fall, or two of them are so close (relative distance 1e-8) that
            the quadrature would take more than 2^20 nodes at a time, or the curve is crossed with
            probability above delta.
    """

    heights: Any
    margin: ClassVar[int] = 12  # the formula loses 5
    most_times: ClassVar[int] = 5000  # as they take quadratic time, about 5 s for 1000

    def __post_init__(self):
        super().__post_init__()
        concrete = concrete_or_none(self.delta) is not None
        check(concrete, "delta", self.delta, "concrete, because the curve is certified")
        with np.errstate(over="ignore"):
            held = self.heights / np.sqrt(self.times) < _HIGHEST
        check(held, "heights", self.heights, f"below {_HIGHEST:g} sqrt(times)")
        level = crossing(self.times[::-1], self.heights[::-1])[1]
        expected = f"crossed with probability at most delta = {self.delta}, not {level:.6g}"
        check(level <= np.min(self.delta), "heights", self.heights, expected)

    @property
    def fixed_times(self) -> Any:
        """The times for which the guarantee holds."""
        return self.times

    @classmethod
    def of(cls, boundary: Any, times: ArrayLike) -> Self:
        """Return the boundary on `times` with the least valid multiple of another's curve.

        Args:
            boundary: a `LinearBoundary` or a mixture boundary, with concrete fields.
            times: the times, falling, shape (n,).

        Raises:
            ValueError: the boundary is of another kind or has traced fields, or the times are not
                as `GridBoundary` requires.
        """
        curve: Any = getattr(boundary, "curve", None)
        expected = "a LinearBoundary or a mixture boundary, which have a curve to lower"
        check(isinstance(boundary, SafeGuarantee) and curve, "boundary", boundary, expected)
        times = falling_times(times, cls.most_times)
        concrete = concrete_or_none(boundary.delta) is not None and np.ndim(boundary.delta) == 0
        check(concrete, "boundary", boundary, "of concrete numbers")
        delta = float(boundary.delta)
        with jax.ensure_compile_time_eval():
            shape = np.asarray(curve(times), np.float64)
        check_delta(boundary.delta, times.size, 1.0)
        heights = lowest_curve(times[::-1], shape[::-1], delta)[::-1]
        made = cls(boundary.sensitivity, boundary.delta, times, heights)
        return with_relation(made, relation_of(boundary))

    @classmethod
    def scaled(
        cls, *, sensitivity: float, delta: float, times: ArrayLike, shape: ArrayLike
    ) -> Self:
        """Return the boundary whose heights are the least valid multiple of a shape.

        Use it for a curve of your own. The shape `sqrt(t)` gives the boundary of Pocock (1977),
        the same multiple of the noise's standard deviation at each time. The shape `t` gives the
        boundary of O'Brien and Fleming (1979), whose excess over `D2^2/(2t)` is the same at each
        time. Both are known from group-sequential tests, with `1/t` as the information.

        >>> times = 1 / np.arange(1, 11)
        >>> options = {"sensitivity": 1.0, "delta": 1e-9, "times": times}
        >>> pocock = nrjax.GridBoundary.scaled(**options, shape=np.sqrt(times))
        >>> print(np.round(pocock.heights[0] / np.sqrt(pocock.times[0]), 4))
        6.3353
        >>> fleming = nrjax.GridBoundary.scaled(**options, shape=times)
        >>> [round(float(costs.epsilon(1.0)), 1) for costs in (pocock, fleming)]
        [6.8, 19.5]

        Args:
            sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
            delta: probability with which the loss may exceed the stated epsilon.
            times: the times, falling, shape (n,).
            shape: heights of the curve at the times up to a factor, > 0, shape (n,).

        Raises:
            ValueError: an argument is traced or out of range, or the shape has another length than
                the times.
        """
        times, shape = falling_times(times, cls.most_times), certified_array("shape", shape)
        expected = f"{times.size} positive and finite numbers, one per time"
        fits = shape.shape == times.shape and np.all((shape > 0) & (shape < np.inf))
        check(fits, "shape", shape, expected)
        level = certified_number("delta", delta)
        check_delta(level, times.size, 1.0)
        shape = shape / np.max(shape / np.sqrt(times))  # the search is for multiples of about 1
        heights = lowest_curve(times[::-1], shape[::-1], level)[::-1]
        return cls(sensitivity, delta, times, heights)

    @classmethod
    def minimax(cls, *, sensitivity: float, delta: float, times: ArrayLike) -> Self:
        """Return the boundary with the smallest worst ratio to an oracle's epsilon.

        Use it if you do not know when trials will stop: it needs no tuning and has no floor. The
        oracle knows the time t_i at which a trial stops, so that it pays only
        `o_i = D2^2/(2 t_i) + D2 z/sqrt(t_i)` with `z = Phi^-1(1 - delta)`. The boundary is
        `psi(t_i) = r o_i` for the least valid r (proof in statement 11 of `docs/proofs`). At delta
        = 1e-6, r is 1.08 for 10 times over a factor of 100, and 1.12 for 50 times.

        >>> times = [10.0, 1.0, 0.1]
        >>> boundary = nrjax.GridBoundary.minimax(sensitivity=1.0, delta=1e-6, times=times)
        >>> [round(float(epsilon), 2) for epsilon in boundary.epsilon(boundary.times)]
        [1.61, 5.46, 20.83]

        Args:
            sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
            delta: probability with which the loss may exceed the stated epsilon, at most 1/2.
            times: the times, falling, shape (n,).

        Raises:
            ValueError: an argument is traced or out of range.
        """
        times = falling_times(times, cls.most_times)
        curve = _worst_ratio(sensitivity, delta, times.size, lambda _: times)
        return cls._certified(sensitivity, delta, curve, solve_for_crossing(curve, float(delta)))

    @classmethod
    def minimax_levels(
        cls, *, sensitivity: float, delta: float, low: float, high: float, levels: int
    ) -> Self:
        """Return the `minimax` boundary whose times cost epsilons from `low` to `high`.

        The epsilons have equal ratios, up to rounding (two parts in 10^6 in float32). Use
        `nrjax.Grid(boundary.times)` as the schedule.

        >>> boundary = nrjax.GridBoundary.minimax_levels(
        ...     sensitivity=1.0, delta=1e-6, low=0.1, high=10.0, levels=3
        ... )
        >>> [round(float(epsilon), 3) for epsilon in boundary.epsilon(boundary.times)]
        [0.1, 1.0, 10.0]

        Args:
            sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
            delta: probability with which the loss may exceed the stated epsilon, at most 1/2.
            low: epsilon of the first and largest time.
            high: epsilon of the last time, above `low` (or equal to `low` if `levels` is 1).
            levels: number of times n.

        Raises:
            ValueError: an argument is traced or out of range.
        """
        check_integer("levels", levels, 1, cls.most_times)
        start, stop = certified_number("low", low), certified_number("high", high)
        check(stop > start or (levels == 1 and stop == start), "high", high, f"above low = {low!r}")
        epsilons = np.geomspace(start, stop, levels)

        def falling(ratio: float) -> np.ndarray:
            """Return the times at which `ratio` times the oracle's epsilon is `epsilons`."""
            z, target = _quantile(delta), epsilons / ratio
            return (float(sensitivity) * (z + np.sqrt(z * z + 2 * target)) / (2 * target)) ** 2

        curve = _worst_ratio(sensitivity, delta, levels, falling)
        with np.errstate(all="ignore"):
            ends, given = falling(1.0)[[0, -1]], (sensitivity, low, high)
        names, what = "(sensitivity, low, high)", "such that the times of these epsilons are"
        check_normal(names, given, ends, what, OTHER_UNIT)
        excess = solve_for_crossing(curve, float(delta))
        times = falling_times(falling(1 + excess), cls.most_times)
        curve = _worst_ratio(sensitivity, delta, levels, lambda _: times)
        return cls._certified(sensitivity, delta, curve, excess)

    @classmethod
    def _certified(cls, sensitivity: Any, delta: Any, curve: Any, excess: float) -> Self:
        """Return the boundary on `curve(excess)`, after `excess` is raised to a certified one."""
        times, heights = curve(raise_until_certified(curve, excess, float(delta)))
        return cls(sensitivity, delta, times[::-1], heights[::-1])

    def _index(self, time: Array, times: Array) -> tuple[Array, Array]:
        """Return an index into `times`, and whether `time` is the time at that index."""
        index = jnp.minimum(jnp.searchsorted(-times, -time), times.size - 1)
        return index, times[index] == time

    def _checked_index(self, time: ArrayLike, dtype: Any) -> tuple[Array, Array]:
        """Return the index of a time, and whether the time is one of the boundary's times.

        Raises:
            ValueError: a concrete time is not one of the boundary's times.
        """
        check_time(time)
        index, listed = self._index(jnp.asarray(time, dtype), jnp.asarray(self.times, dtype))
        if (concrete := concrete_or_none(listed)) is not None:
            check(concrete, "time", time, f"among the {len(self.times)} times of the boundary")
        return index, listed

    @neutral_config()
    def curve(self, time: ArrayLike) -> Array:
        """Return the height `c_i` at each of the boundary's times, rounded up, elementwise.

        Raises:
            ValueError: a concrete time is not one of the boundary's times. For a traced one the
                result is NaN.
        """
        dtype = float_dtype(time)
        index, listed = self._checked_index(time, dtype)
        height = jnp.asarray(self.heights, dtype)[index]
        return jnp.where(listed, round_up(height, self.margin), jnp.nan)

    @neutral_config()
    def epsilon(self, time: ArrayLike) -> Array:
        """Return the ex-post epsilon of stopping at a time of the boundary, elementwise.

        Raises:
            ValueError: a concrete time is not one of the boundary's times. For a traced one the
                result is NaN.
        """
        dtype = float_dtype(time)
        index, listed = self._checked_index(time, dtype)
        # The exact time of the grid is used, because `time` may have a coarser dtype.
        wide = float_dtype(time, self.sensitivity, self.times, self.heights)
        stated = super().epsilon(jnp.asarray(self.times, wide)[index])
        if dtype != wide:  # the noise is that of a rounded time
            stated = stated * (1 + self.margin * float(jnp.finfo(dtype).eps))
        return jnp.where(listed, stated, jnp.nan)

    def _epsilon(self, time: Array, *parameters: Array) -> Array:
        sensitivity, _, times, heights = parameters
        index, listed = self._index(time, times)
        raw = sensitivity / time * (0.5 * sensitivity + heights[index])
        return jnp.where(listed, raw, jnp.inf)


def _quantile(delta: Any) -> float:
    """Return the number that a standard normal exceeds with probability delta."""
    from scipy.special import ndtri  # slow to import

    return -float(ndtri(float(delta)))


def _worst_ratio(
    sensitivity: Any, delta: Any, size: int, times: Callable[[float], np.ndarray]
) -> Callable[[float], Curve]:
    """Return the curve that costs 1 + k times the oracle's epsilon, as a function of k.

    Args:
        sensitivity: l2-sensitivity.
        delta: probability of a crossing.
        size: number of times.
        times: returns falling times for 1 + k.
    """
    half = 0.5 * certified_number("sensitivity", sensitivity)
    check_delta(certified_number("delta", delta), size, 0.5)
    z = _quantile(delta)

    def curve(k: float) -> Curve:
        rising = times(1 + k)[::-1]
        oracle = z * np.sqrt(rising)
        return rising, oracle + k * (oracle + half)

    return curve
