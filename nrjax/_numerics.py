"""Dtypes, concreteness and checks that the doors of the package share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from nrjax._shown import shown


def largest_divisor(dtype: Any) -> float:
    """Up to which XLA, which divides by a constant as it pleases, does not take 1/x for 0."""
    return 1 / (4 * float(jnp.finfo(dtype).tiny))


def float_dtype(*values: ArrayLike) -> Any:
    """Floating dtype of a computation on `values`; Python numbers adopt the default precision."""
    return jnp.result_type(*values, float)


def concrete(value: Any) -> np.ndarray | None:
    """`value` as a NumPy array, or None where it has no numbers (tracers, None, placeholders)."""
    if isinstance(value, Tracer):
        return None
    if isinstance(value, (bool, int, float, np.generic, np.ndarray, jax.Array)):
        return np.asarray(value)
    return None


def numbers(name: str, value: Any, right: str = "a number") -> np.ndarray | None:
    """`value` as a NumPy array of integers or floats; None for what is traced or abstract.

    Raises:
        ValueError: it is something else, such as None, a string, an array of objects, or a float of
            more than 64 bits.
    """
    if isinstance(value, (Tracer, jax.ShapeDtypeStruct)):
        kind = value.dtype
        array = None
    else:
        array = concrete(value)
        kind = None if array is None else array.dtype
    real = kind is not None and (
        (jnp.issubdtype(kind, jnp.floating) and kind.itemsize <= 8)
        or jnp.issubdtype(kind, jnp.integer)
    )
    check(real, name, value, right)
    return array


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`fl(a + b)` and what rounding left, so that the two add up to `a + b` (Knuth)."""
    total = a + b
    second = total - a
    first = total - second
    return total, (a - first) + (b - second)


def exact_float(value: ArrayLike, dtype: Any) -> Array:
    """`value` in a floating dtype; an integer that this may not hold exactly becomes NaN."""
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.integer):
        largest = 2 ** (jnp.finfo(dtype).nmant + 1)
        if jnp.iinfo(array.dtype).max > largest:
            held = array <= largest
            if jnp.iinfo(array.dtype).min < 0:  # JAX would wrap the bound of unsigned ones
                held &= array >= -largest
            return jnp.where(held, array.astype(dtype), jnp.nan)
    return jnp.asarray(array.astype(dtype))


def check(ok: Any, name: str, value: Any, right: str) -> None:
    """Raise a `ValueError` that names the argument, its value and what would be right."""
    if not np.all(ok):
        raise ValueError(f"{name} = {shown(value)}: must be {right}")


def check_positive(name: str, value: Any) -> None:
    """Constructor check: positive and finite numbers."""
    number = numbers(name, value, "positive and finite")
    if number is not None:
        check(np.isfinite(number) & (number > 0), name, value, "positive and finite")


def check_probability(name: str, value: Any) -> None:
    """Constructor check: strictly between 0 and 1."""
    number = numbers(name, value, "strictly between 0 and 1")
    if number is not None:
        check((number > 0) & (number < 1), name, value, "strictly between 0 and 1")


def check_shape(name: str, shape: Any) -> None:
    """Constructor check: a tuple of non-negative integers."""
    ok = isinstance(shape, tuple) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0 for n in shape
    )
    check(ok, name, shape, "a tuple of non-negative integers, such as () or (38,)")
