"""What the filters share: a budget made on the host, and sums that are checked against it."""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from nrjax._numerics import check, concrete
from nrjax.composition._spending import (
    Spending,
    add,
    enlarged,
    fits,
    limit,
    nothing,
    room,
    rounded_down,
    settle,
)
from nrjax.composition.requests import Request, parts

Cost = Callable[[Any, Any], Array]
"""From a request and a dtype to its cost in the filter's currency, rounded up."""


class FilterState(NamedTuple):
    """What a filter has let through."""

    spent: Spending
    """In the filter's currency."""
    delta: Spending | None
    """The sum of the requests' own deltas; None where a filter takes none."""


def names(kinds: Any) -> str:
    """The names of some kinds of requests, for a message."""
    return ", ".join(kind.__name__ for kind in kinds) or "none"


def find(kind: type, kinds: Mapping[type, Any], owner: str, reasons: Mapping[type, str]) -> Any:
    """The entry of `kind`.

    Raises:
        TypeError: there is none, which means that nothing is proved for it.
    """
    for known, entry in kinds.items():
        if issubclass(kind, known):
            return entry
    because = next((f"; {why}" for other, why in reasons.items() if issubclass(kind, other)), "")
    raise TypeError(
        f"{kind.__name__}: {owner} has no proof for it, but for {names(kinds)}{because}"
    )


def check_no_delta(request: Any, owner: str) -> None:
    """Raise a `ValueError` for a request with a concrete delta of its own."""
    share = getattr(request, "delta", 0.0)
    number = concrete(share)
    if number is not None:
        right = f"0 for {owner}, which has no proof for approximate mechanisms"
        check(number == 0, f"{type(request).__name__}.delta", share, right)


def charge(owner: Any, request: Any, dtype: Any, takes_delta: bool) -> tuple[Array, Array]:
    """What one request costs, and its delta; NaN where a traced request is out of range.

    Args:
        owner: the filter or odometer, which has `_costs()` and `_reasons`.
        request: a single request.
        dtype: of the result.
        takes_delta: whether the request may have a delta of its own.

    Raises:
        TypeError: nothing is proved for this kind of request.
        ValueError: a concrete field is out of range, or not a single number.
    """
    price = find(type(request), owner._costs(), type(owner).__name__, owner._reasons)
    request.check_concrete()
    request.check_single()
    share = getattr(request, "delta", 0.0)
    if not takes_delta:
        check_no_delta(request, type(owner).__name__)
    ok = request.well_formed()
    share = enlarged(share, dtype)
    if not takes_delta:
        ok &= share == 0
    return jnp.where(ok, price(request, dtype), jnp.nan), share


