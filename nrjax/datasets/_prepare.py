"""The way from a table to a data set: bounds, features, rows of norm at most 1, a summary."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets import _columns
from nrjax.datasets._columns import LARGEST, PreparedColumn
from nrjax.datasets._dataset import (
    TASKS,
    Dataset,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    dominant_column,
    unit_l2_rows,
)

Bounds = Mapping[str, Any] | Literal["data"] | None
"""By column (LOW, HIGH) or a list of categories; "data"; or None for columns as they are."""

_MARGIN = 1 - 2.0**-20
"""A factor that keeps the norm of each row at most 1 after rounding to float32."""

_UNEVEN = 10
"""Largest ratio of the columns' scales without a warning."""

_SHOWN = 30
"""Largest number of columns that a summary lists."""

_AS_THEY_ARE = "Columns are taken as they are."
_CLIPPED = "Numbers are clipped to [low, high], which is scaled to [-1, 1]."
_NOTHING = "Nothing was taken from the data but the counts in this summary"


class Table(NamedTuple):
    """Columns of numbers, booleans or text, one of which is the target.

    Attributes:
        name: name of the data set.
        where: name of the table in messages, such as the path of its file.
        columns: arrays of shape (n,) by name, without the target.
        target: name of the target.
        y: the target, of shape (n,).
        is_matrix: whether the columns come from a matrix that may be ready for use.
    """

    name: str
    where: str
    columns: dict[str, np.ndarray]
    target: str
    y: np.ndarray
    is_matrix: bool = False


def prepare(
    table: Table,
    bounds: Bounds,
    task: str | None = None,
    *,
    rows: int | None = None,
    normalise: str = "l2_rows",
) -> Dataset:
    """Return a table's first `rows`, or all, with columns as they are if `bounds` is None.

    Categories and bounds are those of all rows, so that the features do not depend on `rows`.
    """
    check(task in (None, *TASKS), "task", task, f"one of {TASKS}, or left out")
    _check_columns(table, rows)
    derived = ["the task"] if task is None and table.y.dtype.kind != "b" else []
    task = task or _columns.infer_task(table.where, table.y)
    stated, from_data = _stated_bounds(table, task, bounds)
    goal, made = _target(table, task, stated, rows), _features(table, stated)
    # Rounding of sums depends on the memory layout. Results must not depend on the file format.
    x = np.ascontiguousarray(np.concatenate([each.values for each in made], axis=1)[:rows])
    names = tuple(name for each in made for name in each.names)
    uneven = _uneven_scales(table.name, x, names) if stated is None else []
    x, done, from_norms = _within_unit_norm(x, normalise, None if stated is None else len(made))
    warned = [remark for each in (goal, *made) for remark in each.remarks]
    warned += uneven or dominant_column(table.name, x, names, normalise)
    derived += [goal.derived, *(each.derived for each in made), from_data, from_norms]
    taken = ", ".join(filter(None, derived))
    taken = f"Taken from the data, and so not private: {taken}" if taken else _NOTHING
    way = _AS_THEY_ARE if stated is None else _CLIPPED
    listed = [each.done for each in made[:_SHOWN]]
    listed += [f"{len(made) - _SHOWN} more"] if len(made) > _SHOWN else []
    summary = (
        f"{table.name}: {task} regression of {goal.done} on {', '.join(listed)}; {len(x):,} rows.",
        f"{way} {done}. {taken}.",
    )
    return Dataset(table.name, task, x, goal.values, names, (*summary, *warned))


def _check_columns(table: Table, rows: int | None) -> None:
    """Check the size of a table and its numbers."""
    where, size = table.where, (len(table.y), len(table.columns))
    check(min(size) > 0, f"rows and features of {where}", size, "at least 1 of each")
    check(rows is None or rows <= size[0], "rows", rows, f"at most {size[0]}, the rows of {where}")
    bad = [
        name
        for name, column in table.columns.items()
        if column.dtype.kind == "f" and not (np.abs(column) <= LARGEST).all()  # False for NaN
    ]
    what = f"columns of {where} with missing or infinite values, or beyond {LARGEST:g},"
    check(not bad, what, bad, "none")


