"""Laplace noise as whole paths, which are drawn as jumps at random times."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.outcome import Status
from nrjax._base.pytrees import static
from nrjax._base.validation import check, check_integer, check_positive
from nrjax.processes._kernel import exponential, laplace, random_bits
from nrjax.processes.laplace import LaplaceNoise, laplace_loss

OVERFLOW_PROBABILITY = 1e-12
"""Bound on the probability, per coordinate, that the jump buffer is too small."""


class LaplaceJumpsState(NamedTuple):
    """A whole path, and the time at which it is observed.

    Attributes:
        path: noise after 0, 1, 2, ... jumps, shape (size + 1, *shape).
        jumps: times of the jumps, rising, shape (size, *shape). They may be infinite.
        time: time of observation, scalar.
        failure: the first failure, a `Status`; `RUNNING` if there was none.
    """

    path: Array
    jumps: Array
    time: Array
    failure: Array


class LaplaceJumps(LaplaceNoise):
    """The process of `nrjax.Laplace` at times in `[eta, horizon]`, drawn as a whole path.

    Use it if you need the jump times, or an independent check of `nrjax.Laplace`, with which it
    shares no formula. For simulations use `nrjax.Laplace`. Each coordinate starts at `Lap(eta)` at
    time eta. As time grows, it jumps at the points of a Poisson process of intensity `2/t`, and a
    jump at time u adds `Lap(u)` (Whitehouse 2022, eq. 4). `init` draws the whole path, and `rewind`
    only moves the time of observation, in either direction.

    If a coordinate has `size` or more jumps up to the horizon, some jumps are lost, and the status
    is `Status.OVERFLOW`. After a time outside `[eta, horizon]` by more than rounding (4 units in
    the last place), the status stays `Status.INVALID_TIME`. In float32 a jump never exceeds 22
    times its scale, and jump times have a relative error of about 1e-6.

        >>> process = nrjax.LaplaceJumps((), eta=1.0, horizon=4.0)
        >>> state = process.init(jax.random.key(0), 4.0)
        >>> bool(process.status(state) == nrjax.Status.RUNNING)  # the jumps fit into the buffer
        True

    Attributes:
        shape: shape of the private value.
        eta: smallest time, > 0.
        horizon: largest time, >= eta.
        size: maximum number of jumps per coordinate (static). The default makes an overflow less
            likely than 1e-12 per coordinate, and requires concrete `eta` and `horizon`.
    """

    eta: ArrayLike
    horizon: ArrayLike
    size: int = static(default=0)

    def __post_init__(self):
        super().__post_init__()
        eta, horizon = check_positive("eta", self.eta), check_positive("horizon", self.horizon)
        if eta is not None and horizon is not None:
            check(horizon >= eta, "horizon", self.horizon, f"at least eta = {self.eta!r}")
        check_integer("size", self.size, 0)
        if self.size == 0:
            concrete = eta is not None and horizon is not None
            check(concrete, "size", None, "an integer, at least 1, if eta or horizon is traced")
            last, first = np.asarray(horizon, float), np.asarray(eta, float)
            object.__setattr__(self, "size", buffer_size(2 * np.max(np.log(last) - np.log(first))))

    def init(self, key: Array, time: ArrayLike) -> LaplaceJumpsState:
        """Draw the whole path, and observe it at `time`."""
        time = jnp.asarray(time, float_dtype(time))
        dtype = time.dtype
        eta, horizon = jnp.asarray(self.eta, dtype), jnp.asarray(self.horizon, dtype)
        bits = random_bits(key, (2 * self.size + 1, *self.shape), dtype)
        waits, marks = bits[: self.size], bits[self.size :]
        jumps = eta * jnp.exp(jnp.cumsum(0.5 * exponential(waits, dtype), axis=0))
        # Jumps beyond the horizon are never observed; held at it, they cannot become infinite.
        scales = jnp.concatenate(
            [jnp.broadcast_to(eta, (1, *self.shape)), jnp.minimum(jumps, horizon)]
        )
        path = jnp.cumsum(scales * laplace(marks, dtype), axis=0)
        lost = jnp.any(jumps[-1] <= horizon * (1 + _tolerance(dtype)))
        failure = jnp.where(lost, jnp.int32(Status.OVERFLOW), jnp.int32(Status.RUNNING))
        failure = jnp.where(self._covers(time), failure, jnp.int32(Status.INVALID_TIME))
        return LaplaceJumpsState(path, jumps, time, failure)

    def rewind(self, key: Array, state: LaplaceJumpsState, time: ArrayLike) -> LaplaceJumpsState:
        """Observe the same path at another time (`key` is unused)."""
        del key
        time = jnp.asarray(time, state.time.dtype)
        keep = (state.failure != Status.RUNNING) | self._covers(time)
        failure = jnp.where(keep, state.failure, jnp.int32(Status.INVALID_TIME))
        return state._replace(time=time, failure=failure)

    def value(self, state: LaplaceJumpsState) -> Array:
        """Return the noise, which is valid if `status` is `RUNNING`."""
        passed = jnp.sum(state.jumps <= state.time, axis=0, keepdims=True)
        return jnp.take_along_axis(state.path, passed, axis=0)[0]

    def privacy_loss(self, state: LaplaceJumpsState, shift: ArrayLike) -> Array:
        """Return the realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` for a shift v of the value.

        Source: Rogers 2023, Appendix A.
        """
        return laplace_loss(self.value(state), state.time, shift)

    def status(self, state: LaplaceJumpsState) -> Array:
        """Return the first failure (`OVERFLOW` or `INVALID_TIME`), or `RUNNING`."""
        fits = super().status(state)
        return jnp.where(state.failure == Status.RUNNING, fits, state.failure)

    def _covers(self, time: Array) -> Array:
        """Return whether `time` is in `[eta, horizon]`, up to rounding (False for NaN)."""
        slack = _tolerance(time.dtype)
        eta, horizon = jnp.asarray(self.eta, time.dtype), jnp.asarray(self.horizon, time.dtype)
        return (time >= eta * (1 - slack)) & (time <= horizon * (1 + slack))


def _tolerance(dtype) -> float:
    return 4 * float(jnp.finfo(dtype).eps)


def buffer_size(mean: float) -> int:
    """Return the smallest buffer size that Poisson(mean) jumps fill with probability < 1e-12."""
    from scipy.stats import poisson  # slow to import

    return int(poisson.isf(OVERFLOW_PROBABILITY, mean)) + 1
