"""Arrays, columns and lists from outside nrjax as NumPy arrays that lose nothing.

NumPy drops the mask of a masked array, turns NaN in a list of text into the word "nan", and merges
1 with "1". All data enter here: missing values stay missing, and different values stay different.
"""

import datetime
import math
import numbers
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np

EXACT = (Fraction, Decimal)
"""Exact numbers of the standard library, most of which no float equals."""


def as_array(value: Any) -> np.ndarray:
    """Return an array, a column of a table or a list as a NumPy array.

    Missing values are NaN among numbers, NaT among dates, and otherwise objects such as None.
    """
    if isinstance(value, np.ma.MaskedArray):
        return _filled(value)
    if not hasattr(value, "__array__") and isinstance(value, Sequence):
        return _of_entries(value)
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "T" else array  # text with missing values


def _filled(masked: Any) -> np.ndarray:
    """Return a masked array with missing values in place of the mask."""
    if not np.ma.is_masked(masked):
        return np.asarray(masked)
    if masked.dtype.kind in "biuf":
        return masked.astype(np.result_type(masked.dtype, np.float16)).filled(np.nan)
    if masked.dtype.names is not None:  # tuples, in which None is missing
        return np.fromiter(masked.ravel().tolist(), object, masked.size).reshape(masked.shape)
    array = masked.data.astype(object)
    array[np.ma.getmaskarray(masked)] = None
    return array


def _of_entries(entries: Any) -> np.ndarray:
    """Return a list, a tuple or another sequence as an array."""
    if is_listed(entries) and _has_masks(entries):
        entries = _unmasked(entries)
    try:
        array = np.asarray(entries)
    except ValueError:  # rows of different lengths, which no check accepts
        return np.asarray(entries, object)
    if array.dtype.kind in "SU":  # None and NaN became text
        objects = np.asarray(entries, object)
        if not all(map(_is_kept, objects.ravel().tolist())):
            return objects
    return array


def _has_masks(entries: Any) -> bool:
    return any(
        isinstance(entry, np.ma.MaskedArray)
        or (isinstance(entry, (list, tuple)) and _has_masks(entry))
        for entry in entries
    )


def _unmasked(entry: Any) -> Any:
    """Return nested lists with missing values in place of masks."""
    if isinstance(entry, np.ma.MaskedArray):
        return _filled(entry).tolist()
    return [_unmasked(part) for part in entry] if is_listed(entry) else entry


def _is_kept(entry: Any) -> bool:
    """Return whether an array of text keeps an entry: it drops null characters at the end."""
    return isinstance(entry, (str, bytes)) and entry[-1:] not in ("\0", b"\0")


def copied(value: Any) -> Any:
    """Return a copy of a NumPy array, which may be refilled later, and other values unchanged."""
    return value.copy() if isinstance(value, np.ndarray) else value


def is_listed(value: Any) -> bool:
    """Return whether a value is a list, a tuple or another sequence of Python objects."""
    is_text = isinstance(value, (str, bytes, bytearray, memoryview, range))
    return isinstance(value, Sequence) and not is_text and not hasattr(value, "__array__")


def missing_entries(array: np.ndarray) -> np.ndarray:
    """Return which entries of a result of `as_array` are missing."""
    if array.dtype == object:
        return np.array([_is_missing(e) for e in array.ravel().tolist()], bool).reshape(array.shape)
    return array != array


def count_missing(array: np.ndarray) -> int:
    """Return the number of missing entries of a result of `as_array`."""
    if array.dtype.names is not None:
        return sum(count_missing(array[name]) for name in array.dtype.names)
    return int(np.sum(missing_entries(array)))


def _is_missing(entry: Any) -> bool:
    if isinstance(entry, tuple):
        return any(map(_is_missing, entry))
    if entry is None or entry is np.ma.masked or getattr(entry, "is_valid", None) is False:
        return True
    try:
        return bool(entry != entry)
    except (TypeError, ArithmeticError):  # NA is neither true nor false, as a signalling NaN
        return True
    except ValueError:  # an array, which no check of data accepts
        return False


def as_numbers(value: Any) -> np.ndarray | None:
    """Return numbers or booleans as a float64 array, each rounded to nearest, and None for others.

    Decimals and fractions are numbers. Text, dates and complex numbers are not.
    """
    try:
        array = as_array(value)
        if array.dtype == object:
            is_real = not any(isinstance(entry, (str, bytes)) for entry in array.ravel())
        else:  # JAX counts bfloat16 and other narrow types, and NumPy durations
            is_real = array.dtype.kind in "biuf" or jnp.issubdtype(array.dtype, jnp.floating)
            is_real |= jnp.issubdtype(array.dtype, jnp.integer) and array.dtype.kind != "m"
        return array.astype(np.float64) if is_real else None
    except (TypeError, ValueError, ArithmeticError):  # not a number, traced, or too large
        return None


