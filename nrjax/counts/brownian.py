"""One count by Brownian noise reduction: jumps to where it may be accepted."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from nrjax.composition.requests import BrownianReduction
from nrjax.counts.passages import OnLevels, skip_quantile


class BrownianState(NamedTuple):
    """A count whose release was looked at last at a level of squared parameter `square`."""

    level: Array
    """Number of that level, from 0; -1 before the first. int32."""
    square: Array
    """`u = 1/t` of that level; 0 before the first."""
    walk: Array
    """`W(u) = u B(1/u)`, the noise times `u`."""
    last_square: Array
    last_time: Array

    @property
    def time(self) -> Array:
        """Time (variance of the noise) at that level, not below that of the last one."""
        return jnp.maximum(1 / self.square, self.last_time)

    @property
    def noise(self) -> Array:
        """Noise in the release at that level."""
        return self.walk / self.square


class BrownianPassage(OnLevels):
    """First level at which `RelativeError` accepts a count with Brownian noise.

    In inverted time `u = 1/t` the release times u is `X(u) = u f + W(u)`, W a Brownian motion, and
    it is accepted at the first level with `X >= upper sqrt(u)` or `X < -lower sqrt(u)`. At a level
    `u + tau` it can be accepted only if W moves by z standard deviations on the way there, where

        upper sqrt(u + tau) - X(u) - f tau >= z sqrt(tau)   and
        X(u) + f tau + lower sqrt(u + tau) >= z sqrt(tau).

    The walk jumps over all levels before the first that fails this, by bounds: `sqrt` lies above
    its chord, and quadratic inequalities in `sqrt(tau)` are left. See `skip_quantile` for z.
    The squared privacy parameter is `1/t`.
    """

    kind: ClassVar[Any] = BrownianReduction

    @property
    def quantile(self) -> float:
        """How many deviations off the noise must be where a level is skipped."""
        return skip_quantile(self.levels)

    def first_time(self, dtype: Any) -> Array:
        """`1/smallest`."""
        return 1 / jnp.asarray(self.smallest, dtype)

    def init(self, last_time: Array) -> BrownianState:
        """The passage before its first draw."""
        zero = jnp.zeros_like(last_time)
        first = jnp.asarray(self.smallest, last_time.dtype)
        last_square = jnp.maximum(1 / last_time, first)
        return BrownianState(jnp.int32(-1), zero, zero, last_square, last_time)

    def move(
        self, state: BrownianState, count: Array, draw: Array
    ) -> tuple[BrownianState, Array, Array]:
        """Jump to the next level that has to be looked at, and look; `draw` is standard normal."""
        first = jnp.asarray(self.smallest, count.dtype)
        spacing = (state.last_square - first) / (self.levels - 1)
        begun = state.level >= 0
        reach = jnp.where(begun, self._reach(state, count), self._first_reach(count) - first)
        # Levels within reach are skipped; a spacing of 0 leaves one level.
        skipped = jnp.floor(reach / jnp.maximum(spacing, jnp.finfo(count.dtype).tiny))
        skipped = jnp.clip(skipped, -1, self.levels).astype(jnp.int32)
        level = jnp.where(begun, state.level + jnp.maximum(skipped, 0) + 1, skipped + 1)
        level = jnp.clip(level, 0, self.levels - 1)
        square = jnp.minimum(first + spacing * level, state.last_square)
        moved = jnp.where(begun, spacing * (level - state.level), square)
        walk = state.walk + jnp.sqrt(moved) * draw
        state = state._replace(level=level, square=square, walk=walk)
        accepted = self.accuracy.accepts(count * square + walk, jnp.sqrt(square))
        return state, accepted | (level == self.levels - 1), accepted

    def _first_reach(self, count: Array) -> Array:
        """Squared parameter up to which nothing is accepted, from the start; -1 where nowhere."""
        quantile, accuracy = self.quantile, self.accuracy
        root = jnp.sqrt(jnp.asarray(self.smallest, count.dtype))
        safe = (accuracy.upper > quantile) & (accuracy.lower + count * root >= quantile)
        reach = jnp.square((accuracy.upper - quantile) / count)
        return jnp.where(safe, reach, -1)

    def _reach(self, state: BrownianState, count: Array) -> Array:
        """How far beyond the present squared parameter nothing is accepted."""
        quantile = self.quantile
        upper, lower = self.accuracy.upper, self.accuracy.lower
        root = jnp.sqrt(state.square)
        drift = count * state.square
        total = drift + state.walk
        # What rounding may have added to the gaps, which are differences, and to their terms.
        lost = 8 * float(jnp.finfo(count.dtype).eps) * (upper * root + drift + jnp.abs(total))
        above = upper * root - total - lost
        below = total + lower * root - lost
        # The tangent of sqrt bounds the reach from above; the chord up to there is enough.
        most = state.last_square - state.square
        furthest = jnp.minimum(_first_root(above, quantile, count - upper / (2 * root)), most)
        chord = upper / (root + jnp.sqrt(state.square + furthest))
        reach = jnp.minimum(_first_root(above, quantile, count - chord), furthest)
        return jnp.minimum(reach, _first_root(below, quantile, -count))


def _first_root(gap: Array, quantile: float, slope: Array) -> Array:
    """The `tau` up to which `gap - slope tau - quantile sqrt(tau) >= 0`; infinite without an end.

    0 where the gap is not positive.
    """
    gap = jnp.maximum(gap, 0)
    inside = quantile**2 + 4 * slope * gap
    root = 2 * gap / (quantile + jnp.sqrt(jnp.maximum(inside, 0)))
    return jnp.where(inside < 0, jnp.inf, jnp.square(root))
