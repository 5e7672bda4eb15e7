"""The report of a study as Markdown, as one HTML file and as a notebook shows it.

All forms have the same parts, in the order of `Report.parts`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from nrjax._base.fields import explain_fields
from nrjax.study.files import FIGURES
from nrjax.study.formats import humanise

_CELL = "padding:.2em .7em;font-variant-numeric:tabular-nums;text-align:"
"""The style of a cell. Notebooks drop style sheets, so that each cell carries its own."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
.answer {{ font-size: 1.15rem; }}
table {{ border-collapse: collapse; }}
tr {{ border-bottom: 1px solid #8886; }}
img {{ max-width: 100%; background: white; }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


@explain_fields
class Report(NamedTuple):
    """A table with remarks, as Markdown by `str` and as HTML in a notebook.

    Attributes:
        title: heading of the report.
        headings: heading of each column. The first column names the case, the others are numbers.
        rows: cells of each case, one per heading.
        remarks: notes below the table, such as sources and warnings.
        answer: the result in one sentence or two, to stand first; "" for none.
        uncovered: sentences on what the stated epsilon does not cover.
        provenance: sentences on the run, such as versions, seed and run time.
        figure: name of the figure to show, of those in the folder `figures`; "" for none.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]
    answer: str = ""
    uncovered: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    figure: str = ""

    def parts(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Generate the heading and the sentences of each part below the table."""
        named = {
            "What this number does not cover": self.uncovered,
            "Notes": self.remarks,
            "Provenance": self.provenance,
        }
        yield from ((heading, sentences) for heading, sentences in named.items() if sentences)

    def __str__(self) -> str:
        """Return the report as Markdown."""
        rule = ("---", *["---:"] * (len(self.headings) - 1))
        table = [_markdown_row(row) for row in (self.headings, rule, *self.rows)]
        lines = [f"# {self.title}", ""]
        lines += [self.answer, ""] if self.answer else []
        lines += [f"![{self.alternative}]({FIGURES}/{self.figure}.png)", ""] if self.figure else []
        lines += [*table, ""]
        for heading, sentences in self.parts():
            lines += [f"## {heading}", "", *map("- {}".format, sentences), ""]
        return "\n".join(lines)

    @property
    def alternative(self) -> str:
        """The text for readers who do not see the figure."""
        names = ", ".join(dict.fromkeys(row[0] for row in self.rows))
        return re.sub(r"[\[\]\n]", " ", f"Figure: {humanise(self.figure)} of {names}")

    def to_html(self, picture: bytes | None = None) -> str:
        """Return the report as one HTML page, which needs no other file and no network.

        Args:
            picture: the figure as a PNG file; None for a page without a figure.
        """
        image = ""
        if picture is not None:
            data = base64.b64encode(picture).decode()
            source = f"data:image/png;base64,{data}"
            image = f'<p><img alt="{escape(self.alternative)}" src="{source}"></p>\n'
        parts = "".join(
            f"<h2>{escape(heading)}</h2>\n{_items(sentences)}"
            for heading, sentences in self.parts()
        )
        return _PAGE.format(title=escape(self.title), body=f"{self._start(image)}{parts}")

    def _repr_html_(self) -> str:
        parts = "".join(
            f"<details{' open' if place == 0 else ''}><summary>{escape(heading)}</summary>"
            f"{_items(sentences)}</details>"
            for place, (heading, sentences) in enumerate(self.parts())
        )
        return f"<p><b>{escape(self.title)}</b></p>\n{self._start()}{parts}"

    def _start(self, image: str = "") -> str:
        """Return the answer, an image and the table as HTML."""
        answer = f'<p class="answer">{_inline(self.answer)}</p>\n' if self.answer else ""
        return f"{answer}{image}{html_table(self.headings, self.rows)}"


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML, with the first column to the left and the others to the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("left", *["right"] * (len(cells) - 1))
        return "<tr>{}</tr>".format(
            "".join(
                f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>'
                for side, cell in zip(sides, cells, strict=True)
            )
        )

    body = "".join(row(cells, "td") for cells in rows)
    table = f"<table>{row(headings, 'th')}{body}</table>"
    return f'<div style="overflow-x:auto">{table}</div>\n'


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _items(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_inline(each)}</li>\n" for each in sentences) + "</ul>"


def _inline(sentence: str) -> str:
    """Return a sentence as HTML, with words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(sentence))
