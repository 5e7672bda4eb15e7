"""Run by test_resume.py: runs of a study, killed with SIGKILL while they simulate, and resumed.

A program of its own that forks: children find everything imported, so that a life takes a second.
The parent never makes an array, nor does what it imports, hence has no threads. Prints what became
of the runs as JSON.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from nrjax.study import drawing  # noqa: F401  # here, not in each child
from nrjax.study import folder as disk
from tests.study import test_resume

FIRST, TRIALS = 10, 23
MOMENTS = ("in the data", "before the rename", "after the rename", "in its place")


class Tells:
    """Progress that writes a byte when a pass begins, and one for each chunk."""

    def __init__(self, pipe: int):
        self.pipe = pipe

    def begin(self, *_: object) -> None:
        os.write(self.pipe, b".")

    def advance(self, *_: object) -> None:
        os.write(self.pipe, b".")


def write_and_die(path: Path, data: bytes, moment: str) -> None:
    """Die at a moment of writing a chunk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    if moment == "after the rename":
        whole(path, data)
    elif moment == "in its place":
        path.write_bytes(data[: len(data) // 2])
    else:
        temporary.write_bytes(data[: len(data) // 2] if moment == "in the data" else data)
    os.kill(os.getpid(), signal.SIGKILL)


whole = disk.write_whole


def live(folder: Path, data: Path, pipe: int, moment: str | None = None) -> None:
    """Begin the run, or take it up; more trials are asked for as soon as there is a store."""
    if moment is not None:
        disk.write_whole = lambda path, content: (
            write_and_die(path, content, moment)
            if path.name.startswith(f"{test_resume.CHUNK:010}")
            else whole(path, content)
        )
    if (folder / disk.RESULTS).exists():
        test_resume.resume(folder, TRIALS, Tells(pipe))
    else:
        test_resume.run(folder, data, FIRST, Tells(pipe))


def ended(events: float, seconds: float, *given: object) -> int:
    """Exit code of a life that is killed so long after so many events."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            live(given[0], given[1], writer, *given[2:])  # pyright: ignore
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    os.close(writer)
    seen = 0
    while seen < events and select.select([reader], [], [], 100)[0] and os.read(reader, 1):
        seen += 1  # nothing to read: it has ended
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(reader)
    return code


def end(folder: Path, data: Path) -> list[int]:
    """Exit codes of the lives that take a run to its end."""
    lives = 1 if (folder / disk.RESULTS).exists() else 2
    return [ended(float("inf"), 0, folder, data) for _ in range(lives)]


if __name__ == "__main__":
    home, data, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    facts: dict[str, object] = {}
    for moment in MOMENTS:
        died = ended(float("inf"), 0, home / moment, data, moment)
        facts[moment] = [died, *end(home / moment, data)]
    rng, runs, killed, at_work = random.Random(0), [], 0, 0
    while killed < kills:
        folder, codes = home / f"run-{len(runs)}", []
        while killed < kills and 0 not in codes:
            events = rng.randrange(0, 9)
            codes.append(ended(events, rng.uniform(0, 0.03), folder, data))
            killed += codes[-1] != 0
            at_work += codes[-1] != 0 and events > 0
        runs.append([*codes, *end(folder, data)])
    print(json.dumps(facts | {"runs": runs, "at work": at_work}))
