"""Claim: a cheap study on W workers of one core runs at 0.9 W of one core's rate of `simulate`.

    python -m benchmarks.workers [--workers 1 2] [--sleeping 1 16 64 256] [--seconds 60]

Every worker is pinned to a core. Rounds alternate between `nrjax.simulate` on one core and the same
number of trials per worker in a study that keeps summaries, without the seconds of a small study
(fingerprints, the report). Client and scheduler share the cores with the workers. `busy` is the
fraction of the time in which the workers ran trials, by their own clocks. The ratio of trials per
processor second, without that of client and scheduler, hardly depends on other work on the machine.

More workers than cores are simulated: `--sleeping` workers run no trials, but sleep for as long as
the trials would take, and return the arrays of a real file. The client, the scheduler, the messages
and the files are real, and all share this machine.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

import nrjax
from benchmarks.growing import KEY, Quiet, near
from benchmarks.rows import Row
from nrjax.study import dask as study_dask
from nrjax.study.local import Task

_ROOT = Path(__file__).parents[1]
_SMALL = 2**20
"""Trials of the small study, whose seconds do not count."""

_PROCESSES = 4
"""Processes of the sleeping workers."""


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pin(core: int) -> None:
    """Keep this process on a core, with one device."""
    os.sched_setaffinity(0, {core})
    os.environ["JAX_NUM_CPU_DEVICES"] = "1"


def simulated(trials: int) -> tuple[float, float]:
    """Return the seconds and processor seconds of `simulate`, which the first call compiles."""
    trial = near()
    nrjax.simulate(KEY, trial, trials=1)
    before, used = time.perf_counter(), time.process_time()
    nrjax.simulate(KEY, trial, trials=trials)
    return time.perf_counter() - before, time.process_time() - used


def study() -> nrjax.Study:
    """Return the study of the cheapest trial."""
    return nrjax.Study("workers", {"near": near()}, reporting=Quiet())


class Run(NamedTuple):
    """The costs of a run.

    Attributes:
        seconds: wall time.
        working: seconds of all workers in trials, by their clocks.
        used: processor seconds of all workers.
        files: number of files.
    """

    seconds: float
    working: float
    used: float
    files: int


def studied(client: Any, trials: int) -> Run:
    """Run the study on workers, and return the costs."""
    used = sum(client.run(time.process_time).values())
    with tempfile.TemporaryDirectory() as folder:
        before = time.perf_counter()
        options: Any = {"keep": "summary", "progress": False, "client": client}
        store = study().run(Path(folder) / "run", trials=trials, **options).store
        seconds = time.perf_counter() - before
        used = sum(client.run(time.process_time).values()) - used
        files = len(store.written("near", "outcome"))
        return Run(seconds, store.seconds("near")["run"], used, files)


@contextlib.contextmanager
def pinned_workers(count: int) -> Iterator[Any]:
    """Start workers, each on its own core, and yield their client."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(count)
        addresses = client.scheduler_info(n_workers=-1)["workers"]
        for worker, core in zip(addresses, cores(), strict=False):
            client.run(pin, core, workers=[worker])
        yield client


def _round(alone: Any, client: Any, count: int, trials: int) -> tuple[float, ...]:
    """Return a rate, and its ratios to `simulate` by wall time and by processor time, and busy."""
    wall, processor = alone.submit(simulated, trials).result()
    fixed, run = studied(client, _SMALL), studied(client, _SMALL + count * trials)
    seconds, working, used = (run[place] - fixed[place] for place in range(3))
    ratio, busy = wall / seconds, working / (count * seconds)
    print(
        f"{count} workers: {count * trials / seconds:.3g} trials/s, simulate {trials / wall:.3g}, "
        f"ratio {ratio:.2f}, of processor time {count * processor / used:.2f}, busy {busy:.2f}, "
        f"besides {fixed.seconds:.1f} s",
        flush=True,
    )
    return count * trials / seconds, ratio, count * processor / used, busy


