"""Filling a store from compiled programs, chunk by chunk, on the devices of this process."""

import contextlib
import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import jax
from jax import Array

from nrjax.simulation.program import Program
from nrjax.study.plans import Plan
from nrjax.study.store import Store, Writer

Plans = Mapping[str, Mapping[str, Plan]]
"""By case and pass."""


class Progress(Protocol):
    """Is told how a run goes on."""

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A pass of a case begins, with `done` of its `trials` there already; it compiles first."""
        ...

    def advance(self, trials: int, seconds: float) -> None:
        """So many more trials are in the store; simulating them took so long."""
        ...


def programs(plans: Plans) -> dict[tuple[str, str], Program]:
    """What computes each pass of each case; those alike in all but numbers share a compilation."""
    return {
        (case, name): plan.make() for case, passes in plans.items() for name, plan in passes.items()
    }


def fill(
    store: Store,
    key: Array,
    plans: Plans,
    progress: Progress | None = None,
    modules: Sequence[str] = (),
) -> None:
    """Run every chunk that is not done yet; kill it at any moment and call it again.

    Args:
        store: where the results go.
        key: the study's key; cases share it, and with it their random numbers.
        plans: what is run.
        progress: told of every chunk.
        modules: needed when all chunks are done; imported while they run.

    Raises:
        StoreBusyError, StoreError, OSError: as `Store.writer` and `Writer.write`.
    """
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(store.writer())
        pending = {
            (case, name): writer.pending(case, name) for case in plans for name in plans[case]
        }
        made = programs(plans) if any(pending.values()) else {}
        wanted = [made[which] for which, chunks in pending.items() if chunks]
        ahead = iter(stack.enter_context(_prepared(wanted, key, modules)))
        for which, chunks in pending.items():
            tell(progress, store, which, chunks)
            if chunks:
                _run(writer, store, key, which, made[which], chunks, next(ahead), progress)


def tell(
    progress: Progress | None, store: Store, which: tuple[str, str], pending: Sequence[int]
) -> None:
    """Of what is there of a pass, and what is to be done."""
    if progress is not None:
        layout = store.layout_of(*which)
        there = layout.trials - int(layout.sizes()[list(pending)].sum())
        progress.begin(*which, layout.trials, there)


@contextlib.contextmanager
def _prepared(
    programs: Sequence[Program], key: Array, modules: Sequence[str]
) -> Iterator[list[Future[float]]]:
    """Compile the programs in their order, in a thread, while others run; gives the seconds.

    Then import the modules.
    """

    def prepare(program: Program) -> float:
        before = time.perf_counter()
        # Accelerators choose among algorithms by timing them, which a run would disturb. What
        # fails here fails again where the program is needed, and is raised there.
        if jax.local_devices()[0].platform == "cpu":
            with contextlib.suppress(Exception):
                program.prepare(key)
        return time.perf_counter() - before

    thread = ThreadPoolExecutor(1, "compilation")
    try:
        prepared = [thread.submit(prepare, program) for program in programs]
        for module in modules if programs else ():
            thread.submit(importlib.import_module, module)
        yield prepared
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _run(
    writer: Writer,
    store: Store,
    key: Array,
    which: tuple[str, str],
    program: Program,
    chunks: Sequence[int],
    ahead: Future[float],
    progress: Progress | None,
) -> None:
    compiling = ahead.result()
    before = time.perf_counter()
    program.compile(key)
    compiling += time.perf_counter() - before
    layout = store.layout_of(*which)
    for chunk in chunks:
        span = layout.span(chunk)
        before = time.perf_counter()
        results = program.run(key, span.stop - span.start, span.start)
        seconds = time.perf_counter() - before
        kept = {variable: results[variable] for variable in layout.variables}
        writer.write(*which, chunk, kept, seconds, compiling)
        compiling = 0.0
        if progress is not None:
            progress.advance(span.stop - span.start, seconds)
