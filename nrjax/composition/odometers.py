"""Privacy odometers: bounds on the privacy spent so far, without a budget."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.validation import (
    check,
    check_normal,
    check_numbers,
    check_positive,
    check_probability,
)
from nrjax.composition import _costs as costs
from nrjax.composition._state import LedgerState, charge_once, check_owner, new_state, rounded_up
from nrjax.composition.conversions import ORDER
from nrjax.composition.requests import Request, parts
from nrjax.guarantees import MixtureBoundary, OneSidedMixtureBoundary
from nrjax.guarantees._rounding import round_up


class _Odometer(costs.CostModel, abc.ABC):
    notion: ClassVar[Notion] = Notion.PROBABILISTIC
    """The privacy notion of the bound and delta: see `nrjax.guarantees.Notion`."""

    @abc.abstractmethod
    @neutral_config()
    def bound(self, state: LedgerState) -> Array:
        """Return a bound on the epsilon spent so far, rounded up.

        With probability at least 1 - delta, the privacy loss never exceeds the bound.
        """

    @neutral_config()
    def init(self) -> LedgerState:
        """Return a state with nothing spent."""
        return new_state(self, jnp.result_type(float))

    @neutral_config()
    def spend(self, state: LedgerState, spent: Request) -> LedgerState:
        """Return the state after a mechanism was run.

        Args:
            state: a state of this odometer.
            spent: the request for the mechanism, with the time at which noise reduction actually
                stopped, and the actual ex-post epsilon. All other fields are as planned, also if a
                private test gave a negative answer.

        Raises:
            TypeError: the odometer has no proof for a kind of request.
            ValueError: a concrete field is out of range, the epsilon of a request is of the
                hockey-stick notion, or the state is for another odometer. A traced request that is
                out of range makes all later bounds infinite.
        """
        is_own = check_owner(self, state)
        dtype = state.spent.total.dtype

        def charge(part: Any) -> Array:
            notion, hint = getattr(part, "notion", None), "Use an ExPostFilter."
            expected = "pure or probabilistic, since the bound is on losses"
            bounding = notion is None or notion.bounds_losses
            check(bounding, "notion of the request", notion, expected, hint)
            cost = self._charge(part, dtype)
            return jnp.where(is_own & (cost[0] < jnp.inf), cost, jnp.inf)

        charges = charge_once(list(parts(spent)), charge)
        return dataclasses.replace(state, spent=charges.added_to(state.spent))

    def _spent(self, state: LedgerState) -> Array:
        """Return the costs spent, rounded up, or infinity for another order or gamma, (units,)."""
        return jnp.where(check_owner(self, state), rounded_up(state.spent), jnp.inf)


class _BrownianOdometer(_Odometer):
    delta: ArrayLike
    gamma: ArrayLike
    _boundary: ClassVar[Any]
    _fixed_field = "gamma"
    _cost_table = costs.UNIFIED_COSTS

    def __post_init__(self):
        super().__post_init__()
        check_probability("delta", self.delta)
        check_positive("gamma", self.gamma)
        costs.round_field_down(self, "delta")

    @classmethod
    def tight_at(cls, total: float, delta: float) -> Self:
        """Return the odometer whose bound is smallest if the sum of `D2^2/t` equals `total` > 0.

        D2 is the l2-sensitivity of a round, and t the time at which the round stops.
        """
        check_positive("total", total)
        # Gamma is smaller than the total by a factor of at most 1500, at the smallest delta.
        check_normal("total", total, np.asarray(total, float) / 2048, "such that gamma is")
        return cls(delta, cls._boundary.tight_at_time(total, 1.0, delta).rho)

    @neutral_config()
    def bound(self, state: LedgerState) -> Array:
        rho = self._spent(state)[0]
        spent = rho > 0
        total = jnp.where(spent, 2 * rho, 1)
        raw = rho + self._boundary(1.0, self.delta, self.gamma).curve(total)
        raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
        return jnp.where(spent, round_up(raw, 2), 0)


class BrownianOdometer(_BrownianOdometer):
    """The two-sided odometer of Brownian noise reduction (Rogers 2023, Theorem 5, corrected).

    The bound is `V/2 + sqrt((V + g) log((V + g)/(delta^2 g)))`. V is the sum of `D2^2/t` over the
    rounds so far, where D2 is the l2-sensitivity and t the noise variance at the stop, and g is
    gamma. The printed theorem drops the `V/2`. Use this class to reproduce the paper:
    `OneSidedBrownianOdometer` has a smaller bound for every V.

    Requests: those of `OneSidedBrownianOdometer`.

        >>> odometer = nrjax.BrownianOdometer.tight_at(total=2.7, delta=1e-6)
        >>> reduction = nrjax.composition.BrownianReduction(sensitivity=1.0, time=10.0)
        >>> round(float(odometer.bound(odometer.spend(odometer.init(), reduction))), 2)
        2.35

    Attributes:
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
        gamma: number > 0 that decides at which V, the sum of `D2^2/t`, the bound is tightest. It is
            far smaller than this V, so let `tight_at` choose it.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    _boundary = MixtureBoundary


