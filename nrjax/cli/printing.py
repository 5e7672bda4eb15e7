"""Tables on standard output, and warnings on standard error."""

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import rich.box
import rich.console
import rich.table

from nrjax.cli.wording import in_shell

_COLUMNS = 88
"""The largest number of columns of text on a terminal."""


def console() -> rich.console.Console:
    """Return a console without markup, and without line breaks for a file or a program."""
    shown = rich.console.Console(markup=False)  # [a] is no markup
    if not shown.is_terminal:
        shown.width = 10_000
    return shown


def show(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, whose first column has names.

    If the terminal is too narrow, headings and names are broken into lines, and numbers never are.
    """
    rows, shown = list(rows), console()
    table = rich.table.Table(
        title=title, box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    columns = [[heading, *cells] for heading, *cells in zip(headings, *rows, strict=True)]
    is_wide = sum(max(map(len, column)) + 2 for column in columns) > shown.width
    for place, (heading, *cells) in enumerate(columns):
        if place == 0:
            table.add_column(heading, overflow="fold", no_wrap=not is_wide)
        else:
            least = max(map(len, (*cells, *heading.split())), default=0)
            width = least if is_wide else None
            table.add_column(heading, justify="right", width=width, no_wrap=not is_wide)
    for row in rows:
        table.add_row(*row)
    shown.print(table)


def say(sentence: str) -> None:
    """Print a sentence, in lines of at most 88 columns on a terminal."""
    shown = console()
    shown.width = min(shown.width, _COLUMNS) if shown.is_terminal else shown.width
    shown.print(sentence, highlight=False)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning as one sentence, without a path and a line of code."""

    def show(message: Warning | str, *where: Any) -> None:
        print(f"Warning: {in_shell(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
