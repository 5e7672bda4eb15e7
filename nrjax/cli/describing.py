"""The command `nrjax data`: how a table is understood, and the named data sets."""

import dataclasses
import os
from pathlib import Path

import rich.console
import rich.table
import tyro

from nrjax import datasets
from nrjax._base.validation import check
from nrjax.cli.wording import in_shell
from nrjax.papers._settings import parsed_missing, parsed_read, stated_bounds

_OF_A_TABLE = (
    *("target", "bounds", "bounds_file", "missing", "leave_out", "person", "rows_per_person"),
    *("write_bounds", "read"),
)
"""Options that describe a table."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Show how your table is understood and what to type, or list the named data sets.

    For example:

        nrjax data churn.csv
        nrjax data churn.csv --target churned --write-bounds bounds.toml

    Nothing is fitted, compiled or released. The counts are those of your data, so the output is not
    private. Without a table, the data sets that studies can use are listed, with their paths.
    """

    table: tyro.conf.Positional[Path | None] = None
    """Path of your table: a text file with a header, or another file that pandas reads."""
    target: str | None = None
    """Column to predict."""
    bounds: tuple[str, ...] = ()
    """Bounds, as for `nrjax run regression`. With --target, their effect on the table is shown."""
    bounds_file: Path | None = None
    """File of bounds in TOML or JSON."""
    missing: tuple[str, ...] = ()
    """Rule for missing cells, as for `nrjax run regression`: drop, or COLUMN=VALUE."""
    leave_out: tuple[str, ...] = ()
    """Columns that are not used."""
    person: str | None = None
    """Column that identifies people, as for `nrjax run regression`."""
    rows_per_person: int | None = None
    """Largest number of rows of a person."""
    write_bounds: Path | None = None
    """File to which a template of bounds is written, for --bounds-file. It must not exist."""
    read: tuple[str, ...] = ()
    """Options of the function of pandas that reads the file, such as sep=';' decimal=,"""
    fetch: tuple[str, ...] = ()
    """Data sets to download first. Only kdd99 can be downloaded."""
    data_dir: Path | None = None
    """Folder of data files. By default, the variable NRJAX_DATA or the cache folder."""

    def __call__(self) -> None:
        """Print the description of the table, or the list of data sets."""
        if self.table is None:
            for option in _OF_A_TABLE:
                value, hint = getattr(self, option), "For example nrjax data my.csv."
                check(not value, option, value, "left out without a table", hint)
            self._list()
            return
        file = self.write_bounds
        if file is not None:
            expected, parent = "a file that does not exist yet", file.expanduser().absolute().parent
            check(not file.exists(), "--write-bounds", str(file), expected)
            ok = parent.is_dir() and os.access(parent, os.W_OK)
            check(ok, "--write-bounds", str(file), "in a folder that can be written to")
        bounds = stated_bounds(self.bounds, self.bounds_file)
        description = datasets.describe(
            self.table,
            self.target,
            bounds=bounds,
            missing=parsed_missing(self.missing),
            leave_out=self.leave_out,
            person=self.person,
            rows_per_person=self.rows_per_person,
            read=parsed_read(self.read),
        )
        print(_with_options(str(description)))
        if self.write_bounds is not None:
            with self.write_bounds.open("x", encoding="utf-8") as file:
                file.write(description.template)
            print(f"\nA template of bounds is in {self.write_bounds}")

    def _list(self) -> None:
        console = rich.console.Console()
        for name in self.fetch:
            console.print(f"{name}: {datasets.fetch(name, self.data_dir)}", soft_wrap=True)
        table = rich.table.Table()
        for heading in ("name", "tasks", "rows", "features", "path, or how to get it"):
            justify = "right" if heading in ("rows", "features") else "left"
            table.add_column(heading, justify=justify, overflow="fold")
        for data in datasets.available(self.data_dir):
            path = data.how if data.where is None else str(data.where)
            tasks = ", ".join(data.tasks)
            table.add_row(data.name, tasks, f"{data.rows:,}", str(data.features), path)
        console.print(table)


def _with_options(description: str) -> str:
    """Return a description with options of the command in its sentences, not in its table."""
    head, *rest = description.split("\n\n")
    table, *sentences = rest
    kept = [part if part.startswith("    ") else in_shell(part) for part in sentences]
    return "\n\n".join([head, table, *kept])
