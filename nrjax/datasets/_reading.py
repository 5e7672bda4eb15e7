"""Files of tables, read by pandas: text with any separator, Parquet, Stata, Excel and others."""

import difflib
import inspect
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.validation import check
from nrjax.datasets._files import PathLike, existing_file, extra
from nrjax.datasets._separators import (
    SEPARATORS,
    check_lengths,
    count_fields,
    encoding_mark,
    exact_separator,
    find_separator,
    likely_encoding,
    lines_of,
)

_TEXT = (".csv", ".tsv", ".tab", ".txt")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip")
_READERS = {
    **dict.fromkeys(_TEXT, "read_csv"),
    **dict.fromkeys((".parquet", ".pq"), "read_parquet"),
    **dict.fromkeys((".feather", ".arrow"), "read_feather"),
    ".dta": "read_stata",
    **dict.fromkeys((".sav", ".zsav"), "read_spss"),
    **dict.fromkeys((".sas7bdat", ".xpt"), "read_sas"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), "read_excel"),
}
"""The function of pandas that reads files with a suffix."""

_NEEDED = {
    **dict.fromkeys((".parquet", ".pq", ".feather", ".arrow"), "pyarrow"),
    **dict.fromkeys((".xlsx", ".xlsm"), "openpyxl"),
    **dict.fromkeys((".sav", ".zsav"), "pyreadstat"),
    ".xls": "xlrd",
    ".ods": "odfpy",
}
"""The package that pandas needs to read files with a suffix."""

_MATRIX = ".npz"
FILES = ".csv, .tsv, .txt, .parquet, .feather, .xlsx, .dta, .sav, .sas7bdat or .npz"
"""The most common suffixes, for messages."""

_DIALECT = (
    *("sep", "delimiter", "quotechar", "quoting", "doublequote", "escapechar", "lineterminator"),
    *("skiprows", "comment", "encoding", "encoding_errors", "skipinitialspace"),
    *("skip_blank_lines", "engine", "dialect", "compression"),
)
"""Options of `read_csv` that decide where a cell begins and ends."""

_CONVERSIONS = (
    *("thousands", "decimal", "dtype", "converters", "parse_dates", "date_format", "dayfirst"),
    *("keep_date_col", "date_parser", "cache_dates"),
)
"""Options of `read_csv` and `read_excel` that turn cells into numbers and dates."""

_WITHOUT_VALUES = ("ParserError", "EmptyDataError")
"""Errors of `read_csv` whose messages have no values of the data."""

_UNREAD = ("iterator", "chunksize", "filepath_or_buffer", "path", "io")


class FileTable(NamedTuple):
    """The data frame in a file, and how the file was read, such as "separated by ';'"."""

    frame: Any
    read_as: str = ""


def suffix_of(path: PathLike) -> str:
    """Return the suffix of a file in lower case, without that of a compressed text file."""
    file = Path(path)
    suffix = file.suffix.lower()
    inner = Path(file.stem).suffix.lower()
    return inner if suffix in _COMPRESSED and inner in _TEXT else suffix


def is_table(path: PathLike) -> bool:
    """Return whether a name has the suffix of a file that holds a table."""
    return suffix_of(path) in (*_READERS, _MATRIX)


def is_matrix(path: PathLike) -> bool:
    """Return whether a name is that of an NPZ file."""
    return suffix_of(path) == _MATRIX


def has_option(path: PathLike, option: str = "parse_dates") -> bool:
    """Return whether the function of pandas that reads a file has an option."""
    name = _READERS.get(suffix_of(path))
    known = () if name is None else inspect.signature(getattr(extra("pandas"), name)).parameters
    return option in known


def read_frame(
    path: Path, options: Mapping[str, Any] | None = None, listed: Any = None
) -> FileTable:
    """Return the data frame in a file, read by pandas.

    Args:
        path: the file. Its suffix decides which function of pandas reads it.
        options: options of that function.
        listed: a mapping from columns to categories. A word that stands for a missing value, such
            as NA, is a category in a column that lists it.
    """
    pandas = extra("pandas")
    name = _READERS[suffix_of(path)]
    reader = getattr(pandas, name)
    options = dict(options or {})
    _check_options(name, reader, options)
    existing_file(path)
    if name == "read_csv":
        return _read_text(pandas, path, options, listed if isinstance(listed, Mapping) else {})
    if name == "read_sas":  # else text is bytes
        options = {"encoding": "infer", **options}
    if name == "read_excel" and "sheet_name" not in options:
        names = list(_called(reader, path, options | {"sheet_name": None}))
        hint = f"State it: read={{'sheet_name': {names[0]!r}}}, in the shell --read "
        hint += shlex.quote(f"sheet_name={names[0]}") + ". No other sheet is read."
        check(len(names) == 1, f"sheet of {path}", names, "stated, if there are several", hint)
        options["sheet_name"] = names[0]
    frame = _call(reader, path, options)
    return FileTable(_with_marks_in_place(reader, path, options, frame))


