"""Your own table: a data frame, or a CSV or NPZ file, prepared for private regression."""

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._dataset import Dataset
from nrjax.datasets._files import PathLike, existing_file, extra, read_npz
from nrjax.datasets._prepare import Bounds, Table, prepare
from nrjax.datasets._rows import NO_RULES, Missing, RowRules

SUFFIXES = (".csv", ".npz")

_FILL_IN = "Rename, fill in or drop these columns."


def from_frame(
    frame: Any,
    target: str,
    *,
    bounds: Bounds = None,
    task: str | None = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | None = None,
    name: str = "table",
) -> Dataset:
    """Prepare a data frame for private regression, within bounds that you state.

    Bounds are a range or a list: `(18, 90)` and `("2020-01-01", "2020-12-31")`, both tuples, are
    ranges, and `["A", "B"]` or `[1, 2, 12]` is a list of categories.

    * A column of numbers is clipped to its range, which is then scaled to -1 and 1.
    * A column of dates becomes days since the first date of its range, clipped and scaled likewise.
      Dates are `datetime64`, dates of Python or pandas, or text such as 2020-01-31.
    * A column of booleans becomes -1 and 1.
    * A column of text, or of anything for which you list categories, becomes one indicator (0 or 1)
      per category. Blanks around text do not count, case does. A value that is not listed gets no
      indicator.
    * A missing cell is NaN, NaT, None, NA, a masked cell, empty text, or a word such as "NA" that
      you do not list. `missing` states what becomes of it.
    * A column of ones, "intercept", is added, so that a model can have a constant term. It is
      penalised like the other coefficients.
    * Each row is then divided by its l2 norm.

    A target of two values becomes -1 and 1 for logistic regression: the larger one, the later one
    in the alphabet, or the later one of ordered categories is 1. Any other target must be of
    numbers, for ridge regression. It is clipped and scaled like a column of numbers.

    Bounds that depend on the data reveal something about the data that no epsilon covers. State
    bounds from what you know without looking. `summary` of the result names each fact that was
    taken from the data: categories and labels that you do not list, the task, and the bounds if
    `bounds="data"`.

    Args:
        frame: a pandas data frame, a dict of columns, an Arrow table, a record array, or another
            object with columns by name.
        target: name of the column to predict.
        bounds: by column, a range `(low, high)` or a list of categories. Every column of numbers or
            dates needs bounds. The target may have some: `(low, high)`, or the label that becomes
            -1 and the one that becomes 1. "data" takes the smallest and largest value of each
            column of numbers or dates from the data, which is not private.
        task: "logistic" or "ridge". By default, the one that suits the target.
        missing: "refuse", "drop" (rows with a missing cell), or a value that you choose without the
            data for each column that may have missing cells. The number of dropped rows, which the
            summary has, depends on the data and is not private.
        leave_out: names of columns that are not used.
        person: name of a column that identifies people, which is no feature. Neighbouring tables
            then differ in all rows of one person (`Dataset.relation`).
        rows_per_person: largest number of rows of a person. A table with more rows of a person is
            refused: select rows beforehand, by a rule that looks at the rows of that person only.
        name: name of the data set.

    Raises:
        ValueError: bounds are missing or wrong, or a column is not suitable. The message has all
            problems, with names of columns and numbers of cells, and no value of the data.

    Examples:
        >>> frame = {"age": [25, 61, 90], "city": ["A", "B", "B"], "churned": ["no", "yes", "no"]}
        >>> bounds = {"age": (18, 90), "city": ["A", "B"], "churned": ["no", "yes"]}
        >>> data = nrjax.datasets.from_frame(frame, "churned", bounds=bounds, task="logistic")
        >>> data.x.shape, data.y.tolist(), data.feature_names
        ((3, 4), [-1.0, 1.0, -1.0], ('age', 'city=A', 'city=B', 'intercept'))
    """
    rules = RowRules(missing, leave_out, person, rows_per_person)
    table = _of_frame(frame, target, name, name)
    return _with_warnings(prepare(table, bounds or {}, task, rules=rules))


def from_file(
    path: PathLike,
    target: str | None = None,
    *,
    bounds: Bounds = None,
    task: str | None = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | None = None,
) -> Dataset:
    """Prepare a CSV or NPZ file for private regression, as `from_frame` does for a data frame.

    An NPZ file has the features in an array `x` of shape (n, d), whose columns are called x0, x1
    and so on, and the target in an array of shape (n,). Without `bounds`, these columns are taken
    as they are, without an intercept. Each row is divided by its l2 norm, and a target of numbers
    by its largest absolute value in the data.

    Args:
        path: path of a .csv file with a header, or of an .npz file.
        target: name of the column (CSV) or array (NPZ, by default "y") to predict.
        bounds: as for `from_frame`. A word that stands for a missing value in CSV files, such as
            NA, is a category if it is listed.
        task: as for `from_frame`.
        missing: as for `from_frame`.
        leave_out: as for `from_frame`.
        person: as for `from_frame`.
        rows_per_person: as for `from_frame`.

    Raises:
        FileNotFoundError: the file does not exist.
        ModuleNotFoundError: pandas, which reads CSV files, is not installed.
        ValueError: the file is damaged, or as for `from_frame`.
    """
    rules = RowRules(missing, leave_out, person, rows_per_person)
    return _with_warnings(prepared_file(path, target, bounds, task, rules))


