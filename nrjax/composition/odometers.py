"""How much privacy was spent so far, valid at all times at once; nothing is refused."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check_positive, check_probability
from nrjax.composition._filter import Cost, charge
from nrjax.composition._spending import add, settle, upper
from nrjax.composition._state import LedgerState, check_owner, start
from nrjax.composition.ex_post import EX_POST_COSTS, EX_POST_REASONS
from nrjax.composition.renyi import check_order, renyi_costs
from nrjax.composition.requests import (
    ExPost,
    LaplaceReduction,
    Request,
    parts,
)
from nrjax.composition.zcdp import UNIFIED_COSTS
from nrjax.guarantees import MixtureBoundary, OneSidedMixtureBoundary
from nrjax.guarantees._rounding import round_up
from nrjax.pytrees import Pytree


class _Counter(Pytree, abc.ABC):
    _takes_delta: ClassVar[bool] = False
    _reasons: ClassVar[Mapping[type, str]] = {}
    _prices: ClassVar[Mapping[type, Cost]] = {}

    def _costs(self) -> Mapping[type, Cost]:
        """The kinds of requests that something is proved for, and what they cost."""
        return self._prices

    @abc.abstractmethod
    def bound(self, state: LedgerState) -> Array:
        """Epsilon so far, rounded up: with probability 1 - delta the loss never exceeds it."""

    def init(self) -> LedgerState:
        """Nothing spent."""
        return start(self, jnp.result_type(float), 1 + self._takes_delta)

    def spend(self, state: LedgerState, spent: Request) -> LedgerState:
        """Count what a mechanism did cost.

        The time at which noise reduction stopped and an ex-post epsilon are as they came out; all
        else is what was asked for, also where a private test has said no.

        Under a trace a request that is out of range makes all later bounds infinite.

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range, or the state is another
                odometer's.
        """
        mine = check_owner(self, state)
        total = state.spent
        for part in parts(spent):
            both = charge(self, part, total.total.dtype, self._takes_delta)
            costs = jnp.stack(both if self._takes_delta else both[:1])
            total = add(total, jnp.where(mine & (costs[0] < jnp.inf), costs, jnp.inf))
        return dataclasses.replace(state, spent=total)

    def _spent(self, state: LedgerState) -> Array:
        """The sums, rounded up, shape (currencies,); infinite for another order's or gamma's."""
        return jnp.where(check_owner(self, state), upper(state.spent), jnp.inf)


class _BrownianCounter(_Counter):
    delta: ArrayLike
    gamma: ArrayLike
    _boundary: ClassVar[Any] = MixtureBoundary
    _prices: ClassVar[Mapping[type, Cost]] = UNIFIED_COSTS
    _reasons: ClassVar[Mapping[type, str]] = {
        ExPost: "ExPostOdometer or RenyiOdometer takes it",
        LaplaceReduction: "RenyiOdometer or ExPostOdometer takes it",
    }

    def __post_init__(self):
        check_probability("delta", self.delta)
        check_positive("gamma", self.gamma)
        settle(self, "delta")

    @classmethod
    def tight_at(cls, total: float, delta: float) -> Self:
        """The odometer of this family with the smallest bound when V is `total`.

        Args:
            total: V, the sum of `D2^2/t`; > 0. Fixed before the first release.
            delta: probability, in (0, 1).

        Raises:
            ValueError: a concrete argument is out of range.
        """
        check_positive("total", total)
        return cls(delta, cls._boundary.tight_at_time(total, 1.0, delta).rho)

    def bound(self, state: LedgerState) -> Array:
        """Epsilon so far, rounded up: with probability 1 - delta the loss never exceeds it."""
        rho = self._spent(state)[0]
        spent = rho > 0
        total = jnp.where(spent, 2 * rho, 1)
        raw = rho + self._boundary(1.0, self.delta, self.gamma).curve(total)
        raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
        return jnp.where(spent, round_up(raw, 2), 0)


class BrownianOdometer(_BrownianCounter):
    """Odometer of Brownian noise reduction, two-sided (Rogers 2023, Theorem 5, mended).

    `V/2 + sqrt((V + g) log((V + g)/(delta^2 g)))`, `V = sum D2^2/t` over the rounds so far, each at
    the time at which it stopped. The theorem drops the `V/2`. The loss needs only one of the two
    sides; prefer `OneSidedBrownianOdometer`, which is smaller for every V, and takes the same
    requests for the reason given there.

    Attributes:
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
        gamma: g, where the bound is tight, in units of V; > 0. See `tight_at`.
    """


class OneSidedBrownianOdometer(_BrownianCounter):
    """Odometer of Brownian noise reduction, from the one-sided mixture. Not in the papers.

    `V/2 + u(V)`, `V = sum D2^2/t`, where u is the curve of `OneSidedMixtureBoundary` with
    `rho = gamma`: `exp(m (L - V/2) - m^2 V/2)`, with L the sum of losses, is a nonnegative
    supermartingale for every `m >= 0`, hence so is its mean over m drawn from |N(0, 1/gamma)|,
    which is below `1/delta` at all times but with probability delta.

    That needs no more of a mechanism than `E exp(m (L - rho) - m^2 rho) <= 1` for `m >= 0`, given
    the past, which for `m = A - 1` is rho-zCDP: so such mechanisms count too, with `V += 2 rho`.

    Requests: `BrownianReduction`, `ZCDP` (delta must be 0), `GDP`, `BoundedRange`, `Pure`,
    `LaplaceMechanism`.

    Attributes:
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
        gamma: where the bound is tight, in units of V; > 0. See `tight_at`.
    """

    _boundary: ClassVar[Any] = OneSidedMixtureBoundary


class RenyiOdometer(_Counter):
    """Odometer of mechanisms with ex-post Renyi certificates. Not in the papers.

    `sum C + log(1/delta)/(A - 1)`: `exp((A - 1) sum (L - C))` is a nonnegative supermartingale, so
    that the losses exceed this at any time with probability at most delta. Requests and
    certificates are those of `RenyiFilter`.

    Attributes:
        order: A > 1, fixed before the first release.
        delta: probability with which the loss may ever exceed the bound, in (0, 1).
    """

    order: ArrayLike
    delta: ArrayLike

    def __post_init__(self):
        check_order(self.order)
        check_probability("delta", self.delta)
        settle(self, "delta")

    def _costs(self) -> Mapping[type, Cost]:
        return renyi_costs(self.order)

    def bound(self, state: LedgerState) -> Array:
        """Epsilon so far, rounded up: with probability 1 - delta the loss never exceeds it."""
        total = self._spent(state)[0]
        dtype = total.dtype
        eps = float(jnp.finfo(dtype).eps)
        order = jnp.asarray(self.order, dtype)
        level = -jnp.log(jnp.asarray(self.delta, dtype)) + 4 * eps
        raw = total + round_up(level / (order - 1), 8)
        return jnp.where(total > 0, round_up(raw, 2), 0)


class ExPostOdometer(_Counter):
    """Ex-post private mechanisms add up, in epsilon and in delta (Rogers 2023, Lemma 5.1).

    The loss exceeds `bound(state)` with probability at most `delta(state)`, for mechanisms whose
    deltas were fixed before the first of them. (With deltas chosen on the way the sum is random,
    and its mean counts.) Requests are those of `ExPostFilter`.
    """

    _takes_delta: ClassVar[bool] = True
    _reasons: ClassVar[Mapping[type, str]] = EX_POST_REASONS
    _prices: ClassVar[Mapping[type, Cost]] = EX_POST_COSTS

    def bound(self, state: LedgerState) -> Array:
        """The sum of the epsilons, rounded up."""
        return self._spent(state)[0]

    def delta(self, state: LedgerState) -> Array:
        """The sum of the deltas, rounded up."""
        return self._spent(state)[1]
