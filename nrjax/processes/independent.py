"""Laplace noise drawn anew for every release: what noise reduction is measured against."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.processes.laplace import Laplace, LaplaceNoise
from nrjax.types import Status

# Machine epsilons by which reciprocals are rounded to the safe side: a correct division loses half
# of one, an approximate one on accelerators 2.
_MARGIN = 4


class IndependentState(NamedTuple):
    """Noise `value` of the release at `time`; `spent`, the sum of `1/t` over all so far."""

    value: Array
    time: Array
    spent: Array


class IndependentLaplace(LaplaceNoise):
    """Releases with independent noise `Lap(t)`, each paid for (Ligett 2017, Algorithm 4).

    Not a noise-reduction chain: earlier releases say more than the last one does, so that a
    transcript costs `sum_i D1/t_i` (composition, as in Theorem A.2), where `nrjax.Laplace` costs
    `D1/t` of the last alone. `composed_time` brings that to the engine: `nrjax.PureGuarantee` is
    right for it on any schedule, times chosen from the releases included.

    The realised loss needs the noise of all releases, which is not kept: a shift is
    refused.

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
        limits = jnp.finfo(time.dtype)
        # A reciprocal below the normal numbers would be flushed to zero, hence for free.
        price = jnp.maximum(_up(1 / time), float(limits.tiny))
        spent = jnp.nextafter(spent + price, jnp.asarray(jnp.inf, time.dtype))
        return IndependentState(value, time, spent)

    def composed_time(self, state: IndependentState, time: Array) -> Array:
        """Time of the one release that would cost as much as all so far, rounded down."""
        del time
        return 1 / _up(state.spent)

    def value(self, state: IndependentState) -> Array:
        """The noise of the last release."""
        return state.value

    def status(self, state: IndependentState) -> Array:
        """`Status.RUNNING`, or `Status.OVERFLOW` where what was spent is beyond the dtype."""
        usable = self.composed_time(state, state.time) >= float(jnp.finfo(state.time.dtype).tiny)
        return jnp.where(usable, Status.RUNNING, Status.OVERFLOW).astype(jnp.int32)


def _up(value: Array) -> Array:
    return value * (1 + _MARGIN * float(jnp.finfo(value.dtype).eps))
