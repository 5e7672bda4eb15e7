"""Boundaries that are exact on chosen looks."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import as_numeric, check, concrete_or_none
from nrjax.guarantees._crossing import crossing, tuned
from nrjax.guarantees._rounding import Boundary, SafeGuarantee, check_time, round_up

_MOST = 5000
"""Looks: the recursion takes a time of their square (5 s of 1000)."""


class GridBoundary(SafeGuarantee):
    """`psi(t_i) = D2^2/(2 t_i) + (D2/t_i) c_i` on looks fixed in advance; not in the papers.

    Brownian motion is above `c_i` at some `t_i` with probability at most delta, certified by a
    recursion (`docs/frontier.md`), so the loss exceeds psi with no more, whichever of these times
    are chosen; other times are refused (NaN in a trace). `GridBoundary.of` lowers the curve of
    another boundary as far as the looks allow, for the same sensitivity and delta;
    `Grid(boundary.times)` is the schedule, and for a grid there is it is `another.on(grid)`.

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
        delta: probability with which the stated epsilon may be exceeded.
        times: the looks, falling, shape (looks,), at most 5000; rounded to the default precision.
        heights: the curve c, shape (looks,), >= 0, in units of the noise.

    Raises:
        ValueError: `times` do not fall, or are so near each other (1e-8 of themselves) that the
            quadrature would take more than 2^20 nodes at a look; or the curve is crossed more often
            than with probability delta.
    """

    delta: Any  # pyright: ignore[reportIncompatibleVariableOverride]
    times: Any
    heights: Any
    noise: ClassVar[str] = "gaussian"
    margin: ClassVar[int] = 12  # 5 are lost

    def __post_init__(self):
        for name in ("times", "heights"):
            given = getattr(self, name)
            known = isinstance(given, (list, tuple)) or concrete_or_none(given) is not None
            check(known, name, given, "numbers: the curve is certified")
            object.__setattr__(self, name, np.asarray(given, float))
        super().__post_init__()
        times, heights, known = (
            _looks(self.times),
            self.heights,
            concrete_or_none(self.delta) is not None,
        )
        check(known, "delta", self.delta, "a number: the curve is certified")
        check(heights.shape == times.shape, "heights", heights, f"of shape {times.shape}")
        level = crossing(times[::-1], heights[::-1])[1]
        right = f"crossed with probability at most delta = {self.delta}, not {level:.6g}"
        check(level <= np.min(self.delta), "heights", heights, right)
        object.__setattr__(self, "times", times)

    @property
    def looks(self) -> Any:
        """The times."""
        return self.times

    @classmethod
    def of(cls, boundary: Any, times: ArrayLike) -> Self:
        """The boundary on `times` whose curve is the least multiple of that of another one.

        Args:
            boundary: a `LinearBoundary` or a mixture boundary, of concrete numbers.
            times: the looks, falling.

        Raises:
            ValueError: it is none of these or not of concrete numbers, or the looks are no looks.
        """
        right = "a LinearBoundary or a mixture boundary, which have a curve to lower"
        check(isinstance(boundary, (Boundary, cls)), "boundary", boundary, right)
        looks = _looks(times)
        known = concrete_or_none(boundary.delta) is not None and np.ndim(boundary.delta) == 0
        check(known, "boundary", boundary, "of concrete numbers")
        delta = float(boundary.delta)
        with jax.ensure_compile_time_eval():
            shape = np.asarray(boundary.curve(looks), np.float64)
        least = 1e-17 * looks.size  # of what the recursion leaves out
        check(delta >= least, "delta", boundary.delta, f"at least {least:.3g}")
        heights = tuned(looks[::-1], shape[::-1], delta)[::-1]
        return cls(boundary.sensitivity, boundary.delta, looks, heights)

    def _place(self, time: Array, times: Array) -> tuple[Array, Array]:
        """The index of a look among the times, and whether it is one of them."""
        place = jnp.minimum(jnp.searchsorted(-times, -time), times.size - 1)
        return place, times[place] == time

    def _listed(self, time: ArrayLike, dtype: Any) -> tuple[Array, Array]:
        """As `_place`, of the boundary's own; a concrete time that is none of them is refused."""
        check_time(time)
        place, listed = self._place(jnp.asarray(time, dtype), jnp.asarray(self.times, dtype))
        if (seen := concrete_or_none(listed)) is not None:
            check(seen, "time", time, f"among the {len(self.times)} looks of the boundary")
        return place, listed

    def curve(self, time: ArrayLike) -> Array:
        """`c_i` at looks, rounded up; elementwise. As `epsilon`."""
        dtype = float_dtype(time)
        place, listed = self._listed(time, dtype)
        height = jnp.asarray(self.heights, dtype)[place]
        return jnp.where(listed, round_up(height, self.margin), jnp.nan)

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at a look, rounded up; elementwise.

        Raises:
            ValueError: a concrete time is none of the looks. Under a trace the result is NaN.
        """
        dtype = float_dtype(time)
        place, listed = self._listed(time, dtype)
        # At the look itself: the time may be of a coarser dtype.
        wide = float_dtype(time, self.sensitivity, self.times, self.heights)
        return jnp.where(listed, super().epsilon(jnp.asarray(self.times, wide)[place]), jnp.nan)

    def _epsilon(self, time: Array, *parameters: Array) -> Array:
        sensitivity, _, times, heights = parameters
        place, listed = self._place(time, times)
        raw = sensitivity / time * (0.5 * sensitivity + heights[place])
        return jnp.where(listed, raw, jnp.inf)

    def _time(self, asked: Array, *parameters: Array) -> Array:
        times = parameters[2]
        every = round_up(self._epsilon(times, *parameters), self.margin)
        # A curve of one's own may cost more at a larger time.
        return jnp.min(jnp.where(every <= asked[..., None], times, jnp.inf), axis=-1)

    def _reachable(self, dtype: Any) -> str:
        least = np.min(np.asarray(self.epsilon(jnp.asarray(self.times, dtype))))
        return f"finite and at least {least}, which one of the looks costs"


def _looks(times: Any) -> np.ndarray:
    """Falling times as the default precision holds them, so that a run looks at just these."""
    right = f"a vector of 1 to {_MOST} falling times, positive and finite"
    held = np.asarray(times, float)
    as_numeric("times", held, right)
    check(held.ndim == 1 and 0 < held.size <= _MOST, "times", times, right)
    held = np.asarray(held.astype(float_dtype()), np.float64)
    fine = np.isfinite(held) & (held > 0) & np.append(np.diff(held) < 0, True)
    check(fine, "times", times, right)
    return held
