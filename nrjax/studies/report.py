"""What a study tells its reader: a table and remarks, for the terminal and as `report.md`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nrjax.studies.folder import REPORT, REPORT_MARK, write_document
from nrjax.studies.intervals import rank_interval
from nrjax.studies.store import Store


class Report(NamedTuple):
    """A table with what should be said beside it."""

    title: str
    headings: tuple[str, ...]
    """Of the columns; the first names the case and is set left, the others hold numbers."""
    rows: tuple[tuple[str, ...], ...]
    """A cell for each heading."""
    remarks: tuple[str, ...]
    """Sentences: where the numbers come from, what they show, what should make one doubt them."""


def markdown(report: Report) -> str:
    """The report as Markdown."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

    rule = ("---", *["---:"] * (len(report.headings) - 1))
    table = [line(row) for row in (report.headings, rule, *report.rows)]
    remarks = [f"- {remark}" for remark in report.remarks]
    return "\n".join([REPORT_MARK, "", f"# {report.title}", "", *table, "", *remarks]) + "\n"


def write_report(store: Store, report: Report) -> Path:
    """Write `report.md` beside the store, whole or not at all; returns its path.

    Raises:
        FileExistsError: there is a file of that name which nrjax has not written.
        OSError: the disk is full, or failed.
    """
    return write_document(store.folder, REPORT, markdown(report))


def number(value: float | None) -> str:
    """A number for a table; None stands for infinity, as in `summary.json`."""
    return "inf" if value is None else f"{value:.4g}"


def span(ends: Sequence[float | None], low: str = "inf", digits: int = 3) -> str:
    """Two ends for a table; None stands for infinity, at the lower end for `low`."""
    first, second = ends
    return f"{_short(first, low, digits)}-{_short(second, 'inf', digits)}"


def lowest(trials: int, percent: float) -> str:
    """What null stands for at the lower end of a quantile's 95 % interval.

    Minus infinity where so few trials set no lower end; else as many are infinite.
    """
    return "-inf" if rank_interval(trials, percent)[0] < 1 else "inf"


def _short(value: float | None, infinite: str, digits: int) -> str:
    return infinite if value is None else f"{value:.{digits}g}"


def within(value: float | None, ends: Sequence[float | None]) -> str:
    """A number, and by how many per cent of it the farther end of its interval is away."""
    if value is None:
        return "inf"
    if None in ends:
        return f"{value:.4g} ±inf"
    far = max(abs(end - value) for end in ends if end is not None)
    if value == 0 and far > 0:
        return f"{value:.4g} ±{_up(far)}"
    share = 100 * far / abs(value) if value else 0.0
    return f"{value:.4g} ±{_up(share)}%"


def _up(number: float) -> str:
    """Two digits, rounded up: an interval must not look shorter than it is."""
    if number <= 0:
        return "0"
    scale = 10.0 ** (math.floor(math.log10(number)) - 1)
    digits = math.ceil(number / scale * (1 - 1e-9))
    return f"{digits * scale:.0f}" if scale >= 1 else f"{digits * scale:.2g}"
