"""Pure ex-post privacy of Laplace noise: `epsilon = D1 / t`, or `D2 / t` if it is spherical."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from nrjax._base.notions import Notion
from nrjax.guarantees._rounding import SafeGuarantee


class PureGuarantee(SafeGuarantee):
    """The cost `D1 / t` of Laplace noise of scale t (Whitehouse 2022, Proposition 4.2).

    Use it with `nrjax.Laplace` and `nrjax.IndependentLaplace`. The realised loss never exceeds
    epsilon (pure differential privacy, delta = 0).

        >>> epsilon = nrjax.PureGuarantee(sensitivity=1.0).epsilon(4.0)
        >>> round(float(epsilon), 4), bool(epsilon >= 0.25)  # rounded up
        (0.25, True)

    Attributes:
        sensitivity: l1-sensitivity D1 of the private value, in units of the noise.
    """

    noise: ClassVar[str] = "laplace"
    notion: ClassVar[str] = Notion.PURE
    margin: ClassVar[int] = 4  # the formula loses 2

    def _epsilon(self, time: Array, sensitivity: Array) -> Array:
        return sensitivity / time

    def _time(self, target: Array, sensitivity: Array) -> Array:
        margin = 2 * self.margin * float(jnp.finfo(target.dtype).eps)
        return sensitivity / target * (1 + margin)


class DiscretePureGuarantee(PureGuarantee):
    """The cost `D1 / t` of discrete Laplace noise of time t (statement 7 of `docs/proofs`).

    Use it with `nrjax.DiscreteLaplace`, whose documentation states by how much the cost of draws
    from finitely many random bits can exceed `D1 / t`.

        >>> round(float(nrjax.DiscretePureGuarantee(sensitivity=2).epsilon(4.0)), 4)
        0.5

    Attributes:
        sensitivity: l1-sensitivity D1 of the private value, which consists of integers.
    """

    noise: ClassVar[str] = "discrete laplace"


class SphericalPureGuarantee(PureGuarantee):
    """The cost `D2 / t` of spherical Laplace noise of scale t (statement 41 of `docs/proofs`).

    Use it with `nrjax.SphericalLaplace`, for vectors whose l2-sensitivity is small. The realised
    loss never exceeds epsilon (pure differential privacy, delta = 0). Filters and odometers charge
    it as `ExPost.of(guarantee, time)`, and dp-accounting a largest epsilon as `Pure(epsilon)`.

        >>> round(float(nrjax.SphericalPureGuarantee(sensitivity=1.0).epsilon(4.0)), 4)
        0.25

    Attributes:
        sensitivity: l2-sensitivity D2 of the private value, in units of the noise.
    """

    noise: ClassVar[str] = "spherical laplace"
