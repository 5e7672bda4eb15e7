"""Locks of the folder of a run, and notes that say who holds them.

A run holds the lock of its folder. The parts of a run (`Study.run(part=...)`) may write to one
folder at the same time: each holds a lock of its own, and a run of the whole study needs all of
them. The operating system releases a lock if the process dies, unless the file system has no locks:
`filelock` then leaves a file that somebody must remove.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nrjax._base.validation import check, is_integer
from nrjax.study.files import StoreBusyError, explaining

_LOCK, _NOTE = ".nrjax.lock", ".json"
_PART = re.compile(rf"{re.escape(_LOCK)}\.part-(\d+)-of-(\d+)")
_PATIENCE = 60.0
"""Seconds for which a part waits for another one that creates or checks the folder."""

_JOB = {
    "SLURM_ARRAY_JOB_ID": "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID": "",
    "PBS_JOBID": "",
    "LSB_JOBID": "",
    "JOB_ID": "",
}
"""The environment variables of a batch system's job, each with that of the task of an array."""


class Part(NamedTuple):
    """A part of a run: one of `total` equal ranges of consecutive trials.

    Attributes:
        number: number of the part, from 1 to `total`.
        total: number of parts.
    """

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def span(self, trials: int) -> range:
        """Return the trials of the part."""
        ends = self.number - 1, self.number
        return range(*(trials * end // self.total for end in ends))

    @classmethod
    def of(cls, value: object) -> Part | None:
        """Return a part given as a pair of integers, or as text such as "3/100", or None for None.

        Raises:
            ValueError: the value is no part.
        """
        if value is None or isinstance(value, Part):
            return value
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", value) if isinstance(value, str) else None
        pair = tuple(map(int, match.groups())) if match else value
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_integer, pair))
        number, total = (int(each) for each in pair) if is_pair else (0, 0)  # pyright: ignore
        expected = "NUMBER/COUNT with 1 <= NUMBER <= COUNT, such as 3/100, or (3, 100) in Python"
        hint = "Parts count from 1, as in #SBATCH --array=1-100."
        check(1 <= number <= total <= 10**6, "part", value, expected, hint)
        return cls(number, total)


def parts_with(span: range, trials: int, total: int) -> range:
    """Return the numbers of the parts, of `total`, that hold some trials of a pass of `trials`."""
    first, last = (-(-(trial + 1) * total // trials) for trial in (span.start, span.stop - 1))
    return range(first, last + 1)


def parts_of(folder: Path) -> list[Part]:
    """Return the parts that were started in a folder, by their lock files."""
    matches = (_PART.fullmatch(path.name) for path in folder.glob(f"{_LOCK}.part-*"))
    return [Part(int(match[1]), int(match[2])) for match in matches if match]


def check_whole(part: Part, **given: object) -> None:
    """Raise ValueError if a call with `part` has an argument that concerns the whole run."""
    for name, value in given.items():
        hint = "Call without part, which needs all parts to have ended."
        expected = f"left out, or as before, with part {part}"
        check(value is None or value is False, name, value, expected, hint)


def _lock_file(folder: Path, part: Part | None) -> Path:
    return folder / (f"{_LOCK}.part-{part.number}-of-{part.total}" if part else _LOCK)


@contextlib.contextmanager
def lock(folder: Path, part: Part | None = None, *, patient: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, or of a part, until the block ends or the process dies.

    The lock of a folder is exclusive of those of its parts. If it is `patient`, it waits for a
    part that creates the folder.

    Raises:
        StoreBusyError: another process holds the lock. The message says which.
        ValueError: the folder has parts of another count.
        OSError: the file system does not let this process lock a file.
    """
    with contextlib.ExitStack() as stack:
        if part is None:
            patience = _PATIENCE if patient else 0.0
            stack.enter_context(_held(_lock_file(folder, None), patience=patience))
            for part_there in parts_of(folder):
                with _held(_lock_file(folder, part_there), note=False):
                    pass
        else:
            with _held(_lock_file(folder, None), patience=_PATIENCE, note=False):
                _check_count(folder, part)
                stack.enter_context(_held(_lock_file(folder, part)))
        yield


def _check_count(folder: Path, part: Part) -> None:
    """Check that the parts in a folder have one count, since others would share trials."""
    other = next((each for each in parts_of(folder) if each.total != part.total), None)
    expected = f"one of {other and other.total} parts, as part {other} in {folder} is"
    hint = (
        f"For the rest of the run: nrjax resume {folder}. For another count, run all parts in "
        "another folder."
    )
    check(other is None, "part", str(part), expected, hint)


@contextlib.contextmanager
def _held(path: Path, *, patience: float = 0.0, note: bool = True) -> Iterator[None]:
    """Hold the lock of a file, with a note next to it on who holds it."""
    import filelock

    held, beside = filelock.FileLock(path), path.with_name(path.name + _NOTE)
    with explaining(f"cannot write to {path.parent}, which needs a lock there"):
        try:
            held.acquire(timeout=patience)
        except filelock.Timeout as error:
            raise StoreBusyError(_busy(path, beside)) from error
        except NotImplementedError as error:  # filelock 3.15 without flock
            raise OSError(None, "its file system has no locks (flock)") from error
    with contextlib.ExitStack() as stack:
        stack.callback(held.release)
        if note:
            stack.enter_context(_noted(beside))
        yield


@contextlib.contextmanager
def _noted(path: Path) -> Iterator[None]:
    """Write who holds a lock, and remove it at the end. The lock counts, not the note."""
    with contextlib.suppress(OSError):
        path.write_text(json.dumps(_holder()))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _holder() -> dict[str, str | int]:
    """Return the facts of this process for a note."""
    job = next((name for name in _JOB if os.environ.get(name)), None)
    task = os.environ.get(_JOB[job], "") if job else ""
    now = datetime.datetime.now().astimezone()
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "job": "" if job is None else os.environ[job] + (f"_{task}" if task else ""),
        "since": now.isoformat(" ", "seconds"),
    }


def _busy(path: Path, beside: Path) -> str:
    """Return the message of a lock that another process holds."""
    who = ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(beside.read_bytes())
        job = f", job {note['job']}" if note["job"] else ""
        who = f" (process {note['process']} on {note['host']}{job}, since {note['since']})"
    return (
        f"another run is writing to {path.parent}{who}: wait for it, or choose another folder. If "
        f"that process is gone, and only then, its file system keeps locks of dead processes: "
        f"remove {path}"
    )
