"""Whether this process is the command, when it began, and Ctrl-C while it is being imported.

Imported first of all, since the imports are most of the command's first seconds: Ctrl-C ends the
process then, without a traceback. From `nrjax.__main__.main` on, Python raises `KeyboardInterrupt`
again. In other programs this does nothing.
"""

import contextlib
import itertools
import signal
import sys
import time
from pathlib import Path

BEGUN = time.time()
"""When the first of the package's modules was imported, in seconds as files have their times."""


def is_command() -> bool:
    """Whether this process is `nrjax` or `python -m nrjax`."""
    words = sys.orig_argv
    module = ("-m", "nrjax") in itertools.pairwise(words) or "-mnrjax" in words
    return module or Path(sys.argv[0] if sys.argv else "").stem == "nrjax"


def listen() -> None:
    """Raise `KeyboardInterrupt` at Ctrl-C, unless the process was started to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with contextlib.suppress(ValueError):  # not the main thread, hence not the command
        signal.signal(signal.SIGINT, signal.SIG_DFL)
