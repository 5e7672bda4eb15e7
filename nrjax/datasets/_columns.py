"""Functions that turn columns of a table into features, and a target into labels."""

import re
from collections.abc import Collection
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.arrays import as_numbers
from nrjax._base.validation import check

MAX_CATEGORIES = 50
"""Largest number of categories of a text column, unless they are stated."""

LARGEST = 1e38
"""Largest absolute value of a number. Larger ones often stand for missing values."""

_NUMBER_LIKE = re.compile(r"[-+]?[$€£]?\s*\d[\d.,' ]*\s*[%$€£]?")
"""A pattern for text that a person reads as a number, such as 1,000 or 5 %."""


_BOOLEANS = ("False", "True")


class PreparedColumn(NamedTuple):
    """Features made of a column, shape (n, k), or a target, shape (n,), in float64.

    Attributes:
        values: the features or the target.
        names: names of the k features.
        done: a description, such as "age [18, 90]".
        derived: what was taken from the data, such as "the labels of age", or "".
        remarks: warnings.
    """

    values: np.ndarray
    names: tuple[str, ...]
    done: str
    derived: str = ""
    remarks: tuple[str, ...] = ()


def as_column(what: str, array: np.ndarray) -> np.ndarray:
    """Return a complete column of a table, from `as_array`, as numbers, booleans or text."""
    if array.dtype == object:
        return _of_objects(what, array)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "surrogateescape")
    if array.dtype.kind in "biufU" and array.dtype != np.float16:
        return array
    wide = as_numbers(array)  # float16, bfloat16 and other narrow types
    return array.astype(str) if wide is None else wide


def _of_objects(what: str, array: np.ndarray) -> np.ndarray:
    """Return a column of Python objects as numbers, booleans or text."""
    entries = array.ravel().tolist()
    listed = any(isinstance(e, Collection) and not isinstance(e, (str, bytes)) for e in entries)
    check(not listed, what, "lists, or other collections", "of numbers, booleans or text")
    column: Any = np.array(entries)
    if column.dtype == object and all(isinstance(entry, Real | Decimal) for entry in entries):
        column = as_numbers(array)  # decimals, fractions, large integers
    if column is None or column.dtype.kind not in "biuf":
        column = np.array([str(entry) for entry in entries])
        different = {(isinstance(entry, str), str(entry)) for entry in entries}
        distinct = len(different) == len(set(column.tolist()))
        hint = "Write all of them as numbers, or all as text."
        check(distinct, what, "such as 1 and '1'", "of values that differ as text", hint)
    return column.reshape(array.shape)


def is_interval(stated: Any) -> bool:
    """Return whether stated bounds are two numbers, and not a list of categories."""
    kinds = [isinstance(end, Real | Decimal) and not isinstance(end, bool) for end in stated]
    return len(kinds) == 2 and all(kinds)


def scale_column(where: str, name: str, column: np.ndarray, stated: Any) -> PreparedColumn:
    """Clip numbers to their bounds, and scale the bounds to -1 and 1 (to 0 if equal)."""
    expected = f"(LOW, HIGH), for a column of numbers of {where}"
    check(is_interval(stated), f"bounds of {name!r}", stated, expected)
    low, high = map(float, stated)
    values = np.asarray(column, np.float64)
    outside = int(np.sum((values < low) | (values > high)))
    half = (high - low) / 2
    values = (np.clip(values, low, high) - (low + high) / 2) / (half or 1)
    done = f"{name} [{low:g}, {high:g}]"
    done += f" ({outside:,} clipped)" if outside else ""
    missed = f"Warning: no value of {name!r} lies within its bounds [{low:g}, {high:g}]."
    remarks = (missed,) if outside == len(column) else ()
    return PreparedColumn(np.clip(values, -1, 1), (name,), done, remarks=remarks)


def indicators(
    where: str, short: str, name: str, column: np.ndarray, stated: Any
) -> PreparedColumn:
    """Return an indicator of each category: the stated ones, or else all values of the column."""
    remarks: tuple[str, ...] = ()
    if stated is None:
        categories = np.unique(column)
        expected = f"numbers (1000, not 1,000), or text of at most {MAX_CATEGORIES} values"
        fits, got = len(categories) <= MAX_CATEGORIES, f"text of {len(categories)} values"
        hint = "Drop or recode it, or list its categories in the bounds."
        check(fits, f"column {name!r} of {where}", got, expected, hint)
        remarks = _number_like(short, name, categories.tolist())
    else:
        column, categories = _as_numbers_or_text(name, column, stated)
    values = (column[:, None] == categories).astype(np.float64)
    none = len(column) - int(np.sum(values))
    covered = stated is None or column.dtype.kind != "f" or 2 * none <= len(column)
    expected = f"categories of most rows, not of {len(column) - none:,} of {len(column):,}"
    hint = f"For a range write {name}=LOW:HIGH in the shell and (LOW, HIGH) in Python."
    check(covered, f"bounds of {name!r}", stated, expected, hint)
    if none == len(column):
        remarks = (f"Warning: no value of {name!r} is one of its {len(categories)} categories.",)
    done = f"{name} ({len(categories)} categories"
    done += f"; others: {none:,})" if none else ")"
    derived = "" if stated is not None else f"the categories of {name}"
    names = tuple(f"{name}={_as_text(category)}" for category in categories.tolist())
    return PreparedColumn(values, names, done, derived, remarks)


