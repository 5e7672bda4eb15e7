"""Named data sets and your own files, scaled for private empirical risk minimisation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nrjax._base.cache import cache_folder
from nrjax._base.fields import explain_fields
from nrjax._base.validation import check, is_integer
from nrjax.datasets import _reading, tables, uci
from nrjax.datasets._dataset import (
    NORMALISATIONS,
    TASKS,
    Dataset,
    Source,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    scale,
    unit_l2_rows,
)
from nrjax.datasets._files import PathLike, data_folder
from nrjax.datasets._prepare import prepare
from nrjax.datasets._rows import Missing, RowRules
from nrjax.datasets.bounds_file import read_bounds
from nrjax.datasets.counts import Counts, count_keys, load_counts, zipf_counts, zipf_law
from nrjax.datasets.describing import Column, Description, describe
from nrjax.datasets.flights import FLIGHTS
from nrjax.datasets.tables import PrivacyLeakWarning, from_arrays, from_file, from_frame

__all__ = [
    "Available",
    "Column",
    "Counts",
    "Dataset",
    "Description",
    "PrivacyLeakWarning",
    "available",
    "cache_folder",
    "count_keys",
    "data_folder",
    "describe",
    "divided_by_largest_l1_norm",
    "divided_by_largest_value",
    "fetch",
    "from_arrays",
    "from_file",
    "from_frame",
    "load",
    "load_counts",
    "read_bounds",
    "resolve",
    "unit_l2_rows",
    "zipf_counts",
    "zipf_law",
]

_SOURCES: dict[str, Source] = {"flights": FLIGHTS, "kdd99": uci.KDD99, "twitter": uci.TWITTER}
_PAPER = {"logistic": "kdd99", "ridge": "twitter"}
_DEFAULT_ROWS = 10_000  # default for a named data set, as in Whitehouse 2022


@explain_fields
class Available(NamedTuple):
    """A named data set, and whether it is on this machine.

    Attributes:
        name: name to pass to `load`.
        tasks: tasks that the data set suits: "logistic", "ridge" or both.
        rows: largest number of rows that `load` can return.
        features: number of features.
        where: the file or folder that `load` reads, or None if it is absent.
        how: how to get the data set.
    """

    name: str
    tasks: tuple[str, ...]
    rows: int
    features: int
    where: Path | None
    how: str


def available(data_dir: PathLike | None = None) -> list[Available]:
    """List all named data sets, each with its file or folder if that is on this machine."""
    return [
        Available(name, source.tasks, source.max_rows(path), source.features, path, source.how)
        for name, source in _SOURCES.items()
        for path in [source.locate(data_dir)]
    ]


def resolve(name: str, task: str) -> str:
    """Return the name of a data set: "paper" means kdd99 (logistic) or twitter (ridge)."""
    check(task in TASKS, "task", task, f"one of {TASKS}")
    return _PAPER[task] if name == "paper" else name


def load(
    name_or_path: PathLike,
    task: str,
    *,
    rows: int | Literal["all"] | None = None,
    data_dir: PathLike | None = None,
    target: str | None = None,
    bounds: tables.Bounds | PathLike = None,
    normalise: str | None = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | None = None,
    read: Mapping[str, Any] | None = None,
) -> Dataset:
    """Load a data set and scale it, as the papers' studies do.

    Args:
        name_or_path: "flights", "kdd99", "twitter", "paper" (see `resolve`), or the path of a file
            that `from_file` reads.
        task: "logistic" (labels -1 and 1) or "ridge" (target divided by its largest absolute value
            in the rows used, unless it has bounds).
        rows: number of rows, counted from the first, or "all". By default 10,000 rows of a named
            data set and all rows of your own file.
        data_dir: folder that holds kdd99 and twitter. By default the environment variable
            `NRJAX_DATA`, else the cache folder.
        target: name of the target in your own file: a column, or an array of an .npz file.
        bounds: bounds of the columns of your own file, as for `from_frame`. By default, columns of
            numbers are taken as they are, without an intercept.
        normalise: "l2_rows" divides each row by its own l2 norm (Whitehouse 2022); "max_l1" divides
            all rows by the largest l1 norm among the rows used, or by its bound if there are
            `bounds` (Ligett 2017). With both, an intercept is a column of ones. By default, your
            own file with `bounds` is prepared as by `from_frame`, and other data by "l2_rows".
        missing: rule for missing cells of your own file, as for `from_frame`.
        leave_out: columns of your own file that are not used.
        person: column of your own file that identifies people, as for `from_frame`.
        rows_per_person: largest number of rows of a person, as for `from_frame`.
        read: options of the function of pandas that reads your own file, as for `from_file`.

    Raises:
        FileNotFoundError: the data are absent. The message names the file and its folder.
        ModuleNotFoundError: a package of the extra `studies` is not installed.
        ValueError: an argument is wrong, the data do not suit the task, or a file is damaged.

    Examples:
        >>> nrjax.datasets.load("flights", "logistic", rows=1000).x.shape
        (1000, 39)
    """
    name = resolve(os.fspath(name_or_path), task)
    known = normalise is None or normalise in NORMALISATIONS
    check(known, "normalise", normalise, f"one of {tuple(NORMALISATIONS)}, or None")
    if rows is not None and rows != "all":
        check(is_integer(rows) and rows >= 1, "rows", rows, "a positive integer, or 'all'")
    count = None if rows is None or rows == "all" else int(rows)
    if name in _SOURCES:
        source = _SOURCES[name]
        own = {"target": target, "bounds": bounds, "read": read, "person": person}
        own |= {"rows_per_person": rows_per_person, "leave_out": leave_out or None}
        own |= {"missing": None if missing == "refuse" else missing}
        for option, value in own.items():
            check(value is None, option, value, f"None for {name}, which is prepared in one way")
        suited = " or ".join(other for other, each in _SOURCES.items() if task in each.tasks)
        expected, hint = f"{source.tasks[0]!r} for {name}", f"For {task} load {suited}."
        check(task in source.tasks, "task", task, expected, hint)
        most = source.max_rows(source.locate(data_dir)) if rows == "all" else _DEFAULT_ROWS
        return scale(name, task, source.read(task, count or most, data_dir), normalise or "l2_rows")
    names = ", ".join(map(repr, [*_SOURCES, "paper"]))
    expected = f"one of {names}, or the path of a file of a table: {_reading.FILES}"
    check(_reading.is_table(name), "data", name, expected)
    limits = tables.resolved(bounds)
    if isinstance(limits, str):
        tables.warn_of_bounds_from_data(name)
    table = tables.read(name, target, limits, read)
    rules = RowRules(missing, leave_out, person, rows_per_person)
    return prepare(table, limits, task, rows=count, normalise=normalise, rules=rules)


def fetch(name: str, data_dir: PathLike | None = None, *, base_url: str = uci.KDD99_URL) -> Path:
    """Download kdd99 (2.1 MB) into the data folder and return its path.

    Other data sets cannot be downloaded. An existing file with the right checksum is kept, and one
    with a wrong checksum is replaced. The file appears only when the download is complete.

    Args:
        name: "kdd99".
        data_dir: the data folder, as for `load`.
        base_url: address of the server's folder that holds the file.

    Raises:
        FileNotFoundError: the download failed. The message names the file and its folder.
        ValueError: the download has a wrong checksum (the data folder stays unchanged), or `name`
            is not "kdd99".
    """
    how = f"Get {name} otherwise: {_SOURCES[name].how}." if name in _SOURCES else ""
    check(name == "kdd99", "name", name, "'kdd99'", how)
    return uci.fetch_kdd99(data_dir, base_url)
