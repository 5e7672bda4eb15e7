"""Containers of columns: data frames, Arrow tables, record arrays, dicts, lists of dicts."""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from nrjax._base.validation import check

_COLLECT = ("collect", "compute", "toPandas")
"""Methods that return the rows of a table that is computed when it is asked for."""


def columns_of(frame: Any, where: str) -> dict[str, Any]:
    """Return the columns of a table by the text of their names.

    The table is a data frame of pandas or polars, an Arrow table or record batch, a record array,
    a mapping from names to columns, a list of mappings, or another object with columns by name.

    Raises:
        ValueError: it is none of these, or two names are equal as text. The message shows no values
            of the table.
    """
    if isinstance(frame, (list, tuple)) and all(isinstance(row, Mapping) for row in frame):
        keys = dict.fromkeys(key for row in frame for key in row)
        frame = {key: [row.get(key) for row in frame] for key in keys}
    names = _names(frame)
    expected = "a data frame, a dict of columns, or another object with columns by name"
    check(names is not None, "frame", type(frame).__name__, expected, _hint(frame))
    assert names is not None
    texts = [str(name) for name in names]
    repeated = [text for text, times in Counter(texts).items() if times > 1]
    hint = "Rename or drop these columns."
    check(not repeated, f"columns of {where}", repeated, "without repeated names", hint)
    return {text: frame[name] for text, name in zip(texts, names, strict=True)}


def _names(frame: Any) -> list[Any] | None:
    """Return the names of columns, or None if the object is no table in memory."""
    if isinstance(frame, np.ndarray):
        return None if frame.dtype.names is None else list(frame.dtype.names)
    if isinstance(frame, Mapping):
        return list(frame)
    if any(callable(getattr(type(frame), method, None)) for method in _COLLECT):
        return None
    names = getattr(frame, "column_names", None)  # of an Arrow table
    if not isinstance(names, list):  # a data frame may have a column of that name
        names = getattr(frame, "columns", None)
    return None if names is None or callable(names) else list(names)


def _hint(frame: Any) -> str:
    """Return what to type instead of an object that is no table in memory."""
    if isinstance(frame, (str, os.PathLike)):
        return "For the path of a file: from_file(path, target)."
    method = next((m for m in _COLLECT if callable(getattr(type(frame), m, None))), None)
    if method is not None:
        return f"It is not computed yet: from_frame(frame.{method}(), target)."
    if hasattr(type(frame), "read_all"):  # a reader of record batches
        return "Read it first: from_frame(reader.read_all(), target)."
    if isinstance(frame, tuple) or hasattr(frame, "shape"):
        return "For arrays: from_arrays(x, y, names=[...])."
    return ""
