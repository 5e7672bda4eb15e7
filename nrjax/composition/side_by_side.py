"""A filter that keeps one budget for zCDP and one for ex-post mechanisms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.sensitivities import shared_relation
from nrjax._base.validation import check, concrete_or_none
from nrjax.composition import _costs as costs
from nrjax.composition._ledger import Ledger
from nrjax.composition.filters import BudgetFilter, ExPostFilter, UnifiedFilter, ZCDPFilter
from nrjax.guarantees._rounding import round_up


def _sum_above(first: Any, second: Any) -> Any:
    """Return a sum, rounded up unless both numbers are concrete and their sum is exact."""
    known = [concrete_or_none(value) for value in (first, second)]
    if any(number is None or number.ndim for number in known):
        return round_up(jnp.asarray(first) + jnp.asarray(second), 1)
    a, b = (float(number) for number in known if number is not None)
    total = a + b
    exact = total == math.inf or Fraction(a) + Fraction(b) <= Fraction(total)
    return total if exact else math.nextafter(total, math.inf)


class SideBySideFilter(Ledger):
    """A filter with one budget for zCDP and one for ex-post mechanisms (Rogers 2023, Thm 3).

    The mechanisms together are (epsilon, delta)-differentially private: epsilon is the sum of the
    two filters' epsilons, and delta the sum of their deltas. A request, or each part of a tuple, is
    charged to the zCDP filter if that filter has a proof for its kind, else to the ex-post filter.
    `cost` and `remaining` return pairs of a rho and an epsilon. Use `RenyiFilter` to share one
    budget between both kinds.

        >>> zcdp, ex_post = nrjax.UnifiedFilter(1.0, 1e-6), nrjax.ExPostFilter(1.0, 1e-6)
        >>> filter = nrjax.SideBySideFilter(zcdp, ex_post)
        >>> state, ok = filter.take(filter.init(), nrjax.composition.ExPost(0.5))
        >>> [round(float(left), 4) for left in filter.remaining(state)]  # a rho and an epsilon
        [0.0175, 0.5]

    Attributes:
        zcdp: a `ZCDPFilter` or `UnifiedFilter`.
        ex_post: an `ExPostFilter`.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    zcdp: ZCDPFilter | UnifiedFilter
    ex_post: ExPostFilter
    _units = ("rho", "approximation", "epsilon", "delta")
    _budgets = slice(None, None, 2)

    def __post_init__(self):
        for name, valid in (("zcdp", (ZCDPFilter, UnifiedFilter)), ("ex_post", (ExPostFilter,))):
            value = getattr(self, name)
            expected = f"a {' or '.join(kind.__name__ for kind in valid)}"
            check(isinstance(value, valid), name, value, expected, "No other has a proof for it.")
        relation = shared_relation(zcdp=self.zcdp, ex_post=self.ex_post)
        same = self.relation in ("replace", relation)  # the first is the default
        hint = "Leave it out, or make both filters for it."
        check(same, "relation", self.relation, f"{relation!r}, that of the filters", hint)
        object.__setattr__(self, "relation", relation)

    @property
    def epsilon(self) -> Any:
        """The epsilon of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.epsilon, self.ex_post.epsilon)

    @property
    def delta(self) -> Any:
        """The delta of the whole guarantee, rounded up."""
        return _sum_above(self.zcdp.delta, self.ex_post.delta)

    def _costs(self) -> Mapping[type, costs.Cost]:
        return {**self.zcdp._costs(), **self.ex_post._costs()}

    def _owner(self, kind: type) -> tuple[int, BudgetFilter]:
        """Return the number (0 or 1) of the filter that has a proof for a kind, and the filter."""
        costs.find(kind, self._costs(), type(self).__name__)
        return (0, self.zcdp) if self.zcdp.takes(kind) else (1, self.ex_post)

    def _dtype(self) -> Any:
        return jnp.promote_types(self.zcdp._dtype(), self.ex_post._dtype())

    def _limits(self, dtype: Any) -> Array:
        return jnp.concatenate([self.zcdp._limits(dtype), self.ex_post._limits(dtype)])

    def _charge(self, request: Any, dtype: Any) -> Array:
        number, owner = self._owner(type(request))
        charge = owner._charge(request, dtype)
        return jnp.concatenate([charge, jnp.zeros_like(charge)][:: 1 - 2 * number])

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        number, owner = self._owner(kind)
        return owner._smallest(left[number], kind, sensitivity)
