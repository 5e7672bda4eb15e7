"""Functions that turn columns of a table into features, and a target into labels."""

import datetime
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.arrays import missing_entries
from nrjax._base.validation import check
from nrjax.datasets import _warnings
from nrjax.datasets._cells import (
    as_boolean,
    as_date,
    as_dates,
    as_plain_numbers,
    canonical,
    is_number,
    is_numeric,
    is_text,
    number_of,
)

MAX_CATEGORIES = 50
"""Largest number of categories of a text column, unless they are stated."""

LARGEST = 1e38
"""Largest absolute value of a number. Larger ones often stand for missing values."""

_DAY = np.timedelta64(1, "D")


class PreparedColumn(NamedTuple):
    """Features made of a column, shape (n, k), or a target, shape (n,), in float64.

    Attributes:
        values: the features or the target.
        names: names of the k features.
        done: a description, such as "age [18, 90]".
        derived: what was taken from the data, such as "the labels of age", or "".
        remarks: warnings.
        middle: number of the user's column that became 0.
        half: number of the user's units that became 1.
    """

    values: np.ndarray
    names: tuple[str, ...]
    done: str
    derived: str = ""
    remarks: tuple[str, ...] = ()
    middle: float = 0.0
    half: float = 1.0


def is_range(stated: Any) -> bool:
    """Return whether stated bounds are a tuple of two numbers or of two dates.

    A list is a list of categories.
    """
    if not isinstance(stated, tuple) or len(stated) != 2:
        return False
    return all(map(is_number, stated)) or all(as_date(end) is not None for end in stated)


def range_hint(name: str) -> str:
    """Return how to write a range."""
    return f"For a range write {name}=LOW:HIGH in the shell and (LOW, HIGH) in Python."


def scale_column(where: str, name: str, column: np.ndarray, stated: Any) -> PreparedColumn:
    """Clip numbers or dates to their range, which is scaled to -1 and 1 (to 0 if equal)."""
    expected = f"(LOW, HIGH), for a column of numbers of {where}"
    check(is_range(stated), f"bounds of {name!r}", stated, expected)
    if is_number(stated[0]):
        values = _as_numbers(where, name, column, stated)
        low, high = map(float, stated)
        shown = f"{low:g}", f"{high:g}"
        # An end may have been rounded to the column's narrow type.
        narrow = column.dtype if column.dtype.kind == "f" else np.dtype(np.float64)
        with np.errstate(over="ignore"):
            ends = np.array([low, high]).astype(narrow).astype(np.float64)
        below, above = values < min(low, ends[0]), values > max(high, ends[1])
    else:
        first, last = (as_date(end) for end in stated)
        values = (_as_dates(where, name, column, stated) - first) / _DAY
        low, high = 0.0, float((last - first) / _DAY)
        shown = _date_text(first), _date_text(last)
        below, above = values < low, values > high
    middle, half = (low + high) / 2, (high - low) / 2 or 1.0
    outside = int(np.sum(below) + np.sum(above))
    remarks = _warnings.outside_range(name, shown, int(np.sum(below)), int(np.sum(above)), values)
    remarks = remarks or _warnings.narrow_range(name, shown, values, high - low)
    values = (np.clip(values, low, high) - middle) / half
    done = f"{name} [{', '.join(shown)}]"
    done += f" ({outside:,} clipped)" if outside else ""
    values = np.clip(values, -1, 1)
    return PreparedColumn(values, (name,), done, remarks=remarks, middle=middle, half=half)


def _as_numbers(where: str, name: str, column: np.ndarray, stated: Any) -> np.ndarray:
    """Return a column as float64, also one of text in which each cell is a plain number."""
    is_date = column.dtype.kind == "M"
    check(not is_date, f"bounds of {name!r}", stated, "two dates, for a column of dates")
    if not is_text(column):
        return np.asarray(column, np.float64)
    values = as_plain_numbers(column)
    bad = int(np.sum(~(np.abs(values) <= LARGEST)))
    hint = (
        f"{bad:,} of {len(column):,} cells are no plain number. Write 1000.5, not 1,000.5, and no "
        "units, signs of currency or %. Leave cells without a number empty, and choose what "
        "becomes of them with missing=. pandas.read_csv has decimal, thousands and na_values."
    )
    check(bad == 0, f"column {name!r} of {where}", "text", "numbers, as its bounds are", hint)
    return values


