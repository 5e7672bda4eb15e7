"""The workers of a Dask client: which are connected, paused, lost or refused."""

from __future__ import annotations

import errno
import time
from typing import Any

_PAUSED_SECONDS = 60.0
"""The seconds after which a run fails if all workers are paused."""


class Team:
    """The workers of a client, as the scheduler last described them.

    Args:
        client: `dask.distributed.Client`.
        progress: reporter of progress, or None. If it has a method `workers(connected, paused,
            lost)`, it is called after each look.
        worker_timeout: seconds without a worker after which to give up; None waits for ever.

    Attributes:
        good: addresses of the workers that can run trials now.
        refused: addresses of workers whose results would differ.
        counts: numbers of workers: `connected` (the most at a time), `paused` (now), `lost` and
            `refused`.
    """

    def __init__(self, client: Any, progress: Any, worker_timeout: float | None):
        self._client, self._progress, self._timeout = client, progress, worker_timeout
        self.good: list[str] = []
        self.refused: set[str] = set()
        self.counts = {"connected": 0, "paused": 0, "lost": 0, "refused": 0}
        self._seen: set[str] = set()
        self._idle_since = time.monotonic()

    def look(self) -> None:
        """Ask the scheduler for its workers.

        Raises:
            ConnectionError: all workers are paused for a minute, or there is none for too long.
            OSError: the scheduler is gone.
        """
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        paused = {name for name, facts in workers.items() if facts.get("status") == "paused"}
        self._seen |= {*workers}
        self.good = [name for name in workers if name not in paused | self.refused]
        connected, lost = len(workers), len(self._seen - {*workers})
        self.counts |= {
            "connected": max(self.counts["connected"], connected),
            "paused": len(paused),
            "lost": lost,
        }
        report = getattr(self._progress, "workers", None)
        if report is not None:
            report(connected, len(paused), lost)
        if self.good:
            self._idle_since = time.monotonic()
        self._give_up(len(paused), connected)

    def _give_up(self, paused: int, connected: int) -> None:
        """Raise ConnectionError if no worker has been able to run trials for too long."""
        idle = time.monotonic() - self._idle_since
        if connected and paused == connected and idle > _PAUSED_SECONDS:
            raise ConnectionError(
                errno.ECONNABORTED,
                f"all {connected} workers have been paused for {idle:.0f} s, since they lack "
                "memory; finished trials are kept: give the workers more memory",
            )
        if self._timeout is not None and not self.good and idle > self._timeout:
            raise ConnectionError(
                errno.ECONNABORTED,
                f"no worker of the cluster could run trials for {idle:.0f} s; finished trials are "
                "kept: start workers",
            )

    def refuse(self, worker: str) -> bool:
        """Leave out a worker, and return whether it took part before."""
        if worker in self.refused:
            return False
        self.refused.add(worker)
        self.counts["refused"] += 1
        self.good = [name for name in self.good if name not in self.refused]
        return True
