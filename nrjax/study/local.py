"""Filling a store from compiled programs; by default on this process's devices.

A launch of a program and a file of the store are two sizes. A launch takes about a second, so that
progress moves, but fills the devices. A file is written after a few seconds of work, or after some
tens of megabytes, unless the user gives the trials of a file. Results depend on neither.
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
from nrjax.study import identity, machine
from nrjax.study.layout import Pass
from nrjax.study.passes import PassSpec
from nrjax.study.store import Store

Plans = Mapping[str, Mapping[str, PassSpec]]
"""By case and pass."""

_LATER = ("scipy.special", "nrjax.study.drawing")
"""What summary and figures need, and nothing before: slow to import."""


_COMPILERS = 8
"""Most programs compiled at a time: each takes memory."""

LAUNCH_SECONDS, FILE_SECONDS = 1.0, 4.0
"""Seconds that a launch should take, and after which its results are written."""

FILE_BYTES = 2**25
"""Bytes of results after which they are written, however fast they came."""

_GROWTH = 8
"""A launch has at most so many times the trials of the one before, whose pace may have been luck.
"""


class Progress(Protocol):
    """Records how a run goes on.

    A method `compiled()`, if it has one, is called when the compilation of a pass is done.
    """

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A pass of a case begins, with `done` of its `trials` there already; it compiles first."""

    def advance(self, trials: int, seconds: float) -> None:
        """Record that so many more trials are done; simulating them took so long."""


class Task(NamedTuple):
    """The trials of one file, of a pass of a case."""

    case: str
    name: str
    first: int
    trials: int


Pending = Mapping[tuple[str, str], list[range]]
"""The trials that are not done, by case and pass; no range crosses a chunk."""

Computed = Generator[tuple[Task, dict[str, Any], float, float], None, None]
"""Files with their arrays, seconds, and seconds of compilation before; each is in the store before
the next one is made."""


class Pace:
    """How many trials take so many seconds, from the trials that were run before.

    Args:
        least: the first number, and the smallest: trials that fill the devices once.
        most: the largest.
        seconds: what they should take.
    """

    def __init__(self, least: int, most: int, seconds: float):
        self.least, self.most, self.seconds = min(least, most), most, seconds
        self.size = self.least

    def took(self, trials: int, seconds: float) -> None:
        """Choose the next number, since so many trials took so long."""
        wanted = trials * self.seconds / max(seconds, 1e-9)
        batches = int(min(wanted, _GROWTH * self.size, self.most) // self.least)
        self.size = max(batches, 1) * self.least


def programs(
    plans: Plans, fingerprints: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], Program]:
    """Return the program of each pass; passes alike in all but numbers share a compilation."""
    return {
        (case, name): dataclasses.replace(
            spec.make(), meaning=fingerprints[case][name][: identity.PROGRAM]
        )
        for case, passes in plans.items()
        for name, spec in passes.items()
    }


def fill(
    store: Store,
    key: Array,
    plans: Plans,
    progress: Progress | None,
    compute: Callable[[Store, Array, Plans, Pending, Progress | None], Computed],
) -> None:
    """Run every trial that is not done yet; kill it at any moment and call it again.

    Cases share the key, and with it their random numbers. `compute` is `here`, or on workers; this
    process alone writes.

    Raises:
        StoreBusyError, StoreError, OSError: as `Store.writer` and `Writer.write`.
    """
    with store.writer() as writer:
        pending = {
            (case, name): store.pending(case, name)
            for case, passes in plans.items()
            for name in passes
        }
        with contextlib.closing(compute(store, key, plans, pending, progress)) as computed:
            for (case, name, first, trials), arrays, *seconds in computed:
                kept = {key: arrays[key] for key in store.layout_of(case, name).variables}
                writer.write(case, name, range(first, first + trials), kept, *seconds)


def here(
    store: Store, key: Array, plans: Plans, pending: Pending, progress: Progress | None
) -> Computed:
    """On the devices of this process, a pass after the other."""
    made = programs(plans, store.settings["fingerprints"]) if any(pending.values()) else {}
    # Compiled in their order, in threads, while others run: XLA uses one core for most of it.
    threads = ThreadPoolExecutor(min(machine.cores(), _COMPILERS), "compilation")
    ahead: dict[Any, Future[float]] = {}
    try:
        for which, spans in pending.items():
            kind = made[which].kind if spans else None
            if spans and kind not in ahead:
                ahead[kind] = threads.submit(_prepare, made[which], key)
        for module in _LATER if ahead else ():
            threads.submit(importlib.import_module, module)
        for which, spans in pending.items():
            layout = store.layout_of(*which)
            if progress is not None:
                progress.begin(*which, layout.trials, layout.trials - sum(map(len, spans)))
            if not spans:
                continue
            # Of those that share a compilation the first has its seconds.
            compiled = ahead.pop(made[which].kind, None)
            compiling = 0.0 if compiled is None else compiled.result()
            before = time.perf_counter()
            made[which].compile(key)
            compiling += time.perf_counter() - before
            getattr(progress, "compiled", lambda: None)()
            for span, arrays, seconds in _files(made[which], key, layout, spans, progress):
                yield Task(*which, span.start, len(span)), arrays, seconds, compiling
                compiling = 0.0
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def largest_file(layout: Pass) -> int:
    """Return the most trials of a file, by its bytes; those of histograms do not grow."""
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
    """Run trials; yields the trials of each file, their arrays, and the seconds they took."""
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
    """Compile ahead; gives the seconds."""
    before = time.perf_counter()
    # Accelerators choose among algorithms by timing them, which a run would disturb. What fails
    # here fails again where the program is needed, and is raised there.
    if jax.local_devices()[0].platform == "cpu":
        with contextlib.suppress(Exception):
            program.prepare(key)
    return time.perf_counter() - before
