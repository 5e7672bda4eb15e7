"""Pure ex-post privacy of Laplace noise: `epsilon = D1 / t`."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from nrjax.guarantees._rounding import SafeGuarantee


class PureGuarantee(SafeGuarantee):
    """Laplace noise of scale t costs `D1 / t`, surely (Whitehouse 2022, Proposition 4.2).

    Attributes:
        sensitivity: l1-sensitivity D1 of the private value, in the units of the noise.
    """

    noise: ClassVar[str] = "laplace"
    notion: ClassVar[str] = "pure"
    margin: ClassVar[int] = 4  # 2 are lost

    def _epsilon(self, time: Array, sensitivity: Array) -> Array:
        return sensitivity / time

    def _time(self, asked: Array, sensitivity: Array) -> Array:
        margin = 2 * self.margin * float(jnp.finfo(asked.dtype).eps)
        return sensitivity / asked * (1 + margin)


class DiscretePureGuarantee(PureGuarantee):
    """Discrete Laplace noise of time t costs `D1 / t` too, surely (`docs/frontier.md`).

    Random words are finite: `DiscreteLaplace` states how closely its draws keep this.

    Attributes:
        sensitivity: l1-sensitivity D1 of the private value, a vector of integers.
    """

    noise: ClassVar[str] = "discrete laplace"
