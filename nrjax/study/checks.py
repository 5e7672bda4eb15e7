"""Checks of the arguments of a study, such as names and values to store."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from nrjax._base.validation import check, check_number

RESERVED = ("seconds", "trial", "chunk")
"""The names that every store uses for its own variables."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class UnknownNameError(KeyError, ValueError):
    """An error raised for the name of a case, pass or quantity that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would add quotes


def check_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise `UnknownNameError` if a name is not one of the known names."""
    try:
        names = list(known)
        check(isinstance(name, str) and name in names, what, name, f"one of {names}")
    except ValueError as error:
        raise UnknownNameError(str(error)) from None


def check_name(what: str, name: Any, taken: Iterable[str] = ()) -> None:
    """Raise `ValueError` if a name is taken or is not a valid file name on every system."""
    expected = "letters, digits, dots, dashes and underscores, starting with a letter or digit"
    check(isinstance(name, str) and _NAME.fullmatch(name), what, name, expected)
    check(name not in taken, what, name, f"none of the reserved names {tuple(taken)}")


def check_folders(what: str, names: Iterable[Any], taken: Iterable[str] = ()) -> None:
    """Raise `ValueError` if names cannot be subfolders of one folder on every file system."""
    for name in (names := list(names)):
        check_name(what, name)
        check_name(what, name.lower(), taken)
        equal = [other for other in names if other.lower() == name.lower()]
        check(len(equal) == 1, what, equal, "names that differ in more than upper and lower case")


def check_mapping(what: str, value: Any, values: str) -> None:
    """Raise `ValueError` if a value is not a mapping with strings as keys."""
    ok = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    check(ok, what, value, f"a mapping of names to {values}")


def check_goal(what: str, goal: Any) -> None:
    """Raise `ValueError` if a goal is not a finite number."""
    check_number(what, goal, np.isfinite, "a finite number, or None")


def strict_json(what: str, value: Any) -> Any:
    """Return a value after a round trip through strict JSON, with arrays as lists.

    Raises:
        ValueError: the value contains a part that is not strict JSON, such as an infinity or NaN.
    """

    def plain(part: Any) -> Any:
        if isinstance(part, (np.generic, np.ndarray, jax.Array)):
            return part.tolist()
        raise TypeError(f"{type(part).__name__} is not JSON")

    try:
        return json.loads(json.dumps(value, default=plain, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        expected = "strict JSON: text, finite numbers, booleans, None, and lists and dicts of these"
        check(False, what, value, expected)


def check_path(folder: Any) -> None:
    """Raise `ValueError` if an argument is not the path of a folder."""
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else None
    is_path = isinstance(text, str) and text and "\0" not in text
    check(is_path, "folder", folder, "the path of a folder, such as 'runs/first'")


def check_run(folder: Any, overwrite: Any, progress: Any, client: Any) -> None:
    """Raise `ValueError` if one of these arguments of `Study.run` has the wrong type."""
    check_path(folder)
    check(isinstance(overwrite, bool), "overwrite", overwrite, "True or False")
    methods = [getattr(progress, name, None) for name in ("begin", "advance")]
    is_progress = isinstance(progress, bool) or all(map(callable, methods))
    expected = "True or False, or an object with methods begin and advance"
    check(is_progress, "progress", progress, expected)
    expected = "a dask.distributed.Client, such as Client('tcp://node1:8786')"
    check(client is None or callable(getattr(client, "submit", None)), "client", client, expected)
