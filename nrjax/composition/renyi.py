"""The ex-post Renyi filter: every kind of mechanism under one budget, at one fixed order."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from nrjax._numerics import check, check_numbers, check_positive, check_probability, concrete
from nrjax.composition import certificates
from nrjax.composition._filter import BudgetFilter, Cost, check_no_delta, find
from nrjax.composition._host import positive, probability
from nrjax.composition._rounds import enough, ratio_cost, time_of_square
from nrjax.composition._spending import cost, enlarged
from nrjax.composition.conversions import best_order, rdp_budgets, rdp_for
from nrjax.composition.requests import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    ExPost,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
    Request,
    parts,
)
from nrjax.composition.zcdp import UNIFIED_COSTS

# One call at a time, each compiled once, so that plain Python does not wait for every operation.
_LAPLACE_REDUCTION, _LAPLACE_MECHANISM, _PURE = (
    jax.jit(certificate, inline=True)
    for certificate in (
        certificates.laplace_reduction,
        certificates.laplace_mechanism,
        certificates.pure,
    )
)


def check_order(order: Any) -> None:
    """Constructor check: above 1 and finite, where it has numbers."""
    right = "above 1 and finite"
    check_numbers("order", order, lambda number: (number > 1) & np.isfinite(number), right)


def renyi_costs(order: ArrayLike) -> Mapping[type, Cost]:
    """Certificates at an order, by kind of request: see `RenyiFilter`."""

    def concentrated(kind: type) -> Cost:
        def price(request: Any, dtype: Any) -> Array:
            rho = UNIFIED_COSTS[kind](request, dtype)
            return cost(jnp.asarray(order, dtype) * rho, rho, 2)

        return price

    def pure(request: Any, dtype: Any) -> Array:
        return _PURE(jnp.asarray(order, dtype), enlarged(request.epsilon, dtype))

    def of_ratio(certificate: Callable[[ArrayLike, ArrayLike], Array]) -> Cost:
        def price(request: Any, dtype: Any) -> Array:
            epsilon = ratio_cost(request.sensitivity, request.time, dtype)
            return certificate(jnp.asarray(order, dtype), epsilon)

        return price

    return {
        **{kind: concentrated(kind) for kind in (BrownianReduction, ZCDP, GDP, BoundedRange)},
        LaplaceReduction: of_ratio(_LAPLACE_REDUCTION),
        Pure: pure,
        LaplaceMechanism: of_ratio(_LAPLACE_MECHANISM),
        ExPost: lambda request, dtype: enlarged(request.epsilon, dtype),
    }


def _brownian_time(filter: Any, left: Array, sensitivity: ArrayLike) -> Array:
    return time_of_square(left, sensitivity, 0.5 * jnp.asarray(filter.order, left.dtype))


def _laplace_time(filter: Any, left: Array, sensitivity: ArrayLike) -> Array:
    order = jnp.asarray(filter.order, left.dtype)
    epsilon = certificates.laplace_reduction_inverse(order, left)
    time = jnp.asarray(sensitivity, left.dtype) / epsilon
    margin = 1 + 24 * float(jnp.finfo(left.dtype).eps)
    return enough(time * margin, jnp.minimum(left, epsilon))


class RenyiFilter(BudgetFilter):
    """Mechanisms with ex-post Renyi certificates under one budget, at an order A fixed before.

    A certificate C is a function of what is published with `E exp((A - 1)(L - C)) <= 1` for the
    privacy loss L, whatever was published before and however the round is stopped. So if the
    certificates add up to at most R surely, all of it together has Renyi divergence at most R at
    order A, which is (epsilon, delta)-differential privacy by `conversions.epsilon_of_rdp`.
    "Surely": every rewind, the first release included, must be admitted before it is made. Not in
    the papers; it answers Rogers 2023's open problem of a composition of Laplace noise reduction
    that is better than adding up. The proofs are in `docs/composition.md`. Its currency is the
    divergence at A.

    Requests, and their certificates: `BrownianReduction` (`A D2^2/(2t)`), `LaplaceReduction`
    (`certificates.laplace_reduction` of `D1/t`), `ZCDP` (`A rho`; delta must be 0), `GDP`
    (`A mu^2/2`), `BoundedRange` (`A epsilon^2/8`), `Pure` (the divergence of randomised response),
    `LaplaceMechanism` (its own divergence), and `ExPost` with delta 0, a private test for example,
    with epsilon itself. Laplace noise reduction may be charged as `ExPost(D1/t)` too, but which of
    the two must be settled before the round begins.

    Attributes:
        order: A > 1; rounded to the default float dtype, for which the budget is then computed.
        epsilon: of the whole guarantee, > 0.
        delta: of the whole guarantee, in (0, 1).
        budget: the divergence R that this buys; made at construction, when the others must be
            concrete.

    Raises:
        ValueError: at this order the conversion alone costs more than epsilon.
    """

    order: ArrayLike
    epsilon: ArrayLike
    delta: ArrayLike
    _times: ClassVar[Any] = {BrownianReduction: _brownian_time, LaplaceReduction: _laplace_time}

    def __post_init__(self):
        check_order(self.order)
        check_positive("epsilon", self.epsilon)
        check_probability("delta", self.delta)
        number = concrete(self.order)
        if number is not None and number.ndim == 0:
            order = float(number.astype(jnp.result_type(float)))
            check_order(order)
            object.__setattr__(self, "order", order)
        self._settle("order", "epsilon", "delta")

    @classmethod
    def tuned(cls, epsilon: float, delta: float, request: Request) -> Self:
        """The filter whose order buys the most rounds like `request`.

        Args:
            epsilon: of the whole guarantee, > 0.
            delta: of the whole guarantee, in (0, 1).
            request: a typical request, with concrete numbers.

        Raises:
            ValueError: an argument is out of range or a tracer, the request costs nothing, or no
                order has a budget.
            TypeError: nothing is proved for a kind of request.
        """
        epsilon, delta = positive("epsilon", epsilon), probability(delta)
        singles = list(parts(request))
        for part in singles:
            find(type(part), renyi_costs(2.0), cls.__name__, {})
            part.check_single()
            check_no_delta(part, cls.__name__)
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(request))
        check(not traced, "request", request, "of concrete numbers, for which an order is sought")
        dtype = jnp.result_type(float)

        def total(order: ArrayLike) -> Any:
            costs = renyi_costs(order)
            return sum(np.asarray(costs[type(part)](part, dtype), float) for part in singles)

        check(total(2.0) > 0, "request", request, "one that costs something")

        def score(orders: Any) -> Any:
            # Rounded as the filter will round it; what becomes 1 has no certificate.
            rounded = orders.astype(dtype).astype(float)
            usable = rounded > 1
            rounded = np.where(usable, rounded, 2.0)
            budgets = rdp_budgets(rounded, epsilon, delta)
            with np.errstate(divide="ignore", invalid="ignore"):
                rounds = budgets / total(jnp.asarray(rounded, dtype))
                return np.where(usable & (budgets > 0), rounds, -np.inf)

        order, rounds = best_order(score)
        right = f"larger: with delta = {delta} no order has a budget for {request}"
        check(rounds > 0, "epsilon", epsilon, right)
        return cls(order, epsilon, delta)

    def _budget(self) -> float:
        return rdp_for(float(self.order), float(self.epsilon), float(self.delta))  # pyright: ignore

    def _costs(self) -> Mapping[type, Cost]:
        return renyi_costs(self.order)
