"""Boundaries that are exact on chosen looks."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_numbers, concrete, float_dtype, numbers
from nrjax.guarantees._crossing import crossing, tuned
from nrjax.guarantees._rounding import (
    GaussianGuarantee,
    check_time,
    divisor,
    round_up,
    safe_epsilon,
    safe_time,
)

# Machine epsilons by which epsilon is rounded up, for the formula and the casts of its parameters.
_MARGIN = 12
_MOST = 5000
"""Looks: the recursion takes a time of their square (16 s of 1000)."""


class GridBoundary(GaussianGuarantee):
    """`psi(t_i) = D2^2/(2 t_i) + (D2/t_i) c_i` on looks fixed in advance; not in the papers.

    Brownian motion is above `c_i` at some `t_i` with probability at most delta, certified by a
    recursion (`docs/frontier.md`), so the loss exceeds psi with no more, whichever of these times
    are chosen; other times are refused (NaN in a trace). `GridBoundary.of` lowers the curve of
    another boundary as far as the looks allow, for the same sensitivity and delta;
    `Grid(boundary.times)` is the schedule.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        times: the looks, falling, shape (looks,), at most 5000; rounded to the default precision.
        heights: the curve c, shape (looks,), >= 0, in units of the noise.

    Raises:
        ValueError: `times` do not fall, or the curve is crossed more often than with probability
            delta.
    """

    times: Any
    heights: Any

    def __post_init__(self):
        for name in ("times", "heights"):
            if isinstance(getattr(self, name), (list, tuple)):
                object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        super().__post_init__()
        right = f"a vector of 1 to {_MOST} falling times"
        times = check_numbers(
            "times", self.times, lambda n: n.ndim == 1 and 0 < n.size <= _MOST, right
        )
        heights, delta = concrete(self.heights), concrete(self.delta)
        known = times is not None and heights is not None and delta is not None
        check(known, "times", self.times, "numbers, as heights and delta: the curve is certified")
        times, heights = _rounded(times), np.asarray(heights, np.float64)
        check(np.diff(times) < 0, "times", self.times, right)
        same = heights.shape == times.shape
        check(same, "heights", self.heights, f"of shape {times.shape}, one for each time")
        level = crossing(times[::-1], heights[::-1])[1]
        right = f"crossed with probability at most delta = {self.delta}, not {level:.6g}"
        check(level <= np.min(delta), "heights", self.heights, right)
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "heights", heights)

    @classmethod
    def of(cls, boundary: Any, times: ArrayLike) -> Self:
        """The boundary on `times` whose curve is the least multiple of that of another one.

        Args:
            boundary: a `LinearBoundary` or a mixture boundary, of concrete numbers.
            times: the looks, falling.
        """
        looks = _rounded(numbers("times", np.asarray(times), "a vector of falling times"))
        right = "a vector of falling times, positive and finite"
        fine = looks.ndim == 1 and looks.size > 0 and np.all(np.isfinite(looks) & (looks > 0))
        check(fine and np.all(np.diff(looks) < 0), "times", times, right)
        delta = concrete(boundary.delta)
        check(delta is not None and delta.ndim == 0, "boundary", boundary, "of concrete numbers")
        with jax.ensure_compile_time_eval():
            shape = np.asarray(boundary.curve(looks), np.float64)
        heights = tuned(looks[::-1], shape[::-1], float(delta))[::-1]
        return cls(boundary.sensitivity, boundary.delta, looks, heights)

    def _place(self, time: Array) -> tuple[Array, Array]:
        """The index of a look among the times, and whether it is one of them."""
        times = jnp.asarray(self.times, time.dtype)
        place = jnp.searchsorted(-times, -time)
        place = jnp.minimum(place, times.size - 1).astype(jnp.int32)
        return place, times[place] == time

    def _at(self, place: Array, dtype: Any) -> Array:
        """Epsilon of looks by their index."""
        time = divisor(jnp.asarray(self.times, dtype)[place], dtype)
        height = jnp.asarray(self.heights, dtype)[place]
        sensitivity = jnp.asarray(self.sensitivity, dtype)
        raw = sensitivity / time * (0.5 * sensitivity + height)
        return safe_epsilon(raw, time, sensitivity, _MARGIN)

    def curve(self, time: ArrayLike) -> Array:
        """`c_i` at looks, above which W is with probability at most delta; rounded up."""
        check_time(time)
        time = jnp.asarray(time, float_dtype(time))
        place, listed = self._place(time)
        self._refuse(time, listed)
        height = jnp.asarray(self.heights, time.dtype)[place]
        return jnp.where(listed, round_up(height, _MARGIN), jnp.nan)

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at a look, rounded up; elementwise.

        Raises:
            ValueError: a concrete time is none of the looks. Under a trace the result is NaN.
        """
        check_time(time)
        dtype = float_dtype(time, self.sensitivity)
        time = jnp.asarray(time, dtype)
        place, listed = self._place(time)
        self._refuse(time, listed)
        return jnp.where(listed, self._at(place, dtype), jnp.nan)

    def _refuse(self, time: Array, listed: Array) -> None:
        seen = concrete(listed)
        if seen is not None:
            check(seen, "time", time, f"among the {len(self.times)} looks of the boundary")

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest of the looks that costs at most `epsilon`; elementwise."""
        numbers("epsilon", epsilon, "finite and above 0")
        dtype = float_dtype(epsilon, self.sensitivity)
        asked = jnp.asarray(epsilon, dtype)
        every = self._at(jnp.arange(len(self.times)), dtype)
        # A curve of one's own may cost more at a larger time.
        enough = jnp.where(every <= asked[..., None], jnp.asarray(self.times, dtype), jnp.inf)
        return safe_time(
            jnp.min(enough, axis=-1),
            asked,
            epsilon,
            lambda: f"finite and at least {np.min(np.asarray(every))}, which the first look costs",
        )


def _rounded(times: Any) -> np.ndarray:
    """Times as the default precision holds them, so that a run looks at just these."""
    return np.asarray(np.asarray(times, float_dtype()), np.float64)
