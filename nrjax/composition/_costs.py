"""The cost of each kind of request, and the smallest time that a budget allows.

`docs/proofs/composition.md` has the formulas with their proofs.
"""

import functools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.numerics import largest_divisor
from nrjax._base.pytrees import Pytree, static
from nrjax._base.sensitivities import split_relation
from nrjax._base.tracing import INLINE
from nrjax._base.validation import check, concrete_or_none
from nrjax.composition import certificates, requests
from nrjax.composition._state import least_cost
from nrjax.guarantees._rounding import round_up

Cost = Callable[..., Array]
"""A function from a request's `argument`, and the cap if the request has one, to a cost."""


def round_cost_up(raw: Array, argument: Array, ulps: int) -> Array:
    """Return a cost enlarged by `ulps` machine epsilons, and 0 only where `argument` is 0."""
    return jnp.where(argument == 0, 0, round_up(raw, ulps))


def cast_up(value: ArrayLike, dtype: Any) -> Array:
    """Cast a scalar `value >= 0`: the result is never smaller, and 0 only if the value is 0.

    A traced value grows by two machine epsilons, since it may be a Python number that was rounded
    to the nearest float when it was passed to a compiled function.
    """
    limits = jnp.finfo(dtype)
    number = concrete_or_none(value)
    if number is not None:
        exact = float(number)
        with np.errstate(over="ignore", under="ignore"):
            cast = np.asarray(exact, dtype)
        if float(cast) < exact:
            cast = np.nextafter(cast, np.asarray(np.inf, dtype))
        return jnp.asarray(np.maximum(cast, limits.tiny) if exact > 0 else cast, dtype)
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(dtype)
    # Compared as integers, since subnormal numbers compare as 0.
    positive = jax.lax.bitcast_convert_type(array, f"int{8 * array.dtype.itemsize}") > 0
    grown = array.astype(dtype) * (1 + 2 * float(limits.eps))
    return jnp.where(positive, jnp.maximum(grown, float(limits.tiny)), 0)


def cast_down(value: float, dtype: Any) -> float:
    """Return the largest number of `dtype` up to `value >= 0`, or 0 if that is subnormal."""
    with np.errstate(over="ignore"):
        cast = np.asarray(value, np.float64).astype(dtype)
    if float(cast) > value:  # as float64: NumPy would compare with a Python number in dtype
        cast = np.nextafter(cast, np.asarray(-np.inf, dtype))
    return float(cast) if cast >= jnp.finfo(dtype).tiny else 0.0


def round_field_down(owner: Any, name: str) -> None:
    """Round a field of a new object down to the default float dtype, unless that makes it 0.

    A compiled function rounds Python numbers to the nearest float, which could be larger.
    """
    number = concrete_or_none(getattr(owner, name))
    if number is not None and number.ndim == 0:
        rounded = cast_down(float(number), jnp.result_type(float))
        if rounded > 0 and rounded != float(number):
            object.__setattr__(owner, name, rounded)


@np.errstate(over="ignore", under="ignore")  # numbers beyond the dtype become infinite
def argument(request: Any, dtype: Any) -> Array:
    """Return what a request's cost depends on: `D1/t`, `D2^2/t` or the request's first field.

    D1 and D2 are the l1- and the l2-sensitivity, and t is the time. `D1/t` is rounded up unless it
    is known to be exact. A first field is rounded up. `D2^2/t` is not, since its cost is rounded
    up. For discrete Laplace noise the result is an array of three numbers: `D1/t`, D1 and t.
    """
    if not hasattr(request, "noise"):
        return cast_up(next(request.fields())[2], dtype)
    size, time = jnp.asarray(request.sensitivity, dtype), jnp.asarray(request.time, dtype)
    if isinstance(request, requests.BrownianReduction):
        return size / time * size
    epsilon = size / time
    if not _is_quotient(epsilon, request.sensitivity, request.time):
        epsilon = round_up(epsilon, 4)
    if isinstance(request, requests.DiscreteLaplaceReduction):
        return jnp.stack([epsilon, size, time])
    return epsilon


def _is_quotient(result: Array, first: Any, second: Any) -> bool:
    """Return whether numbers are concrete, and the quotient of two is exactly the third."""
    known = [concrete_or_none(number) for number in (result, first, second)]
    if any(number is None or number.ndim for number in known):
        return False
    exact, a, b = (float(number) for number in known if number is not None)
    is_usable = 0 < exact < math.inf and 0 < a < math.inf and 0 < b < math.inf
    return is_usable and Fraction(exact) * Fraction(b) == Fraction(a)


def request_cost(cost: Cost, request: Any, dtype: Any) -> Array:
    """Return the cost of a request, by the function `cost`, or NaN if it exceeds its cap."""
    x, cap = argument(request, dtype), getattr(request, "cap", None)
    if cap is None:
        return cost(x)
    # The cap is made a little larger, since `D1/t` is rounded up.
    cap = cast_up(cap, dtype) * (1 + 16 * float(jnp.finfo(dtype).eps))
    return jnp.where(_first(x) <= cap, cost(x, cap), jnp.nan)


