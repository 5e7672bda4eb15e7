"""Run by test_store.py: forks writers, kills them with SIGKILL, inspects the store they leave.

A program of its own, since the forking process must have no threads: the writers and the
inspectors are children, which start their own. Prints counts as JSON.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray  # noqa: F401  # here, not in each child

from nrjax.study import store as store_module
from nrjax.study.store import Case, DamagedError, Pass, Store, Variable

CHUNKS, CHUNK = 12, 1000
TRIALS = CHUNKS * CHUNK - 300  # the last chunk is short
SIZES = {"epsilon": (), "utility": (("level", 20),), "status": ()}
DTYPES = {"epsilon": "float32", "utility": "float64", "status": "int32"}
CASE = Case(
    "case",
    {},
    {"pass": Pass(TRIALS, CHUNK, {key: Variable(DTYPES[key], SIZES[key]) for key in SIZES})},
)


def truth(chunk: int) -> dict[str, np.ndarray]:
    """The one right content of a chunk, without values equal to what was never written."""
    layout = CASE.passes["pass"]
    span = layout.span(chunk)
    rng = np.random.default_rng(chunk)
    count = span.stop - span.start
    arrays = {key: rng.random((count, *(n for _, n in SIZES[key]))) for key in SIZES}
    arrays["status"] = rng.integers(1, 6, count)
    return {key: values.astype(DTYPES[key]) for key, values in arrays.items()}


def write(folder: Path) -> None:
    with Store.open(folder).writer() as writer:
        for chunk in writer.pending("case", "pass"):
            writer.write("case", "pass", chunk, truth(chunk), 1.0)


def write_until(folder: Path, moment: str) -> None:
    """Write, and die at a planted moment of chunk 5."""
    whole = store_module.write_whole

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def dying(path: Path, data: bytes) -> None:
        if not path.name.startswith(f"{5 * CHUNK:010}"):
            return whole(path, data)
        if moment == "in the data":
            path.with_name(f".{path.name}.{os.getpid()}.tmp").write_bytes(data[:1000])
        if moment == "before the rename":
            path.with_name(f".{path.name}.{os.getpid()}.tmp").write_bytes(data)
        if moment == "in place":
            path.write_bytes(data[:1000])
        if moment == "after the rename":
            whole(path, data)
        die()

    store_module.write_whole = dying
    write(folder)


def faults(folder: Path) -> int:
    """Number of chunks that count as done without exactly the right data, and bad seconds."""
    store = Store.open(folder)
    done = store.done("case", "pass")
    try:
        got = store.read("case", "pass", partial=True)
    except DamagedError:
        return 1
    wrong = int(not 0 <= store.seconds("case")["run"] <= done.sum())
    for chunk in np.flatnonzero(done):
        span = CASE.passes["pass"].span(chunk)
        one = got.isel(trial=(got.trial >= span.start) & (got.trial < span.stop))
        wrong += any(one[key].values.tobytes() != v.tobytes() for key, v in truth(chunk).items())
    return wrong


def finished(folder: Path) -> bool:
    return bool(Store.open(folder).done("case", "pass").all())


def forked(function: Callable[[], object]) -> int:
    """Start `function` in a child; its result, an integer below 100, is the exit code."""
    child = os.fork()
    if child:
        return child
    code = 100
    try:
        code = int(function() or 0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def result(function: Callable[[], object]) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(forked(function), 0)[1])
    if not 0 <= code < 100:
        raise SystemExit(f"{function} failed")
    return code


def killed_after(seconds: float, function: Callable[[], object]) -> bool:
    """Whether the kill came before the end."""
    child = forked(function)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def create(folder: Path) -> None:
    Store.create(folder, {}, [CASE], overwrite=True)


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    result(function)
    return time.perf_counter() - start


def random_kills(folder: Path, rng: np.random.Generator) -> dict[str, int]:
    result(lambda: create(folder))
    duration = timed(lambda: write(folder))
    counts = {"faults": result(lambda: faults(folder)), "interrupted": 0, "stores": 0}
    while counts["interrupted"] < 6 and counts["stores"] < 30:
        counts["stores"] += 1
        result(lambda: create(folder))
        for _ in range(50):
            writer_killed = killed_after(rng.uniform(0.1, 0.6) * duration, lambda: write(folder))
            counts["interrupted"] += writer_killed
            counts["faults"] += result(lambda: faults(folder))
            if result(lambda: finished(folder)):
                break
        else:
            result(lambda: write(folder))
            counts["faults"] += result(lambda: faults(folder))
    return counts


def planted_kill(folder: Path, moment: str) -> dict[str, int | bool]:
    result(lambda: create(folder))
    child = forked(lambda: write_until(folder, moment))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        raise SystemExit(f"the writer was to die {moment}, but ended with {code}")
    wrong = result(lambda: faults(folder))
    if wrong:
        return {"faults": wrong, "completed": False}
    result(lambda: write(folder))
    wrong += result(lambda: faults(folder))
    return {"faults": wrong, "completed": bool(result(lambda: finished(folder)))}


def kills_while_creating(folder: Path, rng: np.random.Generator) -> dict[str, int]:
    """Whatever a killed `create` leaves, the next one works."""
    duration = timed(lambda: create(folder))
    wrong = 0
    for _ in range(5):
        killed_after(rng.uniform(0, 1) * duration, lambda: create(folder))
        if (folder / "results").exists():
            wrong += result(lambda: faults(folder))
        result(lambda: create(folder))
        wrong += result(lambda: finished(folder))
        result(lambda: write(folder))
    return {"faults": wrong}


if __name__ == "__main__":
    home = Path(sys.argv[1])
    facts = {
        moment: planted_kill(home / moment, moment)
        for moment in ("in the data", "before the rename", "after the rename", "in place")
    }
    facts["random"] = random_kills(home / "random", np.random.default_rng(0))
    facts["create"] = kills_while_creating(home / "create", np.random.default_rng(1))
    print(json.dumps(facts))
