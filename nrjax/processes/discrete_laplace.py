"""Discrete Laplace noise: integers, rewound by their exact reverse kernel."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.processes._coordinates import Coordinates, whole
from nrjax.processes._counts import largest_count
from nrjax.processes._kernel import branches, random_bits, uniform, uniforms
from nrjax.processes.exponential import exponential
from nrjax.processes.laplace import laplace_loss
from nrjax.types import BlockwiseProcess, Status

_LARGEST = {"float32": 2.0**10, "float64": 2.0**26}
"""Up to which time `below` chooses among enough integers, with enough bits."""

_SMALLEST = {"float32": 0.2, "float64": 0.05}
"""From which time on a draw has words enough for the tail of its noise."""

WORDS = 5
"""Number of random words in a first draw, `discrete_laplace`."""

_MOVE = 3
"""Number of random words in a move."""

_LAST = 2**8 - 1
"""The bits of a word that extend another word in `below`."""


class DiscreteLaplaceState(NamedTuple):
    """Noise `value` at `time`, and whether noise or time were ever out of range."""

    value: Array
    time: Array
    overflow: Array


class DiscreteLaplace(Coordinates, BlockwiseProcess):
    """Two-sided geometric noise reduction (`docs/frontier.md`); not in the papers.

    In each coordinate on its own `P(Z_t = k) = (1 - q)/(1 + q) q^|k|`, `q = exp(-1/t)`: integers,
    at the scale t of the Laplace noise that costs the same. Forwards from s to t > s, `Z_t = Z_s`
    with probability `Var_s/Var_t`, else `Z_s` plus noise of time t. Backwards, with `a = |Z_t|`,
    `k = 1/s - 1/t`, `m = 1/s + 1/t`, `h = exp(-m) (1 - exp(-k))/(1 - exp(-2/s))`, in the direction
    of `Z_t`'s sign, and G(x) geometric of ratio `exp(-x)` on 0, 1, ...:

    * below 0, at `-1 - G(m)`: probability h;
    * from 0 to a - 1, at j with weights `exp(-k j)`: `(1 - h)(1 - exp(-k a))`;
    * beyond a, at `a + 1 + G(m)`: `h exp(-k a)`;
    * staying at a: `(1 - 2h) exp(-k a)`.

    Releases of integers cost `D1/t` as under `Laplace`: `DiscretePureGuarantee(D1)`.
    Noise is of a float dtype, integers up to 2^24 in float32 and 2^53 in float64, at times from
    0.2 to 2^10 and from 0.05 to 2^26; beyond, `status` is `OVERFLOW` from there on.

    Only the number of integers that a draw chooses from comes of float logarithms; the choice among
    them is uniform, by integer arithmetic (`docs/frontier.md`). So rounding changes the cost of a
    unit of the value by little. In float32, from time 1 on, by counting words (the maxima over
    about 450 random times and 8000 random steps; no proof):

    * A first draw costs at most `1.0001/t` for `|Z| <= 15 t` and `1.11/t` for `|Z| <= 30 t`. The
      probability of the rest is 1e-13. At the stated `1/t`, its delta is at most 4e-8, and 1e-9
      from time 60 on.
    * The probabilities of a step have absolute errors near 6e-8. At the stated cost its delta is
      at most 1.5e-7, whatever the noise was before; deltas of several steps add up. Over the noise
      before and after, a step to time s costs at most `0.0006/s` more than stated, except with
      probability 1e-3, and `0.15/s` more, except with 1e-6 (for times from 512 on).

    Below time 1 these deltas grow like `exp(1/s)`: a step to 0.2 has up to 2.3e-6, and one to 0.06,
    which is refused, would have 0.1. In float64 the deltas that were counted are below 4e-12, and
    costs were counted up to time 300. Count releases (`nrjax.counts`) jump by other laws, which no
    status checks: a jump to time t costs up to `0.0021/t` more, except with 1e-3, and `1.8/t`,
    except with 1e-6; its delta is at most 2.3e-7 from time 1 on.

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "discrete laplace"
    integral: ClassVar[bool] = True

    def init(self, key: Array, time: ArrayLike) -> DiscreteLaplaceState:
        """Noise at the first time."""
        time = jnp.asarray(time, float_dtype(time))
        value = discrete_laplace(random_bits(key, (WORDS, *self.shape), time.dtype), time)
        return DiscreteLaplaceState(value, time, _out_of_range(value, time))

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> tuple[Array, ...]:
        """Return three arrays of random words for `steps` moves, shape (*steps, *shape)."""
        return tuple(random_bits(key, (_MOVE, *steps, *self.shape), dtype))

    def move(
        self, words: tuple[Array, ...], state: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """`rewind` with its randomness given."""
        value, now, overflow = state
        time = jnp.asarray(time, now.dtype)
        gap = (now - time) / now
        k, m = gap / time, (1 + time / now) / time
        side = jnp.exp(-m) * (jnp.expm1(-k) / jnp.expm1(-2 / time))
        distance = jnp.abs(value)
        draws = uniforms(words[0], now.dtype)
        across, beyond, between, inner, outer = branches(*draws, distance, side, k)
        scale = jnp.where(beyond, time / (1 + time / now), time / gap)
        rough = jnp.floor(jnp.where(beyond, outer, inner) * scale)
        size = sizes(rough, words[1], scale)
        size = jnp.where(beyond, size, jnp.minimum(size, distance))
        place = below(words[2], words[1], size)
        target = jnp.where(beyond, distance + 1 + place, place)
        target = jnp.where(across, -1 - place, target)
        moved = beyond | between  # `across` is part of `beyond`
        value = jnp.where(moved, jnp.where(jnp.signbit(value), -target, target), value)
        return DiscreteLaplaceState(_plain(value), time, overflow | _out_of_range(value, time))

    def bridge(
        self, key: Array, lower: DiscreteLaplaceState, upper: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """Noise at a time between those of two states, given both (`docs/frontier.md`)."""
        s, u = lower.time, upper.time
        time = jnp.asarray(time, s.dtype)
        coin, jump = jax.random.split(key)
        apart = upper.value - lower.value
        law = jnp.exp(-jnp.abs(apart) / u) * jnp.tanh(0.5 / u)
        stay, none = _stay(s, time), jnp.where(apart == 0, _stay(s, u), 0)
        stays = (none + stay * _move(time, u) * law) / (none + _move(s, u) * law)
        moved = self.rewind(jump, DiscreteLaplaceState(apart, u, upper.overflow), time).value
        keeps = jax.random.uniform(coin, self.shape, s.dtype) < stays
        value = jnp.where(keeps, lower.value, lower.value + moved)
        overflow = lower.overflow | upper.overflow | _out_of_range(value, time)
        return DiscreteLaplaceState(_plain(value), time, overflow)

    def advance(
        self, key: Array, state: DiscreteLaplaceState, time: ArrayLike
    ) -> DiscreteLaplaceState:
        """Noise at a larger time, given the present one: forwards."""
        coin, jump = jax.random.split(key)
        fresh = self.init(jump, jnp.asarray(time, state.time.dtype))
        moves = jax.random.uniform(coin, self.shape, fresh.time.dtype)
        moves = moves < _move(state.time, fresh.time)
        value = jnp.where(moves, state.value + fresh.value, state.value)
        overflow = state.overflow | fresh.overflow | _out_of_range(value, fresh.time)
        return DiscreteLaplaceState(_plain(value), fresh.time, overflow)

    def largest_time(self, dtype: Any) -> float:
        """2^10 in float32, 2^26 in float64."""
        return _LARGEST[jnp.dtype(dtype).name]

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, `1/(sqrt(2) sinh(1/(2 time)))`."""
        half = 0.5 / jnp.asarray(time, float_dtype(time))
        return math.sqrt(0.5) / jnp.sinh(half)

    def time_of_deviation(self, deviation: ArrayLike) -> Array:
        """The time at which noise has this standard deviation, `1/(2 asinh(1/(sqrt(2) d)))`."""
        deviation = jnp.asarray(deviation, float_dtype(deviation))
        return 0.5 / jnp.arcsinh(math.sqrt(0.5) / deviation)

    def privacy_loss(self, state: DiscreteLaplaceState, shift: ArrayLike) -> Array:
        """Realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t`; infinite for a traced non-integer shift.

        Raises:
            ValueError: the shift is concrete and not an integer.
        """
        shift, integral = whole(shift, state.value.dtype)
        integral = jnp.all(integral)
        loss = laplace_loss(state.value, state.time, jnp.where(integral, shift, 0))
        return jnp.where(integral, loss, jnp.inf)

    def status(self, state: DiscreteLaplaceState) -> Array:
        """`Status.OVERFLOW` once noise was too large to be exact, else `Status.RUNNING`."""
        return jnp.where(state.overflow, Status.OVERFLOW, Status.RUNNING).astype(jnp.int32)


def discrete_laplace(words: Array, time: Array) -> Array:
    """Return noise at `time`, made from `WORDS` random words along the first axis.

    The noise is uniform on -m, ..., m, where P(m) is proportional to `(2m + 1) q^m`,
    `q = exp(-1/time)`: m is the sum of two geometric integers of ratio q and a coin that is 1 with
    probability `q/(1 + q)`.
    """
    first, second = (jnp.floor(time * exponential(word, time.dtype)) for word in words[:2])
    coin = uniform(words[2], time.dtype) < 1 / (1 + jnp.exp(1 / time))
    largest = 2.0 ** (jnp.iinfo(words.dtype).bits // 2 - 1) - 1  # at least 31.9 times
    reach = jnp.minimum(first + second + coin, largest)
    return _plain(below(words[3], words[4], 2 * reach + 1) - reach)


def sizes(rough: Array, word: Array, scale: Array) -> Array:
    """Return m such that a uniform integer on 0, ..., m - 1 is geometric of ratio exp(-1/scale).

    Args:
        rough: a geometric integer of that ratio, whose probabilities may have small errors.
        word: a random word. Its last 8 bits are not used.
        scale: see above.
    """
    return 1 + rough + jnp.floor(exponential(word | _LAST, scale.dtype) * scale)


def below(word: Array, last: Array, size: Array) -> Array:
    """Return a uniform integer on 0, ..., size - 1, by integer arithmetic.

    Args:
        word: random bits.
        last: a random word whose last 8 bits extend `word` at the low end.
        size: a float, at least 0. Larger ones count as 2^16 - 1 (2^32 - 1 for words of 64 bits).
    """
    half = jnp.iinfo(word.dtype).bits // 2
    signed = f"int{2 * half}"  # which processors convert to and from floats in vectors
    size = jnp.minimum(size, 2.0**half - 1).astype(signed).astype(word.dtype)
    carry = (word & (2**half - 1)) * size + ((last & _LAST) * size >> 8)
    place = ((word >> half) * size + (carry >> half)) >> half
    return place.astype(signed).astype(f"float{2 * half}")


def _stay(s: Array, t: Array) -> Array:
    """Probability that nothing is added from s to t: `(sinh(1/(2t))/sinh(1/(2s)))^2`."""
    root = jnp.exp(0.5 / t - 0.5 / s) * jnp.expm1(-1 / t) / jnp.expm1(-1 / s)
    return root * root


def _move(s: Array, t: Array) -> Array:
    """`1 - _stay(s, t)` without cancellation: `sinh^2 a - sinh^2 b = sinh(a + b) sinh(a - b)`."""
    a, b = 0.5 / s, 0.5 / t
    apart = (t - s) / t / s / 2
    return jnp.expm1(-2 * (a + b)) * jnp.expm1(-2 * apart) / jnp.expm1(-2 * a) ** 2


def _out_of_range(value: Array, time: Array) -> Array:
    held = jnp.all(jnp.abs(value) <= largest_count(value.dtype))  # NaN: too large
    name = value.dtype.name
    return ~(held & (time >= _SMALLEST[name]) & (time <= _LARGEST[name]))


def _plain(value: Array) -> Array:
    """Without the sign of zeros, which would show in a release."""
    return jnp.where(value == 0, jnp.zeros_like(value), value)