def _stated_bounds(table: Table, task: str, bounds: Bounds) -> tuple[dict[str, Any] | None, str]:
    """Return bounds by column after checking them, and the name of those taken from the data."""
    columns = {**table.columns, table.target: table.y}
    labels = [table.target] if task == "logistic" else []
    numeric = [name for name in columns if columns[name].dtype.kind in "iuf" if name not in labels]
    if bounds is None:
        return None, ""
    if isinstance(bounds, str) and bounds == "data":
        ends = {name: (columns[name].min(), columns[name].max()) for name in numeric}
        return ends, f"the bounds of {', '.join(numeric)}" if numeric else ""
    expected = "a mapping from columns to (LOW, HIGH) or a list of categories, or 'data'"
    check(isinstance(bounds, Mapping), "bounds", bounds, expected)
    stated = {str(name): limits for name, limits in dict(bounds).items()}
    expected = "of columns that differ as text"
    check(len(stated) == len(bounds), "bounds", list(bounds), expected)
    unknown = [name for name in stated if name not in columns]
    check(not unknown, "bounds", unknown, f"of columns of {table.where}: {list(columns)}")
    for name, limits in stated.items():
        ok = isinstance(limits, (list, tuple, np.ndarray))
        if ok and _columns.is_interval(limits) and name not in labels:
            ok = -LARGEST <= limits[0] < limits[1] <= LARGEST
        expected = "(LOW, HIGH) with LOW < HIGH, or a list of categories"
        check(ok, f"bounds of {name!r}", limits, expected)
    missing = [name for name in numeric if name not in stated]
    expected = f"given for the columns of numbers {', '.join(missing)} of {table.where}"
    options = " ".join(shlex.quote(f"{name}=LOW:HIGH") for name in missing)
    example = ", ".join(f"{name!r}: (LOW, HIGH)" for name in missing[:1])
    hint = (
        f"Give limits that you know without the data: bounds={{{example}, ...}}, in the shell "
        f"--bounds {options}. With bounds='data' (--bounds data) they are taken from the data, "
        "which is not private."
    )
    check(not missing, "bounds", stated or None, expected, hint)
    return stated, ""


def _target(
    table: Table, task: str, stated: Mapping[str, Any] | None, rows: int | None
) -> PreparedColumn:
    """Return the first `rows` of the target, as labels or as numbers in [-1, 1]."""
    where, name, y = table.where, table.target, table.y
    if task == "logistic":
        made = _columns.labels(where, name, y, (stated or {}).get(name))
        both, hint = len(np.unique(made.values[:rows])) == 2, "Shuffle the file, or take more rows."
        check(both, "rows", rows, f"enough to reach both labels of {where}", hint)
        return made._replace(values=made.values[:rows])
    _columns.check_numbers(where, y)
    if stated is not None:
        made = _columns.scale_column(where, name, y, stated[name])
        return made._replace(values=made.values[:rows])
    largest = f"the largest absolute value of {name}"
    values = divided_by_largest_value(y[:rows].astype(np.float64))
    return PreparedColumn(
        values, (name,), f"{name} (divided by its largest absolute value)", largest
    )


def _features(table: Table, stated: Mapping[str, Any] | None) -> list[PreparedColumn]:
    """Return the features that each column becomes, and an intercept if there are bounds."""
    made = []
    for name, column in table.columns.items():
        limits = None if stated is None else stated.get(name)
        if column.dtype.kind == "U" or (limits is not None and not _columns.is_interval(limits)):
            made.append(_columns.indicators(table.where, table.name, name, column, limits))
        elif stated is None:
            made.append(PreparedColumn(column.astype(np.float64)[:, None], (name,), name))
        else:
            limits = (0, 1) if limits is None else limits  # only booleans can be without bounds
            one = _columns.scale_column(table.where, name, column, limits)
            made.append(one._replace(values=one.values[:, None]))
    if stated is not None:
        made.append(PreparedColumn(np.ones((len(table.y), 1)), ("intercept",), "intercept"))
    return made


def _within_unit_norm(
    x: np.ndarray, normalise: str, longest: int | None
) -> tuple[np.ndarray, str, str]:
    """Return rows of norm at most 1, what was done, and what was taken from the data.

    `longest` is an upper bound of the l1 norm of a row, or None if there is none.
    """
    if normalise == "l2_rows":
        x, done, derived = unit_l2_rows(x), "Each row is divided by its l2 norm", ""
    elif longest is not None:
        x, done, derived = x / longest, f"All rows are divided by {longest}", ""
    else:
        derived = "the largest l1 norm of a row"
        x, done = divided_by_largest_l1_norm(x), f"All rows are divided by {derived}"
    x *= _MARGIN
    return x, done, derived


def _uneven_scales(name: str, x: np.ndarray, columns: Sequence[str]) -> list[str]:
    """Return a warning, in a list, if columns' largest values differ by a factor above ten."""
    sizes = np.max(np.abs(x), axis=0)
    order = [int(i) for i in np.argsort(-sizes, kind="stable") if sizes[i] > 0]
    if not order or sizes[order[0]] <= _UNEVEN * sizes[order[-1]]:
        return []
    large = [i for i in order if sizes[i] > _UNEVEN * sizes[order[-1]]]
    shown = ", ".join(f"{columns[i]!r} ({sizes[i]:g})" for i in large[:5])
    more = f" and {len(large) - 5} others" if len(large) > 5 else ""
    least = f"{columns[order[-1]]!r} ({sizes[order[-1]]:g})"
    return [
        f"Warning: columns of {name} differ in scale by more than ten: {shown}{more} are large "
        f"next to {least}, which leaves small columns without effect. Give bounds, which bring "
        "all columns to one scale: bounds={'COLUMN': (LOW, HIGH)}, or --bounds COLUMN=LOW:HIGH."
    ]
