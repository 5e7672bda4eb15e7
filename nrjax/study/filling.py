"""Filling a store from compiled programs, chunk by chunk; by default on this process's devices."""

import contextlib
import dataclasses
import importlib
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array

from nrjax.simulation.program import Program
from nrjax.study import identity, machine
from nrjax.study.plans import Plan
from nrjax.study.store import Store

Plans = Mapping[str, Mapping[str, Plan]]
"""By case and pass."""

_LATER = ("scipy.special", "nrjax.study.drawing")
"""What summary and figures need, and nothing before: slow to import."""


_COMPILERS = 8
"""Most programs compiled at a time: each takes memory."""


class Progress(Protocol):
    """Is told how a run goes on."""

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A pass of a case begins, with `done` of its `trials` there already; it compiles first."""

    def advance(self, trials: int, seconds: float) -> None:
        """So many more trials are in the store; simulating them took so long."""


class Task(NamedTuple):
    """One chunk of a pass of a case."""

    case: str
    name: str
    chunk: int
    first: int
    trials: int


Pending = Mapping[tuple[str, str], list[Task]]
"""The chunks that are not done, by case and pass."""

Computed = Generator[tuple[Task, dict[str, Any], float, float], None, None]
"""Chunks with their arrays, seconds, and seconds of compilation before; each is in the store before
it is told of and the next one made."""


def programs(
    plans: Plans, fingerprints: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], Program]:
    """What computes each pass of each case; those alike in all but numbers share a compilation."""
    return {
        (case, name): dataclasses.replace(
            plan.make(), meaning=fingerprints[case][name][: identity.PROGRAM]
        )
        for case, passes in plans.items()
        for name, plan in passes.items()
    }


def fill(
    store: Store,
    key: Array,
    plans: Plans,
    progress: Progress | None,
    compute: Callable[[Store, Array, Plans, Pending, Progress | None], Computed],
) -> None:
    """Run every chunk that is not done yet; kill it at any moment and call it again.

    Cases share the key, and with it their random numbers. `compute` is `here`, or on workers; this
    process alone writes.

    Raises:
        StoreBusyError, StoreError, OSError: as `Store.writer` and `Writer.write`.
    """
    with store.writer() as writer:
        pending = {
            (case, name): [
                Task(case, name, chunk, span.start, span.stop - span.start)
                for chunk in writer.pending(case, name)
                for span in [store.layout_of(case, name).span(chunk)]
            ]
            for case, passes in plans.items()
            for name in passes
        }
        with contextlib.closing(compute(store, key, plans, pending, progress)) as computed:
            for (case, name, chunk, *_), arrays, *seconds in computed:
                kept = {key: arrays[key] for key in store.layout_of(case, name).variables}
                writer.write(case, name, chunk, kept, *seconds)


def here(
    store: Store, key: Array, plans: Plans, pending: Pending, progress: Progress | None
) -> Computed:
    """On the devices of this process, a pass after the other."""
    made = programs(plans, store.settings["fingerprints"]) if any(pending.values()) else {}
    # Compiled in their order, in threads, while others run: XLA uses one core for most of it.
    threads = ThreadPoolExecutor(min(machine.cores(), _COMPILERS), "compilation")
    ahead: dict[Any, Future[float]] = {}
    try:
        for which, tasks in pending.items():
            kind = made[which].kind if tasks else None
            if tasks and kind not in ahead:
                ahead[kind] = threads.submit(_prepare, made[which], key)
        for module in _LATER if ahead else ():
            threads.submit(importlib.import_module, module)
        for which, tasks in pending.items():
            if progress is not None:
                trials = store.layout_of(*which).trials
                progress.begin(*which, trials, trials - sum(task.trials for task in tasks))
            if not tasks:
                continue
            # Of those that share a compilation the first has its seconds.
            compiled = ahead.pop(made[which].kind, None)
            compiling = 0.0 if compiled is None else compiled.result()
            before = time.perf_counter()
            made[which].compile(key)
            compiling += time.perf_counter() - before
            for task in tasks:
                before = time.perf_counter()
                arrays = made[which].run(key, task.trials, task.first)
                seconds = time.perf_counter() - before
                yield task, arrays, seconds, compiling
                compiling = 0.0
                if progress is not None:
                    progress.advance(task.trials, seconds)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _prepare(program: Program, key: Array) -> float:
    """Compile ahead; gives the seconds."""
    before = time.perf_counter()
    # Accelerators choose among algorithms by timing them, which a run would disturb. What fails
    # here fails again where the program is needed, and is raised there.
    if jax.local_devices()[0].platform == "cpu":
        with contextlib.suppress(Exception):
            program.prepare(key)
    return time.perf_counter() - before
