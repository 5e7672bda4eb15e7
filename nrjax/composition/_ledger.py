"""The ledger of every filter: the costs spent, and the costs reserved by open rounds.

One invariant makes every order of calls safe: spent + all reservations <= budget. `take`, `open`
and `rewind` check the invariant before they change the state. `close` moves at most a reservation
to spent. `spend` charges for a mechanism that was admitted before. If its cost does not fit, no
budget is left. Costs and their sums are rounded up, so the exact total obeys the invariant too.
Statement 30 of `docs/proofs` proves that the invariant is enough for privacy.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.format import format_value
from nrjax._base.modes import neutral_config
from nrjax._base.notions import Notion
from nrjax._base.sensitivities import shared_relation
from nrjax._base.validation import check, concrete_or_none
from nrjax.composition import _state
from nrjax.composition._costs import CostModel
from nrjax.composition._state import Charges, LedgerState, Round, Spending, charge_once, select
from nrjax.composition.requests import REDUCTIONS, ExPost, Request, names, parts

TOLERANCE = 64
"""Largest relative difference of one cost between two programs, in machine epsilons.

Differences of up to 33 machine epsilons were seen.
"""


def leq_with_tolerance(cost: Array, reserved: Array) -> Array:
    """Return whether a cost is finite and at most `reserved`, up to `TOLERANCE` (bool)."""
    largest = reserved * (1 + TOLERANCE * float(jnp.finfo(reserved.dtype).eps))  # may overflow
    return (cost < jnp.inf) & (cost <= largest)


def kinds_of(request: Request) -> tuple[type, ...]:
    """Return the classes of the parts of a request."""
    return tuple(type(part) for part in parts(request))


def caps_of(request: Request, dtype: Any) -> tuple[Any, ...]:
    """Return the caps of the parts of a request, None for a part without one."""
    caps = [getattr(part, "cap", None) for part in parts(request)]
    return tuple(None if cap is None else jnp.asarray(cap, dtype) for cap in caps)


def has_terms_of(request: Request, round: Round, dtype: Any) -> Array:
    """Return whether a request has its round's caps, or is `()` (bool).

    Raises:
        ValueError: the request has other kinds or, outside of traces, other caps.
    """
    same = jnp.asarray(True)
    if not (kinds := kinds_of(request)):
        return same
    expected = f"of the kinds with which its round was opened: {names(round.kinds)}"
    check(kinds == round.kinds, "request", request, expected)
    for cap, fixed in zip(caps_of(request, dtype), round.caps, strict=True):
        if cap is None and fixed is None:
            continue
        equal = jnp.asarray((cap is None) == (fixed is None) and (cap is None or cap == fixed))
        expected = f"with the caps with which its round was opened: {format_value(round.caps)}"
        known = concrete_or_none(equal)
        check(known is None or known, "request", request, expected)
        same &= equal
    return same


class Ledger(CostModel, abc.ABC):
    """A base class of filters, which admit requests while the sum of costs fits into a budget.

    Subclasses define the budget and what each kind of request costs. Every method takes one state
    and returns a new one, also under `jit` and `vmap`.

    Raises:
        TypeError: from every method, for a kind of request that the filter has no proof for.
        ValueError: from every method, if a field of a request is out of range, if its kinds or caps
            are not those of its round, or if the state is for another filter. Traced values raise
            no error: the request is refused instead.
    """

    notion: ClassVar[Notion] = Notion.DIFFERENTIAL_PRIVACY
    """The privacy notion of epsilon and delta: see `nrjax.guarantees.Notion`."""
    _stopped: ClassVar[tuple[type, ...]] = (ExPost, *REDUCTIONS)
    """The kinds of requests that are charged their cost at the stop, not as admitted."""
    _budgets: ClassVar[Any] = 0
    """An index of the cost units that are budgets. All other units are parts of delta."""

    @abc.abstractmethod
    def _dtype(self) -> Any:
        """Return the dtype of new states."""

    @abc.abstractmethod
    def _limits(self, dtype: Any) -> Array:
        """Return the budgets, shape (units,), rounded down."""

    @abc.abstractmethod
    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        """Return the smallest time at which a round of `kind` costs at most `left`."""

    def takes(self, kind: type) -> bool:
        """Return whether the filter has a proof for a kind of request."""
        return kind in self._costs()

    @neutral_config()
    def init(self, rounds: int = 0) -> LedgerState:
        """Return a state with nothing spent, and places for `rounds` (static) open rounds."""
        return _state.new_state(self, self._dtype(), rounds)

    def _dtype_of(self, state: LedgerState) -> Any:
        """Check that a state is for this filter, and return the state's dtype."""
        _state.check_owner(self, state)
        return state.spent.total.dtype

    def _limits_of(self, state: LedgerState) -> Array:
        """Return the budgets, negative if the state is for another order."""
        is_own = _state.check_owner(self, state)
        return jnp.where(is_own, self._limits(state.spent.total.dtype), -1)

    def _fits(self, state: LedgerState, spent: Spending, own: Array | None = None) -> Array:
        """Return whether `spent` plus the reservations of all rounds except `own` fits."""
        return jnp.all(
            _state.is_within(state.with_reservations(spent, own), self._limits_of(state))
        )

    def _left(self, state: LedgerState, round: Round | None) -> Array:
        """Return the budget left in each cost unit, for a new round or to rewind `round`."""
        limits = self._limits_of(state)
        if round is None:
            return _state.remaining_after(state.with_reservations(state.spent), limits)
        own, reserved = state.locate(round)
        return _state.remaining_after(
            state.with_reservations(_total(state, reserved[1:]), own), limits
        )

    def _refunded(self) -> Array:
        """Return whether each cost unit is refunded when a round closes (deltas are not)."""
        return jnp.arange(len(self._units)) % 2 == 0

    def _charges(self, request: Request, dtype: Any) -> Charges:
        """Return the cost of each part of a request."""
        singles = list(parts(request))
        hint = "Only `close` takes (), if nothing was released."
        check(bool(singles), "request", request, "a request, or a tuple of at least one", hint)
        return charge_once(singles, lambda part: self._charge(part, dtype))

    def _sum(self, request: Request, dtype: Any) -> Array:
        """Return the refundable part of a request's cost, and the rest, shape (2, units)."""
        refunded = self._refunded()

        def split(part: Any, charge: Array) -> Array:
            back = refunded & isinstance(part, self._stopped)
            return jnp.where(jnp.stack([back, ~back]), charge, 0)

        zero = jnp.zeros((2, refunded.size), dtype)
        return _state.sum_up(self._charges(request, dtype).change(split).stacked(zero))

    @neutral_config()
    def remaining(self, state: LedgerState, round: Round | None = None) -> Array:
        """Return the budget that is neither spent nor reserved, rounded down.

        It has the unit of `budget` and `cost`. A request of that cost is still admitted. If an open
        `round` is given, the refundable part of the round's reservation counts as not reserved.
        """
        return self._left(state, round)[self._budgets]

    @neutral_config()
    def cost(self, request: Request) -> Array:
        """Return the cost of a request, rounded up, infinite if it is traced and out of range."""
        return _state.sum_up(self._sum(request, self._dtype()))[self._budgets]

    @neutral_config()
    def admits(self, state: LedgerState, request: Request) -> Array:
        """Return whether the mechanism of a request may start, or be rewound (bool).

        Mechanisms that are still running count only if they were opened with `open`.
        """
        charges = self._charges(request, self._dtype_of(state))
        return self._fits(state, charges.added_to(state.spent))

    @neutral_config()
    def take(self, state: LedgerState, request: Request) -> tuple[LedgerState, Array]:
        """Charge a request BEFORE its mechanism runs. Run it only if the request is admitted.

        Returns:
            The new state, and whether the request is admitted (bool). If it is not, the state is
            unchanged.
        """
        spent = self._charges(request, self._dtype_of(state)).added_to(state.spent)
        ok = self._fits(state, spent)
        return select(ok, dataclasses.replace(state, spent=spent), state), ok

    @neutral_config()
    def spend(self, state: LedgerState, spent: Request) -> tuple[LedgerState, Array]:
        """Charge for a mechanism that HAS run, and whose request was admitted before.

        Args:
            state: a state of this filter.
            spent: the request that was admitted, but with the actual time of a noise reduction and
                the actual ex-post epsilon, which may cost less.

        Returns:
            The new state, and whether the cost fits (bool), up to rounding differences between
            programs. If it does not, it cannot have been admitted, so the guarantee is broken and
            no budget is left from then on.
        """
        dtype = self._dtype_of(state)
        charges = self._charges(spent, dtype)
        lowered = 1 - TOLERANCE * float(jnp.finfo(dtype).eps)
        least = charges.change(lambda _, charge: charge * lowered)
        ok = self._fits(state, least.added_to(state.spent))
        return state.spent_or_void(charges.added_to(state.spent), ok), ok

    @neutral_config()
    def open(self, state: LedgerState, request: Request) -> tuple[LedgerState, Round, Array]:
        """Open a round, which may overlap others, and reserve the cost of its first release.

        Args:
            state: the latest state, from `init(rounds=...)`. If you derive two states from one,
                neither counts what the other has admitted.
            request: request of the first release. Its kinds, caps and deltas, and costs that are
                not refunded (see `close`), are fixed for the round.

        Returns:
            The new state, a handle of the round, and whether the round was opened (bool). If there
            is too little budget or no free place, the state is unchanged and the handle is void.
        """
        dtype = self._dtype_of(state)
        state.check_places()
        cost = self._sum(request, dtype)
        free = state.number == 0
        own = free & (jnp.arange(free.size) == jnp.argmax(free))
        number = state.last + 1
        ok = jnp.any(free) & (number > 0) & self._fits(state, _total(state, cost))
        round = Round(jnp.where(ok, number, 0), caps_of(request, dtype), kinds_of(request))
        return select(ok, state.with_round(own, number, cost), state), round, ok

    @neutral_config()
    def rewind(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Reserve the cost of a rewind of an open round BEFORE the rewind is made.

        The round then reserves the largest cost that it was admitted to. Its deltas, and costs that
        are not refunded, may not exceed those of the request that opened the round.

        Args:
            state: the latest state.
            round: the handle from `open`.
            request: request of the whole round after the rewind, of the kinds in `round`. In a
                tuple, each request has the largest cost that it has reached.

        Returns:
            The new state, and whether the rewind is admitted (bool). If it is not, the state is
            unchanged.
        """
        own, reserved, cost = self._locate_with_cost(state, round, request)
        larger = jnp.stack([jnp.maximum(cost[0], reserved[0]), reserved[1]])
        fits = self._fits(state, _total(state, larger), own)
        # A round may always do less than it was admitted to.
        fits |= jnp.all(cost <= reserved) & self._is_sound(state)
        ok = jnp.any(own) & fits
        ok &= jnp.all(leq_with_tolerance(cost[1], reserved[1]))
        return select(ok, state.with_round(own, round.number, larger), state), ok

    @neutral_config()
    def close(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Charge for a finished round, whose last release is published.

        `ExPost` and noise reduction are charged their cost at the stop, and the rest of their
        reservation is refunded. An `ExPostFilter`, whose epsilons add up, refunds every kind. Other
        kinds, and deltas, are charged what was reserved. Pass `()` if nothing was released, not
        even the answer of a test: then everything is refunded.

        Args:
            state: the latest state.
            round: the handle from `open`.
            request: request with the round's actual cost, of the kinds in `round`; or `()`.

        Returns:
            The new state, and whether the request is admitted (bool). If the request costs more
            than was reserved, has another cap, or its round was closed before, it is not admitted
            and no budget is left. Closing a round that is not open with `()` changes nothing.
        """
        own, reserved, cost = self._locate_with_cost(state, round, request)
        ok = self._is_sound(state) & jnp.all(leq_with_tolerance(cost, reserved))
        rest = reserved[1] if kinds_of(request) else jnp.zeros_like(reserved[1])
        spent = _total(state, [jnp.minimum(cost[0], reserved[0]), rest])
        return state.with_round(own, 0, 0).spent_or_void(spent, ok), ok & jnp.any(own)

    def _is_sound(self, state: LedgerState) -> Array:
        """Return whether all that was spent had been admitted (bool)."""
        return jnp.all(state.spent.total < jnp.inf) & jnp.all(self._limits_of(state) >= 0)

    def _locate_with_cost(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[Array, Array, Array]:
        """Return where an open round is stored (a mask), its reserved cost, and a request's cost.

        If the request has other caps than the round, the mask is False and the reserved cost is 0.
        """
        dtype = self._dtype_of(state)
        own, reserved = state.locate(round)
        same = has_terms_of(request, round, dtype)
        cost = self._sum(request, dtype) if kinds_of(request) else jnp.zeros_like(reserved)
        return own & same, jnp.where(same, reserved, 0), cost

    @neutral_config()
    def smallest_time(
        self,
        state: LedgerState,
        kind: type,
        sensitivity: ArrayLike = 1.0,
        round: Round | None = None,
    ) -> Array:
        """Return the smallest time at which a round of `kind` is admitted, rounded up.

        Args:
            state: a state of this filter.
            kind: class of the request, such as `BrownianReduction`. A kind that the filter does not
                rewind raises a `TypeError`.
            sensitivity: sensitivity of the value, > 0, as in a request of that kind.
            round: the open round that is rewound; None for a new one.

        Returns:
            A time (scalar) that is admitted without a cap. It is infinite if nothing is left, or if
            `round` was opened with a cap for that kind.
        """
        shared_relation(filter=self, sensitivity=sensitivity)
        time = self._smallest(self.remaining(state, round), kind, sensitivity)
        if round is None:
            return time
        caps = zip(round.kinds, round.caps, strict=True)
        is_capped = any(cap is not None for part, cap in caps if part is kind)
        return jnp.full_like(time, jnp.inf) if is_capped else time


def _total(state: LedgerState, costs: Iterable[Array]) -> Spending:
    """Return the sum spent so far plus `costs`."""
    return functools.reduce(_state.add, costs, state.spent)
