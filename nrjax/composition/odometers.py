"""How much privacy was spent so far, valid at all times at once; nothing is refused."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check_numbers, check_positive, check_probability
from nrjax.composition import _prices as prices
from nrjax.composition._spending import add, settle, upper
from nrjax.composition._state import LedgerState, check_owner, start
from nrjax.composition.conversions import ORDER
from nrjax.composition.requests import LAPLACE, ExPost, Request, parts
from nrjax.guarantees import MixtureBoundary, OneSidedMixtureBoundary
from nrjax.guarantees._rounding import round_up


class _Odometer(prices.Priced, abc.ABC):
    notion: ClassVar[str] = "probabilistic"
    """What its bound and delta say: see `nrjax.guarantees.NOTIONS`."""

    @abc.abstractmethod
    def bound(self, state: LedgerState) -> Array:
        """Epsilon so far, rounded up: with probability 1 - delta the loss never exceeds it."""

    def init(self) -> LedgerState:
        """Nothing spent."""
        return start(self, jnp.result_type(float), len(self._currencies))

    def spend(self, state: LedgerState, spent: Request) -> LedgerState:
        """Count what a mechanism did cost: errors are those of a filter's `spend`.

        The time at which noise reduction stopped and an ex-post epsilon are as they came out; all
        else is what was asked for, also where a private test has said no. Under a trace a request
        that is out of range makes all later bounds infinite.
        """
        mine = check_owner(self, state)
        total = state.spent
        for part in parts(spent):
            costs = self._charge(part, total.total.dtype)
            total = add(total, jnp.where(mine & (costs[0] < jnp.inf), costs, jnp.inf))
        return dataclasses.replace(state, spent=total)

    def _spent(self, state: LedgerState) -> Array:
        """The sums, rounded up, shape (currencies,); infinite for another order's or gamma's."""
        return jnp.where(check_owner(self, state), upper(state.spent), jnp.inf)


class _BrownianOdometer(_Odometer):
    delta: ArrayLike
    """Probability with which the loss may ever exceed the bound, in (0, 1)."""
    gamma: ArrayLike
    """g, where the bound is tight, in units of V; > 0. See `tight_at`."""
    _boundary: ClassVar[Any]
    _prices = prices.UNIFIED_COSTS
    _reasons: ClassVar[Mapping[type, str]] = {
        ExPost: "ExPostOdometer or RenyiOdometer takes it",
        **dict.fromkeys(LAPLACE, "RenyiOdometer or ExPostOdometer takes it"),
    }

    def __post_init__(self):
        check_probability("delta", self.delta)
        check_positive("gamma", self.gamma)
        settle(self, "delta")

    @classmethod
    def tight_at(cls, total: float, delta: float) -> Self:
        """The odometer of this family with the smallest bound when V, > 0, is `total`."""
        check_positive("total", total)
        return cls(delta, cls._boundary.tight_at_time(total, 1.0, delta).rho)

    def bound(self, state: LedgerState) -> Array:
        rho = self._spent(state)[0]
        spent = rho > 0
        total = jnp.where(spent, 2 * rho, 1)
        raw = rho + self._boundary(1.0, self.delta, self.gamma).curve(total)
        raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
        return jnp.where(spent, round_up(raw, 2), 0)


class BrownianOdometer(_BrownianOdometer):
    """Odometer of Brownian noise reduction, two-sided (Rogers 2023, Theorem 5, mended).

    `V/2 + sqrt((V + g) log((V + g)/(delta^2 g)))`, `V = sum D2^2/t` over the rounds so far. The
    theorem drops the `V/2`. Prefer `OneSidedBrownianOdometer`, which is smaller for every V.
    """

    _boundary = MixtureBoundary


class OneSidedBrownianOdometer(_BrownianOdometer):
    """Odometer of Brownian noise reduction, from the one-sided mixture. Not in the papers.

    `V/2 + u(V)`, `V = sum D2^2/t`, where u is the curve of `OneSidedMixtureBoundary` with
    `rho = gamma`: see `docs/composition.md`. rho-zCDP mechanisms count too, with `V += 2 rho`.

    Requests: `BrownianReduction`, `ZCDP` (delta must be 0), `GDP`, `BoundedRange`, `Pure`,
    `LaplaceMechanism`.
    """

    _boundary = OneSidedMixtureBoundary


class RenyiOdometer(_Odometer):
    """Odometer of mechanisms with ex-post Renyi certificates. Not in the papers.

    `sum C + log(1/delta)/(A - 1)`; requests and certificates are those of `RenyiFilter`. Caps must
    be those that were fixed before the rounds.
    """

    order: ArrayLike
    """A > 1, fixed before the first release."""
    delta: ArrayLike
    """Probability with which the loss may ever exceed the bound, in (0, 1)."""

    def __post_init__(self):
        check_numbers("order", self.order, *ORDER)
        check_probability("delta", self.delta)
        settle(self, "delta")

    def _costs(self) -> Mapping[type, prices.Price]:
        return prices.renyi_costs(self.order)

    def bound(self, state: LedgerState) -> Array:
        """Epsilon so far, rounded up."""
        total = self._spent(state)[0]
        dtype = total.dtype
        eps = float(jnp.finfo(dtype).eps)
        order = jnp.asarray(self.order, dtype)
        level = -jnp.log(jnp.asarray(self.delta, dtype)) + 4 * eps
        raw = total + round_up(level / (order - 1), 8)
        raw = jnp.where((order > 1) & ~jnp.isnan(raw), raw, jnp.inf)  # traced numbers out of range
        return jnp.where(total > 0, round_up(raw, 2), 0)


class ExPostOdometer(_Odometer):
    """Ex-post private mechanisms add up, in epsilon and in delta (Rogers 2023, Lemma 5.1).

    The loss exceeds `bound(state)` with probability at most `delta(state)`, for mechanisms whose
    deltas were fixed before the first of them. (With deltas chosen on the way the sum is random,
    and its mean counts.) Requests are those of `ExPostFilter`, of probabilistic guarantees
    (`Guarantee.notion`), as the bound is: hockey-stick epsilons say less of losses, and their sums
    are no bound of them. Under an `ExPostFilter` they may be spent.
    """

    _currencies = ("epsilon", "delta")
    _prices = prices.EX_POST_COSTS
    _reasons = prices.EX_POST_REASONS

    def bound(self, state: LedgerState) -> Array:
        """The sum of the epsilons, rounded up."""
        return self._spent(state)[0]

    def delta(self, state: LedgerState) -> Array:
        """The sum of the deltas, rounded up."""
        return self._spent(state)[1]
