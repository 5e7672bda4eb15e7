"""Private threshold tests with noise of their own each, and each paid for."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import float_dtype
from nrjax.processes.laplace import laplace, random_bits
from nrjax.stopping._thresholds import ThresholdRule, noise_scale

# Machine epsilons by which the cost is: the number of answers as a float, its product with epsilon,
# and the sum with what the releases cost lose half of one each.
_COST_MARGIN = 3


class LaplaceTests(ThresholdRule):
    """Stop at the first `utility + Lap(Delta/eps) >= threshold`, with new noise for each test.

    The tests of the doubling method (Ligett 2017, Algorithm 4): each is the Laplace mechanism on
    one utility, and costs `eps`, a no as much as a yes; k answers cost `k eps` by composition
    (Theorem A.2). `AboveThreshold` pays once for any number of them, with query noise four times as
    wide at the same epsilon, and noise on the threshold.

    The utilities may be of releases made from the same data, whose cost comes on top.

    Attributes:
        threshold: tau, as in `AboveThreshold`.
        sensitivity: Delta, as in `InteractiveAboveThreshold`.
        epsilon: privacy level of one test.
    """

    sensitivity: Any
    epsilon: Any

    def step(
        self, key: Array, state: Array, epsilon: ArrayLike, utility: ArrayLike
    ) -> tuple[Array, Array]:
        """Answer one query; `epsilon`, what the releases cost, gives only the dtype."""
        dtype = float_dtype(epsilon, self.epsilon, self.sensitivity)
        scale = noise_scale(self.sensitivity, self.epsilon, dtype)
        noise = scale * laplace(random_bits(key, (), dtype), dtype)
        return state + 1, self.reached(utility, state, noise)

    def cost(self, epsilon: ArrayLike, stopped: ArrayLike = True, answers: ArrayLike = 1) -> Array:
        """`answers` times `self.epsilon`, rounded up; yes and no cost the same."""
        del stopped
        dtype = float_dtype(epsilon, self.epsilon)
        total = jnp.asarray(self.epsilon, dtype) * jnp.asarray(answers, dtype)
        total = total * (1 + _COST_MARGIN * float(jnp.finfo(dtype).eps))
        return total + jnp.zeros(jnp.shape(epsilon), dtype)
