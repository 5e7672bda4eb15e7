"""Checks of what users give a study: names of things, and values that a store can hold."""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from nrjax._validation import check

RESERVED = ("seconds", "trial", "chunk")
"""Names that a store has for something else."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class UnknownNameError(KeyError, ValueError):
    """There is no case, pass or quantity of this name; the message lists the known names."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show it in quotes


def check_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise `UnknownNameError` if a name is not one of the known ones."""
    try:
        names = list(known)
        check(isinstance(name, str) and name in names, what, name, f"one of {names}")
    except ValueError as error:
        raise UnknownNameError(str(error)) from None


def check_name(what: str, name: Any, taken: Iterable[str] = ()) -> None:
    """Raise `ValueError` if a name cannot be that of a file on every system, or is taken."""
    right = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"
    check(isinstance(name, str) and _NAME.fullmatch(name), what, name, right)
    right = f"none of {tuple(taken)}, which have another meaning"
    check(name not in taken, what, name, right)


def check_folders(what: str, names: Iterable[Any], taken: Iterable[str] = ()) -> None:
    """As `check_name` for each; no two may differ only in case, as some file systems ignore it."""
    for name in (names := list(names)):
        check_name(what, name)
        check_name(what, name.lower(), taken)
        alike = [one for one in names if one.lower() == name.lower()]
        check(len(alike) == 1, what, alike, "names that differ in more than upper and lower case")


def check_mapping(what: str, value: Any, right: str) -> None:
    """Raise `ValueError` if a value is no mapping whose keys are strings."""
    ok = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    check(ok, what, value, f"a mapping of names to {right}")


def check_goal(what: str, goal: Any) -> None:
    """Raise `ValueError` if a goal is no finite number."""
    number = isinstance(goal, (int, float, np.number, jax.Array)) and np.ndim(goal) == 0
    check(number and math.isfinite(goal), what, goal, "a finite number, or None")


def strict_json(what: str, value: Any) -> Any:
    """Return a value as strict JSON gives it back, with NumPy's numbers as Python's.

    Raises:
        ValueError: it holds something else, such as an object, an infinity or NaN.
    """

    def plain(part: Any) -> Any:
        if isinstance(part, (np.generic, np.ndarray, jax.Array)):
            return part.tolist()
        raise TypeError(f"{type(part).__name__} is not")

    right = "strict JSON: text, finite numbers, booleans, None, and lists and dicts of these"
    try:
        return json.loads(json.dumps(value, default=plain, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        check(False, what, value, right)


def check_run(folder: Any, overwrite: Any, progress: Any, client: Any) -> None:
    """Check the arguments of `Study.run` that are no settings; raises ValueError."""
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else None
    right = "the path of a folder for the results, such as 'runs/first'"
    check(isinstance(text, str) and text and "\0" not in text, "folder", folder, right)
    check(isinstance(overwrite, bool), "overwrite", overwrite, "True or False")
    methods = [getattr(progress, name, None) for name in ("begin", "advance")]
    ok = isinstance(progress, bool) or all(map(callable, methods))
    right = "True or False, or an object with methods begin and advance"
    check(ok, "progress", progress, right)
    right = "a dask.distributed.Client, such as Client('tcp://node1:8786')"
    ok = client is None or callable(getattr(client, "submit", None))
    check(ok, "client", client, right)
