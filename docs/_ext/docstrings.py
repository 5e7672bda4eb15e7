"""Docstrings mark code by single backticks: names of nrjax become links, and the rest code."""

import functools
import inspect
import re

import nrjax

_CODE = re.compile(r"(`+[^`]*`+)")
_SHAPE = re.compile(r"(?<=[(\s])\*(?=[\w.]+[,)])")  # as in (*steps, *shape): no emphasis
_STATEMENT = re.compile(r"([Ss]tatement (\d+)) of\s+`docs/proofs`")
_PAGE = re.compile(r"docs/([\w/-]+)\.md")
_kept = {}
_SUBMODULES = ("composition", "counts", "datasets", "erm", "guarantees", "processes", "stopping")


def _target(text):
    """Return the full name of a public name, or None."""
    name = text.removeprefix("nrjax.")
    if name in nrjax.__all__ or any(name.startswith(f"{module}.") for module in _SUBMODULES):
        value = nrjax
        for part in name.split("."):
            value = getattr(value, part, None)
        if callable(value):
            return f"nrjax.{name}"
    return None


def _role(code):
    """Return the reStructuredText of `code`, a span with its backticks."""
    text = re.sub(r"\s+", " ", code.strip("`"))
    if page := _PAGE.fullmatch(text):
        return f":doc:`/{page[1]}`"
    if name := _target(text):
        return f":py:obj:`{text} <{name}>`"
    return f"``{text}``"


def _process(app, what, name, obj, options, lines):
    """Convert code, and escape the characters that reStructuredText would read as markup."""
    text = _STATEMENT.sub(r":ref:`\1 <statement-\2>`", "\n".join(lines))
    parts = _CODE.split(text)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = _SHAPE.sub(r"\\*", part.replace("|", r"\|"))
        elif not parts[i - 1].endswith(":") and not part.startswith("``"):
            parts[i] = _role(part)
    lines[:] = "".join(parts).split("\n")
    if what == "property":
        _kept[name] = list(lines)


def _restore(app, what, name, obj, options, lines):
    """Undo Napoleon for a property, whose first words it takes for a type."""
    if what == "property":
        lines[:] = _kept.pop(name, lines)


def _skip(app, what, name, obj, skip, options):
    """Fields are described under `Attributes:`, and are not repeated as members."""
    methods = (property, functools.cached_property, staticmethod, classmethod)
    return skip or not (inspect.isroutine(obj) or isinstance(obj, methods))


def setup(app):
    """Convert every docstring before Napoleon reads it."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-docstring", _restore, priority=600)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
