"""Pure ex-post privacy of Laplace noise: `epsilon = D1 / t`."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_positive, float_dtype, numbers
from nrjax.guarantees._rounding import check_time, divisor, safe_epsilon, safe_time
from nrjax.sensitivities import check_norm
from nrjax.types import Guarantee

# Machine epsilons by which epsilon is rounded up. The formula and the cast of the sensitivity to
# another dtype lose at most 2; the rest is for approximate division on accelerators.
_MARGIN = 4


class PureGuarantee(Guarantee):
    """Laplace noise of scale t costs `D1 / t`, surely (Whitehouse 2022, Proposition 4.2).

    Attributes:
        sensitivity: l1-sensitivity D1 of the private value, in the units of the noise.
    """

    sensitivity: ArrayLike
    noise: ClassVar[str] = "laplace"

    def __post_init__(self):
        check_positive("sensitivity", self.sensitivity)
        check_norm(self.sensitivity, self.noise)

    @property
    def delta(self) -> float:
        """0: the guarantee is never exceeded."""
        return 0.0

    def epsilon(self, time: ArrayLike) -> Array:
        """Ex-post epsilon of stopping at `time`, rounded up; elementwise."""
        check_time(time)
        dtype = float_dtype(time, self.sensitivity)
        time, sensitivity = divisor(time, dtype), jnp.asarray(self.sensitivity, dtype)
        return safe_epsilon(sensitivity / time, time, sensitivity, _MARGIN)

    def time(self, epsilon: ArrayLike) -> Array:
        """Smallest time (noise scale) that costs at most `epsilon`, rounded up; elementwise."""
        numbers("epsilon", epsilon, "finite and above 0")
        dtype = float_dtype(epsilon, self.sensitivity)
        asked, sensitivity = jnp.asarray(epsilon, dtype), jnp.asarray(self.sensitivity, dtype)
        raw = sensitivity / asked * (1 + 2 * _MARGIN * float(jnp.finfo(dtype).eps))
        return safe_time(
            raw,
            asked,
            epsilon,
            lambda: f"finite and above 0, with sensitivity / epsilon within {dtype}",
        )
