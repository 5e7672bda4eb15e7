"""A reader of your own table: CSV with a header, or NPZ with arrays `x` and `y`."""

import re
from collections import Counter
from pathlib import Path

import numpy as np

from nrjax._validation import check
from nrjax.datasets._dataset import Raw
from nrjax.datasets._files import existing_file, extra, read_npz

SUFFIXES = (".csv", ".npz")
MAX_CATEGORIES = 50
"""Largest number of distinct values in a text column, each of which gets an indicator."""

LARGEST = 1e38
"""Largest absolute value of a number. Larger ones often stand for missing values."""

_NUMBER_LIKE = re.compile(r"[-+]?[$€£]?\s*\d[\d.,' ]*\s*[%$€£]?")
"""A pattern for text that a person reads as a number, such as 1,000 or 5 %."""

_Table = tuple[np.ndarray, np.ndarray, tuple[str, ...], tuple[str, ...]]
"""The features, the target, the names of the features, and remarks on the file."""


def read(path: Path, task: str, rows: int | None, target: str | None = None) -> Raw:
    """Return the first `rows` of a CSV or NPZ file, or all rows if `rows` is None.

    In a CSV file, columns of numbers or booleans are features as they are. A text column of at most
    50 distinct values becomes one indicator per value. Values are collected from the whole file, so
    that the features do not depend on `rows`. In an NPZ file, the features are `x`, shape (n, d),
    and the target is `y`, shape (n,), or the array that `target` names.

    Logistic regression needs a target of exactly two values: the larger (for text, the later in the
    alphabet) becomes 1, the other -1. Ridge regression needs at least three different numbers.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the table or its target is unsuitable, or has fewer than `rows` rows.
    """
    table = _read_npz if path.suffix.lower() == ".npz" else _read_csv
    x, y, names, remarks = table(existing_file(path), target)
    size = (len(x), len(names))
    check(min(size) > 0, f"rows and features of {path}", size, "at least 1 of each")
    check(rows is None or rows <= len(x), "rows", rows, f"at most {len(x)}, the rows of {path}")
    within = (x.min(axis=0) >= -LARGEST) & (x.max(axis=0) <= LARGEST)  # False for NaN
    bad = [names[i] for i in np.flatnonzero(~within)]
    what = f"columns of {path} with missing or infinite values, or beyond {LARGEST:g},"
    check(not bad, what, bad, "none")
    y = (_labels if task == "logistic" else _numbers)(path, y)[:rows]
    hint = "Shuffle the file, or take more rows."
    both = task != "logistic" or len(np.unique(y)) == 2
    check(both, "rows", rows, f"enough to reach both labels of {path}", hint)
    return Raw(x[:rows], y, names, remarks)


def _read_npz(path: Path, target: str | None) -> _Table:
    arrays = read_npz(path)
    name = "y" if target is None else target
    check("x" in arrays, f"arrays of {path}", sorted(arrays), "'x' (the features) and a target")
    check(name in arrays and name != "x", "target", name, f"an array of {path}: {sorted(arrays)}")
    x, y = arrays["x"], arrays[name]
    ok = x.ndim == 2 and y.shape == x.shape[:1] and x.dtype.kind in "biuf"
    what = f"x and {name} of {path}"
    check(ok, what, (x.dtype.name, x.shape, y.shape), "numbers of shapes (n, d) and (n,)")
    return x.astype(np.float64), y, tuple(f"x{i}" for i in range(x.shape[1])), ()


def _read_csv(path: Path, target: str | None) -> _Table:
    pandas = extra("pandas")
    try:
        table = pandas.read_csv(path, low_memory=False)
        header = pandas.read_csv(path, header=None, nrows=1, dtype=str, na_filter=False)
    except ValueError as error:  # pandas' own errors are ValueErrors too
        raise ValueError(f"{path} could not be read as CSV: {error}") from error
    counts = Counter(name for name in header.iloc[0] if name)  # pandas would rename repeats
    names = list(table.columns)
    what, hint = f"columns of {path}", "Rename, fill in or drop these columns."
    repeated = [name for name, times in counts.items() if times > 1]
    check(not repeated, what, repeated, "without repeated names", hint)
    check(target in names, "target", target, f"a column of {path}: {names}")
    missing = [name for name in names if table[name].isna().any()]
    check(not missing, what, missing, "without missing values", hint)
    # Columns without a name are most often row numbers, which would swamp the other features.
    nameless = [name for name in names if name.startswith("Unnamed: ")]
    check(not nameless, what, nameless, "named", hint)
    features: dict[str, np.ndarray] = {}
    remarks = []
    for name in table.columns.drop(target):
        column = table[name].to_numpy()
        if column.dtype.kind in "biuf":
            features[name] = column.astype(np.float64)
            continue
        text = column.astype(str)
        values = np.unique(text)
        expected = f"numbers (1000, not 1,000), or text of at most {MAX_CATEGORIES} values"
        fits, number = len(values) <= MAX_CATEGORIES, f"text of {len(values)} values"
        check(fits, f"column {name!r} of {path}", number, expected, "Drop or recode it.")
        remarks += _number_like(path, name, values.tolist())
        features |= {f"{name}={value}": (text == value).astype(np.float64) for value in values}
    x = np.stack(list(features.values()), axis=1) if features else np.empty((len(table), 0))
    return x, table[target].to_numpy(), tuple(features), tuple(remarks)


def _number_like(path: Path, name: str, values: list[str]) -> list[str]:
    """Return a warning if most values of a text column look like numbers."""
    like = sum(_NUMBER_LIKE.fullmatch(value.strip()) is not None for value in values)
    if not values or 2 * like < len(values):
        return []
    plain = (value.lstrip("+-").replace(".", "", 1).isdigit() for value in values)
    odd = next((value for value, fits in zip(values, plain, strict=True) if not fits), values[0])
    return [
        f"Warning: the column {name!r} of {path.name} looks like numbers but is text, as {odd!r} "
        f"is: its {len(values)} values became {len(values)} columns of 0 and 1. If it holds "
        "numbers, write 1000, not 1,000, and no units."
    ]


def _labels(path: Path, y: np.ndarray) -> np.ndarray:
    """Check that a target has two distinct values, and return them as -1 and 1."""
    y = y if y.dtype.kind in "biuf" else y.astype(str)
    values = np.unique(y)
    ok = len(values) == 2 and (y.dtype.kind != "f" or np.isfinite(y).all())
    hint = "For a real-valued target use task 'ridge' (--task ridge)."
    check(ok, f"values of the target of {path}", values.tolist(), "exactly two labels", hint)
    return np.where(y == values[1], 1.0, -1.0)


def _numbers(path: Path, y: np.ndarray) -> np.ndarray:
    """Check a real-valued target, and return it as float64."""
    values = np.unique(y if y.dtype.kind in "biuf" else y.astype(str)).tolist()
    ok = y.dtype.kind in "iuf" and (np.abs(y) <= LARGEST).all() and len(values) >= 3
    expected = f"at least three finite numbers (1000, not 1,000) within {LARGEST:g}"
    hint = "For two labels use task 'logistic' (--task logistic)." if len(values) == 2 else ""
    check(ok, f"values of the target of {path}", values, expected, hint)
    return y.astype(np.float64)
