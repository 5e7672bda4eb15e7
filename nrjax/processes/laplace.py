"""Laplace noise `Lap(t)`: rewound by its reverse kernel, drawn by jumps, or anew at each time."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax._validation import check, check_positive
from nrjax.processes._coordinates import Coordinates, NoiseState
from nrjax.processes._kernel import laplace, random_bits, rewound, uniform, uniforms
from nrjax.processes._movers import few_move, move_few
from nrjax.pytrees import static
from nrjax.types import BlockwiseProcess, Status

OVERFLOW_PROBABILITY = 1e-12
"""Bound on the probability, per coordinate, that the jump buffer is too small."""

# Machine epsilons by which reciprocals are rounded to the safe side: a correct division loses half
# of one, an approximate one on accelerators 2.
_MARGIN = 4


class LaplaceNoise(Coordinates):
    """Independent coordinates, each of them `Lap(t)` at time t."""

    noise: ClassVar[str] = "laplace"

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, `sqrt(2) time`."""
        return math.sqrt(2) * jnp.asarray(time, float_dtype(time))


class Laplace(LaplaceNoise, BlockwiseProcess):
    """The noise of Laplace noise reduction (Koufogiannis et al. 2017; Whitehouse 2022, eq. 3-4).

    In each coordinate on its own, forwards from s to t > s: `Z_t = Z_s` with probability
    `(s/t)^2`, else `Z_s + Lap(t)`. So `Z_t ~ Lap(t)` (scale t), and a path is piecewise constant.
    Rewinding uses the exact reverse kernel (`docs/mathematics.md`), at any s > 0: a coordinate
    stays, or moves below 0, between 0 and where it is, or beyond that.

    A coordinate takes 32 random bits a step in float32: noise ends at 22 scales (probability
    2e-10), and probabilities are exact to 6e-8. Where smaller ones matter, use float64.

    The cost `D1/t` is that of real numbers; the low bits of floats reveal more. Rounded to
    multiples of D1, a float32 release at `D1/t` = 0.1, 0.01 and 0.001 costs 1.0001, 1.01 and 1.9
    times as much, except with probability 1e-3. In float64 it costs 1.001 times as much at 1e-6.

    From 1024 coordinates on, a step in which few can move draws for those alone; the law is the
    same, the bits are others, and of derivatives there are only forward ones.

    Attributes:
        shape: shape of the private value.
    """

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Noise at the first time, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        bits = random_bits(key, self.shape, time.dtype)
        return NoiseState(time * laplace(bits, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """The randomness of `steps` moves: bits, shape (*steps, *shape), or keys, shape `steps`."""
        if few_move(self.shape):
            return jax.random.split(key, steps) if steps else key
        return random_bits(key, (*steps, *self.shape), dtype)

    def move(self, drawn: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """`rewind` with its randomness given."""
        value, now = state
        time = jnp.asarray(time, now.dtype)
        if few_move(self.shape):
            value = move_few(drawn, value.reshape(-1), now, time).reshape(self.shape)
        else:
            value = rewound(*uniforms(drawn, now.dtype), value, now, time)
        return NoiseState(value, time)

    def bridge(
        self, key: Array, lower: NoiseState, upper: NoiseState, time: ArrayLike
    ) -> NoiseState:
        """Noise at a time between those of two states, given both (`docs/frontier.md`)."""
        s, u = lower.time, upper.time
        time = jnp.asarray(time, s.dtype)
        coin, jump = jax.random.split(key)
        # No jump up to `time`, given that there is one up to u.
        stays = (s / time) ** 2 * _jump(time, u) / _jump(s, u)
        apart = upper.value - lower.value
        moved = self.rewind(jump, NoiseState(apart, u), time).value
        # Ties stay ties: no sum of differences stands for a value that is there already.
        value = jnp.where(moved == apart, upper.value, lower.value + moved)
        stay = jax.random.uniform(coin, self.shape, s.dtype) < stays
        value = jnp.where(stay | (upper.value == lower.value), lower.value, value)
        return NoiseState(value, time)

    def advance(self, key: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Noise at a larger time, given the present one: forwards."""
        coin, jump = jax.random.split(key)
        fresh = self.init(jump, jnp.asarray(time, state.time.dtype))
        moves = jax.random.uniform(coin, self.shape, fresh.time.dtype)
        moves = moves < _jump(state.time, fresh.time)
        return NoiseState(jnp.where(moves, state.value + fresh.value, state.value), fresh.time)

    def privacy_loss(self, state: NoiseState, shift: ArrayLike) -> Array:
        """Realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` (Rogers 2023, Appendix A)."""
        return laplace_loss(state.value, state.time, shift)


def _jump(s: Array, t: Array) -> Array:
    """`1 - (s/t)^2`, the probability of a jump between s and t."""
    return ((t - s) / t) * ((t + s) / t)


class IndependentState(NamedTuple):
    """Noise `value` of the release at `time`; `spent`, the sum of `1/t` over all so far."""

    value: Array
    time: Array
    spent: Array


class IndependentLaplace(LaplaceNoise):
    """Releases with independent noise `Lap(t)`, each paid for (Ligett 2017, Algorithm 4).

    Not a noise-reduction chain: a transcript costs `sum_i D1/t_i` (composition, Theorem A.2), where
    `nrjax.Laplace` costs `D1/t` of the last alone. `equivalent_time` brings that to the engine:
    `nrjax.PureGuarantee` is right for it on any schedule, also an adaptive one. The realised loss
    needs the noise of all releases, which is not kept: a shift is refused.

    Attributes:
        shape: shape of the private value.
    """

    def init(self, key: Array, time: ArrayLike) -> IndependentState:
        """Noise at the first time, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        return self._release(key, time, jnp.zeros_like(time))

    def rewind(self, key: Array, state: IndependentState, time: ArrayLike) -> IndependentState:
        """New noise, of scale `time`, whatever there was before."""
        return self._release(key, jnp.asarray(time, state.time.dtype), state.spent)

    def _release(self, key: Array, time: Array, spent: Array) -> IndependentState:
        value = Laplace(self.shape).init(key, time).value
        # A reciprocal below the normal numbers would be flushed to zero, hence for free.
        price = jnp.maximum(_up(1 / time), float(jnp.finfo(time.dtype).tiny))
        spent = jnp.nextafter(spent + price, jnp.asarray(jnp.inf, time.dtype))
        return IndependentState(value, time, spent)

    def equivalent_time(self, state: IndependentState, time: Array) -> Array:
        """Time of the one release that would cost as much as all so far, rounded down."""
        del time
        return 1 / _up(state.spent)

    def status(self, state: IndependentState) -> Array:
        """`Status.RUNNING`, or `Status.OVERFLOW` where what was spent is beyond the dtype."""
        usable = self.equivalent_time(state, state.time) >= float(jnp.finfo(state.time.dtype).tiny)
        return jnp.where(usable, Status.RUNNING, Status.OVERFLOW).astype(jnp.int32)


class LaplaceJumpsState(NamedTuple):
    """A drawn path, the `time` at which it is looked at, and its first failure, a `Status`."""

    path: Array
    """Noise after 0, 1, 2, ... jumps, of shape `(size + 1, *shape)`."""
    jumps: Array
    """Rising times of the jumps, of shape `(size, *shape)`; may be infinite."""
    time: Array
    failure: Array


class LaplaceJumps(LaplaceNoise):
    """The law of `Laplace` on `[eta, horizon]`, by jumps (Whitehouse 2022, eq. 4).

    Each coordinate starts at `Lap(eta)` and jumps, going forwards, at the points of a Poisson
    process of intensity `2/t`; a jump at time tau adds `Lap(tau)`. `init` draws all of it, `rewind`
    only moves the time, in either direction. `Laplace` is the one to simulate with; this one shares
    no formula with it and gives the whole path.

    A coordinate with `size` or more jumps up to the horizon has lost some: `Status.OVERFLOW`. A
    time outside `[eta, horizon]` by more than rounding (4 units in the last place) is
    `Status.INVALID_TIME` from then on. In float32 jumps end at 22 scales, and their times carry a
    relative error of about 1e-6.

    Attributes:
        shape: shape of the private value.
        eta: smallest time, > 0.
        horizon: largest time, >= eta.
        size: jumps held per coordinate (static). By default as many as make an overflow less
            likely than 1e-12 per coordinate, which asks for concrete `eta` and `horizon`.
    """

    eta: ArrayLike
    horizon: ArrayLike
    size: int = static(default=0)

    def __post_init__(self):
        super().__post_init__()
        first, last = check_positive("eta", self.eta), check_positive("horizon", self.horizon)
        if first is not None and last is not None:
            check(last >= first, "horizon", self.horizon, f"at least eta = {self.eta!r}")
        check(isinstance(self.size, int) and self.size >= 0, "size", self.size, "an int >= 1")
        if self.size == 0:
            if first is None or last is None:
                raise ValueError(
                    "size is missing: must be an int >= 1 where eta or horizon is traced "
                    f"(eta = {self.eta!r}, horizon = {self.horizon!r})"
                )
            ratio = np.max(np.asarray(last, float) / np.asarray(first, float))
            right = f"finite, eta = {self.eta!r} above 0"
            check(np.isfinite(ratio), "horizon", self.horizon, right)
            object.__setattr__(self, "size", buffer_size(2 * math.log(max(1.0, ratio))))

    def init(self, key: Array, time: ArrayLike) -> LaplaceJumpsState:
        """The whole path, looked at from `time`."""
        time = jnp.asarray(time, float_dtype(time))
        dtype = time.dtype
        eta, horizon = jnp.asarray(self.eta, dtype), jnp.asarray(self.horizon, dtype)
        bits = random_bits(key, (2 * self.size + 1, *self.shape), dtype)
        waits, marks = bits[: self.size], bits[self.size :]
        arrivals = jnp.cumsum(-0.5 * jnp.log(uniform(waits, dtype)), axis=0)
        jumps = eta * jnp.exp(arrivals)
        # Jumps beyond the horizon are never looked at: held at it, they cannot become infinite.
        scales = jnp.concatenate(
            [jnp.broadcast_to(eta, (1, *self.shape)), jnp.minimum(jumps, horizon)]
        )
        path = jnp.cumsum(scales * laplace(marks, dtype), axis=0)
        lost = jnp.any(jumps[-1] <= horizon * (1 + _slack(dtype)))
        failure = jnp.where(lost, jnp.int32(Status.OVERFLOW), jnp.int32(Status.RUNNING))
        failure = jnp.where(self._covers(time), failure, jnp.int32(Status.INVALID_TIME))
        return LaplaceJumpsState(path, jumps, time, failure)

    def rewind(self, key: Array, state: LaplaceJumpsState, time: ArrayLike) -> LaplaceJumpsState:
        """The same path at another time; `key` is unused."""
        del key
        time = jnp.asarray(time, state.time.dtype)
        sound = (state.failure != Status.RUNNING) | self._covers(time)
        failure = jnp.where(sound, state.failure, jnp.int32(Status.INVALID_TIME))
        return state._replace(time=time, failure=failure)

    def value(self, state: LaplaceJumpsState) -> Array:
        """The noise; look at `status` before believing it."""
        passed = jnp.sum(state.jumps <= state.time, axis=0, keepdims=True)
        return jnp.take_along_axis(state.path, passed, axis=0)[0]

    def privacy_loss(self, state: LaplaceJumpsState, shift: ArrayLike) -> Array:
        """As of `Laplace`."""
        return laplace_loss(self.value(state), state.time, shift)

    def status(self, state: LaplaceJumpsState) -> Array:
        """The first failure: `OVERFLOW`, `INVALID_TIME`, or `RUNNING` if there was none."""
        return state.failure

    def _covers(self, time: Array) -> Array:
        """Whether `time` is in `[eta, horizon]`, up to rounding; NaN is not."""
        slack = _slack(time.dtype)
        eta, horizon = jnp.asarray(self.eta, time.dtype), jnp.asarray(self.horizon, time.dtype)
        return (time >= eta * (1 - slack)) & (time <= horizon * (1 + slack))


def _up(value: Array) -> Array:
    return value * (1 + _MARGIN * float(jnp.finfo(value.dtype).eps))


def laplace_loss(value: Array, time: Array, shift: ArrayLike) -> Array:
    """`sum_j (|Z_j + v_j| - |Z_j|)/t`, a scalar; no term exceeds `|v_j|/t`, even rounded."""
    shift = jnp.asarray(shift, value.dtype)
    outwards = jnp.where(jnp.signbit(value), -shift, shift)
    # Equal to |Z + v| - |Z|, which would cancel for shifts much smaller than the noise.
    return jnp.sum(jnp.maximum(outwards, -outwards - 2 * jnp.abs(value))) / time


def _slack(dtype) -> float:
    return 4 * float(jnp.finfo(dtype).eps)


def buffer_size(mean: float) -> int:
    """Smallest size such that Poisson(mean) jumps fill it with probability < 1e-12."""
    counts = np.arange(1, int(mean + 12 * math.sqrt(mean)) + 40)
    chances = np.exp(np.cumsum(np.log(max(mean, 1e-300) / counts)) - mean)
    tails = np.cumsum(chances[::-1])[::-1]  # P(N >= count), summed from the smallest
    return int(counts[np.argmax(tails < OVERFLOW_PROBABILITY)])
