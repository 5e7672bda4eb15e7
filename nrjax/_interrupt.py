"""Ctrl-C while the command is being imported: it ends the process, without a traceback.

Imported first of all, since the imports are most of the command's first seconds; in other programs
it does nothing. From `nrjax.__main__.main` on, Python raises `KeyboardInterrupt` again.
"""

import contextlib
import itertools
import signal
import sys
from pathlib import Path


def _is_command() -> bool:
    """Whether this process is `nrjax` or `python -m nrjax`."""
    words = sys.orig_argv
    module = ("-m", "nrjax") in itertools.pairwise(words) or "-mnrjax" in words
    return module or Path(sys.argv[0] if sys.argv else "").stem == "nrjax"


def listen() -> None:
    """Raise `KeyboardInterrupt` at Ctrl-C, unless the process was started to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with contextlib.suppress(ValueError):  # not the main thread, hence not the command
        signal.signal(signal.SIGINT, signal.SIG_DFL)
