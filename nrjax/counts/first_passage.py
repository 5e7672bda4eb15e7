"""Release one count by noise reduction, in a few draws of noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.keys import check_key, step_key
from nrjax._base.modes import neutral_config
from nrjax._base.pytrees import record
from nrjax._base.threefry import unrolled_key
from nrjax._base.validation import (
    as_table,
    check,
    check_choice,
    check_integer,
    check_numbers,
    check_positive,
)
from nrjax.counts.groups import check_exact
from nrjax.counts.jumps import DiscreteLaplacePassage, LaplacePassage
from nrjax.counts.passages import OnLevels, RelativeError, skip_quantile
from nrjax.processes import DiscreteLaplace

MOST = 2**24
"""Largest number of noise levels or budget marks: float32 holds every integer up to it."""


class BrownianState(NamedTuple):
    """The state of one count's release under Brownian noise.

    Attributes:
        level: number of the noise level that was checked last, -1 before the first check.
        square: squared privacy parameter u of that level.
        walk: u times the noise, `W(u) = u B(1/u)`, where B is the noise by variance.
        last_square: squared privacy parameter of the last level.
        last_time: time (variance of the noise) of the last level.
    """

    level: Array
    square: Array
    walk: Array
    last_square: Array
    last_time: Array

    @property
    def time(self) -> Array:
        """The noise variance at `level`, never below the variance at the last level."""
        return jnp.maximum(1 / self.square, self.last_time)

    @property
    def noise(self) -> Array:
        """The noise in the release at `level`."""
        return self.walk / self.square


class BrownianPassage(OnLevels):
    """A release of one count under Brownian noise, up to the first accepted noise level.

    Let t be the noise variance and `u = 1/t`. Then u times the release is `X(u) = u f + W(u)`,
    where f is the true count and W a Brownian motion. A release is accepted if
    `X >= upper sqrt(u)` or `X < -lower sqrt(u)`. Each draw jumps over the levels at which
    acceptance would take noise of `quantile` standard deviations or more (proof in
    statement 34 of `docs/proofs`).
    """

    @property
    def quantile(self) -> float:
        """The number z of standard deviations from which levels are skipped.

        A level is skipped if acceptance there takes noise of at least z standard deviations.
        """
        return skip_quantile(self.levels)

    def init(self, last_time: Array) -> BrownianState:
        """Return the state before the first draw of noise."""
        zero = jnp.zeros_like(last_time)
        first = jnp.asarray(self.smallest, last_time.dtype)
        last_square = jnp.maximum(1 / last_time, first)
        return BrownianState(jnp.int32(-1), zero, zero, last_square, last_time)

    def move(
        self, state: BrownianState, count: Array, draw: Array
    ) -> tuple[BrownianState, Array, Array]:
        """Jump to the next level with a standard normal `draw`, and check the release there."""
        first = jnp.asarray(self.smallest, count.dtype)
        spacing = (state.last_square - first) / (self.levels - 1)
        started = state.level >= 0
        reach = jnp.where(started, self._reach(state, count), self._first_reach(count) - first)
        # Levels within `reach` are skipped. With a spacing of 0 only the last level is checked.
        skipped = jnp.floor(reach / jnp.maximum(spacing, jnp.finfo(count.dtype).tiny))
        skipped = jnp.clip(skipped, -1, self.levels).astype(jnp.int32)
        level = jnp.where(started, state.level + jnp.maximum(skipped, 0) + 1, skipped + 1)
        level = jnp.clip(level, 0, self.levels - 1)
        square = jnp.minimum(first + spacing * level, state.last_square)
        distance = jnp.where(started, spacing * (level - state.level), square)
        walk = state.walk + jnp.sqrt(distance) * draw
        state = state._replace(level=level, square=square, walk=walk)
        accepted = self.accuracy.accepts(count * square + walk, jnp.sqrt(square))
        return state, accepted | (level == self.levels - 1), accepted

    def _first_reach(self, count: Array) -> Array:
        """Return the squared parameter up to which the first jump skips levels, -1 for none."""
        quantile, accuracy = self.quantile, self.accuracy
        root = jnp.sqrt(jnp.asarray(self.smallest, count.dtype))
        safe = (accuracy.upper > quantile) & (accuracy.lower + count * root >= quantile)
        reach = jnp.square((accuracy.upper - quantile) / count)
        return jnp.where(safe, reach, -1)

    def _reach(self, state: BrownianState, count: Array) -> Array:
        """Return the distance in squared parameter over which the next jump skips levels."""
        quantile = self.quantile
        upper, lower = self.accuracy.upper, self.accuracy.lower
        root = jnp.sqrt(state.square)
        drift = count * state.square
        total = drift + state.walk
        # An upper bound on the rounding errors in `above` and `below`.
        lost = 8 * float(jnp.finfo(count.dtype).eps) * (upper * root + drift + jnp.abs(total))
        above = upper * root - total - lost
        below = total + lower * root - lost
        # The tangent of sqrt bounds the reach from above. The chord up to it bounds it from below.
        most = state.last_square - state.square
        furthest = jnp.minimum(_first_root(above, quantile, count - upper / (2 * root)), most)
        chord = upper / (root + jnp.sqrt(state.square + furthest))
        reach = jnp.minimum(_first_root(above, quantile, count - chord), furthest)
        return jnp.minimum(reach, _first_root(below, quantile, -count))


def _first_root(gap: Array, quantile: float, slope: Array) -> Array:
    """Return the `tau` up to which `gap - slope tau - quantile sqrt(tau)` stays >= 0.

    The result is 0 if the gap is not positive, and may be infinite.
    """
    gap = jnp.maximum(gap, 0)
    inside = quantile**2 + 4 * slope * gap
    root = 2 * gap / (quantile + jnp.sqrt(jnp.maximum(inside, 0)))
    return jnp.where(inside < 0, jnp.inf, jnp.square(root))


_KINDS: dict[str, type[Any]] = {
    "brownian": BrownianPassage,
    "laplace": LaplacePassage,
    "discrete_laplace": DiscreteLaplacePassage,
}


@record
class FirstPassage(NamedTuple):
    """The result of `release_count` (all fields are scalars).

    Attributes:
        step: number of the accepted noise level, from 0, or of the last level if none was
            accepted, int32.
        time: time of that level: the noise's variance (Brownian) or scale (Laplace).
        release: the count plus the noise at that level.
        accepted: whether the rule accepted the release, bool.
        draws: number of random draws in the simulation, int32.
    """

    step: Array
    time: Array
    release: Array
    accepted: Array
    draws: Array


@neutral_config()
def release_count(
    key: Array,
    count: ArrayLike,
    accuracy: RelativeError,
    smallest: ArrayLike,
    largest: ArrayLike,
    levels: int = 1000,
    method: str = "brownian",
) -> FirstPassage:
    """Release a count under noise that is reduced until the count is accurate enough.

    The result has the distribution of `nrjax.run_until` over all levels with `accuracy.utility` and
    `PublicThreshold(0)`, up to a probability of 1e-12. It takes fewer draws, since levels without a
    chance of acceptance are skipped. A call is one trial, also under `jit` and `vmap`. To release
    many counts under a budget, use `CountRelease`.

        >>> accuracy, key = nrjax.counts.RelativeError(0.1), jax.random.key(0)
        >>> result = nrjax.counts.release_count(key, 1000.0, accuracy, smallest=1e-6, largest=0.1)
        >>> bool(result.accepted), bool(abs(result.release - 1000) < 200)
        (True, True)

    Args:
        key: random key.
        count: the true count, scalar, >= 0.
        accuracy: the rule that accepts a noisy count.
        smallest: squared privacy parameter of the first level: `1/t` for Brownian noise, `1/t^2`
            for Laplace noise, discrete or not; scalar, > 0.
        largest: squared privacy parameter of the last level, at least `smallest`.
        levels: number of levels, at least 2 (static). Their squared parameters are equally spaced.
        method: "brownian", "laplace", or, for an integer count, "discrete_laplace" (static).

    Raises:
        ValueError: an argument is out of range.
    """
    key = check_key(key)
    check_choice("method", method, sorted(_KINDS))
    check(isinstance(accuracy, RelativeError), "accuracy", accuracy, "of type RelativeError")
    check_integer("levels", levels, 2, MOST)
    for name, value in {"count": count, "smallest": smallest, "largest": largest}.items():
        check(np.shape(as_table(value)) == (), name, value, "a scalar", "Use vmap for several.")
    integral = method == "discrete_laplace"  # integer noise would reveal a count's fraction
    expected = "a whole number, not negative" if integral else "finite and not negative"

    def fits(number: Any) -> Any:
        return np.isfinite(number) & (number >= 0) & ((number % 1 == 0) | (not integral))

    check_numbers("count", count, fits, expected)
    if integral:  # a traced count cannot be checked: NaN marks a fraction
        count = jnp.where(jnp.asarray(count) % 1 == 0, count, jnp.nan)
    check_exact("count", count)
    low, high = check_smallest(smallest, method), check_positive("largest", largest)
    if low is not None and high is not None:
        check(high >= low, "largest", largest, f"at least smallest = {smallest!r}")
    return follow(key, count, _KINDS[method](accuracy, smallest, levels), largest)


def check_smallest(smallest: Any, method: str) -> np.ndarray | None:
    """Check the first level's squared parameter: positive, and not too small for the noise."""
    check_positive("smallest", smallest)
    dtype = jnp.result_type(float)
    least = float(jnp.finfo(dtype).tiny)
    expected = f"at least {least:.2g}, below which numbers of this precision count as 0"
    if method == "discrete_laplace":
        least = DiscreteLaplace(()).largest_time(dtype) ** -2
        name = np.dtype(dtype).name
        expected = f"at least {least:.2g} for discrete Laplace noise in {name} (float64 takes less)"
    return check_numbers("smallest", smallest, lambda number: number >= least, expected)


@jax.jit
def follow(key: Array, count: ArrayLike, passage: OnLevels, largest: ArrayLike) -> FirstPassage:
    """Run a passage to its end, with `key`, `count` and `largest` as in `release_count`."""
    dtype = float_dtype(count, passage.smallest, largest)
    key = unrolled_key(key)
    count, largest = jnp.asarray(count, dtype), jnp.asarray(largest, dtype)
    state = passage.until(passage.time_of(largest))
    never = jnp.asarray(False)

    def draw(carry: Any) -> Any:
        state, _, _, draws = carry
        drawn = passage.draws(step_key(key, draws), 1, dtype)[0]
        return *passage.move(state, count, drawn), draws + 1

    state, _, accepted, draws = jax.lax.while_loop(
        lambda carry: ~carry[1], draw, (state, never, never, jnp.int32(0))
    )
    return FirstPassage(state.level, state.time, count + state.noise, accepted, draws)
