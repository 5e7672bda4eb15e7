"""What the processes share: coordinates, and a state that is the noise and its time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check, check_shape, concrete_or_none
from nrjax.pytrees import static
from nrjax.types import NoiseProcess


class NoiseState(NamedTuple):
    """Noise `value` at `time`."""

    value: Array
    time: Array


class Coordinates(NoiseProcess):
    """A process of independent coordinates of one law.

    Attributes:
        shape: shape of the private value.
    """

    shape: tuple[int, ...] = static()

    def __post_init__(self):
        check_shape("shape", self.shape)

    def value(self, state) -> Array:
        """The noise."""
        return state.value


def whole(shift: ArrayLike, dtype: Any) -> tuple[Array, Array]:
    """A shift in a dtype, and where it is an integer; a concrete one must be."""
    number = concrete_or_none(shift)
    if number is not None:
        # An infinite or NaN shift is refused too.
        check(np.isfinite(number) & (number == np.round(number)), "shift", shift, "integers")
    shift = jnp.asarray(shift, dtype)
    return shift, jnp.isfinite(shift) & (shift == jnp.round(shift))
