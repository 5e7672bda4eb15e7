"""The execution of a study's pending trials, by default on the devices of this process.

A launch is one call of a compiled program. It fills the devices and takes about a second, so that
progress is visible. A file is written after a few seconds of work or some tens of megabytes, unless
the user sets `chunk`. Results depend on neither the size of a launch nor the size of a file.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

from nrjax.simulation.counting import merge
from nrjax.simulation.program import Program
from nrjax.study import provenance
from nrjax.study.ahead import compiled_ahead
from nrjax.study.passes import CasePass
from nrjax.study.schema import Pass
from nrjax.study.store import Store

CasePasses = Mapping[str, Mapping[str, CasePass]]
"""The passes of a study, by name of the case and name of the pass."""

Pending = Mapping[tuple[str, str], list[range]]
"""The trials still to run, by case and pass, in ranges that lie within one chunk each."""

_LATER = ("scipy.special", "nrjax.study.rendering")
"""The modules for summary and figures to import while trials run, since they are slow."""

LAUNCH_SECONDS, FILE_SECONDS = 1.0, 4.0
"""The seconds that a launch should take, and the seconds of work per file."""

FILE_BYTES = 2**25
"""The bytes of results after which to write a file, even before `FILE_SECONDS` of work."""

_GROWTH = 8
"""The largest factor by which the number of trials grows from one launch to the next."""


class Progress(Protocol):
    """A protocol of objects that report the progress of a run.

    If the object has a method `compiled()`, it is called after the compilation of each pass.
    """

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """Report that a pass of a case starts to compile, with `done` of its `trials` stored."""

    def advance(self, trials: int, seconds: float) -> None:
        """Report that `trials` more trials are done, after a simulation of `seconds`."""


class Task(NamedTuple):
    """The trials of one file: a case, a pass, the first trial and the number of trials."""

    case: str
    name: str
    first: int
    trials: int


Computed = Generator[tuple[Task, dict[str, Any], float, float], None, None]
"""A generator of files: the task, its arrays, seconds of work and seconds of compilation."""


class Pace:
    """An adaptive number of trials to run next, such that they take about `seconds`.

    Args:
        least: number of trials that fill the devices once. Later sizes are multiples of it.
        most: largest number of trials.
        seconds: seconds that the trials should take.

    Attributes:
        size: number of trials to run next.
        last: seconds that the last trials took, 0 before any ran.
    """

    def __init__(self, least: int, most: int, seconds: float):
        self.least, self.most, self.seconds = min(least, most), most, seconds
        self.size = self.least
        self.last = 0.0

    def took(self, trials: int, seconds: float) -> None:
        """Choose the next number of trials, given that `trials` trials took `seconds`."""
        size = trials * self.seconds / max(seconds, 1e-9)
        self.last = seconds
        batches = int(min(size, _GROWTH * self.size, self.most) // self.least)
        self.size = max(batches, 1) * self.least


def programs(
    passes: CasePasses, fingerprints: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], Program]:
    """Return the program of each pass, by case and pass.

    Programs that differ only in the values of their arrays share a compilation.
    """
    return {
        (case, name): dataclasses.replace(
            each.program(), code_fingerprint=fingerprints[case][name][: provenance.PROGRAM]
        )
        for case, own in passes.items()
        for name, each in own.items()
    }


def fill(
    store: Store,
    key: Array,
    passes: CasePasses,
    progress: Progress | None,
    compute: Callable[[Store, Array, CasePasses, Pending, Progress | None], Computed],
) -> None:
    """Run every pending trial of a store, and write the results.

    You can kill the process at any moment and call the function again. All cases use the same key,
    and therefore the same random numbers. `compute` runs the trials, such as `run_locally`; only
    this process writes. A thread writes one file while the trials of the next run.

    Raises:
        StoreBusyError, StoreError, OSError: as for `Store.writer` and `Writer.write`.
    """
    with store.writer() as writer, ThreadPoolExecutor(1, "writing") as thread:
        pending = {
            (case, name): store.pending(case, name, store.wanted(case, name))
            for case, own in passes.items()
            for name in own
        }
        with contextlib.closing(compute(store, key, passes, pending, progress)) as computed:
            written = thread.submit(lambda: None)
            for (case, name, first, trials), arrays, *seconds in computed:
                kept = {key: arrays[key] for key in store.pass_of(case, name).variables}
                written.result()  # raises the error of the last file
                span = range(first, first + trials)
                written = thread.submit(writer.write, case, name, span, kept, *seconds)
            written.result()


def run_locally(
    store: Store, key: Array, passes: CasePasses, pending: Pending, progress: Progress | None
) -> Computed:
    """Run pending trials on the devices of this process, and yield the arrays of each file."""
    made = programs(passes, store.settings["fingerprints"]) if any(pending.values()) else {}
    waiting = [made[name] for name, spans in pending.items() if spans]
    with compiled_ahead(waiting, key, _LATER if waiting else ()) as compiled:
        for name, spans in pending.items():
            layout = store.pass_of(*name)
            if progress is not None:
                total = len(store.wanted(*name))
                progress.begin(*name, total, total - sum(map(len, spans)))
            if not spans:
                continue
            # The seconds of a shared compilation count for the first pass that uses it.
            compiling = compiled(made[name])
            getattr(progress, "compiled", lambda: None)()
            for span, arrays, seconds in _files(made[name], key, layout, spans, progress):
                yield Task(*name, span.start, len(span)), arrays, seconds, compiling
                compiling = 0.0


def largest_file(layout: Pass) -> int:
    """Return the largest number of trials per file.

    It is the size limit of a file, divided by the bytes of a trial. Histograms have a fixed size,
    so that their limit is 2^32.
    """
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
    """Run trials, and yield the trials, arrays and seconds of work of each file."""
    pace, most = Pace(program.batch, program.launch_size, LAUNCH_SECONDS), largest_file(layout)
    for span in spans:
        first = at = span.start
        parts, spent = [], 0.0
        try:
            for size, part, seconds in _launches(program, key, span, pace):
                parts.append(part)
                if layout.axis == "chunk":
                    parts = [merge(parts)]
                at, spent = at + size, spent + seconds
                enough = spent >= FILE_SECONDS or at - first >= most
                if at == span.stop or (enough and layout.chunk is None):
                    yield range(first, at), _joined(parts), spent
                    first, parts, spent = at, [], 0.0
                if progress is not None:
                    progress.advance(size, seconds)
        except KeyboardInterrupt:
            if parts and layout.chunk is None:  # the trials that are done go into a file
                yield range(first, at), _joined(parts), spent
            raise


def first_file(
    program: Program, key: Array, layout: Pass, span: range, pace: Pace, seconds: float
) -> tuple[int, dict[str, Any], float]:
    """Run the first trials of a span for one file.

    As many trials are run as take about `seconds`. If the layout states a chunk, all trials of the
    span are run.

    Returns:
        The number of trials, their arrays and the seconds that they took.
    """
    done, parts, spent = 0, [], 0.0
    if layout.chunk is None:
        span = span[: max(largest_file(layout), pace.least)]
    limit = seconds if layout.chunk is None else math.inf
    for size, part, took in _launches(program, key, span, pace, limit):
        parts.append(part)
        if layout.axis == "chunk":
            parts = [merge(parts)]
        done, spent = done + size, spent + took
    return done, _joined(parts), spent


def _launches(
    program: Program, key: Array, span: range, pace: Pace, limit: float = math.inf
) -> Iterator[tuple[int, dict[str, Any], float]]:
    """Run trials, and yield the size, arrays and seconds of each launch.

    The next launch runs while the results of one are copied or counted. None is started if the
    launches before it take `limit` seconds.
    """
    running, at, stop, begun = None, span.start, span.stop, time.perf_counter()
    before = begun
    while at < stop or running is not None:
        started = None
        if running is not None and time.perf_counter() - begun + pace.last >= limit:
            stop = at
        if at < stop:
            size = min(pace.size, stop - at)
            started, at = (size, program.launch(key, size, at)), at + size
        if running is not None:
            size, launch = running
            part = program.collect(launch)
            seconds = time.perf_counter() - before
            before += seconds
            pace.took(size, seconds)
            yield size, part, seconds
        running = started


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
