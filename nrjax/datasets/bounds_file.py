"""Files of bounds, in TOML or JSON, for columns of any name and categories of any text."""

import datetime
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nrjax._base.validation import check
from nrjax.datasets._files import PathLike, existing_file

_PLACEHOLDER = re.compile(r"\b(LOW|HIGH|CATEGORIES|LABELS)\b")
_RANGE = {"low", "high"}

_HEAD = """\
# Bounds of {name}. Replace LOW and HIGH, CATEGORIES and LABELS by what you know without the data:
#     age = {{ low = 18, high = 90 }}        numbers are clipped to this range
#     since = {{ low = 2015-01-01, high = 2025-12-31 }}        dates
#     city = ["Bern", "Basel, Stadt"]      text, or numbers that are codes
# A line that you delete for a column of text lets the data decide, which is not private.
"""


def is_bounds_file(bounds: Any) -> bool:
    """Return whether bounds are the path of a .toml or .json file."""
    is_path = isinstance(bounds, (str, os.PathLike))
    return is_path and Path(bounds).suffix.lower() in (".toml", ".json")


def read_bounds(path: PathLike) -> dict[str, Any]:
    r"""Return the bounds in a TOML or JSON file, by column.

    A column of numbers has a lower and an upper bound, and other columns a list of categories. The
    two labels of a target are such a list. In TOML:

        age = { low = 18, high = 90 }
        "pay = net" = { low = 0, high = 200_000 }
        stage = ["Adult, 1 Egg Stage", "Adult, 2 Egg Stage"]

    In JSON, the first line is `{"age": {"low": 18, "high": 90}}`. `nrjax data my.csv --write-bounds
    bounds.toml` writes a template for your table.

    Args:
        path: path of a .toml or .json file.

    Returns:
        By column, `(low, high)` or a list of categories, as for `from_frame`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is no such file, or still has placeholders of the template.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bounds.toml"
        >>> _ = path.write_text('age = { low = 18, high = 90 }\ncity = ["A", "B"]\n')
        >>> nrjax.datasets.read_bounds(path)
        {'age': (18, 90), 'city': ['A', 'B']}
    """
    check(is_bounds_file(path), "bounds", os.fspath(path), "the path of a .toml or .json file")
    file = existing_file(Path(path).expanduser())
    text = file.read_text(encoding="utf-8-sig")
    lines = [
        str(number)
        for number, line in enumerate(text.splitlines(), 1)
        if _PLACEHOLDER.search(line.partition("#")[0])
    ]
    try:
        is_json = file.suffix.lower() == ".json"
        stated = json.loads(text, object_pairs_hook=_pairs) if is_json else tomllib.loads(text)
    except ValueError as error:  # of both libraries
        hint = "Replace LOW, HIGH, CATEGORIES and LABELS by what you know without the data."
        check(not lines, f"lines {', '.join(lines)} of {file}", "placeholders", "filled in", hint)
        raise ValueError(f"{file} could not be read: {error}") from error
    check(isinstance(stated, dict), f"content of {file}", type(stated).__name__, "an object")
    return {name: _limits(f"bounds of {name!r} in {file}", value) for name, value in stated.items()}


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, whose names must differ."""
    names = [name for name, _ in pairs]
    check(len(set(names)) == len(names), "names in the file", names, "without repeats")
    return dict(pairs)


def _limits(what: str, value: Any) -> Any:
    """Return a range as a tuple, and categories as a list."""
    if isinstance(value, Mapping) and set(value) == _RANGE:
        value = (value["low"], value["high"])
        return tuple(end.isoformat() if isinstance(end, datetime.date) else end for end in value)
    hint = "For numbers { low = 0, high = 10 }, for categories ['a', 'b']."
    check(isinstance(value, list) and bool(value), what, value, "a range or a list", hint)
    return value


def template(name: str, ranges: Iterable[str], lists: Iterable[str], labels: str | None) -> str:
    """Return the text of a TOML file of bounds with placeholders.

    Args:
        name: name of the table.
        ranges: columns that need a range.
        lists: columns that become categories.
        labels: the target, if it has two labels.
    """
    lines = [f"{_key(column)} = {{ low = LOW, high = HIGH }}" for column in ranges]
    lines += [f"{_key(column)} = [CATEGORIES]" for column in lists]
    lines += [] if labels is None else [f"{_key(labels)} = [LABELS]  # first -1, then 1"]
    return _HEAD.format(name=name) + "\n" + "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """Return the name of a column as a key of TOML, quoted if it needs it."""
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if bare else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
