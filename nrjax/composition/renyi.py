"""The filter at one order of Renyi's divergence, which takes mechanisms of every kind."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check, check_numbers, concrete_or_none
from nrjax.composition import _prices as prices
from nrjax.composition import certificates, conversions, requests
from nrjax.composition.conversions import ORDER, PROBABILITY
from nrjax.composition.filters import BudgetFilter
from nrjax.composition.requests import Request


def _brownian_time(filter: Any, left: Array, size: Array) -> Array:
    return prices.time_of_square(left, size, 0.5 * jnp.asarray(filter.order, left.dtype))


def _laplace_time(filter: Any, left: Array, size: Array) -> Array:
    order = jnp.asarray(filter.order, left.dtype)
    epsilon = certificates.laplace_reduction_inverse(order, left)
    return prices.time_of_epsilon(epsilon, left, size, 24)


def _discrete_time(filter: Any, left: Array, size: Array) -> Array:
    order = jnp.asarray(filter.order, left.dtype)
    epsilon = certificates.discrete_laplace_reduction_inverse(order, left, size)
    return prices.time_of_epsilon(epsilon, left, size, 24)


class RenyiFilter(BudgetFilter):
    """Mechanisms with ex-post Renyi certificates under one budget, at an order A fixed before.

    If the certificates add up to at most R surely, every rewind being admitted before it is made,
    all of it together has Renyi divergence at most R at order A, which is (epsilon, delta)-
    differential privacy by `conversions.epsilon_of_rdp`. Not in the papers; `docs/composition.md`
    has the proofs, and a table of the certificates. Its currency is the divergence at A.

    Requests, all with delta 0: every kind. `ExPost` (a private test, for example) and Laplace noise
    reduction with a `cap`, the most that their epsilon can come to, are charged by
    `certificates.capped`, which is below epsilon; without one `ExPost` at epsilon itself, Laplace
    noise reduction by a certificate of its own. Which it is, and the cap, must be settled before
    the round begins: a round that was opened has them for good.

    At some orders the conversion alone costs more than epsilon: a `ValueError`.
    """

    order: ArrayLike
    """A > 1; rounded to the default float dtype, for which the budget is then computed."""
    epsilon: ArrayLike
    """Of the whole guarantee, > 0."""
    delta: ArrayLike
    """Of the whole guarantee, in (0, 1)."""
    _times: ClassVar[Any] = {
        requests.BrownianReduction: _brownian_time,
        requests.LaplaceReduction: _laplace_time,
        requests.DiscreteLaplaceReduction: _discrete_time,
    }
    takes_caps: ClassVar[bool] = True

    def _check(self) -> None:
        known = check_numbers("order", self.order, *ORDER)
        if known is not None and known.ndim == 0:
            order = float(known.astype(jnp.result_type(float)))
            check_numbers("order", order, *ORDER)
            object.__setattr__(self, "order", order)

    @classmethod
    def tuned(cls, epsilon: float, delta: float, request: Request) -> Self:
        """The filter whose order buys the most rounds like `request`, of concrete numbers.

        Raises:
            ValueError: an argument is out of range or a tracer, the request costs nothing, or no
                order has a budget.
            TypeError: nothing is proved for a kind of request.
        """
        epsilon = conversions.number("epsilon", epsilon, requests.POSITIVE)
        delta = conversions.number("delta", delta, PROBABILITY)
        singles = list(requests.parts(request))
        for part in singles:
            prices.find(type(part), prices.renyi_costs(2.0), cls.__name__, {})
            part.check_single()
            prices.check_no_delta(part, cls.__name__)
        known = all(concrete_or_none(leaf) is not None for leaf in jax.tree.leaves(request))
        check(known, "request", request, "of concrete numbers, for which an order is sought")
        dtype = jnp.result_type(float)

        def total(order: ArrayLike) -> Any:
            costs = prices.renyi_costs(order)
            each = [prices.priced(costs[type(part)], part, dtype) for part in singles]
            return sum(np.asarray(cost, float) for cost in each)

        cost = total(2.0)
        check(not np.isnan(cost), "request", request, "of an epsilon up to its cap")
        check(cost > 0, "request", request, "one that costs something")

        def score(orders: Any) -> Any:
            # Rounded as the filter will round it; what becomes 1 has no certificate.
            rounded = orders.astype(dtype).astype(float)
            usable = rounded > 1
            rounded = np.where(usable, rounded, 2.0)
            budgets = conversions.rdp_budgets(rounded, epsilon, delta)
            with np.errstate(divide="ignore", invalid="ignore"):
                rounds = budgets / total(jnp.asarray(rounded, dtype))
                return np.where(usable & (budgets > 0), rounds, -np.inf)

        order, rounds = conversions.best_order(score)
        right = f"larger: with delta = {delta} no order has a budget for {request}"
        check(rounds > 0, "epsilon", epsilon, right)
        return cls(order, epsilon, delta)

    def _budget(self) -> float:
        return conversions.rdp_for(float(self.order), float(self.epsilon), float(self.delta))  # pyright: ignore

    def _costs(self) -> Mapping[type, prices.Price]:
        return prices.renyi_costs(self.order)
