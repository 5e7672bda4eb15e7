"""What every filter does with its state: ask, take, spend, and keep rounds open side by side.

The sum of what was spent and of the largest cost that each open round was admitted to never exceeds
the budgets; `docs/composition.md` proves that this is enough.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._format import format_value
from nrjax._validation import check, concrete_or_none
from nrjax.composition._prices import Priced
from nrjax.composition._spending import Spending, fits, room, summed
from nrjax.composition._state import CAPPED, LedgerState, Round, check_owner, choose, start
from nrjax.composition.requests import REDUCTIONS, ExPost, Request, names, parts

APART = 64
"""Machine epsilons by which two programs may differ in what one request costs."""


def near(cost: Array, held: Array) -> Array:
    """Whether a cost is at most another one, but for the rounding of two programs (bool)."""
    return cost <= held * (1 + APART * float(jnp.finfo(held.dtype).eps))


def kinds_of(request: Request) -> tuple[type, ...]:
    """The kinds of the parts of a request."""
    return tuple(type(part) for part in parts(request))


def caps_of(request: Request, dtype: Any) -> Array:
    """The caps of its parts, shape (CAPPED,); -1 where there is none."""
    caps = [getattr(part, "cap", None) for part in parts(request)]
    right = f"one whose caps are among its first {CAPPED} parts"
    check(all(cap is None for cap in caps[CAPPED:]), "request", request, right)
    caps = (caps + [None] * CAPPED)[:CAPPED]
    return jnp.stack([jnp.asarray(-1 if cap is None else cap, dtype) for cap in caps])


def same_terms(name: str, request: Request, kinds: tuple[type, ...], caps: Array) -> Array:
    """Whether a request has the caps that were admitted (bool), or is of no kind at all.

    Raises:
        ValueError: it is of other kinds, or outside of traces has other caps.
    """
    fixed = "that it was admitted, or the round opened with"
    if not (found := kinds_of(request)):
        return jnp.asarray(True)
    check(found == kinds, name, request, f"of the kinds {fixed}: {names(kinds)}")
    same = jnp.all(caps_of(request, caps.dtype) == caps)
    known = concrete_or_none(same)
    right = f"with the caps {fixed} (-1: none), {format_value(caps)}"
    check(known is None or known, name, request, right)
    return same


class Ledger(Priced, abc.ABC):
    """The ledger of a filter, whose subclass says what the currencies are.

    Its methods raise a `TypeError` where nothing is proved for a kind of request, and a
    `ValueError` where a concrete field of a request is out of range, its kinds or caps are not
    those that were admitted, or the state is another filter's. What is out of range under a trace
    is refused.
    """

    notion: ClassVar[str] = "(epsilon, delta)-DP"
    """What its epsilon and delta say: see `nrjax.guarantees.NOTIONS`."""
    _refunded: ClassVar[tuple[bool, ...]] = (True,)
    """For each currency, whether a round may get back what it held beyond its cost."""
    _stopped: ClassVar[tuple[type, ...]] = (ExPost, *REDUCTIONS)
    """The kinds that get it back: their costs hold at the stop, all others for what was asked."""
    _budgets: ClassVar[Any] = 0
    """Which of the currencies are budgets, not shares of delta."""

    @abc.abstractmethod
    def _dtype(self) -> Any:
        """Of new states."""

    @abc.abstractmethod
    def _limits(self, dtype: Any) -> Array:
        """The budgets, shape (currencies,), never more than they are."""

    @abc.abstractmethod
    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        """Smallest time at which a round of `kind` costs at most what is left."""

    def takes(self, kind: type) -> bool:
        """Whether something is proved for this kind of request."""
        return issubclass(kind, tuple(self._costs()))

    def init(self, rounds: int = 0) -> LedgerState:
        """Nothing spent, with places for so many open rounds at the same time (static, >= 0)."""
        return start(self, self._dtype(), len(self._refunded), rounds)

    def _dtype_of(self, state: LedgerState) -> Any:
        """The dtype of a state, if it is this filter's."""
        check_owner(self, state)
        return state.spent.total.dtype

    def _limits_of(self, state: LedgerState) -> Array:
        """The budgets; less than nothing where the state is for another order."""
        mine = check_owner(self, state)
        return jnp.where(mine, self._limits(state.spent.total.dtype), -1)

    def _fits(self, state: LedgerState, spent: Spending, own: Array | None = None) -> Array:
        """Whether `spent` is within the budgets beside what open rounds but `own` hold."""
        return jnp.all(fits(state.total(spent, own), self._limits_of(state)))

    def _usable(self, state: LedgerState) -> Array:
        """Whether a state is this filter's, and something was left when last asked."""
        return jnp.all(state.spent.total < jnp.inf) & jnp.all(self._limits_of(state) >= 0)

    def _left(self, state: LedgerState, round: Round | None) -> Array:
        limits = self._limits_of(state)
        if round is None:
            return room(state.total(state.spent), limits)
        own, held = state.find(round)
        return room(state.total(state.added(held[1:]), own), limits)

    def _charges(self, request: Request, dtype: Any) -> list[Array]:
        """What each part of a request costs."""
        return [self._charge(part, dtype) for part in parts(request)]

    def _sum(self, request: Request, dtype: Any) -> Array:
        """What a request costs, rounded up, shape (2, currencies): what may be refunded, the rest.

        The rest, deltas among it, is charged as it was admitted.
        """
        refunded = jnp.asarray(self._refunded)
        charges = [jnp.zeros((2, refunded.size), dtype)]
        for part, charge in zip(parts(request), self._charges(request, dtype), strict=True):
            back = refunded & isinstance(part, self._stopped)
            charges.append(jnp.where(jnp.stack([back, ~back]), charge, 0))
        return summed(jnp.stack(charges))

    def _paid(self, request: Request, cost: Array, admitted: Array) -> list[Array]:
        """What is charged for a request of which at least as much was admitted."""
        rest = admitted[1] if kinds_of(request) else jnp.zeros_like(admitted[1])
        return [jnp.minimum(cost[0], admitted[0]), rest]

    def remaining(self, state: LedgerState, round: Round | None = None) -> Array:
        """What is left beside open rounds, rounded down; a request of that cost still fits.

        What an open `round` itself holds counts as left, as far as it is not charged as admitted.
        """
        return self._left(state, round)[self._budgets]

    def cost(self, request: Request) -> Array:
        """What a request would take of the budget, rounded up; NaN for a bad trace."""
        return summed(self._sum(request, self._dtype()))[self._budgets]

    def admits(self, state: LedgerState, request: Request) -> Array:
        """Whether a mechanism may be started, or rewound, that may cost as much as this (bool).

        Of rounds that are open at the same time this knows only those opened with `open`.
        """
        dtype = self._dtype_of(state)
        return self._fits(state, state.added(self._charges(request, dtype)))

    def take(self, state: LedgerState, request: Request) -> tuple[LedgerState, Array]:
        """Ask and pay in one, BEFORE the mechanism is run; run it only if that was granted.

        Returns the state, unchanged bit for bit where it was refused, and whether it was granted.
        """
        dtype = self._dtype_of(state)
        after = state.added(self._charges(request, dtype))
        ok = self._fits(state, after)
        return choose(ok, dataclasses.replace(state, spent=after), state), ok

    def spend(
        self, state: LedgerState, spent: Request, admitted: Request | None = None
    ) -> tuple[LedgerState, Array]:
        """Pay for what HAS happened, and was admitted before: it is always counted.

        Args:
            state: of this filter.
            spent: the request as it came out.
            admitted: what was asked for before, which `spent` must not exceed but for rounding, and
                which is what is charged where the two differ by no more, for deltas, and for kinds
                that are not refunded (see `close`). Without it `spent` must be what was asked for,
                its cap too, but for the time or ex-post epsilon.

        Returns:
            The state, and whether the cost fitted (bool), but for what two programs may differ by
            in rounding one cost. If not, what happened cannot have been admitted, and the guarantee
            is broken: nothing is left, for good.
        """
        dtype = self._dtype_of(state)
        eps = float(jnp.finfo(dtype).eps)
        charges, ok = self._charges(spent, dtype), jnp.asarray(True)
        if admitted is not None:
            had, asked = self._sum(spent, dtype), self._sum(admitted, dtype)
            same = same_terms("spent", spent, kinds_of(admitted), caps_of(admitted, dtype))
            ok = same & jnp.all(near(had, asked))
            charges = self._paid(spent, had, asked)
        ok &= self._fits(state, state.added([one * (1 - APART * eps) for one in charges]))
        return state.happened(state.added(charges), ok), ok

    def open(self, state: LedgerState, request: Request) -> tuple[LedgerState, Round, Array]:
        """Open a round beside others, and ask for its first release: before that is made.

        Args:
            state: from `init(rounds=...)`; the latest one. Of two states that were made from one,
                neither knows what the other has admitted.
            request: what the first release costs. Its kinds and caps are the round's for good; its
                deltas, and what it costs beside ex-post epsilons and noise reduction, are taken at
                once.

        Returns:
            The state, a handle of the round, and whether it was opened (bool): if not, for lack of
            budget or of a free place, the state is unchanged, and the handle good for nothing.
        """
        dtype = self._dtype_of(state)
        state.check_places()
        cost = self._sum(request, dtype)
        free = state.number == 0
        own = free & (jnp.arange(free.size) == jnp.argmax(free))
        number = state.last + 1
        ok = jnp.any(free) & (number > 0) & self._fits(state, state.added(cost))
        caps = jnp.where(own[:, None], caps_of(request, dtype), state.caps)
        after = dataclasses.replace(state.put(own, number, cost), caps=caps)
        return choose(ok, after, state), Round(jnp.where(ok, number, 0), kinds_of(request)), ok

    def rewind(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Ask for a rewind of an open round, before it is made: the state, and if admitted.

        It is if it fits beside what was spent and what the other rounds hold, with no more delta
        than the round was opened with, nor more of what is charged as it was admitted (see
        `close`); else the state is unchanged. The round then holds the largest cost that it was
        admitted to. Of a tuple each request says the most that it has come to.
        """
        own, held, cost = self._own(state, round, request)
        more = jnp.stack([jnp.maximum(cost[0], held[0]), held[1]])
        # What is held has been found to fit, whatever rounding says of the sum now.
        ok = jnp.all(cost <= held) | self._fits(state, state.added(more), own)
        ok &= self._usable(state) & jnp.any(own) & jnp.all(near(cost[1], held[1]))
        return choose(ok, state.put(own, round.number, more), state), ok

    def close(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Pay for a round that is over, its last release published: the state, and if admitted.

        What it held beyond its cost is free again for `ExPost` and for noise reduction, whose costs
        hold at the stop, and for anything where ex-post epsilons add up. Other kinds, and deltas,
        are paid for as they were taken. `()` says that nothing was released, no answer of a test
        either: then all is free.

        If not admitted (it costs more than was held, has another cap, or the round was closed
        before), nothing is left; but `()` for a round that is not open changes nothing.
        """
        own, held, cost = self._own(state, round, request)
        ok = self._usable(state) & jnp.all(near(cost, held))
        # What costs nothing was no release: a round that was refused may be closed.
        after = state.added(self._paid(request, cost, held))
        return state.put(own, 0, 0).happened(after, ok), ok & jnp.any(own)

    def _own(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[Array, Array, Array]:
        """Where a round is (bool, shape (rounds,)), what it holds, and what a request costs."""
        dtype = self._dtype_of(state)
        own, held = state.find(round)
        cost = self._sum(request, dtype)
        caps = jnp.where(jnp.any(own), state.caps_at(own), caps_of(request, dtype))
        # What has another cap is not that round, and nothing is held of it.
        same = same_terms("request", request, round.kinds, caps)
        return own & same, jnp.where(same, held, 0), cost

    def smallest_time(
        self,
        state: LedgerState,
        kind: type,
        sensitivity: ArrayLike = 1.0,
        round: Round | None = None,
    ) -> Array:
        """Smallest time at which a round of `kind` is still admitted, rounded to more noise.

        Args:
            state: of this filter.
            kind: class of the request, one that is rewound under this filter; else a `TypeError`.
            sensitivity: of the value, > 0, as in a request of that kind, which has no cap.
            round: the open round that is rewound; None for a new one.

        Returns:
            A time (scalar) that is admitted; infinite where nothing is left, and of a round that
            was opened with a cap for that kind.
        """
        time = self._smallest(self.remaining(state, round), kind, sensitivity)
        if round is None:
            return time
        own = [place for place, one in enumerate(round.kinds[:CAPPED]) if one is kind]
        capped = state.caps_at(state.find(round)[0])[jnp.asarray(own, int)] >= 0
        return jnp.where(jnp.any(capped), jnp.inf, time)
