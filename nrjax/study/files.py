"""Files of a run: its folder, its lock, and writes that are never seen half done."""

import contextlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nrjax._extras import missing

RESULTS, MANIFEST = "results", "manifest.json"
SUMMARY, REPORT, FIGURES = "summary.json", "report.md", "figures"
_NEW, _OLD = ".results.new", ".results.old"
_LOCK = ".nrjax.lock"


class StoreError(RuntimeError):
    """An error that says why a store cannot be used as requested."""


class StoreBusyError(StoreError):
    """An error raised while another process or writer is writing to the store."""


class UnfinishedError(StoreError):
    """An error raised when results are read before all trials have run."""


class DamagedError(StoreError):
    """An error raised when files of the store are missing or broken."""


def check_packages(*names: str) -> None:
    """Raise ModuleNotFoundError if a package that a run needs is not installed."""
    for name in names:
        try:
            found = importlib.util.find_spec(name)
        except ValueError:  # blocked: sys.modules holds None for it
            found = None
        if found is None:
            raise missing(name, "a study")


@contextlib.contextmanager
def explaining(message: str) -> Iterator[None]:
    """Prefix every OSError of the block with a message that names the failed action."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{message}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Create a folder for results, or raise OSError if it cannot be written to."""
    if path.is_file():
        raise FileExistsError(f"{path} is a file: choose a folder for the results")
    with explaining(f"cannot write results to the folder {path}"):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Create a folder for a new run and check that nothing there is in the way.

    Raises:
        FileExistsError: the folder holds a run, and `overwrite` is false; or it holds files with
            the names of a run's but no run. Such files are never removed.
        OSError: as `check_writable`.
    """
    check_writable(path)
    if "nrjax_store" not in read_manifest(path / RESULTS):
        for name in (RESULTS, SUMMARY, REPORT):
            if os.path.lexists(path / name):
                raise FileExistsError(
                    f"{path} holds {name}, but no run of nrjax that could be replaced: choose "
                    f"another folder, or move {name} away"
                )
    elif not overwrite:
        state, resume = "finished", ""
        if not (path / SUMMARY).exists():
            state, resume = "unfinished", f"resume them with `nrjax resume {path}`, "
        raise FileExistsError(
            f"{path} holds results already ({state}): {resume}choose another folder, or replace "
            "them (overwrite=True in Python, --overwrite in the command)"
        )


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool) -> Iterator[None]:
    """Check the folder of a new run, and remove it again if the block writes nothing."""
    is_new = not path.exists()
    try:
        check_folder(path, overwrite=overwrite)
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                path.rmdir()  # fails if something was written
        raise


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder until the block ends or the process dies.

    Raises:
        StoreBusyError: another process holds it.
    """
    import filelock

    held = filelock.FileLock(folder / _LOCK)
    with explaining(f"cannot write to {folder}, which needs a lock there"):
        try:
            held.acquire(blocking=False)
        except filelock.Timeout as error:
            raise StoreBusyError(
                f"another run is writing to {folder}: wait for it, or choose another folder"
            ) from error
    try:
        yield
    finally:
        held.release()


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file such that a kill at any moment leaves the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_document(folder: Path, name: str, content: str | bytes) -> Path:
    """Write the summary, the report or a figure, in place of an earlier one."""
    path = folder / name
    with explaining(f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, content.encode() if isinstance(content, str) else content)
    return path


def read_manifest(results: Path) -> dict[str, Any]:
    """Return the manifest in a folder of results, empty if there is no JSON object."""
    try:
        manifest = json.loads((results / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def remove_temporary(path: Path) -> None:
    """Remove temporary files of killed writers, while holding the lock."""
    patterns = (f"{RESULTS}/**/.*.tmp", f".{SUMMARY}.*.tmp", f".{REPORT}.*.tmp")
    for pattern in (*patterns, f"{FIGURES}/.*.tmp"):
        for leftover in path.glob(pattern):
            leftover.unlink(missing_ok=True)


def replace_results(path: Path, manifest: bytes) -> None:
    """Create empty results in place of an earlier run, while holding the lock.

    If killed at any moment, or if the disk is full, the earlier results or none are left.
    """
    for name in (_NEW, _OLD):  # a killed process may have left them
        shutil.rmtree(path / name, ignore_errors=True)
    with explaining(f"cannot create the results in {path}"):
        (path / _NEW).mkdir()
        atomic_write(path / _NEW / MANIFEST, manifest)
    # The results go last: documents without results would not be recognised as a run's.
    for pattern in (SUMMARY, REPORT, f"{FIGURES}/*.png", f"{FIGURES}/*.svg"):
        for document in path.glob(pattern):
            document.unlink()
    with contextlib.suppress(OSError):  # missing, or with other files in it
        (path / FIGURES).rmdir()
    if (path / RESULTS).exists():
        (path / RESULTS).rename(path / _OLD)  # half-removed results would not be recognised
        shutil.rmtree(path / _OLD)
    (path / _NEW).rename(path / RESULTS)