def prepared_file(
    path: PathLike,
    target: str | None,
    bounds: Bounds,
    task: str | None,
    rules: RowRules = NO_RULES,
) -> Dataset:
    """Return the data set in a file. Its warnings are kept as remarks, but not issued."""
    table = read(path, target, bounds)
    return prepare(table, bounds if table.is_matrix else bounds or {}, task, rules=rules)


def _with_warnings(data: Dataset) -> Dataset:
    """Return a data set after issuing its warnings."""
    for remark in data.remarks:
        if remark.startswith("Warning: "):
            warnings.warn(remark.removeprefix("Warning: "), stacklevel=3)
    return data


def read(path: PathLike, target: str | None, bounds: Bounds = None) -> Table:
    """Return the table in a CSV or NPZ file.

    Words such as NA stand for missing values in a CSV file, unless `bounds` list them.
    """
    file = Path(path).expanduser()
    suffix = file.suffix.lower()
    check(suffix in SUFFIXES, "data", os.fspath(path), "the path of a .csv or .npz file")
    if suffix == ".npz":
        return _read_npz(existing_file(file), target)
    return _read_csv(existing_file(file), target, bounds)


def _read_npz(path: Path, target: str | None) -> Table:
    arrays = read_npz(path)
    name = "y" if target is None else target
    check("x" in arrays, f"arrays of {path}", sorted(arrays), "'x' (the features) and a target")
    check(name in arrays and name != "x", "target", name, f"an array of {path}: {sorted(arrays)}")
    x, y = arrays["x"], arrays[name]
    ok = x.ndim == 2 and y.shape == x.shape[:1] and x.dtype.kind in "biuf"
    what = f"x and {name} of {path}"
    check(ok, what, (x.dtype.name, x.shape, y.shape), "numbers of shapes (n, d) and (n,)")
    columns = {f"x{number}": column for number, column in enumerate(x.T)}
    return Table(path.name, str(path), columns, name, y, is_matrix=True)


def _read_csv(path: Path, target: str | None, bounds: Bounds) -> Table:
    pandas = extra("pandas")
    try:
        frame = pandas.read_csv(path, low_memory=False)
        header = pandas.read_csv(path, header=None, nrows=1, dtype=str, na_filter=False)
    except ValueError as error:  # pandas' own errors are ValueErrors too
        raise ValueError(f"{path} could not be read as CSV: {error}") from error
    what = f"columns of {path}"
    _check_distinct(what, (name for name in header.iloc[0] if name))  # pandas renames repeats
    # Columns without a name are most often row numbers, which would swamp the other features.
    nameless = [name for name in frame.columns if name.startswith("Unnamed: ")]
    check(not nameless, what, nameless, "named", _FILL_IN)
    for column, listed in bounds.items() if isinstance(bounds, Mapping) else ():
        if column in frame.columns and not isinstance(listed, str) and frame[column].isna().any():
            cells = pandas.read_csv(path, usecols=[column], dtype=str, na_filter=False)[column]
            frame[column] = cells.where(cells.isin(listed) | frame[column].notna(), None)
    return _of_frame(frame, target, path.name, str(path), "target, in the shell --target COLUMN")


def _of_frame(frame: Any, target: Any, name: str, where: str, argument: str = "target") -> Table:
    """Return the columns of a data frame as arrays of numbers, booleans or text."""
    names = _names_of(frame)
    what = f"columns of {where}"
    _check_distinct(what, map(str, names))
    hint = f"Name the column to predict ({argument})."
    check(target in names, "target", target, f"a column of {where}: {names}", hint)
    columns = {str(each): frame[each] for each in names}
    y = columns.pop(str(target))
    return Table(name, where, columns, str(target), y)


def _names_of(frame: Any) -> list[Any]:
    """Return the names of the columns of a data frame, an Arrow table, a record array or a dict."""
    names = getattr(frame, "column_names", None)  # of an Arrow table
    if isinstance(frame, np.ndarray):
        names = frame.dtype.names
    elif not isinstance(names, list):  # a data frame may have a column of that name
        names = getattr(frame, "columns", frame if isinstance(frame, Mapping) else None)
    expected = "a data frame, a dict of columns, or another object with columns by name"
    check(names is not None, "frame", type(frame).__name__, expected)
    return list(names)  # pyright: ignore[reportArgumentType]


def _check_distinct(what: str, names: Iterable[Any]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    check(not repeated, what, repeated, "without repeated names", _FILL_IN)