def _first(x: Array) -> Array:
    return x if x.ndim == 0 else x[0]


# (-1)^k/k! of kappa(e) = sum_(k>=2) (-e)^k/k!, highest power first.
_SERIES = [(-1) ** k / math.factorial(k) for k in range(20, 1, -1)]


def _kappa(epsilon: Array) -> Array:
    """Return `e - 1 + exp(-e)`, rounded up, where e is `epsilon`."""
    small = jnp.minimum(epsilon, 1)  # where the difference cancels
    series = small * small * jnp.polyval(jnp.asarray(_SERIES, epsilon.dtype), small)
    kappa = jnp.where(epsilon < 1, series, epsilon + jnp.expm1(-epsilon))
    return round_cost_up(kappa, epsilon, 16)


def _squared_mu(x: Array, centre: Array, tail: Array) -> Array:
    """Return `mu^2` for `mu = 2 Phi^-1(1 - tail)`, rounded up, where `centre = 1 - 2 tail`."""
    # Phi(z) = 1/2 + erf(z/sqrt(2))/2, precise for small x.
    near = 2 * math.sqrt(2) * jax.scipy.special.erfinv(centre)
    mu = jnp.where(x < 2, near, -2 * jax.scipy.special.ndtri(tail))
    # In float32 the two lose up to 10 machine epsilons, in float64 up to 30.
    return round_cost_up(mu * mu, x, 64)


@functools.partial(jax.jit, inline=INLINE)
def squared_mu_of_odds(x: Array) -> Array:
    """Return squared mu for `tail = 1/(1 + exp(x))`, infinite where exp(x) overflows."""
    return _squared_mu(x, jnp.tanh(0.5 * jnp.minimum(x, 2)), 1 / (1 + jnp.exp(jnp.maximum(x, 2))))


@functools.partial(jax.jit, inline=INLINE)
def _squared_mu_of_laplace(x: Array) -> Array:
    """Return mu^2, rounded up, of the Gaussian privacy (mu-GDP) of Laplace noise.

    With `x = D1/t` and `tail = exp(-x/2)/2`, mu is `-2 Phi^-1(tail)`.
    """
    centre = -jnp.expm1(-0.5 * jnp.minimum(x, 2))
    return _squared_mu(x, centre, 0.5 * jnp.exp(-0.5 * jnp.maximum(x, 2)))


ZCDP_COSTS: Mapping[type, Cost] = {
    requests.ZCDP: lambda rho: rho,
    requests.GDP: lambda mu: round_cost_up(0.5 * mu * mu, mu, 4),
    requests.BoundedRange: lambda epsilon: round_cost_up(0.125 * epsilon * epsilon, epsilon, 4),
    requests.Pure: lambda epsilon: round_cost_up(epsilon * jnp.tanh(0.5 * epsilon), epsilon, 16),
    requests.LaplaceMechanism: _kappa,
}
"""Costs in zCDP (rho), by kind of request."""

UNIFIED_COSTS: Mapping[type, Cost] = {
    **ZCDP_COSTS,
    requests.BrownianReduction: lambda squared: round_up(0.5 * squared, 12),
}
"""Costs in zCDP (rho), by kind of request, with Brownian noise reduction up to its stop."""

GDP_COSTS: Mapping[type, Cost] = {
    requests.BrownianReduction: lambda squared: round_up(squared, 12),
    requests.GDP: lambda mu: round_cost_up(mu * mu, mu, 4),
    requests.BoundedRange: lambda epsilon: squared_mu_of_odds(0.5 * epsilon),
    requests.Pure: squared_mu_of_odds,
    requests.LaplaceMechanism: _squared_mu_of_laplace,
}
"""Costs in Gaussian DP (squared mu), by kind of request."""

_BOUNDED = requests.ExPost, requests.Pure, requests.BoundedRange, requests.LaplaceMechanism
EX_POST_COSTS: Mapping[type, Cost] = dict.fromkeys(
    (*_BOUNDED, *requests.LAPLACE), lambda x, cap=None: _first(x)
)
"""Costs in ex-post epsilon, by kind of request.

The privacy loss exceeds the epsilon with probability at most the request's delta.
"""

# Each is compiled once, so that plain Python does not wait for every operation.
_CERTIFICATES = {
    kind: jax.jit(certificate, inline=INLINE)
    for kind, certificate in (
        (requests.LaplaceReduction, certificates.laplace_reduction),
        (requests.LaplaceMechanism, certificates.laplace_mechanism),
        (requests.Pure, certificates.pure),
        (requests.ExPost, lambda order, epsilon: epsilon),
        (requests.DiscreteLaplaceReduction, certificates.discrete_laplace_reduction),
    )
}
_capped = jax.jit(certificates.capped, inline=INLINE)


