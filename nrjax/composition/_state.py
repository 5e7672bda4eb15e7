"""The state of filters and odometers, and sums of privacy costs that are never too small.

A sum is kept as `total + residual`, two floats with `|residual| <= ulp(total)/2`. An addition is
three of Knuth's two-sums, which are exact: the cost is added to the total, and the total's rounding
error to the residual. Only the residual is ever rounded, and then upwards. So `total + residual`

* is never below the exact sum of the costs,
* equals the exact sum if twice the digits of the dtype hold it (say, four quarters of a budget),
* exceeds the exact sum by a fraction of at most `2 eps^2` per addition: 3e-8 after a million
  additions in float32.

XLA treats subnormal numbers as 0. Sums contain none: a cost is 0 or at least `least_cost`, so that
every number in an addition is a multiple of `least_cost * eps`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.fields import explain_fields
from nrjax._base.numerics import two_sum
from nrjax._base.pytrees import Pytree, static
from nrjax._base.tracing import INLINE
from nrjax._base.validation import check, check_integer, concrete_or_none

_FEW = 64
"""Largest number of parts of a request that are charged one by one, though some may be equal."""


@explain_fields
class Spending(NamedTuple):
    """A sum of costs, `total + residual`, infinite after a cost that is not usable.

    A cost is usable if it is finite and not negative.

    Attributes:
        total: the sum, rounded.
        residual: rounding error of `total`, so that `total + residual` is the sum.
    """

    total: Array
    residual: Array


def least_cost(dtype: Any) -> float:
    """Return the smallest cost above 0, `tiny/eps^2` (8e-25 in float32)."""
    return float(jnp.finfo(dtype).tiny) / float(jnp.finfo(dtype).eps) ** 2


@functools.partial(jax.jit, inline=INLINE)
def add(spending: Spending, cost: Array) -> Spending:
    """Return the sum plus one cost, infinite after a cost that was NaN, negative or infinite."""
    eps = float(jnp.finfo(cost.dtype).eps)
    total, error = two_sum(spending.total, cost)
    residual, lost = two_sum(spending.residual, error)
    residual = jnp.where(lost > 0, residual + 2 * eps * jnp.abs(residual), residual)
    total, residual = two_sum(total, residual)
    sound = (cost >= 0) & (total < jnp.inf)
    return Spending(jnp.where(sound, total, jnp.inf), jnp.where(sound, residual, 0))


@functools.partial(jax.jit, inline=INLINE)
def add_all(spending: Spending, costs: Array) -> Spending:
    """Return a sum plus all costs along the first axis of `costs`, added one by one."""
    return jax.lax.scan(lambda total, cost: (add(total, cost), None), spending, costs)[0]


def is_within(spending: Spending, budget: Array) -> Array:
    """Return whether `total + residual <= budget`, exactly (bool).

    `budget - total` is exact if the total is between half and twice the budget. Otherwise it is
    much larger than the residual.
    """
    return spending.residual <= budget - spending.total


def remaining_after(spending: Spending, budget: Array) -> Array:
    """Return the unspent budget, rounded down so that a request of that cost fits."""
    eps = float(jnp.finfo(budget.dtype).eps)
    left = (budget - spending.total) - spending.residual
    left = left * (1 - 16 * eps) - 4 * eps * eps * budget
    return jnp.where(left >= least_cost(budget.dtype), left, 0)


def rounded_up(spending: Spending) -> Array:
    """Return a sum as one float, rounded up unless it is exact."""
    eps = float(jnp.finfo(spending.total.dtype).eps)
    return jnp.where(spending.residual > 0, spending.total * (1 + 2 * eps), spending.total)


def sum_up(costs: Array) -> Array:
    """Return the sum along the leading axis, rounded up unless exact, infinite after a NaN."""
    zero = jnp.zeros(costs.shape[1:], costs.dtype)
    return rounded_up(add_all(Spending(zero, zero), costs))


@explain_fields
class Charges(NamedTuple):
    """The costs of the parts of a request, where equal parts have one cost.

    Attributes:
        parts: the parts that differ.
        costs: cost of each of `parts`.
        places: place in `parts` of each part of the request.
    """

    parts: list[Any]
    costs: list[Array]
    places: list[int]

    def change(self, function: Callable[[Any, Array], Array]) -> "Charges":
        """Return the charges with `function(part, cost)` in place of each cost."""
        return self._replace(costs=list(map(function, self.parts, self.costs)))

    def stacked(self, *first: Array) -> Array:
        """Return `first` and the cost of each part of the request, as one array."""
        rows = jnp.stack([*first, *self.costs])
        if len(self.costs) == len(self.places):
            return rows
        return rows[np.append(np.arange(len(first)), np.array(self.places) + len(first))]

    def added_to(self, spent: Spending) -> Spending:
        """Return the sum `spent` plus the costs, added one by one."""
        if len(self.costs) == len(self.places):
            return functools.reduce(add, self.costs, spent)
        return add_all(spent, self.stacked())


def charge_once(parts: list[Any], cost: Callable[[Any], Array]) -> Charges:
    """Return the charges of a request, whose equal parts are charged once if there are many.

    Parts are equal if they are one object, or if they follow each other.
    """
    if len(parts) <= _FEW:
        return Charges(parts, list(map(cost, parts)), list(range(len(parts))))
    differing, places, known = [], [], {}
    for part in parts:
        if id(part) not in known:
            if not differing or differing[-1] != part:
                differing.append(part)
            known[id(part)] = len(differing) - 1
        places.append(known[id(part)])
    return Charges(differing, list(map(cost, differing)), places)


def select(ok: Array, new: Any, old: Any) -> Any:
    """Return a pytree with the leaves of `new` where `ok` is true, and of `old` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)


