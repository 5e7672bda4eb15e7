"""A program for test_resume.py: runs of a study, killed while they simulate, and resumed.

It forks, so that child processes find everything imported and take a second each. The parent
never makes an array, nor do its imports, so that it has no threads. It prints the exit codes of
the runs as JSON.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from nrjax.study import (
    files,
    rendering,  # noqa: F401  # here, not in each child
)
from tests.study import interrupted

FIRST, TRIALS = 10, 23
MOMENTS = ("before the rename", "after the rename", "in its place")


class Piped:
    """Progress that writes a byte when a pass starts, and one per chunk."""

    def __init__(self, pipe: int):
        self.pipe = pipe

    def begin(self, *_: object) -> None:
        os.write(self.pipe, b".")

    def advance(self, *_: object) -> None:
        os.write(self.pipe, b".")


def write_and_die(path: Path, data: bytes, moment: str) -> None:
    """Die at a moment of writing a chunk."""
    temporary = files.temporary_of(path)
    if moment == "after the rename":
        original(path, data)
    elif moment == "in its place":
        path.write_bytes(data[: len(data) // 2])
    else:
        temporary.write_bytes(data)
    os.kill(os.getpid(), signal.SIGKILL)


original = files.atomic_write


def live(folder: Path, data: Path, pipe: int, moment: str | None = None) -> None:
    """Start the run, or resume it with more trials if there is a store."""
    if moment is not None:
        files.atomic_write = lambda path, content: (
            write_and_die(path, content, moment)
            if path.name.startswith(f"{interrupted.CHUNK:010}")
            else original(path, content)
        )
    if (folder / files.RESULTS).exists():
        interrupted.resume(folder, TRIALS, Piped(pipe))
    else:
        interrupted.run(folder, data, FIRST, Piped(pipe))


def killed_after(events: float, seconds: float, *arguments: object) -> int:
    """Return the exit code of a process that is killed after some events and seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            live(arguments[0], arguments[1], writer, *arguments[2:])  # pyright: ignore
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    os.close(writer)
    seen = 0
    while seen < events and select.select([reader], [], [], 100)[0] and os.read(reader, 1):
        seen += 1  # nothing to read: the process has ended
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(reader)
    return code


def end(folder: Path, data: Path) -> list[int]:
    """Return the exit codes of the processes that finish a run."""
    processes = 1 if (folder / files.RESULTS).exists() else 2
    return [killed_after(float("inf"), 0, folder, data) for _ in range(processes)]


if __name__ == "__main__":
    parent, data, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    facts: dict[str, object] = {}
    for moment in MOMENTS:
        died = killed_after(float("inf"), 0, parent / moment, data, moment)
        facts[moment] = [died, *end(parent / moment, data)]
    rng, runs, killed, at_work = random.Random(0), [], 0, 0
    while killed < kills:
        folder, codes = parent / f"run-{len(runs)}", []
        while killed < kills and 0 not in codes:
            events = rng.randrange(0, 9)
            codes.append(killed_after(events, rng.uniform(0, 0.03), folder, data))
            killed += codes[-1] != 0
            at_work += codes[-1] != 0 and events > 0
        runs.append([*codes, *end(folder, data)])
    print(json.dumps(facts | {"runs": runs, "at work": at_work}))
