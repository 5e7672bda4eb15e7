"""The side of a Dask worker: it receives a study once, and runs the trials of a file at a time."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import Array

from nrjax._base.extras import missing
from nrjax.simulation.program import Program
from nrjax.study import devices, provenance
from nrjax.study.local import (
    LAUNCH_SECONDS,
    CasePasses,
    Pace,
    Task,
    first_file,
    programs,
)
from nrjax.study.schema import Pass

USER_MODULE_PREFIX = "nrjax_study_"
"""The prefix of the module name under which the file of a study is imported."""

_KEPT = 4
"""The number of studies whose compiled programs a worker keeps."""


class Refusal(NamedTuple):
    """The reply of a worker whose results would differ from the client's.

    Attributes:
        worker: address of the worker.
        reason: why it cannot take part, with a remedy.
    """

    worker: str
    reason: str


def environment_of(store_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker must share: the environment of the run, and the version of Python."""
    known = {name: store_settings[name] for name in provenance.environment()}
    return known | {"python": ".".join(map(str, sys.version_info[:2]))}


def serialise(passes: CasePasses, key: Array, fingerprints: Mapping[str, Any]) -> bytes:
    """Return the passes, key and fingerprints of a study as bytes to send to the workers.

    The bytes include the modules of the study's file or notebook.

    Raises:
        ValueError: a part of the study cannot be pickled.
    """
    cloudpickle = import_cloudpickle()
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    folders = {name: Path(file).parent for name, file in files.items() if file}
    own = {folder for name, folder in folders.items() if name.startswith(USER_MODULE_PREFIX)}
    for name, folder in folders.items():  # the study's file, and modules that lie next to it
        if folder in own:
            cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        return cloudpickle.dumps((passes, jax.random.key_data(key), fingerprints))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"study must be of parts that can be pickled (got: {error})") from error


_LOCK = threading.Lock()
"""A lock to compute one file at a time, since a file uses all devices of the worker."""


class _Program:
    """A program of this worker, with the layout of its files and its pace."""

    def __init__(self, program: Program, layout: Pass):
        self.program, self.layout = program, layout
        self.pace = Pace(program.batch, program.launch_size, LAUNCH_SECONDS)
        self._is_compiled = False

    def compile(self, key: Array) -> None:
        """Compile at the first call only, since even a run of no trials takes time."""
        if not self._is_compiled:
            self.program.compile(key)
            self._is_compiled = True


_STUDIES: dict[str, tuple[dict[tuple[str, str], _Program], Array]] = {}
"""The programs and the key of the studies that this worker ran last, by the study's digest."""


def run_file(
    data: bytes, digest: str, environment: Mapping[str, Any], task: Task, seconds: float
) -> tuple[int, dict[str, Any], float, float] | Refusal:
    """Run the first trials of a task in a worker, or refuse if the results would differ.

    Without a given chunk, the trials of a file take about `seconds`.

    Returns:
        The number of trials, their arrays, the seconds of work and those of compilation.
    """
    from distributed import get_worker

    with _LOCK:
        worker = get_worker()
        devices.configure_jax(worker.state.nthreads)
        # First, since the code of a study can be read by one version of Python only.
        here = ".".join(map(str, sys.version_info[:2]))
        python = f"Python is {here} here and was {environment['python']}"
        changes = [python] * (here != environment["python"])
        changes += provenance.environment_changes(environment)
        if changes:
            return Refusal(worker.address, f"its results would differ: {'; '.join(changes)}")
        start = time.perf_counter()
        if digest not in _STUDIES:
            passes, key_data, fingerprints = import_cloudpickle().loads(data)
            # The worker may have imported an older version of a module.
            if provenance.fingerprints(passes) != fingerprints:
                reason = "its code of the study or nrjax is not the client's; restart it"
                return Refusal(worker.address, reason)
            while len(_STUDIES) >= _KEPT:
                _STUDIES.pop(next(iter(_STUDIES)))
            _STUDIES[digest] = _programs(passes, fingerprints), jax.random.wrap_key_data(key_data)
        own, key = _STUDIES[digest] = _STUDIES.pop(digest)  # now the latest
        each = own[task.case, task.name]
        each.compile(key)
        compiling = time.perf_counter() - start
        span = range(task.first, task.first + task.trials)
        file = first_file(each.program, key, each.layout, span, each.pace, seconds)
        return *file, compiling


def _programs(
    passes: CasePasses, fingerprints: Mapping[str, Any]
) -> dict[tuple[str, str], _Program]:
    return {
        (case, name): _Program(program, passes[case][name].layout)
        for (case, name), program in programs(passes, fingerprints).items()
    }


def import_cloudpickle() -> Any:
    """Return the module cloudpickle, or raise ModuleNotFoundError if Dask is not installed."""
    try:
        import cloudpickle
        import distributed  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error.name, "a cluster", "cluster") from error
    return cloudpickle
