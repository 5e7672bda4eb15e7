"""Filters that add up ex-post epsilons, alone or beside a zCDP filter."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, concrete
from nrjax.composition._filter import BudgetFilter, Cost, FilterState, names
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
    Request,
    parts,
)
from nrjax.composition.zcdp import UnifiedFilter, ZCDPFilter
from nrjax.pytrees import register_dataclass


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


@register_dataclass
@dataclasses.dataclass(frozen=True)
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
    budget: Any = dataclasses.field(default=None, kw_only=True)
    _reasons: ClassVar[Mapping[type, str]] = EX_POST_REASONS

    def __post_init__(self):
        check_positive("epsilon", self.epsilon)
        number = concrete(self.delta)
        if number is not None:
            check((number >= 0) & (number < 1), "delta", self.delta, "at least 0 and below 1")
        settle(self, "delta")
        self._settle("epsilon", "delta")

    def _budget(self) -> float:
        return float(self.epsilon)  # pyright: ignore[reportArgumentType]

    def _costs(self) -> Mapping[type, Cost]:
        return EX_POST_COSTS

    def _share(self) -> ArrayLike:
        return self.delta

    def _times(self) -> Mapping[type, Callable[[Array, ArrayLike], Array]]:
        def laplace(left: Array, sensitivity: ArrayLike) -> Array:
            margin = 1 + 16 * float(jnp.finfo(left.dtype).eps)
            return enough(jnp.asarray(sensitivity, left.dtype) / left * margin, left)

        return {LaplaceReduction: laplace}


def _sum_above(first: Any, second: Any) -> Any:
    """The sum, rounded up where it is of Python's numbers and not exact."""
    total = first + second
    if isinstance(total, float) and Fraction(first) + Fraction(second) > Fraction(total):
        return math.nextafter(total, math.inf)
    return total


class SideBySideState(NamedTuple):
    """The states of the two filters."""

    zcdp: FilterState
    ex_post: FilterState


@register_dataclass
@dataclasses.dataclass(frozen=True)
class SideBySideFilter:
    """zCDP mechanisms beside ex-post private ones, each with its own budget (Rogers 2023, Thm 3).

    All of it together is (epsilon, delta)-differentially private, where epsilon and delta are the
    sums of the two filters'. A request goes to the filter for zCDP if that has a proof for its
    kind, else to the other; of a tuple each part. Costs and what remains are pairs: in rho and in
    epsilon.

    Attributes:
        zcdp: a `ZCDPFilter` or `UnifiedFilter`.
        ex_post: an `ExPostFilter`.
    """

    zcdp: ZCDPFilter | UnifiedFilter
    ex_post: ExPostFilter

    def __post_init__(self):
        # Neither sentinels nor axes of vmap, which have no `spend`.
        for name, valid in (("zcdp", (ZCDPFilter, UnifiedFilter)), ("ex_post", (ExPostFilter,))):
            value = getattr(self, name)
            right = f"a {' or '.join(kind.__name__ for kind in valid)}: no other has a proof for it"
            check(isinstance(value, valid) or not hasattr(value, "spend"), name, value, right)

    @property
    def epsilon(self) -> Any:
        """Epsilon of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.epsilon, self.ex_post.epsilon)

    @property
    def delta(self) -> Any:
        """Delta of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.delta, self.ex_post.delta)

    def _first(self, kind: type) -> bool:
        if issubclass(kind, tuple(self.zcdp._costs())):
            return True
        if issubclass(kind, tuple(self.ex_post._costs())):
            return False
        both = {**self.zcdp._costs(), **self.ex_post._costs()}
        raise TypeError(
            f"{kind.__name__}: {type(self).__name__} has no proof for it, but for {names(both)}"
        )

    def _split(self, request: Request) -> tuple[Request, Request]:
        single = list(parts(request))
        own = [self._first(type(part)) for part in single]
        first = tuple(part for part, mine in zip(single, own, strict=True) if mine)
        second = tuple(part for part, mine in zip(single, own, strict=True) if not mine)
        return first, second

    def init(self) -> SideBySideState:
        """Nothing spent."""
        return SideBySideState(self.zcdp.init(), self.ex_post.init())

    def remaining(self, state: SideBySideState) -> Array:
        """What is left of the two budgets, rounded down: rho and epsilon; shape (2,)."""
        return jnp.stack([self.zcdp.remaining(state.zcdp), self.ex_post.remaining(state.ex_post)])

    def cost(self, request: Request) -> Array:
        """What a request would take of the two budgets, rounded up: rho and epsilon; shape (2,).

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        first, second = self._split(request)
        return jnp.stack([self.zcdp.cost(first), self.ex_post.cost(second)])

    def admits(self, state: SideBySideState, request: Request) -> Array:
        """Whether a mechanism may be started, or rewound, that may cost as much as this (bool).

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        first, second = self._split(request)
        return self.zcdp.admits(state.zcdp, first) & self.ex_post.admits(state.ex_post, second)

    def spend(
        self, state: SideBySideState, spent: Request, admitted: Request | None = None
    ) -> tuple[SideBySideState, Array]:
        """Take what a mechanism did cost out of the budgets: of both, or of neither.

        Args:
            state: of this filter.
            spent: the request as it came out.
            admitted: what was asked for before; spending more than that of either budget is
                refused.

        Returns:
            The state, unchanged bit for bit where it was refused, and whether it was accepted
            (bool). Under a trace what is out of range is refused.

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        first, second = self._split(spent)
        asked = (None, None) if admitted is None else self._split(admitted)
        one, ok_one = self.zcdp.spend(state.zcdp, first, asked[0])
        two, ok_two = self.ex_post.spend(state.ex_post, second, asked[1])
        ok = ok_one & ok_two
        after = SideBySideState(one, two)
        return jax.tree.map(lambda new, old: jnp.where(ok, new, old), after, state), ok

    def smallest_time(
        self, state: SideBySideState, kind: type, sensitivity: ArrayLike = 1.0
    ) -> Array:
        """Smallest time at which a round of `kind` is still admitted; see `UnifiedFilter`.

        Raises:
            TypeError: `kind` is not one that is rewound under either filter.
            ValueError: a concrete `sensitivity` is not positive and finite.
        """
        if self._first(kind):
            return self.zcdp.smallest_time(state.zcdp, kind, sensitivity)
        return self.ex_post.smallest_time(state.ex_post, kind, sensitivity)
