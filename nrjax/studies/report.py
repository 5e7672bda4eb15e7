"""What a study tells its reader: a table and remarks, for the terminal and as `report.md`."""

from pathlib import Path
from typing import NamedTuple

from nrjax.studies.folder import REPORT, REPORT_MARK, explained, write_whole
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
        OSError: the disk is full, or failed.
    """
    path = store.folder / REPORT
    try:
        write_whole(path, markdown(report).encode())
    except OSError as error:
        raise explained(error, f"cannot write {path}") from error
    return path


def number(value: float | None) -> str:
    """A number for a table; None stands for infinity, as in `summary.json`."""
    return "inf" if value is None else f"{value:.4g}"
