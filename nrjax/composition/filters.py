"""Privacy filters of one budget; `docs/composition.md` says why they hold, and at what costs."""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._validation import check, check_numbers, check_positive, concrete_or_none
from nrjax.composition import _prices as prices
from nrjax.composition import conversions, requests
from nrjax.composition._ledger import Ledger
from nrjax.composition._spending import limit, rounded_down, settle
from nrjax.composition._state import LedgerState
from nrjax.composition.conversions import PROBABILITY
from nrjax.composition.requests import Range
from nrjax.guarantees._rounding import round_up
from nrjax.pytrees import static
from nrjax.sensitivities import check_norm


class BudgetFilter(Ledger):
    """A privacy filter whose budget is one number, and perhaps a share of delta beside it."""

    budget: Any = dataclasses.field(default=None, init=False)
    """In the filter's currency; made at construction, when all else must be concrete."""
    precision: Any = static(default=None, init=False)
    """The dtype that the budget was rounded down to, by name."""
    _times: ClassVar[Mapping[type, Callable[[Any, Array, Array], Array]]] = {}
    """For the kinds that are rewound: from the filter, what is left and a sensitivity to a time."""
    _delta: ClassVar[Range] = PROBABILITY

    @abc.abstractmethod
    def _budget(self) -> float:
        """The budget on the host, in float64, rounded down; from concrete fields alone."""

    def _check(self) -> None:
        """Check what a filter has beside epsilon and delta."""

    def __post_init__(self: Any):
        check_positive("epsilon", self.epsilon)
        check_numbers("delta", self.delta, *self._delta)
        self._check()
        for name in self._currencies[1:]:
            settle(self, name)
        right = "a single concrete number; to map over filters stack them, leaf by leaf"
        for field in dataclasses.fields(self):
            if field.init and not field.metadata.get("static"):
                number = concrete_or_none(value := getattr(self, field.name))
                check(number is not None and number.ndim == 0, field.name, value, right)
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
        return jnp.stack([limit(getattr(self, name), dtype) for name in self._currencies])

    def remaining_delta(self, state: LedgerState) -> Array:
        """What is left for the requests' own deltas, rounded down so that it still fits. Scalar."""
        left = self._left(state, None)
        return left[1] if len(self._currencies) == 2 else jnp.zeros_like(left[0])

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        owner = type(self).__name__
        if not (isinstance(kind, type) and issubclass(kind, tuple(self._times))):
            raise TypeError(
                f"{getattr(kind, '__name__', kind)}: a smallest time under {owner} is known for "
                f"{requests.names(self._times)}"
            )
        check_norm(sensitivity, kind.noise)  # pyright: ignore[reportAttributeAccessIssue]
        check_positive("sensitivity", sensitivity)
        # As a request will have it, which is refused where it is out of range of the dtype.
        size = jnp.asarray(sensitivity, left.dtype)
        usable = (size >= float(jnp.finfo(left.dtype).tiny)) & (size < jnp.inf)
        time = prices.find(kind, self._times, owner, {})(self, left, jnp.where(usable, size, 1))
        return jnp.where(usable, time, jnp.inf)


class _ConcentratedFilter(BudgetFilter):
    epsilon: ArrayLike
    """Of the whole guarantee, > 0."""
    delta: ArrayLike
    """Of the whole guarantee, in (0, 1)."""
    approximation: ArrayLike = 0.0
    """The part of delta kept for the requests' own deltas, in [0, delta)."""
    conversion: str = static(default="standard")
    """"standard", `epsilon = rho + 2 sqrt(rho log(1/delta))`, as in the paper, or "renyi", a
    smaller epsilon for the same rho (`conversions.epsilon_of_zcdp`)."""
    _currencies = ("budget", "approximation")
    _refunded = (True, False)

    def _check(self) -> None:
        conversions.check_conversion(self.conversion)
        kept, delta = concrete_or_none(self.approximation), concrete_or_none(self.delta)
        if kept is not None and delta is not None:
            right = "at least 0 and below delta, of which it is a part"
            check((kept >= 0) & (kept < delta), "approximation", self.approximation, right)

    def _budget(self) -> float:
        # Rounded down: what is left of delta for the conversion.
        left = (float(self.delta) - float(self.approximation)) * (1 - 1e-15)  # pyright: ignore
        return conversions.zcdp_for(float(self.epsilon), left, self.conversion)  # pyright: ignore


class ZCDPFilter(_ConcentratedFilter):
    """Adaptively chosen approximate zCDP mechanisms under one budget (Rogers 2023, Theorem 2).

    All that it accepts is together `approximation`-approximate `budget`-zCDP, hence
    (epsilon, delta)-differentially private. Its currency is rho. Requests: `ZCDP`, `GDP`,
    `BoundedRange`, `Pure` and `LaplaceMechanism`.
    """

    _prices = prices.ZCDP_COSTS
    _reasons: ClassVar[Mapping[type, str]] = {
        requests.BrownianReduction: "UnifiedFilter takes it",
        requests.ExPost: "ExPostFilter, or SideBySideFilter, takes it",
        **dict.fromkeys(requests.LAPLACE, "RenyiFilter takes it"),
    }


class UnifiedFilter(_ConcentratedFilter):
    """zCDP mechanisms and Brownian noise reduction under one budget (Rogers 2023, Theorem 6).

    As `ZCDPFilter`, with rounds of Brownian noise reduction at `D2^2/(2t)`, t
    the time at which they stop; every rewind must be admitted before it is made. `GaussianFilter`
    is better for these alone (Lemma 6.2). The theorem prints `2 sqrt(2 rho log(1/delta))` for
    `2 sqrt(rho log(1/delta))`, which its proof gives.
    """

    _prices = prices.UNIFIED_COSTS
    _reasons: ClassVar[Mapping[type, str]] = {
        requests.ExPost: "ExPostFilter, RenyiFilter or SideBySideFilter takes it",
        **dict.fromkeys(requests.LAPLACE, "RenyiFilter takes it"),
    }
    _times: ClassVar[Any] = {
        requests.BrownianReduction: lambda _, left, size: prices.time_of_square(2 * left, size)
    }


