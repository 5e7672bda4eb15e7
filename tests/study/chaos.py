"""Chaos on a Dask cluster: workers that are killed, frozen, stopped politely and added at random.

    python -m tests.study.chaos [--seeds 20] [--seconds 30] [--every 1.5] [--first 0]

For each seed a study of 10^7 cheap trials runs, and is extended, while something happens to its
workers every so many seconds on average, from the first file on. After the seconds they are left in
peace until the run is finished. Then each trial must be there once, with the bits of a run without
a cluster, and nrjax must not have warned or failed. The program prints a line per seed, and exits
with 1 if one failed. Workers are forked from a process that has imported everything, since they
live for seconds only. A frozen worker counts as lost after 10 seconds.
"""

import argparse
import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import dask
import distributed

from nrjax.simulation.counting import merge
from nrjax.study import dask_queue
from nrjax.study.store import Store
from tests.study.interrupted import Then

TRIALS = 5_000_000
"""Trials of each of the two cases, which are added again and again until the time is over."""

MOST_WORKERS = 4
ACTIONS = {"kill": 4, "freeze": 3, "stop": 2, "retire": 2, "add": 8}
"""What happens to workers, with its relative frequency."""


def study():
    """Return a study of two cases that share a compilation."""
    from tests.study import cheap  # starts JAX, which must not be running when workers are forked

    cases = {"near": cheap.interaction(), "far": cheap.interaction(-2.0)}
    return cheap.study(cases)


async def serve(address):
    """Be a worker until it is stopped: SIGTERM closes it, SIGUSR1 retires it as --lifetime does."""
    worker = await distributed.Worker(address, nthreads=1, dashboard=False)
    loop, closing = asyncio.get_running_loop(), []
    ways = {signal.SIGTERM: worker.close, signal.SIGUSR1: worker.close_gracefully}
    for number, close in ways.items():
        action = lambda close=close: closing.append(loop.create_task(close()))  # noqa: E731
        loop.add_signal_handler(number, action)
    await worker.finished()


def work(address):
    """Be the process of a worker."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(Exception):  # the scheduler may be gone
        asyncio.run(serve(address))


class Chaos(threading.Thread):
    """A thread that adds workers, and does things to them at random for some seconds."""

    def __init__(self, address, seed, seconds, every):
        super().__init__(daemon=True)
        self.address, self.rng, self.stopping = address, random.Random(seed), threading.Event()
        self.seconds, self.every, self.started = seconds, every, threading.Event()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["distributed", "nrjax.study.dask"])
        self.workers, self.frozen, self.counts = [], {}, Counter()

    def run(self):
        for _ in range(3):
            self.add()
        self.started.wait()  # before the first file there is little to lose
        end = time.monotonic() + self.seconds
        while not self.stopping.wait(self.rng.expovariate(1 / self.every)):
            peace = time.monotonic() > end
            self.wake(math.inf if peace else time.monotonic())
            self.workers = [worker for worker in self.workers if worker.is_alive()]
            name = self.rng.choices([*ACTIONS], [*ACTIONS.values()])[0]
            if peace or name == "add":
                if len(self.workers) < (2 if peace else MOST_WORKERS):
                    self.add()
            elif self.workers:
                self.counts[name] += 1
                getattr(self, name)(self.rng.choice(self.workers))

    def add(self):
        """Start a worker."""
        worker = self.context.Process(target=work, args=(self.address,), daemon=True)
        worker.start()
        self.workers.append(worker)
        self.counts["add"] += 1

    def wake(self, now):
        """Continue the workers that have been frozen for long enough."""
        for worker in [worker for worker, end in self.frozen.items() if end < now]:
            self.send(worker, signal.SIGCONT)
            del self.frozen[worker]

    def kill(self, worker):
        """Kill a worker, frozen or not."""
        self.send(worker, signal.SIGKILL)

    def freeze(self, worker):
        """Stop a worker for some seconds, or until the scheduler has given it up."""
        self.send(worker, signal.SIGSTOP)
        self.frozen[worker] = time.monotonic() + self.rng.choice([0.5, 2.0, 5.0, 15.0])

    def stop(self, worker):
        """Stop a worker politely, as the end of a job does."""
        self.send(worker, signal.SIGTERM)

    def retire(self, worker):
        """Let a worker hand over its results and end."""
        self.send(worker, signal.SIGUSR1)

    @staticmethod
    def send(worker, number):
        """Send a signal to a worker that may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, number)

    def end(self):
        """Kill all workers."""
        self.stopping.set()
        self.started.set()
        self.join()
        for worker in self.workers:
            self.kill(worker)
            worker.join()


class Local:
    """The numbers of a run without a cluster, which grows as it is needed."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}

    def of(self, trials):
        """Return the merged arrays of each case."""
        for count in range(TRIALS, trials + 1, TRIALS):
            if count not in self.known:
                done = study().run(self.folder, trials=count, keep="summary", progress=False)
                self.known[count] = totals(done.store)
        return self.known[trials]


def totals(store):
    """Return the counts and moments of all trials, as bytes by case and name."""
    found = {}
    for case in store.cases:
        merged = merge(arrays for _, arrays in store.parts(case, "outcome"))
        merged.pop("seconds")
        found[case] = {name: array.tobytes() for name, array in merged.items()}
    return found


def survive(folder, local, seed, seconds, every):
    """Run a study in chaos, check its numbers, and return a line that describes what happened."""
    begun, trials = time.monotonic(), 0
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        chaos = Chaos(cluster.scheduler_address, seed, seconds, every)
        chaos.start()
        try:
            while not trials or time.monotonic() - begun < seconds:
                trials += TRIALS
                options = {
                    "keep": "summary",
                    "progress": Then(1, chaos.started.set),
                    "client": client,
                }
                study().run(folder, trials=trials, **options)
        finally:
            chaos.end()
    own = [str(each.message) for each in warned if "nrjax" in each.filename + str(each.message)]
    assert not own, own
    store = Store.open(folder)
    for case in store.cases:
        spans = store.written(case, "outcome")
        assert spans == store.done(case, "outcome"), "files overlap"
        assert sum(map(len, spans)) == trials
    assert totals(store) == local.of(trials), "other bits than those of the local run"
    files = sum(len(store.written(case, "outcome")) for case in store.cases)
    what = ", ".join(f"{number} x {name}" for name, number in sorted(chaos.counts.items()))
    took = time.monotonic() - begun
    return f"seed {seed}: {2 * trials:,} trials, {files} files, {took:.0f} s, {what}"


def main(arguments=None):
    """Run the seeds, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--every", type=float, default=1.5)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    dask.config.set({"distributed.scheduler.worker-ttl": "10s"})
    dask_queue.FILE_SECONDS = 0.5  # more files, in which more can happen
    failed, parent = 0, Path(tempfile.mkdtemp(prefix="chaos-"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(parent / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    local = Local(parent / "local")
    for seed in range(options.first, options.first + options.seeds):
        try:
            folder, times = parent / f"run-{seed}", (options.seconds, options.every)
            print(survive(folder, local, seed, *times), flush=True)
        except Exception as error:
            failed += 1
            print(f"seed {seed} FAILED: {type(error).__name__}: {error}", flush=True)
    shutil.rmtree(parent, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
