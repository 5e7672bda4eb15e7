"""Functions that find the study of a paper, or the study in a Python file."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import sys
import time
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nrjax._base.validation import check
from nrjax.datasets._reading import is_table
from nrjax.papers import STUDIES
from nrjax.study.dask_worker import USER_MODULE_PREFIX
from nrjax.study.options import RunOptions, check_settings, shared_options, to_json
from nrjax.study.reporting import Reporting
from nrjax.study.store import Store
from nrjax.study.study import Study

_OPTIONS = ("scheduler", "workers")
"""The options of `nrjax run` that are not options of `RunOptions`."""


class Source(NamedTuple):
    """A source of a study: a module of `nrjax.papers`, or a Python file.

    Attributes:
        name: name of a paper's study, or path of a file.
        settings: dataclass of the study's settings; None if the study has no settings.
        make: function of an instance of `settings` that returns the study. It may load data.
        reporting: maker of the study's reports; None if only the study itself has it.
    """

    name: str
    settings: type[Any] | None
    make: Callable[[Any], Study]
    reporting: Reporting | None

    def study(self, settings: Any, options: RunOptions | None = None) -> Study:
        """Return the study with these settings.

        Fields of the settings that are also options of a run, such as `seed`, take the values of
        `options`.
        """
        if settings is not None:
            shared = shared_options(settings) if options else {}
            shared = {name: getattr(options, name) for name in shared}
            settings = dataclasses.replace(with_absolute_paths(settings), **shared)
        start = time.monotonic()
        study = self.make(settings)
        seconds = time.monotonic() - start
        expected = "an nrjax.Study, or a function that returns one"
        check(isinstance(study, Study), f"study in {self.name}", study, expected)
        if settings is not None:  # raise if a resumed run would read other settings
            text = json.dumps(to_json(settings))
            is_same = json.dumps(to_json(from_json(type(settings), json.loads(text)))) == text
            expected = "of numbers, text, paths, and lists, tuples or dicts of them"
            check(is_same, "settings", settings, expected)
        return study.loaded_from(self.name, settings, seconds)

    def stored(self, store: Store) -> Study:
        """Return the study with the settings that a store has recorded."""
        kind = self.settings
        return self.study(None if kind is None else from_json(kind, store.settings["settings"]))


def find(name: str) -> Source:
    """Return the source of a paper's study, of your own table's, or of the study in a file.

    Raises:
        ValueError: there is no study with this name, or no study in the file.
        FileNotFoundError: there is no file at this path.
    """
    if name in STUDIES:
        module = importlib.import_module(f"nrjax.papers.{name}")
        return Source(name, module.Settings, module.study, module.reporting)
    similar = difflib.get_close_matches(name, STUDIES, 1)
    hint = f"Did you mean {similar[0]!r}?" if similar else ""
    if is_table(name):
        hint = f"For your own table: nrjax run --data {name} --target COLUMN"
    if Path(name).is_dir():
        hint = f"A folder is no study: give the study's file. To extend a run: nrjax resume {name}"
    is_file = name.endswith(".py")
    check(is_file, "study", name, f"one of {STUDIES}, or a file such as my_study.py", hint)
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise FileNotFoundError(f"study must be a file, and there is none at {path} (got {name!r})")
    module = _import_file(path)
    expected = "an nrjax.Study called study, or a function study(settings) that returns one"
    study: Any = getattr(module, "study", None)
    check(isinstance(study, Study) or callable(study), f"study in {name}", study, expected)
    if isinstance(study, Study):
        return Source(str(path), None, lambda settings: study, study.reporting)
    kind = _settings_of(study, name)
    if kind is not None:
        check_settings(kind, _OPTIONS)
    make: Callable[[Any], Any] = (lambda settings: study()) if kind is None else study
    return Source(str(path), kind, make, getattr(module, "reporting", None))


def of_store(store: Store) -> Source:
    """Return the source of a stored run, or raise ValueError if the run has no source."""
    if store.settings.get("source") is None:
        raise ValueError(
            f"{store.folder} was started from Python: resume it by the same call of Study.run"
        )
    return find(store.settings["source"])


def reporting_of(store: Store) -> Reporting:
    """Return the maker of a run's reports, or the standard one if the run has no source."""
    if store.settings.get("source") is None:
        return Reporting()
    source = of_store(store)
    return source.reporting or source.stored(store).reporting


def _import_file(path: Path) -> Any:
    """Import a file as a module whose name has the prefix `USER_MODULE_PREFIX`.

    Workers of a cluster receive the content of modules with this prefix.
    """
    name = f"{USER_MODULE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:  # the file may import modules in its folder, also later
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: {error}", name=error.name) from error
    return module


def _settings_of(function: Callable[..., Any], name: str) -> type[Any] | None:
    """Return the dataclass of a function's only argument, or None if it has no argument."""
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return None
    expected = "none, or one annotated with a dataclass: def study(settings: Settings)"
    check(len(parameters) == 1, f"arguments of study in {name}", parameters, expected)
    kind = typing.get_type_hints(function).get(parameters[0])
    is_settings = isinstance(kind, type) and dataclasses.is_dataclass(kind)
    check(is_settings, f"annotation of settings in {name}", kind, "a dataclass")
    return kind


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
