"""Classes for data sets and their sources, and scalings that bound the rows' norms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nrjax._base.arrays import as_array
from nrjax._base.numerics import row_blocks
from nrjax._base.validation import check_complete
from nrjax.datasets._files import PathLike

TASKS = ("logistic", "ridge")

_DOMINANT = 0.95
"""Fraction of the rows' norm above which a warning reports a column as dominant."""


class Raw(NamedTuple):
    """Unscaled rows: features x of shape (n, d) and target y of shape (n,), both float64."""

    x: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]


class Source(NamedTuple):
    """A named data set, with functions that find and read its files.

    Attributes:
        tasks: tasks that the data set suits.
        features: number of features.
        how: how to get the data set, in a few words.
        locate: function of the data folder. It returns the file or folder to read, or None.
        max_rows: function of the result of `locate`. It returns the largest number of rows that
            `read` can return.
        read: function of the task, the number of rows and the data folder. It returns the rows.
    """

    tasks: tuple[str, ...]
    features: int
    how: str
    locate: Callable[[PathLike | None], Path | None]
    max_rows: Callable[[Path | None], int]
    read: Callable[[str, int, PathLike | None], Raw]


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Scaled rows for private empirical risk minimisation with `nrjax.erm`.

    The divisors of named data sets (a largest norm, a largest target) are computed from the data
    without privacy, as in the papers. They suit simulations, but not a release of real people's
    data. Rounding to float32 may leave a row's norm above 1 by about 1e-7, but not that of a row of
    your own table.

    Attributes:
        name: "flights", "kdd99", "twitter", or the name of your table.
        task: "logistic" or "ridge".
        x: features, float64, shape (n, d). The l2 norm of each row is at most 1, or the l1 norm if
            `normalise="max_l1"`.
        y: target, float64, shape (n,): -1 or 1 for logistic, within [-1, 1] for ridge.
        feature_names: names of the d features.
        remarks: sentences on what was done to your table, and warnings. Reports repeat them.
        rows_per_person: largest number of rows of a person, 1 unless you state it. No person has
            more rows.
    """

    name: str
    task: str
    x: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    rows_per_person: int = 1

    @property
    def relation(self) -> str:
        """Relation of neighbours that differ in one person, "replace" or "replace, K rows".

        Neighbours have the same number of rows. All rows of one person, `rows_per_person` at most,
        are replaced by others.
        """
        most = self.rows_per_person
        return "replace" if most == 1 else f"replace, {most} rows"

    @property
    def summary(self) -> str:
        """Two lines on your table: what was done, and what was taken from the data."""
        return "\n".join(line for line in self.remarks if not line.startswith("Warning: "))

    def __repr__(self) -> str:
        size = f"{len(self.x):,} rows, {len(self.feature_names)} features"
        return "\n".join([f"Dataset({self.name!r}, {self.task!r}, {size})", *self.remarks])


def unit_l2_rows(x: np.ndarray) -> np.ndarray:
    """Divide each row, of shape (d,), by its l2 norm unless that is 0 (Whitehouse 2022)."""
    check_complete("x", x)
    x = as_array(x)
    scaled = np.empty(x.shape, np.result_type(x, 1.0))
    for block in row_blocks(*x.shape):
        largest = np.max(np.abs(x[block]), axis=1, keepdims=True)
        # Dividing by the largest entry first keeps the squares from overflowing and underflowing.
        part = x[block] / np.where(largest > 0, largest, 1.0)
        norm = np.sqrt(np.sum(part * part, axis=1, keepdims=True))
        scaled[block] = part / np.where(norm > 0, norm, 1.0)
    return scaled


def divided_by_largest_l1_norm(x: np.ndarray) -> np.ndarray:
    """Divide all rows, shape (n, d), by the largest l1 norm of a row (Ligett 2017, section 4)."""
    check_complete("x", x)
    x = divided_by_largest_value(x)
    norm = np.max(np.sum(np.abs(x), axis=1))
    return x / norm if norm > 0 else x


def divided_by_largest_value(y: np.ndarray) -> np.ndarray:
    """Divide an array by its largest absolute value unless that is 0."""
    check_complete("y", y)
    y = as_array(y)
    largest = np.max(np.abs(y))
    return y / largest if largest > 0 else y


NORMALISATIONS = {"l2_rows": unit_l2_rows, "max_l1": divided_by_largest_l1_norm}


def scale(name: str, task: str, raw: Raw, normalise: str) -> Dataset:
    """Return a data set: features scaled by `normalise`, a ridge target scaled to [-1, 1]."""
    y = divided_by_largest_value(raw.y) if task == "ridge" else raw.y
    # Rounding of sums depends on the memory layout. Results must not depend on the file format.
    x = NORMALISATIONS[normalise](np.ascontiguousarray(raw.x))
    remarks = dominant_column(name, x, raw.feature_names, normalise)
    return Dataset(name, task, x, y, raw.feature_names, tuple(remarks))


def dominant_column(
    name: str, x: np.ndarray, columns: tuple[str, ...], normalise: str
) -> list[str]:
    """Return a warning, in a list, if one column makes up nearly all of the rows' norm."""
    power, norm = (2, "squared l2 norm") if normalise == "l2_rows" else (1, "l1 norm")
    sizes = sum(np.sum(np.abs(x[block]) ** power, axis=0) for block in row_blocks(*x.shape))
    share = np.max(sizes) / max(np.sum(sizes), np.finfo(float).tiny)
    if len(columns) < 2 or share <= _DOMINANT:
        return []
    return [
        f"Warning: the column {columns[np.argmax(sizes)]!r} of {name} makes up more than 95 % of "
        f"the rows' {norm}, which leaves the other columns without effect. Bring all columns to "
        "one scale first."
    ]