class BudgetFilter(abc.ABC):
    """A privacy filter whose budget is one number, and perhaps a share of delta beside it."""

    epsilon: Any
    delta: Any
    budget: Any
    _reasons: ClassVar[Mapping[type, str]] = {}

    @abc.abstractmethod
    def _budget(self) -> float:
        """The budget on the host, in float64, rounded down; from concrete fields alone."""

    @abc.abstractmethod
    def _costs(self) -> Mapping[type, Cost]:
        """The kinds of requests that something is proved for, and what they cost."""

    @abc.abstractmethod
    def _times(self) -> Mapping[type, Callable[[Array, ArrayLike], Array]]:
        """For the kinds that are rewound: from what is left and a sensitivity to a time."""

    def _share(self) -> ArrayLike | None:
        """What the requests' own deltas may add up to; None where none has a proof."""
        return None

    def _settle(self, *fields: str) -> None:
        """Compute the budget, at construction; or check one that was carried along.

        Args:
            fields: names of the fields that it depends on.

        Raises:
            ValueError: a field is a tracer and there is no budget yet, or the budget is one that
                the fields do not allow.
        """
        values = {name: getattr(self, name) for name in fields}
        if self.budget is None:
            for name, value in values.items():
                if isinstance(value, Tracer):
                    raise ValueError(
                        f"{name} = {value}: must be a concrete number, from which the budget is "
                        "computed on the host; to map over filters stack them, with "
                        "jax.tree.map(lambda *leaf: jnp.stack(leaf), first, second)"
                    )
            if any(concrete(value) is None for value in values.values()):
                return
            for name, value in values.items():
                check(np.ndim(value) == 0, name, value, "a single number")
            object.__setattr__(self, "budget", rounded_down(self._budget(), jnp.result_type(float)))
            return
        settle(self, "budget")
        carried = [concrete(value) for value in (*values.values(), self.budget)]
        known = [number for number in carried if number is not None and number.ndim == 0]
        if len(known) < len(carried):
            return
        single = any(number.dtype == np.float32 for number in known)
        allowed = self._budget() * (1 + (1e-4 if single else 0))
        check(
            float(self.budget) <= allowed,
            "budget",
            self.budget,
            "left out, so that it is computed; with dataclasses.replace say budget=None",
        )

    def _dtype(self) -> Any:
        return jnp.result_type(self.budget, float)

    def init(self) -> FilterState:
        """Nothing spent."""
        dtype = self._dtype()
        return FilterState(nothing(dtype), None if self._share() is None else nothing(dtype))

    def remaining(self, state: FilterState) -> Array:
        """What is left of the budget, rounded down; a request of that cost still fits. Scalar."""
        spent = state.spent
        return room(spent, limit(self.budget, spent.total.dtype))

    def remaining_delta(self, state: FilterState) -> Array:
        """What is left for the requests' own deltas, rounded down so that it still fits. Scalar."""
        share = self._share()
        if state.delta is None or share is None:
            return jnp.zeros((), state.spent.total.dtype)
        return room(state.delta, limit(share, state.delta.total.dtype))

    def cost(self, request: Request) -> Array:
        """What a request would take of the budget, rounded up; scalar, NaN for a bad trace.

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        dtype = self._dtype()
        return self._sum(self._charges(request, dtype), dtype)[0]

    def _charges(self, request: Request, dtype: Any) -> list[tuple[Array, Array]]:
        """What each part of a request costs, and its delta."""
        takes_delta = self._share() is not None
        return [charge(self, part, dtype, takes_delta) for part in parts(request)]

    def _sum(self, charges: list[tuple[Array, Array]], dtype: Any) -> tuple[Array, Array]:
        total = share = jnp.zeros((), dtype)
        margin = 1 + 2 * float(jnp.finfo(dtype).eps)
        for number, (more, delta) in enumerate(charges):
            total = (total + more) * margin if number else more
            share = (share + delta) * margin if number else delta
        return total, share

    def _after(
        self, state: FilterState, charges: list[tuple[Array, Array]]
    ) -> tuple[FilterState, Array]:
        """The state with the parts of a request added, and whether that is within the budget."""
        spent, delta = state
        dtype = spent.total.dtype
        ok = jnp.asarray(True)
        for more, share in charges:
            ok &= more < jnp.inf
            spent = add(spent, more)
            delta = None if delta is None else add(delta, share)
        ok &= fits(spent, limit(self.budget, dtype))
        whole = self._share()
        if delta is not None and whole is not None:
            ok &= fits(delta, limit(whole, dtype))
        return FilterState(spent, delta), ok

    def admits(self, state: FilterState, request: Request) -> Array:
        """Whether a mechanism may be started, or rewound, that may cost as much as this (bool).

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        return self._after(state, self._charges(request, state.spent.total.dtype))[1]

    def spend(
        self, state: FilterState, spent: Request, admitted: Request | None = None
    ) -> tuple[FilterState, Array]:
        """Take what a mechanism did cost out of the budget.

        Args:
            state: of this filter.
            spent: the request as it came out.
            admitted: what was asked for before; spending more than that is refused. (By more than
                a rounding: the one may have been Python's number, the other a device's.)

        Returns:
            The state, unchanged bit for bit where it was refused, and whether it was accepted
            (bool). Under a trace what is out of range is refused.

        Raises:
            TypeError: nothing is proved for a kind of request.
            ValueError: a concrete field of a request is out of range.
        """
        dtype = state.spent.total.dtype
        charges = self._charges(spent, dtype)
        after, ok = self._after(state, charges)
        if admitted is not None:
            had, asked = self._sum(charges, dtype), self._sum(self._charges(admitted, dtype), dtype)
            near = 1 + 8 * float(jnp.finfo(dtype).eps)
            ok &= (had[0] <= asked[0] * near) & (had[1] <= asked[1] * near)
        return jax.tree.map(functools.partial(jnp.where, ok), after, state), ok

    def smallest_time(self, state: FilterState, kind: type, sensitivity: ArrayLike = 1.0) -> Array:
        """Smallest time at which a round of `kind` is still admitted, rounded to more noise.

        Args:
            state: of this filter.
            kind: class of the request, one that is rewound.
            sensitivity: of the value, > 0, as in a request of that kind.

        Returns:
            A time (scalar): where it is finite, `admits(state, kind(sensitivity, time))` is true;
            infinite where nothing is left.

        Raises:
            TypeError: `kind` is not one that is rewound under this filter.
            ValueError: a concrete `sensitivity` is not positive and finite.
        """
        times = self._times()
        if not (isinstance(kind, type) and issubclass(kind, tuple(times))):
            raise TypeError(
                f"{getattr(kind, '__name__', kind)}: a smallest time under {type(self).__name__} "
                f"is known for {names(times)}"
            )
        number = concrete(sensitivity)
        if number is not None:
            ok = (number > 0) & np.isfinite(number)
            check(ok, "sensitivity", sensitivity, "positive and finite")
        left = self.remaining(state)
        # As a request will have it, which is refused where it is out of range of the dtype.
        size = jnp.asarray(sensitivity, left.dtype)
        usable = (size >= float(jnp.finfo(left.dtype).tiny)) & (size < jnp.inf)
        time = find(kind, times, type(self).__name__, {})(left, jnp.where(usable, size, 1))
        return jnp.where(usable, time, jnp.inf)
