"""Brownian noise: `B_t ~ N(0, t I)`, rewound by the Brownian bridge."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.normals import normals
from nrjax.processes._kernel import Coordinates, NoiseState
from nrjax.types import BlockwiseProcess, NoiseProcess


class Brownian(Coordinates, BlockwiseProcess):
    """The Gaussian noise of the Brownian mechanism (Whitehouse 2022, Definition 3.1).

    Use it for values with a small l2-sensitivity, together with a boundary such as
    `nrjax.OneSidedMixtureBoundary`. Each coordinate is a standard Brownian motion, so that noise at
    time t has variance t. Rewinding to s < t uses the exact reverse kernel
    `B_s | B_t ~ N((s/t) B_t, (s (t - s)/t) I)`.

        >>> nrjax.noise_path(jax.random.key(0), nrjax.Brownian((3,)), [4.0, 2.0, 1.0]).shape
        (3, 3)

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "gaussian"

    # The deviation sqrt(time) is held wherever the time is. Interactions check their last time.
    status = NoiseProcess.status

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Return the first noise, of variance `time`."""
        time = jnp.asarray(time, float_dtype(time))
        return NoiseState(jnp.sqrt(time) * normals(key, self.shape, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Return standard normals for `steps` moves, shape (*steps, *shape)."""
        return normals(key, (*steps, *self.shape), dtype)

    def move(self, draw: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Rewind to a smaller time with the given normals."""
        now = state.time
        time = jnp.asarray(time, now.dtype)
        # s (t - s)/t as written does not cancel; t s - s^2 would.
        deviation = jnp.sqrt(time * ((now - time) / now))
        return NoiseState((time / now) * state.value + deviation * draw, time)

    def bridge(
        self, key: Array, lower: NoiseState, upper: NoiseState, time: ArrayLike
    ) -> NoiseState:
        """Return noise at a time between two states, given both (Brownian bridge)."""
        time = jnp.asarray(time, lower.time.dtype)
        span = upper.time - lower.time
        right, left = (time - lower.time) / span, (upper.time - time) / span
        deviation = jnp.sqrt((time - lower.time) * left)
        draw = normals(key, self.shape, time.dtype)
        return NoiseState(left * lower.value + right * upper.value + deviation * draw, time)

    def advance(self, key: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Return noise at a larger time, given the noise of a state."""
        time = jnp.asarray(time, state.time.dtype)
        draw = normals(key, self.shape, time.dtype)
        return NoiseState(state.value + jnp.sqrt(time - state.time) * draw, time)

    def deviation(self, time: ArrayLike) -> Array:
        """Return the standard deviation of the noise, `sqrt(time)`."""
        return jnp.sqrt(jnp.asarray(time, float_dtype(time)))

    def privacy_loss(self, state: NoiseState, shift: ArrayLike) -> Array:
        """Return the realised loss `|v|^2/(2t) + <v, B_t>/t` for a shift v of the value.

        Source: Whitehouse 2022, Theorem 3.4.
        """
        shift = jnp.asarray(shift, state.value.dtype)
        return jnp.sum(shift * (0.5 * shift + state.value)) / state.time
