"""Run by test_resume.py: runs of a study, killed with SIGKILL while they simulate, and resumed.

A program of its own that forks: children find everything imported, so that a life takes a second.
The parent never makes an array, hence has no threads. Prints counts as JSON.
"""

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import xarray  # noqa: F401  # here, not in each child

from nrjax.studies import runner
from nrjax.studies.folder import RESULTS
from tests.studies import toy

CHUNK, FIRST, TRIALS = 4, 10, 23


class Tells:
    """Progress that writes a byte when a pass begins, and one for each chunk."""

    def __init__(self, pipe: int):
        self.pipe = pipe

    def begin(self, *_: object) -> None:
        os.write(self.pipe, b".")

    def advance(self, *_: object) -> None:
        os.write(self.pipe, b".")


def live(folder: Path, data: Path, pipe: int) -> None:
    """Begin the run, or take it up; more trials are asked for as soon as there is a store."""
    if (folder / RESULTS).exists():
        runner.resume(folder, TRIALS, Tells(pipe))
    else:
        chosen = toy.Settings(out=folder, trials=FIRST, chunk=CHUNK, data=data)
        runner.run(toy, chosen, Tells(pipe))


def killed(call: Callable[[int], None], events: int, seconds: float) -> bool:
    """Whether a child was killed, so long after so many events, before it had ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            call(writer)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    os.close(writer)
    seen = 0
    while seen < events and select.select([reader], [], [], 100)[0]:
        got = os.read(reader, 1)
        if not got:  # it has ended
            break
        seen += 1
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(reader)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a run failed with {code}")
    return code == -signal.SIGKILL


if __name__ == "__main__":
    home, data, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    toy.use(runner)
    rng = random.Random(0)
    facts = {"killed": 0, "killed at work": 0, "runs": 0}
    while facts["killed"] < kills:
        folder = home / f"run-{facts['runs']}"
        facts["runs"] += 1
        while facts["killed"] < kills:
            events = rng.randrange(0, 9)
            if not killed(lambda pipe: live(folder, data, pipe), events, rng.uniform(0, 0.03)):  # noqa: B023
                break
            facts["killed"] += 1
            facts["killed at work"] += events > 0
        # To its end, in as many lives as there are sizes.
        for _ in range(2):
            if killed(lambda pipe: live(folder, data, pipe), 10**9, 0.0):  # noqa: B023
                raise SystemExit("a run did not end")
    print(json.dumps(facts))