def _as_dates(where: str, name: str, column: np.ndarray, stated: Any) -> np.ndarray:
    """Return a column as dates, also one of text in which each cell is an ISO date."""
    is_date = is_text(column) or column.dtype.kind == "M"
    check(is_date, f"bounds of {name!r}", stated, "two numbers, for a column of numbers")
    dates = as_dates(column)
    bad = int(np.sum(np.isnat(dates)))
    hint = (
        f"{bad:,} of {len(column):,} cells are no ISO date. Write dates as 2020-01-31. Other forms "
        "are read by pandas.to_datetime(column, format=...), in the shell by --read "
        f"parse_dates={name} (with dayfirst=True, if the day comes first)."
    )
    check(bad == 0, f"column {name!r} of {where}", "text", "dates, as its bounds are", hint)
    return dates


def indicators(
    where: str,
    short: str,
    name: str,
    column: np.ndarray,
    stated: Any,
    order: Sequence[Any] | None = None,
) -> PreparedColumn:
    """Return an indicator of each category: the stated ones, or else all values of the column.

    `order` has the categories of an ordered column.
    """
    remarks: tuple[str, ...] = ()
    rows = len(column)
    if stated is None:
        values = set(column.tolist())
        got = f"text of {len(values)} values"
        expected = f"numbers (1000, not 1,000), or text of at most {MAX_CATEGORIES} values"
        hint = (
            "Leave it out (leave_out, in the shell --leave-out), recode it, or list its categories "
            "in the bounds."
        )
        hint += _warnings.kind_of_text(values, rows)
        check(len(values) <= MAX_CATEGORIES, f"column {name!r} of {where}", got, expected, hint)
        remarks = _warnings.unlisted(short, name, values, rows)
    entries = order if stated is None else stated
    codes, names = match(name, column, sorted(set(column.tolist())) if entries is None else entries)
    none = int(np.sum(codes < 0))
    if stated is not None:
        # Two numbers for most rows of which neither stands are a range.
        is_covered = 2 * none <= rows or not is_numeric(column)
        is_covered |= len(names) > 2 and column.dtype.kind != "f"
        expected = f"categories of most rows, not of {rows - none:,} of {rows:,}"
        check(is_covered, f"bounds of {name!r}", stated, expected, range_hint(name))
        remarks = _warnings.outside_list(name, names, column, codes)
    done = f"{name} ({len(names)} categories"
    done += f"; others: {none:,})" if none else ")"
    derived = "" if stated is not None else f"the categories of {name}"
    made = (codes[:, None] == np.arange(len(names))).astype(np.float64)
    return PreparedColumn(made, tuple(f"{name}={each}" for each in names), done, derived, remarks)


def match(name: str, column: np.ndarray, stated: Any) -> tuple[np.ndarray, list[str]]:
    """Return the place of each cell among stated categories, or -1, and their names.

    The stated categories alone decide how cells are compared, so that no row depends on others: as
    numbers, as dates, or as text without blanks around it. A cell matches a fraction also if it is
    that fraction in float32 or float16, whatever the type of the column.
    """
    entries = [] if is_range(stated) and is_text(column) else list(stated)
    compared, key_of = _comparison(entries)
    keys = [key_of(entry) for entry in entries]
    if column.dtype.kind == "M":
        kind, fits = "dates", compared == "dates"
    elif is_text(column):
        kind, fits = "text", True
    else:  # text may stand for a category that no row has
        kind = "numbers" if is_numeric(column) else "False and True"
        fits = compared == "numbers" or any(number_of(entry) is not None for entry in entries)
        fits &= is_numeric(column) or {number_of(e) for e in entries} & {0, 1} != set()
    ok = fits and 0 < len(keys) == len(set(keys))
    ok = ok and not missing_entries(np.fromiter(entries, object, len(entries))).any()
    check(ok, f"bounds of {name!r}", stated, f"different categories, of {kind}", range_hint(name))
    places = _narrow_places(entries, key_of) | {key: place for place, key in enumerate(keys)}
    cells = column.tolist()
    is_direct = compared == "numbers" and not is_text(column)
    known = {cell: places.get(cell if is_direct else key_of(cell), -1) for cell in set(cells)}
    codes = np.fromiter((known[cell] for cell in cells), int, len(cells))
    return codes, [_name_of(key, entry) for key, entry in zip(keys, entries, strict=True)]


