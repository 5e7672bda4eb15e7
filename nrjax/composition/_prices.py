"""What each kind of request costs in each currency, rounded up, and the times that a rest allows.

The formulas are those of `docs/composition.md`, which proves them.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import largest_divisor
from nrjax._validation import check, concrete_or_none
from nrjax.composition import certificates, requests
from nrjax.composition._spending import cost, enlarged
from nrjax.pytrees import Pytree

Price = Callable[..., Array]
"""From the number that a request comes to (`argument`), and its cap where it has one, to its cost.
"""


def _first(x: Array) -> Array:
    """The epsilon of what `argument` gives."""
    return x if x.ndim == 0 else x[0]


def _positive(raw: Array, ulps: int) -> Array:
    """A cost of what is not free."""
    return cost(raw, jnp.ones((), raw.dtype), ulps)


def argument(request: Any, dtype: Any) -> Array:
    """`D1/t` or the first field, rounded up; of Brownian noise `D2^2/t` as it is.

    Not the square of `D2/sqrt(t)`, which XLA rounds in two ways, depending on what else is in the
    program; and by factors that stay within the range of the dtype where it does. Of discrete
    Laplace noise `D1/t`, D1 and t, on which its certificate depends.
    """
    if not hasattr(request, "noise"):
        return enlarged(next(iter(vars(request).values())), dtype)
    size, time = jnp.asarray(request.sensitivity, dtype), jnp.asarray(request.time, dtype)
    if isinstance(request, requests.BrownianReduction):
        return size / time * size
    epsilon = _positive(size / time, 4)
    if isinstance(request, requests.DiscreteLaplaceReduction):
        return jnp.stack([epsilon, size, time])
    return epsilon


def priced(price: Price, request: Any, dtype: Any) -> Array:
    """What a request costs by the price of its kind; NaN above its cap."""
    x, cap = argument(request, dtype), getattr(request, "cap", None)
    if cap is None:
        return price(x)
    # One cap for all that comes: a little larger, since `D1/t` is rounded up.
    cap = enlarged(cap, dtype) * (1 + 16 * float(jnp.finfo(dtype).eps))
    return jnp.where(_first(x) <= cap, price(x, cap), jnp.nan)


# (-1)^k/k! of kappa(e) = sum_(k>=2) (-e)^k/k!, the highest first.
_SERIES = [(-1) ** k / math.factorial(k) for k in range(20, 1, -1)]


def _kappa(epsilon: Array) -> Array:
    """`e - 1 + exp(-e)`."""
    small = jnp.minimum(epsilon, 1)  # where the difference cancels
    series = small * small * jnp.polyval(jnp.asarray(_SERIES, epsilon.dtype), small)
    kappa = jnp.where(epsilon < 1, series, epsilon + jnp.expm1(-epsilon))
    return cost(kappa, epsilon, 16)


def _squared_mu(x: Array, centre: Array, tail: Array) -> Array:
    """`mu^2`, `mu = 2 Phi^-1(1 - tail)`, rounded up; `centre` is `1 - 2 tail`, precise near 0."""
    # Phi(z) = 1/2 + erf(z/sqrt(2))/2.
    near = 2 * math.sqrt(2) * jax.scipy.special.erfinv(centre)
    mu = jnp.where(x < 2, near, -2 * jax.scipy.special.ndtri(tail))
    # In float32 the two lose up to 10 machine epsilons, in float64 up to 30.
    return cost(mu * mu, x, 64)


@functools.partial(jax.jit, inline=True)
def squared_mu_of_odds(x: Array) -> Array:
    """Of `tail = 1/(1 + exp(x))`; infinite where exp(x) is too large."""
    return _squared_mu(x, jnp.tanh(0.5 * jnp.minimum(x, 2)), 1 / (1 + jnp.exp(jnp.maximum(x, 2))))


@functools.partial(jax.jit, inline=True)
def _squared_mu_of_laplace(x: Array) -> Array:
    """For `tail = exp(-x/2)/2`, that of Laplace noise with `x = D1/t`; infinite for large x."""
    centre = -jnp.expm1(-0.5 * jnp.minimum(x, 2))
    return _squared_mu(x, centre, 0.5 * jnp.exp(-0.5 * jnp.maximum(x, 2)))


ZCDP_COSTS: Mapping[type, Price] = {
    requests.ZCDP: lambda rho: rho,
    requests.GDP: lambda mu: cost(0.5 * mu * mu, mu, 4),
    requests.BoundedRange: lambda epsilon: cost(0.125 * epsilon * epsilon, epsilon, 4),
    requests.Pure: lambda epsilon: cost(epsilon * jnp.tanh(0.5 * epsilon), epsilon, 16),
    requests.LaplaceMechanism: _kappa,
}
"""Rho of the mechanisms that satisfy zCDP."""

UNIFIED_COSTS: Mapping[type, Price] = {
    **ZCDP_COSTS,
    requests.BrownianReduction: lambda squared: _positive(0.5 * squared, 12),
}
"""With the rounds of Brownian noise reduction, at the time of stopping."""

GDP_COSTS: Mapping[type, Price] = {
    requests.BrownianReduction: lambda squared: _positive(squared, 12),
    requests.GDP: lambda mu: cost(mu * mu, mu, 4),
    requests.BoundedRange: lambda epsilon: squared_mu_of_odds(0.5 * epsilon),
    requests.Pure: squared_mu_of_odds,
    requests.LaplaceMechanism: _squared_mu_of_laplace,
}
"""Squared mu."""

_BOUNDED = requests.ExPost, requests.Pure, requests.BoundedRange, requests.LaplaceMechanism
EX_POST_COSTS: Mapping[type, Price] = dict.fromkeys(
    (*_BOUNDED, *requests.LAPLACE), lambda x, cap=None: _first(x)
)
"""The epsilon that a loss exceeds with probability at most the request's delta."""

