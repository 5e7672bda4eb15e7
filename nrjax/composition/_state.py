"""What a filter or an odometer keeps: what was spent, and what open rounds hold beside it.

Several currencies go side by side, such as rho and the requests' own deltas.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._validation import check, check_integer, concrete_or_none
from nrjax.composition._spending import Spending, add, add_all, nothing
from nrjax.pytrees import Pytree, static

CAPPED = 4
"""How many requests of a round may have a cap: the first ones."""


class Round(Pytree):
    """Handle of an open round, from a filter's `open`; good until the round is closed.

    For the states that come after that `open` alone: in those of another ledger its number is
    another round's, which would be closed in its place.
    """

    number: Array
    """Given to no other round of that state, int32; 0 for one that was not opened."""
    kinds: tuple[type, ...] = static()
    """Of the requests that it is charged by."""


class LedgerState(Pytree):
    """What a filter has let through, or an odometer has counted, and the open rounds."""

    spent: Spending
    """Shape (currencies,). Infinite: nothing is left."""
    number: Array
    """Of the open rounds, int32, shape (rounds,), as many as `init(rounds=...)` has asked for; 0
    where a place is free."""
    held: Array
    """Largest cost that each was admitted to; shape (rounds, 2, currencies): first what may be
    refunded, then what is charged as it was admitted, deltas among it."""
    caps: Array
    """What each was opened with (`caps_of`), shape (rounds, CAPPED)."""
    last: Array
    """The number that was given out last, int32."""
    order: Array | None
    """The Renyi order that the costs are for, or an odometer's gamma; None where there is none."""
    owner: str = static()
    """Name of the class whose state it is."""
    dtype: str = static()
    """In which it was made; rounding it to another one might lower it."""

    def check_places(self) -> None:
        """Raise a `ValueError` if no rounds can be opened."""
        right = "from init(rounds=...), with as many places as rounds are to be open at a time"
        check(self.number.size, "state", self, right)

    def put(self, own: Array, number: Any, held: Any) -> "LedgerState":
        """Another number and other costs at a place (bool, shape (rounds,))."""
        return dataclasses.replace(
            self,
            number=jnp.where(own, number, self.number),
            held=jnp.where(own[:, None, None], held, self.held),
            last=jnp.maximum(self.last, number),
        )

    def find(self, round: Round) -> tuple[Array, Array]:
        """Where a round is (bool, shape (rounds,)), nowhere if it is not open; what it holds."""
        check(isinstance(round, Round), "round", round, "the handle that the filter's open gave")
        check(jnp.ndim(round.number) == 0, "round", round, "one handle; `vmap` over several")
        self.check_places()
        own = (self.number == round.number) & (round.number > 0)
        return own, jnp.sum(jnp.where(own[:, None, None], self.held, 0), axis=0)

    def caps_at(self, own: Array) -> Array:
        """The caps of the round that is there (bool, shape (rounds,)); 0 where none is."""
        return jnp.sum(jnp.where(own[:, None], self.caps, 0), axis=0)

    def added(self, charges: Any) -> Spending:
        """What was spent, and these."""
        return functools.reduce(add, charges, self.spent)

    def total(self, spent: Spending, own: Array | None = None) -> Spending:
        """`spent`, and what is held by open rounds but `own` (bool, shape (rounds,))."""
        if not self.number.size:
            return spent
        held = self.held if own is None else jnp.where(own[:, None, None], 0, self.held)
        return add_all(spent, held.reshape(-1, held.shape[-1]))

    def happened(self, after: Spending, ok: Array) -> "LedgerState":
        """A state that has paid; or has nothing left, where that was not admitted."""
        nothing_left = Spending(jnp.full_like(after.total, jnp.inf), jnp.zeros_like(after.rest))
        return dataclasses.replace(self, spent=choose(ok, after, nothing_left))


def _tag(owner: Any) -> tuple[str, Any]:
    """What was fixed before the first release beside the budget, by name; None if nothing was."""
    name = "gamma" if hasattr(owner, "gamma") else "order"
    return name, getattr(owner, name, None)


def start(owner: Any, dtype: Any, currencies: int, rounds: int = 0) -> LedgerState:
    """Nothing spent and no round open."""
    check_integer("rounds", rounds, 0)
    number, held = jnp.zeros(rounds, jnp.int32), jnp.zeros((rounds, 2, currencies), dtype)
    order = _tag(owner)[1]
    order = None if order is None else jnp.asarray(order, dtype)
    caps, spent = jnp.full((rounds, CAPPED), -1, dtype), nothing(dtype, (currencies,))
    name, kept = type(owner).__name__, str(jnp.dtype(dtype))
    return LedgerState(spent, number, held, caps, jnp.int32(0), order, name, kept)


def check_owner(owner: Any, state: Any) -> Array:
    """Whether a state is this owner's, and for its order or gamma (bool).

    Raises:
        ValueError: it is not, as far as can be seen outside of traces.
    """
    name = type(owner).__name__
    mine = isinstance(state, LedgerState) and state.owner == name
    whose = f"of {state.owner}" if isinstance(state, LedgerState) else state
    check(mine, "state", whose, f"of {name}, from its init()")
    shape = jnp.shape(state.spent.total)
    check(len(shape) <= 1, "state", f"of shape {shape[:-1]}", "a single one; `vmap` over several")
    found, default = state.spent.total.dtype, jnp.result_type(float)
    kept = str(found) == state.dtype and found.itemsize <= default.itemsize
    right = f"in {state.dtype}, as it was made, and used in that precision"
    check(kept, "state", f"in {found} under {default}", right)
    if state.order is None:
        return jnp.asarray(True)
    field, own = _tag(owner)
    same = state.order == jnp.asarray(own, state.order.dtype)
    known = concrete_or_none(same)
    right = f"for {name}'s own {field}, {own}"
    check(known is None or known, "state", f"for {field} {state.order}", right)
    return same


def choose(ok: Array, new: Any, old: Any) -> Any:
    """`new` where `ok`, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)