def measured(options: Any) -> list[Row]:
    """Print and return the rates of real workers."""
    rows = []
    alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), pin, (cores()[0],))
    with alone:
        alone.submit(simulated, 1).result()
        for count in options.workers:
            if count > len(cores()):
                raise ValueError(f"--workers must be at most {len(cores())}, the cores, or sleep")
            with pinned_workers(count) as client:
                studied(client, _SMALL)
                found = []
                for _ in range(options.rounds):
                    found.append(_round(alone, client, count, options.trials))
            rate, ratio, processor, busy = map(statistics.median, zip(*found, strict=True))
            best = max(each[1] for each in found)
            note = f"best {best:.2f}, of processor time {processor:.2f}, busy {busy:.2f}"
            claim = f"{count} workers of one core"
            rows.append(Row(claim, rate, ratio, "simulate, per core", note=note))
    return rows


_FILE: dict[str, np.ndarray] = {}
"""The arrays that every sleeping worker returns."""

_MOST_ASLEEP = 2**31
"""The largest number of trials of a study on sleeping workers."""


def sleep(per_trial: float, _: bytes, digest: str, facts: Any, task: Task, limit: float) -> Any:
    """Sleep for as long as the trials of a file take, and return the arrays of a file."""
    trials = min(task.trials, max(int(limit / per_trial), 1))
    time.sleep(trials * per_trial)
    return trials, _FILE, trials * per_trial, 0.0


async def start_sleepers(address: str, count: int) -> None:
    """Run workers of one thread in this process until the scheduler is gone."""
    import asyncio

    from distributed import Worker

    workers = [Worker(address, nthreads=1, dashboard=False) for _ in range(count)]
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


@contextlib.contextmanager
def sleepers(count: int, file: Path) -> Iterator[Any]:
    """Start sleeping workers in a few processes, and yield their client."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        contextlib.ExitStack() as stack,
    ):
        for number in range(min(_PROCESSES, count)):
            own = len(range(number, count, _PROCESSES))
            command = [sys.executable, "-m", "benchmarks.workers", "--child"]
            command += [cast(Any, cluster).scheduler_address, str(own), str(file)]
            process = subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        client.wait_for_workers(count, timeout=120)
        yield client


def asleep(options: Any) -> list[Row]:
    """Print and return the rates of sleeping workers, relative to those without any waiting."""
    rows, real = [], study_dask.run_file
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file.npz"
        stored = study().run(Path(folder) / "run", trials=_SMALL, keep="summary", progress=False)
        (_, arrays), *_ = stored.store.parts("near", "outcome")
        np.savez(file, **cast(Any, arrays))
        try:
            for count in options.sleeping:
                per_trial = max(6e-7, count * options.seconds / _MOST_ASLEEP)
                trials = int(count * options.seconds / per_trial)
                study_dask.run_file = partial(sleep, per_trial)
                with sleepers(count, file) as client:
                    studied(client, 2**12)
                    fixed = studied(client, 2**12).seconds
                    used = time.process_time()
                    run = studied(client, trials)
                    used = time.process_time() - used
                ratio = options.seconds / (run.seconds - fixed)
                note = f"{run.files} files, {used / run.files:.3f} s of the client per file"
                print(
                    f"{count} sleeping workers: {run.seconds:.1f} s, {ratio:.2f}; {note}",
                    flush=True,
                )
                claim = f"{count} sleeping workers"
                rows.append(Row(claim, trials / run.seconds, ratio, "no waiting", note=note))
        finally:
            study_dask.run_file = real
    return rows


def race(options: Any) -> list[Row]:
    """Print and return the rows of real workers and of sleeping ones."""
    return measured(options) + asleep(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    arguments.add_argument("--trials", type=int, default=2**24, help="trials per worker")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--sleeping", type=int, nargs="*", default=[1, 16, 64, 256])
    arguments.add_argument("--seconds", type=float, default=60, help="seconds of sleep per worker")
    arguments.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return arguments


def rows(quick: bool) -> list[Row]:
    """Return the rows for the table of all benchmarks."""
    tiny = ["--workers", "1", "--trials", "20000", "--rounds", "1", "--sleeping", "2"]
    return race(parser().parse_args([*tiny, "--seconds", "1"] if quick else []))


def main() -> None:
    """Print the rates, or be the process of sleeping workers."""
    options = parser().parse_args()
    if options.child:
        import asyncio

        address, count, file = options.child
        # Functions are sent by the name of this module, which runs as __main__ here.
        from benchmarks import workers

        with np.load(file) as arrays:
            workers._FILE.update(arrays)
        asyncio.run(start_sleepers(address, int(count)))
        return
    race(options)


if __name__ == "__main__":
    from benchmarks import workers as _module  # the name by which workers import `sleep`

    _module.main()