class Round(Pytree):
    """A handle of an open round, from a filter's `open`, valid until the round is closed.

    Use it only with states that are derived from the state that `open` returned. In other states
    its number may belong to another round.

    Attributes:
        number: number of the round in the state, int32; 0 if the round was not opened.
        caps: caps of the round's requests, fixed by `open`; None for a request without a cap.
        kinds: classes of the round's requests, fixed by `open` (static).
    """

    number: Array
    caps: tuple[Any, ...]
    kinds: tuple[type, ...] = static()


class LedgerState(Pytree):
    """The state of a filter or an odometer: what was spent, and the open rounds.

    Attributes:
        spent: sum of the costs so far, shape (units,); infinite if nothing is left.
        number: numbers of the open rounds, int32, shape (rounds,); 0 where a place is free.
        reserved: largest cost that each open round was admitted to, shape (rounds, 2, units): the
            part that may be refunded, then the part that is charged in any case.
        last: number of the round that was opened last, int32.
        fixed: Rényi order or odometer's gamma for which costs are computed; None if there is none.
        saved: mark of the state in a file from which this state was made, uint32, shape (2,); None
            if it was made from no such state.
        owner: name of the class that made the state (static).
        relation: relation of the neighbours of all that was spent (static).
        dtype: dtype in which the state was made (static).
    """

    spent: Spending
    number: Array
    reserved: Array
    last: Array
    fixed: Array | None
    owner: str = static()
    relation: str | None = static()
    dtype: str = static()
    saved: Array | None = None

    def with_reservations(self, spent: Spending, own: Array | None = None) -> Spending:
        """Return `spent` plus the reservations of all rounds except those marked by `own`."""
        if not self.number.size:
            return spent
        reserved = self.reserved if own is None else jnp.where(own[:, None, None], 0, self.reserved)
        return add_all(spent, reserved.reshape(-1, reserved.shape[-1]))

    def locate(self, round: Round) -> tuple[Array, Array]:
        """Return a mask of a round's place (bool, shape (rounds,)), and the round's reservation."""
        check(isinstance(round, Round), "round", round, "a handle from the filter's open")
        check(jnp.ndim(round.number) == 0, "round", round, "one handle; `vmap` over several")
        self.check_places()
        own = (self.number == round.number) & (round.number > 0)
        return own, jnp.sum(jnp.where(own[:, None, None], self.reserved, 0), axis=0)

    def check_places(self) -> None:
        """Raise a `ValueError` if the state has no places for open rounds."""
        expected = "from init(rounds=...), with as many places as rounds are open at a time"
        check(self.number.size, "state", self, expected)

    def with_round(self, own: Array, number: Any, reserved: Any) -> "LedgerState":
        """Return the state with another number and reservation at the place marked by `own`."""
        return dataclasses.replace(
            self,
            number=jnp.where(own, number, self.number),
            reserved=jnp.where(own[:, None, None], reserved, self.reserved),
            last=jnp.maximum(self.last, number),
        )

    def spent_or_void(self, spent: Spending, ok: Array) -> "LedgerState":
        """Return the state with the sum `spent` if `ok`, else one with no budget left."""
        nothing_left = Spending(jnp.full_like(spent.total, jnp.inf), jnp.zeros_like(spent.residual))
        return dataclasses.replace(self, spent=select(ok, spent, nothing_left))


def new_state(owner: Any, dtype: Any, rounds: int = 0) -> LedgerState:
    """Return a state of a filter or odometer with nothing spent and no round open."""
    units, field = len(owner._units), owner._fixed_field
    check_integer("rounds", rounds, 0)
    zero = jnp.zeros(units, dtype)
    return LedgerState(
        spent=Spending(zero, zero),
        number=jnp.zeros(rounds, jnp.int32),
        reserved=jnp.zeros((rounds, 2, units), dtype),
        last=jnp.int32(0),
        fixed=jnp.asarray(getattr(owner, field), dtype) if field else None,
        owner=type(owner).__name__,
        relation=owner.relation,
        dtype=str(jnp.dtype(dtype)),
    )


def check_owner(owner: Any, state: Any) -> Array:
    """Check a state's class, and return whether it has the order or gamma of `owner` (bool).

    Raises:
        ValueError: the state was made by another class or for another relation, is a batch, or was
            cast to another dtype. Outside of traces also if its order or gamma is not the owner's.
    """
    name, field = type(owner).__name__, owner._fixed_field
    is_own = isinstance(state, LedgerState) and state.owner == name
    source = f"of {state.owner}" if isinstance(state, LedgerState) else state
    check(is_own, "state", source, f"of {name}, from its init()")
    expected = f"{owner.relation!r}, that of the {name}"
    check(state.relation == owner.relation, "relation of the state", state.relation, expected)
    total, default = state.spent.total, jnp.result_type(float)
    batch = jnp.shape(total)[:-1]
    check(not batch, "state", f"of shape {batch}", "a single one; `vmap` over several")
    expected = f"in {state.dtype}, as it was made, and used in that precision"
    for number in (*state.spent, state.reserved, *([] if state.fixed is None else [state.fixed])):
        is_uncast = str(number.dtype) == state.dtype and number.dtype.itemsize <= default.itemsize
        check(is_uncast, "state", f"in {number.dtype} under {default}", expected)
    if not field:
        return jnp.asarray(True)
    own = getattr(owner, field)
    same = state.fixed == jnp.asarray(own, total.dtype)
    known = concrete_or_none(same)
    expected = f"for {name}'s own {field}, {own}"
    check(known is None or known, "state", f"for {field} {state.fixed}", expected)
    return same
