"""A column of a table as it is understood: its kind, its gaps, and what it looks like."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.pytrees import record
from nrjax.datasets import _people
from nrjax.datasets._cells import as_cells, as_column, is_numeric, is_text, missing_in
from nrjax.datasets._columns import LARGEST, MAX_CATEGORIES

_LEAST_ROWS_OF_AN_ID = 10
_MOST_CLASSES = 10
_FREE_TEXT = 30
"""Mean length, in characters, from which text of many values is free text."""

_MOST = 0.95
"""Fraction of cells that must be written in one way."""

_USELESS = (
    *("an id", "free text", "mostly missing", "dates in another format"),
    *("numbers with units", "infinite numbers"),
)

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_COMMA = re.compile(r"[-+]?\d+,\d+")
_GROUPS = re.compile(r"([-+]?\d{1,3})([,.' ]\d{3})+([.,]\d+)?")
_NUMBER_LIKE = re.compile(r"[-+(<>~]*[$€£]?\s*\d[\d.,' ]*\s*[%$€£)]?")
_DIGIT = re.compile(r"\d")
_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d\d)|\d{4}([./-])\d{1,2}\5\d{1,2}")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")


@record
class Column(NamedTuple):
    """A column of a table as it is understood, in counts and without values of the data.

    Attributes:
        name: name of the column.
        kind: "numbers", "booleans", "dates", "text", "mixed" or "empty".
        missing: number of missing cells.
        unparsable: number of cells that are no finite number, in a column that is mostly numbers.
        values: number of different values.
        looks_like: "an id", "dates", "dates in another format" than YYYY-MM-DD, "numbers",
            "numbers with units", "infinite numbers", "a class", "free text", "many categories",
            "mostly missing", "a constant", or "".
        hint: what to do about it, or "".
        read: options of `read` that make numbers or dates of the text, such as "decimal=,", or "".
        may_be_people: whether the column may identify people who have several rows, by its name or
            by its number of different values.
    """

    name: str
    kind: str
    missing: int
    unparsable: int
    values: int
    looks_like: str = ""
    hint: str = ""
    read: str = ""
    may_be_people: bool = False

    @property
    def left_out(self) -> bool:
        """Whether the column is of no use for a regression as it is, such as an id or free text."""
        return self.kind in ("empty", "mixed") or self.looks_like in _USELESS

    @property
    def has_range(self) -> bool:
        """Whether the column needs a lower and an upper bound."""
        return self.kind in ("numbers", "dates") or self.looks_like in ("numbers", "dates")


def described(name: str, column: Any, stated: Any = None) -> Column:
    """Return how a column is understood, in which stated categories are not missing."""
    cells = as_cells(column)
    gaps = missing_in(cells, stated if isinstance(stated, (list, tuple)) else None)
    missing, cells = int(gaps.sum()), cells[~gaps]
    if not len(cells):
        return Column(name, "empty", missing, 0, 0, "", "Leave it out.")
    if missing > len(cells):
        found = _understood(name, missing, cells)
        hint = "Leave it out, or fill it in."
        return found._replace(looks_like="mostly missing", hint=hint, read="")
    return _understood(name, missing, cells)


def people_in(column: Any) -> list[Any]:
    """Return the person of each row that names one."""
    cells = as_cells(column)
    return cells[~missing_in(cells)].tolist()


def _understood(name: str, missing: int, cells: np.ndarray) -> Column:
    """Return how the cells of a column are understood that are not missing."""
    try:
        complete = as_column(f"column {name!r}", cells)
    except ValueError as error:
        return Column(name, "mixed", missing, 0, 0, "", f"{error} Or leave it out.")
    if is_text(complete):
        column = Column(name, "text", missing, *_of_texts(name, complete.tolist()))
        is_key = column.looks_like in ("an id", "many categories")
    elif is_numeric(complete):
        numbers = complete.astype(np.float64)
        column = Column(name, "numbers", missing, *_of_numbers(name, numbers))
        is_key = column.looks_like in ("", "an id") and bool((numbers == np.floor(numbers)).all())
    else:
        kind = "booleans" if complete.dtype.kind == "b" else "dates"
        return Column(name, kind, missing, 0, len(np.unique(complete)))
    is_shared = MAX_CATEGORIES < column.values < len(cells)
    is_shared |= _people.may_be_shared(name, column.values, len(cells))
    return column._replace(may_be_people=is_key and is_shared)


_SHARED = f"Leave it out. {_people.HINT}"
"""The hint for an id that several rows share."""


def _of_numbers(name: str, numbers: np.ndarray) -> tuple[int, int, str, str]:
    """Return the number of infinite cells, and the next fields of a column of numbers."""
    values, infinite = np.unique(numbers), int(np.sum(np.abs(numbers) > LARGEST))
    if infinite:
        return infinite, len(values), "infinite numbers", "Write finite numbers, or leave it out."
    whole = bool((values == np.floor(values)).all())
    if len(values) == 1:
        return 0, 1, "a constant", ""
    counted = len(values) == values[-1] - values[0] + 1 >= _LEAST_ROWS_OF_AN_ID
    if whole and len(values) == len(numbers) and (_people.is_called_id(name) or counted):
        return 0, len(values), "an id", "Leave it out."
    if whole and _people.may_be_shared(name, len(values), len(numbers)):
        return 0, len(values), "an id", _SHARED
    if whole and 3 <= len(values) <= _MOST_CLASSES and 2 * len(values) <= len(numbers):
        return 0, len(values), "a class", ""
    return 0, len(values), "", ""


def _of_texts(name: str, cells: list[str]) -> tuple[int, int, str, str, str]:
    """Return the number of cells that are no numbers, and the last fields of a column of text."""
    texts, size = Counter(cells), len(cells)
    values = len(texts)

    def count(pattern: re.Pattern[str]) -> int:
        return sum(n for text, n in texts.items() if pattern.fullmatch(text))

    if count(_ISO) == size:
        return 0, values, "dates", "", ""
    if count(_DATE) == size:
        return 0, values, "dates in another format", *_of_dates(name, texts)
    plain = count(_NUMBER)
    if 2 * max(plain, count(_NUMBER_LIKE)) >= size:
        return size - plain, values, *_of_number_texts(texts, size, plain)
    if values == 1:
        return 0, 1, "a constant", "", ""
    length = sum(len(text) * n for text, n in texts.items()) / size
    if values > MAX_CATEGORIES and length >= _FREE_TEXT:
        return 0, values, "free text", "Leave it out.", ""
    if values == size and (_people.is_called_id(name) or size >= _LEAST_ROWS_OF_AN_ID):
        return 0, values, "an id", "Leave it out.", ""
    if _people.may_be_shared(name, values, size):
        return 0, values, "an id", _SHARED, ""
    if values > MAX_CATEGORIES:
        hint = "List the categories that matter in its bounds, or leave it out."
        return 0, values, "many categories", hint, ""
    return 0, values, "a class", "", ""


def _of_dates(name: str, texts: Iterable[str]) -> tuple[str, str]:
    """Return how to read dates that are not written as YYYY-MM-DD, and the options of `read`."""
    parts = [found for text in texts if (found := _DATE.fullmatch(text)) and found[1]]
    dotted = any(found[2] == "." for found in parts)
    after = " (and dayfirst=True, if the day comes first)"
    if dotted or any(int(found[1]) > 12 for found in parts):
        days, after = ["dayfirst=True"], ""
    else:
        days, after = [], after if all(int(found[3]) <= 12 for found in parts) and parts else ""
    listed = f"parse_dates={[name]}" if re.search(r"[],[]", name) else f"parse_dates={name}"
    read = shlex.join([listed, *days])
    return f"Write dates as YYYY-MM-DD, add --read {read}{after}, or leave it out.", read


def _of_number_texts(texts: Counter[str], size: int, plain: int) -> tuple[str, str, str]:
    """Return the last fields of a column of text, most of which are numbers."""
    others = {text: n for text, n in texts.items() if not _NUMBER.fullmatch(text)}
    if not others:
        return "numbers", "", ""
    marks = {found[2][0] for text in others if (found := _GROUPS.fullmatch(text))}
    grouped = sum(n for text, n in others.items() if _GROUPS.fullmatch(text))
    comma = sum(n for text, n in others.items() if _COMMA.fullmatch(text))
    if grouped and grouped + comma + plain >= _MOST * size and len(marks) == 1:
        reads, use = [f"thousands={min(marks)}"], "for the mark between thousands"
        if "," not in marks and any("," in text for text in others):
            reads, use = [*reads, "decimal=,"], "for the marks of thousands and decimals"
    elif comma and comma + plain >= _MOST * size:
        reads, use = ["decimal=,"], "for the decimal mark"
    elif not any(_DIGIT.search(text) for text in others):
        reads, use = ["na_values=WORD"], "for each word that means missing"
    else:
        return "numbers with units", "Write numbers without units, or leave it out.", ""
    return "numbers", f"Add --read {shlex.join(reads)} {use}.", shlex.join(reads)
