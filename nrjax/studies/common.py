"""What the studies share: sizes of chunks, and filling a store from compiled programs."""

import contextlib
import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import jax
from jax import Array

from nrjax.program import Program
from nrjax.studies.group import ALONE, Group
from nrjax.studies.precision import CHUNK
from nrjax.studies.settings import RunSettings
from nrjax.studies.store import Store, Writer

__all__ = ["Progress", "chunk_size", "fill"]

SUMMARY_CHUNKS = (16_000, 128_000, 1_024_000)
"""Trials that are folded into one row, where summaries are kept: the fewest, the fewest of a run
of unknown length, and the most. All are 1000 x 2^k."""


class Progress(Protocol):
    """Is told how a run goes on."""

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A pass of a case begins, with `done` of its `trials` there already; it compiles first."""
        ...

    def advance(self, trials: int, seconds: float) -> None:
        """So many more trials are in the store; simulating them took so long."""
        ...


def chunk_size(settings: RunSettings) -> int:
    """Trials between two writes to a store: `chunk`, if that is given.

    Else small enough for a bar to move often and for a kill to lose little, large enough to fill
    the lanes, and where trials are added until an error is small, such that chunks are full at each
    look. It may be more than there are trials, for more may be added later.
    """
    if settings.chunk is not None:
        return settings.chunk
    if settings.keep == "summary":
        few, unknown, many = SUMMARY_CHUNKS
        least = few if settings.until_se is None else unknown
        wanted = 1000 << max(settings.trials // 16_000, 1).bit_length()
        return min(many, max(least, wanted))
    if settings.until_se is not None:
        return CHUNK
    return min(4096, max(1024, 1 << (settings.trials // 16).bit_length()))


def fill(
    store: Store,
    key: Array,
    programs: Mapping[str, Mapping[str, Program]],
    progress: Progress | None = None,
    group: Group = ALONE,
    modules: Sequence[str] = (),
) -> None:
    """Run every chunk that is not done yet; kill it at any moment and call it again.

    Args:
        store: where the results go.
        key: the study's key; cases share it, and with it their random numbers.
        programs: by case and pass.
        progress: told of every chunk.
        group: the processes that share the chunks; each calls this.
        modules: needed when all chunks are done; imported while they run.

    Raises:
        StoreBusyError, StoreError, OSError: as `Store.writer` and `Writer.write`.
    """
    with contextlib.ExitStack() as stack:
        if not group.first:
            group.wait("the store is cleared up")
        writer = stack.enter_context(store.writer(group.rank))
        if group.first:
            group.wait("the store is cleared up")
        works = [
            (case, name, program, writer.pending(case, name))
            for case, passes in programs.items()
            for name, program in passes.items()
        ]
        # By the pass's number: else the single chunks of small passes would all be one process's.
        shares = [group.share(work[-1], number) for number, work in enumerate(works)]
        wanted = [work[2] for work, mine in zip(works, shares, strict=True) if mine]
        ahead = iter(stack.enter_context(_prepared(wanted, key, modules)))
        for (case, name, program, pending), mine in zip(works, shares, strict=True):
            _tell(progress, store, (case, name), pending, mine)
            if mine:
                compiling = _compile(program, key, next(ahead))
                _run(writer, store, key, (case, name), program, mine, compiling, progress)


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


def _tell(
    progress: Progress | None,
    store: Store,
    which: tuple[str, str],
    pending: list[int],
    mine: list[int],
) -> None:
    """Of what is there and what this process is to do; the others' work is not counted."""
    if progress is not None:
        layout = store.cases[which[0]].passes[which[1]]
        sizes = layout.sizes()
        there = layout.trials - int(sizes[pending].sum())
        progress.begin(*which, there + int(sizes[mine].sum()), there)


def _compile(program: Program, key: Array, ahead: Future[float]) -> float:
    """Seconds that it took."""
    seconds = ahead.result()
    before = time.perf_counter()
    program.compile(key)
    return seconds + time.perf_counter() - before


def _run(
    writer: Writer,
    store: Store,
    key: Array,
    which: tuple[str, str],
    program: Program,
    chunks: Sequence[int],
    compiling: float,
    progress: Progress | None,
) -> None:
    layout = store.cases[which[0]].passes[which[1]]
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
