"""Data sets by name, or from a user's own file, ready for private empirical risk minimisation."""

import os
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from nrjax._validation import check, is_integer
from nrjax.datasets import flights, kddcup, twitter, user
from nrjax.datasets._dataset import (
    NORMALISATIONS,
    TASKS,
    Dataset,
    divided_by_largest_l1_norm,
    divided_by_largest_value,
    scaled,
    unit_l2_rows,
)
from nrjax.datasets._files import PathLike, cache_folder, data_folder
from nrjax.datasets.counts import Counts, load_counts, zipf_counts, zipf_law

__all__ = [
    "Available",
    "Counts",
    "Dataset",
    "available",
    "cache_folder",
    "data_folder",
    "divided_by_largest_l1_norm",
    "divided_by_largest_value",
    "fetch",
    "load",
    "load_counts",
    "resolve",
    "unit_l2_rows",
    "zipf_counts",
    "zipf_law",
]

_SOURCES: dict[str, ModuleType] = {"flights": flights, "kdd99": kddcup, "twitter": twitter}
"""Each has TASKS, FEATURES, HOW (to get it), `most_rows`, `where` and `read`."""

_PAPER = {"logistic": "kdd99", "ridge": "twitter"}

_USUAL_ROWS = 10_000
"""Rows of a named data set unless asked otherwise, as in Whitehouse 2022."""


class Available(NamedTuple):
    """A named data set, and whether it is on this machine."""

    name: str
    tasks: tuple[str, ...]
    """The tasks that it suits."""
    rows: int
    """Most rows that `load` gives."""
    features: int
    where: Path | None
    """The file or folder that `load` would read; None if it is not there."""
    how: str
    """How to get it."""


def available(data_dir: PathLike | None = None) -> list[Available]:
    """The named data sets, those that are not on this machine included; `data_dir` as of `load`."""
    return [
        Available(name, source.TASKS, source.most_rows(path), source.FEATURES, path, source.HOW)
        for name, source in _SOURCES.items()
        for path in [source.where(data_dir)]
    ]


def resolve(name: str, task: str) -> str:
    """The data set that a name stands for: "paper" is kdd99 for logistic, twitter for ridge."""
    check(task in TASKS, "task", task, f"one of {TASKS}")
    return _PAPER[task] if name == "paper" else name


def load(
    name_or_path: PathLike,
    task: str,
    *,
    rows: int | Literal["all"] | None = None,
    data_dir: PathLike | None = None,
    target: str | None = None,
    normalise: str = "l2_rows",
) -> Dataset:
    """Load a data set and scale it.

    Args:
        name_or_path: "flights", "kdd99", "twitter", "paper" (see `resolve`), or the path of a .csv
            or .npz file (`nrjax.datasets.user`).
        task: "logistic" (labels -1 and 1) or "ridge" (target divided by its largest absolute value
            in the rows used, hence within [-1, 1]).
        rows: how many rows, from the first on, no more than there are; "all" of them; None: 10,000
            of a named data set, all of a user's file.
        data_dir: folder of kdd99 and twitter; else the variable `NRJAX_DATA`, else the cache.
        target: column (CSV) or array (NPZ) of a user's file.
        normalise: "l2_rows" divides each row by its own l2 norm (Whitehouse 2022); "max_l1" divides
            all rows by the largest l1 norm among the rows used (Ligett 2017).

    Raises:
        FileNotFoundError: the data are not on this machine; the message says what to put where.
        ModuleNotFoundError: a package of the extra `studies` is needed.
        ValueError: an argument is wrong, the data do not suit the task, or a file is damaged.
    """
    name = resolve(os.fspath(name_or_path), task)
    check(normalise in NORMALISATIONS, "normalise", normalise, f"one of {tuple(NORMALISATIONS)}")
    if rows is not None and rows != "all":
        check(is_integer(rows) and rows >= 1, "rows", rows, "a positive integer, or 'all'")
    wanted = None if rows is None or rows == "all" else int(rows)
    if name in _SOURCES:
        source = _SOURCES[name]
        check(target is None, "target", target, f"None for {name}, whose target is fixed")
        suited = ", ".join(other for other, held in _SOURCES.items() if task in held.TASKS)
        right = f"{source.TASKS[0]!r} for {name}; for {task} there are {suited}"
        check(task in source.TASKS, "task", task, right)
        most = source.most_rows(source.where(data_dir)) if rows == "all" else _USUAL_ROWS
        return scaled(name, task, source.read(task, wanted or most, data_dir), normalise)
    path = Path(name).expanduser()
    names = ", ".join(map(repr, [*_SOURCES, "paper"]))
    right = f"one of {names}, or the path of a .csv or .npz file"
    check(path.suffix.lower() in user.SUFFIXES, "data", name, right)
    return scaled(path.name, task, user.read(path, task, wanted, target), normalise)


def fetch(name: str, data_dir: PathLike | None = None, *, base_url: str = kddcup.BASE_URL) -> Path:
    """Download a data set (kdd99 is the only one); see `nrjax.datasets.kddcup.fetch`."""
    if name in _SOURCES and name != "kdd99":
        raise ValueError(f"name = {name!r}: it is not downloaded; {_SOURCES[name].HOW}.")
    check(name == "kdd99", "name", name, "'kdd99'")
    return kddcup.fetch(data_dir, base_url=base_url)
