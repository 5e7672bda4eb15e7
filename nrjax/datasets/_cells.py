"""Cells of a column: which are missing, and their kind: numbers, booleans, dates or text.

A complete column is an array of numbers, of booleans, of `datetime64[us]`, or of Python objects:
text, or integers of more than 64 bits.
"""

import datetime
import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from nrjax._base.arrays import as_array, as_numbers, is_listed, missing_entries
from nrjax._base.validation import check

MISSING_WORDS = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>"}
MISSING_WORDS |= {"-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null"}
"""Text that stands for a missing cell if it is no stated category, as in `pandas.read_csv`."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d.*)?)?")
_BOOLEANS = {"false": False, "true": True}


def as_cells(column: Any) -> np.ndarray:
    """Return a column as an array of cells, of which some may be missing.

    A time zone is dropped: a date is that of the clock on the wall.
    """
    if getattr(getattr(column, "type", None), "tz", None) is not None:  # Arrow, which gives UTC
        column = column.to_pandas()
    elif getattr(getattr(column, "dtype", None), "time_zone", None) is not None:  # polars
        column = column.dt.replace_time_zone(None)
    if not is_listed(column):
        return as_array(column)
    # A NumPy array of text has the width of the longest cell, and one of large integers rounds.
    is_text = any(isinstance(entry, (str, bytes)) for entry in column)
    as_they_are = is_text or all(isinstance(entry, int) for entry in column)
    return np.fromiter(column, object, len(column)) if as_they_are else as_array(column)


def missing_in(cells: np.ndarray, stated: Any = None) -> np.ndarray:
    """Return which cells are missing. A word such as NA is a value if it is stated."""
    missing = missing_entries(cells)
    if cells.dtype == object or cells.dtype.kind in "SU":
        words = MISSING_WORDS - {str(entry).strip() for entry in stated or ()}
        is_word = [_is_word(entry, words) for entry in cells.ravel().tolist()]
        missing |= np.array(is_word, bool).reshape(cells.shape)
    return missing


def _is_word(entry: Any, words: Collection[str]) -> bool:
    return isinstance(entry, (str, bytes)) and _as_text(entry) in words


def _as_text(entry: Any) -> str:
    """Return a cell as text without blanks around it."""
    text = entry.decode("utf-8", "surrogateescape") if isinstance(entry, bytes) else str(entry)
    return text.strip()


def as_column(what: str, cells: np.ndarray) -> np.ndarray:
    """Return complete cells as numbers, booleans, dates or text without blanks around it."""
    if cells.dtype.kind == "M":
        dates = cells.astype("datetime64[us]")
        kept = dates.astype("datetime64[Y]") == cells.astype("datetime64[Y]")
        expected = "within 290,000 years of 1970"
        check(kept.all(), what, f"{int(np.sum(~kept)):,} dates beyond", expected)
        return dates
    if cells.dtype.kind in "biuf":
        return cells
    if cells.dtype.kind in "SU":
        cells = cells.astype(object)
    if cells.dtype == object:
        return _of_objects(what, cells)
    wide = as_numbers(cells)  # bfloat16 and other narrow types
    hint = "Give durations as numbers, such as days." if cells.dtype.kind == "m" else ""
    check(wide is not None, what, cells.dtype.name, "numbers, booleans, dates or text", hint)
    assert wide is not None
    return wide


def _of_objects(what: str, cells: np.ndarray) -> np.ndarray:
    """Return a column of Python objects as numbers, booleans, dates or text."""
    entries = cells.ravel().tolist()
    listed = any(isinstance(e, Collection) and not isinstance(e, (str, bytes)) for e in entries)
    check(not listed, what, "lists, or other collections", "of numbers, booleans, dates or text")
    column: Any = None
    if entries and all(isinstance(entry, Real | Decimal) for entry in entries):
        column = np.array(entries)
        if all(isinstance(e, int | np.integer) for e in entries) and column.dtype.kind not in "biu":
            column = None  # of more than 64 bits
            if as_numbers(cells) is not None:
                column = np.fromiter(map(int, entries), object, len(entries))
        elif column.dtype.kind not in "biuf":
            column = as_numbers(cells)  # decimals, fractions
    elif entries and all(isinstance(e, datetime.date | np.datetime64) for e in entries):
        column = np.array([as_date(entry) for entry in entries])
    if column is None:
        texts = [_as_text(float(e) if _is_fraction(e) else e) for e in entries]
        is_written = (isinstance(entry, (str, bytes)) for entry in entries)
        different = set(zip(is_written, texts, strict=True))
        hint = "Write all of them as numbers, or all as text."
        ok = len(different) == len(set(texts))
        check(ok, what, "such as 1 and '1'", "of values that differ as text", hint)
        column = np.array(texts, object)
    return column.reshape(cells.shape)


def _is_fraction(entry: Any) -> bool:
    """Return whether the text of a number may differ from its value in float64.

    NumPy writes float16(0.1), which is 0.09997..., as 0.1.
    """
    return isinstance(entry, np.floating) or (isinstance(entry, Fraction) and entry % 1 != 0)


def is_number(value: Any) -> bool:
    """Return whether a stated value is a number, and not a boolean."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool)


