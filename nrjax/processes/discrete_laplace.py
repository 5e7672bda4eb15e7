"""Discrete Laplace noise: integers, rewound by their exact reverse kernel."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax.processes._counts import largest_count
from nrjax.processes._kernel import (
    Coordinates,
    branches,
    check_integers,
    exponential,
    random_bits,
    uniform,
    uniform_and_complement,
)
from nrjax.processes.laplace import laplace_loss
from nrjax.types import BlockwiseProcess, Status

_LARGEST = {"float32": 2.0**10, "float64": 2.0**26}
"""Largest time per dtype.

At larger times the function `below` has too few random bits to choose among the integers.
"""

_SMALLEST = {"float32": 0.2, "float64": 0.05}
"""Smallest time per dtype.

At smaller times a draw has too few random words for the tail of the noise.
"""

WORDS = 5
"""Number of random words that one draw of `discrete_laplace` takes."""

_MOVE = 3
"""Number of random words that one move takes."""

_LAST = 2**8 - 1
"""Mask of the bits of a word that extend another word in `below`."""


class DiscreteLaplaceState(NamedTuple):
    """The noise `value` at `time`, and whether noise or time left the exact range.

    `overflow` stays true once the noise or the time has left the range.
    """

    value: Array
    time: Array
    overflow: Array


class DiscreteLaplace(Coordinates, BlockwiseProcess):
    """A process of two-sided geometric noise, the integer form of `nrjax.Laplace`.

    Use it for counts and other values of integers, with `nrjax.DiscretePureGuarantee`: at time t
    (the scale of the Laplace noise that costs the same) a release costs `D1/t`.

    In each coordinate `P(Z_t = k) = (1 - q)/(1 + q) q^|k|` with `q = exp(-1/t)`. Forwards from s to
    t > s, `Z_t = Z_s` with probability `Var_s/Var_t`, otherwise `Z_s` plus independent noise of
    time t. Backwards, let `a = |Z_t|`, `k = 1/s - 1/t`, `m = 1/s + 1/t`,
    `h = exp(-m) (1 - exp(-k))/(1 - exp(-2/s))`, and G(x) geometric of ratio `exp(-x)` on 0, 1, ....
    In the direction of the sign of `Z_t` (statement 6 of `docs/proofs`), `Z_s` is

    * below 0, at `-1 - G(m)`, with probability h;
    * from 0 to a - 1, at j with weights `exp(-k j)`, with probability `(1 - h)(1 - exp(-k a))`;
    * beyond a, at `a + 1 + G(m)`, with probability `h exp(-k a)`;
    * equal to a, with probability `(1 - 2h) exp(-k a)`.

    Noise has a float dtype. In float32 it is exact for integers up to 2^24 at times from 0.2 to
    2^10, in float64 for integers up to 2^53 at times from 0.05 to 2^26. Once noise or time is
    outside these ranges, `status` is and stays `OVERFLOW`.

    Rounding changes the privacy cost little. Float logarithms only decide how many integers a draw
    chooses from, and the choice is uniform by integer arithmetic. The following figures, for a
    change of the value by 1 in float32 and times of 1 or more, are maxima over about 450 random
    times and 8000 random steps. They were counted over random words, not proved:

    * The first draw, at time t, costs at most `1.0001/t` if `|Z| <= 15 t`, and `1.11/t` if
      `|Z| <= 30 t`. Larger noise has probability 1e-13. At the stated cost `1/t`, the delta of the
      draw is at most 4e-8, and at most 1e-9 for times of 60 or more.
    * The probabilities of a step have absolute errors near 6e-8. At the stated cost, the delta of
      a step is at most 1.5e-7 for any earlier noise. The deltas of several steps add up. A step to
      time s costs at most `0.0006/s` more than stated, except with probability 1e-3 over the noise
      before and after it, and at most `0.15/s` more, except with probability 1e-6 (for times of
      512 or more).

    At times s below 1 the deltas grow like `exp(1/s)`: up to 2.3e-6 for a step to 0.2, and 0.1 for
    a step to 0.06, which is refused. In float64 the counted deltas are below 4e-12, and costs were
    counted up to time 300. The jumps of count releases (`nrjax.counts`) have other distributions,
    which no status checks. A jump to time t costs at most `0.0021/t` more than stated, except with
    probability 1e-3, and at most `1.8/t` more, except with probability 1e-6. The delta of a jump is
    at most 2.3e-7 for times of 1 or more.

        >>> key, process = jax.random.key(0), nrjax.DiscreteLaplace((3,))
        >>> noise = nrjax.noise_path(key, process, [4.0, 2.0, 1.0])
        >>> bool(jnp.all(noise == jnp.round(noise)))
        True

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "discrete laplace"
    integral: ClassVar[bool] = True

    def init(self, key: Array, time: ArrayLike) -> DiscreteLaplaceState:
        """Return the first noise, at `time`."""
        time = jnp.asarray(time, float_dtype(time))
        value = discrete_laplace(random_bits(key, (WORDS, *self.shape), time.dtype), time)
        return DiscreteLaplaceState(value, time, _out_of_range(value, time))

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> tuple[Array, ...]:
        """Return three arrays of random words for `steps` moves, shape (*steps, *shape)."""
        return tuple(random_bits(key, (_MOVE, *steps, *self.shape), dtype))

    def move(
        self, words: tuple[Array, ...], state: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """Rewind to a smaller time with the given random words."""
        value, now, overflow = state
        time = jnp.asarray(time, now.dtype)
        gap = (now - time) / now
        k, m = gap / time, (1 + time / now) / time
        side = jnp.exp(-m) * (jnp.expm1(-k) / jnp.expm1(-2 / time))
        distance = jnp.abs(value)
        draws = uniform_and_complement(words[0], now.dtype)
        across, outward, moves, inner, outer = branches(*draws, distance, side, k)
        scale = jnp.where(outward, time / (1 + time / now), time / gap)
        rough = jnp.floor(jnp.where(outward, outer, inner) * scale)
        size = sizes(rough, words[1], scale)
        size = jnp.where(outward, size, jnp.minimum(size, distance))
        place = below(words[2], words[1], size)
        target = jnp.where(outward, distance + 1 + place, place)
        target = jnp.where(across, -1 - place, target)
        value = jnp.where(moves, jnp.where(jnp.signbit(value), -target, target), value)
        return _state(value, time, overflow)

    def bridge(
        self, key: Array, lower: DiscreteLaplaceState, upper: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """Return noise at a time between two states, given both (statement 6 of `docs/proofs`)."""
        s, u = lower.time, upper.time
        time = jnp.asarray(time, s.dtype)
        coin, jump = jax.random.split(key)
        difference = upper.value - lower.value
        # P(the noise of time u equals the difference).
        chance = jnp.exp(-jnp.abs(difference) / u) * jnp.tanh(0.5 / u)
        constant = jnp.where(difference == 0, _stay(s, u), 0)  # no move from s to u
        later = _stay(s, time) * _move(time, u) * chance  # the first move comes after `time`
        probability = (constant + later) / (constant + _move(s, u) * chance)
        increment = DiscreteLaplaceState(difference, u, upper.overflow)
        moved = lower.value + self.rewind(jump, increment, time).value
        stays = jax.random.uniform(coin, self.shape, s.dtype) < probability
        value = jnp.where(stays, lower.value, moved)
        return _state(value, time, lower.overflow | upper.overflow)

    def advance(
        self, key: Array, state: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """Return noise at a larger time, given the noise of a state."""
        coin, jump = jax.random.split(key)
        increment = self.init(jump, jnp.asarray(time, state.time.dtype))
        moves = jax.random.uniform(coin, self.shape, increment.time.dtype)
        moves = moves < _move(state.time, increment.time)
        value = jnp.where(moves, state.value + increment.value, state.value)
        return _state(value, increment.time, state.overflow | increment.overflow)

    def largest_time(self, dtype: Any) -> float:
        """Return the largest time of a dtype: 2^10 for float32, 2^26 for float64."""
        return _LARGEST[jnp.dtype(dtype).name]

    def smallest_time(self, dtype: Any) -> float:
        """Return the smallest time of a dtype: 0.2 for float32, 0.05 for float64."""
        return _SMALLEST[jnp.dtype(dtype).name]

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise, `1/(sqrt(2) sinh(1/(2 time)))`."""
        half = 0.5 / jnp.asarray(time, float_dtype(time))
        return math.sqrt(0.5) / jnp.sinh(half)

    def time_of_deviation(self, deviation: ArrayLike) -> Array:
        """Return the time at which noise has a standard deviation d.

        It is `1/(2 asinh(1/(sqrt(2) d)))`.
        """
        deviation = jnp.asarray(deviation, float_dtype(deviation))
        return 0.5 / jnp.arcsinh(math.sqrt(0.5) / deviation)

    def privacy_loss(self, state: DiscreteLaplaceState, shift: ArrayLike) -> Array:
        """Return the realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` for a shift v of the value.

        The loss is infinite if an entry of a traced shift is not an integer.

        Raises:
            ValueError: an entry of a concrete shift is not an integer.
        """
        shift, integral = check_integers(shift, state.value.dtype)
        integral = jnp.all(integral)
        loss = laplace_loss(state.value, state.time, jnp.where(integral, shift, 0))
        return jnp.where(integral, loss, jnp.inf)

    def status(self, state: DiscreteLaplaceState) -> Array:
        """Return `Status.OVERFLOW` once noise or time left the exact range, else `RUNNING`."""
        return jnp.where(state.overflow, Status.OVERFLOW, Status.RUNNING).astype(jnp.int32)


def discrete_laplace(words: Array, time: Array) -> Array:
    """Return noise at `time`, made from `WORDS` random words along the first axis.

    The noise is uniform on -m, ..., m for a random m. P(m) is proportional to `(2m + 1) q^m` with
    `q = exp(-1/time)`: m is the sum of two geometric integers of ratio q, and of a coin that is 1
    with probability `q/(1 + q)`.
    """
    first, second = (jnp.floor(time * exponential(word, time.dtype)) for word in words[:2])
    coin = uniform(words[2], time.dtype) < 1 / (1 + jnp.exp(1 / time))
    largest = 2.0 ** (jnp.iinfo(words.dtype).bits // 2 - 1) - 1  # at least 31.9 * time
    reach = jnp.minimum(first + second + coin, largest)
    return _unsigned_zeros(below(words[3], words[4], 2 * reach + 1) - reach)


def sizes(rough: Array, word: Array, scale: Array) -> Array:
    """Return random m such that a uniform integer below m is geometric of ratio exp(-1/scale).

    Args:
        rough: a geometric integer of the same ratio, whose probabilities may have small errors.
        word: a random word. Its last 8 bits are not used.
        scale: the scale that gives the ratio.
    """
    return 1 + rough + jnp.floor(exponential(word | _LAST, scale.dtype) * scale)


def below(word: Array, last: Array, size: Array) -> Array:
    """Return a uniform integer on 0, ..., size - 1, by integer arithmetic.

    Args:
        word: random bits.
        last: a random word whose last 8 bits extend `word` at the low end.
        size: a float, at least 0. A size above 2^16 - 1 (2^32 - 1 for words of 64 bits) is cut to
            that number.
    """
    half = jnp.iinfo(word.dtype).bits // 2
    signed = f"int{2 * half}"  # processors convert it to and from floats in vectors
    size = jnp.minimum(size, 2.0**half - 1).astype(signed).astype(word.dtype)
    carry = (word & (2**half - 1)) * size + ((last & _LAST) * size >> 8)
    place = ((word >> half) * size + (carry >> half)) >> half
    return place.astype(signed).astype(f"float{2 * half}")


def _stay(s: Array, t: Array) -> Array:
    """Return the probability `(sinh(1/(2t))/sinh(1/(2s)))^2` of no move from time s to t."""
    root = jnp.exp(0.5 / t - 0.5 / s) * jnp.expm1(-1 / t) / jnp.expm1(-1 / s)
    return root * root


def _move(s: Array, t: Array) -> Array:
    """Return the probability `1 - _stay(s, t)` of a move from time s to t.

    The formula follows from `sinh^2 a - sinh^2 b = sinh(a + b) sinh(a - b)`.
    """
    a, b = 0.5 / s, 0.5 / t
    difference = (t - s) / t / s / 2
    return jnp.expm1(-2 * (a + b)) * jnp.expm1(-2 * difference) / jnp.expm1(-2 * a) ** 2


def _out_of_range(value: Array, time: Array) -> Array:
    held = jnp.all(jnp.abs(value) <= largest_count(value.dtype))  # NaN: too large
    name = value.dtype.name
    return ~(held & (time >= _SMALLEST[name]) & (time <= _LARGEST[name]))


def _state(value: Array, time: Array, overflow: Array) -> DiscreteLaplaceState:
    overflow = overflow | _out_of_range(value, time)
    return DiscreteLaplaceState(_unsigned_zeros(value), time, overflow)


def _unsigned_zeros(value: Array) -> Array:
    """Return the values without the sign of zeros, which a release would show."""
    return jnp.where(value == 0, jnp.zeros_like(value), value)
