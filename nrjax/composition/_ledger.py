"""What every filter does with its state: ask, take, spend, and keep rounds open side by side.

The sum of what was spent and of the largest cost that each open round was admitted to never exceeds
the budgets; `docs/composition.md` proves that this is enough.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax.composition._spending import Spending, fits, room, summed
from nrjax.composition._state import (
    APART,
    LedgerState,
    Round,
    added,
    check_kinds,
    check_owner,
    choose,
    happened,
    held_by,
    kinds_of,
    near,
    place,
    places,
    start,
    total,
)
from nrjax.composition.requests import BrownianReduction, ExPost, LaplaceReduction, Request, parts
from nrjax.pytrees import Pytree


class Ledger(Pytree, abc.ABC):
    """The ledger of a filter, whose subclass says what the currencies are.

    Every sum goes through `_spending.add`, every comparison with a budget through `_fits`.
    Its methods raise a `TypeError` where nothing is proved for a kind of request, and a
    `ValueError` where a concrete field of a request is out of range, its kinds are not those that
    were admitted, or the state is another filter's.
    """

    _refunded: ClassVar[tuple[bool, ...]]
    """For each currency, whether a round may get back what it held beyond its cost."""
    _stopped: ClassVar[tuple[type, ...]] = (ExPost, BrownianReduction, LaplaceReduction)
    """The kinds that get it back: their costs hold at the stop, all others for what was asked."""

    @abc.abstractmethod
    def _dtype(self) -> Any:
        """Of new states."""

    @abc.abstractmethod
    def _limits(self, dtype: Any) -> Array:
        """The budgets, shape (currencies,), never more than they are."""

    @abc.abstractmethod
    def _costs(self) -> Mapping[type, Any]:
        """The kinds of requests that something is proved for, and what they cost."""

    @abc.abstractmethod
    def _charge(self, request: Any, dtype: Any) -> Array:
        """What a single request costs, shape (currencies,); NaN for a bad trace."""

    @abc.abstractmethod
    def _main(self, values: Array) -> Array:
        """Of values for all currencies those that are budgets, not shares of delta."""

    @abc.abstractmethod
    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        """Smallest time at which a round of `kind` costs at most what is left."""

    def takes(self, kind: type) -> bool:
        """Whether something is proved for this kind of request."""
        return issubclass(kind, tuple(self._costs()))

    def init(self, rounds: int = 0) -> LedgerState:
        """Nothing spent.

        Args:
            rounds: how many rounds may be open at the same time (static); see `open`.

        Raises:
            ValueError: `rounds` is not an integer >= 0.
        """
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
        limits = self._limits_of(state)
        return jnp.all(fits(total(state, spent, own), limits))

    def _usable(self, state: LedgerState) -> Array:
        """Whether a state is this filter's, and something was left when last asked."""
        return jnp.all(state.spent.total < jnp.inf) & jnp.all(self._limits_of(state) >= 0)

    def _left(self, state: LedgerState, round: Round | None) -> Array:
        limits = self._limits_of(state)
        if round is None:
            return room(total(state, state.spent), limits)
        own = place(state, round)
        return room(total(state, added(state, [held_by(state, own)[1]]), own), limits)

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

        Args:
            state: of this filter.
            round: an open round, whose own reservation then counts as left, as far as it is not
                charged as it was admitted.
        """
        return self._main(self._left(state, round))

    def cost(self, request: Request) -> Array:
        """What a request would take of the budget, rounded up; NaN for a bad trace."""
        return self._main(summed(self._sum(request, self._dtype())))

    def admits(self, state: LedgerState, request: Request) -> Array:
        """Whether a mechanism may be started, or rewound, that may cost as much as this (bool).

        Of several rounds that are open at the same time this knows only those that were opened
        with `open`.
        """
        return self._fits(state, added(state, self._charges(request, self._dtype_of(state))))

    def take(self, state: LedgerState, request: Request) -> tuple[LedgerState, Array]:
        """Ask and pay in one, BEFORE the mechanism is run; run it only if that was granted.

        Returns:
            The state, unchanged bit for bit where it was refused, and whether it was granted
            (bool). Under a trace what is out of range is refused.
        """
        after = added(state, self._charges(request, self._dtype_of(state)))
        ok = self._fits(state, after)
        return choose(ok, dataclasses.replace(state, spent=after), state), ok

    def spend(
        self, state: LedgerState, spent: Request, admitted: Request | None = None
    ) -> tuple[LedgerState, Array]:
        """Pay for what HAS happened, and was admitted before: it is always counted.

        Args:
            state: of this filter.
            spent: the request as it came out.
            admitted: what was asked for before, which `spent` must not exceed. Where it does by no
                more than rounding (the one was Python's number, the other a device's), what was
                admitted is what is charged; and so it is for deltas, and for all requests whose
                costs do not hold at the stop, as in `close`. Without it `spent` must be what was
                asked for, but for the time or ex-post epsilon.

        Returns:
            The state, and whether the cost fitted (bool), but for what two programs may differ by
            in rounding one cost. If it did not, the guarantee is broken: what happened cannot have
            been admitted. Then nothing is left, for good: `remaining` is 0, nothing is admitted.
        """
        dtype = self._dtype_of(state)
        eps = float(jnp.finfo(dtype).eps)
        charges, ok = self._charges(spent, dtype), jnp.asarray(True)
        if admitted is not None:
            check_kinds("spent", spent, kinds_of(admitted))
            had, asked = self._sum(spent, dtype), self._sum(admitted, dtype)
            ok = jnp.all(near(had, asked))
            charges = self._paid(spent, had, asked)
        ok &= self._fits(state, added(state, [one * (1 - APART * eps) for one in charges]))
        return happened(state, added(state, charges), ok), ok

    def open(self, state: LedgerState, request: Request) -> tuple[LedgerState, Round, Array]:
        """Open a round beside others, and ask for its first release: before that is made.

        A round that ends before anything else is asked needs none of this: `admits` and `spend`.

        Args:
            state: of this filter, from `init(rounds=...)`; the latest one. Of two states that were
                made from one, neither knows what the other has admitted.
            request: what the first release costs. Its kinds are the round's for good; its deltas,
                and what it costs beside ex-post epsilons and noise reduction, are taken at once.

        Returns:
            The state, a handle of the round, and whether it was opened (bool): if not, the state
            is unchanged, and the handle good for nothing. There must be a free place, too.
        """
        rounds = places(state)
        cost = self._sum(request, self._dtype_of(state))
        free = rounds.number == 0
        own = free & (jnp.arange(free.size) == jnp.argmax(free))
        number = rounds.last + 1
        ok = jnp.any(free) & (number > 0) & self._fits(state, added(state, list(cost)))
        opened = dataclasses.replace(
            rounds,
            number=jnp.where(own, number, rounds.number),
            held=jnp.where(own[:, None, None], cost, rounds.held),
            last=number,
        )
        after = choose(ok, dataclasses.replace(state, rounds=opened), state)
        return after, Round(jnp.where(ok, number, 0), kinds_of(request)), ok

    def rewind(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Ask for a rewind of an open round, before it is made.

        Admitted if it fits beside what was spent and what the other rounds hold; the round then
        holds the largest cost that it was admitted to. Of several requests in a tuple each says the
        most that it has come to: they are held as one sum.

        Returns:
            The state, unchanged where it was refused, and whether it was admitted (bool). Refused
            is also what asks for more delta than the round was opened with, or for more of what is
            charged as it was admitted (see `close`).
        """
        own, held, cost = self._own(state, round, request)
        more = jnp.stack([jnp.maximum(cost[0], held[0]), held[1]])
        # What is held has been found to fit, whatever rounding says of the sum now.
        ok = jnp.all(cost <= held) | self._fits(state, added(state, list(more)), own)
        ok &= self._usable(state) & jnp.any(own) & jnp.all(near(cost[1], held[1]))
        rounds = places(state)
        rounds = dataclasses.replace(rounds, held=jnp.where(own[:, None, None], more, rounds.held))
        return choose(ok, dataclasses.replace(state, rounds=rounds), state), ok

    def close(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[LedgerState, Array]:
        """Pay for a round that is over; some of what it held beyond its cost is free again.

        Not before its last release was published. What comes back is the rest of an `ExPost`, a
        `BrownianReduction` or a `LaplaceReduction`, whose costs hold at the stop, and of anything
        where ex-post epsilons add up. Other kinds, and deltas, are paid for as they were taken.

        Args:
            state: of this filter.
            round: from `open`; the handle is of no use afterwards.
            request: what the round came to; `()` if nothing was released, no answer of a test
                either: then all that it held is free.

        Returns:
            The state, and whether that was admitted (bool). If not (it costs more than the round
            holds, or the round was closed before), nothing is left, as after `spend`; but `()` for
            a round that is not open changes nothing.
        """
        own, held, cost = self._own(state, round, request)
        ok = self._usable(state) & jnp.all(near(cost, held))
        rounds = places(state)
        closed = dataclasses.replace(
            rounds,
            number=jnp.where(own, 0, rounds.number),
            held=jnp.where(own[:, None, None], 0, rounds.held),
        )
        # What costs nothing was no release: a round that was refused may be closed.
        after = added(state, self._paid(request, cost, held))
        return happened(dataclasses.replace(state, rounds=closed), after, ok), ok & jnp.any(own)

    def _own(
        self, state: LedgerState, round: Round, request: Request
    ) -> tuple[Array, Array, Array]:
        """Where a round is (bool, shape (rounds,)), what it holds, and what a request costs."""
        own = place(state, round)
        check_kinds("request", request, round.kinds)
        return own, held_by(state, own), self._sum(request, self._dtype_of(state))

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
            kind: class of the request, one that is rewound.
            sensitivity: of the value, > 0, as in a request of that kind.
            round: the open round that is rewound; None for a new one.

        Returns:
            A time (scalar): where it is finite, `admits(state, kind(sensitivity, time))` is true,
            or a rewind of `round` to it; infinite where nothing is left.

        Raises:
            TypeError: `kind` is not one that is rewound under this filter.
            ValueError: a concrete `sensitivity` is not positive and finite.
        """
        return self._smallest(self.remaining(state, round), kind, sensitivity)
