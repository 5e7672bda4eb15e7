"""Whether this process is the command, its code as it began, and Ctrl-C while it is being imported.

Imported first of all, since the imports are most of the command's first seconds: Ctrl-C ends the
process then, without a traceback. From `nrjax.__main__.main` on, Python raises `KeyboardInterrupt`
again. In other programs this does nothing.
"""

import contextlib
import hashlib
import itertools
import os
import signal
import sys
from pathlib import Path


def is_command() -> bool:
    """Whether this process is `nrjax` or `python -m nrjax`."""
    words = sys.orig_argv
    module = ("-m", "nrjax") in itertools.pairwise(words) or "-mnrjax" in words
    return module or Path(sys.argv[0] if sys.argv else "").stem == "nrjax"


def code(root: Path = Path(__file__).parent) -> str | None:
    """Digest of the package's files; None where a link may hide some, or there are none."""
    whole, found = hashlib.sha256(), False
    for folder, below, files in os.walk(root):
        below.sort()
        if any(os.path.islink(os.path.join(folder, one)) for one in below):
            return None
        for name in sorted(one for one in files if one.endswith(".py")):
            path, found = Path(folder, name), True
            content = path.read_bytes()
            whole.update(f"{path.relative_to(root)} {len(content)} ".encode())
            whole.update(content)
    return whole.hexdigest() if found else None


AT_FIRST = code() if is_command() else None
"""Its code before any other module of it was imported."""


def listen() -> None:
    """Raise `KeyboardInterrupt` at Ctrl-C, unless the process was started to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    with contextlib.suppress(ValueError):  # not the main thread, hence not the command
        signal.signal(signal.SIGINT, signal.SIG_DFL)