def as_exact(value: Any) -> Any:
    """Return decimals and fractions as floats if floats equal them, and other values unchanged."""
    array = np.asarray(value, object) if isinstance(value, EXACT) else value
    if not isinstance(array, np.ndarray) or array.dtype != object:
        return value
    entries = array.ravel().tolist()
    if not entries or not all(isinstance(entry, (numbers.Real, Decimal)) for entry in entries):
        return value
    floats = as_numbers(array)
    if floats is None or not np.isfinite(floats).all():
        return value
    return floats[()] if floats.ravel().tolist() == entries else value


def distinct(value: Any, array: np.ndarray) -> tuple[list[Any], np.ndarray] | None:
    """Return the different entries of a complete vector, sorted, and the number of each row's.

    Entries are numbers, text, dates, or tuples of them, in the form of `plain`. The result is None
    if the value is not a vector, or has entries of other kinds.

    Args:
        value: the vector.
        array: the vector, from `as_array`.
    """
    listed = is_listed(value)
    kind, rows = array.dtype.kind, list(value) if listed else None
    if listed and kind == "f":  # integers beyond 2^53 would be merged
        exact = array.ndim == 1 and array.tolist() == rows
    else:
        exact = kind in "biu" if listed else kind not in "OV"
    if array.ndim == 1 and exact:
        entries, codes = np.unique(array, return_inverse=True)
        if kind in "iuSU":
            return entries.tolist(), codes
        entries = list(entries)
    else:
        if rows is None:
            if array.ndim != 1:
                return None
            rows = array.tolist() if array.dtype.names is None else list(map(tuple, array))
        places: dict[Any, int] = {}
        try:
            found = (places.setdefault(row, len(places)) for row in rows)
            codes = np.fromiter(found, int, len(rows))
        except TypeError:  # a list or an array has no hash
            return None
        entries = list(places)
    groups: dict[Any, int] = {}
    codes = np.array([groups.setdefault(plain(e), len(groups)) for e in entries], int)[codes]
    names = list(groups)
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # text and numbers have no order
        order = sorted(range(len(names)), key=lambda n: (type(names[n]).__name__, str(names[n])))
    ranks = np.empty(len(names), int)
    ranks[order] = range(len(names))
    return [names[place] for place in order], ranks[codes]


def plain(entry: Any) -> Any:
    """Return an entry as a Python object that does not depend on the type of its column.

    A single fraction makes 3.0 of each 3 in a column, and a single time of day makes a time of each
    date. Whole numbers are therefore integers (True is 1), and midnight is a date. Times are to the
    microsecond, those with a time zone in UTC.
    """
    if isinstance(entry, str):
        return str.__str__(entry)
    if isinstance(entry, tuple):
        return tuple(map(plain, entry))
    if isinstance(entry, (datetime.timedelta, np.timedelta64)):
        return np.timedelta64(entry).astype("timedelta64[us]").item()
    if isinstance(entry, (datetime.date, np.datetime64)):
        return _plain_date(entry)
    entry = entry.item() if isinstance(entry, np.generic) else entry
    if isinstance(entry, numbers.Number):
        return _plain_number(entry)
    return entry


def _plain_date(entry: Any) -> Any:
    """Return a date, or a moment that is not midnight, of the standard library."""
    if isinstance(entry, datetime.datetime) and entry.tzinfo is not None:
        moment = entry.astimezone(datetime.UTC)
        return datetime.datetime.combine(moment.date(), moment.timetz())
    moment = np.datetime64(entry).astype("datetime64[us]").item()
    if isinstance(moment, datetime.datetime) and moment.time() == datetime.time():
        return moment.date()
    return moment  # microseconds, for a year that the standard library does not have


def _plain_number(entry: Any) -> Any:
    """Return a number as an integer or a float if one of them equals it."""
    if isinstance(entry, (complex, np.complexfloating)):
        return entry if entry.imag else _plain_number(entry.real)
    if abs(entry) < 2**1024 and entry == int(entry):
        return int(entry)
    if not 2**53 <= abs(entry) < math.inf and entry == float(entry):
        return float(entry)
    if isinstance(entry, Decimal):  # without zeros at the end
        return entry.normalize(Context(prec=max(1, len(entry.as_tuple().digits))))
    return entry
