"""What the filters of one budget share: prices, and a budget made on the host."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check, check_positive, concrete
from nrjax.composition._ledger import Ledger
from nrjax.composition._spending import enlarged, limit, rounded_down
from nrjax.composition._state import LedgerState
from nrjax.composition.requests import names
from nrjax.pytrees import static
from nrjax.sensitivities import check_norm

Cost = Callable[[Any, Any], Array]
"""From a request and a dtype to its cost in the filter's currency, rounded up."""


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
    request.check_single()
    share = getattr(request, "delta", 0.0)
    if not takes_delta:
        check_no_delta(request, type(owner).__name__)
    ok = request.well_formed(dtype)
    share = enlarged(share, dtype)
    if not takes_delta:
        ok &= share == 0
    return jnp.where(ok, price(request, dtype), jnp.nan), share


class BudgetFilter(Ledger):
    """A privacy filter whose budget is one number, and perhaps a share of delta beside it."""

    budget: Any = dataclasses.field(default=None, init=False)
    precision: Any = static(default=None, init=False)
    """The dtype that the budget was rounded down to, by name."""
    _reasons: ClassVar[Mapping[type, str]] = {}
    _refunded = (True,)
    _prices: ClassVar[Mapping[type, Cost]] = {}
    """What requests cost, by kind."""
    _times: ClassVar[Mapping[type, Callable[[Any, Array, ArrayLike], Array]]] = {}
    """For the kinds that are rewound: from the filter, what is left and a sensitivity to a time."""

    @abc.abstractmethod
    def _budget(self) -> float:
        """The budget on the host, in float64, rounded down; from concrete fields alone."""

    def _costs(self) -> Mapping[type, Cost]:
        return self._prices

    def _share(self) -> ArrayLike | None:
        """What the requests' own deltas may add up to; None where none has a proof."""
        return None

    def _settle(self, *fields: str) -> None:
        """Compute the budget, at construction.

        Args:
            fields: names of the fields that it depends on.

        Raises:
            ValueError: one of them is not a single concrete number.
        """
        for name in fields:
            value = getattr(self, name)
            number = concrete(value)
            right = (
                "a single concrete number, from which the budget is computed on the host; to map "
                "over filters stack them, with "
                "jax.tree.map(lambda *leaf: jnp.stack(leaf), first, second)"
            )
            check(number is not None and number.ndim == 0, name, value, right)
        dtype = jnp.result_type(float)
        object.__setattr__(self, "budget", rounded_down(self._budget(), dtype))
        object.__setattr__(self, "precision", str(dtype))

    def _dtype(self) -> Any:
        dtype = jnp.result_type(self.budget, float)
        wide = dtype.itemsize >= np.dtype(self.precision).itemsize
        right = f"made in {dtype}, in which it is used: another rounding may enlarge its budget"
        check(wide, type(self).__name__, f"made in {self.precision}", right)
        return dtype

    def _limits(self, dtype: Any) -> Array:
        self._dtype()
        share = self._share()
        limits = [self.budget] if share is None else [self.budget, share]
        return jnp.stack([limit(value, dtype) for value in limits])

    def _charge(self, request: Any, dtype: Any) -> Array:
        takes_delta = self._share() is not None
        more, share = charge(self, request, dtype, takes_delta)
        return jnp.stack([more, share] if takes_delta else [more])

    def _main(self, values: Array) -> Array:
        return values[0]

    def remaining_delta(self, state: LedgerState) -> Array:
        """What is left for the requests' own deltas, rounded down so that it still fits. Scalar."""
        left = self._left(state, None)
        return left[1] if self._share() is not None else jnp.zeros_like(left[0])

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        if not (isinstance(kind, type) and issubclass(kind, tuple(self._times))):
            raise TypeError(
                f"{getattr(kind, '__name__', kind)}: a smallest time under {type(self).__name__} "
                f"is known for {names(self._times)}"
            )
        check_norm(sensitivity, kind.noise)  # pyright: ignore[reportAttributeAccessIssue]
        check_positive("sensitivity", sensitivity)
        # As a request will have it, which is refused where it is out of range of the dtype.
        size = jnp.asarray(sensitivity, left.dtype)
        usable = (size >= float(jnp.finfo(left.dtype).tiny)) & (size < jnp.inf)
        smallest = find(kind, self._times, type(self).__name__, {})
        time = smallest(self, left, jnp.where(usable, size, 1))
        return jnp.where(usable, time, jnp.inf)
