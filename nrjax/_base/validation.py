"""Argument checks, with one form of error message for the whole package."""

import math
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nrjax._base.arrays import EXACT, as_array, as_exact, as_numbers, count_missing, distinct
from nrjax._base.dtypes import float_dtype
from nrjax._base.format import format_value

OTHER_UNIT = "Measure the value in another unit, or use float64 (JAX_ENABLE_X64=1)."
"""The hint of errors about numbers that are too small or too large for the dtype of a run."""

_LONGEST = 60
"""Largest number of characters of a value in a message."""


def check(ok: Any, name: str, value: Any, expected: str, hint: str = "") -> None:
    """Raise `ValueError("NAME must be EXPECTED (got VALUE). HINT")` if any of `ok` is false."""
    if not np.all(ok):
        advice = f" {hint}" if hint else ""
        raise ValueError(
            f"{name} must be {expected} (got {format_value(value, _LONGEST)}).{advice}"
        )


def concrete_or_none(value: Any) -> np.ndarray | None:
    """Return a concrete number or array as a NumPy array, and None for any other value.

    Masked entries become NaN.
    """
    if isinstance(value, Tracer):
        return None
    if isinstance(value, np.ma.MaskedArray):
        return as_array(value)
    if isinstance(value, (bool, int, float, np.generic, np.ndarray, jax.Array)):
        return np.asarray(value)
    return None


def as_table(value: Any) -> Any:
    """Return lists, tuples and tables (a pandas Series) as NumPy arrays, others unchanged.

    Decimals and fractions become floats if floats equal them.
    """
    is_table = hasattr(value, "__array__") and not isinstance(value, (jax.Array, np.generic))
    if is_table or isinstance(value, (list, tuple)):
        value = as_array(value)
    return as_exact(value)


def as_float_table(value: Any) -> Any:
    """Return `as_table` of a value, with float64 in place of integers and of listed floats.

    JAX wraps integers beyond int32 without an error.
    """
    if is_integer(value):
        return float(value)
    table, listed = as_table(value), isinstance(value, (list, tuple))
    numbers = isinstance(table, np.ndarray) and table.dtype.kind in ("iuf" if listed else "iu")
    return table.astype(np.float64) if numbers else table


def float_if_large(value: Any) -> Any:
    """Return concrete integers as float64 if one is beyond int32, and other values unchanged.

    JAX would wrap them in an argument of `jit` or `vmap`, for example to a smaller cost.
    """
    number = concrete_or_none(value)
    large = number is not None and number.dtype.kind in "iu" and np.any(number >= 2**31)
    return as_float_table(value) if large else value


def as_floats(name: str, value: Any, fits: Callable[..., Any], expected: str) -> np.ndarray:
    """Return numbers, such as a list or a column of a table, as a float64 array that `fits`."""
    array = as_numbers(value)
    check(array is not None and fits(array), name, value, expected)
    assert array is not None
    return array


def check_complete(name: str, value: Any, is_text: bool = True) -> None:
    """Check that data have no missing values (NaN, None, pandas' NA), and text only if `is_text`.

    The message has counts, and no value of the data.
    """
    table = as_array(value)
    entries = table.ravel() if table.dtype == object else ()
    written = sum(isinstance(entry, (str, bytes)) for entry in entries)
    written += table.size * (table.dtype.kind in "SU")
    missing = count_missing(table)
    hint = "Write 1000, not 1,000, and no units."
    got = f"text in {written:,} of {table.size:,}"
    check(is_text or written == 0, name, got, "numbers, not text", hint)
    hint = "Drop these rows, or fill them in."
    got = f"{missing:,} missing of {table.size:,}"
    check(missing == 0, name, got, "without missing values", hint)


def as_data(name: str, value: Any, fits: Callable[..., Any], expected: str) -> np.ndarray:
    """Return `as_floats` of data that are complete (`check_complete`).

    The message has counts, and no value of the data.
    """
    table = as_array(value)  # once, since lists may be long
    check_complete(name, table, is_text=False)
    array = as_numbers(table)
    check(array is not None, name, type(value).__name__, expected)
    fit = np.asarray(fits(array))
    kind = f"numbers of shape {table.shape}"
    got = f"{kind}, of which {np.sum(~fit):,} are not" if fit.shape else kind
    check(fit, name, got, expected)
    assert array is not None
    return array


def as_groups(name: str, value: Any) -> tuple[list[Any], np.ndarray]:
    """Return the different entries of complete data, sorted, and the number of each row's.

    See `nrjax._base.arrays.distinct`.
    """
    array = as_array(value)
    check_complete(name, array)
    found = distinct(value, array)
    expected = "a vector of numbers, text or tuples, at least one row"
    check(found is not None and found[1].size > 0, name, type(value).__name__, expected)
    assert found is not None
    return found


