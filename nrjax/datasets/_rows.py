"""The rows and columns of a table that are used: missing cells, columns left out, and people."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from nrjax._base.validation import check, check_integer
from nrjax.datasets._cells import (
    as_cells,
    as_column,
    as_date,
    canonical,
    declared_order,
    missing_in,
    number_of,
)

Missing = Literal["refuse", "drop"] | Mapping[str, Any]
"""A rule for missing cells: rows are refused or dropped, or columns get a stated value."""

MOST_NAMES = 10
"""Largest number of columns that a message names."""

_HINT = (
    "Fill them in, state missing='drop' or missing={{{example}: VALUE}} (in the shell --missing), "
    "leave columns out (leave_out), or list a word such as NA as a category. Missing are {counts}."
)


class RowRules(NamedTuple):
    """Rules for rows and columns that do not depend on the data.

    Attributes:
        missing: "refuse", "drop" (rows with a missing cell), or a value for each column.
        leave_out: names of columns that are not used.
        person: name of the column that identifies people, or None.
        rows_per_person: largest number of rows of a person, or None.
    """

    missing: Missing = "refuse"
    leave_out: Sequence[str] = ()
    person: str | None = None
    rows_per_person: int | None = None


NO_RULES = RowRules()
"""The rules by default: all rows and columns are used, and missing cells are refused."""


class UsedColumns(NamedTuple):
    """Columns after the rules, and the problems that were found.

    Attributes:
        columns: complete columns by name, the target among them. If there are problems, columns may
            differ in length, since missing cells are left away.
        orders: declared orders of categories by name.
        done: what was done to rows and cells, such as "2 rows with missing cells were dropped".
        people: person of each row, or None.
        incomplete: names of the columns with missing cells, if these are refused.
    """

    columns: dict[str, np.ndarray]
    orders: dict[str, list[Any]]
    done: tuple[str, ...]
    people: list[Any] | None
    incomplete: Sequence[str]


class Problems(list[str]):
    """Messages about a table, so that one error has all of them.

    `with problems:` adds the message of a ValueError that the block raises.
    """

    def __enter__(self) -> "Problems":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, ValueError):
            self.append(str(error))
        return isinstance(error, ValueError)

    def raise_any(self, where: str) -> None:
        """Raise one ValueError with all messages, if there are any."""
        if len(self) > 1:
            more = [f"{len(self) - MOST_NAMES} more problems"] if len(self) > MOST_NAMES else []
            lines = "".join(f"\n* {line}" for line in [*self[:MOST_NAMES], *more])
            raise TableError(f"{where} and its options have {len(self)} problems:{lines}", self)
        if self:
            raise TableError(self[0], self)


class TableError(ValueError):
    """The error of a table that cannot be used, with its problems as separate messages."""

    def __init__(self, message: str, problems: Sequence[str]):
        super().__init__(message)
        self.problems = tuple(problems)

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.problems)


def similar(unknown: Sequence[Any], names: Sequence[str]) -> str:
    """Return a question on the column whose name is most like the first unknown one, or ""."""
    folded = {name.casefold(): name for name in names}
    for name in map(str, unknown):
        if close := difflib.get_close_matches(name.casefold(), folded, 1):
            return f"Did you mean {folded[close[0]]!r}?"
    return ""


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, such as "1 row" and "2 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[Any]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(str, names[:MOST_NAMES])) + more


def check_rules(rules: RowRules, where: str, names: Sequence[str], target: str) -> None:
    """Check rules against the names of a table's columns."""
    missing, leave_out, person, most = rules
    expected = "'refuse', 'drop', or a mapping from columns to values"
    ok = isinstance(missing, Mapping) or missing in ("refuse", "drop")
    check(ok, "missing", missing, expected)
    hint = "For one column write leave_out=('COLUMN',)."
    check(isinstance(leave_out, (list, tuple)), "leave_out", leave_out, "a list of columns", hint)
    filled = list(missing) if isinstance(missing, Mapping) else []
    people = [] if person is None else [person]
    for argument, values in (("leave_out", leave_out), ("missing", filled), ("person", people)):
        unknown = [name for name in values if str(name) not in names]
        expected = f"made of columns of {where}: {listed(names)}"
        check(not unknown, argument, unknown, expected, similar(unknown, names))
    left_out = [*map(str, leave_out)]
    check(target not in left_out, "leave_out", leave_out, "a list of columns other than the target")
    ok = str(person) not in (target, *left_out)
    check(ok, "person", person, "a column other than the target and those left out")
    if person is None:
        hint = "Name the column that identifies people: person='id' (--person id)."
        check(most is None, "rows_per_person", most, "None without person", hint)
    else:
        hint = "For example rows_per_person=3, in the shell --rows-per-person 3."
        expected = f"stated with person {person!r}: the largest number of rows of a person"
        check(most is not None, "rows_per_person", most, expected, hint)
        check_integer("rows_per_person", most, 1)