class GaussianFilter(BudgetFilter):
    """Brownian noise reduction and mu-GDP mechanisms under one budget, exactly.

    If `sum D2^2/t <= mu^2` surely, all of it together is mu-GDP, and its delta at epsilon is
    `Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)`, which cannot be improved. Not in the papers. Its
    currency is `mu^2`: 3.4156 at (10, 1e-6), where the unified filter has `2 rho = 2.7060`.

    Requests: `BrownianReduction`, every rewind of which must be admitted before it is made, `GDP`,
    `BoundedRange`, `Pure` and `LaplaceMechanism`.
    """

    epsilon: ArrayLike
    """Of the whole guarantee, > 0."""
    delta: ArrayLike
    """Of the whole guarantee, in (0, 1)."""
    _prices = prices.GDP_COSTS
    _reasons: ClassVar[Mapping[type, str]] = {
        requests.ZCDP: "zCDP bounds no trade-off curve by a Gaussian one; UnifiedFilter takes it",
        requests.ExPost: "ExPostFilter or RenyiFilter takes it",
        **dict.fromkeys(requests.LAPLACE, "RenyiFilter takes it"),
    }
    _times: ClassVar[Any] = {
        requests.BrownianReduction: lambda _, left, size: prices.time_of_square(left, size)
    }

    def _budget(self) -> float:
        return conversions.gdp_for(float(self.epsilon), float(self.delta)) ** 2 * (1 - 1e-15)  # pyright: ignore


class ExPostFilter(BudgetFilter):
    """Ex-post private mechanisms under one budget, by adding up (Rogers 2023, Lemma 5.2).

    A mechanism may be started only if the largest epsilon that may come out fits into what is left;
    the one that does come out is spent, and its delta, which is rounded up, and the filter's down.
    All of it together is then (epsilon, delta)-differentially private. Its currency is epsilon.
    Guarantees of either notion are spent as `ExPost` (`docs/frontier.md`). Where all are
    probabilistic, or pure, the loss of all together exceeds epsilon with probability at most delta;
    with one that is hockey-stick it may do so more often.

    Requests: `ExPost`, and with delta 0 `Pure`, `BoundedRange` (a loss in an interval of length
    epsilon that has 0 in it), `LaplaceMechanism`, `LaplaceReduction` and `DiscreteLaplaceReduction`
    (`D1/t`).
    """

    epsilon: ArrayLike
    """Of the whole guarantee, > 0."""
    delta: ArrayLike = 0.0
    """Of the whole guarantee, in [0, 1); rounded down to the default float dtype."""
    _prices = prices.EX_POST_COSTS
    _reasons = prices.EX_POST_REASONS
    _times: ClassVar[Any] = dict.fromkeys(
        requests.LAPLACE, lambda _, left, size: prices.time_of_epsilon(left, left, size, 16)
    )
    _currencies = ("budget", "delta")
    _refunded = (True, False)
    _stopped = (object,)
    _delta = requests.SHARE

    def _budget(self) -> float:
        return np.asarray(self.epsilon).item()  # an integer as it is, to be rounded down


def _sum_above(first: Any, second: Any) -> Any:
    """The sum, rounded up where it is of numbers and not exact."""
    known = [concrete_or_none(value) for value in (first, second)]
    if any(number is None or number.ndim for number in known):
        return round_up(jnp.asarray(first) + jnp.asarray(second), 1)
    one, other = (float(number) for number in known if number is not None)
    total = one + other
    above = Fraction(one) + Fraction(other) > Fraction(total)
    return math.nextafter(total, math.inf) if above else total


class SideBySideFilter(Ledger):
    """zCDP mechanisms beside ex-post private ones, each with its own budget (Rogers 2023, Thm 3).

    All of it together is (epsilon, delta)-differentially private, where epsilon and delta are the
    sums of the two filters', whichever notions its ex-post guarantees have. A request goes to the
    filter for zCDP if that has a proof for its kind, else to the other; of a tuple each part. Costs
    and what remains are pairs: in rho and in epsilon.
    """

    zcdp: ZCDPFilter | UnifiedFilter
    ex_post: ExPostFilter
    _refunded = (True, False, True, False)
    _budgets = slice(None, None, 2)

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

    def _costs(self) -> Mapping[type, prices.Price]:
        return {**self.zcdp._costs(), **self.ex_post._costs()}

    def _owner(self, kind: type) -> tuple[int, BudgetFilter]:
        """The filter that has a proof for a kind, and its number."""
        prices.find(kind, self._costs(), type(self).__name__, {})
        return (0, self.zcdp) if self.zcdp.takes(kind) else (1, self.ex_post)

    def _dtype(self) -> Any:
        return jnp.promote_types(self.zcdp._dtype(), self.ex_post._dtype())

    def _limits(self, dtype: Any) -> Array:
        return jnp.concatenate([self.zcdp._limits(dtype), self.ex_post._limits(dtype)])

    def _charge(self, request: Any, dtype: Any) -> Array:
        number, owner = self._owner(type(request))
        own = owner._charge(request, dtype)
        return jnp.concatenate([own, jnp.zeros_like(own)][:: 1 - 2 * number])

    def _smallest(self, left: Array, kind: type, sensitivity: ArrayLike) -> Array:
        number, owner = self._owner(kind)
        return owner._smallest(left[number], kind, sensitivity)
