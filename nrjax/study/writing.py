"""The writer of a store's files, which `Store.writer` makes while it holds the lock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study import files
from nrjax.study.chunks import encode_chunk, file_of, overlap
from nrjax.study.files import StoreBusyError

if TYPE_CHECKING:
    from nrjax.study.store import Store


class Writer:
    """A writer of the files of a store, made by `Store.writer`."""

    def __init__(self, store: Store):
        self._store = store
        self._changed: dict[Path, int] = {}  # when each folder was last changed by this writer

    def write(
        self,
        case: str,
        name: str,
        span: range,
        arrays: Mapping[str, Any],
        seconds: float = 0.0,
        compiling: float = 0.0,
    ) -> None:
        """Write a chunk: a file of consecutive trials of a pass.

        Args:
            case: name of the case.
            name: name of the pass.
            span: the trials.
            arrays: arrays of the trials by name. Each has one row per trial if the pass stores
                trials, and no axis of trials if the pass counts them.
            seconds: seconds of the simulation.
            compiling: seconds of the compilation.

        Raises:
            ValueError: a name, shape or dtype does not match the description of the pass.
            StoreBusyError: another run has written some of these trials in the meantime.
            OSError: the disk is full, or writing fails. Files written before are kept.
        """
        store, file = self._store, file_of(span)
        checked = store.pass_of(case, name).checked(span, arrays)
        content = encode_chunk(
            checked | {"seconds": np.array([compiling, seconds])}, store.tag_of(case, name, file)
        )
        trials = f"trials {span.start} to {span.stop - 1} of {case}/{name}"
        failed = f"cannot write {trials} to {store.folder}; earlier trials are kept"
        with files.explaining(failed):
            store.replace()
            folder = store.path_of(case, name)
            folder.mkdir(parents=True, exist_ok=True)
            is_ours = self._changed.get(folder) == folder.stat().st_mtime_ns
            if not is_ours and any(overlap(span, other) for other in store.done(case, name)):
                raise StoreBusyError(
                    f"{trials} were written by another run in the meantime: two runs write to "
                    f"{store.folder}, whose file system does not lock files for both. Stop one of "
                    "them. Each trial is counted once"
                )
            files.atomic_write(folder / file, content)
            self._changed[folder] = folder.stat().st_mtime_ns

    def write_document(self, name: str, content: str | bytes) -> None:
        """Write a file into the folder of the run, such as `summary.json`."""
        files.write_document(self._store.folder, name, content)
