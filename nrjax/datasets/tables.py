"""Your own table: a data frame, arrays or a file, prepared for private regression."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.arrays import as_array
from nrjax._base.validation import check
from nrjax.datasets import _frames, _reading
from nrjax.datasets._dataset import Dataset
from nrjax.datasets._files import PathLike, existing_file, read_npz
from nrjax.datasets._prepare import Bounds, Table, prepare
from nrjax.datasets._rows import NO_RULES, Missing, RowRules, listed, similar
from nrjax.datasets.bounds_file import is_bounds_file, read_bounds


class PrivacyLeakWarning(UserWarning):
    """A warning that bounds are taken from the data, so that no epsilon covers what they reveal.

    To make it an error:

        warnings.simplefilter("error", nrjax.datasets.PrivacyLeakWarning)

    diffprivlib has a warning of the same name and meaning.
    """


def from_frame(
    frame: Any,
    target: str,
    *,
    bounds: Bounds | PathLike = None,
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
    * A constant column, "intercept", is added, so that a model can have a constant term. It is
      penalised less than the other coefficients.
    * All rows are then divided by one number, which follows from the number of columns only. Each
      row has an l2 norm of at most 1, and models are linear in your columns (`coefficients`).

    A target of two values becomes -1 and 1 for logistic regression: the larger one, the later one
    in the alphabet, or the later one of ordered categories is 1. Any other target must be of
    numbers, for ridge regression. It is clipped and scaled like a column of numbers.

    Bounds that depend on the data reveal something about the data that no epsilon covers. State
    bounds from what you know without looking. `summary` of the result names each fact that was
    taken from the data: categories and labels that you do not list, the task, and the bounds if
    `bounds="data"`.

    Args:
        frame: a data frame of pandas or polars, an Arrow table or record batch, a dict of columns,
            a list of dicts, a record array, or another object with columns by name.
        target: name of the column to predict.
        bounds: by column, a range `(low, high)` or a list of categories. Every column of numbers or
            dates needs bounds. The target may have some: `(low, high)`, or the label that becomes
            -1 and the one that becomes 1. "data" takes the smallest and largest value of each
            column of numbers or dates from the data, which is not private and draws a
            `PrivacyLeakWarning`. The path of a .toml or .json file reads them, see `read_bounds`.
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
        ValueError: bounds are missing or wrong, or a column is not suitable. The message names the
            columns.

    Examples:
        >>> frame = {"age": [25, 61, 90], "city": ["A", "B", "B"], "churned": ["no", "yes", "no"]}
        >>> bounds = {"age": (18, 90), "city": ["A", "B"], "churned": ["no", "yes"]}
        >>> data = nrjax.datasets.from_frame(frame, "churned", bounds=bounds, task="logistic")
        >>> data.x.shape, data.y.tolist(), data.feature_names
        ((3, 4), [-1.0, 1.0, -1.0], ('age', 'city=A', 'city=B', 'intercept'))
    """
    bounds, rules = resolved(bounds), RowRules(missing, leave_out, person, rows_per_person)
    table = table_of(frame, target, name, name)
    return _with_warnings(prepare(table, bounds or {}, task, rules=rules), bounds)


def from_arrays(
    x: Any,
    y: Any,
    *,
    names: Sequence[str] | None = None,
    bounds: Bounds | PathLike = None,
    task: str | None = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    target: str = "y",
    name: str = "table",
) -> Dataset:
    """Prepare features `x` and a target `y` for private regression, as `from_frame` does.

    Use it for the arrays that scikit-learn's `fit(x, y)` takes, and `from_frame` for one table.

    Args:
        x: the features: an array of shape (n, d), or a table as for `from_frame`.
        y: the target, of length n.
        names: names of the d features. By default those of the table, or x0, x1 and so on.
        bounds: as for `from_frame`.
        task: as for `from_frame`.
        missing: as for `from_frame`.
        leave_out: as for `from_frame`.
        target: name of the target in `bounds` and in messages.
        name: name of the data set.

    Raises:
        ValueError: shapes or names are wrong, or as for `from_frame`.

    Examples:
        >>> x, y = [[25, 1.5], [61, 2.0], [85, 0.5]], [0, 1, 0]
        >>> bounds = {"age": (18, 90), "pay": (0, 3)}
        >>> data = nrjax.datasets.from_arrays(x, y, names=["age", "pay"], bounds=bounds)
        >>> data.feature_names
        ('age', 'pay', 'intercept')
    """
    if hasattr(x, "columns") or isinstance(x, Mapping):
        columns = _frames.columns_of(x, name)
    else:
        array = as_array(x)
        check(array.ndim == 2, "shape of x", array.shape, "(n, d), or x a table")
        columns = {f"x{number}": column for number, column in enumerate(array.T)}
    if names is not None:
        check(len(names) == len(columns), "names", len(names), f"{len(columns)}, one per feature")
        expected = "without repeated names"
        check(len(set(map(str, names))) == len(names), "names", list(names), expected)
        columns = dict(zip(map(str, names), columns.values(), strict=True))
    hint = "Choose another name: target='outcome'."
    check(target not in columns, "target", target, "no name of a feature", hint)
    bounds, rules = resolved(bounds), RowRules(missing, leave_out)
    table = table_of(columns | {target: y}, target, name, name)
    return _with_warnings(prepare(table, bounds or {}, task, rules=rules), bounds)


