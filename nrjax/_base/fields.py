"""Descriptions of the fields of named tuples, from the docstring of their class."""

import inspect
import re
from typing import TypeVar

T = TypeVar("T")

_FIELD = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
"""A field and its description, which continues on lines with a larger indent."""


def explain_fields(cls: type[T]) -> type[T]:
    """Give each field of a class of named tuples the description under `Attributes:`.

    `help` would otherwise show "Alias for field number 0".
    """
    _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")
    for name, text in _FIELD.findall(re.split(r"\n(?=\S)", section)[0]):  # up to `Raises:`
        if name in getattr(cls, "_fields", ()):
            vars(cls)[name].__doc__ = " ".join(text.split())
    return cls
