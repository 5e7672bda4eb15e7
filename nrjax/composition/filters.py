"""Privacy filters: stop an analyst before a budget is overspent.

`docs/proofs/composition.md` has the proofs, and compares the costs.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.pytrees import static
from nrjax._base.sensitivities import check_norm
from nrjax._base.validation import (
    check,
    check_normal,
    check_numbers,
    check_positive,
    concrete_or_none,
    float_if_large,
)
from nrjax.composition import _costs as costs
from nrjax.composition import conversions, requests
from nrjax.composition._ledger import Ledger
from nrjax.composition._state import LedgerState
from nrjax.composition.conversions import PROBABILITY
from nrjax.composition.requests import Range


class BudgetFilter(Ledger):
    """The base class of filters with one budget of epsilon's kind and, for some, one of delta.

    Attributes:
        budget: the budget in the filter's cost unit, computed from the other fields, which must
            be concrete numbers when the filter is made.
        precision: name of the dtype that the budget was rounded down to (static).
    """

    budget: Any = dataclasses.field(default=None, init=False)
    precision: Any = static(default=None, init=False, repr=False)
    _times: ClassVar[Mapping[type, Callable[[Any, Array, Array], Array]]] = {}
    """Functions that return the smallest time, by kind of request that can be rewound.

    The arguments of a function are the filter, the unspent budget and a sensitivity.
    """
    _delta: ClassVar[Range] = PROBABILITY

    @abc.abstractmethod
    def _budget(self) -> float:
        """Return the budget, rounded down in float64 on the host."""

    def _check(self) -> None:
        """Check the fields other than epsilon and delta."""

    def __post_init__(self: Any):
        super().__post_init__()
        fits, expected = lambda n: np.isfinite(n) & (n > 0), "positive and finite"
        budget = check_numbers("epsilon", self.epsilon, fits, expected)
        if budget is not None:  # a larger one than the dtype holds is rounded down
            check_normal("epsilon", self.epsilon, np.minimum(budget, 1))
        check_numbers("delta", self.delta, *self._delta)
        self._check()
        for name in self._units[1:]:
            costs.round_field_down(self, name)
        hint = "To map over filters, stack them leaf by leaf."
        for field in dataclasses.fields(self):
            if field.init and not field.metadata.get("static"):
                number = concrete_or_none(value := getattr(self, field.name))
                single = number is not None and number.ndim == 0
                check(single, field.name, value, "a single concrete number", hint)
        dtype = jnp.result_type(float)
        object.__setattr__(self, "budget", costs.cast_down(self._budget(), dtype))
        object.__setattr__(self, "precision", str(dtype))
        object.__setattr__(self, "epsilon", float_if_large(self.epsilon))

    def _dtype(self) -> Any:
        limits = [jnp.result_type(getattr(self, name), float) for name in self._units]
        dtype = min(limits, key=lambda dtype: dtype.itemsize)
        wide = dtype.itemsize >= np.dtype(self.precision).itemsize
        expected = f"made in {dtype}, in which it is used"
        hint = "Another rounding may enlarge its budget."
        check(wide, type(self).__name__, f"made in {self.precision}", expected, hint)
        return dtype

    def _limits(self, dtype: Any) -> Array:
        self._dtype()
        wide = jnp.dtype(dtype).itemsize >= np.dtype(self.precision).itemsize
        hint = "Another rounding may enlarge the filter's budget. Make a new state."
        check(wide, "state", f"a state of {dtype}", f"of the filter's dtype {self.precision}", hint)
        return jnp.stack([jnp.asarray(getattr(self, name), dtype) for name in self._units])

    def remaining_delta(self, state: LedgerState) -> Array:
        """Return the delta that requests can still spend, rounded down so that it still fits."""
        left = self._left(state, None)
        return left[1] if len(self._units) == 2 else jnp.zeros_like(left[0])

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        time_for = costs.find(kind, self._times, type(self).__name__, "smallest time")
        check_norm(sensitivity, kind.noise)  # pyright: ignore[reportAttributeAccessIssue]
        check_positive("sensitivity", sensitivity)
        # A request refuses a sensitivity that is out of range of the dtype.
        size = jnp.asarray(sensitivity, left.dtype)
        usable = (size > float(jnp.finfo(left.dtype).tiny)) & (size < jnp.inf)
        return jnp.where(usable, time_for(self, left, jnp.where(usable, size, 1)), jnp.inf)


class _ConcentratedFilter(BudgetFilter):
    epsilon: ArrayLike
    delta: ArrayLike
    approximation: ArrayLike = 0.0
    conversion: str = static(default="standard")
    _units = ("budget", "approximation")

    def _check(self) -> None:
        conversions.check_conversion(self.conversion)
        if (delta := concrete_or_none(self.delta)) is not None:
            check_numbers(
                "approximation",
                self.approximation,
                lambda part: (part >= 0) & (part < delta),
                "at least 0 and below delta, of which it is a part",
            )

    def _budget(self) -> float:
        # The part of delta that is left for the conversion, rounded down.
        left = (float(self.delta) - float(self.approximation)) * (1 - 1e-15)  # pyright: ignore
        return conversions.zcdp_for(float(self.epsilon), left, self.conversion)  # pyright: ignore


class ZCDPFilter(_ConcentratedFilter):
    """A filter for adaptively chosen, approximate zCDP mechanisms (Rogers 2023, Theorem 2).

    The admitted mechanisms together are `approximation`-approximate `budget`-zCDP, and therefore
    (epsilon, delta)-differentially private. Costs are in rho. Use `UnifiedFilter` for noise
    reduction, and `GaussianFilter`, whose budget is larger, for Gaussian mechanisms only.

    Requests: `ZCDP`, `GDP`, `BoundedRange`, `Pure` and `LaplaceMechanism`.

        >>> filter = nrjax.ZCDPFilter(epsilon=1.0, delta=1e-6)
        >>> state, ok = filter.take(filter.init(), nrjax.composition.ZCDP(rho=0.01))
        >>> bool(ok), round(float(filter.remaining(state)), 4)
        (True, 0.0075)

    Attributes:
        epsilon: epsilon of the whole guarantee, > 0.
        delta: delta of the whole guarantee, in (0, 1).
        approximation: the part of delta kept for the requests' own deltas, in [0, delta).
        conversion: "standard", `epsilon = rho + 2 sqrt(rho log(1/delta))` as in the paper, or
            "renyi", a larger rho for the same epsilon (`conversions.epsilon_of_zcdp`).
        budget: largest sum of costs, a rho; computed.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    _cost_table = costs.ZCDP_COSTS


