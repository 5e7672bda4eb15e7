"""Folders, environment variables, optional packages, tables, and the cache of prepared arrays."""

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
from typing import Any

import numpy as np

from nrjax._extras import missing

Arrays = dict[str, np.ndarray]
PathLike = str | os.PathLike[str]
UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
"""What NumPy, pandas and the standard library raise for a damaged NPZ or compressed file."""


def extra(module: str) -> ModuleType:
    """Import a package of the extra `studies`; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error.name, "nrjax.datasets") from error


def cache_folder() -> Path:
    """Where prepared arrays are kept: the variable `NRJAX_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("NRJAX_CACHE")  # empty is as unset
    if not chosen:
        chosen = extra("platformdirs").user_cache_dir("nrjax", appauthor=False)
    return Path(chosen).expanduser()


def data_folder(data_dir: PathLike | None = None) -> Path:
    """The one folder searched for data files: `data_dir`, else `NRJAX_DATA`, else the cache."""
    if data_dir is None:
        data_dir = os.environ.get("NRJAX_DATA") or cache_folder()
    return Path(data_dir).expanduser()


def first_present(data_dir: PathLike | None, names: Sequence[str]) -> Path | None:
    """The first of the named files that is in the data folder."""
    paths = (data_folder(data_dir) / name for name in names)
    return next((path for path in paths if path.is_file()), None)


def read_npz(path: Path, names: Sequence[str] | None = None) -> Arrays:
    """The arrays of an NPZ file, all of them unless `names` says which.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, lacks one of `names`, or holds Python objects.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        # Opened here, since NumPy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            held = list(file.files)
            arrays = {name: file[name] for name in held if names is None or name in names}
    except (*UNREADABLE, AttributeError, TypeError) as error:  # the last two: an NPY named NPZ
        raise ValueError(f"{path} could not be read as NPZ with plain arrays: {error}") from error
    missing = [name for name in names or () if name not in arrays]
    if missing:
        raise ValueError(f"{path} holds the arrays {held}: it lacks {missing}.")
    return arrays


def drawn_rows(path: Path, what: str, shape: tuple[int, int], count: int, **options: Any) -> Any:
    """`count` rows of a published table without a header, by `default_rng(0)`, as pandas has them.

    A `ValueError` unless the file can be read, with the options of `pandas.read_csv`, and gives a
    complete table of this shape.
    """
    pandas = extra("pandas")
    try:
        table = pandas.read_csv(path, header=None, **options)
    except UNREADABLE as error:
        raise ValueError(f"{path} could not be read as the {what} file: {error}") from error
    gaps = int(table.isna().to_numpy().sum())
    if table.shape != shape or gaps:
        raise ValueError(
            f"{path} has shape {table.shape} with {gaps} values missing; expected {shape} "
            "complete: the file is cut short or another one."
        )
    return table.iloc[np.random.default_rng(0).choice(shape[0], count, replace=False)]


def cached(recipe: str, sources: Sequence[Path], prepare: Callable[..., Arrays]) -> Arrays:
    """What `prepare(*sources)` makes of the source files, from the cache if it is there.

    Keyed by the recipe's name and version (such as "flights-1") and the sources' sha256. A damaged
    cache file is made anew; a cache that cannot be written is no error.
    """
    total = hashlib.sha256()
    for source in sources:
        with source.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    try:
        path = cache_folder() / f"prepared-{recipe}-{total.hexdigest()[:16]}.npz"
    except ModuleNotFoundError:  # no platformdirs: nowhere to keep it
        return prepare(*sources)
    with contextlib.suppress(OSError, ValueError):
        return read_npz(path)
    arrays = prepare(*sources)
    with contextlib.suppress(OSError):
        _write_npz(path, arrays)
    return arrays


def _write_npz(path: Path, arrays: Arrays) -> None:
    """Others see either all of the file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
