"""Laplace noise processes: exact reverse kernel, and independent redraws."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import in_unit, unit_of
from nrjax.processes._kernel import (
    Coordinates,
    NoiseState,
    laplace,
    random_bits,
    rewind_laplace,
    uniform_and_complement,
)
from nrjax.processes._sparse import is_sparse, rewind_sparse
from nrjax.types import BlockwiseProcess, Status

_DIVISION_MARGIN = 4
"""Number of machine epsilons by which a reciprocal is rounded up.

Division on accelerators can be off by up to 2."""


class LaplaceNoise(Coordinates):
    """A process of independent coordinates, each `Lap(t)` at time t."""

    noise: ClassVar[str] = "laplace"

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise, `sqrt(2) time`."""
        return math.sqrt(2) * jnp.asarray(time, float_dtype(time))


class Laplace(LaplaceNoise, BlockwiseProcess):
    """Laplace noise with exact rewinding (Koufogiannis et al. 2017, Whitehouse 2022 eq. 3-4).

    Use it for values with a small l1-sensitivity, together with `nrjax.PureGuarantee`. All releases
    of a trial together cost as much as the last one. With `nrjax.IndependentLaplace` the costs of
    all releases add up.

    In each coordinate, forwards from s to t > s, `Z_t = Z_s` with probability `(s/t)^2`, otherwise
    `Z_s + Lap(t)`. So `Z_t ~ Lap(t)` (scale t), and a path is piecewise constant. Rewinding uses
    the exact reverse kernel at any s > 0 (statement 2 of `docs/proofs`): a coordinate stays, or
    moves across 0, towards 0 or away from 0.

    In float32 each coordinate takes 32 random bits per step. Noise therefore never exceeds 22
    scales (which ideal noise does with probability 2e-10), and probabilities are exact to 6e-8. Use
    float64 if smaller probabilities matter. The cost `D1/t` holds for real numbers; the low bits of
    floats reveal more. If float32 releases are rounded to multiples of D1, they cost 1.0001, 1.01
    and 1.9 times the stated cost at `D1/t` = 0.1, 0.01 and 0.001, except with probability 1e-3. In
    float64 the factor is 1.001 at `D1/t` = 1e-6.

    With 1024 coordinates or more, a step in which few coordinates can move makes draws for those
    coordinates only. The noise then comes from other random bits but has the same distribution, and
    has forward-mode derivatives only.

        >>> nrjax.noise_path(jax.random.key(0), nrjax.Laplace((3,)), [4.0, 2.0, 1.0]).shape
        (3, 3)

    Attributes:
        shape: shape of the private value.
    """

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Return the first noise, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        bits = random_bits(key, self.shape, time.dtype)
        return NoiseState(time * laplace(bits, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Return random bits for `steps` moves, shape (*steps, *shape).

        For 1024 coordinates or more, return keys of shape `steps` instead.
        """
        if is_sparse(self.shape):
            return jax.random.split(key, steps) if steps else key
        return random_bits(key, (*steps, *self.shape), dtype)

    def move(self, drawn: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Rewind to a smaller time with the result of `draw`."""
        value, now = state
        time = jnp.asarray(time, now.dtype)
        if is_sparse(self.shape):
            value = rewind_sparse(drawn, value.reshape(-1), now, time).reshape(self.shape)
        else:
            value = rewind_laplace(*uniform_and_complement(drawn, now.dtype), value, now, time)
        return NoiseState(value, time)

    def bridge(
        self, key: Array, lower: NoiseState, upper: NoiseState, time: ArrayLike
    ) -> NoiseState:
        """Return noise at a time between two states, given both (statement 2 of `docs/proofs`)."""
        s, u = lower.time, upper.time
        time = jnp.asarray(time, s.dtype)
        coin, jump = jax.random.split(key)
        # The probability of no jump up to `time`, given a jump up to u.
        unit, _ = unit_of(time)
        no_jump = (in_unit(s, unit) / in_unit(time, unit)) ** 2 * _jump(time, u) / _jump(s, u)
        difference = upper.value - lower.value
        moved = self.rewind(jump, NoiseState(difference, u), time).value
        # Equal values stay equal: lower.value + difference may differ from upper.value by rounding.
        value = jnp.where(moved == difference, upper.value, lower.value + moved)
        stay = jax.random.uniform(coin, self.shape, s.dtype) < no_jump
        value = jnp.where(stay | (upper.value == lower.value), lower.value, value)
        return NoiseState(value, time)

    def advance(self, key: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Return noise at a larger time, given the noise of a state."""
        coin, jump = jax.random.split(key)
        increment = self.init(jump, jnp.asarray(time, state.time.dtype))
        moves = jax.random.uniform(coin, self.shape, increment.time.dtype)
        moves = moves < _jump(state.time, increment.time)
        value = jnp.where(moves, state.value + increment.value, state.value)
        return NoiseState(value, increment.time)

    def privacy_loss(self, state: NoiseState, shift: ArrayLike) -> Array:
        """Return the realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` for a shift v of the value.

        Source: Rogers 2023, Appendix A.
        """
        return laplace_loss(state.value, state.time, shift)


class IndependentState(NamedTuple):
    """The noise `value` at `time`, and `spent`, the sum of `1/t` over all releases so far."""

    value: Array
    time: Array
    spent: Array


class IndependentLaplace(LaplaceNoise):
    """Independent noise `Lap(t)` for each release (Ligett 2017, Algorithm 4).

    Use it as the baseline that `nrjax.Laplace` is compared with. The costs of all releases add up
    to `sum_i D1/t_i` (composition, Theorem A.2), while `nrjax.Laplace` costs only the last `D1/t`.
    `equivalent_time` accounts for the sum, so that `nrjax.PureGuarantee` holds on any schedule,
    even an adaptive one. Interactions with a shift are refused, since the realised loss would need
    the noise of all releases, which is not kept.

        >>> process, key = nrjax.IndependentLaplace(()), jax.random.key(0)
        >>> state = process.rewind(key, process.init(key, 4.0), 2.0)
        >>> equivalent = process.equivalent_time(state, 2.0)  # of both releases together
        >>> round(1 / float(equivalent), 3)
        0.75

    Attributes:
        shape: shape of the private value.
    """

    def init(self, key: Array, time: ArrayLike) -> IndependentState:
        """Return the first noise, of scale `time`."""
        time = jnp.asarray(time, float_dtype(time))
        return self._release(key, time, jnp.zeros_like(time))

    def rewind(self, key: Array, state: IndependentState, time: ArrayLike) -> IndependentState:
        """Return new noise of scale `time`, independent of the noise before."""
        return self._release(key, jnp.asarray(time, state.time.dtype), state.spent)

    def _release(self, key: Array, time: Array, spent: Array) -> IndependentState:
        value = Laplace(self.shape).init(key, time).value
        # A reciprocal below the normal numbers would be flushed to zero and cost nothing.
        cost = jnp.maximum(_round_up(1 / time), float(jnp.finfo(time.dtype).tiny))
        spent = jnp.nextafter(spent + cost, jnp.asarray(jnp.inf, time.dtype))
        return IndependentState(value, time, spent)

    def equivalent_time(self, state: IndependentState, time: Array) -> Array:
        """Return the time of a single release that costs as much as all so far, rounded down."""
        del time
        return 1 / _round_up(state.spent)

    def status(self, state: IndependentState) -> Array:
        """Return `Status.OVERFLOW` if the dtype cannot hold the noise or the sum of `1/t`."""
        usable = self.equivalent_time(state, state.time) >= float(jnp.finfo(state.time.dtype).tiny)
        return jnp.where(usable, super().status(state), Status.OVERFLOW).astype(jnp.int32)


def laplace_loss(value: Array, time: Array, shift: ArrayLike) -> Array:
    """Return the realised loss `sum_j (|Z_j + v_j| - |Z_j|)/t` of Laplace noise.

    Each term is at most `|v_j|/t`, even after rounding.
    """
    shift = jnp.asarray(shift, value.dtype)
    outwards = jnp.where(jnp.signbit(value), -shift, shift)
    # Equals |Z + v| - |Z|, which would cancel for shifts much smaller than the noise.
    return jnp.sum(jnp.maximum(outwards, -outwards - 2 * jnp.abs(value))) / time


def _jump(s: Array, t: Array) -> Array:
    """Return the probability `1 - (s/t)^2` of a jump between times s and t."""
    unit, _ = unit_of(t)
    s, t = in_unit(s, unit), in_unit(t, unit)
    return ((t - s) / t) * ((t + s) / t)


def _round_up(value: Array) -> Array:
    return value * (1 + _DIVISION_MARGIN * float(jnp.finfo(value.dtype).eps))
