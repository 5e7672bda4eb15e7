"""Compilation of programs in threads while others run, because XLA compiles mostly on one core."""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax import Array

from nrjax.simulation.program import Program
from nrjax.study import devices

_COMPILERS = 8
"""The largest number of programs to compile at a time, since each takes memory."""


@contextlib.contextmanager
def compiled_ahead(
    programs: Iterable[Program], key: Array, modules: Iterable[str] = ()
) -> Iterator[Callable[[Program], float]]:
    """Compile programs in threads in the given order, and then import slow modules there.

    The block gets a function that waits until a program is compiled. It returns the seconds, which
    are those of the first program that needs them if several share a compilation.
    """
    threads = ThreadPoolExecutor(min(devices.cores(), _COMPILERS), "compilation")
    ahead: dict[Any, Future[float]] = {}

    def compiled(program: Program) -> float:
        started = ahead.pop(program.kind, None)
        seconds = 0.0 if started is None else started.result()
        before = time.perf_counter()
        program.compile(key)
        return seconds + time.perf_counter() - before

    try:
        for program in programs:
            if program.kind not in ahead:
                ahead[program.kind] = threads.submit(_prepare, program, key)
        for module in modules:
            threads.submit(importlib.import_module, module)
        yield compiled
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _prepare(program: Program, key: Array) -> float:
    """Compile a program before its first run, and return the seconds that this took."""
    before = time.perf_counter()
    # Accelerators time algorithms to choose one, which trials that run meanwhile would disturb.
    # An error is ignored here, since it occurs again, and is raised, when the program is needed.
    if jax.local_devices()[0].platform == "cpu":
        with contextlib.suppress(Exception):
            program.prepare(key)
    return time.perf_counter() - before
