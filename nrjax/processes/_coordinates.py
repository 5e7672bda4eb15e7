"""What the processes share: coordinates, and a state that is the noise and its time."""

from typing import NamedTuple

from jax import Array

from nrjax._numerics import check_shape
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
