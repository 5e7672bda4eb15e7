"""The execution of a study on a Dask cluster: workers run trials, the client writes them.

A trial is a pure function of the study and the trial's number, so its result does not depend on
the worker. If a worker stops, other workers repeat its trials.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import queue
import time
import warnings
from collections import deque
from typing import Any, NoReturn

from jax import Array

from nrjax.study.dask_team import Team
from nrjax.study.dask_worker import Refusal, environment_of, run_chunk, serialise
from nrjax.study.local import (
    FILE_SECONDS,
    CasePasses,
    Computed,
    Pace,
    Pending,
    Task,
    largest_file,
)
from nrjax.study.store import Store

_RETRIES = 2
"""The number of times that Dask repeats a task after an error."""

_LOOK_SECONDS = 2.0
"""The seconds between two looks at the workers."""


def run_on_dask(
    client: Any,
    store: Store,
    key: Array,
    passes: CasePasses,
    pending: Pending,
    progress: Any,
    *,
    worker_timeout: float | None = None,
) -> Computed:
    """Run pending trials on the workers of a Dask client, and yield the arrays of each file.

    Workers whose results would differ are left out. The file of a chunk on which several workers
    stopped is tried again alone, at the end: workers also stop because their job ends.

    Raises:
        ValueError: all workers would compute other results; the message lists the reasons.
        ConnectionError: several workers died during one task that ran alone, there is no worker for
            `worker_timeout` seconds, all are paused, or the scheduler is unreachable.
    """
    from distributed.scheduler import KilledWorker

    count = sum(len(span) for spans in pending.values() for span in spans)
    if not count:
        return
    if progress is not None:
        total = sum(len(store.wanted(case, name)) for case, name, _ in store.passes())
        progress.begin("all cases", "on the cluster", total, total - count)
    environment = environment_of(store.settings)
    data = serialise(passes, key, store.settings["fingerprints"])
    digest = hashlib.sha256(data).hexdigest()
    # The study is the result of a task, which survives lost workers. Scattered data would not.
    study = client.submit(_study_data, data, key=f"nrjax-study-{digest}", pure=False)
    waiting, suspects = _Waiting(store, passes, pending), deque[Task]()
    tasks: dict[Any, Task] = {}
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    team = Team(client, progress, worker_timeout)
    store.workers = team.counts
    alone: Task | None = None

    def submit(task: Task) -> None:
        where = {"workers": team.good, "allow_other_workers": True} if team.refused else {}
        future = client.submit(
            run_chunk, study, digest, environment, task, pure=False, retries=_RETRIES, **where
        )
        tasks[future] = task
        future.add_done_callback(done.put)

    before = looked = time.monotonic()
    try:
        team.look()
        while True:
            # Each worker has one file to run, and one in its queue.
            while waiting and len(tasks) < 2 * max(1, len(team.good)):
                submit(waiting.pop())
            if not tasks and suspects:
                alone = suspects.popleft()
                submit(alone)
            if not tasks:
                return
            future = None
            with contextlib.suppress(queue.Empty):
                future = done.get(timeout=_LOOK_SECONDS)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                team.look()
                looked = time.monotonic()
            if future is None:
                continue
            task = tasks.pop(future)
            if future.cancelled():
                _lost(client)
            try:
                reply = future.result()
            except KilledWorker as error:
                if task == alone:
                    _killed(task, error)
                suspects.append(task)
                continue
            if isinstance(reply, Refusal):
                _leave_out(team, reply)
                submit(task)
                continue
            arrays, seconds, compiling = reply
            waiting.took(task, seconds)
            yield task, arrays, seconds, compiling
            now = time.monotonic()
            if progress is not None:
                progress.advance(task.trials, now - before)
            before = now
    except OSError as error:
        if client.status == "running" or error.errno is not None:
            raise
        _lost(client)
    finally:
        client.cancel([*tasks], force=True)


def _leave_out(team: Team, refusal: Refusal) -> None:
    """Leave out a worker with one warning, or raise ValueError if no other one can run trials."""
    is_new = team.refuse(refusal.worker)
    if not team.good:
        team.look()  # others may have joined, or come back from a pause
    what = f"worker {refusal.worker} cannot take part, since {refusal.reason}"
    if not team.good:
        raise ValueError(what)
    if is_new:
        warnings.warn(f"{what}. The others go on.", stacklevel=3)


def _lost(client: Any) -> NoReturn:
    """Raise the error of a scheduler that cannot be reached any more."""
    address = getattr(getattr(client, "scheduler", None), "address", "")
    text = f"the Dask scheduler {address} is gone; finished trials are kept: start a scheduler"
    raise ConnectionError(errno.ECONNRESET, text)


def _killed(task: Task, error: Exception) -> NoReturn:
    """Raise the error of a task that stops its workers although it runs alone."""
    last = task.first + task.trials - 1
    raise ConnectionError(
        errno.ECONNABORTED,
        f"several workers stopped during trials {task.first} to {last} of {task.case}/{task.name}, "
        "which ran alone; finished trials are kept. See the logs of the workers: if they lack "
        "memory, give more. If their jobs end (walltime, preemption), start workers with "
        "--lifetime, a few minutes less than the walltime",
    ) from error


def _study_data(data: bytes) -> bytes:
    return data


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
