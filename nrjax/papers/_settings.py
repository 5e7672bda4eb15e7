"""Checks that the settings of several papers' studies share."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._columns import is_range
from nrjax.datasets._reading import is_table
from nrjax.datasets._rows import Missing
from nrjax.datasets.bounds_file import read_bounds
from nrjax.datasets.tables import Bounds


def check_settings(
    settings: Any,
    *,
    nonempty: Iterable[str] = (),
    distinct: Iterable[str] = (),
    least: Mapping[str, int] | None = None,
    positive: Iterable[str] = (),
    fractions: Iterable[str] = (),
    files: Iterable[str] = (),
) -> None:
    """Check fields of settings, where None stands for a default, and complete file names.

    Args:
        settings: the settings, a dataclass instance.
        nonempty: names of fields that are tuples of at least one value.
        distinct: names of tuples without repetition.
        least: smallest valid value of each named number.
        positive: names of positive and finite numbers, or of tuples of such numbers.
        fractions: names of numbers strictly between 0 and 1.
        files: names of fields that hold data sets or files, or tuples of both. Files get absolute
            paths, so that a run can be resumed from another folder.

    Raises:
        ValueError: a field has an invalid value.
    """
    for name in nonempty:
        values = getattr(settings, name)
        check(len(values) >= 1, name, values, "at least one value")
    for name in distinct:
        values = getattr(settings, name)
        check(len(set(values)) == len(values), name, values, "without repetition")
    for name, smallest in (least or {}).items():
        number = getattr(settings, name)
        check(number is None or number >= smallest, name, number, f"at least {smallest}")
    for name in positive:
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            ok = number is None or (np.isfinite(number) and number > 0)
            check(ok, name, number, "positive and finite")
    for name in fractions:
        number = getattr(settings, name)
        check(number is None or 0 < number < 1, name, number, "strictly between 0 and 1")
    for name in files:
        value = getattr(settings, name)
        paths = tuple(map(_absolute, value)) if isinstance(value, tuple) else _absolute(value)
        object.__setattr__(settings, name, paths)


def parsed_bounds(texts: Sequence[str], columns: Iterable[str] = ()) -> Bounds:
    """Return the bounds in texts such as "age=18:90", "day=2020-01-01:2020-12-31" and "city=A,B".

    A range is a tuple, and categories are a list, without the blanks around them.

    The single text "data" gives "data", and no text gives None. A name that holds "=" is recognised
    before LOW:HIGH, and before categories if it is one of `columns`.
    """
    if not texts:
        return None
    if tuple(texts) == ("data",):
        return "data"
    bounds: dict[str, Any] = {}
    for text in texts:
        name, limits = _split(text, columns)
        expected = "of the form COLUMN=LOW:HIGH or COLUMN=A,B,C, one for each column, or data"
        check(name and limits, "bounds", text, expected)
        check(name not in bounds, "bounds", text, f"stated once for {name!r}", "Remove one.")
        interval = _interval(limits)
        is_list = interval is not None or "," in limits or limits.count(":") != 1
        hint = "Write dates as 2020-01-31, and a single category with a colon in a --bounds-file."
        check(is_list, "bounds", text, "of two numbers or dates, COLUMN=LOW:HIGH", hint)
        bounds[name] = interval or [each.strip() for each in limits.split(",")]
    return bounds


def parsed_missing(texts: Sequence[str]) -> Missing:
    """Return a rule for missing cells from texts: "refuse", "drop", or such as "age=40"."""
    if tuple(texts) in ((), ("refuse",), ("drop",)):
        return "drop" if tuple(texts) == ("drop",) else "refuse"
    values: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        expected = "refuse, drop, or of the form COLUMN=VALUE, one for each column"
        check(name and value and name not in values, "missing", text, expected)
        values[name] = value  # the column decides whether 007 is a number
    return values


def stated_bounds(
    texts: Sequence[str], file: Path | None = None, columns: Iterable[str] = ()
) -> Bounds:
    """Return the bounds in texts and in a file, see `parsed_bounds` and `datasets.read_bounds`."""
    in_texts = parsed_bounds(texts, columns)
    if file is None:
        return in_texts
    hint = "Without --bounds data, or without --bounds-file."
    check(in_texts != "data", "bounds", in_texts, "left out with a file of bounds", hint)
    in_file = read_bounds(file)
    more: Any = in_texts or {}
    twice = sorted(set(in_file) & set(more))
    check(not twice, "bounds", twice, f"of columns that {file} has no bounds of")
    return in_file | more


_LISTS = ("usecols", "names", "na_values", "true_values", "false_values", "parse_dates")
"""Options of pandas' readers that are lists, which the shell separates by commas."""


def parsed_read(texts: Sequence[str]) -> dict[str, Any]:
    """Return options for a reader of pandas from texts such as "sep=;" and "na_values=?,-".

    A value that Python writes as a number, None, True, False, a list or a dict is one. Other values
    are text.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        expected, hint = "of the form OPTION=VALUE, one for each option", "For example sep=';'."
        check(name and value and name not in options, "read", text, expected, hint)
        is_list = name in _LISTS and not value.startswith("[")
        options[name] = [*map(_literal, value.split(","))] if is_list else _literal(value)
    return options


def _literal(text: str) -> Any:
    """Return the Python literal in a text, or the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {r"\t": "\t"}.get(text, text)
    return text if isinstance(value, (bytes, tuple, set)) else value


def _split(text: str, columns: Iterable[str]) -> tuple[str, str]:
    """Return the name of a column and its bounds, which a text joins by "="."""
    for name in sorted(columns, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, _, limits = text.rpartition("=")
    if _interval(limits) is None:
        name, _, limits = text.partition("=")
    return name, limits


def _interval(limits: str) -> tuple[Any, Any] | None:
    """Return the numbers or dates in "LOW:HIGH", or None for other text."""
    try:
        low, high = limits.split(":")
        return (low, high) if is_range((low, high)) else (float(low), float(high))
    except ValueError:
        return None


def _absolute(data: str) -> str:
    """Return the absolute path of a file, or the unchanged name of a data set."""
    return str(Path(data).expanduser().absolute()) if is_table(data) else data


def check_per_task(settings: Any, *names: str) -> None:
    """Check that each named field has no value, one value, or one value per task."""
    for name in names:
        values = getattr(settings, name)
        expected = f"one value, or one for each of the tasks {settings.task}"
        check(len(values) in (0, 1, len(settings.task)), name, values, expected)


def of_task(values: Sequence[Any], number: int) -> Any:
    """Return the value for task `number`, or the single value that all tasks share."""
    return values[number if len(values) > 1 else 0]
