"""The exact filter for rounds of Brownian noise and other Gaussian private mechanisms."""

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_positive, check_probability
from nrjax.composition._filter import BudgetFilter, Cost
from nrjax.composition._rounds import ratio_cost, squared_ratio, time_of_square
from nrjax.composition._spending import cost, enlarged
from nrjax.composition.conversions import gdp_for
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


def _squared_mu(x: Array, centre: Array, tail: Array) -> Array:
    """`mu^2`, `mu = 2 Phi^-1(1 - tail)`, rounded up; `centre` is `1 - 2 tail`, precise near 0."""
    # Phi(z) = 1/2 + erf(z/sqrt(2))/2.
    near = 2 * math.sqrt(2) * jax.scipy.special.erfinv(centre)
    mu = jnp.where(x < 2, near, -2 * jax.scipy.special.ndtri(tail))
    # In float32 the two lose up to 10 machine epsilons, in float64 up to 30.
    return cost(mu * mu, x, 64)


@functools.partial(jax.jit, inline=True)
def squared_mu_of_odds(x: Array) -> Array:
    """For `tail = 1/(1 + exp(x))`; infinite where exp(x) is too large."""
    return _squared_mu(x, jnp.tanh(0.5 * jnp.minimum(x, 2)), 1 / (1 + jnp.exp(jnp.maximum(x, 2))))


@functools.partial(jax.jit, inline=True)
def squared_mu_of_laplace(x: Array) -> Array:
    """For `tail = exp(-x/2)/2`, that of Laplace noise with `x = D1/t`; infinite for large x."""
    centre = -jnp.expm1(-0.5 * jnp.minimum(x, 2))
    return _squared_mu(x, centre, 0.5 * jnp.exp(-0.5 * jnp.maximum(x, 2)))


def _gdp(request: Any, dtype: Any) -> Array:
    mu = enlarged(request.mu, dtype)
    return cost(mu * mu, mu, 4)


def _brownian(request: Any, dtype: Any) -> Array:
    raw = squared_ratio(request.sensitivity, request.time, dtype)
    return cost(raw, jnp.ones((), dtype), 12)


GDP_COSTS: Mapping[type, Cost] = {
    BrownianReduction: _brownian,
    GDP: _gdp,
    BoundedRange: lambda request, dtype: squared_mu_of_odds(0.5 * enlarged(request.epsilon, dtype)),
    Pure: lambda request, dtype: squared_mu_of_odds(enlarged(request.epsilon, dtype)),
    LaplaceMechanism: lambda request, dtype: squared_mu_of_laplace(
        ratio_cost(request.sensitivity, request.time, dtype)
    ),
}


class GaussianFilter(BudgetFilter):
    """Brownian noise reduction and mu-GDP mechanisms under one budget, exactly.

    Run on the clock `[0, mu^2]`, the rounds' releases are functions of one Brownian motion that has
    drift 1 under x and 0 under x' (and of noise that is the same under both), if
    `sum D2^2/t <= mu^2` surely: so all of it together is mu-GDP, and its delta at epsilon is
    `Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)`, which cannot be improved. Mechanisms that are
    mu_i-GDP join with `mu_i^2`. Not in the papers; the proof is in `docs/composition.md`. Its
    currency is `mu^2`: 3.4156 at (10, 1e-6), where the unified filter has `2 rho = 2.7060`.

    Requests: `BrownianReduction`, every rewind of which must be admitted before it is made, `GDP`,
    `BoundedRange` (`mu = 2 Phi^-1(1/(1 + exp(-epsilon/2)))`), `Pure`
    (`mu = 2 Phi^-1(1/(1 + exp(-epsilon)))`) and `LaplaceMechanism`
    (`mu = 2 Phi^-1(1 - exp(-e/2)/2)`, `e = D1/t`). There is no mu for zCDP in general.

    Attributes:
        epsilon: of the whole guarantee, > 0.
        delta: of the whole guarantee, in (0, 1).
        budget: the `mu^2` that this buys; made at construction, when the others must be concrete.
    """

    epsilon: ArrayLike
    delta: ArrayLike
    _reasons: ClassVar[Mapping[type, str]] = {
        ZCDP: "zCDP bounds no trade-off curve by a Gaussian one; UnifiedFilter takes it",
        ExPost: "ExPostFilter or RenyiFilter takes it",
        LaplaceReduction: "RenyiFilter takes it",
    }
    _prices: ClassVar[Mapping[type, Cost]] = GDP_COSTS
    _times: ClassVar[Any] = {BrownianReduction: lambda _, left, size: time_of_square(left, size)}

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        check_probability("delta", self.delta)
        self._settle("epsilon", "delta")

    def _budget(self) -> float:
        return gdp_for(float(self.epsilon), float(self.delta)) ** 2 * (1 - 1e-15)  # pyright: ignore
