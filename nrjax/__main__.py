"""The command `nrjax`, and `python -m nrjax`: `nrjax.cli` in a process of its own.

What is Python's, for the whole of the process, is set here: `nrjax.cli.main` leaves it alone.
"""

import atexit
import gc
import os
import sys

from nrjax import _command, cli


def main() -> int:
    """Entry point of the process; returns its exit status."""
    # Modules and traced programs are millions of objects that live to the end: to look through them
    # for garbage, again and again and once more at the end, takes a second.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
    _command.listen()
    status = cli.main()
    if status == cli.INTERRUPTED:
        sys.stdout.flush()
        os._exit(status)  # else Python would wait for what is being compiled
    return status


if __name__ == "__main__":
    sys.exit(main())
