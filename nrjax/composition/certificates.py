"""Rényi certificates of single rounds, at a fixed order, computed inside `jit`.

A certificate is the cost of a round in Rényi divergence, in nats (`docs/proofs/composition.md` has
the definition). Functions work elementwise. In formulas A > 1 is the order, `l = A - 1`, and e is
epsilon. Certificates rise in both arguments. Each is computed at slightly larger arguments and
enlarged by its possible rounding error, so that it is never below the exact number. An epsilon or
budget that is negative or NaN, and an order that is not above 1 and finite, give NaN, which no
filter accepts. A subnormal epsilon counts as 0; requests have none.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._base.dtypes import float_dtype
from nrjax._base.modes import neutral_config

# Number of machine epsilons by which results are enlarged: four elementary functions lose 2 or 3
# each.
_MARGIN = 24
# For `laplace_reduction`: its series loses at most 2 x, twice the mean index of its terms (four
# operations per term, half a machine epsilon each).
_SERIES_MARGIN, _SERIES_SLOPE = 12, 3


class _Precision(NamedTuple):
    """The constants of the series in one dtype, checked in `test_certificates.py`.

    Attributes:
        switch: argument x above which an asymptotic form replaces the series of C.
        terms: number of terms of the series. All further terms together are below a quarter of a
            machine epsilon of the sum.
        asymptotic: number of terms of the asymptotic form.
        last: factor of the asymptotic form's last term, which makes the form an upper bound of Ei
            above `switch`.
        phi: number of terms of the series of phi. All further terms are below 2/12! or 2/20!.
        newton: number of steps of Newton's method.
    """

    switch: float
    terms: int
    asymptotic: int
    last: float
    phi: int
    newton: int


_PRECISIONS = {
    np.dtype(np.float32): _Precision(20.0, 46, 10, 2.64, 10, 3),
    np.dtype(np.float64): _Precision(40.0, 100, 24, 3.146, 18, 4),
}


def _enlarged(order: ArrayLike, epsilon: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Return order, order - 1 and epsilon, rounded up, and whether they are in range (bool).

    Arguments may have been rounded to their dtype before, so each grows by 2 machine epsilons.
    """
    dtype = float_dtype(order, epsilon)
    order, epsilon = jnp.asarray(order, dtype), jnp.asarray(epsilon, dtype)
    usable = (order > 1) & (order < jnp.inf) & (epsilon >= 0)
    grown = 1 + 2 * float(jnp.finfo(dtype).eps)
    order, epsilon = jnp.where(usable, order, 2) * grown, jnp.where(usable, epsilon, 0) * grown
    return order, order - 1, epsilon, usable


def _stated(raw: Array, epsilon: Array, usable: Array, machine_epsilons: ArrayLike) -> Array:
    """Return `raw` enlarged by a number of machine epsilons.

    The result is positive if epsilon is, infinite if `raw` overflowed, and NaN if not usable.
    """
    limits = jnp.finfo(raw.dtype)
    raw = jnp.where(jnp.isnan(raw), jnp.inf, raw)
    raw = raw * (1 + jnp.asarray(machine_epsilons, raw.dtype) * float(limits.eps))
    raw = jnp.where(epsilon > 0, jnp.maximum(raw, float(limits.tiny)), 0)
    return jnp.where(usable, raw, jnp.nan)


def _horner(x: Array, ratios: Sequence[float], last: float = 1.0) -> Array:
    """Return `1 + r_1 x (1 + r_2 x (... last))` for ratios r_k > 0, by Horner's method."""
    total = jnp.full_like(x, last)
    for ratio in reversed(ratios):
        total = 1 + x * ratio * total
    return total


def _above_ei(x: Array, precision: _Precision) -> Array:
    """Return an upper bound U of the exponential integral Ei(x), for large x.

    `U(x) = (e^x/x) (sum_{k<n} k!/x^k + c n!/x^n)`, where c makes the bound hold at `switch`. Above
    `switch`, `U' >= e^x/x = Ei'` because `c (1 - (n + 1)/x) >= 1`.
    """
    inverse = 1 / x
    total = _horner(inverse, range(1, precision.asymptotic + 1), precision.last)
    return jnp.exp(x) * inverse * total


def _series(x: Array) -> Array:
    """Return the series of `(Ei(x) - log x - gamma - x)/x^2`, which is 1/4 at x = 0.

    The series is `sum_{k>=2} x^(k-2)/(k k!)`. Ei is the exponential integral.
    """
    precision = _PRECISIONS[np.dtype(x.dtype)]
    ratios = [(k - 1) / (k * k) for k in range(3, 3 + precision.terms)]
    small = 0.25 * _horner(jnp.minimum(x, precision.switch), ratios)
    large = jnp.maximum(x, precision.switch)
    rest = jnp.log(large) + large + np.euler_gamma
    far = (_above_ei(large, precision) - rest) / large / large
    return jnp.where(x <= precision.switch, small, far)


