"""Functions that read settings of a study from JSON, and make paths in settings absolute."""

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nrjax._base.validation import check

_hints = functools.cache(typing.get_type_hints)


def from_json(kind: type, stored: Mapping[str, Any]) -> Any:
    """Return an instance of the dataclass `kind` with the stored values of its fields.

    Other names in `stored` are ignored.

    Raises:
        ValueError: a field is missing, or a value does not match the type of its field.
    """
    hints = _hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    missing = ", ".join(map(repr, sorted(names - set(stored))))
    if missing:
        raise ValueError(
            f"the stored settings lack {missing}, and this version of the study has them: use the "
            "version that wrote them"
        )
    return kind(**{name: _typed(name, hints[name], stored[name]) for name in names})


def _typed(name: str, hint: Any, value: Any) -> Any:
    """Convert a JSON value to the type `hint` of a field, such as a list to a tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        for kind in (kind for kind in arguments if kind is not type(None)):
            with contextlib.suppress(ValueError):
                return _typed(name, kind, value)
        raise ValueError(f"{name} must be of type {hint} (got {value!r}).")
    if hint is Any:
        return value
    if origin is Literal:
        check(value in arguments, name, value, f"one of {arguments}")
        return value
    stored = {tuple: list, float: (int, float), Path: str}.get(origin or hint, origin or hint)
    if dataclasses.is_dataclass(hint):
        stored = dict
    is_stored = type(value) in (stored if isinstance(stored, tuple) else (stored,))
    check(is_stored, name, value, f"of type {hint}")
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value)
    if origin is dict:
        return {key: _typed(f"{name}[{key!r}]", arguments[1], part) for key, part in value.items()}
    if origin in (tuple, list):
        is_uniform = origin is list or ... in arguments
        kinds = arguments[:1] * len(value) if is_uniform else arguments
        check(len(kinds) == len(value), name, value, f"a list of {len(kinds)}")
        return origin(_typed(name, kind, part) for kind, part in zip(kinds, value, strict=True))
    return Path(value) if hint is Path else value


def with_absolute_paths(settings: Any) -> Any:
    """Return settings with absolute paths, so that a run can be resumed from any directory."""

    def absolute(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(absolute, value))
        return value.expanduser().absolute() if isinstance(value, Path) else value

    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    changes = {name: absolute(value) for name, value in values.items() if absolute(value) != value}
    return dataclasses.replace(settings, **changes)