def used_columns(
    raw: Mapping[str, Any],
    rules: RowRules,
    where: str,
    stated: Mapping[str, Any],
    problems: Problems,
) -> UsedColumns:
    """Return the columns that are used, without missing cells.

    Args:
        raw: columns of equal length by name, the target among them.
        rules: the rules, checked.
        where: name of the table in messages.
        stated: bounds by column. A stated category such as NA is not missing.
        problems: list to which problems are added.
    """
    left_out = set(map(str, rules.leave_out))
    cells = {name: as_cells(column) for name, column in raw.items() if name not in left_out}
    shapes = {name: array.shape for name, array in cells.items()}
    ok = len(set(shapes.values())) == 1 == len(next(iter(shapes.values())))
    check(ok, f"columns of {where}", shapes, "of one dimension and of equal length")
    lists = {name: v if isinstance(v, (list, tuple)) else () for name, v in stated.items()}
    gaps = {name: missing_in(array, lists.get(name)) for name, array in cells.items()}
    done: list[str] = []
    if isinstance(rules.missing, Mapping):
        for name, value in ((str(key), value) for key, value in rules.missing.items()):
            if name in cells and gaps[name].any():
                with problems:
                    cells[name] = _filled(name, cells[name], gaps[name], value)
                    done.append(_filled_in(int(gaps[name].sum()), name))
                gaps[name] = np.zeros_like(gaps[name])
    incomplete = [name for name, gap in gaps.items() if gap.any()]
    if rules.missing == "drop":
        bad = np.any(list(gaps.values()), axis=0)
        check(not bad.all(), f"rows of {where}", 0, "left after dropping those with missing cells")
        was = "was" if bad.sum() == 1 else "were"
        dropped = f"{counted(int(bad.sum()), 'row')} with missing cells {was} dropped"
        done += [dropped] if bad.any() else []
        cells = {name: array[~bad] for name, array in cells.items()}
        incomplete = []
    elif incomplete:
        got = listed([repr(name) for name in incomplete])
        counts = listed([f"{gaps[n].sum():,} of {len(gaps[n]):,} in {n!r}" for n in incomplete])
        hint = _HINT.format(example=repr(incomplete[0]), counts=counts)
        expected = "without missing values"
        problems.append(f"columns of {where} must be {expected} (got [{got}]). {hint}")
        cells = {name: array[~gaps[name]] for name, array in cells.items()}
    columns = {}
    for name, array in cells.items():
        with problems:
            columns[name] = as_column(f"column {name!r} of {where}", array)
    orders = {name: order for name in cells if (order := declared_order(raw[name]))}
    person = None if rules.person is None else columns.pop(str(rules.person), None)
    people = None if person is None else person.tolist()
    return UsedColumns(columns, orders, tuple(done), people, incomplete)


def _filled_in(number: int, name: str) -> str:
    """Return what was done to the missing cells of a column."""
    was = "was" if number == 1 else "were"
    return f"{counted(number, 'missing cell')} of {name} {was} filled in"


def _filled(name: str, cells: np.ndarray, gaps: np.ndarray, value: Any) -> np.ndarray:
    """Return cells with a stated value in place of missing ones."""
    what, entry = f"missing of {name!r}", value
    if cells.dtype.kind == "M":
        entry = as_date(value)
        check(entry is not None, what, value, "a date such as '2020-01-31'")
        cells = cells.astype("datetime64[us]")
    elif cells.dtype.kind in "biuf":
        entry = number_of(value)
        ok = entry is not None and np.isfinite(float(entry))
        check(ok, what, value, "a finite number, as the column's are")
        # A narrow type would round the number, and one wide cell changes the type of a column.
        cells = cells.astype(np.float64) if cells.dtype.kind == "f" else cells
    elif any(isinstance(cell, str) for cell in cells[~gaps].tolist()):
        entry = str(value)
    elif isinstance(value, str):
        entry = value if number_of(value) is None else number_of(value)
    filled = cells.astype(object if cells.dtype.kind in "SU" else cells.dtype)  # a copy
    filled[gaps] = entry
    return filled


def check_people(rules: RowRules, where: str, people: Sequence[Any]) -> None:
    """Check that no person has more rows than stated."""
    most = rules.rows_per_person
    assert most is not None
    sizes = Counter(map(canonical, people)).values()
    above = sum(size > most for size in sizes)
    hint = f"{above:,} of {len(sizes):,} people have more rows. Select rows by a rule, or raise it."
    check(above == 0, "rows_per_person", most, f"at least {max(sizes)} for {where}", hint)
