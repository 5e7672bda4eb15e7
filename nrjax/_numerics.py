"""Dtypes, concreteness and checks that the doors of the package share."""

import math
from collections.abc import Callable
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


def holds(dtype: Any, number: int) -> bool:
    """Whether a floating dtype holds an integer exactly."""
    return abs(number) <= float(jnp.finfo(dtype).max) and int(np.asarray(number, dtype)) == number


def check(ok: Any, name: str, value: Any, right: str) -> None:
    """Raise a `ValueError` that names the argument, its value and what would be right."""
    if not np.all(ok):
        raise ValueError(f"{name} = {shown(value)}: must be {right}")


def check_numbers(
    name: str, value: Any, fits: Callable[[np.ndarray], Any], right: str
) -> np.ndarray | None:
    """`numbers(...)`, of which all that are known must fit."""
    number = numbers(name, value, right)
    if number is not None:
        check(fits(number), name, value, right)
    return number


def check_positive(name: str, value: Any) -> np.ndarray | None:
    """`numbers(...)`, positive and finite."""
    return check_numbers(name, value, lambda n: np.isfinite(n) & (n > 0), "positive and finite")


def check_probability(name: str, value: Any) -> np.ndarray | None:
    """`numbers(...)`, strictly between 0 and 1."""
    return check_numbers(name, value, lambda n: (n > 0) & (n < 1), "strictly between 0 and 1")


_BLOCK_SIZE = 2**22
"""Numbers of a table that are worked on at a time."""


def row_blocks(rows: int, columns: int) -> list[slice]:
    """The rows of a table, some at a time, so that nothing of its size is made beside it."""
    size = max(1, _BLOCK_SIZE // max(columns, 1))
    return [slice(at, at + size) for at in range(0, rows, size)]


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_integer(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """Python's integer of a value; a `ValueError` unless it is one from `least` to `most`."""
    right = f"an integer, at least {least}" + (f" and at most {most}" if most < math.inf else "")
    check(is_integer(value) and least <= value <= most, name, value, right)
    return int(value)


def check_shape(name: str, shape: Any) -> None:
    """Constructor check: a tuple of non-negative integers."""
    ok = isinstance(shape, tuple) and all(is_integer(n) and n >= 0 for n in shape)
    check(ok, name, shape, "a tuple of non-negative integers, such as () or (38,)")
