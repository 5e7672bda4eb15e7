"""Messages with the options of the command in place of the arguments of Python."""

import ast
import dataclasses
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from nrjax.cli.options import Cluster, Output
from nrjax.papers import STUDIES
from nrjax.study.options import RunOptions

_OF_TABLES = (
    *("bounds", "bounds_file", "data", "leave_out", "missing", "person", "read", "rows_per_person"),
    *("target", "task", "write_bounds"),
)
"""The options of all commands that read a table."""

_GIVEN = re.compile(r"(\(got .*?\)(?=[.,;:\n]|$))", re.DOTALL)
"""A value that the user gave, which is shown as it is."""

_LITERAL = r"""(?:'[^']*'|"[^"]*"|\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|True\b|\d+(?![\w:]|[.,]\d))"""


def _names() -> set[str]:
    """Return the names of all options of a run, of a table, and of the studies in use."""
    modules = (sys.modules.get(f"nrjax.papers.{name}") for name in STUDIES)
    settings = (getattr(module, "Settings", None) for module in modules)
    kinds = (kind for kind in (Output, Cluster, RunOptions, *settings) if kind is not None)
    return {*_OF_TABLES, *(field.name for kind in kinds for field in dataclasses.fields(kind))}


def in_shell(message: str) -> str:
    """Return a message with options of the command, where it names these arguments of Python.

    For example, `leave_out` becomes `--leave-out`, and `missing='drop'` becomes `--missing drop`.
    An argument that stands next to its option is removed. A name of one word is changed only if it
    has a value, since it may be an ordinary word. Values that the user gave stay as they are, and
    so do names in quotes, such as those of columns.
    """
    names = _names()
    any_name = rf"(?<![\w'\"/.-])(?:{'|'.join(map(re.escape, sorted(names)))})"
    with_value = rf"{any_name}={_LITERAL}"
    long_names = "|".join(re.escape(name) for name in sorted(names) if "_" in name) or r"\b\B"
    long_name = rf"(?<![\w'\"/.-])({long_names})(?![\w'\"/]|\.\w)"
    steps: list[tuple[str, Any]] = [
        (rf"{with_value} in Python, (--[\w-]+) in the command", r"\1"),
        (rf"(?:{with_value}|{any_name}), in the shell (?=--)", ""),
        (r" \(in the shell --[^()]*\)", ""),
        (rf"{with_value} \((--[^()]*)\)", r"\1"),
        (rf"{with_value}, (?=--)", ""),
        (rf"(--[\w-]+ [^()\n]*) \({any_name}={_LITERAL}\)", r"\1"),
        (rf" \((?:{any_name}=(?:, )?)+\)", ""),
        (rf"({any_name})=({_LITERAL})", lambda found: _option(found[1], found[2])),
        (rf"({any_name})=(?=[.\s),])", lambda found: _dashed(found[1])),
        (long_name, lambda found: _dashed(found[1])),
    ]
    parts = _GIVEN.split(message)
    for place in range(0, len(parts), 2):  # the others are what the user gave
        for pattern, new in steps:
            parts[place] = re.sub(pattern, new, parts[place])
    return "".join(parts)


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option(name: str, literal: str) -> str:
    """Return an argument with its value, a literal or a text with placeholders, as an option."""
    words = re.sub(r"\((\w+), (\w+)\)", r"\1:\2", literal)  # (LOW, HIGH)
    try:
        value = ast.literal_eval(words)
    except (ValueError, SyntaxError):
        inside = words.strip("{}[]()").replace("'", "").replace(": ", "=").rstrip(",")
        return f"{_dashed(name)} {inside.replace(', ', ' ')}"
    if value is True:
        return _dashed(name)
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    listed = value if isinstance(value, (list, tuple)) else [value]
    return " ".join([_dashed(name), *(shlex.quote(str(each)) for each in listed)])
