"""What a filter or an odometer keeps: what was spent, and what open rounds hold beside it.

Several currencies go side by side, such as rho and the requests' own deltas.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nrjax._numerics import check, check_integer, concrete
from nrjax.composition._spending import Spending, add, add_all, nothing
from nrjax.composition.requests import Request, names, parts
from nrjax.pytrees import Pytree, static

APART = 64
"""Machine epsilons by which two programs may differ in what one request costs."""


class Round(Pytree):
    """Handle of an open round, from a filter's `open`; good until the round is closed.

    Attributes:
        number: given to no other round of that state, int32; 0 for one that was not opened.
        kinds: of the requests that it is charged by (static).
    """

    number: Array
    kinds: tuple[type, ...] = static()


def kinds_of(request: Request) -> tuple[type, ...]:
    """The kinds of the parts of a request."""
    return tuple(type(part) for part in parts(request))


def check_kinds(name: str, request: Request, kinds: tuple[type, ...]) -> None:
    """A `ValueError` unless a request is of the kinds that were admitted, or of none."""
    found = kinds_of(request)
    right = f"of the kinds that it was admitted, or the round opened with: {names(kinds)}"
    check(not found or found == kinds, name, request, right)


class OpenRounds(Pytree):
    """The open rounds of a state, as many places as `init(rounds=...)` has asked for."""

    number: Array
    """int32, shape (rounds,); 0 where a place is free."""
    held: Array
    """Largest cost that each was admitted to; shape (rounds, 2, currencies): first what may be
    refunded, then what is charged as it was admitted, deltas among it."""
    last: Array
    """The number that was given out last, int32."""


class LedgerState(Pytree):
    """What a filter has let through, or an odometer has counted. Infinite: nothing is left."""

    spent: Spending
    """Shape (currencies,)."""
    rounds: OpenRounds | None
    """None where no rounds can be opened."""
    order: Array | None
    """The Renyi order that the costs are for, or an odometer's gamma; None where there is none."""
    owner: str = static()
    """Name of the class whose state it is."""
    dtype: str = static()
    """In which it was made; rounding it to another one might lower it."""


def start(owner: Any, dtype: Any, currencies: int, rounds: int = 0) -> LedgerState:
    """Nothing spent and no round open."""
    check_integer("rounds", rounds, 0)
    places = None
    if rounds:
        held = jnp.zeros((rounds, 2, currencies), dtype)
        places = OpenRounds(jnp.zeros(rounds, jnp.int32), held, jnp.int32(0))
    order = _tag(owner)[1]
    return LedgerState(
        spent=nothing(dtype, (currencies,)),
        rounds=places,
        order=None if order is None else jnp.asarray(order, dtype),
        owner=type(owner).__name__,
        dtype=str(jnp.dtype(dtype)),
    )


def _tag(owner: Any) -> tuple[str, Any]:
    """What was fixed before the first release beside the budget, by name; None if nothing was."""
    name = "gamma" if hasattr(owner, "gamma") else "order"
    return name, getattr(owner, name, None)


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
    known = concrete(same)
    right = f"for {name}'s own {field}, {own}"
    check(known is None or known, "state", f"for {field} {state.order}", right)
    return same


def choose(ok: Array, new: Any, old: Any) -> Any:
    """`new` where `ok`, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)


def total(state: LedgerState, spent: Spending, own: Array | None = None) -> Spending:
    """`spent`, and what is held by open rounds but `own` (bool, shape (rounds,))."""
    if state.rounds is None:
        return spent
    held = state.rounds.held
    if own is not None:
        held = jnp.where(own[:, None, None], 0, held)
    return add_all(spent, held.reshape(-1, held.shape[-1]))


def near(cost: Array, held: Array) -> Array:
    """Whether a cost is at most another one, but for the rounding of two programs (bool)."""
    return cost <= held * (1 + APART * float(jnp.finfo(held.dtype).eps))


def added(state: LedgerState, charges: list[Array]) -> Spending:
    """What was spent, and these."""
    spent = state.spent
    for one in charges:
        spent = add(spent, one)
    return spent


def happened(state: LedgerState, after: Spending, ok: Array) -> LedgerState:
    """A state that has paid; or has nothing left, where that was not admitted."""
    nothing_left = Spending(jnp.full_like(after.total, jnp.inf), jnp.zeros_like(after.rest))
    return dataclasses.replace(state, spent=choose(ok, after, nothing_left))


def places(state: LedgerState) -> OpenRounds:
    """Where open rounds are kept, else a `ValueError`."""
    right = "from init(rounds=...), with as many places as rounds are to be open at a time"
    check(state.rounds is not None, "state", state, right)
    assert state.rounds is not None
    return state.rounds


def held_by(state: LedgerState, own: Array) -> Array:
    """What the round at a place holds, shape (2, currencies); nothing without a place."""
    return jnp.sum(jnp.where(own[:, None, None], places(state).held, 0), axis=0)


def place(state: LedgerState, round: Round) -> Array:
    """Where an open round is (bool, shape (rounds,)); nowhere if it is not open any more."""
    check(jnp.ndim(round.number) == 0, "round", round, "one handle; `vmap` over several")
    return (places(state).number == round.number) & (round.number > 0)
