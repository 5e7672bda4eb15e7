"""Brownian noise: `B_t ~ N(0, t I)`, rewound by the Brownian bridge."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._normals import normals
from nrjax._numerics import float_dtype
from nrjax.processes._coordinates import Coordinates, NoiseState
from nrjax.types import BlockwiseProcess


class Brownian(Coordinates, BlockwiseProcess):
    """The noise of the Brownian mechanism (Whitehouse 2022, Definition 3.1).

    A standard Brownian motion in each coordinate; noise at time t has variance t. Rewinding uses
    the exact reverse kernel `B_s | B_t ~ N((s/t) B_t, (s (t - s)/t) I)`.

    Attributes:
        shape: shape of the private value.
    """

    noise: ClassVar[str] = "gaussian"

    def init(self, key: Array, time: ArrayLike) -> NoiseState:
        """Noise at the first time, of variance `time`."""
        time = jnp.asarray(time, float_dtype(time))
        return NoiseState(jnp.sqrt(time) * normals(key, self.shape, time.dtype), time)

    def draw(self, key: Array, dtype: Any, steps: tuple[int, ...] = ()) -> Array:
        """Standard normals for `steps` moves, shape (*steps, *shape)."""
        return normals(key, (*steps, *self.shape), dtype)

    def move(self, draw: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """`rewind` with its randomness given."""
        now = state.time
        time = jnp.asarray(time, now.dtype)
        # s (t - s)/t as written does not cancel; t s - s^2 would.
        deviation = jnp.sqrt(time * ((now - time) / now))
        return NoiseState((time / now) * state.value + deviation * draw, time)

    def bridge(
        self, key: Array, lower: NoiseState, upper: NoiseState, time: ArrayLike
    ) -> NoiseState:
        """Noise at a time between those of two states, given both: the bridge."""
        time = jnp.asarray(time, lower.time.dtype)
        whole = upper.time - lower.time
        share, left = (time - lower.time) / whole, (upper.time - time) / whole
        deviation = jnp.sqrt((time - lower.time) * left)
        draw = normals(key, self.shape, time.dtype)
        return NoiseState(left * lower.value + share * upper.value + deviation * draw, time)

    def advance(self, key: Array, state: NoiseState, time: ArrayLike) -> NoiseState:
        """Noise at a larger time, given the present one: forwards."""
        time = jnp.asarray(time, state.time.dtype)
        draw = normals(key, self.shape, time.dtype)
        return NoiseState(state.value + jnp.sqrt(time - state.time) * draw, time)

    def deviation(self, time: ArrayLike) -> Array:
        """Standard deviation of the noise, `sqrt(time)`."""
        return jnp.sqrt(jnp.asarray(time, float_dtype(time)))

    def privacy_loss(self, state: NoiseState, shift: ArrayLike) -> Array:
        """Realised loss `|v|^2/(2t) + <v, B_t>/t` (Whitehouse 2022, Theorem 3.4)."""
        shift = jnp.asarray(shift, state.value.dtype)
        return jnp.sum(shift * (0.5 * shift + state.value)) / state.time
