"""A `Choice` as text of at most 88 columns, and as HTML for a notebook.

The advice comes first, and each name is followed by its verdict, so that neither is cut off.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from nrjax._base.notions import Notion
from nrjax._base.sensitivities import describe_relation
from nrjax.choice.candidates import PRIVATE
from nrjax.study.document import html_table
from nrjax.study.formats import upper

COLUMNS = 88
"""The largest number of columns of the text."""

_HEAD = ("candidate", "verdict", "met", "median", "90 %", "beats")

_GAP = "  "
_LEAST = 12
"""The least number of columns for a name or a verdict, which is broken into lines."""

_REMARKS = (
    "Median and 90 %: half of the runs, and 9 of 10, cost at most this epsilon (95 % intervals).",
    "Beats: fraction of runs in which a candidate costs less than the best of its section.",
    "Do not compare epsilons of different sections: they promise different things.",
    "If you chose on private data, the choice has used them already, and no epsilon covers that. "
    "For a real release, choose on public or synthetic data of the same size.",
    "The score of a built-in question compares a release with your data, so it reads them.",
    "The target is taken as public. A percentage or an excess loss depends on the data.",
    "Not compared: mechanisms tuned to the data, other regularisation.",
)

_NO_TEST = (
    "No private test is listed: the sensitivity of the score is unknown, or the error is so small "
    "that a test would cost an epsilon of hundreds."
)


def text(choice: Any) -> str:
    """Return the advice, the table and the notes of a `Choice` as text."""
    lines = [*_wrapped(_title(choice)), "", *_wrapped(choice.advice)]
    widths = _widths([_HEAD, *map(_cells, choice.table)])
    for section, rows in _sections(choice):
        lines += ["", *_wrapped(section), *_wrapped(_notions(rows))]
        for cells in (_HEAD, *map(_cells, rows)):
            lines += _row(cells, widths)
    notes = ("- " + note for note in _notes(choice))
    return "\n".join([*lines, "", *(line for note in notes for line in _wrapped(note, "  "))])


def page(choice: Any) -> str:
    """Return the advice, the tables and the notes of a `Choice` as HTML."""
    parts = [f"<p><b>{escape(_title(choice))}</b></p>", f"<p>{escape(choice.advice)}</p>"]
    for section, rows in _sections(choice):
        parts.append(f"<p><b>{escape(section)}</b><br>{escape(_notions(rows))}</p>")
        parts.append(html_table(_HEAD, [_cells(row) for row in rows]))
    notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(choice))
    return "\n".join([*parts, f"<details open><summary>Notes</summary><ul>{notes}</ul></details>"])


def _title(choice: Any) -> str:
    confidence = f"{choice.confidence:.0%} of runs"
    return f"{choice.question}: error at most {choice.error:.4g} in {confidence}"


def _sections(choice: Any) -> Iterator[tuple[str, list[Any]]]:
    """Generate each section of the table with its rows."""
    for section in dict.fromkeys(row.section for row in choice.table):
        yield section, [row for row in choice.table if row.section == section]


def _notions(rows: Sequence[Any]) -> str:
    """Return a sentence on the meaning of each epsilon in a section."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row.notion, []).append(row.name)
    return " ".join(
        f"{notion.capitalize()} epsilon ({'all' if len(names) == 1 else ', '.join(named)}): "
        f"{Notion(notion).meaning}."
        for notion, named in names.items()
    )


def _notes(choice: Any) -> list[str]:
    """Return the sentences below the table."""
    notes = [
        f"{row.name}: {row.coverage}."
        for row in choice.table
        if row.name == choice.best and row.coverage is not None
    ]
    if choice.relation is not None:
        changed = describe_relation(choice.relation)
        notes.append(f"Protected: whatever changes if {changed} (neighbours: {choice.relation}).")
    if not any(row.section.startswith(PRIVATE) for row in choice.table):
        notes.append(_NO_TEST)
    notes += choice.remarks
    notes += [f"Warning: {each} They count as trials that missed." for each in choice.failures]
    return [*notes, *_REMARKS]


def _cells(row: Any) -> tuple[str, ...]:
    """Return the texts of a row, in the order of `_HEAD`."""
    lower = "" if math.isnan(row.cheaper) else f"{row.cheaper:.0%}"
    verdict = f"{row.verdict}, may be best" if row.is_open else str(row.verdict)
    met = "100%" if row.met == 1 else f"{row.met:.1%}"
    median = _estimate(row.median, row.median_interval)
    return row.name, verdict, met, median, _estimate(row.high, row.high_interval), lower


def _estimate(value: float, interval: tuple[float, float]) -> str:
    """Return a number, and the distance to the farther end of its interval, both rounded up."""
    low, middle, high = f"{interval[0]:.3g}", upper(value, 3), upper(interval[1], 3)
    shown = float(middle)
    far = max(abs(end - shown) for end in interval)
    if interval[0] == interval[1] or f"{interval[0]:.3g}" == f"{interval[1]:.3g}":
        return middle
    if not math.isfinite(far) or value == 0:
        return f"{middle} ({low} to {high})"
    return f"{middle} ±{math.ceil(100 * far / shown)}%"


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column: names and verdicts share what the numbers leave."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = COLUMNS - sum(widths[2:]) - len(_GAP) * (len(widths) - 1)
    for column, other in ((1, 0), (0, 1)):  # verdicts are broken before names
        widths[column] = max(_LEAST, min(widths[column], left - widths[other]))
    return widths


def _row(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Generate the lines of a row, whose name and verdict may need several."""
    broken = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, broken))):
        parts = (lines[number] if number < len(lines) else "" for lines in broken)
        padded = (
            part.ljust(width) if column < 2 else part.rjust(width)
            for column, (part, width) in enumerate(zip(parts, widths, strict=True))
        )
        yield _GAP.join(padded).rstrip()


def _wrapped(sentence: str, indent: str = "") -> list[str]:
    return textwrap.wrap(sentence, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)
