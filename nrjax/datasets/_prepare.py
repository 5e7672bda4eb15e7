"""The way from a table to a data set: bounds, features, rows of norm at most 1, a summary."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets import _columns, _warnings
from nrjax.datasets._cells import as_date, is_number, is_numeric, is_text
from nrjax.datasets._columns import LARGEST, PreparedColumn, is_range
from nrjax.datasets._dataset import (
    TASKS,
    Dataset,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    dominant_column,
    unit_l2_rows,
)
from nrjax.datasets._rows import (
    MOST_NAMES,
    NO_RULES,
    Problems,
    RowRules,
    check_people,
    check_rules,
    listed,
    used_columns,
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
    """Columns as they came, one of which is the target.

    Attributes:
        name: name of the data set.
        where: name of the table in messages, such as the path of its file.
        columns: columns by name, without the target: arrays, lists, or columns of a data frame.
        target: name of the target.
        y: the target.
        is_matrix: whether the columns come from a matrix that may be ready for use.
    """

    name: str
    where: str
    columns: dict[str, Any]
    target: str
    y: Any
    is_matrix: bool = False


def prepare(
    table: Table,
    bounds: Bounds,
    task: str | None = None,
    *,
    rows: int | None = None,
    normalise: str = "l2_rows",
    rules: RowRules = NO_RULES,
) -> Dataset:
    """Return a table's first `rows`, or all, with columns as they are if `bounds` is None.

    Categories and bounds are those of all rows, so that the features do not depend on `rows`.

    Raises:
        ValueError: the table is unsuitable. The message has all problems of all columns.
    """
    check(task in (None, *TASKS), "task", task, f"one of {TASKS}, or left out")
    problems, where, target = Problems(), table.where, table.target
    raw = {**table.columns, target: table.y}
    check_rules(rules, where, list(raw), target)
    limits = _by_name(bounds, list(raw), where, problems)
    used = used_columns(raw, rules, where, limits or {}, problems)
    columns = {name: column for name, column in used.columns.items() if len(column) or not problems}
    size = len(columns.get(target, ())), len(columns) - (target in columns)
    check(
        min(size) > 0 or bool(problems), f"rows and features of {where}", size, "at least 1 of each"
    )
    ok = rows is None or rows <= size[0] or bool(problems)
    check(ok, "rows", rows, f"at most {size[0]}, the rows of {where}")
    with problems:
        _check_finite(where, {name: columns[name] for name in columns if name != target})
    if target in used.incomplete:  # its other values may be too few for labels
        columns.pop(target, None)
    derived, is_inferred = [], task is None
    if is_inferred and target in columns:
        derived = ["the task"] if columns[target].dtype.kind != "b" else []
        with problems:
            task = _columns.infer_task(where, columns[target])
    if isinstance(bounds, str):
        limits, from_data = _bounds_of_data(columns, target, task)
    else:
        from_data = ""
        for name in _without_bounds(limits, columns, target, task, where, problems):
            del columns[name]
    goal, made = None, []
    for name, column in columns.items():
        stated, order = (limits or {}).get(name), used.orders.get(name)
        with problems:
            if name != target:
                made.append(_feature(table, name, column, limits, stated, order))
            elif task is not None:
                goal = _target(table, column, task, limits, rows, order)
                if is_inferred and task == "ridge":
                    goal = goal._replace(remarks=goal.remarks + _warnings.classes(name, column))
    if used.people is not None:
        with problems:
            check_people(rules, where, used.people[:rows])
    problems.raise_any(where)
    assert goal is not None
    assert task is not None
    if limits is not None:
        intercept = np.ones((len(made[0].values), 1))
        made.append(PreparedColumn(intercept, ("intercept",), "intercept"))
    # Rounding of sums depends on the memory layout. Results must not depend on the file format.
    x = np.ascontiguousarray(np.concatenate([each.values for each in made], axis=1)[:rows])
    names = tuple(name for each in made for name in each.names)
    uneven = _uneven_scales(table.name, x, names) if limits is None else []
    x, done, from_norms = _within_unit_norm(x, normalise, None if limits is None else len(made))
    warned = [remark for each in (goal, *made) for remark in each.remarks]
    warned += uneven or dominant_column(table.name, x, names, normalise)
    derived += [goal.derived, *(each.derived for each in made), from_data, from_norms]
    taken = ", ".join(filter(None, derived))
    taken = f"Taken from the data, and so not private: {taken}" if taken else _NOTHING
    way = _AS_THEY_ARE if limits is None else _CLIPPED
    features = [each.done for each in made[:_SHOWN]]
    features += [f"{len(made) - _SHOWN} more"] if len(made) > _SHOWN else []
    on_rows = "; ".join([f"{len(x):,} rows", *_on_rows(rules, used.done)])
    summary = (
        f"{table.name}: {task} regression of {goal.done} on {', '.join(features)}; {on_rows}.",
        f"{way} {done}. {taken}.",
    )
    most = 1 if rules.rows_per_person is None else int(rules.rows_per_person)
    return Dataset(table.name, task, x, goal.values, names, (*summary, *warned), most)


def _on_rows(rules: RowRules, done: Sequence[str]) -> list[str]:
    """Return what a summary says about rows, cells and columns that are not used."""
    depends = "numbers that depend on the data and are not private"
    lines = [f"{', '.join(done)} ({depends})"] if done else []
    lines += [f"left out: {listed(rules.leave_out)}"] if rules.leave_out else []
    if rules.person is not None:
        lines.append(f"at most {rules.rows_per_person} for each {rules.person}")
    return lines


def _check_finite(where: str, columns: Mapping[str, np.ndarray]) -> None:
    """Check that no number is infinite or so large that it may stand for a missing value."""
    bad = [
        name
        for name, column in columns.items()
        if is_numeric(column) and not (np.abs(column.astype(np.float64)) <= LARGEST).all()
    ]
    what = f"columns of {where} with missing or infinite values, or beyond {LARGEST:g},"
    check(not bad, what, bad, "none")


def _by_name(
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
        check(not unknown, "bounds", unknown, f"of columns of {where}: {listed(names)}")
    return stated


def _needing_bounds(columns: Mapping[str, np.ndarray], target: str, task: str | None) -> list[str]:
    """Return the names of the columns of numbers and dates, without a target of labels."""
    return [
        name
        for name, column in columns.items()
        if is_numeric(column) or column.dtype.kind == "M"
        if name != target or task == "ridge"
    ]


def _bounds_of_data(
    columns: Mapping[str, np.ndarray], target: str, task: str | None
) -> tuple[dict[str, Any], str]:
    """Return the smallest and largest value of each column of numbers, and a name of them."""
    numeric = _needing_bounds(columns, target, task)
    ends = {name: (columns[name].min(), columns[name].max()) for name in numeric}
    return ends, f"the bounds of {', '.join(numeric)}" if numeric else ""


def _without_bounds(
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
            "With bounds='data' (--bounds data) they are taken from the data, which is not private."
        )
        with problems:
            check(False, "bounds", stated or None, expected, hint)
    return [name for name in columns if name in missing or name in wrong]


def _target(
    table: Table,
    y: np.ndarray,
    task: str,
    stated: Mapping[str, Any] | None,
    rows: int | None,
    order: Sequence[Any] | None,
) -> PreparedColumn:
    """Return the first `rows` of the target, as labels or as numbers in [-1, 1]."""
    where, name = table.where, table.target
    limits = (stated or {}).get(name)
    if task == "logistic":
        made = _columns.labels(where, name, y, limits, order)
        both, hint = len(np.unique(made.values[:rows])) == 2, "Shuffle the file, or take more rows."
        check(both, "rows", rows, f"enough to reach both labels of {where}", hint)
        return made._replace(values=made.values[:rows])
    _columns.check_numbers(where, y, limits)
    if stated is not None:
        made = _columns.scale_column(where, name, y, limits)
        return made._replace(values=made.values[:rows])
    largest = f"the largest absolute value of {name}"
    values = divided_by_largest_value(y[:rows].astype(np.float64))
    return PreparedColumn(
        values, (name,), f"{name} (divided by its largest absolute value)", largest
    )


def _feature(
    table: Table,
    name: str,
    column: np.ndarray,
    bounds: Mapping[str, Any] | None,
    stated: Any,
    order: Sequence[Any] | None,
) -> PreparedColumn:
    """Return the features that a column becomes."""
    if not is_range(stated) and (is_text(column) or stated is not None):
        return _columns.indicators(table.where, table.name, name, column, stated, order)
    if bounds is None:
        return PreparedColumn(column.astype(np.float64)[:, None], (name,), name)
    stated = (0, 1) if stated is None else stated  # only booleans can be without bounds
    made = _columns.scale_column(table.where, name, column, stated)
    return made._replace(values=made.values[:, None])


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
