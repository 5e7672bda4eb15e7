"""Classes for data sets and their sources, and scalings that bound the rows' norms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.arrays import as_array
from nrjax._base.numerics import row_blocks
from nrjax._base.validation import check, check_complete
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


class Units(NamedTuple):
    """The linear maps from the user's columns to the features and the target.

    Attributes:
        middles: number of the user's column that became 0, shape (d,).
        factors: change of the feature per unit of the user's column, shape (d,).
        target: number of the user's target that became 0, and number of units that became 1.
    """

    middles: np.ndarray
    factors: np.ndarray
    target: tuple[float, float]


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
        units: maps from your columns to the features, or None if they are not linear.
    """

    name: str
    task: str
    x: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    rows_per_person: int = 1
    units: Units | None = None

    @property
    def relation(self) -> str:
        """Relation of neighbours that differ in one person, "replace" or "replace, K rows".

        Neighbours have the same number of rows. All rows of one person, `rows_per_person` at most,
        are replaced by others.
        """
        most = self.rows_per_person
        return "replace" if most == 1 else f"replace, {most} rows"

    def coefficients(self, theta: ArrayLike) -> dict[str, float]:
        """Return the coefficients of a model on the scale of your columns.

        The prediction of a row is the entry "intercept" plus the sum of each coefficient times the
        value of its column: your target (ridge), or the log odds of the second label (logistic). A
        value is first clipped to its bounds. An indicator counts as 0 or 1, and a boolean too.

        The coefficients of a released model may be published, at the cost of the release. Those of
        an optimum are not private.

        Args:
            theta: model, shape (d,), such as `problem.optimum` or the hypothesis of a trial.

        Raises:
            ValueError: `theta` has another shape, two features share a name, or rows were not all
                divided by the same number, so that the model is not linear in your columns.

        Examples:
            >>> frame = {"age": [20.0, 50.0, 80.0], "pay": [10.0, 20.0, 30.0]}
            >>> bounds = {"age": (0, 100), "pay": (0, 50)}
            >>> data = nrjax.datasets.from_frame(frame, "pay", bounds=bounds)
            >>> problem = nrjax.erm.RidgeProblem.fit(data.x, data.y, regularisation=1e-9)
            >>> found = data.coefficients(problem.optimum)
            >>> {name: round(value, 3) for name, value in found.items()}  # pay = age/3 + 10/3
            {'age': 0.333, 'intercept': 3.333}
        """
        hint = "Prepare a table with bounds by from_frame or from_file."
        check(self.units is not None, "rows", "divided by different numbers", "linear", hint)
        assert self.units is not None
        names = self.feature_names
        check(len(set(names)) == len(names), "feature_names", names, "without repetition")
        model = as_array(theta).astype(np.float64)
        check(model.shape == (len(names),), "theta", model.shape, f"of shape {(len(names),)}")
        middle, half = self.units.target
        slopes = half * model * self.units.factors
        slopes[-1] += middle - slopes[:-1] @ self.units.middles[:-1]
        return dict(zip(names, slopes.tolist(), strict=True))

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