def _narrow_places(entries: Sequence[Any], key_of: Callable[[Any], Any]) -> dict[Any, int]:
    """Return the place of each stated fraction by its value in float32 and in float16.

    A value of several stated fractions has the place -1. The number 1000.5 is 1000.3 in float16,
    but does not stand for it: float16 writes the number as 1000.5.
    """
    places: dict[Any, int] = {}
    for place, number in enumerate(map(number_of, entries)):
        if not isinstance(number, float):
            continue
        with np.errstate(over="ignore", under="ignore"):
            single, half = np.float32(number), np.float16(number)
        narrow = {float(single)} | ({float(half)} if float(str(half)) == number else set())
        for value in narrow - {number}:
            if not value.is_integer():
                key = key_of(value)
                places[key] = -1 if key in places else place
    return places


def _comparison(entries: Sequence[Any]) -> tuple[str, Callable[[Any], Any]]:
    """Return as what cells are compared with stated categories, and the function for both."""
    ways: dict[str, Callable[[Any], Any]] = {
        "numbers": number_of,
        "dates": _moment,
        "text": lambda entry: str(canonical(entry)),
    }
    for compared, key_of in ways.items():
        keys = [key_of(entry) for entry in entries]
        if None not in keys and len(set(keys)) == len(keys):
            return compared, key_of
    return "text", lambda entry: str(entry).strip()  # such as 7 and 007


def _moment(entry: Any) -> datetime.datetime | None:
    """Return a date, or text that is an ISO date, as a moment, and None for other entries."""
    date = as_date(entry)
    return None if date is None else date.item()


def _name_of(key: Any, entry: Any) -> str:
    """Return the name of a category, with 1.0 as 1."""
    if isinstance(key, datetime.datetime):
        return _date_text(np.datetime64(key))
    if (boolean := as_boolean(entry)) is not None:
        return str(boolean)
    if isinstance(entry, Real | Decimal) and not isinstance(entry, Integral):
        return np.format_float_positional(float(entry), trim="-")
    return str(entry).strip()


def _date_text(date: Any) -> str:
    """Return a date without the time if that is midnight."""
    return str(date.astype("datetime64[s]")).removesuffix("T00:00:00")


def infer_task(where: str, y: np.ndarray) -> str:
    """Return "logistic" for a target of two values, and "ridge" for any other numbers."""
    values = len(set(y.tolist()))
    ok = values == 2 or is_numeric(y)
    got = f"{values:,} different values"
    hint = (
        "Of several classes, predict one against the rest: recode the column." if values > 2 else ""
    )
    check(ok, f"values of the target of {where}", got, "two labels, or numbers", hint)
    return "logistic" if values == 2 else "ridge"


def labels(
    where: str, name: str, y: np.ndarray, stated: Any, order: Iterable[Any] | None = None
) -> PreparedColumn:
    """Return a target of two values as -1 and 1, in the order of the stated labels.

    `order` has the categories of an ordered column.
    """
    values = set(y.tolist())
    ok = len(values) == 2 and (y.dtype.kind != "f" or np.isfinite(y).all())
    hint = "For a real-valued target use task 'ridge' (--task ridge)."
    got = f"{len(values):,} different values"
    check(ok, f"values of the target of {where}", got, "exactly two labels", hint)
    if stated is None:
        entries = [entry for entry in order or () if entry in values]
        codes, names = match(name, y, entries if len(entries) == 2 else sorted(values))
    else:
        codes, names = match(name, y, stated)
        none = int(np.sum(codes < 0))
        hint = f"{none:,} of {len(y):,} rows have another. The first becomes -1, the second 1."
        hint += _warnings.nearest(names, y, codes)
        expected = f"the two labels of {where}"
        check(len(names) == 2 and none == 0, f"bounds of {name!r}", stated, expected, hint)
    derived = "" if stated is not None or y.dtype.kind == "b" else f"the labels of {name}"
    done = f"{name} ({names[0]} is -1, {names[1]} is 1)"
    return PreparedColumn(np.where(codes == 1, 1.0, -1.0), (name,), done, derived)


def check_numbers(where: str, y: np.ndarray, stated: Any = None) -> None:
    """Check that a target is suitable for ridge regression."""
    numbers = as_plain_numbers(y) if is_text(y) and is_range(stated) else y
    values = len(set(y.tolist()))
    ok = is_numeric(numbers) and values >= 3
    ok = ok and (np.abs(numbers.astype(np.float64)) <= LARGEST).all()
    expected = f"at least three finite numbers (1000, not 1,000) within {LARGEST:g}"
    hint = "For two labels use task 'logistic' (--task logistic)." if values == 2 else ""
    got = f"{values:,} different values{' of text' if is_text(y) else ''}"
    check(ok, f"values of the target of {where}", got, expected, hint)
