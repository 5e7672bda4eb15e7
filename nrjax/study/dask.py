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

from nrjax.study.dask_queue import Waiting, file_seconds
from nrjax.study.dask_team import Team
from nrjax.study.dask_worker import Refusal, environment_of, run_file, serialise
from nrjax.study.local import CasePasses, Computed, Pending, Task
from nrjax.study.store import Store

_RETRIES = 2
"""The number of times that Dask repeats a task after an error."""

_LOOK_SECONDS = 2.0
"""The seconds between two looks at the workers."""

_GATHER_SECONDS = 30.0
"""The seconds after which to ask whether the result of a task is lost."""


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

    Workers whose results would differ are left out. The trials on which several workers stopped are
    tried again alone, at the end: workers also stop because their job ends.

    Raises:
        ValueError: all workers would compute other results; the message lists the reasons.
        ConnectionError: several workers died during one task that ran alone, there is no worker for
            `worker_timeout` seconds, all are paused, or the scheduler is unreachable.
    """
    count = sum(len(span) for spans in pending.values() for span in spans)
    if not count:
        return
    if progress is not None:
        total = sum(len(store.wanted(case, name)) for case, name, _ in store.passes())
        progress.begin("all cases", "on the cluster", total, total - count)
    team = Team(client, progress, worker_timeout)
    store.workers = team.counts
    tasks = _Tasks(client, team, store, key, passes)
    waiting, before = Waiting(store, passes, pending), time.monotonic()
    try:
        team.look()
        while tasks.submit(waiting):
            ended = tasks.ended()
            if ended is None:
                continue
            task, (trials, arrays, seconds, compiling) = ended
            done = waiting.took(task, trials, seconds)
            yield done, arrays, seconds, compiling
            now = time.monotonic()
            if progress is not None:
                progress.advance(trials, now - before)
            before = now
    except OSError as error:
        if client.status == "running" or error.errno is not None:
            raise
        _lost(client)
    finally:
        tasks.cancel()


class _Tasks:
    """The tasks that workers run or have in their queues, and those that stopped workers."""

    def __init__(self, client: Any, team: Team, store: Store, key: Array, passes: CasePasses):
        self._client, self._team = client, team
        self._environment = environment_of(store.settings)
        data = serialise(passes, key, store.settings["fingerprints"])
        self._digest = hashlib.sha256(data).hexdigest()
        # The study is the result of a task, which survives lost workers. Scattered data would not.
        name = f"nrjax-study-{self._digest}"
        self._study = client.submit(_study_data, data, key=name, pure=False)
        self._running: dict[Any, Task] = {}
        self._suspects: deque[Task] = deque()
        self._alone: Task | None = None
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._looked = time.monotonic()

    def submit(self, waiting: Waiting) -> bool:
        """Give trials to the workers, and return whether any task is left.

        Each worker gets one task to run, and one for its queue.
        """
        workers = max(1, len(self._team.good))
        while waiting and len(self._running) < 2 * workers:
            self._submit(waiting.pop(workers))
        if not self._running and self._suspects:
            self._alone = self._suspects.popleft()
            self._submit(self._alone)
        return bool(self._running)

    def _submit(self, task: Task) -> None:
        team, where = self._team, {}
        if team.refused:
            where = {"workers": team.good, "allow_other_workers": True}
        facts = self._digest, self._environment, task, file_seconds(len(team.good))
        options = {"pure": False, "retries": _RETRIES, **where}
        self._follow(self._client.submit(run_file, self._study, *facts, **options), task)

    def _follow(self, future: Any, task: Task) -> None:
        """Put a future into the queue of ended ones as soon as it has a result."""
        self._running[future] = task
        future.add_done_callback(self._done.put)

    def ended(self) -> tuple[Task, Any] | None:
        """Wait for a task, and return it with the worker's reply.

        None is returned if no task ends for a while, or if the task has to be repeated.
        """
        from distributed.scheduler import KilledWorker

        future = None
        with contextlib.suppress(queue.Empty):
            future = self._done.get(timeout=_LOOK_SECONDS)
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._team.look()
            self._looked = time.monotonic()
        if future is None:
            return None
        task = self._running.pop(future)
        if future.cancelled():
            _lost(self._client)
        try:
            reply = future.result(timeout=_GATHER_SECONDS)
        except TimeoutError:  # the worker is gone, and others repeat its trials
            if future.status == "error":  # of the study itself
                raise
            self._follow(future, task)
            return None
        except KilledWorker as error:
            if task == self._alone:
                _killed(task, error)
            self._suspects.append(task)
            return None
        if isinstance(reply, Refusal):
            _leave_out(self._team, reply)
            self._submit(task)
            return None
        return task, reply

    def cancel(self) -> None:
        """Take back all tasks."""
        self._client.cancel([*self._running], force=True)


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
