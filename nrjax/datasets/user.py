"""A user's own table: CSV with a header, or NPZ with arrays `x` and `y`."""

import re
from collections import Counter
from pathlib import Path

import numpy as np

from nrjax._validation import check
from nrjax.datasets._dataset import Raw
from nrjax.datasets._files import extra, read_npz

SUFFIXES = (".csv", ".npz")
LARGEST_CATEGORY = 50
"""Most distinct values that a text column may have to become indicators."""

LARGEST = 1e38
"""Largest number of a table. No measurement is larger, but a code for a missing value may be."""

_NUMBER_LIKE = re.compile(r"[-+]?[$€£]?\s*\d[\d.,' ]*\s*[%$€£]?")
"""Text that a person reads as a number, such as 1,000 or 5 %."""


def read(path: Path, task: str, rows: int | None, target: str | None = None) -> Raw:
    """The first `rows` of a table (None: all), in the file's order, not yet scaled.

    CSV: numbers and booleans as they stand; a text column of at most 50 values becomes one
    indicator a value (of the whole file, so that `rows` does not change the columns). NPZ:
    features `x` (n, d) and the target `y` (n,), or the array that `target` names.

    The target must suit the task. Logistic: exactly two values, of which the larger (for text, the
    later in the alphabet) becomes 1 and the other -1. Ridge: numbers, at least three values.

    What does not fit is a `ValueError`; no such file a `FileNotFoundError`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    table = _read_npz if path.suffix.lower() == ".npz" else _read_csv
    x, y, names, remarks = table(path, target)
    if not len(x) or not names:
        raise ValueError(f"{path} has {len(x)} rows and {len(names)} features: must have some.")
    check(rows is None or rows <= len(x), "rows", rows, f"at most {len(x)}, the rows of {path}")
    within = (x.min(axis=0) >= -LARGEST) & (x.max(axis=0) <= LARGEST)  # false for NaN
    bad = [names[i] for i in np.flatnonzero(~within)]
    if bad:
        raise ValueError(
            f"{path}: the columns {_some(bad)} hold missing or infinite values, or numbers beyond "
            f"{LARGEST:g}."
        )
    y = (_labels if task == "logistic" else _numbers)(path, y)[:rows]
    if task == "logistic" and len(np.unique(y)) < 2:
        raise ValueError(
            f"rows = {rows}: the first rows of {path} have one label only; "
            "must reach both (shuffle the file or take more rows)."
        )
    return Raw(x[:rows], y, names, remarks)


_Table = tuple[np.ndarray, np.ndarray, tuple[str, ...], tuple[str, ...]]
"""Features, target, names of the features, and remarks."""


def _read_npz(path: Path, target: str | None) -> _Table:
    arrays = read_npz(path)
    name = "y" if target is None else target
    check(name in arrays and name != "x", "target", name, f"an array of {path}: {sorted(arrays)}")
    if "x" not in arrays:
        raise ValueError(f"{path} holds the arrays {sorted(arrays)}: the features must be 'x'.")
    x, y = arrays["x"], arrays[name]
    if x.ndim != 2 or y.shape != x.shape[:1] or x.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: x is {x.dtype} of shape {x.shape} and {name} has shape {y.shape}; "
            "must be numbers (n, d) and (n,)."
        )
    return x.astype(np.float64), y, tuple(f"x{i}" for i in range(x.shape[1])), ()


def _read_csv(path: Path, target: str | None) -> _Table:
    pandas = extra("pandas")
    try:
        table = pandas.read_csv(path, low_memory=False)
        header = pandas.read_csv(path, header=None, nrows=1, dtype=str, na_filter=False)
    except ValueError as error:  # pandas' own errors among them
        raise ValueError(f"{path} could not be read as CSV: {error}") from error
    given = Counter(name for name in header.iloc[0] if name)  # pandas makes a and a.1 of a and a
    twice = [name for name, times in given.items() if times > 1]
    if twice:
        raise ValueError(f"{path}: the header names {_some(twice)} twice; rename or drop one each.")
    names = list(table.columns)
    check(target in names, "target", target, f"a column of {path}: {_some(names)}")
    missing = [name for name in names if table[name].isna().any()]
    if missing:
        raise ValueError(
            f"{path}: the columns {_some(missing)} have missing values; fill them in or drop them."
        )
    nameless = [name for name in names if name.startswith("Unnamed: ")]
    if nameless:
        # Most often row numbers, which would swamp the other features.
        raise ValueError(f"{path}: the columns {nameless} have no name; name them or drop them.")
    features: dict[str, np.ndarray] = {}
    remarks = []
    for name in table.columns.drop(target):
        column = table[name].to_numpy()
        if column.dtype.kind in "biuf":
            features[name] = column.astype(np.float64)
            continue
        text = column.astype(str)
        values = np.unique(text)
        if len(values) > LARGEST_CATEGORY:
            raise ValueError(
                f"{path}: the column {name!r} is text with {len(values)} values; must be numbers "
                f"(1000, not 1,000), or at most {LARGEST_CATEGORY} values. Drop or recode it."
            )
        remarks += _number_like(path, name, values.tolist())
        features |= {f"{name}={value}": (text == value).astype(np.float64) for value in values}
    x = np.stack(list(features.values()), axis=1) if features else np.empty((len(table), 0))
    return x, table[target].to_numpy(), tuple(features), tuple(remarks)


def _number_like(path: Path, name: str, values: list[str]) -> list[str]:
    """Return a warning if a column of text is more likely one of numbers."""
    like = sum(_NUMBER_LIKE.fullmatch(one.strip()) is not None for one in values)
    if not values or 2 * like < len(values):
        return []
    plain = (one.lstrip("+-").replace(".", "", 1).isdigit() for one in values)
    odd = next((one for one, fits in zip(values, plain, strict=True) if not fits), values[0])
    return [
        f"Warning: the column {name!r} of {path.name} looks like numbers but is text, as {odd!r} "
        f"is: its {len(values)} values became {len(values)} columns of 0 and 1. If it holds "
        "numbers, write 1000, not 1,000, and no units."
    ]


def _labels(path: Path, y: np.ndarray) -> np.ndarray:
    """Two values as -1 and 1."""
    y = y if y.dtype.kind in "biuf" else y.astype(str)
    values = np.unique(y)
    if len(values) != 2 or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise ValueError(
            f"task = 'logistic': the target of {path} has {len(values)} distinct values, "
            f"{_some(values.tolist())}; must be exactly two labels. "
            "For a real-valued target use task 'ridge' (--task ridge)."
        )
    return np.where(y == values[1], 1.0, -1.0)


def _numbers(path: Path, y: np.ndarray) -> np.ndarray:
    """A real-valued target as float64."""
    values = np.unique(y if y.dtype.kind in "biuf" else y.astype(str)).tolist()
    right = f"'logistic' (--task logistic) for the target of {path}, whose values are {values}"
    check(len(values) != 2, "task", "ridge", right)
    if y.dtype.kind not in "iuf" or not (np.abs(y) <= LARGEST).all() or len(values) < 3:
        raise ValueError(
            f"task = 'ridge': the target of {path} has the values {_some(values)}; must be finite "
            f"numbers (1000, not 1,000) within {LARGEST:g}, at least three different ones."
        )
    return y.astype(np.float64)


def _some(names: list) -> str:
    """A list for a message, cut after ten."""
    return f"{names[:10]}" if len(names) <= 10 else f"{names[:10]} and {len(names) - 10} more"
