"""Releases of one count under Laplace noise (continuous or discrete), jump by jump."""

import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from nrjax.composition.requests import DiscreteLaplaceReduction, LaplaceReduction
from nrjax.counts.passages import OnLevels
from nrjax.processes import DiscreteLaplace
from nrjax.processes._kernel import laplace, random_bits, uniform
from nrjax.processes.discrete_laplace import WORDS, below, discrete_laplace, sizes


class LaplaceState(NamedTuple):
    """The state of one count's release under Laplace noise.

    Attributes:
        level: -1 before the first draw, then the accepted level, or the last one if none is.
        time: time (scale of the noise) of the accepted level, or of the latest jump.
        noise: the noise at that time.
        last_time: time of the last level.
    """

    level: Array
    time: Array
    noise: Array
    last_time: Array


class LaplacePassage(OnLevels):
    """A release of one count under Laplace noise, up to the first accepted noise level.

    The levels' squared privacy parameters `1/t^2` are equally spaced, where t is the noise's scale.
    While t falls, the noise of `nrjax.Laplace` is a Markov jump process (statement 34 of
    `docs/proofs`). Between jumps the release is constant and the standard deviation falls, so the
    next level at which the release would be accepted is known exactly.
    """

    kind: ClassVar[Any] = LaplaceReduction

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Return the random bits of `number` (static) draws, shape (number, 4)."""
        return random_bits(key, (number, 4), dtype)

    def time_of(self, square: Array) -> Array:
        """Return the noise's scale at a squared privacy parameter, `1/sqrt(square)`."""
        return 1 / jnp.sqrt(square)

    def init(self, last_time: Array) -> LaplaceState:
        """Return the state before the first draw of noise."""
        first = self.time_of(jnp.asarray(self.smallest, last_time.dtype))
        zero = jnp.zeros_like(last_time)
        return LaplaceState(jnp.int32(-1), first, zero, last_time)

    def move(
        self, state: LaplaceState, count: Array, draw: Array
    ) -> tuple[LaplaceState, Array, Array]:
        """Move to the accepted level or to the next jump, with the random bits of `draw`."""
        started = state.level >= 0
        noise = jnp.where(started, state.noise, self._first_noise(draw, state.time))
        first, second = (uniform(draw[number], count.dtype) for number in (1, 2))
        size, now = jnp.abs(noise), state.time
        jump = self._jump(now, size, first, second)

        release, rule = count + noise, self.accuracy
        largest = jnp.where(release > 0, release / rule.upper, -release / rule.lower)
        needed = self._time_of_deviation(largest)
        needed = jnp.where(jnp.isnan(needed), 0, needed)  # a NaN is never accepted
        level, time = self._level(jnp.where(started, jnp.minimum(now, needed), needed), state)
        accepted = (level < self.levels) & (time > jump)
        ended = accepted | ~(jump > state.last_time)
        target = self._target(size, jump, draw)
        target = jnp.where(noise < 0, -target, target)
        state = LaplaceState(
            level=jnp.where(accepted, level, self.levels - 1),
            time=jnp.where(accepted, time, jnp.where(ended, state.last_time, jump)),
            noise=jnp.where(ended, noise, target),
            last_time=state.last_time,
        )
        return state, ended, accepted

    def _first_noise(self, draw: Array, time: Array) -> Array:
        return time * laplace(draw[0], time.dtype)

    def _time_of_deviation(self, deviation: Array) -> Array:
        return deviation / math.sqrt(2)

    def _jump(self, now: Array, size: Array, first: Array, second: Array) -> Array:
        """Return the time below `now` at which noise of absolute value `size` jumps next."""
        # Two kinds of jumps have rates 1/t and size/t^2. Time falls, so the larger time is next.
        return jnp.maximum(now * first, now * size / (size - now * jnp.log(second)))

    def _target(self, size: Array, jump: Array, draw: Array) -> Array:
        """Return the noise after positive noise of value `size` has jumped at time `jump`."""
        mass = uniform(draw[3], size.dtype) * (size + jump)
        # The remainder decides how far. A remainder of 0 stands for one too small for a float.
        left = (mass - size) / jump
        beyond = left < 0.5
        least = float(jnp.finfo(size.dtype).eps)
        scaled = jnp.maximum(jnp.where(beyond, 2 * left, 2 * left - 1), least)
        distance = -jump / 2 * jnp.log(scaled)
        return jnp.where(mass < size, mass, jnp.where(beyond, size + distance, -distance))

    def _level(self, time: Array, state: LaplaceState) -> tuple[Array, Array]:
        """Return the number and the time of the first level whose time is at most `time`.

        The number is `levels` if there is no such level.
        """
        first = jnp.asarray(self.smallest, time.dtype)
        last = jnp.maximum(1 / jnp.square(state.last_time), first)
        spacing = (last - first) / (self.levels - 1)

        def at(level: Array) -> Array:
            inner = jnp.maximum(1 / jnp.sqrt(first + spacing * level), state.last_time)
            return jnp.where(level >= self.levels - 1, state.last_time, inner)

        steps = (1 / jnp.square(time) - first) / jnp.maximum(spacing, jnp.finfo(time.dtype).tiny)
        level = jnp.clip(jnp.ceil(steps), 0, self.levels).astype(jnp.int32)
        # Rounding may make the level one too small.
        level = jnp.where((at(level) > time) & (level < self.levels), level + 1, level)
        return level, at(level)


class DiscreteLaplacePassage(LaplacePassage):
    """A release of one count under discrete Laplace noise, up to the first accepted level.

    While the time t falls, noise of value a >= 0 jumps to each of 0, ..., a - 1 at rate `1/t^2`,
    and to each of `a + j` and `-j`, for j = 1, 2, ..., at rate `exp(-2j/t)/t^2`. The rates follow
    from the transition kernel of statement 6 of `docs/proofs`, from t to t - dt.
    """

    kind: ClassVar[Any] = DiscreteLaplaceReduction

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Return the random bits of `number` (static) draws, shape (number, 10)."""
        return random_bits(key, (number, 5 + WORDS), dtype)

    def _first_noise(self, draw: Array, time: Array) -> Array:
        return discrete_laplace(draw[5:], time)

    def _time_of_deviation(self, deviation: Array) -> Array:
        return DiscreteLaplace(()).time_of_deviation(deviation)

    def _jump(self, now: Array, size: Array, first: Array, second: Array) -> Array:
        inwards = jnp.where(size > 0, now * size / (size - now * jnp.log(second)), 0)
        # There is no outward jump from time t down to s with probability
        # (1 - exp(-2/t))/(1 - exp(-2/s)).
        ratio = -jnp.expm1(-2 / now) / first
        outwards = -2 / jnp.log1p(-jnp.minimum(ratio, 1))
        return jnp.maximum(inwards, jnp.where(ratio < 1, outwards, 0))

    def _target(self, size: Array, jump: Array, draw: Array) -> Array:
        side = 1 / jnp.expm1(2 / jump)
        mass = uniform(draw[3], size.dtype) * (size + 2 * side)
        left = (mass - size) / jnp.where(side > 0, side, 1)
        beyond = left < 1
        least = float(jnp.finfo(size.dtype).eps)
        scaled = jnp.clip(jnp.where(beyond, left, left - 1), least, 1)
        far = sizes(jnp.floor(-jump / 2 * jnp.log(scaled)), draw[0], jump / 2)
        inside = (mass < size) | ~(side > 0)
        place = below(draw[4], draw[0], jnp.where(inside, size, far))
        return jnp.where(inside, place, jnp.where(beyond, size + 1 + place, -1 - place))
