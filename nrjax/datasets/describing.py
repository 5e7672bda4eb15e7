"""A dry run: how each column of a table is understood, what is wrong, and which bounds to state."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nrjax._base.format import escaped
from nrjax._base.pytrees import record
from nrjax._base.validation import check
from nrjax.datasets import _frames, bounds_file, tables
from nrjax.datasets._files import PathLike
from nrjax.datasets._looks import Column, described, people_in
from nrjax.datasets._plan import FILE, Plan
from nrjax.datasets._prepare import Bounds, prepare
from nrjax.datasets._reading import has_option
from nrjax.datasets._rows import (
    Missing,
    RowRules,
    TableError,
    check_people,
    counted,
    listed,
    similar,
)

_SHOWN = 60
"""Largest number of columns that a description lists one by one, and of problems."""

_TO_RUN = "To run, replace the words in capitals by what you know without looking at the data:"

_MOST_PEOPLE = 5
"""Largest number of columns that may identify people which a description names."""


@record
class Description(NamedTuple):
    """A table as it is understood, from `describe`. Printing it shows all of it.

    Attributes:
        name: name of the table.
        rows: number of rows.
        columns: all columns, in order.
        problems: sentences on what a run would refuse or misunderstand.
        command: what to type to run a regression, with placeholders in place of bounds; "" if the
            target must be recoded first.
        template: text of a file of bounds with placeholders, for `--bounds-file`.
        verdict: what the stated bounds make of the table, or "".
        people: columns that may identify people who have several rows, if `person` is not stated.
    """

    name: str
    rows: int
    columns: tuple[Column, ...]
    problems: tuple[str, ...]
    command: str
    template: str
    verdict: str = ""
    people: tuple[str, ...] = ()

    def __str__(self) -> str:
        headings = ("column", "kind", "missing", "no number", "values", "looks like")
        cells = [
            (_cut(c.name), c.kind, *(f"{n:,}" for n in c[2:5]), c.looks_like)
            for c in self.columns[:_SHOWN]
        ]
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        size = f"{counted(self.rows, 'row')}, {counted(len(self.columns), 'column')}"
        lines = [escaped(f"{self.name}: {size}"), ""]
        for row in (headings, *cells):
            aligned = (
                cell.rjust(width) if 2 <= place <= 4 else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(aligned).rstrip())
        more = len(self.columns) - _SHOWN
        lines += [f"and {more:,} more columns"] if more > 0 else []
        lines += ["", *(f"* {problem}" for problem in self.problems[:_SHOWN])]
        if len(self.problems) > _SHOWN:
            lines.append(f"* {len(self.problems) - _SHOWN:,} more problems")
        lines += ["No problem was found."] if not self.problems else []
        if self.people:
            names = " or ".join(repr(_cut(name)) for name in self.people[:_MOST_PEOPLE])
            lines += [
                "",
                "Epsilon covers one row. If each row is another person, you need nothing more. "
                "Otherwise name the column that identifies people by --person, and the largest "
                "number of their rows by --rows-per-person (person=, rows_per_person=). By the "
                f"number of different values, it could only be {names}.",
            ]
        if self.command:
            lines += ["", _TO_RUN, "", f"    {self.command}"]
            forms = {"CATEGORIES": "A,B,C", "LABELS": "no,yes"}
            lists = [
                f"{word} like {form}" for word, form in forms.items() if f"={word}" in self.command
            ]
            lines += ["", f"Write {' and '.join(lists)}."] if lists else []
        else:
            lines += ["", "A line to type follows when the target is recoded."]
        if FILE in self.command:
            written = "--write-bounds of nrjax data, and `template` in Python,"
            lines += ["", f"{written} have the text of {FILE} to fill in."]
        lines += ["", self.verdict] if self.verdict else []
        return "\n".join(lines)


def describe(
    table: Any,
    target: str | None = None,
    *,
    bounds: Bounds | PathLike = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | None = None,
    read: Mapping[str, Any] | None = None,
    name: str = "table",
) -> Description:
    """Describe how each column of a table is understood, without fitting or compiling anything.

    The description has names and counts, and no values of the data. It is not private: counts and
    kinds of columns depend on the data.

    Args:
        table: a data frame, as for `from_frame`, or the path of a file, as for `from_file`.
        target: name of the column to predict, if you have chosen it.
        bounds: bounds, as for `from_frame`. With a target, the description says what they make of
            the table.
        missing: rule for missing cells, as for `from_frame`.
        leave_out: names of columns that are not used.
        person: name of the column that identifies people, as for `from_frame`.
        rows_per_person: largest number of rows of a person, as for `from_frame`. The description
            says if a person has more.
        read: options of the function of pandas that reads the file.
        name: name of a table that is no file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file or the object holds no table, or there is no such column.

    Examples:
        >>> frame = {"age": [25, 61, None], "city": ["A", "B", "B"], "churned": ["no", "yes", "no"]}
        >>> description = nrjax.datasets.describe(frame, "churned")
        >>> [(column.name, column.kind, column.missing) for column in description.columns]
        [('age', 'numbers', 1), ('city', 'text', 0), ('churned', 'text', 0)]
    """
    limits, path = tables.resolved(bounds), None
    if isinstance(table, (str, os.PathLike)):
        path = Path(table)
        name = path.name
        raw, read_as = tables.columns_of_file(table, limits, read)
        name += f" ({read_as})" if read_as else ""
    else:
        raw = _frames.columns_of(table, name)
    person = None if person is None else str(person)
    _check_names(raw, name, target, person, rows_per_person, leave_out)
    stated = limits if isinstance(limits, Mapping) else {}
    columns = tuple(
        described(each, column, stated.get(each))
        for each, column in raw.items()
        if each not in leave_out
    )
    columns = tuple(
        column._replace(looks_like="the person", hint="") if column.name == person else column
        for column in columns
    )
    rows, rules = len(next(iter(raw.values()))) if raw else 0, RowRules(missing, leave_out)
    rules = rules._replace(person=person, rows_per_person=rows_per_person)
    problems, fatal = _problems(columns, rows, target, missing), _unpredictable(columns, target)
    if any("\x80" <= letter <= "\x9f" for each in raw for letter in each):
        problems.append(
            "names of columns have control characters: state the encoding of the file, such as "
            "--read encoding=cp1252 (read={'encoding': 'cp1252'})."
        )
    problems += fatal
    verdict, wrong, more = _tried(raw, name, target, limits, rules)
    said = [f"the target {target!r} has ", f"columns of {name} must be without missing values"]
    said += ["values of the target of "] if fatal else []
    said += [f"{column.name!r} may identify people" for column in columns if column.hint]
    problems += [*more, *(each for each in wrong if not each.startswith(tuple(said)))]
    fitting = {n: each for n, each in stated.items() if n in raw and not _misfits(n, wrong)}
    in_shell = path is not None
    plan = Plan.of(columns, target, fitting, read or {}, rules, in_shell and has_option(path))
    command = plan.in_shell(path) if in_shell else plan.in_python()
    file = path.name if in_shell else "table"
    template = bounds_file.template(file, plan.ranges, plan.lists, plan.labels)
    shared = (
        c.name for c in columns if c.may_be_people and c.looks_like != "an id" and c.name != target
    )
    people = () if person is not None else tuple(shared)
    command = "" if fatal else command
    return Description(name, rows, columns, tuple(problems), command, template, verdict, people)


def _check_names(
    raw: Mapping[str, Any],
    name: str,
    target: str | None,
    person: str | None,
    rows_per_person: int | None,
    leave_out: Sequence[str],
) -> None:
    """Check that the target and the person are columns of a table, and suit each other."""
    where = f"of {name}: {listed(list(raw))}"
    hint = similar([target], list(raw)) or "Name the column to predict."
    check(target is None or target in raw, "target", target, f"a column {where}", hint)
    usable = person is None or (person in raw and person != target and person not in leave_out)
    expected = f"a column other than the target and those left out, {where}"
    check(usable, "person", person, expected, similar([person], list(raw)))
    hint = "Name the column that identifies people: person='id' (--person id)."
    check(person or not rows_per_person, "rows_per_person", rows_per_person, "left out", hint)


def _tried(
    raw: Mapping[str, Any], name: str, target: str | None, limits: Any, rules: RowRules
) -> tuple[str, Sequence[str], list[str]]:
    """Return what the stated bounds make of a table, and what a run would refuse.

    Returns:
        The verdict or "", the problems that preparing the table found, and those with the people.
    """
    person = rules.person
    if person is not None and rules.rows_per_person is None:
        text = (
            "state the largest number of rows of a person, which you know without the data: "
            "--rows-per-person NUMBER (rows_per_person=)."
        )
        return "", [], [text]
    if target is not None and limits is not None:
        try:
            data_set = prepare(tables.table_of(raw, target, name, name), limits, rules=rules)
        except ValueError as error:
            return "", error.problems if isinstance(error, TableError) else [str(error)], []
        wrong = [r.removeprefix("Warning: ") for r in data_set.remarks if r.startswith("Warn")]
        return "\n".join(["With these bounds:", data_set.summary]), wrong, []
    if person is not None:
        try:
            check_people(rules, name, people_in(raw[person]))
        except ValueError as error:
            return "", [], [str(error)]
    return "", [], []


def _misfits(name: str, problems: Sequence[str]) -> bool:
    """Return whether problems say that the stated bounds of a column do not suit it."""
    starts = f"bounds of {name!r} must", f"column {name!r} of "
    return any(each.startswith(starts) for each in problems)


def _unpredictable(columns: Sequence[Column], target: str | None) -> list[str]:
    """Return a sentence on a target that cannot be predicted as it is, in a list."""
    return [
        f"the target {c.name!r} is text of {c.values:,} values: two labels, or numbers, can be "
        "predicted. Recode it first, such as one value against all others."
        for c in columns
        if c.name == target and c.kind == "text" and c.values != 2
        if not (c.has_range or c.looks_like == "dates in another format")
    ]


def _problems(columns: Sequence[Column], rows: int, target: str | None, rule: Missing) -> list[str]:
    """Return sentences on what a run refuses or misunderstands, one per column and kind."""
    problems = []
    for column in columns:
        shown = repr(column.name)
        is_open = rule == "refuse" if isinstance(rule, str) else column.name not in rule
        if column.missing and is_open and not column.left_out:
            problems.append(
                f"{shown} has {counted(column.missing, 'missing cell')} of {rows:,}: fill them in, "
                "or drop these rows (missing='drop', in the shell --missing drop)."
            )
        if column.unparsable and column.hint:
            problems.append(
                f"{shown} is {column.kind}: {column.unparsable:,} cells are no plain number. "
                f"{column.hint}"
            )
        elif column.hint:
            looks = f"looks like {column.looks_like}" if column.looks_like else f"is {column.kind}"
            problems.append(f"{shown} {looks}. {column.hint}")
        if column.name != target or column.kind == "text":
            continue
        if column.looks_like == "a class" and column.values > 2:
            problems.append(
                f"the target {shown} has {column.values} different whole numbers: if they are "
                "classes, make them two labels."
            )
    return problems


def _cut(name: str) -> str:
    name = escaped(name)
    return name if len(name) <= 40 else f"{name[:37]}..."
