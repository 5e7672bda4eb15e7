"""Where the shell finds a study: one of the papers', or a file of one's own."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nrjax._validation import check
from nrjax.papers import PAPERS
from nrjax.study.cluster import FROM_FILES
from nrjax.study.layout import from_plain, to_plain
from nrjax.study.results import Reporting
from nrjax.study.settings import RunSettings, check_own, shared_with, with_whole_paths
from nrjax.study.store import Store
from nrjax.study.study import Study

_COMMANDS = ("scheduler", "workers")
"""Options of the command that are none of a run's."""


class Source(NamedTuple):
    """A study that can be made from its settings."""

    name: str
    """A paper's, or the path of a file."""
    settings: type[Any] | None
    """The dataclass of what can be chosen; None where there is nothing."""
    make: Callable[[Any], Study]
    """The study of such settings; it may load data."""
    reporting: Reporting | None
    """What tells of its results; None where only the study knows."""

    def study(self, own: Any, run: RunSettings | None = None) -> Study:
        """The study of these settings; those that the run has too (a seed) are the run's."""
        if own is not None:
            shared = {} if run is None else {name: getattr(run, name) for name in shared_with(own)}
            own = dataclasses.replace(with_whole_paths(own), **shared)
        before = time.monotonic()
        study = self.make(own)
        seconds = time.monotonic() - before
        right = "a nrjax.Study, or a function that gives one"
        check(isinstance(study, Study), f"study in {self.name}", study, right)
        study.source, study.spent["data"] = self.name, seconds
        study.settings = own if study.settings is None else study.settings
        if own is not None:  # as a resume will read them
            plain = json.dumps(to_plain(own))
            again = from_plain(type(own), json.loads(plain))
            right = "of numbers, words, paths, and lists, tuples or dicts of them"
            check(json.dumps(to_plain(again)) == plain, "settings", own, right)
        return study

    def stored(self, store: Store) -> Study:
        """The study that began a run."""
        kind, recorded = self.settings, store.settings["settings"]
        return self.study(None if kind is None else from_plain(kind, recorded))


def find(name: str) -> Source:
    """The study of that name, or in that file; ValueError or FileNotFoundError without one."""
    if name in PAPERS:
        module = importlib.import_module(f"nrjax.papers.{name}")
        return Source(name, module.Settings, module.study, module.reporting)
    check(name.endswith(".py"), "study", name, f"one of {PAPERS}, or a file such as my_study.py")
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise FileNotFoundError(f"study = {name!r}: must be a file, and there is none at {path}")
    module = _loaded(path)
    right = "a nrjax.Study called study, or a function study(settings) that gives one"
    study: Any = getattr(module, "study", None)
    check(isinstance(study, Study) or callable(study), f"study in {name}", study, right)
    if isinstance(study, Study):
        return Source(str(path), None, lambda own: study, study.reporting)
    kind = _settings_of(study, name)
    if kind is not None:
        check_own(kind, _COMMANDS)
    make: Callable[[Any], Any] = (lambda own: study()) if kind is None else study
    return Source(str(path), kind, make, getattr(module, "reporting", None))


def of_store(store: Store) -> Source:
    """The study that began a run; ValueError if that was not done from the shell."""
    right = "one that was begun by `nrjax run`; this one's program calls Study.run again instead"
    check(store.settings.get("source") is not None, "folder", str(store.folder), right)
    return find(store.settings["source"])


def reporting_of(store: Store) -> Reporting:
    """What tells of a run's results: the study's own words where they can be found."""
    if store.settings.get("source") is None:
        return Reporting()
    source = of_store(store)
    return source.reporting or source.stored(store).reporting


def _loaded(path: Path) -> Any:
    """The module in a file; a cluster's workers are sent its contents."""
    name = f"{FROM_FILES}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:  # for what it imports from beside it, then or later
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: {error}", name=error.name) from error
    return module


def _settings_of(function: Callable[..., Any], name: str) -> type[Any] | None:
    """The dataclass that a file's function `study` takes."""
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return None
    right = "no argument, or one that is annotated with a dataclass: def study(settings: Settings)"
    check(len(parameters) == 1, f"arguments of study in {name}", parameters, right)
    kind = typing.get_type_hints(function).get(parameters[0])
    check(isinstance(kind, type) and dataclasses.is_dataclass(kind), "settings", kind, right)
    return kind