class OneSidedBrownianOdometer(_BrownianOdometer):
    """An odometer of Brownian noise reduction, by a one-sided mixture (not in the papers).

    The bound is `V/2 + u(V)`. V is the sum of `D2^2/t` over the rounds so far, where D2 is the
    l2-sensitivity and t the noise variance at the stop. The curve u is that of
    `OneSidedMixtureBoundary` with `rho = gamma` (proof in statement 29 of `docs/proofs`). A
    rho-zCDP mechanism adds `2 rho` to V. Use `RenyiOdometer` to add Laplace noise reduction.

    Requests: `BrownianReduction`, `ZCDP` (with delta 0), `GDP`, `BoundedRange`, `Pure` and
    `LaplaceMechanism`.

        >>> odometer = nrjax.OneSidedBrownianOdometer.tight_at(total=2.7, delta=1e-6)
        >>> reduction = nrjax.composition.BrownianReduction(sensitivity=1.0, time=10.0)
        >>> round(float(odometer.bound(odometer.spend(odometer.init(), reduction))), 2)
        2.32

    Attributes:
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
        gamma: number > 0 that decides at which V, the sum of `D2^2/t`, the bound is tightest. It is
            far smaller than this V, so let `tight_at` choose it.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    _boundary = OneSidedMixtureBoundary


class RenyiOdometer(_Odometer):
    """An odometer for mechanisms of every kind, at a fixed Rényi order (not in the papers).

    The bound is `sum C + log(1/delta)/(A - 1)`, where C is the cost of a round in `RenyiFilter` at
    order A (proof in statement 25 of `docs/proofs`). The cap of a round must be fixed before the
    round. For Brownian rounds only, `OneSidedBrownianOdometer` needs no order.

    Requests: those of `RenyiFilter`.

        >>> odometer = nrjax.RenyiOdometer(order=5.0, delta=1e-6)
        >>> state = odometer.spend(odometer.init(), nrjax.composition.LaplaceReduction(1.0, 10.0))
        >>> round(float(odometer.bound(state)), 2)
        3.48

    Attributes:
        order: the order A > 1, fixed before the first release.
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    order: ArrayLike
    delta: ArrayLike
    _fixed_field = "order"

    def __post_init__(self):
        super().__post_init__()
        check_numbers("order", self.order, *ORDER)
        check_probability("delta", self.delta)
        costs.round_field_down(self, "delta")

    def _costs(self) -> Mapping[type, costs.Cost]:
        return costs.renyi_costs(self.order)

    @neutral_config()
    def bound(self, state: LedgerState) -> Array:
        """Return the sum of the rounds' costs plus `log(1/delta)/(A - 1)`, rounded up."""
        total = self._spent(state)[0]
        dtype = total.dtype
        order = jnp.asarray(self.order, dtype)
        level = -jnp.log(jnp.asarray(self.delta, dtype)) + 4 * float(jnp.finfo(dtype).eps)
        raw = total + round_up(level / (order - 1), 8)
        raw = jnp.where((order > 1) & ~jnp.isnan(raw), raw, jnp.inf)  # a traced order is unchecked
        return jnp.where(total > 0, round_up(raw, 2), 0)


class ExPostOdometer(_Odometer):
    """An odometer for ex-post mechanisms, whose epsilons add up (Rogers 2023, Lemma 5.1).

    The loss exceeds `bound(state)` with probability at most `delta(state)`, if all deltas were
    fixed before the first mechanism. If deltas are chosen later, the probability is at most the
    mean of their sum. Use `RenyiOdometer` for many small rounds.

    Requests: those of `ExPostFilter`, for probabilistic guarantees (`Guarantee.notion`) only.
    Epsilons of hockey-stick guarantees do not bound losses, so that `ExPost.of` such a guarantee is
    refused: use `ExPostFilter`.

        >>> odometer = nrjax.ExPostOdometer()
        >>> state = odometer.spend(odometer.init(), nrjax.composition.ExPost(0.1, delta=1e-7))
        >>> round(float(odometer.bound(state)), 4), round(float(odometer.delta(state)), 9)
        (0.1, 1e-07)

    Attributes:
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    _units = ("epsilon", "delta")
    _cost_table = costs.EX_POST_COSTS

    @neutral_config()
    def bound(self, state: LedgerState) -> Array:
        """Return the sum of the epsilons, rounded up."""
        return self._spent(state)[0]

    @neutral_config()
    def delta(self, state: LedgerState) -> Array:
        """Return the sum of the deltas, rounded up."""
        return self._spent(state)[1]
