"""The folder of a run: which files in it are ours, who may write, and writing a file whole."""

import contextlib
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

RESULTS = "results.zarr"
SUMMARY = "summary.json"
REPORT = "report.md"
REPORT_MARK = "<!-- written by nrjax -->"
FIGURES = "figures"
NEW = ".results.zarr.new"
_OLD = ".results.zarr.old"
_LOCK = ".nrjax.lock"
_MANIFEST = ".nrjax-figures.json"


class StoreBusyError(RuntimeError):
    """Another process, or another writer of this one, is writing to the store."""


def check_folder(path: Path, *, overwrite: bool) -> Path:
    """As `Store.check`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise explained(error, f"cannot write results to the folder {path}") from error
    ours = {RESULTS: _is_our_results, SUMMARY: _is_our_summary, REPORT: _is_our_report}
    for name, is_ours in ours.items():
        if not os.path.lexists(path / name):
            continue
        if not is_ours(path / name):
            raise FileExistsError(
                f"{path / name} was not written by nrjax and is left alone: "
                "choose another folder, or move it away"
            )
        if not overwrite:
            raise FileExistsError(
                f"{path} holds results already ({name}): choose another "
                "folder, or ask to overwrite them (overwrite=True, --overwrite)"
            )
    return path


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system lets go of it when the process dies."""
    held = filelock.FileLock(folder / _LOCK)
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


def write_figure(folder: Path, name: str, data: bytes) -> Path:
    """As `Store.write_figure`."""
    folder = folder / FIGURES
    path = folder / name
    folder.mkdir(exist_ok=True)
    ours = _figures(folder)
    if name not in ours:
        if path.exists():
            raise FileExistsError(
                f"{path} was not written by nrjax and is left alone: move it away to draw"
            )
        names = json.dumps(sorted([*ours, name]), indent=1)
        write_whole(folder / _MANIFEST, names.encode())
    write_whole(path, data)
    return path


def explained(error: OSError, message: str) -> OSError:
    """The same failure, saying what it prevented."""
    return OSError(error.errno, f"{message}: {error.strerror or error}")


def read_layout(results: Path) -> dict[str, Any]:
    """The root attributes, or nothing where this is not a Zarr store."""
    try:
        layout = json.loads((results / "zarr.json").read_bytes())["attributes"]
    except (OSError, ValueError, KeyError):
        return {}
    return layout if isinstance(layout, dict) else {}


def _is_our_results(path: Path) -> bool:
    return "nrjax_store" in read_layout(path)


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
    try:
        return json.loads((folder / _MANIFEST).read_bytes())
    except FileNotFoundError:
        return []


def clear_leftovers(path: Path) -> None:
    """Remove what a killed `create` left; only under the lock."""
    for name in (NEW, _OLD):
        shutil.rmtree(path / name, ignore_errors=True)


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
    (folder / _MANIFEST).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: somebody else's figures
        folder.rmdir()
