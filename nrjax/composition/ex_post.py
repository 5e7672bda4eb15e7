"""The filter that adds up ex-post epsilons, and its prices."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, concrete
from nrjax.composition._filter import BudgetFilter, Cost
from nrjax.composition._rounds import enough, ratio_cost
from nrjax.composition._spending import enlarged, settle
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


def _epsilon(request: Any, dtype: Any) -> Array:
    return enlarged(request.epsilon, dtype)


def _ratio(request: Any, dtype: Any) -> Array:
    return ratio_cost(request.sensitivity, request.time, dtype)


EX_POST_COSTS: Mapping[type, Cost] = {
    ExPost: _epsilon,
    Pure: _epsilon,
    BoundedRange: _epsilon,
    LaplaceMechanism: _ratio,
    LaplaceReduction: _ratio,
}
"""The epsilon that a loss exceeds with probability at most the request's delta."""

_GAUSSIAN = "with a boundary of delta d and epsilon e it is ExPost(e, d)"
EX_POST_REASONS: Mapping[type, str] = {
    BrownianReduction: _GAUSSIAN,
    ZCDP: "ZCDPFilter, or SideBySideFilter, takes it",
    GDP: "GaussianFilter takes it",
}


def _laplace_time(filter: Any, left: Array, sensitivity: ArrayLike) -> Array:
    margin = 1 + 16 * float(jnp.finfo(left.dtype).eps)
    return enough(jnp.asarray(sensitivity, left.dtype) / left * margin, left)


class ExPostFilter(BudgetFilter):
    """Ex-post private mechanisms under one budget, by adding up (Rogers 2023, Lemma 5.2).

    A mechanism may be started only if the largest epsilon that may come out fits into what is left;
    the one that does come out is spent, and its delta. All of it together is then
    (epsilon, delta)-differentially private. Its currency is epsilon.

    Requests: `ExPost`, and with delta 0 `Pure`, `BoundedRange` (a loss in an interval of length
    epsilon that has 0 in it), `LaplaceMechanism` and `LaplaceReduction` (`D1/t`).

    Deltas are added up as carefully as epsilons: a request's delta is rounded up and the filter's
    down, so that in float32 a single request for the whole of it need not fit;
    `remaining_delta(state)` does.

    Attributes:
        epsilon: of the whole guarantee, > 0.
        delta: of the whole guarantee, in [0, 1); rounded down to the default float dtype.
        budget: epsilon, rounded down; made at construction, when the others must be concrete.
    """

    epsilon: ArrayLike
    delta: ArrayLike = 0.0
    _reasons: ClassVar[Mapping[type, str]] = EX_POST_REASONS
    _prices: ClassVar[Mapping[type, Cost]] = EX_POST_COSTS
    _times: ClassVar[Any] = {LaplaceReduction: _laplace_time}
    _refunded = (True, False)
    _stopped = (object,)

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        number = concrete(self.delta)
        if number is not None:
            check((number >= 0) & (number < 1), "delta", self.delta, "at least 0 and below 1")
        settle(self, "delta")
        self._settle("epsilon", "delta")

    def _budget(self) -> float:
        return float(self.epsilon)  # pyright: ignore[reportArgumentType]

    def _share(self) -> ArrayLike:
        return self.delta
