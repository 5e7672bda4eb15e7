"""The way from a table to a data set: bounds, features, rows of norm at most 1, a summary."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.format import escaped
from nrjax._base.validation import check
from nrjax.datasets import _columns, _people, _warnings
from nrjax.datasets._cells import is_numeric, is_text
from nrjax.datasets._columns import LARGEST, PreparedColumn, is_range
from nrjax.datasets._dataset import (
    TASKS,
    Dataset,
    Units,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    dominant_column,
    unit_l2_rows,
)
from nrjax.datasets._limits import Bounds, bounds_of_data, by_name, without_bounds
from nrjax.datasets._rows import (
    NO_RULES,
    Problems,
    RowRules,
    check_people,
    check_rules,
    counted,
    listed,
    used_columns,
)

_MARGIN = 1 - 2.0**-20
"""A factor that keeps the norm of each row at most 1 after rounding to float32."""

_UNEVEN = 10
"""Largest ratio of the columns' scales without a warning."""

_SHOWN = 30
"""Largest number of columns that a summary lists."""

_AS_THEY_ARE = "Columns are taken as they are."
_CLIPPED = (
    "Numbers are clipped to [low, high], which is scaled to [-1, 1]. The column intercept is "
    "{constant}."
)
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
        read_as: how the file was read, such as "separated by ';'", for the summary.
    """

    name: str
    where: str
    columns: dict[str, Any]
    target: str
    y: Any
    is_matrix: bool = False
    read_as: str = ""

    @property
    def title(self) -> str:
        """The name, and how the file was read."""
        return f"{self.name} ({self.read_as})" if self.read_as else self.name


def prepare(
    table: Table,
    bounds: Bounds,
    task: str | None = None,
    *,
    rows: int | None = None,
    normalise: str | None = None,
    rules: RowRules = NO_RULES,
) -> Dataset:
    """Return a table's first `rows`, or all, with columns as they are if `bounds` is None.

    Categories and bounds are those of all rows, so that the features do not depend on `rows`. By
    default all rows are divided by one number that follows from the stated bounds, or each row by
    its l2 norm if there are no bounds.

    Raises:
        ValueError: the table is unsuitable. The message has all problems of all columns.
    """
    check(task in (None, *TASKS), "task", task, f"one of {TASKS}, or left out")
    read = _read_columns(table, bounds, task, rows, rules)
    task, limits, goal, made = read.task, read.limits, read.goal, list(read.made.values())
    constant, divisor = 1.0, None
    if limits is not None and normalise is None:
        constant, divisor = _intercept(len(made))
    if limits is not None:
        ones = np.full((len(made[0].values), 1), constant)
        made.append(PreparedColumn(ones, ("intercept",), "intercept", half=1 / constant))
    # Rounding of sums depends on the memory layout. Results must not depend on the file format.
    x = np.ascontiguousarray(np.concatenate([each.values for each in made], axis=1)[:rows])
    names = tuple(name for each in made for name in each.names)
    # Warnings name columns, since a feature's name may have a category of the data.
    owners = [*read.made, "intercept"] if limits is not None else [*read.made]
    owners = tuple(o for o, each in zip(owners, made, strict=True) for _ in each.names)
    uneven = _uneven_scales(table.name, x, owners) if limits is None else []
    longest = None if limits is None else len(made)
    x, done, from_norms = _within_unit_norm(x, normalise, longest, divisor)
    warned = [remark for each in (goal, *made) for remark in each.remarks]
    warned += read.shared
    if divisor is None:
        warned += uneven or dominant_column(table.name, x, owners, normalise or "l2_rows")
    derived = [*read.derived, goal.derived, *(each.derived for each in made)]
    derived += [read.from_data, from_norms]
    taken = ", ".join(filter(None, derived))
    taken = f"Taken from the data, which no epsilon covers: {taken}" if taken else _NOTHING
    way = _AS_THEY_ARE if limits is None else _CLIPPED.format(constant=_root(constant))
    features = [each.done for each in made[:_SHOWN]]
    features += [f"{len(made) - _SHOWN} more"] if len(made) > _SHOWN else []
    on_rows = "; ".join([counted(len(x), "row"), *_on_rows(rules, read.done)])
    of = f"{task} regression of {goal.done} on {', '.join(features)}"
    if x.shape[1] > len(made):  # a column of categories becomes several numbers
        of += f" ({counted(x.shape[1], 'number')} per row, of which one per category)"
    summary = (escaped(f"{table.title}: {of}; {on_rows}."), escaped(f"{way} {done}. {taken}."))
    most = 1 if rules.rows_per_person is None else int(rules.rows_per_person)
    remarks = (*summary, *warned)
    units = None if divisor is None else _units(goal, made, divisor)
    return Dataset(table.name, task, x, goal.values, names, remarks, most, units)


def _intercept(columns: int) -> tuple[float, float]:
    """Return the number in the column "intercept", and the number that divides all rows.

    The features of one column have a squared l2 norm of at most 1: numbers lie in [-1, 1], and at
    most one indicator of a column is 1. With the intercept c, a row of k columns has a squared norm
    of at most `k + c^2`, whatever its values, so that the square root of that divides all rows. A
    larger c is a smaller penalty of the constant term, which is `lambda (k + c^2)/(2 c^2)` times
    the square of that term, and leaves less of the norm for the columns. Here `c^2 = k/2`, but at
    least 1.
    """
    constant = math.sqrt(max(1.0, columns / 2))
    return constant, math.hypot(math.sqrt(columns), constant)


def _root(number: float) -> str:
    """Return a root of a multiple of 1/2 as text from which it can be computed again."""
    square = round(2 * number * number) / 2
    return "1" if square == 1 else f"sqrt({square:g})"


def _units(goal: PreparedColumn, made: Sequence[PreparedColumn], divisor: float) -> Units:
    """Return the linear maps from the columns of a table to its features and target."""
    middles = [each.middle for each in made for _ in each.names]
    halves = [each.half for each in made for _ in each.names]
    factors = _MARGIN / (divisor * np.array(halves))
    return Units(np.array(middles), factors, (goal.middle, goal.half))


class _ReadColumns(NamedTuple):
    """The columns of a table, understood.

    Attributes:
        task: "logistic" or "ridge".
        limits: bounds by column, or None if columns are taken as they are.
        goal: the target.
        made: the features that each column became, by name.
        derived: what the data say by having decided the task, in a list, if they did.
        from_data: name of the bounds that were taken from the data, or "".
        done: what was done to rows and cells.
        shared: warnings about columns that may identify people who have several rows.
    """

    task: str
    limits: dict[str, Any] | None
    goal: PreparedColumn
    made: dict[str, PreparedColumn]
    derived: list[str]
    from_data: str
    done: Sequence[str]
    shared: Sequence[str]


def _read_columns(
    table: Table, bounds: Bounds, task: str | None, rows: int | None, rules: RowRules
) -> _ReadColumns:
    """Return the columns of a table as features and a target, or raise all problems at once."""
    problems, where, target = Problems(), table.where, table.target
    raw = {**table.columns, target: table.y}
    check_rules(rules, where, list(raw), target)
    limits, from_data = by_name(bounds, list(raw), where, problems), ""
    used = used_columns(raw, rules, where, limits or {}, problems)
    columns = {name: column for name, column in used.columns.items() if len(column) or not problems}
    size = len(columns.get(target, ())), len(columns) - (target in columns)
    if not problems:
        check(min(size) > 0, f"rows and features of {where}", size, "at least 1 of each")
        enough = rows is None or rows <= size[0]
        check(enough, "rows", rows, f"at most {size[0]}, the rows of {where}")
    with problems:
        _check_finite(where, {name: columns[name] for name in columns if name != target})
    if target in used.incomplete:  # its other values may be too few for labels
        columns.pop(target, None)
    derived, is_inferred = [], task is None
    if is_inferred and target in columns:
        with problems:
            task = _columns.infer_task(where, columns[target])
            if columns[target].dtype.kind != "b":
                has = "has" if task == "logistic" else "does not have"
                derived = [f"that the target {has} two values"]
    if isinstance(bounds, str):
        limits, from_data = bounds_of_data(columns, target, task)
    else:
        for name in without_bounds(limits, columns, target, task, where, problems):
            del columns[name]
    goal, made = None, {}
    shared = _people.warnings_of(raw, (target,)) if rules.person is None else []
    for name, column in columns.items():
        stated, order = (limits or {}).get(name), used.orders.get(name)
        with problems:
            if name != target:
                made[name] = _feature(table, name, column, limits, stated, order)
            elif task is not None:
                goal = _target(table, column, task, limits, rows, order)
                if is_inferred and task == "ridge":
                    goal = goal._replace(remarks=goal.remarks + _warnings.classes(name, column))
    if used.people is not None:
        with problems:
            check_people(rules, where, used.people[:rows])
    if problems:
        problems += (text.removeprefix("Warning: ") for text in shared)
    problems.raise_any(where)
    assert goal is not None
    assert task is not None
    return _ReadColumns(task, limits, goal, made, derived, from_data, used.done, shared)


def _on_rows(rules: RowRules, done: Sequence[str]) -> list[str]:
    """Return what a summary says about rows, cells and columns that are not used."""
    depends = "numbers that depend on the data, which no epsilon covers"
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
    limits = (0, 1) if stated is None else stated  # only booleans can be without bounds
    made = _columns.scale_column(table.where, name, column, limits)
    derived = f"the kind of {name}" if stated is None else ""
    return made._replace(values=made.values[:, None], derived=derived)


def _within_unit_norm(
    x: np.ndarray, normalise: str | None, longest: int | None, divisor: float | None
) -> tuple[np.ndarray, str, str]:
    """Return rows of norm at most 1, what was done, and what was taken from the data.

    `longest` and `divisor` are upper bounds of the l1 and the l2 norm of a row, or None.
    """
    if divisor is not None:
        x, derived = x / divisor, ""
        done = f"All rows are divided by {_root(divisor)}, so that none is longer than 1"
    elif normalise != "max_l1":
        x, done, derived = unit_l2_rows(x), "Each row is scaled to length 1", ""
    elif longest is not None:
        x, derived = x / longest, ""
        done = f"All rows are divided by {longest}, so that no l1 norm is above 1"
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
    large = list(dict.fromkeys(columns[i] for i in order if sizes[i] > _UNEVEN * sizes[order[-1]]))
    shown = ", ".join(map(repr, large[:5]))
    more = f" and {len(large) - 5} others" if len(large) > 5 else ""
    return [
        f"Warning: columns of {name} differ in scale by more than ten: {shown}{more} are large "
        f"next to {columns[order[-1]]!r}, which leaves small columns without effect. Give bounds, "
        "which bring all columns to one scale: bounds={'COLUMN': (LOW, HIGH)}, in the shell "
        "--bounds COLUMN=LOW:HIGH."
    ]
