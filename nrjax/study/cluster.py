"""Trials dealt out to the workers of a Dask cluster, a file's at a time; only the client writes.

A trial is a pure function of the study and its number, so any worker makes the same bits. A worker
that dies loses the files that it had, which others take; workers come and go. What a worker needs
is sent to it once; it compiles each program once and uses all of its devices.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pickle
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import Array

from nrjax._extras import missing
from nrjax._tracing import sharing_traces
from nrjax.study import identity, machine
from nrjax.study.local import (
    FILE_SECONDS,
    Computed,
    Pace,
    PassSpecs,
    Pending,
    Task,
    largest_file,
    programs,
)
from nrjax.study.store import Store

FROM_FILES = "nrjax_study_"
"""How modules are called that were made from the file of a study."""

_AHEAD = 3
"""Files that are with the scheduler for each thread of a worker: so that none waits for work."""

_DEATHS = 3
"""Times that a file is sent again after the scheduler has given it up."""

_PATIENCE, _SLOWER = 10.0, 4.0
"""Seconds, and times the longest file, that must have passed without a result before the last
files are also sent to workers that have nothing to do."""


def by_workers(
    client: Any, store: Store, key: Array, plans: PassSpecs, pending: Pending, progress: Any
) -> Computed:
    """As `local.run_locally`, on the workers of a `dask.distributed.Client`.

    Raises:
        ValueError: on a worker other bits would come out, and why.
        ConnectionError: a file has ended several workers, or the scheduler is gone.
    """
    missing = sum(len(span) for spans in pending.values() for span in spans)
    if not missing:
        return
    if progress is not None:
        whole = sum(layout.trials for _, _, layout in store.passes())
        progress.begin("all cases", "on the cluster", whole, whole - missing)
    facts = {name: store.settings[name] for name in identity.circumstances()}
    before = time.monotonic()
    data = packed(plans, key, store.settings["fingerprints"])
    for done in _dealt(client, data, facts, _Waiting(store, plans, pending)):
        yield done
        before, begun = time.monotonic(), before
        if progress is not None:
            progress.advance(done[0].trials, before - begun)


class _Waiting:
    """The trials that no worker has yet, cut into files by how long those before them took."""

    def __init__(self, store: Store, plans: PassSpecs, pending: Pending):
        self._spans = {which: deque(spans) for which, spans in pending.items() if spans}
        self._pace: dict[tuple[str, str], Pace | None] = {}
        for case, name in self._spans:
            layout = store.layout_of(case, name)
            self._pace[case, name] = None  # a file is a whole chunk
            if layout.chunk is None:
                least = plans[case][name].make().batch
                self._pace[case, name] = Pace(least, largest_file(layout), FILE_SECONDS)
        self.again: list[Task] = []
        """Files that are to be sent once more."""

    def __bool__(self) -> bool:
        return bool(self._spans or self.again)

    def pop(self) -> Task:
        """Take the next file."""
        if self.again:
            return self.again.pop()
        which, spans = next(iter(self._spans.items()))
        span, pace = spans.popleft(), self._pace[which]
        size = len(span) if pace is None else min(len(span), pace.size)
        if size < len(span):
            spans.appendleft(span[size:])
        if not spans:
            del self._spans[which]
        return Task(*which, span.start, size)

    def took(self, task: Task, seconds: float) -> None:
        """Choose the size of later files, since this one took so long."""
        pace = self._pace[task.case, task.name]
        if pace is not None:
            pace.took(task.trials, seconds)


def packed(plans: PassSpecs, key: Array, fingerprints: Mapping[str, Any]) -> bytes:
    """What a worker needs, code of one's own from a file or a notebook included.

    Raises:
        ValueError: something of it cannot be sent.
    """
    cloudpickle = _cloudpickle()
    files = {name: getattr(one, "__file__", None) for name, one in list(sys.modules.items())}
    files = {name: Path(file).parent for name, file in files.items() if file}
    own = {folder for name, folder in files.items() if name.startswith(FROM_FILES)}
    for name, folder in files.items():  # with what they import from beside them
        if folder in own:
            cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        return cloudpickle.dumps((plans, jax.random.key_data(key), fingerprints))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"study: must be of what can be sent to workers ({error})") from error


def _dealt(client: Any, data: bytes, facts: Mapping[str, Any], waiting: _Waiting) -> Computed:
    """Yield files in the order in which they are done, a few at a time on their way."""
    from distributed.scheduler import KilledWorker

    # A task of its own: kept by the scheduler, so that it outlives every worker.
    digest = hashlib.sha256(data).hexdigest()
    sent = client.submit(_study_data, data, key=f"nrjax-study-{digest}", pure=False)
    deaths, missing = Counter[Task](), set[Task]()
    under_way: dict[Any, Task] = {}
    longest, last = 0.0, time.monotonic()
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def submit(task: Task, study: Any, **options: Any) -> None:
        name = f"nrjax-{task.case}-{task.name}-{task.first}-{time.time_ns()}"
        future = client.submit(run_chunk, study, digest, dict(facts), task, key=name, **options)
        under_way[future] = task
        future.add_done_callback(ended.put)

    try:
        while missing or waiting:
            room = _AHEAD * max(1, sum(client.nthreads().values()))
            while waiting and len(under_way) < room:
                missing.add(task := waiting.pop())
                submit(task, sent)
            try:
                future = ended.get(timeout=1.0)
            except queue.Empty:
                late = time.monotonic() - last > max(_PATIENCE, _SLOWER * longest)
                if late and not waiting:
                    idle = [worker for worker, keys in client.processing().items() if not keys]
                    copies = Counter(task for task in under_way.values() if task in missing)
                    once = [task for task, count in copies.items() if count == 1]
                    for task in once[: len(idle)]:
                        # With the study itself: what it was sent to may be frozen.
                        submit(task, data, workers=idle)
                    last = time.monotonic()
                continue
            task, last = under_way.pop(future), time.monotonic()
            if task not in missing:
                continue
            made = None
            if future.status == "finished":
                with contextlib.suppress(TimeoutError):  # its worker may be frozen since then
                    made = future.result(timeout=6 * _PATIENCE)
            if made is not None:
                missing.discard(task)
                longest = max(longest, made[1])
                waiting.took(task, made[1])
                yield task, *made
            elif task not in under_way.values():  # else the same file is with another worker
                error = future.exception() if future.status == "error" else None
                if error is not None and not isinstance(error, KilledWorker):
                    raise error
                deaths[task] += 1
                if deaths[task] > _DEATHS:
                    raise ConnectionError(
                        f"trials {task.first} to {task.first + task.trials - 1} of "
                        f"{task.case}/{task.name} have ended several workers, one after another; "
                        "what is done is kept: see their logs (too little memory?)"
                    ) from error
                waiting.again.append(task)
    finally:
        client.cancel([*under_way], force=True)
        sent.release()


def _study_data(data: bytes) -> bytes:
    return data


_LOCK = threading.Lock()
"""One file at a time in a process: it uses all devices."""

_MADE: dict[str, tuple[Any, Any]] = {}
"""The programs and the key of the last study that this process has worked for, by its digest."""


def run_chunk(
    data: bytes, digest: str, facts: Mapping[str, Any], task: Task
) -> tuple[dict[str, Any], float, float]:
    """Run the trials of a file, in a worker; ValueError if other bits would come out here."""
    from distributed import get_worker

    with _LOCK, sharing_traces():
        worker = get_worker()
        machine.prepare_jax(worker.state.nthreads)
        found = identity.differences(facts)
        if found:
            raise ValueError(
                f"worker {worker.address} cannot take part, where other bits would come out: "
                + "; ".join(found)
            )
        begun = time.perf_counter()
        if digest not in _MADE:
            plans, bits, stated = _cloudpickle().loads(data)
            # An older module of one's own may still be imported here.
            if identity.fingerprints(plans) != stated:
                raise ValueError(
                    f"worker {worker.address} cannot take part: it has other code of the study, or "
                    "of nrjax, than the client; start it again"
                )
            _MADE.clear()
            _MADE[digest] = programs(plans, stated), jax.random.wrap_key_data(bits)
        made, key = _MADE[digest]
        program = made[task.case, task.name]
        program.compile(key)
        compiled = time.perf_counter()
        run = program.run if task.trials <= program.chunk else program.run_all
        arrays = run(key, task.trials, task.first)
        return arrays, time.perf_counter() - compiled, compiled - begun


def _cloudpickle() -> Any:
    try:
        import cloudpickle
        import distributed  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error.name, "a cluster", "cluster") from error
    return cloudpickle


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """A client of a cluster: the scheduler's, or one of so many processes here; or None.

    Raises:
        OSError, ModuleNotFoundError: no scheduler is at that address, or Dask not installed.
    """
    if scheduler is None and workers is None:
        yield None
        return
    _cloudpickle()
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        if workers is None:
            try:
                client = Client(scheduler, timeout="30s")
            except (OSError, ValueError) as error:
                raise OSError(
                    f"scheduler = {scheduler!r}: must be the address of a Dask scheduler that can "
                    f"be reached from here, such as tcp://node1:8786 ({error})"
                ) from error
        else:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=max(1, machine.cores() // workers),
                dashboard_address=":0",
                silence_logs=logging.CRITICAL,
            )
            client = Client(stack.enter_context(cluster))
        yield stack.enter_context(client)
