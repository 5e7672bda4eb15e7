"""What was worked out from arrays, kept in the cache folder for the next run."""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._machine import cores, processor
from nrjax.datasets._files import Arrays, cache_folder, checksum, read_npz, write_npz

_MOST = 64
"""Files that are kept; the oldest go first."""

_SETTINGS = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which sums may be taken in another order."""


def remembered(
    recipe: str,
    inputs: Sequence[Any],
    code: Path,
    names: Sequence[str],
    work: Callable[[], Arrays],
) -> Arrays:
    """What `work` makes of the inputs, from the cache folder if it was made before; the same bits.

    A file is taken for inputs that are the same to the bit, of the same source code, with the same
    versions, on the same kind of machine. One that is damaged is made anew; where none can be
    written nothing is kept.

    Args:
        recipe: name of the work; part of the file's name.
        inputs: arrays and numbers that the work depends on, all of them.
        code: folder whose modules do the work.
        names: of the arrays that it makes.
        work: makes them, in a dict by name.
    """
    try:
        digest = _digest(inputs, [checksum(sorted(code.glob("*.py"))), *_surroundings()])
        path = cache_folder() / f"prepared-{recipe}-{digest[:32]}.npz"
    except (OSError, ModuleNotFoundError):  # no source; no platformdirs: nowhere to keep it
        return work()
    with contextlib.suppress(OSError, ValueError):
        return read_npz(path, names)
    made = work()
    with contextlib.suppress(OSError):
        write_npz(path, made)
        _forget_oldest(path.parent, f"prepared-{recipe}-*.npz")
    return made


def _digest(inputs: Sequence[Any], facts: Sequence[Any]) -> str:
    total = hashlib.sha256(repr(facts).encode())
    for value in inputs:
        array = np.ascontiguousarray(value)
        total.update(f"{array.dtype.str}{np.shape(value)}".encode())
        total.update(array.data)
    return total.hexdigest()


def _surroundings() -> list[Any]:
    """What the last bits depend on, besides the inputs."""
    import jax

    return [
        [importlib.metadata.version(name) for name in ("numpy", "jax", "jaxlib")],
        jax.local_devices()[0].device_kind,
        processor(),
        cores(),
        [os.environ.get(name) for name in _SETTINGS],
    ]


def _forget_oldest(folder: Path, pattern: str) -> None:
    kept = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    for path in kept[:-_MOST]:
        path.unlink(missing_ok=True)
