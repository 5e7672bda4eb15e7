"""One count by Laplace noise reduction: from jump to jump of the noise."""

import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from nrjax.composition.requests import LaplaceReduction
from nrjax.counts.passages import OnLevels
from nrjax.processes.laplace import laplace, random_bits, uniform


class LaplaceState(NamedTuple):
    """A count whose noise is `noise` just below `time`."""

    begun: Array
    """Whether there is noise yet (bool)."""
    level: Array
    """Number of the level where it ended. int32."""
    time: Array
    """Scale of the noise: at the last jump, or at the level where it ended."""
    noise: Array
    last_time: Array


class LaplacePassage(OnLevels):
    """First level at which `RelativeError` accepts a count with Laplace noise.

    The squared privacy parameters `1/t^2` are equally spaced (t the noise's scale, so that its
    standard deviation is `sqrt(2) t`). Towards smaller times the process of `nrjax.Laplace` is a
    Markov jump process, the limit of its reverse kernel: from noise of size a at time t there is
    no jump down to s with probability `(s/t) exp(-a (1/s - 1/t))`; a jump at s goes
    to a uniform place between 0 and where it was with probability `a/(a + s)`, else beyond either
    0 or where it was, with equal chances, by an exponential distance of mean `s/2`. Between jumps
    the release is constant and the deviation falls, so that the next level at which
    it would be accepted is known: nothing is approximated, and no level is looked at in vain.
    """

    kind: ClassVar[Any] = LaplaceReduction

    def draws(self, key: Array, number: int, dtype: Any) -> Array:
        """Random bits, shape (number, 4)."""
        return random_bits(key, (number, 4), dtype)

    def first_time(self, dtype: Any) -> Array:
        """`1/sqrt(smallest)`."""
        return 1 / jnp.sqrt(jnp.asarray(self.smallest, dtype))

    def init(self, last_time: Array) -> LaplaceState:
        """The passage before its first draw."""
        first = self.first_time(last_time.dtype)
        zero = jnp.zeros_like(last_time)
        return LaplaceState(jnp.asarray(False), jnp.int32(-1), first, zero, last_time)

    def move(
        self, state: LaplaceState, count: Array, draw: Array
    ) -> tuple[LaplaceState, Array, Array]:
        """On to the level where it is accepted, or to the next jump; `draw` are four numbers."""
        dtype = count.dtype
        noise = jnp.where(state.begun, state.noise, state.time * laplace(draw[0], dtype))
        one, two, where = (uniform(draw[number], dtype) for number in (1, 2, 3))
        size, now = jnp.abs(noise), state.time
        # The later of two kinds of jumps: at rates 1/t and size/t^2.
        jump = jnp.maximum(now * one, now * size / (size - now * jnp.log(two)))

        release, rule = count + noise, self.accuracy
        needed = jnp.where(release > 0, release / rule.upper, -release / rule.lower) / math.sqrt(2)
        needed = jnp.where(jnp.isnan(needed), 0, needed)  # a NaN is never good enough
        level, time = self._level(jnp.where(state.begun, jnp.minimum(now, needed), needed), state)
        accepted = (level < self.levels) & (time > jump)
        ended = accepted | ~(jump > state.last_time)

        mass = where * (size + jump)
        # What is left of the draw says how far; a 0 stands for what is too small for a float.
        left = (mass - size) / jump
        beyond = left < 0.5
        least = float(jnp.finfo(dtype).eps)
        scaled = jnp.maximum(jnp.where(beyond, 2 * left, 2 * left - 1), least)
        distance = -jump / 2 * jnp.log(scaled)
        target = jnp.where(mass < size, mass, jnp.where(beyond, size + distance, -distance))
        target = jnp.where(noise < 0, -target, target)
        state = LaplaceState(
            begun=jnp.asarray(True),
            level=jnp.where(accepted, level, self.levels - 1),
            time=jnp.where(accepted, time, jnp.where(ended, state.last_time, jump)),
            noise=jnp.where(ended, noise, target),
            last_time=state.last_time,
        )
        return state, ended, accepted

    def _level(self, time: Array, state: LaplaceState) -> tuple[Array, Array]:
        """Number and time of the first level of at most this time; `levels` if there is none."""
        first = jnp.asarray(self.smallest, time.dtype)
        last = jnp.maximum(1 / jnp.square(state.last_time), first)
        spacing = (last - first) / (self.levels - 1)

        def at(level: Array) -> Array:
            inner = jnp.maximum(1 / jnp.sqrt(first + spacing * level), state.last_time)
            return jnp.where(level >= self.levels - 1, state.last_time, inner)

        steps = (1 / jnp.square(time) - first) / jnp.maximum(spacing, jnp.finfo(time.dtype).tiny)
        level = jnp.clip(jnp.ceil(steps), 0, self.levels).astype(jnp.int32)
        # Rounding may leave it one short.
        level = jnp.where((at(level) > time) & (level < self.levels), level + 1, level)
        return level, at(level)