def _check_options(name: str, reader: Any, options: Mapping[str, Any]) -> None:
    """Check the names of options against the signature of a function of pandas."""
    known = [each for each in inspect.signature(reader).parameters if each not in _UNREAD]
    for option in options:
        similar = difflib.get_close_matches(str(option), known, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"See help(pandas.{name})."
        check(option in known, "read", option, f"made of options of pandas.{name}", hint)


def _call(reader: Any, path: Path, options: Mapping[str, Any]) -> Any:
    """Return the frame that a function of pandas reads, or raise a ValueError that names the file.

    Raises:
        ModuleNotFoundError: a package that pandas needs for this kind of file is not installed.
    """
    frame = _called(reader, path, options)
    ok = hasattr(frame, "columns")
    check(ok, f"content of {path}", type(frame).__name__, "one table", "Choose one by `read`.")
    return frame


def _called(reader: Any, path: Path, options: Mapping[str, Any]) -> Any:
    """Return what a function of pandas reads, or raise an error that names the file."""
    try:
        return reader(path, **options)
    except ImportError as error:
        package = _NEEDED.get(suffix_of(path))
        raise ModuleNotFoundError(
            f"{path.name} needs a package to be read: pip install {package}", name=package
        ) from error
    except UnicodeDecodeError as error:
        name = likely_encoding(path)
        raise ValueError(
            f"{path} could not be read as {error.encoding}. State its encoding: "
            f"read={{'encoding': {name!r}}}, in the shell --read encoding={name}."
        ) from error
    except OSError:
        raise
    except Exception as error:  # the readers of pandas raise errors of many kinds
        kind, found = reader.__name__.removeprefix("read_"), f"{error}"
        if kind == "csv" and type(error).__name__ not in _WITHOUT_VALUES:
            found = "cells do not suit the options of `read`"  # the error may quote a cell
        raise ValueError(f"{path} could not be read as {kind.upper()}: {found}") from None


def _with_marks_in_place(reader: Any, path: Path, options: Mapping[str, Any], frame: Any) -> Any:
    """Return a frame in which a column is text if its marks do not separate thousands.

    pandas drops the mark wherever it stands, and makes numbers of dates such as 27.06.2023.
    """
    mark, decimal = options.get("thousands"), options.get("decimal", ".")
    if not mark:
        return frame
    grouped = re.compile(
        rf"[-+]?\d{{1,3}}({re.escape(mark)}\d{{2,3}})*({re.escape(mark)}\d{{3}})"
        rf"({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    )
    plain = {n: value for n, value in options.items() if n not in _CONVERSIONS}
    cells = _call(reader, path, plain | {"dtype": str if reader.__name__ == "read_csv" else object})
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if column.dtype.kind not in "iufc":
            continue
        texts = cells.iloc[:, place]
        is_marked = [isinstance(text, str) and mark in text for text in texts]
        if not all(grouped.fullmatch(text.strip()) for text in texts[is_marked]):
            frame[name] = texts
    return frame


def _read_text(pandas: Any, path: Path, options: dict[str, Any], listed: Mapping[str, Any]) -> Any:
    """Return the table in a text file, with the separator found if it is not stated."""
    mark = encoding_mark(path)
    if mark.startswith("utf-") and "encoding" not in options and "8" not in mark:
        options["encoding"] = mark
    stated = {"sep", "delimiter", "dialect"} & set(options)
    separator = "" if stated else find_separator(path, options)
    if separator:
        options["sep"] = r"\s+" if separator == " " else separator
    low = {} if options.get("engine", "c") != "c" else {"low_memory": False}
    frame = _call(pandas.read_csv, path, low | options)
    frame = _with_marks_in_place(pandas.read_csv, path, low | options, frame)
    _check_names(pandas, path, options, frame)
    said = [] if separator in ("", ",") else [f"separated by {SEPARATORS[separator]}"]
    if mark == "utf-16":
        said.append("in UTF-16")
    named = _has_row_names(pandas, path, options, frame)
    if frame.size and (frame.iloc[:, -1].isna().any() or "usecols" in options):
        check_lengths(path, options, named)
    frame, left_out = _without_row_names(path, frame, named)
    said += left_out
    words = {column: names for column, names in listed.items() if _is_list(names)}
    for column, names in words.items():
        if column in frame.columns and frame[column].isna().any():
            exact = _dialect(options) | {"usecols": [column], "dtype": str, "na_filter": False}
            exact |= {n: options[n] for n in ("header", "names", "nrows") if n in options}
            cells = _call(pandas.read_csv, path, exact)[column]
            cells.index = frame.index
            frame[column] = cells.where(cells.isin(names) | frame[column].notna(), None)
    return FileTable(frame, "; ".join(said))


def _is_list(names: Any) -> bool:
    return isinstance(names, (list, tuple, np.ndarray)) and any(isinstance(n, str) for n in names)


def _dialect(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in _DIALECT if name in options}


def _check_names(pandas: Any, path: Path, options: Mapping[str, Any], frame: Any) -> None:
    """Check that no two columns have one name, which pandas would change."""
    first = options.get("header", "infer")
    first = 0 if first == "infer" else first
    if "names" in options or not isinstance(first, int):
        return
    exact = _dialect(options) | {"nrows": first + 1, "dtype": str, "na_filter": False}
    header = _call(pandas.read_csv, path, exact | {"header": None, "index_col": False}).iloc[first]
    repeated = [str(n) for n, times in Counter(header).items() if n and times > 1]
    repeated = [name for name in repeated if name in frame.columns]
    expected, hint = "without repeated names", "Rename, fill in or drop these columns."
    check(not repeated, f"columns of {path}", repeated, expected, hint)


def _has_row_names(pandas: Any, path: Path, options: Mapping[str, Any], frame: Any) -> bool:
    """Return whether rows have one field more than the header, of which pandas makes an index."""
    if "index_col" in options:
        return False
    if not frame.index.equals(pandas.RangeIndex(len(frame))):
        return True
    counts = count_fields(
        itertools.islice(lines_of(path, options), 2), exact_separator(options), options
    )
    plain = not {"header", "names"} & set(options)
    return plain and len(counts) == 2 and counts[1] == counts[0] + 1  # row numbers from 0


def _without_row_names(path: Path, frame: Any, named: bool) -> tuple[Any, list[str]]:
    """Return a frame without row names and empty columns that have no name, and what was left out.

    Rows with one field more than the header are those of R's `write.table`, if the first fields
    are row numbers or text without repeats. Otherwise all cells would belong to other columns.
    """
    said = []
    if named:
        fields = len(frame.columns) + frame.index.nlevels
        got = f"rows of {fields} fields, and a header of {len(frame.columns)} names"
        ok = frame.index.nlevels == 1 and _are_row_names(frame.index.to_numpy())
        hint = "Each row needs one field per name. The first field of a row may also be its number."
        if len(frame.columns) == 1:  # 1,5 is a number too
            ok, hint = False, "If a comma is the decimal mark: read={'sep': ';', 'decimal': ','}."
        elif len(frame) and frame.iloc[:, -1].isna().all():
            ok, hint = False, "If each row ends in a separator: read={'index_col': False}."
        check(ok, f"rows of {path}", got, "as long as the header", hint)
        said.append("the first field of each row is taken as its name and left out")
        frame = frame.reset_index(drop=True)
    nameless = [name for name in frame.columns if str(name).startswith("Unnamed: ")]
    empty = [name for name in nameless if frame[name].isna().all()]
    if len(frame) and empty:
        frame = frame.drop(columns=empty)
        said.append("empty columns without a name are left out")
    nameless = [name for name in nameless if name in frame.columns]
    first = nameless == ["Unnamed: 0"] == list(frame.columns[:1])
    if first and _are_row_names(frame["Unnamed: 0"].to_numpy(), gaps=True):
        frame, nameless = frame.drop(columns=nameless), []
        said.append("the first column, row names without a heading, is left out")
    expected, hint = "named", "Rename, fill in or drop these columns."
    check(not nameless, f"columns of {path}", nameless, expected, hint)
    return frame, said


def _are_row_names(cells: np.ndarray, gaps: bool = False) -> bool:
    """Return whether cells are text without repeats, or number the rows from 0 or 1.

    With `gaps`, they may be any integers without repeats.
    """
    if cells.dtype.kind in "iu" and not gaps:
        return bool(len(cells)) and cells[0] in (0, 1) and bool((np.diff(cells) == 1).all())
    cells = cells.tolist()
    alike = all(isinstance(cell, str) for cell in cells) or all(type(c) is int for c in cells)
    return alike and len(set(cells)) == len(cells)