def is_text(column: np.ndarray) -> bool:
    """Return whether a complete column is text."""
    return column.dtype == object and not isinstance(column.ravel()[0], int)


def is_numeric(column: np.ndarray) -> bool:
    """Return whether a complete column is numbers, and neither booleans nor dates."""
    return column.dtype.kind in "iuf" or (column.dtype == object and not is_text(column))


def number_of(entry: Any) -> int | float | None:
    """Return the number that a cell or a stated category is or is written as, or None.

    True is 1, and a whole number is an integer, also if it is written as 7.0.
    """
    if (boolean := as_boolean(entry)) is not None:
        return int(boolean)
    if isinstance(entry, str):
        text = entry.strip()
        if not _NUMBER.fullmatch(text):
            return None
        if text.lstrip("+-").isdigit():
            return int(text)
    elif isinstance(entry, Integral):
        return int(entry)
    elif not isinstance(entry, Real | Decimal):
        return None
    number = float(entry)
    if number != number:
        return None
    return int(number) if number.is_integer() else number


def canonical(entry: Any) -> Any:
    """Return an entry in a form that does not depend on the entries next to it.

    NumPy and pandas hold a column in one type: a single text or fraction makes "7" or 7.0 of each
    7. What is done to a row must not depend on other rows.
    """
    number = number_of(entry)
    if number is not None:
        return number
    date = None if isinstance(entry, str) else as_date(entry)
    if date is not None:
        return str(date)
    return _as_text(entry) if isinstance(entry, (str, bytes)) else entry


def as_plain_numbers(texts: Iterable[str]) -> np.ndarray:
    """Return text as numbers, and NaN for text such as 1,000 or 5 %."""
    return np.array([float(t) if _NUMBER.fullmatch(t) else np.nan for t in texts])


def as_date(value: Any) -> Any:
    """Return a date or an ISO text such as "2020-01-31" as a date, and None for other values.

    A time zone is dropped: a date is that of the clock on the wall.
    """
    if isinstance(value, str) and _DATE.fullmatch(value.strip()):
        text = value.strip()
        try:
            value = datetime.datetime.fromisoformat(text if len(text) > 7 else f"{text}-01")
        except ValueError:
            return None
    if isinstance(value, datetime.datetime) and value == value:  # also a Timestamp of pandas
        value = value.replace(tzinfo=None)
    if not isinstance(value, datetime.date | np.datetime64) or value != value:  # NaT
        return None
    return np.datetime64(value).astype("datetime64[us]")


def as_dates(column: np.ndarray) -> np.ndarray:
    """Return a column of dates or of text as dates, NaT for text that is no ISO date."""
    if column.dtype.kind == "M":
        return column
    known = {text: as_date(text) for text in set(column.tolist())}
    dates = [known[text] for text in column.tolist()]
    return np.array(["NaT" if date is None else date for date in dates], "datetime64[us]")


def as_boolean(value: Any) -> bool | None:
    """Return True, "true" or "TRUE" as True, likewise False, and None for other values."""
    if isinstance(value, bool | np.bool):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def declared_order(column: Any) -> list[Any] | None:
    """Return the categories of an ordered column in their declared order, or None.

    Ordered columns are ordered categoricals of pandas, Enum columns of polars, and ordered
    dictionaries of Arrow.
    """
    dtype: Any = getattr(column, "dtype", getattr(column, "type", None))
    if getattr(dtype, "ordered", False):
        categories = getattr(dtype, "categories", None)  # pandas
        if categories is None:  # Arrow
            chunks = getattr(column, "chunks", [column])
            categories = chunks[0].dictionary.to_pylist() if chunks else []
    elif type(dtype).__name__ == "Enum":
        categories = dtype.categories
    else:
        return None
    kinds = Real, datetime.date
    return [each if isinstance(each, kinds) else str(each).strip() for each in categories]
