"""Stopping on public data: the utility may be looked at for free."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax.pytrees import register_dataclass
from nrjax.stopping._thresholds import as_threshold, threshold_at, threshold_steps
from nrjax.types import Status


@register_dataclass
@dataclasses.dataclass(frozen=True)
class PublicThreshold:
    """Stop as soon as the utility reaches a threshold.

    For utilities that are public, or a function of the releases alone; it adds nothing to the
    privacy cost (Whitehouse 2022, section 6, "public" tests).

    Attributes:
        threshold: smallest utility that is good enough, scalar; or one for each step, shape
            (steps,), past whose end the rule never says yes. For a loss that must fall to a
            target the utility is minus the loss, the threshold minus the target.

    Raises:
        ValueError: a threshold is NaN.
    """

    threshold: Any

    def __post_init__(self):
        object.__setattr__(self, "threshold", as_threshold(self.threshold))

    @property
    def max_steps(self) -> int | None:
        """Number of thresholds in a sequence; None for a single one."""
        return threshold_steps(self.threshold)

    def init(self, key: Array, epsilon: Array) -> Array:
        """State: the number of the next step, int32."""
        del key, epsilon
        return jnp.int32(0)

    def step(self, key: Array, state: Array, epsilon: Array, utility: Array) -> tuple[Array, Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state + 1, utility >= threshold_at(self.threshold, state)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True) -> Array:
        """Nothing."""
        del stopped
        return jnp.zeros_like(epsilon)

    def status(self, state: Array) -> Array:
        """Always `Status.RUNNING`."""
        del state
        return jnp.int32(Status.RUNNING)
