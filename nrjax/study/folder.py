"""The folder of a run: which files in it are ours, who may write, and writing a file whole."""

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nrjax._extras import missing

_PACKAGES = ("filelock", "matplotlib", "rich", "scipy", "xarray")
RESULTS, MANIFEST = "results", "manifest.json"
SUMMARY, REPORT, FIGURES = "summary.json", "report.md", "figures"
_NEW, _OLD = ".results.new", ".results.old"
_LOCK = ".nrjax.lock"
_WRITTEN = ".nrjax.sums"
"""A line for each file beside the results that nrjax has written: its checksum and its name."""


class StoreError(RuntimeError):
    """The store cannot be used as asked, for a reason that is named."""


class StoreBusyError(StoreError):
    """Another process, or another writer of this one, is writing to the store."""


class UnfinishedError(StoreError):
    """Some trials are not done yet."""


class DamagedError(StoreError):
    """Files of the store are missing or broken."""


def check_packages() -> None:
    """Raise ModuleNotFoundError unless all packages that a run needs are installed."""
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise missing(name, "a study")


@contextlib.contextmanager
def saying(message: str) -> Iterator[None]:
    """An OSError that comes says what it prevented."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{message}: {error.strerror or error}") from error


def check_writable(path: Path, needed: int = 0) -> None:
    """Make the folder; raise OSError now if it cannot be written to, or is too small.

    That is if less than half of the bytes needed are free: floating-point noise shrinks little.
    """
    if path.is_file():
        raise FileExistsError(f"{path} is a file: choose a folder for the results")
    with saying(f"cannot write results to the folder {path}"):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free
    if free < needed / 2:
        raise OSError(
            errno.ENOSPC,
            f"cannot begin in {path}: the results take up to {needed / 1e6:,.1f} MB, and "
            f"{free / 1e6:,.1f} MB are free there: make room, or choose another folder or fewer "
            "trials",
        )


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Make the folder, and raise now what `Store.create` would raise after hours of set-up.

    Raises:
        FileExistsError: it holds results, and `overwrite` is false; or files that only look like
            results, which are never removed.
        OSError: as `check_writable`.
    """
    check_writable(path)
    for name in (RESULTS, SUMMARY, REPORT):
        _refuse_foreign(path, name)
        if os.path.lexists(path / name) and not overwrite:
            again = ""
            if name == RESULTS:
                name = "finished" if (path / SUMMARY).exists() else "unfinished"
            if name == "unfinished":
                again = f"take them up again with `nrjax resume {path}`, "
            raise FileExistsError(
                f"{path} holds results already ({name}): {again}choose another folder, or ask to "
                "overwrite them (overwrite=True, --overwrite)"
            )


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or raise StoreBusyError; it goes when the process dies."""
    import filelock

    held = filelock.FileLock(folder / _LOCK)
    with saying(f"cannot write to {folder}, which needs a lock there"):
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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that, killed at any moment, the old or the new one is there, never half."""
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
    """Write the summary, the report or a figure whole, and note that it is ours to replace.

    Raises:
        FileExistsError: what is there is not as nrjax wrote it; it is never replaced.
        OSError: the disk is full, or failed.
    """
    path, data = folder / name, content.encode() if isinstance(content, str) else content
    _refuse_foreign(folder, name)
    with saying(f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        with (folder / _WRITTEN).open("ab") as written:  # a kill may have left half a line
            written.write(b"\n" + _line(name, data))
        write_whole(path, data)
    return path


def _line(name: str, data: bytes) -> bytes:
    """As `sha256sum` writes it."""
    return f"{hashlib.sha256(data).hexdigest()}  {name}".encode()


def _is_ours(folder: Path, name: str) -> bool:
    """Whether it is as nrjax wrote it, not another program's or a person's."""
    if name == RESULTS:
        return "nrjax_store" in read_manifest(folder / name)
    try:
        line, written = _line(name, (folder / name).read_bytes()), (folder / _WRITTEN).read_bytes()
    except OSError:
        return False
    return line in written.splitlines()


def _refuse_foreign(folder: Path, name: str) -> None:
    if os.path.lexists(folder / name) and not _is_ours(folder, name):
        raise FileExistsError(
            f"{folder / name} was not written by nrjax and is left alone: "
            "choose another folder, or move it away"
        )


def read_manifest(results: Path) -> dict[str, Any]:
    """The manifest of these results, or nothing where there is none, or one that is no JSON."""
    try:
        manifest = json.loads((results / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def clear_temporary(path: Path) -> None:
    """Remove what killed writers left of single files; only under the lock."""
    ours = (f"{RESULTS}/**/.*.tmp", f".{SUMMARY}.*.tmp", f".{REPORT}.*.tmp", f"{FIGURES}/.*.tmp")
    for pattern in ours:
        for leftover in path.glob(pattern):
            leftover.unlink(missing_ok=True)


def lay_out(path: Path, manifest: bytes) -> None:
    """Begin new results in place of all that an earlier run wrote; only under the lock.

    Killed at any moment, or where the disk is full, it leaves the old ones, or none.
    """
    for name in (_NEW, _OLD):  # a killed one may have left them
        shutil.rmtree(path / name, ignore_errors=True)
    with saying(f"cannot lay out the results in {path}"):
        (path / _NEW).mkdir()
        write_whole(path / _NEW / MANIFEST, manifest)
    if (path / RESULTS).exists():
        (path / RESULTS).rename(path / _OLD)  # a half-removed store would look like a stranger's
        shutil.rmtree(path / _OLD)
    for one in [path / SUMMARY, path / REPORT, *path.glob(f"{FIGURES}/*")]:
        if _is_ours(path, one.relative_to(path).as_posix()):
            one.unlink()
    (path / _WRITTEN).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: somebody else's figures
        (path / FIGURES).rmdir()
    (path / _NEW).rename(path / RESULTS)
