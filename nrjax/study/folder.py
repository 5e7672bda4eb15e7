"""The folder of a run: which files in it are ours, who may write, and writing a file whole."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import filelock
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'the result store needs {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

RESULTS = "results"
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
REPORT = "report.md"
REPORT_MARK = "<!-- written by nrjax -->"
FIGURES = "figures"
NEW = ".results.new"
_OLD = ".results.old"
_LOCK = ".nrjax.lock"
_DRAWN = ".nrjax-figures.json"


class StoreError(RuntimeError):
    """The store cannot be used as asked, for a reason that is named."""


class StoreBusyError(StoreError):
    """Another process, or another writer of this one, is writing to the store."""


class UnfinishedError(StoreError):
    """Some trials are not done yet."""


class DamagedError(StoreError):
    """Files of the store are missing or broken."""


def check_writable(path: Path) -> None:
    """As `Store.check_writable`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise explained(error, f"cannot write results to the folder {path}") from error


def check_folder(path: Path, *, overwrite: bool) -> Path:
    """As `Store.check`."""
    check_writable(path)
    for name in (RESULTS, SUMMARY, REPORT):
        refuse_foreign(path / name)
        if os.path.lexists(path / name) and not overwrite:
            unfinished = name == RESULTS and not (path / SUMMARY).exists()
            again = f"take them up again with `nrjax resume {path}`, " if unfinished else ""
            raise FileExistsError(
                f"{path} holds results already ({name}{', unfinished' if unfinished else ''}): "
                f"{again}choose another folder, or ask to overwrite them (overwrite=True, "
                "--overwrite)"
            )
    return path


def refuse_foreign(path: Path) -> None:
    """Raise if another program, or a person, wrote what is in the place of one of our files.

    Raises:
        FileExistsError: it is such a file, which is never replaced.
    """
    ours = {RESULTS: _is_our_results, SUMMARY: _is_our_summary, REPORT: _is_our_report}
    if os.path.lexists(path) and not ours[path.name](path):
        raise FileExistsError(
            f"{path} was not written by nrjax and is left alone: "
            "choose another folder, or move it away"
        )


def check_space(path: Path, needed: int) -> None:
    """Raise now what a disk that is too small would raise after hours of work.

    Args:
        path: the folder.
        needed: bytes; floating-point noise shrinks little.

    Raises:
        OSError: less than half of it is free.
    """
    free = shutil.disk_usage(path).free
    if free < needed / 2:
        raise OSError(
            errno.ENOSPC,
            f"cannot begin in {path}: the results take up to {_size(needed)}, and "
            f"{_size(free)} are free there: make room, or choose another folder or fewer trials",
        )


def _size(count: int) -> str:
    """Bytes as one reads them."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1000:.3g} kB"


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system lets go of it when the process dies.

    Raises:
        StoreBusyError: somebody else holds it.
    """
    held = filelock.FileLock(folder / _LOCK)
    try:
        held.acquire(blocking=False)
    except filelock.Timeout as error:
        raise StoreBusyError(
            f"another run is writing to {folder}: wait for it, or choose another folder"
        ) from error
    except OSError as error:
        raise explained(error, f"cannot lock {folder}, which its file system must allow") from error
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


def write_document(folder: Path, name: str, text: str) -> Path:
    """Write the summary or the report whole; returns its path.

    Raises:
        FileExistsError: as `refuse_foreign`.
        OSError: the disk is full, or failed.
    """
    path = folder / name
    refuse_foreign(path)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise explained(error, f"cannot write {path}") from error
    return path


def write_figure(folder: Path, name: str, data: bytes) -> Path:
    """As `Store.write_figure`."""
    folder = folder / FIGURES
    path = folder / name
    ours = _figures(folder)
    if name not in ours and path.exists():
        raise FileExistsError(
            f"{path} was not written by nrjax and is left alone: move it away to draw"
        )
    try:
        folder.mkdir(exist_ok=True)
        if name not in ours:
            names = json.dumps(sorted([*ours, name]), indent=1)
            write_whole(folder / _DRAWN, names.encode())
        write_whole(path, data)
    except OSError as error:
        raise explained(error, f"cannot write {path}") from error
    return path


def explained(error: OSError, message: str) -> OSError:
    """The same failure, saying what it prevented."""
    return OSError(error.errno, f"{message}: {error.strerror or error}")


def read_manifest(results: Path) -> dict[str, Any]:
    """The manifest of these results, or nothing where there is none, or one that is no JSON."""
    try:
        manifest = json.loads((results / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _is_our_results(path: Path) -> bool:
    return "nrjax_store" in read_manifest(path)


def _is_our_summary(path: Path) -> bool:
    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and {"study", "nrjax", "cases"} <= set(summary)


def _is_our_report(path: Path) -> bool:
    try:
        return path.read_bytes().startswith(REPORT_MARK.encode())
    except OSError:
        return False


def _figures(folder: Path) -> list[str]:
    """Names of the files in `figures/` that the store has written."""
    path = folder / _DRAWN
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DamagedError(
            f"{path}, the list of the figures that are nrjax's, is broken: move {folder} away"
        ) from error


def clear_leftovers(path: Path) -> None:
    """Remove what a killed `create` left; only under the lock."""
    for name in (NEW, _OLD):
        shutil.rmtree(path / name, ignore_errors=True)


def clear_temporary(path: Path) -> None:
    """Remove what killed writers left of single files; only under the lock."""
    ours = (f"{RESULTS}/**/.*.tmp", f".{SUMMARY}.*.tmp", f".{REPORT}.*.tmp", f"{FIGURES}/.*.tmp")
    for pattern in ours:
        for leftover in path.glob(pattern):
            leftover.unlink(missing_ok=True)


def remove_results(path: Path) -> None:
    """Remove what earlier runs wrote, and nothing else; only under the lock."""
    if (path / RESULTS).exists():
        (path / RESULTS).rename(path / _OLD)  # a half-removed store would look like a stranger's
        shutil.rmtree(path / _OLD)
    for name in (SUMMARY, REPORT):
        (path / name).unlink(missing_ok=True)
    folder = path / FIGURES
    for name in _figures(folder):
        (folder / Path(name).name).unlink(missing_ok=True)
    (folder / _DRAWN).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: somebody else's figures
        folder.rmdir()
