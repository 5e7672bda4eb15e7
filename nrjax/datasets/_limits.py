"""Bounds of a table's columns: ranges and lists of categories, stated or taken from the data."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._cells import as_date, is_number, is_numeric
from nrjax.datasets._columns import LARGEST, is_range
from nrjax.datasets._rows import MOST_NAMES, Problems, listed, similar

Bounds = Mapping[str, Any] | Literal["data"] | None
"""By column (LOW, HIGH) or a list of categories; "data"; or None for columns as they are."""


def by_name(
    bounds: Bounds, names: Sequence[str], where: str, problems: Problems
) -> dict[str, Any] | None:
    """Return stated bounds by column, or None without bounds."""
    if bounds is None:
        return None
    if isinstance(bounds, str) and bounds == "data":
        return {}
    expected = "a mapping from columns to (LOW, HIGH) or a list of categories, or 'data'"
    check(isinstance(bounds, Mapping), "bounds", bounds, expected)
    stated = {
        str(name): limits
        if isinstance(limits, (list, tuple, str)) or np.ndim(limits) != 1
        else list(limits)  # an array or an index of categories
        for name, limits in dict(bounds).items()
    }
    expected = "of columns that differ as text"
    check(len(stated) == len(bounds), "bounds", list(bounds), expected)
    unknown = [name for name in stated if name not in names]
    with problems:
        expected = f"of columns of {where}: {listed(names)}"
        check(not unknown, "bounds", unknown, expected, similar(unknown, names))
    return stated


def _needing_bounds(columns: Mapping[str, np.ndarray], target: str, task: str | None) -> list[str]:
    """Return the names of the columns of numbers and dates, without a target of labels."""
    return [
        name
        for name, column in columns.items()
        if is_numeric(column) or column.dtype.kind == "M"
        if name != target or task == "ridge"
    ]


def bounds_of_data(
    columns: Mapping[str, np.ndarray], target: str, task: str | None
) -> tuple[dict[str, Any], str]:
    """Return the smallest and largest value of each column of numbers, and a name of them."""
    numeric = _needing_bounds(columns, target, task)
    ends = {name: (columns[name].min(), columns[name].max()) for name in numeric}
    return ends, f"the bounds of {', '.join(numeric)}" if numeric else ""


def without_bounds(
    stated: dict[str, Any] | None,
    columns: Mapping[str, np.ndarray],
    target: str,
    task: str | None,
    where: str,
    problems: Problems,
) -> list[str]:
    """Return the names of columns whose bounds are missing or no bounds, and add the problems."""
    dates = [name for name, column in columns.items() if column.dtype.kind == "M"]
    needing = dates if stated is None else _needing_bounds(columns, target, task)
    missing = [name for name in needing if name not in (stated or {})]
    wrong = []
    for name, limits in (stated or {}).items():
        ok = isinstance(limits, (list, tuple))
        if ok and is_range(limits) and not (name == target and task == "logistic"):
            ends = limits if is_number(limits[0]) else [*map(as_date, limits)]
            ok = ends[0] < ends[1] and (ends is not limits or max(map(abs, limits)) <= LARGEST)
        expected = "(LOW, HIGH) with LOW < HIGH, or a list of categories"
        with problems:
            check(ok, f"bounds of {name!r}", limits, expected)
        wrong += [] if ok else [name]
    if missing:
        options = " ".join(shlex.quote(f"{name}=LOW:HIGH") for name in missing[:MOST_NAMES])
        more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
        expected = f"given for the columns of numbers {listed(missing)} of {where}"
        hint = (
            "Give limits that you know without the data: "
            f"bounds={{{missing[0]!r}: (LOW, HIGH), ...}}, in the shell --bounds {options}{more}. "
            "With bounds='data' (--bounds data) they are taken from the data, and no epsilon "
            "covers that."
        )
        with problems:
            check(False, "bounds", stated or None, expected, hint)
    return [name for name in columns if name in missing or name in wrong]