class UnifiedFilter(_ConcentratedFilter):
    """A filter for zCDP mechanisms and Brownian noise reduction (Rogers 2023, Theorem 6).

    It extends `ZCDPFilter` by rounds of Brownian noise reduction. A round costs a rho of
    `D2^2/(2t)`, where D2 is the l2-sensitivity and t the time at which the round stops. Every
    rewind must be admitted before it is made. For Brownian rounds only, `GaussianFilter` has a
    larger budget. The printed theorem has `2 sqrt(2 rho log(1/delta))` in place of
    `2 sqrt(rho log(1/delta))`, which its proof gives.

    Requests: those of `ZCDPFilter`, and `BrownianReduction`.

        >>> filter = nrjax.UnifiedFilter(epsilon=1.0, delta=1e-6)
        >>> state, kind = filter.init(), nrjax.composition.BrownianReduction
        >>> time = filter.smallest_time(state, kind, sensitivity=1.0)
        >>> state, ok = filter.spend(state, kind(1.0, 2 * time))
        >>> bool(ok), round(float(filter.remaining(state) / filter.budget), 4)
        (True, 0.5)

    Attributes:
        epsilon: epsilon of the whole guarantee, > 0.
        delta: delta of the whole guarantee, in (0, 1).
        approximation: the part of delta kept for the requests' own deltas, in [0, delta).
        conversion: "standard", `epsilon = rho + 2 sqrt(rho log(1/delta))` as in the paper, or
            "renyi", a larger rho for the same epsilon (`conversions.epsilon_of_zcdp`).
        budget: largest sum of costs, a rho; computed.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    _cost_table = costs.UNIFIED_COSTS
    _times: ClassVar[Any] = {
        requests.BrownianReduction: lambda _, left, size: costs.time_of_square(2 * left, size)
    }


class GaussianFilter(BudgetFilter):
    """A filter for Brownian noise reduction and mu-GDP mechanisms, with exact accounting.

    A Brownian round has l2-sensitivity D2 and stops at time t. If `sum D2^2/t <= mu^2` with
    probability 1, the rounds together are mu-GDP. Their delta at an epsilon e is
    `Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)`, which cannot be improved (proof in
    statement 27 of `docs/proofs`, not in the papers). Costs are in `mu^2`. At epsilon 10 and delta
    1e-6 the budget is 3.4156, and `2 rho = 2.7060` in `UnifiedFilter`.

    Requests: `BrownianReduction`, every rewind of which must be admitted before it is made, `GDP`,
    `BoundedRange`, `Pure` and `LaplaceMechanism`.

        >>> filter = nrjax.GaussianFilter(epsilon=1.0, delta=1e-6)
        >>> state, ok = filter.take(filter.init(), nrjax.composition.GDP(mu=0.1))
        >>> bool(ok), round(float(filter.remaining(state)), 4)
        (True, 0.046)

    Attributes:
        epsilon: epsilon of the whole guarantee, > 0.
        delta: delta of the whole guarantee, in (0, 1).
        budget: largest sum of costs, a `mu^2`; computed.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    epsilon: ArrayLike
    delta: ArrayLike
    _cost_table = costs.GDP_COSTS
    _times: ClassVar[Any] = {
        requests.BrownianReduction: lambda _, left, size: costs.time_of_square(left, size)
    }

    def _budget(self) -> float:
        return conversions.gdp_for(float(self.epsilon), float(self.delta)) ** 2 * (1 - 1e-15)  # pyright: ignore


