"""Stopping on public data: the utility may be looked at for free."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax.stopping._thresholds import ThresholdRule


class PublicThreshold(ThresholdRule):
    """Stop as soon as the utility reaches a threshold.

    For utilities that are public, or a function of the releases alone; it adds nothing to the
    privacy cost (Whitehouse 2022, section 6, "public" tests).

    Attributes:
        threshold: smallest utility that is good enough, scalar; or one for each step, shape
            (steps,), past whose end the rule never says yes. For a loss that must fall to a
            target the utility is minus the loss, the threshold minus the target.
    """

    fixed_price: ClassVar[bool] = True

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Stop if `utility >= threshold`."""
        del key, epsilon
        return state + 1, jnp.asarray(utility) >= self.threshold_at(state)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """Nothing."""
        del stopped, answers
        return jnp.zeros_like(epsilon)
