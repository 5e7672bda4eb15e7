"""Sums of costs that never understate: a running total and what rounding left of it.

Adding is Knuth's two-sum, whose error is known exactly; only the sum of these errors is rounded,
upwards, so that even many thousand costs lose less than `1e-9` of the sum in float32. XLA takes
numbers below the smallest normal one for 0, which is an error of less than that number in each
operation: every addition pays for sixteen.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nrjax._numerics import two_sum
from nrjax._validation import concrete_or_none
from nrjax.guarantees._rounding import round_up


class Spending(NamedTuple):
    """What was spent: at most `total + rest`, in each of several currencies."""

    total: Array
    rest: Array


def _units(spending: Spending) -> tuple[float, float]:
    """Machine epsilon, and the smallest normal number."""
    limits = jnp.finfo(spending.total.dtype)
    return float(limits.eps), float(limits.tiny)


def nothing(dtype: Any, shape: tuple[int, ...] = ()) -> Spending:
    """Nothing spent yet."""
    return Spending(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


@functools.partial(jax.jit, inline=True)
def add(spending: Spending, cost: Array) -> Spending:
    """One cost more (>= 0, of the same dtype); what costs 0 changes nothing.

    Infinite, for good, after a cost that is NaN or infinite. Sums that the dtype has are exact.
    """
    eps, tiny = _units(spending)
    finite = (spending.total < jnp.inf) & (cost < jnp.inf)
    before, cost = jnp.where(finite, spending.total, 0), jnp.where(finite, cost, 0)
    total, error = two_sum(before, cost)
    # An error is a multiple of the smaller number's last place: of these none is subnormal.
    exact = (error == 0) & (spending.rest == 0) & (jnp.minimum(before, cost) >= tiny / eps)
    rest = spending.rest + error
    rest = jnp.where(exact, 0, rest + 2 * eps * jnp.abs(rest) + 16 * tiny)
    total, rest = two_sum(total, rest)
    first = (before == 0) & (spending.rest == 0)
    total, rest = jnp.where(first, cost, total), jnp.where(first, 0, rest)
    same = cost == 0
    total, rest = jnp.where(same, before, total), jnp.where(same, spending.rest, rest)
    finite &= total < jnp.inf
    return Spending(jnp.where(finite, total, jnp.inf), jnp.where(finite, rest, 0))


@functools.partial(jax.jit, inline=True)
def add_all(spending: Spending, costs: Array) -> Spending:
    """The same with costs along a leading axis."""
    return jax.lax.scan(lambda sum, cost: (add(sum, cost), None), spending, costs)[0]


def _gap(spending: Spending, budget: Array) -> Array:
    """At most `budget - total`."""
    eps, tiny = _units(spending)
    gap = budget - spending.total
    return gap - 2 * eps * jnp.abs(gap) - 2 * tiny


@functools.partial(jax.jit, inline=True)
def fits(spending: Spending, budget: Array) -> Array:
    """Whether the sum is certainly at most `budget` (bool)."""
    exact = (spending.rest == 0) & (spending.total <= budget)
    return (spending.rest <= _gap(spending, budget)) | exact


@functools.partial(jax.jit, inline=True)
def room(spending: Spending, budget: Array) -> Array:
    """What is left, rounded down so far that a cost of that size still fits; >= 0."""
    eps, tiny = _units(spending)
    left = (_gap(spending, budget) - spending.rest) * (1 - 8 * eps)
    return jnp.maximum(left - 4 * eps * eps * budget - 64 * tiny, 0)


@functools.partial(jax.jit, inline=True)
def upper(spending: Spending) -> Array:
    """The sum, rounded up where it is not exact; infinite where it is not a number."""
    total = round_up(spending.total + spending.rest, 4)
    total = jnp.where(spending.rest == 0, spending.total, total)
    return jnp.where(total < jnp.inf, total, jnp.inf)


def summed(costs: Array) -> Array:
    """The sum along the leading axis, rounded up where it is not exact; NaN if one of them is."""
    total = upper(add_all(nothing(costs.dtype, costs.shape[1:]), costs))
    return jnp.where(jnp.any(jnp.isnan(costs), axis=0), jnp.nan, total)


def enlarged(value: ArrayLike, dtype: Any) -> Array:
    """`value >= 0` in `dtype`: never smaller than it is, and 0 only where it is 0.

    Two machine epsilons larger where it is an array, since it may have been a Python number that
    was rounded on its way into a compiled function.
    """
    tiny = float(jnp.finfo(dtype).tiny)
    number = concrete_or_none(value)
    if number is not None:
        exact = np.asarray(number, np.float64)
        with np.errstate(over="ignore", under="ignore"):
            cast = exact.astype(dtype)
            above = np.nextafter(cast, np.asarray(np.inf, dtype))
            cast = np.where(cast.astype(np.float64) < exact, above, cast)
        return jnp.asarray(np.where(exact > 0, np.maximum(cast, tiny), cast), dtype)
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(dtype)
    # As integers, since subnormal numbers compare as 0; and not with 0 alone, of which LLVM makes a
    # comparison of floats again.
    bits = jax.lax.bitcast_convert_type(array, f"int{8 * array.dtype.itemsize}")
    larger = jnp.maximum(array.astype(dtype) * (1 + 2 * float(jnp.finfo(dtype).eps)), tiny)
    return jnp.where(bits > 0, larger, 0)


def cost(raw: Array, argument: Array, ulps: int) -> Array:
    """`raw` rounded up by `ulps` machine epsilons and never to 0, but 0 where `argument` is 0."""
    return jnp.where(argument == 0, 0, round_up(raw, ulps))


def rounded_down(value: float, dtype: Any) -> float:
    """The largest number of `dtype` that is at most `value >= 0`; subnormal ones are 0."""
    with np.errstate(over="ignore"):
        cast = np.asarray(value, np.float64).astype(dtype)
    if float(cast) > value:  # as float64: NumPy would compare with a Python number in dtype
        cast = np.nextafter(cast, np.asarray(-np.inf, dtype))
    return float(cast) if cast >= jnp.finfo(dtype).tiny else 0.0


def limit(value: ArrayLike, dtype: Any) -> Array:
    """A budget `>= 0` in `dtype`, never more than it is."""
    number = concrete_or_none(value)
    if number is not None and number.ndim == 0:
        return jnp.asarray(rounded_down(float(number), dtype), dtype)
    array = jnp.asarray(value)
    cast = array.astype(dtype)
    if jnp.promote_types(array.dtype, dtype) == dtype:
        return cast
    return cast * (1 - 2 * float(jnp.finfo(dtype).eps))


def settle(owner: Any, name: str) -> None:
    """Round a field down to the default float dtype; one too small for that stays as it is.

    Compiled functions round Python's numbers to the nearest: of this one nothing is left to round.
    """
    number = concrete_or_none(getattr(owner, name))
    if number is not None and number.ndim == 0:
        rounded = rounded_down(float(number), jnp.result_type(float))
        if rounded > 0 and rounded != float(number):
            object.__setattr__(owner, name, rounded)
