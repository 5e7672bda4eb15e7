"""The execution of a study on a Dask cluster: workers run trials, the client writes them.

A trial is a pure function of the study and the trial's number, so its result does not depend on
the worker. If a worker dies, Dask gives the worker's tasks to other workers. Each worker receives
the study once, compiles each program once, and uses all of its devices.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax import Array

from nrjax._base.extras import missing
from nrjax.study import devices, provenance
from nrjax.study.local import (
    FILE_SECONDS,
    CasePasses,
    Computed,
    Pace,
    Pending,
    Task,
    largest_file,
    programs,
)
from nrjax.study.store import Store

USER_MODULE_PREFIX = "nrjax_study_"
"""The prefix of the module name under which the file of a study is imported."""

_RETRIES = 2
"""The number of times that Dask repeats a task after an error."""


def run_on_dask(
    client: Any, store: Store, key: Array, passes: CasePasses, pending: Pending, progress: Any
) -> Computed:
    """Run pending trials on the workers of a Dask client, and yield the arrays of each file.

    Raises:
        ValueError: a worker would compute other results; the message lists the reasons.
        ConnectionError: several workers died during one task, or the scheduler is unreachable.
    """
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    count = sum(len(span) for spans in pending.values() for span in spans)
    if not count:
        return
    if progress is not None:
        total = sum(len(store.wanted(case, name)) for case, name, _ in store.passes())
        progress.begin("all cases", "on the cluster", total, total - count)
    environment = {name: store.settings[name] for name in provenance.environment()}
    data = serialise(passes, key, store.settings["fingerprints"])
    digest = hashlib.sha256(data).hexdigest()
    # The study is the result of a task, which survives lost workers. Scattered data would not.
    study = client.submit(_study_data, data, key=f"nrjax-study-{digest}", pure=False)
    waiting = _Waiting(store, passes, pending)
    tasks: dict[Any, Task] = {}

    def submit() -> list[Any]:
        """Submit tasks until every thread of the workers has one to run and one in its queue."""
        futures = []
        while waiting and len(tasks) < 2 * max(1, sum(client.nthreads().values())):
            task = waiting.pop()
            future = client.submit(
                run_chunk, study, digest, environment, task, pure=False, retries=_RETRIES
            )
            tasks[future] = task
            futures.append(future)
        return futures

    before = time.monotonic()
    try:
        completed = as_completed(submit())
        for future in completed:
            task = tasks.pop(future)
            if future.cancelled():
                raise ConnectionError("the Dask scheduler is gone; finished trials are kept")
            try:
                arrays, seconds, compiling = future.result()
            except KilledWorker as error:
                last = task.first + task.trials - 1
                raise ConnectionError(
                    f"several workers died from trials {task.first} to {last} of "
                    f"{task.case}/{task.name}; finished trials are kept. See the logs of the "
                    "workers (too little memory?)"
                ) from error
            waiting.took(task, seconds)
            completed.update(submit())
            yield task, arrays, seconds, compiling
            now = time.monotonic()
            if progress is not None:
                progress.advance(task.trials, now - before)
            before = now
    finally:
        client.cancel([*tasks], force=True)


class _Waiting:
    """The queue of trials without a worker, cut into files that take about equally long."""

    def __init__(self, store: Store, passes: CasePasses, pending: Pending):
        self._spans = deque((name, span) for name, spans in pending.items() for span in spans)
        self._pace: dict[tuple[str, str], Pace] = {}
        for case, name in pending:
            pass_ = store.pass_of(case, name)
            if pass_.chunk is None:  # otherwise a file is a whole chunk
                least = passes[case][name].program().batch
                self._pace[case, name] = Pace(least, largest_file(pass_), FILE_SECONDS)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def pop(self) -> Task:
        """Return the trials of the next file, and remove them from the queue."""
        name, span = self._spans.popleft()
        pace = self._pace.get(name)
        size = len(span) if pace is None else min(len(span), pace.size)
        if size < len(span):
            self._spans.appendleft((name, span[size:]))
        return Task(*name, span.start, size)

    def took(self, task: Task, seconds: float) -> None:
        """Choose the size of later files from the seconds that one file took."""
        pace = self._pace.get((task.case, task.name))
        if pace is not None:
            pace.took(task.trials, seconds)


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


def _study_data(data: bytes) -> bytes:
    return data


_LOCK = threading.Lock()
"""A lock to compute one file at a time, since a file uses all devices of the worker."""

_STUDY: dict[str, tuple[Any, Any]] = {}
"""The programs and the key of the study that this worker ran last, by the study's digest."""


def run_chunk(
    data: bytes, digest: str, environment: Mapping[str, Any], task: Task
) -> tuple[dict[str, Any], float, float]:
    """Run the trials of one file in a worker.

    Raises:
        ValueError: the results would differ from those of the client's environment or code.
    """
    from distributed import get_worker

    with _LOCK:
        worker = get_worker()
        devices.configure_jax(worker.state.nthreads)
        changes = provenance.environment_changes(environment)
        if changes:
            raise ValueError(
                f"worker {worker.address} cannot take part, since its results would differ: "
                + "; ".join(changes)
            )
        start = time.perf_counter()
        if digest not in _STUDY:
            passes, key_data, fingerprints = import_cloudpickle().loads(data)
            # The worker may have imported an older version of a module.
            if provenance.fingerprints(passes) != fingerprints:
                raise ValueError(
                    f"worker {worker.address} cannot take part: its code of the study or nrjax is "
                    "not the client's; restart it"
                )
            _STUDY.clear()
            _STUDY[digest] = programs(passes, fingerprints), jax.random.wrap_key_data(key_data)
        compiled_programs, key = _STUDY[digest]
        program = compiled_programs[task.case, task.name]
        program.compile(key)
        compiled = time.perf_counter()
        run = program.run if task.trials <= program.launch_size else program.run_all
        arrays = run(key, task.trials, task.first)
        return arrays, time.perf_counter() - compiled, compiled - start


def import_cloudpickle() -> Any:
    """Return the module cloudpickle, or raise ModuleNotFoundError if Dask is not installed."""
    try:
        import cloudpickle
        import distributed  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error.name, "a cluster", "cluster") from error
    return cloudpickle
