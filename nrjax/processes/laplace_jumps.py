"""The Laplace process by its jump times: the whole path is drawn at the start."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, float_dtype
from nrjax.processes.laplace import LaplaceNoise, laplace, laplace_loss, random_bits, uniform
from nrjax.pytrees import static
from nrjax.types import Status

OVERFLOW_PROBABILITY = 1e-12
"""Bound on the probability, per coordinate, that the jump buffer is too small."""


class LaplaceJumpsState(NamedTuple):
    """A drawn path and the `time` at which it is looked at."""

    path: Array
    """Noise after 0, 1, 2, ... jumps, of shape `(size + 1, *shape)`."""
    jumps: Array
    """Rising times of the jumps, of shape `(size, *shape)`; may be infinite."""
    time: Array
    failure: Array
    """The first failure, a `Status`; `Status.RUNNING` while there was none."""


class LaplaceJumps(LaplaceNoise):
    """The law of `Laplace` on `[eta, horizon]`, by jumps (Whitehouse 2022, eq. 4).

    Each coordinate starts at `Lap(eta)` and jumps, going forwards, at the points of a Poisson
    process of intensity `2/t`; a jump at time tau adds `Lap(tau)`. In log time the jumps arrive
    after independent `Exp(1)/2` waits. `init` draws all of it, `rewind` only moves the time (its
    key is unused), in either direction.

    `Laplace` is the one to simulate with: it needs no `eta` and holds one number a coordinate,
    where this holds `2 size + 1`. This one shares no formula with it and gives the whole path.

    A coordinate with `size` or more jumps up to the horizon has lost some: `status` then says
    `Status.OVERFLOW`. A time outside `[eta, horizon]` is `Status.INVALID_TIME` from then on. A
    time outside by rounding alone (4 units in the last place) passes: below `eta` the noise is
    that of `eta`, which is the larger; above the horizon it is exact.

    In float32 jumps end at 22 scales, and their times carry a relative error of about 1e-6.

    Attributes:
        shape: shape of the private value.
        eta: smallest time, > 0.
        horizon: largest time, >= eta.
        size: jumps held per coordinate (static). By default as many as make an overflow less
            likely than 1e-12 per coordinate, which asks for concrete `eta` and `horizon`; of
            arrays the widest range counts.

    Raises:
        ValueError: an argument is out of range, or `size` is missing where `eta` or `horizon` is
            traced.
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
        """Realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` (Rogers 2023, Appendix A)."""
        return laplace_loss(self.value(state), state.time, shift)

    def status(self, state: LaplaceJumpsState) -> Array:
        """The first failure: `OVERFLOW`, `INVALID_TIME`, or `RUNNING` if there was none."""
        return state.failure

    def _covers(self, time: Array) -> Array:
        """Whether `time` is in `[eta, horizon]`, up to rounding; NaN is not."""
        slack = _slack(time.dtype)
        eta, horizon = jnp.asarray(self.eta, time.dtype), jnp.asarray(self.horizon, time.dtype)
        return (time >= eta * (1 - slack)) & (time <= horizon * (1 + slack))


def _slack(dtype) -> float:
    return 4 * float(jnp.finfo(dtype).eps)


def poisson_tail(mean: float, count: int) -> float:
    """`P(N >= count)` for `N ~ Poisson(mean)`, summed upwards from `count` (no cancellation)."""
    if mean == 0 or count <= 0:
        return float(count <= 0)
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total = 0.0
    while total + term != total or count < mean:
        total, count = total + term, count + 1
        term *= mean / count
    return total


def buffer_size(mean: float) -> int:
    """Smallest size such that Poisson(mean) jumps fill it with probability < 1e-12."""
    size = max(1, math.ceil(mean))
    while poisson_tail(mean, size) >= OVERFLOW_PROBABILITY:
        size += 1
    return size