def renyi_costs(order: ArrayLike) -> Mapping[type, Cost]:
    """Return the costs in Rényi divergence at an order, by kind of request."""

    def from_rho(rho_of: Cost, x: Array) -> Array:
        rho = rho_of(x)
        a = jnp.asarray(order, rho.dtype)
        a = jnp.where((a > 1) & (a < jnp.inf), a, jnp.inf)  # a traced order is unchecked
        return round_cost_up(a * rho, rho, 2)

    def certified(certificate: Any, x: Array, cap: Array | None = None) -> Array:
        a = jnp.asarray(order, x.dtype)
        if cap is not None:
            return _capped(a, _first(x), cap)
        return certificate(a, x) if x.ndim == 0 else certificate(a, *x[1:])

    # A kind with its own certificate is not charged by its rho.
    costs = {kind: functools.partial(from_rho, rho_of) for kind, rho_of in UNIFIED_COSTS.items()}
    return costs | {kind: functools.partial(certified, of) for kind, of in _CERTIFICATES.items()}


def time_of_square(left: Array, sensitivity: Array, factor: ArrayLike = 1.0) -> Array:
    """Return the smallest time with `factor sensitivity^2/time <= left`, rounded up."""
    time = sensitivity / (left / factor) * sensitivity * (1 + 24 * float(jnp.finfo(left.dtype).eps))
    return _usable_time(time, left)


def time_of_epsilon(epsilon: Array, left: Array, sensitivity: Array, ulps: int) -> Array:
    """Return the smallest time with `sensitivity/time <= epsilon`, rounded up."""
    time = sensitivity / epsilon * (1 + ulps * float(jnp.finfo(left.dtype).eps))
    return _usable_time(time, jnp.minimum(left, epsilon))


def _usable_time(time: Array, left: Array) -> Array:
    """Return a time that is large enough for a request, or infinity if no budget is left."""
    time = jnp.maximum(time, 4 * float(jnp.finfo(time.dtype).tiny))
    return jnp.where((left > 0) & (time <= largest_divisor(time.dtype)), time, jnp.inf)


def find(kind: Any, table: Mapping[type, Any], owner: str, what: str = "proof") -> Any:
    """Return the entry for `kind` in a table, or raise a `TypeError` if there is none."""
    if kind in table:
        return table[kind]
    name = getattr(kind, "__name__", type(kind).__name__)
    raise TypeError(
        f"{owner} has no {what} for {name}, only for {requests.names(table)}. RenyiFilter takes "
        "every kind with delta 0, ExPostFilter every kind that states an epsilon"
    )


def check_no_delta(request: Any, owner: str) -> None:
    """Raise a `ValueError` if a request has a concrete delta that is not 0."""
    delta = getattr(request, "delta", 0.0)
    expected = f"0 for {owner}, which has no proof for approximate mechanisms"
    known = concrete_or_none(delta)
    check(known is None or known == 0, f"{type(request).__name__}.delta", delta, expected)


class CostModel(Pytree):
    """The common base of filters and odometers: the kinds of requests and their costs.

    Attributes:
        relation: relation of the neighbours, "replace", "add-remove" or the name of a group of rows
            (`nrjax.Sensitivity`; static). Requests that state another relation are refused.
    """

    relation: str = static(default="replace", kw_only=True)
    _units: ClassVar[tuple[str, ...]] = ("budget",)
    """Names of the cost units: the budget's, then delta's if requests may have a delta."""
    _cost_table: ClassVar[Mapping[type, Cost]] = {}
    _fixed_field: ClassVar[str] = ""
    """Name of a field that is fixed before the first release, such as an order."""
    takes_caps: ClassVar[bool] = False
    """Whether a cap makes a request cheaper."""

    def __post_init__(self):
        split_relation(self.relation)

    def _costs(self) -> Mapping[type, Cost]:
        """Return the supported kinds of requests, with their costs."""
        return self._cost_table

    def _charge(self, request: Any, dtype: Any) -> Array:
        """Return the cost of a request, shape (units,), or NaN if it is traced and out of range."""
        owner, has_delta = type(self).__name__, len(self._units) == 2
        cost = find(type(request), self._costs(), owner)
        expected = f"{self.relation!r}, that of the {owner}"
        hint = "Make the filter or odometer with relation=..., and all requests for that relation."
        known = request.relation in (None, self.relation)
        check(known, "relation of the request", request.relation, expected, hint)
        request.check_single()
        if not has_delta:
            check_no_delta(request, owner)
        delta = cast_up(getattr(request, "delta", 0.0), dtype)
        ok = request.well_formed(dtype) & (has_delta | (delta == 0))
        charge = jnp.where(ok, request_cost(cost, request, dtype), jnp.nan)
        charge = jnp.stack([charge, delta] if has_delta else [charge])
        return jnp.where(charge > 0, jnp.maximum(charge, least_cost(dtype)), charge)
