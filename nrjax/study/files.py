"""The folder, lock and manifest of a run, and functions that write files atomically."""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nrjax._base.extras import missing

RESULTS, MANIFEST = "results", "manifest.json"
SUMMARY, REPORT, PAGE, FIGURES = "summary.json", "report.md", "report.html", "figures"
_DOCUMENTS = (SUMMARY, REPORT, PAGE)
_NEW, _OLD = ".results.new", ".results.old"
_WRITING_SECONDS = 3600.0
"""Seconds after which a temporary file of another node is one of a killed writer."""


class StoreError(RuntimeError):
    """An error raised when a store cannot be used as requested."""


class StoreBusyError(StoreError):
    """An error raised when another process or writer is writing to the store."""


class UnfinishedError(StoreError):
    """An error raised when results are read before all trials have run."""


class DamagedError(StoreError):
    """An error raised when files of the store are missing or broken."""


def check_packages(*names: str) -> None:
    """Raise ModuleNotFoundError if a package that a run needs is not installed."""
    for name in names:
        try:
            found = importlib.util.find_spec(name)
        except ValueError:  # the import is blocked: sys.modules holds None
            found = None
        if found is None:
            raise missing(name, "a study")


@contextlib.contextmanager
def explaining(message: str) -> Iterator[None]:
    """Prefix the message of an OSError raised in the block with `message`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{message}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Create a folder for results if it is missing, or raise OSError if it is not writable."""
    if path.is_file():
        raise FileExistsError(f"{path} is a file: choose a folder for the results")
    other = "choose another, with --out in the command"
    with explaining(f"cannot write results to the folder {path} ({other})"):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Create a folder for a new run, and check that no file in it would be replaced.

    Raises:
        FileExistsError: the folder holds a run, and `overwrite` is false; or the folder holds no
            run, but files that are named like the files of a run, which are never removed.
        OSError: the folder cannot be written to.
    """
    check_writable(path)
    if "nrjax_store" not in read_manifest(path / RESULTS):
        for name in (RESULTS, *_DOCUMENTS):
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
    """Make a folder for a new run, and remove it if the block fails before it writes a file."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        check_folder(path, overwrite=overwrite)
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in new:
                folder.rmdir()  # fails if something was written
        raise


def _host() -> str:
    return socket.gethostname().replace(".", "-")


def temporary_of(path: Path) -> Path:
    """Return the path of the file that this process writes before it renames it to `path`."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.tmp")


def atomic_write(path: Path, data: bytes) -> None:
    """Replace the content of a file such that a kill leaves the old or the new content."""
    temporary = temporary_of(path)
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
    """Write the summary, the report or a figure of a run, and return its path."""
    path = folder / name
    with explaining(f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, content.encode() if isinstance(content, str) else content)
    return path


def read_manifest(results: Path) -> dict[str, Any]:
    """Return the manifest in a folder of results, or {} if there is no valid manifest."""
    try:
        manifest = json.loads((results / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def remove_temporary(path: Path) -> None:
    """Remove the temporary files of killed writers. The caller must hold the lock."""
    patterns = (f"{RESULTS}/**/.*.tmp", f"{FIGURES}/.*.tmp")
    for pattern in (*patterns, *(f".{name}.*.tmp" for name in _DOCUMENTS)):
        for leftover in path.glob(pattern):
            if not _is_being_written(leftover):
                leftover.unlink(missing_ok=True)


def _is_being_written(temporary: Path) -> bool:
    """Return whether the writer of a temporary file may be alive, where locks do not show it."""
    host, process = temporary.stem.rsplit(".", 2)[1:]
    try:
        if host != _host():
            return time.time() - temporary.stat().st_mtime < _WRITING_SECONDS
        os.kill(int(process), 0)
    except (OSError, ValueError):
        return False
    return int(process) != os.getpid()


def replace_results(path: Path, manifest: bytes) -> None:
    """Replace an earlier run by empty results. The caller must hold the lock.

    If the process is killed or the disk is full, either the earlier results or none are left.
    """
    for name in (_NEW, _OLD):  # a killed process may have left them
        shutil.rmtree(path / name, ignore_errors=True)
    with explaining(f"cannot create the results in {path}"):
        (path / _NEW).mkdir()
        atomic_write(path / _NEW / MANIFEST, manifest)
    # Remove the results last: without them, the documents would not be recognised as a run.
    for pattern in (*_DOCUMENTS, f"{FIGURES}/*.png", f"{FIGURES}/*.svg"):
        for document in path.glob(pattern):
            document.unlink()
    with contextlib.suppress(OSError):  # the folder is missing, or holds other files
        (path / FIGURES).rmdir()
    if (path / RESULTS).exists():
        (path / RESULTS).rename(path / _OLD)  # so that no half-removed results remain
        shutil.rmtree(path / _OLD)
    (path / _NEW).rename(path / RESULTS)


FORMAT = 6
"""The version of the store's format. It is increased when older stores could be misread."""


def manifest_bytes(schema: dict[str, Any]) -> bytes:
    """Return the content of `manifest.json` for a schema."""
    content = {"nrjax_store": FORMAT, "sha256": checksum_of(schema), "layout": schema}
    return json.dumps(content, indent=1).encode()


def checksum_of(schema: Any) -> str:
    """Return the checksum of a schema."""
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()


def read_schema(folder: Path) -> dict[str, Any]:
    """Return the schema in the manifest of a folder. Errors are as for `Store.open`."""
    path, manifest = folder / RESULTS / MANIFEST, read_manifest(folder / RESULTS)
    if "nrjax_store" not in manifest:
        raise ValueError(
            f"{path} is missing, broken or not written by nrjax: restore it from a copy, or choose "
            "another folder; nothing was changed"
        )
    if manifest["nrjax_store"] != FORMAT:
        raise ValueError(
            f"{path.parent} has store format {manifest['nrjax_store']!r}; this version of nrjax "
            f"reads format {FORMAT}: use the version that wrote it, or run the study again in "
            "another folder"
        )
    schema = manifest.get("layout", {})
    if manifest.get("sha256") != checksum_of(schema):
        raise DamagedError(
            f"{path} is broken: its checksum does not match; restore it from a copy, or run the "
            "study again in another folder"
        )
    return schema
