"""A dry run: how each column of a table is understood, what is wrong, and which bounds to state."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nrjax._base.pytrees import record
from nrjax._base.validation import check
from nrjax.datasets import _frames, bounds_file, tables
from nrjax.datasets._files import PathLike
from nrjax.datasets._looks import Column, described
from nrjax.datasets._prepare import Bounds, prepare
from nrjax.datasets._rows import Missing, RowRules, listed

_SHOWN = 60
"""Largest number of columns that a description lists one by one, and of problems."""

_MOST_TYPED = 20
"""Largest number of bounds in a command. More are for a file."""

_FILE = "bounds.toml"


@record
class Description(NamedTuple):
    """A table as it is understood, from `describe`. Printing it shows all of it.

    Attributes:
        name: name of the table.
        rows: number of rows.
        columns: all columns, in order.
        problems: sentences on what a run would refuse or misunderstand.
        command: what to type to run a regression, with placeholders in place of bounds.
        template: text of a file of bounds with placeholders, for `--bounds-file`.
        verdict: what the stated bounds make of the table, or "".
    """

    name: str
    rows: int
    columns: tuple[Column, ...]
    problems: tuple[str, ...]
    command: str
    template: str
    verdict: str = ""

    def __str__(self) -> str:
        headings = ("column", "kind", "missing", "no number", "values", "looks like")
        cells = [
            (_cut(c.name), c.kind, *(f"{n:,}" for n in c[2:5]), c.looks_like)
            for c in self.columns[:_SHOWN]
        ]
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        lines = [f"{self.name}: {self.rows:,} rows, {len(self.columns):,} columns", ""]
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
        lines += ["", "To run, with what you know without the data in capital letters:", ""]
        lines += [f"    {self.command}"]
        if _FILE in self.command:
            written = "--write-bounds of nrjax data, and `template` in Python,"
            lines += ["", f"{written} have the text of {_FILE} to fill in."]
        lines += ["", self.verdict] if self.verdict else []
        return "\n".join(lines)


def describe(
    table: Any,
    target: str | None = None,
    *,
    bounds: Bounds | PathLike = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
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
    expected, hint = f"a column of {name}: {listed(list(raw))}", "Name the column to predict."
    check(target is None or target in raw, "target", target, expected, hint)
    stated = limits if isinstance(limits, Mapping) else {}
    columns = tuple(
        described(each, column, stated.get(each))
        for each, column in raw.items()
        if each not in leave_out
    )
    rows = len(next(iter(raw.values()))) if raw else 0
    problems = _problems(columns, rows, target, missing)
    verdict = ""
    if target is not None and limits is not None:
        try:
            rules = RowRules(missing, leave_out)
            data_set = prepare(tables.table_of(raw, target, name, name), limits, rules=rules)
            verdict = "\n".join(["With these bounds:", *data_set.remarks])
        except ValueError as error:
            problems.append(str(error))
    plan = _Plan.of(columns, target, stated, read or {}, missing, leave_out)
    command = plan.in_python() if path is None else plan.in_shell(path)
    file = "table" if path is None else path.name
    template = bounds_file.template(file, plan.ranges, plan.lists, plan.labels)
    return Description(name, rows, columns, tuple(problems), command, template, verdict)


def _problems(columns: Sequence[Column], rows: int, target: str | None, rule: Missing) -> list[str]:
    """Return sentences on what a run refuses or misunderstands, one per column and kind."""
    problems = []
    for column in columns:
        shown = repr(column.name)
        is_open = rule == "refuse" if isinstance(rule, str) else column.name not in rule
        if column.missing and is_open and not column.left_out:
            problems.append(
                f"{shown} has {column.missing:,} missing cells of {rows:,}: fill them in, or drop "
                "these rows (missing='drop', in the shell --missing drop)."
            )
        if column.unparsable and column.hint:
            problems.append(
                f"{shown} is {column.kind}: {column.unparsable:,} cells are no plain number. "
                f"{column.hint}"
            )
        elif column.hint:
            looks = f"looks like {column.looks_like}" if column.looks_like else f"is {column.kind}"
            problems.append(f"{shown} {looks}. {column.hint}")
        if column.name != target:
            continue
        if column.kind == "text" and column.values != 2:
            problems.append(
                f"the target {shown} is text of {column.values:,} values: two labels, or numbers, "
                "can be predicted."
            )
        elif column.looks_like == "a class" and column.values > 2:
            problems.append(
                f"the target {shown} has {column.values} different whole numbers: if they are "
                "classes, make them two labels."
            )
    return problems


class _Plan(NamedTuple):
    """A call that prepares a table, with placeholders for bounds that are not stated."""

    target: str | None
    stated: Mapping[str, Any]
    ranges: list[str]
    lists: list[str]
    labels: str | None
    leave_out: list[str]
    missing: Missing
    read: dict[str, Any]

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        target: str | None,
        stated: Mapping[str, Any],
        read: Mapping[str, Any],
        missing: Missing,
        leave_out: Sequence[str],
    ) -> "_Plan":
        """Return the call for described columns, some of whose bounds are stated."""
        used = [c for c in columns if c.name == target or not c.left_out]
        unstated = [c for c in used if c.name not in stated and c.kind != "booleans"]
        labels = next((c.name for c in unstated if c.name == target and c.values == 2), None)
        others = [c for c in unstated if c.name != labels]
        options = [each.split("=", 1) for c in used for each in c.read.split()]
        if missing == "refuse" and (any(c.missing for c in used) or "na_values" in dict(options)):
            missing = "drop"
        return cls(
            target,
            stated,
            [c.name for c in others if c.has_range],
            [c.name for c in others if not c.has_range],
            labels,
            [*leave_out, *(c.name for c in columns if c.left_out and c.name != target)],
            missing,
            dict(options) | dict(read),
        )

    def bounds(self) -> list[tuple[str, str, str]]:
        """Return each column with its bounds, as the shell and as Python write them."""
        shown = [(name, _joined(limits), repr(limits)) for name, limits in self.stated.items()]
        shown += [(name, "LOW:HIGH", "(LOW, HIGH)") for name in self.ranges]
        shown += [(name, "CATEGORIES", "CATEGORIES") for name in self.lists]
        return shown + ([] if self.labels is None else [(self.labels, "LABELS", "LABELS")])

    def in_shell(self, path: Path) -> str:
        """Return the call as a command."""
        parts = ["nrjax", "run", "--data", str(path), "--target", self.target or "COLUMN"]
        parts += ["--read", *(f"{n}={v}" for n, v in self.read.items())] if self.read else []
        parts += ["--leave-out", *self.leave_out] if self.leave_out else []
        if isinstance(self.missing, Mapping):
            parts += ["--missing", *(f"{n}={v}" for n, v in self.missing.items())]
        elif self.missing == "drop":
            parts += ["--missing", "drop"]
        lists = [each for each in self.stated.values() if isinstance(each, list)]
        odd = any("," in str(category) for each in lists for category in each)
        limits = [f"{name}={text}" for name, text, _ in self.bounds()]
        odd |= any(each.startswith("-") or each.count("=") > 1 for each in limits)
        if odd or len(limits) > _MOST_TYPED:
            parts += ["--bounds-file", _FILE]
        elif limits:
            parts += ["--bounds", *limits]
        return shlex.join(parts)

    def in_python(self) -> str:
        """Return the call in Python."""
        target = "COLUMN" if self.target is None else repr(self.target)
        parts = [f"nrjax.datasets.from_frame(frame, {target}"]
        limits = [f"{name!r}: {code}" for name, _, code in self.bounds()]
        if len(limits) > _MOST_TYPED:
            parts.append(f"bounds={_FILE!r}")
        elif limits:
            parts.append(f"bounds={{{', '.join(limits)}}}")
        parts += [f"leave_out={self.leave_out!r}"] if self.leave_out else []
        parts += [f"missing={self.missing!r}"] if self.missing != "refuse" else []
        return ", ".join(parts) + ")"


def _joined(limits: Any) -> str:
    """Return a range or a list as the shell writes it."""
    is_listed = isinstance(limits, (list, tuple))
    texts = [str(each).removesuffix(".0") for each in (limits if is_listed else [limits])]
    return (":" if isinstance(limits, tuple) else ",").join(texts)


def _cut(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."