def as_numeric(name: str, value: Any, expected: str = "a number") -> np.ndarray | None:
    """Return a NumPy array of integers or floats, or None for a traced or abstract value.

    Raises:
        ValueError: `value` is not numeric: None, a string, an array of objects, or a float of more
            than 64 bits.
    """
    if isinstance(value, (Tracer, jax.ShapeDtypeStruct)):
        array, dtype = None, value.dtype
    else:
        array = concrete_or_none(value)
        dtype = None if array is None else array.dtype
    is_real = dtype is not None and (
        (jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize <= 8)
        or (jnp.issubdtype(dtype, jnp.integer) and dtype.kind != "m")  # no duration
    )
    is_exact = isinstance(value, EXACT)
    hint = "Give a float. For a sensitivity, nrjax.Sensitivity rounds it up." if is_exact else ""
    check(is_real, name, value, expected, hint)
    return array


def check_numbers(
    name: str, value: Any, fits: Callable[[np.ndarray], Any], expected: str
) -> np.ndarray | None:
    """Check that a value is numeric and, unless it is traced, not empty and true for `fits`."""
    array = as_numeric(name, value, expected)
    if array is not None:
        check(array.size > 0, name, value, f"{expected}, not empty")
        check(fits(array), name, value, expected)
    return array


def check_choice(name: str, value: Any, choices: Collection[str], hint: str = "") -> None:
    """Check that a value is one of the names in `choices`."""
    *names, last = map(repr, choices)
    ok = isinstance(value, str) and value in choices
    check(ok, name, value, f"{', '.join(names)} or {last}", hint)


def check_positive(name: str, value: Any) -> np.ndarray | None:
    """Check that a numeric value is positive and finite, and normal in the dtype of a run."""
    array = check_numbers(name, value, lambda n: np.isfinite(n) & (n > 0), "positive and finite")
    check_normal(name, value, array)
    return array


def check_normal(name: str, value: Any, array: Any, what: str = "", hint: str = "") -> None:
    """Check that the dtype of a run holds numbers as normal ones: XLA may flush others to 0.

    Args:
        name: name of the argument, or of several.
        value: the argument as it was given.
        array: the argument, or positive numbers that are made from it; None if they are traced.
        what: "such that NUMBERS are", if the numbers are made from the argument.
        hint: what to do.
    """
    if array is None:
        return
    dtype = float_dtype(array)
    limits = jnp.finfo(dtype)
    least, most = float(limits.tiny), float(limits.max)
    numbers = np.asarray(array, np.float64)
    ok = (numbers >= least) & (numbers <= most)
    expected = f"{what} from {least:.3g} to {most:.3g}, the range of {dtype}".lstrip()
    check(ok, name, value, expected, hint)


def widest_made(made_in: str | None) -> str:
    """Return the default float dtype, or that in which a part was made before if it is wider.

    Parts keep it in a static field, for `check_made_in`.
    """
    default = np.dtype(float_dtype()).name
    return default if made_in is None else max(made_in, default, key=lambda n: np.dtype(n).itemsize)


def check_made_in(name: str, made_in: str | None, dtype: Any) -> None:
    """Check that a part is not used in a narrower dtype than the one in which it was made.

    Its counts were checked for the wider dtype, or a number of it allows for that rounding only.
    """
    used = np.dtype(dtype)
    ok = made_in is None or used.itemsize >= np.dtype(made_in).itemsize
    hint = f"Make it in {used.name}, or use float64 (JAX_ENABLE_X64=1)."
    check(ok, f"dtype of {name}", used.name, f"{made_in}, in which it was made", hint)


def check_within(name: str, value: Any, dtype: Any) -> Any:
    """Return a concrete value cast to a dtype, after checking that no number becomes infinite."""
    number = concrete_or_none(value)
    if number is None:
        return value
    with np.errstate(over="ignore", under="ignore"):
        cast = number.astype(dtype)
    ok = np.isfinite(cast) | ~np.isfinite(number)
    check(ok, name, value, f"within {np.dtype(dtype)}", OTHER_UNIT)
    return cast


def check_probability(name: str, value: Any) -> np.ndarray | None:
    """Check that a numeric value lies strictly between 0 and 1."""
    return check_numbers(name, value, lambda n: (n > 0) & (n < 1), "strictly between 0 and 1")


def check_number(
    name: str,
    value: Any,
    fits: Callable[[Any], Any] = lambda n: (n > 0) & (n < np.inf),
    expected: str = "positive and finite",
) -> float:
    """Return a value as a float after checking that it is one concrete number in range."""
    array = check_numbers(name, value, fits, expected)
    single = array is not None and array.ndim == 0
    check(single, name, value, f"a single concrete number, {expected}")
    return float(np.asarray(array))


def is_integer(value: Any) -> bool:
    """Return whether a value is a Python or NumPy integer, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_integer(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """Return `value` as a Python integer that lies between `least` and `most`."""
    upper = f" and at most {most}" if most < math.inf else ""
    ok = is_integer(value) and least <= value <= most
    check(ok, name, value, f"an integer, at least {least}{upper}")
    return int(value)


def check_shape(name: str, shape: Any) -> None:
    """Check that a shape is a tuple of non-negative integers."""
    ok = isinstance(shape, tuple) and all(is_integer(n) and n >= 0 for n in shape)
    check(ok, name, shape, "a tuple of non-negative integers, such as () or (38,)")
