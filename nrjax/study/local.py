"""Runs the trials that a store lacks, by default on this process's devices.

Launches and files have separate sizes. A launch of a program takes about a second, so that progress
is visible, but fills the devices. A file is written after a few seconds of work or some tens of
megabytes, unless the user chooses its trials. Results depend on neither size.
"""

import contextlib
import dataclasses
import importlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import Array

from nrjax.simulation.counting import merge
from nrjax.simulation.program import Program
from nrjax.study import devices, provenance
from nrjax.study.passes import PassSpec
from nrjax.study.schema import Pass
from nrjax.study.store import Store

PassSpecs = Mapping[str, Mapping[str, PassSpec]]
"""The passes of a study, by case and name."""

Pending = Mapping[tuple[str, str], list[range]]
"""The trials that are not done, by case and pass; no range crosses a chunk."""

_LATER = ("scipy.special", "nrjax.study.rendering")
"""Modules that only summary and figures need, slow to import: imported while trials run."""

_COMPILERS = 8
"""Most programs compiled at a time: each takes memory."""

LAUNCH_SECONDS, FILE_SECONDS = 1.0, 4.0
"""Seconds that a launch should take, and seconds of work after which a file is written."""

FILE_BYTES = 2**25
"""Bytes of results after which a file is written, however fast they came."""

_GROWTH = 8
"""Largest ratio of the trials of a launch to those of the launch before."""


class Progress(Protocol):
    """Reports the progress of a run.

    A method `compiled()`, if there is one, is called after the compilation of each pass.
    """

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """Start a pass of a case with `done` of its `trials` stored already, and compile it."""

    def advance(self, trials: int, seconds: float) -> None:
        """Report that `trials` more trials are done, whose simulation took `seconds`."""


class Task(NamedTuple):
    """The trials of one file: a case, a pass, the first trial and the number of trials."""

    case: str
    name: str
    first: int
    trials: int


Computed = Generator[tuple[Task, dict[str, Any], float, float], None, None]
"""Files with their arrays, seconds of work and seconds of compilation; each is stored before the
next one is computed."""


class Pace:
    """Chooses how many trials to run next, so that they take a given time.

    Args:
        least: first and smallest number of trials: those that fill the devices once.
        most: largest number of trials.
        seconds: seconds that the trials should take.
    """

    def __init__(self, least: int, most: int, seconds: float):
        self.least, self.most, self.seconds = min(least, most), most, seconds
        self.size = self.least

    def took(self, trials: int, seconds: float) -> None:
        """Choose the next size after `trials` trials took `seconds`."""
        size = trials * self.seconds / max(seconds, 1e-9)
        batches = int(min(size, _GROWTH * self.size, self.most) // self.least)
        self.size = max(batches, 1) * self.least


def programs(
    passes: PassSpecs, fingerprints: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], Program]:
    """Return the program of each pass. Passes that differ only in numbers share a compilation."""
    return {
        (case, name): dataclasses.replace(
            spec.make(), meaning=fingerprints[case][name][: provenance.PROGRAM]
        )
        for case, specs in passes.items()
        for name, spec in specs.items()
    }


def fill(
    store: Store,
    key: Array,
    passes: PassSpecs,
    progress: Progress | None,
    compute: Callable[[Store, Array, PassSpecs, Pending, Progress | None], Computed],
) -> None:
    """Run every trial that is not done yet.

    It can be killed at any moment and called again. Cases share the key, and with it their random
    numbers. `compute` runs the trials, here (`run_locally`) or on the workers of a cluster. Only
    this process writes.

    Raises:
        StoreBusyError, StoreError, OSError: as `Store.writer` and `Writer.write`.
    """
    with store.writer() as writer:
        pending = {
            (case, name): store.pending(case, name)
            for case, specs in passes.items()
            for name in specs
        }
        with contextlib.closing(compute(store, key, passes, pending, progress)) as computed:
            for (case, name, first, trials), arrays, *seconds in computed:
                kept = {key: arrays[key] for key in store.pass_of(case, name).variables}
                writer.write(case, name, range(first, first + trials), kept, *seconds)


def run_locally(
    store: Store, key: Array, passes: PassSpecs, pending: Pending, progress: Progress | None
) -> Computed:
    """Run pending trials on the devices of this process, pass by pass, and yield their files."""
    made = programs(passes, store.settings["fingerprints"]) if any(pending.values()) else {}
    # Threads compile programs in order while others run: XLA uses one core for most of it.
    threads = ThreadPoolExecutor(min(devices.cores(), _COMPILERS), "compilation")
    ahead: dict[Any, Future[float]] = {}
    try:
        for name, spans in pending.items():
            kind = made[name].kind if spans else None
            if spans and kind not in ahead:
                ahead[kind] = threads.submit(_prepare, made[name], key)
        for module in _LATER if ahead else ():
            threads.submit(importlib.import_module, module)
        for name, spans in pending.items():
            layout = store.pass_of(*name)
            if progress is not None:
                progress.begin(*name, layout.trials, layout.trials - sum(map(len, spans)))
            if not spans:
                continue
            # Seconds of a shared compilation count for its first pass.
            compilation = ahead.pop(made[name].kind, None)
            compiling = 0.0 if compilation is None else compilation.result()
            before = time.perf_counter()
            made[name].compile(key)
            compiling += time.perf_counter() - before
            getattr(progress, "compiled", lambda: None)()
            for span, arrays, seconds in _files(made[name], key, layout, spans, progress):
                yield Task(*name, span.start, len(span)), arrays, seconds, compiling
                compiling = 0.0
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def largest_file(layout: Pass) -> int:
    """Return the largest number of trials per file, by bytes. Histograms do not grow."""
    if layout.axis == "chunk":
        return 2**32
    return max(FILE_BYTES // max(layout.row_bytes, 1), 1)


def _files(
    program: Program,
    key: Array,
    layout: Pass,
    spans: list[range],
    progress: Progress | None,
) -> Iterator[tuple[range, dict[str, Any], float]]:
    """Run trials, and yield the trials of each file, their arrays and the seconds they took."""
    pace, most = Pace(program.batch, program.chunk, LAUNCH_SECONDS), largest_file(layout)
    for span in spans:
        first = at = span.start
        parts, spent = [], 0.0
        while at < span.stop:
            before, size = time.perf_counter(), min(pace.size, span.stop - at)
            parts.append(program.run(key, size, at))
            if layout.axis == "chunk":
                parts = [merge(parts)]
            seconds = time.perf_counter() - before
            pace.took(size, seconds)
            at, spent = at + size, spent + seconds
            enough = spent >= FILE_SECONDS or at - first >= most
            if at == span.stop or (enough and layout.chunk is None):
                yield range(first, at), parts[0] if len(parts) == 1 else _joined(parts), spent
                first, parts, spent = at, [], 0.0
            if progress is not None:
                progress.advance(size, seconds)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _prepare(program: Program, key: Array) -> float:
    """Compile ahead, and return the seconds."""
    before = time.perf_counter()
    # Accelerators choose algorithms by timing them, which a run would disturb. An error here comes
    # again where the program is needed, and is raised there.
    if jax.local_devices()[0].platform == "cpu":
        with contextlib.suppress(Exception):
            program.prepare(key)
    return time.perf_counter() - before
