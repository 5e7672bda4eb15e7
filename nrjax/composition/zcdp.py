"""Filters whose currency is the rho of zero-concentrated differential privacy."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, check_probability, concrete
from nrjax.composition._filter import BudgetFilter, Cost
from nrjax.composition._rounds import ratio_cost, squared_ratio, time_of_square
from nrjax.composition._spending import cost, enlarged, settle
from nrjax.composition.conversions import check_conversion, zcdp_for
from nrjax.composition.requests import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    ExPost,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
)
from nrjax.pytrees import static


def _pure(epsilon: Array) -> Array:
    """`epsilon tanh(epsilon/2)`; see `conversions.zcdp_of_pure`."""
    return cost(epsilon * jnp.tanh(0.5 * epsilon), epsilon, 16)


# (-1)^k/k! of kappa(e) = sum_(k>=2) (-e)^k/k!, the highest first.
_SERIES = [(-1) ** k / math.factorial(k) for k in range(20, 1, -1)]


def _laplace(request: Any, dtype: Any) -> Array:
    """`kappa(e) = e - 1 + exp(-e)`, `e = D1/t`: see `docs/composition.md`."""
    epsilon = ratio_cost(request.sensitivity, request.time, dtype)
    small = jnp.minimum(epsilon, 1)  # where the difference cancels
    series = small * small * jnp.polyval(jnp.asarray(_SERIES, dtype), small)
    kappa = jnp.where(epsilon < 1, series, epsilon + jnp.expm1(-epsilon))
    return cost(kappa, epsilon, 16)


def _gdp(request: Any, dtype: Any) -> Array:
    mu = enlarged(request.mu, dtype)
    return cost(0.5 * mu * mu, mu, 4)


def _bounded_range(request: Any, dtype: Any) -> Array:
    epsilon = enlarged(request.epsilon, dtype)
    return cost(0.125 * epsilon * epsilon, epsilon, 4)


def _brownian(request: Any, dtype: Any) -> Array:
    raw = 0.5 * squared_ratio(request.sensitivity, request.time, dtype)
    return cost(raw, jnp.ones((), dtype), 12)


ZCDP_COSTS: Mapping[type, Cost] = {
    ZCDP: lambda request, dtype: enlarged(request.rho, dtype),
    GDP: _gdp,
    BoundedRange: _bounded_range,
    Pure: lambda request, dtype: _pure(enlarged(request.epsilon, dtype)),
    LaplaceMechanism: _laplace,
}
"""Rho of the mechanisms that satisfy zCDP."""

UNIFIED_COSTS: Mapping[type, Cost] = {**ZCDP_COSTS, BrownianReduction: _brownian}
"""With the rounds of Brownian noise reduction, `D2^2/(2t)` at the time of stopping."""


class _ConcentratedFilter(BudgetFilter):
    epsilon: ArrayLike
    delta: ArrayLike
    approximation: ArrayLike = 0.0
    conversion: str = static(default="standard")
    _refunded = (True, False)

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        check_probability("delta", self.delta)
        check_conversion(self.conversion)
        kept, delta = concrete(self.approximation), concrete(self.delta)
        if kept is not None and delta is not None:
            right = "at least 0 and below delta, of which it is a part"
            check((kept >= 0) & (kept < delta), "approximation", self.approximation, right)
        settle(self, "approximation")
        self._settle("epsilon", "delta", "approximation")

    def _budget(self) -> float:
        # Rounded down: what is left of delta for the conversion.
        left = (float(self.delta) - float(self.approximation)) * (1 - 1e-15)  # pyright: ignore
        return zcdp_for(float(self.epsilon), left, self.conversion)  # pyright: ignore

    def _share(self) -> ArrayLike:
        return self.approximation


class ZCDPFilter(_ConcentratedFilter):
    """Adaptively chosen approximate zCDP mechanisms under one budget (Rogers 2023, Theorem 2).

    If the rhos that it accepts add up to at most `budget` and their deltas to at most
    `approximation`, which it sees to, then all of it together is `approximation`-approximate
    `budget`-zCDP, hence (epsilon, delta)-differentially private. A request that does not fit may be
    skipped. Its currency is rho.

    Requests: `ZCDP`, `GDP` (`mu^2/2`), `BoundedRange` (`epsilon^2/8`), `Pure`
    (`epsilon tanh(epsilon/2)`) and `LaplaceMechanism` (`e - 1 + exp(-e)`, `e = D1/t`).

    Attributes:
        epsilon: of the whole guarantee, > 0.
        delta: of the whole guarantee, in (0, 1).
        approximation: the part of delta kept for the requests' own deltas, in [0, delta).
        conversion: "standard", `epsilon = rho + 2 sqrt(rho log(1/delta))`, as in the paper, or
            "renyi", a smaller epsilon for the same rho (`conversions.epsilon_of_zcdp`). Static.
        budget: the rho that this buys; made at construction, when the others must be concrete.
    """

    _reasons: ClassVar[Mapping[type, str]] = {
        BrownianReduction: "UnifiedFilter takes it",
        ExPost: "ExPostFilter, or SideBySideFilter, takes it",
        LaplaceReduction: "RenyiFilter takes it",
    }
    _prices: ClassVar[Mapping[type, Cost]] = ZCDP_COSTS


class UnifiedFilter(_ConcentratedFilter):
    """zCDP mechanisms and Brownian noise reduction under one budget (Rogers 2023, Theorem 6).

    As `ZCDPFilter`, with rounds of Brownian noise reduction at `D2^2/(2t)`, t the time at which
    they stop. Every rewind, the first release included, must be admitted before it is made. Rounds
    of Brownian noise alone are the special case of Lemma 6.2; `GaussianFilter` is better for these.

    The theorem prints `2 sqrt(2 rho log(1/delta))`; its proof goes through Lemma 2.3, which gives
    `2 sqrt(rho log(1/delta))`, as the paper's experiments use. Attributes are those of
    `ZCDPFilter`.
    """

    _reasons: ClassVar[Mapping[type, str]] = {
        ExPost: "ExPostFilter, RenyiFilter or SideBySideFilter takes it",
        LaplaceReduction: "RenyiFilter takes it",
    }
    _prices: ClassVar[Mapping[type, Cost]] = UNIFIED_COSTS
    _times: ClassVar[Any] = {
        BrownianReduction: lambda _, left, size: time_of_square(2 * left, size)
    }
