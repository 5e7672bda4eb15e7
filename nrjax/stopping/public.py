"""Stopping on public data: the utility may be looked at for free."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check, door
from nrjax.pytrees import register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True)
class PublicThreshold:
    """Stop as soon as the utility reaches a threshold.

    For utilities that are public, or a function of the releases alone; it adds nothing to the
    privacy cost (Whitehouse 2022, section 6, "public" tests).

    Attributes:
        threshold: smallest utility that is good enough, scalar. For a loss that must fall to a
            target the utility is minus the loss, the threshold minus the target.

    Raises:
        ValueError: the threshold is NaN.
    """

    threshold: Any

    def __post_init__(self):
        number = door(self.threshold)
        if number is not None:
            check(~np.isnan(number), "threshold", self.threshold, "a number")

    def init(self, key: Array, epsilon: Array) -> tuple[()]:
        """No state."""
        del key, epsilon
        return ()

    def step(
        self, key: Array, state: tuple[()], epsilon: Array, utility: Array
    ) -> tuple[tuple[()], Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state, utility >= self.threshold

    def cost(self, epsilon: Array) -> Array:
        """Nothing."""
        return jnp.zeros_like(epsilon)
