"""Run by test_processes.py: the command `nrjax` in one process of a group, with planted faults.

`python grouped.py FAULT ARGUMENTS...`, where FAULT is `none`, or `kill 2`, `terminate 2`, `full 2`,
`hang 2`: what befalls this process when it is about to flag its chunk of that number, from 0.
"""

import os
import signal
import sys
import time

from nrjax import cli
from nrjax.studies import runner
from nrjax.studies.writer import Writer
from tests.studies import tiny


def plant(fault: str) -> None:
    kind, number = fault.split()
    flag = Writer._write_flag
    seen: list[int] = []

    def faulty(target, chunk, size):
        seen.append(chunk)
        if len(seen) <= int(number):
            return flag(target, chunk, size)
        if kind == "full":
            raise OSError(28, "No space left on device")
        if kind in ("kill", "terminate"):
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        time.sleep(600)

    Writer._write_flag = staticmethod(faulty)


if __name__ == "__main__":
    sys.modules["nrjax.studies.tiny"] = tiny
    runner.STUDIES = ("tiny", "rogers2023")
    if sys.argv[1] != "none":
        plant(sys.argv[1])
    sys.exit(cli.main(sys.argv[2:]))
