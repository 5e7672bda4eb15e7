"""Spherical Laplace noise, of density proportional to `exp(-|x|_2/t)`, rewound exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.normals import normals
from nrjax._base.numerics import in_unit, unit_of
from nrjax._base.threefry import in_pairs, is_placed
from nrjax.processes._kernel import Coordinates, precise_exponential, random_bits
from nrjax.types import BlockwiseProcess


class SphericalState(NamedTuple):
    """The noise `value` at `time`, and the hidden `clock`, the variance `S` divided by `time^2`.

    Given the clock, the coordinates of the noise are normal with variance `2 clock time^2`.
    """

    value: Array
    clock: Array
    time: Array


class SphericalLaplace(Coordinates, BlockwiseProcess):
    """Noise of density proportional to `exp(-|x|_2/t)`: pure privacy for an l2-sensitivity.

    Use it for vectors with a small l2-sensitivity where delta must be 0, together with
    `nrjax.SphericalPureGuarantee`. All releases of a trial together cost as much as the last one,
    `D2/t`. In d dimensions a coordinate has the standard deviation `sqrt(d + 1) t`. Independent
    Laplace noise (`nrjax.Laplace`), scaled to an l1-sensitivity of `sqrt(d) D2`, has `sqrt(2 d) t`.

    The noise is a Brownian motion at a random time, `X_t = W(2 S_t)`, where `S_t/t^2` has a Gamma
    distribution of shape `a = (d + 1)/2`. Forwards, S jumps at the points of a Poisson process of
    intensity `(d + 1)/t`, and a jump at time u adds an exponential draw of mean `u^2`. Backwards, S
    is divided by `exp(E/a)` at the points of a Poisson process of intensity `S` in `1/t^2`, where E
    is a standard exponential draw, and X follows a Brownian bridge (statement 41 of `docs/proofs`).
    Between jumps neither moves, so that close releases are often equal. S is never released. There
    is no bridge between two times, so `nrjax.Releases` refuses the process.

    In float32 the probability that a step moves, given the clock, is exact to 2^-32, and an
    exponential draw never exceeds 23. The cost `D2/t` holds for real numbers; the low bits of
    floats reveal more. The time of a step grows with the number of jumps in it, whose mean is
    `(d + 1) log(t/s)` from t to s.

        >>> process = nrjax.SphericalLaplace((3,))
        >>> nrjax.noise_path(jax.random.key(0), process, [4.0, 2.0, 1.0]).shape
        (3, 3)
        >>> float(process.deviation(2.0))
        4.0

    Attributes:
        shape: shape of the private value. Its d entries are one vector.
    """

    noise: ClassVar[str] = "spherical laplace"

    @property
    def _twice_shape(self) -> int:
        """The number `2 a = d + 1`."""
        return max(math.prod(self.shape), 1) + 1

    def init(self, key: Array, time: ArrayLike) -> SphericalState:
        """Return the first noise, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        key_clock, key_value = jax.random.split(key)
        size = math.prod(self.shape)
        drawn = normals(key_value, (size + 1,), time.dtype)
        # Half a chi-square of d + 1 degrees of freedom, of which an exponential draw takes two.
        bits = random_bits(key_clock, (self._twice_shape // 2,), time.dtype)
        clock = jnp.sum(precise_exponential(bits, time.dtype))
        if self._twice_shape % 2:
            clock += 0.5 * drawn[size] ** 2
        value = time * (jnp.sqrt(2 * clock) * drawn[:size].reshape(self.shape))
        return SphericalState(value, clock, time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Return standard normals (*steps, *shape) and keys (*steps) for `steps` moves."""
        keys = jax.random.split(key, steps) if steps else jax.random.fold_in(key, 0)
        return normals(key, (*steps, *self.shape), dtype), keys

    def move(
        self, drawn: tuple[Array, Array], state: SphericalState, time: ArrayLike
    ) -> SphericalState:
        """Rewind to a smaller time with the given normals and key."""
        time = jnp.asarray(time, state.time.dtype)
        clocks = state.clock, state.time, time
        clock, kept, spread = _rewind_clock(drawn[1], *clocks, self._twice_shape)
        return SphericalState(kept * state.value + spread * drawn[0], clock, time)

    def advance(self, key: Array, state: SphericalState, time: ArrayLike) -> SphericalState:
        """Return noise at a larger time, given the noise of a state, by its jumps in between."""
        time = jnp.asarray(time, state.time.dtype)
        key_clock, key_value = jax.random.split(key)
        risen = _rise(key_clock, state.time, time, self._twice_shape)
        before = state.time / time
        step = time * jnp.sqrt(2 * risen)
        value = state.value + step * normals(key_value, self.shape, time.dtype)
        return SphericalState(value, state.clock * before * before + risen, time)

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of a coordinate of the noise, `sqrt(d + 1) time`."""
        return math.sqrt(self._twice_shape) * jnp.asarray(time, float_dtype(time))

    def privacy_loss(self, state: SphericalState, shift: ArrayLike) -> Array:
        """Return the realised loss `(|X + v|_2 - |X|_2)/t` for a shift v of the value.

        It is at most `|v|_2/t`, with this norm as computed (statement 41 of `docs/proofs`).
        """
        shift = jnp.asarray(shift, state.value.dtype).reshape(-1)
        value = jnp.broadcast_to(state.value.reshape(-1), shift.shape)
        own, _ = _norm(value)
        size, direction = _norm(shift)
        both, _ = _norm(value + shift)
        # (|X + v|^2 - |X|^2)/(|X + v| + |X|), where |X + v| - |X| would cancel.
        longest = unit_of(jnp.maximum(jnp.maximum(own, size), both))[0]
        along = 2 * jnp.sum(direction * (value * longest)) + size * longest
        share = along / jnp.where(size > 0, own * longest + both * longest, 1)
        return jnp.clip(share, -1, 1) * size / state.time


def _norm(vector: Array) -> tuple[Array, Array]:
    """Return the l2 norm of a vector, and the vector divided by it, or 0 for the vector 0."""
    unit, inverse = unit_of(jnp.max(jnp.abs(vector), initial=0))
    scaled = in_unit(vector, unit)
    size = jnp.sqrt(jnp.sum(scaled * scaled))
    return size * inverse, scaled / jnp.where(size > 0, size, 1)


def _jumps_at_once(twice_shape: int) -> int:
    """Return the number of jumps that are drawn together.

    Most steps of a usual schedule, whose times fall by 7 % or less, need one or two draws.
    """
    return min(2 + twice_shape // 12, 16)


def _in_pairs(function: Callable[..., Any], key: Array, turn: Array, count: int, dtype: Any) -> Any:
    """Return two vectors, a function of `count` pairs of random words, for a turn of a loop."""
    key, bits = jax.random.fold_in(key, turn), jnp.finfo(dtype).bits
    if is_placed(key):
        drawn = in_pairs(function, jax.random.key_data(key), 2 * count, bits)
        return drawn[:count], drawn[count:]
    return function(*jax.random.bits(key, (2, count), f"uint{bits}"))


@cache  # since each new function is compiled again
def _falls(twice_shape: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return a function of two words: the wait for a jump, and `exp(E/a) - 1` of the jump."""

    def falls(first: Array, second: Array) -> tuple[Array, Array]:
        dtype = f"float{jnp.iinfo(first.dtype).bits}"
        fall = precise_exponential(second, dtype) * (2 / twice_shape)
        return precise_exponential(first, dtype), jnp.expm1(fall)

    return falls


def _rises(first: Array, second: Array) -> tuple[Array, Array]:
    """Return two exponential draws from two words: the wait for a jump, and the jump."""
    dtype = f"float{jnp.iinfo(first.dtype).bits}"
    return precise_exponential(first, dtype), precise_exponential(second, dtype)


def _is_usable(lower: Array, upper: Array) -> Array:
    """Return whether times rise and are finite normal numbers, so that jumps reach the end."""
    limits = jnp.finfo(lower.dtype)
    return (lower >= float(limits.tiny)) & (lower < upper) & (upper <= float(limits.max))


def _gap(now: Array, time: Array) -> Array:
    """Return `(now/time)^2 - 1`, accurately for close times."""
    unit, _ = unit_of(time)
    s, t = in_unit(time, unit), in_unit(now, unit)
    return ((t - s) / s) * ((t + s) / s)


def _rewind_clock(
    key: Array, clock: Array, now: Array, time: Array, twice_shape: int
) -> tuple[Array, Array, Array]:
    """Return the clock at `time`, given that at time `now`, and the two factors of the bridge.

    They are `S_time/S_now` and the bridge's standard deviation. Jump k is at the time u with
    `(now/u)^2 - 1 = (E_1 + E_2 R_1 + ... + E_k R_(k-1))/clock`, where `R_k` is the ratio of S at
    `now` to S after k jumps. Jumps are drawn in turns until one is below `time`.
    """
    count, dtype = _jumps_at_once(twice_shape), clock.dtype

    def body(carry):
        turn, clock, now, excess, *_ = carry
        waits, grown = _in_pairs(_falls(twice_shape), key, turn, count, dtype)
        gap, own, passed = _gap(now, time), jnp.zeros_like(clock), jnp.zeros_like(clock)
        for i in range(count):
            passed += waits[i] * (1 + own) / clock
            own += jnp.where(passed < gap, grown[i] * (1 + own), 0)
        ended = ~(passed < gap)  # also if a number is NaN, so that the loop ends
        later = 1 + jnp.minimum(passed, gap)
        now = jnp.where(ended, time, jnp.maximum(now / jnp.sqrt(later), time))
        # The ratio R minus 1, which does not lose the digits of small falls.
        clock, excess = clock / (1 + own) * later, excess * (1 + own) + own
        # Computed here, XLA does not repeat the factors for each coordinate.
        lost = jnp.where(excess < jnp.inf, excess / (1 + excess), 1)
        kept, spread = 1 / (1 + excess), time * jnp.sqrt(2 * clock * lost)
        return turn + 1, clock, now, excess, kept, spread, ended

    zero = jnp.zeros_like(clock)
    now, time = jnp.broadcast_arrays(now, time)
    start = (jnp.uint32(0), clock, now, zero, zero + 1, zero, ~_is_usable(time, now))
    _, clock, *_, kept, spread, _ = jax.lax.while_loop(lambda carry: ~carry[-1], body, start)
    return clock, kept, spread


def _rise(key: Array, now: Array, time: Array, twice_shape: int) -> Array:
    """Return what S gains from `now` to a larger `time`, divided by `time^2`, by its jumps."""
    count, dtype = _jumps_at_once(twice_shape), time.dtype

    def body(carry):
        turn, now, risen, _ = carry
        waits, jumps = _in_pairs(_rises, key, turn, count, dtype)
        times = now * jnp.exp(jnp.cumsum(waits / twice_shape))
        scales = jnp.minimum(times, time) / time
        risen += jnp.sum(jnp.where(times < time, scales * scales * jumps, 0))
        return turn + 1, jnp.minimum(times[-1], time), risen, times[-1] >= time

    start = (
        jnp.uint32(0),
        *jnp.broadcast_arrays(now, jnp.zeros_like(time)),
        ~_is_usable(now, time),
    )
    return jax.lax.while_loop(lambda carry: ~carry[-1], body, start)[2]
