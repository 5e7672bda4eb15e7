"""zCDP mechanisms and ex-post private ones, each kind in a budget of its own."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import check
from nrjax.composition._filter import BudgetFilter
from nrjax.composition._ledger import Ledger
from nrjax.composition.ex_post import ExPostFilter
from nrjax.composition.requests import names
from nrjax.composition.zcdp import UnifiedFilter, ZCDPFilter


def _sum_above(first: Any, second: Any) -> Any:
    """The sum, rounded up where it is of Python's numbers and not exact."""
    total = first + second
    if isinstance(total, float) and Fraction(first) + Fraction(second) > Fraction(total):
        return math.nextafter(total, math.inf)
    return total


class SideBySideFilter(Ledger):
    """zCDP mechanisms beside ex-post private ones, each with its own budget (Rogers 2023, Thm 3).

    All of it together is (epsilon, delta)-differentially private, where epsilon and delta are the
    sums of the two filters'. A request goes to the filter for zCDP if that has a proof for its
    kind, else to the other; of a tuple each part. Costs and what remains are pairs: in rho and in
    epsilon.

    Attributes:
        zcdp: a `ZCDPFilter` or `UnifiedFilter`.
        ex_post: an `ExPostFilter`.
    """

    zcdp: ZCDPFilter | UnifiedFilter
    ex_post: ExPostFilter
    _refunded = (True, False, True, False)

    def __post_init__(self):
        for name, valid in (("zcdp", (ZCDPFilter, UnifiedFilter)), ("ex_post", (ExPostFilter,))):
            value = getattr(self, name)
            right = f"a {' or '.join(kind.__name__ for kind in valid)}: no other has a proof for it"
            check(isinstance(value, valid), name, value, right)

    @property
    def epsilon(self) -> Any:
        """Epsilon of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.epsilon, self.ex_post.epsilon)

    @property
    def delta(self) -> Any:
        """Delta of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.delta, self.ex_post.delta)

    @property
    def _filters(self) -> tuple[BudgetFilter, BudgetFilter]:
        return self.zcdp, self.ex_post

    def _owner(self, kind: type) -> int:
        """Number of the filter that has a proof for a kind."""
        for number, one in enumerate(self._filters):
            if one.takes(kind):
                return number
        raise TypeError(
            f"{kind.__name__}: {type(self).__name__} has no proof for it, "
            f"but for {names(self._costs())}"
        )

    def _dtype(self) -> Any:
        return jnp.promote_types(*(one._dtype() for one in self._filters))

    def _limits(self, dtype: Any) -> Array:
        return jnp.concatenate([one._limits(dtype) for one in self._filters])

    def _costs(self) -> Mapping[type, Any]:
        return {**self.zcdp._costs(), **self.ex_post._costs()}

    def _charge(self, request: Any, dtype: Any) -> Array:
        owner = self._owner(type(request))
        own = self._filters[owner]._charge(request, dtype)
        return jnp.concatenate([own, jnp.zeros_like(own)][:: 1 - 2 * owner])

    def _main(self, values: Array) -> Array:
        return values[::2]

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        owner = self._owner(kind)
        return self._filters[owner]._smallest(left[owner], kind, sensitivity)
