"""The trials of a run that no worker has yet, and the pieces in which workers get them."""

from __future__ import annotations

from collections import deque

from nrjax.study.local import FILE_SECONDS, LAUNCH_SECONDS, CasePasses, Pending, Task
from nrjax.study.store import Store

_FILE_INTERVAL = 0.125
"""The least seconds between two files of all workers together, since one client writes them."""

_SHORTEST = 8
"""How many times shorter than usual the last files of a run may be."""


def file_seconds(workers: int) -> float:
    """Return the seconds of work per file, for a number of workers."""
    return max(FILE_SECONDS, workers * _FILE_INTERVAL)


class Waiting:
    """The queue of trials without a worker.

    A worker gets a span of trials, runs some of them for the seconds of a file, and leaves the
    rest, which goes back to the queue. The speed of a worker therefore needs no guess. Spans shrink
    with the trials that are left, so that all workers finish at about the same time.
    """

    def __init__(self, store: Store, passes: CasePasses, pending: Pending):
        self._spans = deque((name, span) for name, spans in pending.items() for span in spans)
        self._left = sum(len(span) for _, span in self._spans)
        self._rate: dict[tuple[str, str], float] = {}
        self._batch = {  # passes with a given chunk have none: a file is then a whole chunk
            (case, name): passes[case][name].program().batch
            for case, name in pending
            if store.pass_of(case, name).chunk is None
        }

    def __bool__(self) -> bool:
        return bool(self._spans)

    def pop(self, workers: int) -> Task:
        """Return the trials for one of `workers` workers, and remove them from the queue."""
        name, span = self._spans.popleft()
        size = len(span)
        batch = self._batch.get(name)
        if batch is not None:
            seconds = max(LAUNCH_SECONDS, file_seconds(workers) / _SHORTEST)
            share = max(self._left / (2 * workers), self._rate.get(name, 0.0) * seconds)
            size = min(size, -int(-share // batch) * batch)
        if size < len(span):
            self._spans.appendleft((name, span[size:]))
        self._left -= size
        return Task(*name, span.start, size)

    def took(self, task: Task, trials: int, seconds: float) -> Task:
        """Return the first trials of a task, which took some seconds, and queue the rest again."""
        self._rate[task.case, task.name] = trials / max(seconds, 1e-9)
        rest = range(task.first + trials, task.first + task.trials)
        if rest:
            self._spans.appendleft(((task.case, task.name), rest))
            self._left += len(rest)
        return task._replace(trials=trials)
