"""A filter at one fixed Rényi order, for mechanisms of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.sensitivities import shared_relation
from nrjax._base.validation import check, check_numbers, concrete_or_none
from nrjax.composition import _costs as costs
from nrjax.composition import certificates, conversions, requests
from nrjax.composition.conversions import ORDER, PROBABILITY
from nrjax.composition.filters import BudgetFilter
from nrjax.composition.requests import Request


def _brownian_time(filter: Any, left: Array, size: Array) -> Array:
    return costs.time_of_square(left, size, 0.5 * jnp.asarray(filter.order, left.dtype))


def _laplace_time(filter: Any, left: Array, size: Array) -> Array:
    order = jnp.asarray(filter.order, left.dtype)
    epsilon = certificates.laplace_reduction_inverse(order, left)
    return costs.time_of_epsilon(epsilon, left, size, 24)


def _discrete_time(filter: Any, left: Array, size: Array) -> Array:
    order = jnp.asarray(filter.order, left.dtype)
    epsilon = certificates.discrete_laplace_reduction_inverse(order, left, size)
    return costs.time_of_epsilon(epsilon, left, size, 24)


class RenyiFilter(BudgetFilter):
    """A filter for mechanisms of every kind, at a fixed Rényi order A (not in the papers).

    A round costs its Rényi certificate at order A, a function of where the round stops. If every
    rewind is admitted before it is made, and the certificates add up to at most R with probability
    1, the rounds together have Rényi divergence at most R. This implies (epsilon,
    delta)-differential privacy by `conversions.epsilon_of_rdp`. `docs/proofs/composition.md` has
    the proofs and a table of the certificates. Use this filter for many Laplace rounds, or for
    rounds of several kinds. For Brownian rounds only, `GaussianFilter` has a larger budget.

    Requests: every kind, with delta 0. `ExPost` (for example a private test) and Laplace noise
    reduction with a `cap` are charged `certificates.capped`, which is below their epsilon. Without
    a cap, `ExPost` is charged its epsilon, and Laplace noise reduction a separate certificate. The
    cap, or its absence, must be fixed before the round starts.

        >>> reduction = nrjax.composition.LaplaceReduction(sensitivity=1.0, time=10.0)
        >>> filter = nrjax.RenyiFilter.tuned(5.0, 1e-6, reduction)
        >>> state, ok = filter.take(filter.init(), reduction)
        >>> bool(ok), round(float(filter.order), 1)
        (True, 5.5)

    Attributes:
        order: the order A > 1; rounded to the default float dtype, for which the budget is
            computed.
        epsilon: epsilon of the whole guarantee, > 0.
        delta: delta of the whole guarantee, in (0, 1).
        budget: largest sum of costs, a Rényi divergence of order A; computed.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).

    Raises:
        ValueError: at this order the conversion alone costs more than epsilon, or an argument is
            missing or out of range.
    """

    order: ArrayLike
    epsilon: ArrayLike
    delta: Any = None  # a missing delta most often means that the order was forgotten
    _fixed_field = "order"
    _times: ClassVar[Any] = {
        requests.BrownianReduction: _brownian_time,
        requests.LaplaceReduction: _laplace_time,
        requests.DiscreteLaplaceReduction: _discrete_time,
    }
    takes_caps: ClassVar[bool] = True

    def __post_init__(self):
        hint = "Write RenyiFilter(order, epsilon, delta), or use RenyiFilter.tuned."
        check(self.delta is not None, "delta", None, "given, after the order and epsilon", hint)
        super().__post_init__()

    def _check(self) -> None:
        number = check_numbers("order", self.order, *ORDER)
        if number is not None and number.ndim == 0:
            order = float(number.astype(jnp.result_type(float)))
            check_numbers("order", order, *ORDER)
            object.__setattr__(self, "order", order)

    @classmethod
    def tuned(cls, epsilon: float, delta: float, request: Request) -> Self:
        """Return the filter whose order allows the most rounds like `request`.

        Args:
            epsilon: epsilon of the whole guarantee, > 0.
            delta: delta of the whole guarantee, in (0, 1).
            request: a typical round, or a tuple of them, of concrete numbers.

        Raises:
            ValueError: an argument is out of range or traced, the request costs nothing, or no
                order has a budget.
            TypeError: the filter has no proof for a kind of request.
        """
        epsilon = conversions.number("epsilon", epsilon, requests.POSITIVE)
        delta = conversions.number("delta", delta, PROBABILITY)
        singles = list(requests.parts(request))
        for part in singles:
            costs.find(type(part), costs.renyi_costs(2.0), cls.__name__)
            part.check_single()
            costs.check_no_delta(part, cls.__name__)
        known = all(concrete_or_none(leaf) is not None for leaf in jax.tree.leaves(request))
        check(known, "request", request, "of concrete numbers")
        dtype = jnp.result_type(float)

        def total(order: ArrayLike) -> Any:
            table = costs.renyi_costs(order)
            each = (costs.request_cost(table[type(part)], part, dtype) for part in singles)
            return sum(np.asarray(cost, float) for cost in each)

        cost = total(2.0)
        check(not np.isnan(cost), "request", request, "of an epsilon up to its cap")
        check(cost > 0, "request", request, "one that costs something")

        def score(orders: Any) -> Any:
            # Orders are rounded as the filter rounds them. An order that becomes 1 is unusable.
            rounded = orders.astype(dtype).astype(float)
            usable = rounded > 1
            rounded = np.where(usable, rounded, 2.0)
            budgets = conversions.rdp_budgets(rounded, epsilon, delta)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                rounds = budgets / total(jnp.asarray(rounded, dtype))
                return np.where(usable & (budgets > 0), rounds, -np.inf)

        order, rounds = conversions.best_order(score)
        expected = f"larger: with delta = {delta} no order has a budget for {request}"
        check(rounds > 0, "epsilon", epsilon, expected)
        stated = shared_relation(**{f"request {i}": part for i, part in enumerate(singles)})
        return cls(order, epsilon, delta, relation=stated or "replace")

    def _budget(self) -> float:
        return conversions.rdp_for(float(self.order), float(self.epsilon), float(self.delta))  # pyright: ignore

    def _costs(self) -> Mapping[type, costs.Cost]:
        return costs.renyi_costs(self.order)