class ExPostFilter(BudgetFilter):
    """A filter for ex-post private mechanisms, whose epsilons add up (Rogers 2023, Lemma 5.2).

    A mechanism may start only if its largest possible epsilon fits into the unspent budget. When it
    stops, its actual epsilon is charged, and its delta. The mechanisms together are (epsilon,
    delta)-differentially private. Costs are in epsilon. Use `RenyiFilter` for many small rounds,
    whose total cost grows more slowly there. Quotients and sums are rounded up unless they are
    exact: four requests of 1/4 fit into 1, but ten of 0.1 may be one too many. Request
    `epsilon / n * (1 - 1e-5)`.

    Guarantees of every notion are charged as `ExPost` (`docs/proofs/hockey-stick.md`). If all
    guarantees are probabilistic or pure, the total loss exceeds epsilon with probability at most
    delta. With a hockey-stick guarantee the probability may be larger.

    Requests: `ExPost`, and with delta 0 `Pure`, `BoundedRange` (a loss in an interval of length
    epsilon that contains 0), `LaplaceMechanism`, `LaplaceReduction` and `DiscreteLaplaceReduction`.
    The epsilon of the Laplace kinds is `D1/t`: l1-sensitivity divided by time.

        >>> filter = nrjax.ExPostFilter(epsilon=1.0, delta=1e-6)
        >>> state, ok = filter.take(filter.init(), nrjax.composition.ExPost(0.25, delta=1e-7))
        >>> bool(ok), round(float(filter.remaining(state)), 4)
        (True, 0.75)
        >>> ten = [(nrjax.composition.Pure(size),) * 10 for size in (0.1, 0.1 * (1 - 1e-5))]
        >>> [bool(filter.admits(filter.init(), requests)) for requests in ten]
        [False, True]

    Attributes:
        epsilon: epsilon of the whole guarantee, > 0.
        delta: delta of the whole guarantee, in [0, 1); rounded down to the default float dtype.
        budget: largest sum of costs, an epsilon; computed.
        relation: relation of the neighbours, such as "replace" or "add-remove" (static).
    """

    epsilon: ArrayLike
    delta: ArrayLike = 0.0
    _cost_table = costs.EX_POST_COSTS
    _times: ClassVar[Any] = dict.fromkeys(
        requests.LAPLACE, lambda _, left, size: costs.time_of_epsilon(left, left, size, 16)
    )
    _units = ("budget", "delta")
    _stopped = (object,)
    _delta = requests.FRACTION

    def _budget(self) -> float:
        return np.asarray(self.epsilon).item()  # an integer stays exact, to be rounded down
