"""What a data set is, and the scalings that make its rows and targets fit the sensitivities."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nrjax._numerics import row_blocks
from nrjax._validation import check
from nrjax.datasets._files import Arrays, cached, read_npz

TASKS = ("logistic", "ridge")


class Raw(NamedTuple):
    """Rows before they are scaled: features (n, d) and target (n,), both float64."""

    x: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def first_rows(
    path: Path,
    rows: int,
    features: int,
    recipe: str,
    draw: Callable[[Path], Arrays],
    target: tuple[Callable[[np.ndarray], np.ndarray], str],
) -> tuple[np.ndarray, np.ndarray]:
    """The first `rows` of `x` and `y`, in float64: of an NPZ, or of what `draw` makes of a table.

    `recipe` is the draw's name in the cache; `target` says which of `y` are right, also in words. A
    `ValueError` if the arrays are not what they should be, or there are fewer rows.
    """
    npz = path.suffix == ".npz"
    arrays = read_npz(path, ("x", "y")) if npz else cached(recipe, [path], draw)
    x, y = arrays["x"], arrays["y"]
    right, words = target
    shaped = x.ndim == 2 and x.shape[1] == features and y.shape == x.shape[:1]
    if not (shaped and right(y).all()):
        raise ValueError(
            f"{path} holds x of shape {x.shape} and y of shape {y.shape}: "
            f"must be (n, {features}) and (n,), y {words}."
        )
    check(rows <= len(x), "rows", rows, f"at most {len(x)}, the rows that {path} gives")
    return x[:rows].astype(np.float64), y[:rows].astype(np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Rows ready for private empirical risk minimisation.

    The scales (a largest norm, a largest target) are taken from the data themselves, as in the
    papers: fit for simulation, not for releasing real people's data. Rounding to float32 may leave
    a row's norm above 1 by about 1e-7.

    Attributes:
        name: "flights", "kdd99", "twitter", or the file's name.
        task: "logistic" or "ridge".
        x: features, (n, d), float64; rows of norm at most 1: l2, or l1 if `normalise="max_l1"`.
        y: target, (n,), float64: -1 or 1 for logistic, within [-1, 1] for ridge.
        feature_names: the d names of the columns.
        remarks: sentences on what may be wrong with a user's file; reports repeat them.
    """

    name: str
    task: str
    x: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def unit_l2_rows(x: np.ndarray) -> np.ndarray:
    """Rows (n, d) each divided by its own l2 norm; an all-zero row stays zero (Whitehouse 2022)."""
    scaled = np.empty(x.shape, np.result_type(x, 1.0))
    for some in row_blocks(*x.shape):
        largest = np.max(np.abs(x[some]), axis=1, keepdims=True)
        # Dividing by the largest entry first keeps the squares from overflowing and underflowing.
        part = x[some] / np.where(largest > 0, largest, 1.0)
        norm = np.sqrt(np.sum(part * part, axis=1, keepdims=True))
        scaled[some] = part / np.where(norm > 0, norm, 1.0)
    return scaled


def divided_by_largest_l1_norm(x: np.ndarray) -> np.ndarray:
    """Rows (n, d) all divided by the largest l1 norm among them (Ligett 2017, section 4)."""
    x = divided_by_largest_value(x)
    norm = np.max(np.sum(np.abs(x), axis=1))
    return x / norm if norm > 0 else x


def divided_by_largest_value(y: np.ndarray) -> np.ndarray:
    """An array (such as a target) divided by its largest absolute value; all zeros stay zero."""
    largest = np.max(np.abs(y))
    return y / largest if largest > 0 else y


NORMALISATIONS = {"l2_rows": unit_l2_rows, "max_l1": divided_by_largest_l1_norm}

_MOST_OF_NORM = 0.95
"""From this fraction of the rows' norm on, a column leaves too little to the others."""


def scaled(name: str, task: str, raw: Raw, normalise: str) -> Dataset:
    """The data set of `raw`, its rows scaled as `normalise` says and a ridge target to [-1, 1]."""
    y = divided_by_largest_value(raw.y) if task == "ridge" else raw.y
    # Sums depend on the memory layout in the last digit: two forms of a file must agree exactly.
    x = NORMALISATIONS[normalise](np.ascontiguousarray(raw.x))
    remarks = (*raw.remarks, *_overwhelming(name, x, raw.feature_names, normalise))
    return Dataset(name, task, x, y, raw.feature_names, remarks)


def _overwhelming(name: str, x: np.ndarray, columns: tuple[str, ...], normalise: str) -> list[str]:
    """Return a warning if one of several columns makes up nearly all of the rows' norm."""
    power, norm = (2, "squared l2 norm") if normalise == "l2_rows" else (1, "l1 norm")
    sizes = sum(np.sum(np.abs(x[some]) ** power, axis=0) for some in row_blocks(*x.shape))
    share = np.max(sizes) / max(np.sum(sizes), np.finfo(float).tiny)
    if len(columns) < 2 or share <= _MOST_OF_NORM:
        return []
    return [
        f"Warning: the column {columns[np.argmax(sizes)]!r} of {name} makes up "
        f"{np.floor(1000 * share) / 10:g} % of the rows' {norm}, which leaves the other columns "
        "without effect. Bring all columns to one scale first."
    ]
