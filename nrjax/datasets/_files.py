"""Helpers for data folders, optional packages, NPZ files and cached arrays."""

import contextlib
import hashlib
import importlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from nrjax._base.cache import cache_folder
from nrjax._base.extras import missing
from nrjax._base.validation import check

Arrays = dict[str, np.ndarray]
PathLike = str | os.PathLike[str]
UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
"""Exceptions that NumPy, pandas and the standard library raise for a damaged file."""


def extra(module: str) -> ModuleType:
    """Import a package of the extra `studies`. The error explains how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error.name, "nrjax.datasets") from error


def data_folder(data_dir: PathLike | None = None) -> Path:
    """Return the folder of data files: `data_dir`, else `NRJAX_DATA`, else the cache folder."""
    if data_dir is None:
        data_dir = os.environ.get("NRJAX_DATA") or cache_folder()
    return Path(data_dir).expanduser()


def first_present(data_dir: PathLike | None, names: Sequence[str]) -> Path | None:
    """Return the first of the named files that exists in the data folder, or None."""
    paths = (data_folder(data_dir) / name for name in names)
    return next((path for path in paths if path.is_file()), None)


def existing_file(path: Path) -> Path:
    """Return the path of a file, or raise FileNotFoundError."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return path


def read_npz(path: Path, names: Sequence[str] = ()) -> Arrays:
    """Return the arrays of an NPZ file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, lacks an array of `names`, or holds Python objects.
    """
    try:
        # Opened here, since NumPy leaves a damaged file open.
        with existing_file(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except (*UNREADABLE, AttributeError, TypeError) as error:  # the last two: an NPY file
        raise ValueError(f"{path} could not be read as NPZ with plain arrays: {error}") from error
    complete = set(names) <= set(arrays)
    check(complete, f"arrays of {path}", list(arrays), " and ".join(map(repr, names)))
    return arrays


def cached_arrays(recipe: str, sources: Sequence[Path], prepare: Callable[..., Arrays]) -> Arrays:
    """Return the arrays of `prepare(*sources)`, read from the cache if it has them.

    The cache file is named by `recipe` (a name and a version, such as "flights-1") and a hash of
    the source files. A damaged cache file is replaced. A cache that cannot be written is ignored.
    """
    total = hashlib.sha256()
    for source in sources:
        with source.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    try:
        path = cache_folder() / f"prepared-{recipe}-{total.hexdigest()[:16]}.npz"
    except ModuleNotFoundError:  # without platformdirs there is no cache
        return prepare(*sources)
    with contextlib.suppress(OSError, ValueError):
        return read_npz(path)
    arrays = prepare(*sources)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is renamed when complete, so that other processes never read a part of it.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            np.savez_compressed(part, **arrays)  # pyright: ignore[reportArgumentType]
            part.replace(path)
    return arrays