EX_POST_REASONS: Mapping[type, str] = {
    requests.BrownianReduction: "with a boundary of delta d and epsilon e it is ExPost(e, d)",
    requests.ZCDP: "ZCDPFilter, or SideBySideFilter, takes it",
    requests.GDP: "GaussianFilter takes it",
}
"""Who has a proof for what has none by adding up."""

# Each is compiled once, so that plain Python does not wait for every operation.
_CERTIFICATES = {
    kind: jax.jit(certificate, inline=True)
    for kind, certificate in (
        (requests.LaplaceReduction, certificates.laplace_reduction),
        (requests.LaplaceMechanism, certificates.laplace_mechanism),
        (requests.Pure, certificates.pure),
        (requests.ExPost, lambda order, epsilon: epsilon),
        (requests.DiscreteLaplaceReduction, certificates.discrete_laplace_reduction),
    )
}
_capped = jax.jit(certificates.capped, inline=True)


def renyi_costs(order: ArrayLike) -> Mapping[type, Price]:
    """Certificates at an order."""

    def concentrated(of_rho: Price, x: Array) -> Array:
        rho = of_rho(x)
        at = jnp.asarray(order, rho.dtype)
        at = jnp.where((at > 1) & (at < jnp.inf), at, jnp.inf)  # a traced one
        return cost(at * rho, rho, 2)

    def certified(certificate: Any, x: Array, cap: Array | None = None) -> Array:
        at = jnp.asarray(order, x.dtype)
        if cap is not None:
            return _capped(at, _first(x), cap)
        return certificate(at, x) if x.ndim == 0 else certificate(at, *x[1:])

    # A kind with a certificate of its own is not charged by its rho.
    costs = {kind: functools.partial(concentrated, of) for kind, of in UNIFIED_COSTS.items()}
    return costs | {kind: functools.partial(certified, of) for kind, of in _CERTIFICATES.items()}


def time_of_square(room: Array, sensitivity: Array, factor: ArrayLike = 1.0) -> Array:
    """Smallest time with `factor sensitivity^2/time <= room`, rounded to more noise, else inf."""
    time = sensitivity / (room / factor) * sensitivity * (1 + 24 * float(jnp.finfo(room.dtype).eps))
    return _enough(time, room)


def time_of_epsilon(epsilon: Array, room: Array, sensitivity: Array, ulps: int) -> Array:
    """Smallest time with `sensitivity/time <= epsilon`, rounded to more noise, else infinite."""
    time = sensitivity / epsilon * (1 + ulps * float(jnp.finfo(room.dtype).eps))
    return _enough(time, jnp.minimum(room, epsilon))


def _enough(time: Array, room: Array) -> Array:
    """`time`, at least the smallest that requests take; infinite where there is none."""
    time = jnp.maximum(time, 4 * float(jnp.finfo(time.dtype).tiny))
    return jnp.where((room > 0) & (time <= largest_divisor(time.dtype)), time, jnp.inf)


def find(kind: type, kinds: Mapping[type, Any], owner: str, reasons: Mapping[type, str]) -> Any:
    """The entry of `kind`, else a `TypeError`: nothing is proved for it."""
    for known, entry in kinds.items():
        if issubclass(kind, known):
            return entry
    because = next((f"; {why}" for other, why in reasons.items() if issubclass(kind, other)), "")
    raise TypeError(
        f"{kind.__name__}: {owner} has no proof for it, but for {requests.names(kinds)}{because}"
    )


def check_no_delta(request: Any, owner: str) -> None:
    """Raise a `ValueError` for a request with a concrete delta of its own."""
    share = getattr(request, "delta", 0.0)
    right = f"0 for {owner}, which has no proof for approximate mechanisms"
    known = concrete_or_none(share)
    check(known is None or known == 0, f"{type(request).__name__}.delta", share, right)


class Priced(Pytree):
    """What filters and odometers share: the kinds that they take, and what these cost."""

    _currencies: ClassVar[tuple[str, ...]] = ("budget",)
    """What costs are in; the second one, where there is one, is of the requests' own deltas."""
    _prices: ClassVar[Mapping[type, Price]] = {}
    _reasons: ClassVar[Mapping[type, str]] = {}
    """Of other kinds, who takes them, or why none does."""
    takes_caps: ClassVar[bool] = False
    """Whether the cap of a request makes it cheaper."""

    def _costs(self) -> Mapping[type, Price]:
        """The kinds of requests that something is proved for, and what they cost."""
        return self._prices

    def _charge(self, request: Any, dtype: Any) -> Array:
        """What a single request costs, shape (currencies,); NaN where a trace is out of range."""
        owner, approximate = type(self).__name__, len(self._currencies) == 2
        price = find(type(request), self._costs(), owner, self._reasons)
        request.check_single()
        if not approximate:
            check_no_delta(request, owner)
        ok = request.well_formed(dtype)
        share = enlarged(getattr(request, "delta", 0.0), dtype)
        if not approximate:
            ok &= share == 0
        more = jnp.where(ok, priced(price, request, dtype), jnp.nan)
        return jnp.stack([more, share] if approximate else [more])