def from_file(
    path: PathLike,
    target: str | None = None,
    *,
    bounds: Bounds | PathLike = None,
    task: str | None = None,
    missing: Missing = "refuse",
    leave_out: Sequence[str] = (),
    person: str | None = None,
    rows_per_person: int | None = None,
    read: Mapping[str, Any] | None = None,
) -> Dataset:
    """Prepare the table in a file for private regression, as `from_frame` does for a data frame.

    * Text (.csv, .tsv, .txt, also compressed): the separator is found, unless you state it, and the
      summary names it. Each row must have one field per name of the header. Row names, as R and
      pandas write them, are left out, and the summary says so.
    * .xlsx, .ods, .parquet, .feather, .dta (Stata), .sav (SPSS) and .sas7bdat (SAS): pandas reads
      them, some with another package, which a message names.
    * .npz: the features in an array `x` of shape (n, d), whose columns are called x0, x1 and so on,
      and the target in an array of shape (n,). Without `bounds`, these columns are taken as they
      are, without an intercept. Each row is then divided by its l2 norm, and a target of numbers
      by its largest absolute value in the data.

    `nrjax.datasets.describe(path)` shows how each column is understood, and which bounds to state.

    Args:
        path: path of the file.
        target: name of the column, or of the array of an .npz file (by default "y"), to predict.
        bounds: as for `from_frame`. A word that stands for a missing value in text files, such as
            NA, is a category if it is listed.
        task: as for `from_frame`.
        missing: as for `from_frame`.
        leave_out: as for `from_frame`.
        person: as for `from_frame`.
        rows_per_person: as for `from_frame`.
        read: options of the function of pandas that reads the file, by name. For text,
            `{"sep": ";", "decimal": ",", "encoding": "latin-1", "na_values": ["?"]}` are options of
            `pandas.read_csv`.

    Raises:
        FileNotFoundError: the file does not exist.
        ModuleNotFoundError: pandas, or a package that pandas needs for the file, is not installed.
        ValueError: the file is damaged, or as for `from_frame`.
    """
    bounds, rules = resolved(bounds), RowRules(missing, leave_out, person, rows_per_person)
    return _with_warnings(prepared_file(path, target, bounds, task, rules, read), bounds)


def prepared_file(
    path: PathLike,
    target: str | None,
    bounds: Bounds,
    task: str | None,
    rules: RowRules = NO_RULES,
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Return the data set in a file. Its warnings are kept as remarks, but not issued."""
    table = read(path, target, bounds, options)
    return prepare(table, bounds if table.is_matrix else bounds or {}, task, rules=rules)


def resolved(bounds: Bounds | PathLike) -> Bounds:
    """Return bounds, read from their file if they are its path."""
    if isinstance(bounds, os.PathLike) or is_bounds_file(bounds):
        return read_bounds(bounds)  # pyright: ignore[reportArgumentType]
    return bounds  # pyright: ignore[reportReturnType]


def _with_warnings(data: Dataset, bounds: Bounds) -> Dataset:
    """Return a data set after issuing its warnings."""
    if isinstance(bounds, str):
        warn_of_bounds_from_data(data.name, stacklevel=4)
    for remark in data.remarks:
        if remark.startswith("Warning: "):
            warnings.warn(remark.removeprefix("Warning: "), stacklevel=3)
    return data


def warn_of_bounds_from_data(name: str, stacklevel: int = 3) -> None:
    """Issue a PrivacyLeakWarning."""
    message = (
        f"The bounds of {name} are taken from the data, which reveals its smallest and largest "
        "values, and no epsilon covers that. State bounds that you know without the data."
    )
    warnings.warn(message, PrivacyLeakWarning, stacklevel=stacklevel)


def read(
    path: PathLike,
    target: str | None,
    bounds: Bounds = None,
    options: Mapping[str, Any] | None = None,
) -> Table:
    """Return the table in a file.

    Args:
        path: path of the file.
        target: name of the target.
        bounds: bounds of the columns. A word that stands for a missing value in text files, such as
            NA, is a category if it is listed.
        options: options of the function of pandas that reads the file.
    """
    file = _checked(path, options)
    if _reading.is_matrix(file):
        return _read_npz(file, target)
    frame, read_as = _reading.read_frame(file, options, bounds)
    argument = "target, in the shell --target COLUMN"
    return table_of(frame, target, file.name, str(file), argument)._replace(read_as=read_as)


def columns_of_file(
    path: PathLike, bounds: Bounds = None, options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """Return the columns in a file by name, and how it was read, such as "separated by ';'"."""
    file = _checked(path, options)
    if not _reading.is_matrix(file):
        frame, read_as = _reading.read_frame(file, options, bounds)
        return _frames.columns_of(frame, str(file)), read_as
    arrays = read_npz(file)
    x = arrays.pop("x", np.empty((0, 0)))
    columns = {f"x{number}": column for number, column in enumerate(x.T)}
    return columns | {name: each for name, each in arrays.items() if each.shape == x.shape[:1]}, ""


def _checked(path: PathLike, options: Mapping[str, Any] | None) -> Path:
    """Return the path of an existing file whose suffix is that of a table."""
    file = Path(path).expanduser()
    hint = "From another source: read it with pandas, then from_frame(frame, target)."
    expected = f"the path of a file of a table: {_reading.FILES}"
    check(_reading.is_table(file), "data", os.fspath(path), expected, hint)
    matrix = _reading.is_matrix(file)
    check(not (matrix and options), "read", options, "left out for an .npz file")
    return existing_file(file)


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


def table_of(frame: Any, target: Any, name: str, where: str, argument: str = "target") -> Table:
    """Return the columns of a data frame, one of which is the target."""
    columns = _frames.columns_of(frame, where)
    hint = similar([] if target is None else [target], list(columns))
    hint = hint or f"Name the column to predict ({argument})."
    expected = f"a column of {where}: {listed(list(columns))}"
    check(target is not None and str(target) in columns, "target", target, expected, hint)
    y = columns.pop(str(target))
    return Table(name, where, columns, str(target), y)
