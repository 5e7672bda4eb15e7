"""The command `nrjax`, and `python -m nrjax`: `nrjax.cli` in a process of its own."""

import atexit
import gc
import sys

from nrjax import cli


def main() -> int:
    """Entry point of the process; returns its exit status.

    Modules and traced programs are millions of objects that live to the end: to look through them
    for garbage, again and again and once more at the end, takes 1.2 s of a run of 8 s.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
