"""A program for test_parts.py: writers of one folder whose locks do not see each other.

Two processes at a time write trials into the folder, in files of random sizes, as two nodes do on a
file system whose locks are local to a node. They are killed at random moments and started again.
The program prints how many were killed, and how often a writer was refused, as JSON.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from nrjax.study import store as stores
from nrjax.study.files import StoreBusyError
from nrjax.study.schema import Pass, StoredCase, Variable
from nrjax.study.store import Store

TRIALS = 4000
CASE = StoredCase(
    "a", {"trials": TRIALS}, {"outcome": Pass(TRIALS, None, {"x": Variable("int64")})}
)
REFUSED = 7


def numbers(span: range) -> dict[str, np.ndarray]:
    """Return the result of each trial, which depends on nothing but its number."""
    return {"x": np.arange(span.start, span.stop, dtype=np.int64) ** 2 + 1}


def write(folder: Path, rng: random.Random) -> None:
    """Write pending trials as a run does: those that are pending when it starts."""
    stores.lock = lambda *_, **__: contextlib.nullcontext()
    store = Store.open(folder)
    with store.writer() as writer:
        for span in store.pending("a", "outcome"):
            at = span.start
            while at < span.stop:
                end = min(at + rng.randrange(1, 60), span.stop)
                writer.write("a", "outcome", range(at, end), numbers(range(at, end)))
                at = end


def start(folder: Path, seed: int) -> int:
    """Start a writer in a process of its own, and return the number of the process."""
    child = os.fork()
    if child:
        return child
    code = 1
    with contextlib.suppress(Exception):
        try:
            write(folder, random.Random(seed))
            code = 0
        except StoreBusyError:
            code = REFUSED
    os._exit(code)


def main(folder: Path, kills: int) -> dict[str, int]:
    """Start and kill writers until a number was killed, then let one finish."""
    rng, facts = random.Random(0), {"killed": 0, "refused": 0, "ended": 0, "failed": 0}
    names = {-signal.SIGKILL: "killed", REFUSED: "refused", 0: "ended"}
    seed, running = 0, []
    while facts["killed"] < kills:
        running += [start(folder, seed + number) for number in range(2 - len(running))]
        seed += 2
        time.sleep(rng.uniform(0, 0.02))
        victim = running.pop(rng.randrange(2))
        if rng.random() < 0.8:
            os.kill(victim, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1])
        facts[names.get(code, "failed")] += 1
        if Store.open(folder).finished():
            break
    for child in running:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        facts[names.get(code, "failed")] += 1
    write(folder, rng)
    return facts


if __name__ == "__main__":
    parent, kills = Path(sys.argv[1]), int(sys.argv[2])
    total = {"killed": 0, "refused": 0, "ended": 0, "failed": 0, "folders": 0}
    while total["killed"] < kills:
        folder = parent / f"run-{total['folders']}"
        Store.create(folder, {"seed": 0}, [CASE])
        for name, count in main(folder, kills - total["killed"]).items():
            total[name] += count
        total["folders"] += 1
    print(json.dumps(total))
