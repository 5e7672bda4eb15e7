"""Tables on standard output."""

from collections.abc import Iterable, Sequence

import rich.box
import rich.console
import rich.table


def console() -> rich.console.Console:
    """Return a console without markup, and without line breaks for a file or a program."""
    shown = rich.console.Console(markup=False)  # [a] is no markup
    if not shown.is_terminal:
        shown.width = 10_000
    return shown


def show(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, whose first column has names."""
    table = rich.table.Table(
        title=title, box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column, heading in enumerate(headings):
        justify = "right" if column else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=column == 0)
    for row in rows:
        table.add_row(*row)
    console().print(table)
