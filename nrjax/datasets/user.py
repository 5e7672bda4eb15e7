"""A user's own table: CSV with a header, or NPZ with arrays `x` and `y`."""

from pathlib import Path

import numpy as np

from nrjax._numerics import check
from nrjax.datasets._dataset import Raw
from nrjax.datasets._files import extra, read_npz

SUFFIXES = (".csv", ".npz")
LARGEST_CATEGORY = 50
"""Most distinct values that a text column may have to become indicators."""


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
    x, y, names = table(path, target)
    if not len(x) or not names:
        raise ValueError(f"{path} has {len(x)} rows and {len(names)} features: must have some.")
    check(rows is None or rows <= len(x), "rows", rows, f"at most {len(x)}, the rows of {path}")
    bad = [names[i] for i in np.flatnonzero(~np.isfinite(x).all(axis=0))]
    if bad:
        raise ValueError(f"{path}: the columns {_some(bad)} hold missing or infinite values.")
    y = (_labels if task == "logistic" else _numbers)(path, y)[:rows]
    if task == "logistic" and len(np.unique(y)) < 2:
        raise ValueError(
            f"rows = {rows}: the first rows of {path} have one label only; "
            "must reach both (shuffle the file or take more rows)."
        )
    return Raw(x[:rows], y, names)


def _read_npz(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
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
    return x.astype(np.float64), y, tuple(f"x{i}" for i in range(x.shape[1]))


def _read_csv(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    pandas = extra("pandas")
    try:
        table = pandas.read_csv(path, low_memory=False)
    except ValueError as error:  # pandas' own errors among them
        raise ValueError(f"{path} could not be read as CSV: {error}") from error
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
    for name in table.columns.drop(target):
        column = table[name].to_numpy()
        if column.dtype.kind in "biuf":
            features[name] = column.astype(np.float64)
            continue
        text = column.astype(str)
        values = np.unique(text)
        if len(values) > LARGEST_CATEGORY:
            raise ValueError(
                f"{path}: the column {name!r} is text with {len(values)} values; must be numbers, "
                f"or at most {LARGEST_CATEGORY} values. Drop or recode it."
            )
        features |= {f"{name}={value}": (text == value).astype(np.float64) for value in values}
    x = np.stack(list(features.values()), axis=1) if features else np.empty((len(table), 0))
    return x, table[target].to_numpy(), tuple(features)


def _labels(path: Path, y: np.ndarray) -> np.ndarray:
    """Two values as -1 and 1."""
    y = y if y.dtype.kind in "biuf" else y.astype(str)
    values = np.unique(y)
    if len(values) != 2 or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise ValueError(
            f"task = 'logistic': the target of {path} has {len(values)} distinct values, "
            f"{_some(values.tolist())}; must be exactly two labels. "
            "For a real-valued target use task 'ridge'."
        )
    return np.where(y == values[1], 1.0, -1.0)


def _numbers(path: Path, y: np.ndarray) -> np.ndarray:
    """A real-valued target as float64."""
    if y.dtype.kind not in "iuf" or not np.isfinite(y).all():
        raise ValueError(f"task = 'ridge': the target of {path} must be finite numbers.")
    values = np.unique(y)
    if len(values) < 3:
        raise ValueError(
            f"task = 'ridge': the target of {path} has the values {values.tolist()} only; must be "
            "real-valued, with at least three. For two labels use task 'logistic'."
        )
    return y.astype(np.float64)


def _some(names: list) -> str:
    """A list for a message, cut after ten."""
    return f"{names[:10]}" if len(names) <= 10 else f"{names[:10]} and {len(names) - 10} more"