@neutral_config()
def laplace_reduction(order: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return the certificate of Laplace noise reduction that stops at `epsilon = D1/t`.

    D1 is the l1-sensitivity and t the time of the stop. The certificate (not in Rogers 2023) is
    `C(e) = (A/l) int_0^e [(exp(2lu) - 1)/(2lu) - 1] du = 2 A e^2 sum_{k>=2} x^(k-2)/(k k!)` with
    `x = 2le`. The epsilon itself is a certificate too, which is smaller above 0.70 (A = 2) or 0.31
    (A = 4). Fix which of the two a round uses before the round starts: their minimum at the stop is
    not a certificate.
    """
    order, excess, epsilon, usable = _enlarged(order, epsilon)
    x = 2 * excess * epsilon
    # The maximum, which changes nothing, keeps XLA from computing epsilon^2 first, which may be 0.
    raw = jnp.maximum(2 * order * epsilon, epsilon) * epsilon * _series(x)
    return _stated(raw, epsilon, usable, _SERIES_MARGIN + _SERIES_SLOPE * x)


@neutral_config()
def laplace_reduction_inverse(order: ArrayLike, budget: ArrayLike) -> Array:
    """Return the largest epsilon whose `laplace_reduction` fits into a budget, rounded down.

    As a function of `log epsilon`, `log C` is convex (a power series with positive coefficients),
    so Newton's method converges from any start above the solution. The result is checked, and is 0
    if it does not fit.
    """
    dtype = float_dtype(order, budget)
    limits = jnp.finfo(dtype)
    asked, order = jnp.asarray(budget, dtype), jnp.asarray(order, dtype)
    usable = (order > 1) & (order < jnp.inf) & (asked >= 0)
    finite = usable & (asked >= float(limits.tiny)) & (asked < jnp.inf)
    target = jnp.where(finite, asked, 1) * (1 - 2 * float(limits.eps))
    safe_order = jnp.where(usable, order, 2)

    # Two upper bounds of the solution: from C >= A e^2/2, and, in x = 2le, from
    # S = x^2 T >= (e^x - 1 - x - x^2/2)/x, solved by two steps of x <- log(1 + x + x^2/2 + x S).
    excess = safe_order - 1
    epsilon = jnp.sqrt(2 * target / safe_order)
    first = 2 * excess * epsilon
    scaled = 2 * excess * (excess / safe_order) * target
    x = jnp.minimum(first, jnp.log1p(first) + jnp.log1p(0.5 * first + scaled))  # does not overflow
    x = jnp.minimum(x, jnp.log1p(x * (1 + 0.5 * x + scaled)))
    epsilon = jnp.where(first > 1, 0.5 * x / excess, epsilon)

    for _ in range(_PRECISIONS[np.dtype(dtype)].newton):
        x = 2 * excess * epsilon
        slope = jnp.maximum(_phi(x) / _series(x), 2)  # d log C / d log epsilon
        ratio = target / laplace_reduction(safe_order, epsilon)
        epsilon = epsilon * jnp.exp(jnp.log(ratio) / slope)
    epsilon = epsilon * (1 - 8 * float(limits.eps))
    fits = laplace_reduction(safe_order, epsilon) <= target
    epsilon = jnp.where(finite & fits, epsilon, 0)
    epsilon = jnp.where(asked == jnp.inf, jnp.inf, epsilon)
    return jnp.where(usable, epsilon, jnp.nan)


def _phi(z: Array) -> Array:
    """Return `(e^z - 1 - z)/z^2` without cancellation, 1/2 at 0."""
    terms = _PRECISIONS[np.dtype(z.dtype)].phi
    series = 0.5 * _horner(jnp.clip(z, -1, 1), [1 / (k + 2) for k in range(1, terms)])
    far = jnp.where(jnp.abs(z) > 1, z, 1)
    return jnp.where(jnp.abs(z) > 1, (jnp.expm1(far) - far) / far / far, series)


def _log_over(scaled: Array, excess: Array) -> Array:
    """Return `log(1 + l scaled)/l`, where l is `excess`, even if `l scaled` underflows."""
    y = excess * scaled
    return jnp.where(y < float(jnp.finfo(y.dtype).eps), scaled, jnp.log1p(y) / excess)


@neutral_config()
def pure(order: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return the largest Rényi divergence of an epsilon-DP mechanism.

    It is the divergence of randomised response, `(1/l) log(cosh((A - 1/2) e)/cosh(e/2))`, below
    both `A e^2/2` and `e` (Mironov 2017, Proposition 5; Kairouz, Oh, Viswanath 2015).
    """
    order, excess, epsilon, usable = _enlarged(order, epsilon)
    # cosh a / cosh b = 1 + 2 sinh((a + b)/2) sinh((a - b)/2)/cosh b.
    small = jnp.where(order * epsilon < 80, epsilon, 0)
    scaled = 2 * jnp.sinh(0.5 * order * small) * (jnp.sinh(0.5 * excess * small) / excess)
    near = _log_over(scaled / jnp.cosh(0.5 * small), excess)
    gap = jnp.log1p(jnp.exp(-epsilon)) - jnp.log1p(jnp.exp(-(order + excess) * epsilon))
    far = epsilon - jnp.maximum(gap, 0) / excess
    raw = jnp.where(order * epsilon < 80, near, far)
    return _stated(jnp.minimum(raw, epsilon), epsilon, usable, _MARGIN)


@neutral_config()
def laplace_mechanism(order: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return the Rényi divergence of Laplace noise of a fixed scale t, with `epsilon = D1/t`.

    It is `(1/l) log((A/(2A - 1)) e^(le) + (l/(2A - 1)) e^(-Ae))`, where A is the order and
    `l = A - 1` (Mironov 2017, Proposition 6): about `A e^2/2` for small e and
    `e - log((2A - 1)/A)/l` for large e.
    """
    order, excess, epsilon, usable = _enlarged(order, epsilon)
    # The argument of the logarithm less 1; the linear terms of the two exponentials cancel exactly.
    small = jnp.where(excess * epsilon < 40, epsilon, 0)
    spread = excess * _phi(excess * small) + order * _phi(-order * small)
    scaled = (small * spread) * (small * (order / (order + excess)))
    near = _log_over(scaled, excess)
    fall = jnp.exp(-(order + excess) * epsilon)
    gap = jnp.log1p(excess / order) - jnp.log1p(excess / order * fall)
    far = epsilon - jnp.maximum(gap, 0) / excess
    raw = jnp.where(excess * epsilon < 40, near, far)
    return _stated(jnp.minimum(raw, epsilon), epsilon, usable, _MARGIN)


_CAPPED_TERMS = 14
"""Number of terms of a series in `(A m)^2 <= 4`.

All further terms are below `4^14/29!`, 1e-22 of the sum.
"""


@neutral_config()
def capped(order: ArrayLike, epsilon: ArrayLike, cap: ArrayLike) -> Array:
    """Return the certificate of a pure ex-post round whose epsilon never exceeds `cap`.

    It is `C(e; m) = e - log(1 + s (1 - exp(-e)))/l`, A the order, `l = A - 1`, m the cap, and
    `s = sinh(l m)/(sinh(A m) - sinh(l m))`. It is below e. At `e = m` it equals the divergence of
    randomised response (`pure`), and no certificate with that value at m is smaller anywhere. The
    cap must be fixed before the round. An epsilon above the cap gives NaN.
    """
    dtype = float_dtype(order, epsilon, cap)
    order, excess, epsilon, usable = _enlarged(jnp.asarray(order, dtype), epsilon)
    top = jnp.asarray(cap, dtype)
    is_capped = usable & (
        jnp.asarray(epsilon, dtype) <= top * (1 + 8 * float(jnp.finfo(dtype).eps))
    )
    # A larger cap is safe.
    top = jnp.where(top >= epsilon, top, epsilon) * (1 + 4 * float(jnp.finfo(dtype).eps))
    top = jnp.where(top > 0, top, 1)
    both, share = order + excess, -jnp.expm1(-epsilon)
    slope = jnp.exp(-top) * -jnp.expm1(-2 * excess * top)
    slope /= -jnp.expm1(-top) * (1 + jnp.exp(-both * top))
    grown = slope * share
    # `(exp(l e) - 1 - s (1 - exp(-e)))/l` as a sum of positive terms, over `1 + s (1 - exp(-e))`.
    small = jnp.where(excess * epsilon < 40, epsilon, 0)
    first = excess * small * small * _phi(excess * small)
    second = small * small * _phi(-small)
    rest = _share_above_slope(order, excess, top, slope) * share
    lost = 8 * float(jnp.finfo(dtype).tiny)  # each of these terms may underflow
    scaled = (first + second + rest) / (1 + grown) + lost
    near = _log_over(scaled, excess)
    far = epsilon - jnp.log1p(grown) / excess
    raw = jnp.where(excess * epsilon < 40, near, far)
    stated = _stated(jnp.minimum(raw, epsilon), epsilon, usable, 2 * _MARGIN)
    return jnp.where(is_capped, jnp.minimum(stated, _stated(epsilon, epsilon, usable, 2)), jnp.nan)


def _share_above_slope(order: Array, excess: Array, top: Array, slope: Array) -> Array:
    """Return `1 - s/l > 0` with s and l as in `capped`, by a series if `A m` is small."""
    m = jnp.where(order * top < 2, top, 0)
    a, b = (order * m) ** 2, (excess * m) ** 2
    total, power, symmetric = jnp.zeros_like(m), jnp.ones_like(m), jnp.ones_like(m)
    for k in range(1, _CAPPED_TERMS):
        total += symmetric * (1 / math.factorial(2 * k + 1))
        power *= b
        symmetric = a * symmetric + power
    spread = jnp.where(m > 0, 2 * jnp.sinh(0.5 * m) / jnp.where(m > 0, m, 1), 1)
    both = order + excess
    series = order * m * (both * m) * total / (spread * jnp.cosh(0.5 * both * m))
    return jnp.where(order * top < 2, series, jnp.maximum(1 - slope / excess, 0))


@neutral_config()
def discrete_laplace_reduction(order: ArrayLike, sensitivity: ArrayLike, time: ArrayLike) -> Array:
    """Return the certificate of discrete Laplace noise reduction that stops at time t.

    The sensitivity D1 is an integer. `laplace_reduction` at `e = D1/t` is not valid for this noise.
    The result is an upper bound of the least certificate known:

        C(e) + A/(6 l) [(exp(c x) (c x - 1) + 1)/c^2 - x^2/2],   x = 1/t, c = 2 l D1

    For a vector only D1 matters, since both terms are superadditive.
    """
    dtype = float_dtype(order, sensitivity, time)
    size = jnp.asarray(sensitivity, dtype)
    epsilon = size / jnp.asarray(time, dtype)
    base = laplace_reduction(order, epsilon)
    order, excess, epsilon, usable = _enlarged(jnp.asarray(order, dtype), epsilon)
    y = 2 * excess * epsilon  # c x
    # `(e^y (y - 1) + 1)/y^2 - 1/2 = sum_(k>=3) (k - 1) y^(k-2)/k!`
    near = jnp.minimum(y, 1)
    series = jnp.zeros_like(y)
    for k in range(3, 22):
        series += near ** (k - 2) * ((k - 1) / math.factorial(k))
    far = jnp.maximum(y, 1)
    bracket = jnp.where(y < 1, series, (jnp.exp(far) * (far - 1) + 1) / far / far - 0.5)
    x = epsilon / size
    extra = order / (6 * excess) * (x * x * bracket)
    raw = _stated(extra, epsilon, usable, 2 * _MARGIN)
    return (base + raw) * (1 + 2 * float(jnp.finfo(dtype).eps))


@neutral_config()
def discrete_laplace_reduction_inverse(
    order: ArrayLike, budget: ArrayLike, sensitivity: ArrayLike
) -> Array:
    """Return the largest `D1/t` whose certificate fits into a budget, rounded down.

    Newton's method starts from `laplace_reduction_inverse`, an upper bound:
    `discrete_laplace_reduction` is a power series in `1/t` with positive coefficients too.
    """
    dtype = float_dtype(order, budget, sensitivity)
    above = laplace_reduction_inverse(jnp.asarray(order, dtype), jnp.asarray(budget, dtype))
    usable = (above > 0) & (above < jnp.inf)
    order, budget, size = (
        jnp.where(usable, jnp.asarray(number, dtype), other)
        for number, other in ((order, 2), (budget, 1), (sensitivity, 1))
    )
    excess, target = order - 1, budget * (1 - 2 * float(jnp.finfo(dtype).eps))

    def certificate(epsilon: Array) -> Array:
        return discrete_laplace_reduction(order, size, size / epsilon)

    def nearer(_: Any, epsilon: Array) -> Array:
        y, x = 2 * excess * epsilon, epsilon / size
        # `epsilon C'(epsilon)` of the two terms.
        slope = 2 * order * epsilon * epsilon * _phi(y)
        slope += order / (6 * excess) * x * x * jnp.expm1(y)
        cost = certificate(epsilon)
        return epsilon * jnp.exp(jnp.log(target / cost) * jnp.minimum(cost / slope, 0.5))

    steps = 2 * _PRECISIONS[np.dtype(dtype)].newton
    epsilon = jax.lax.fori_loop(0, steps, nearer, jnp.where(usable, above, 1))
    epsilon = epsilon * (1 - 16 * float(jnp.finfo(dtype).eps))
    fits = certificate(epsilon) <= target
    return jnp.where(usable, jnp.where(fits, epsilon, 0), above)