def _as_numbers_or_text(
    name: str, column: np.ndarray, stated: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return a column and its stated categories, both as numbers, booleans or text."""
    if column.dtype.kind == "b" and all(str(entry).title() in _BOOLEANS for entry in stated):
        stated, column = [str(entry).title() for entry in stated], column.astype(str)
    is_text = column.dtype.kind == "U"
    kind, expected = (str, "text") if is_text else (np.float64, "numbers")
    try:
        categories = np.array([] if is_text and is_interval(stated) else list(stated)).astype(kind)
    except ValueError:  # text for a column of numbers
        categories = np.empty(0)
    ok = 0 < len(categories) == len(set(categories.tolist()))
    hint = f"For a range write {name}=LOW:HIGH in the shell and (LOW, HIGH) in Python."
    check(ok, f"bounds of {name!r}", stated, f"different categories, of {expected}", hint)
    return column.astype(kind), categories


def _as_text(category: Any) -> str:
    """Return a category as text, with 1.0 as 1."""
    if isinstance(category, float):
        return np.format_float_positional(category, trim="-")
    return str(category)


def _number_like(short: str, name: str, values: list[str]) -> tuple[str, ...]:
    """Return a warning if most values of a text column look like numbers."""
    like = sum(_NUMBER_LIKE.fullmatch(value.strip()) is not None for value in values)
    if not values or 2 * like < len(values):
        return ()
    plain = (value.lstrip("+-").replace(".", "", 1).isdigit() for value in values)
    odd = next((value for value, fits in zip(values, plain, strict=True) if not fits), values[0])
    return (
        f"Warning: the column {name!r} of {short} looks like numbers but is text, as {odd!r} "
        f"is: its {len(values)} values became {len(values)} columns of 0 and 1. If it holds "
        "numbers, write 1000, not 1,000, and no units.",
    )


def infer_task(where: str, y: np.ndarray) -> str:
    """Return "logistic" for a target of two values, and "ridge" for any other numbers."""
    values = np.unique(y).tolist()
    ok = len(values) == 2 or y.dtype.kind in "iuf"
    check(ok, f"values of the target of {where}", values, "two labels, or numbers")
    return "logistic" if len(values) == 2 else "ridge"


def labels(where: str, name: str, y: np.ndarray, stated: Any) -> PreparedColumn:
    """Return a target of two values as -1 and 1, the order of the stated labels."""
    values = np.unique(y)
    ok = len(values) == 2 and (y.dtype.kind != "f" or np.isfinite(y).all())
    hint = "For a real-valued target use task 'ridge' (--task ridge)."
    check(ok, f"values of the target of {where}", values.tolist(), "exactly two labels", hint)
    if stated is not None:
        expected = f"its two labels {values.tolist()}"
        hint = "The first becomes -1, the second 1."
        y, values = _as_numbers_or_text(name, y, stated)
        ok = len(values) == 2 and np.isin(y, values)
        check(ok, f"bounds of {name!r}", stated, expected, hint)
    first, second = map(_as_text, values.tolist())
    derived = "" if stated is not None or y.dtype.kind == "b" else f"the labels of {name}"
    done = f"{name} ({first} is -1, {second} is 1)"
    return PreparedColumn(np.where(y == values[1], 1.0, -1.0), (name,), done, derived)


def check_numbers(where: str, y: np.ndarray) -> None:
    """Check that a target is suitable for ridge regression."""
    values = np.unique(y).tolist()
    ok = y.dtype.kind in "iuf" and (np.abs(y) <= LARGEST).all() and len(values) >= 3
    expected = f"at least three finite numbers (1000, not 1,000) within {LARGEST:g}"
    hint = "For two labels use task 'logistic' (--task logistic)." if len(values) == 2 else ""
    check(ok, f"values of the target of {where}", values, expected, hint)
