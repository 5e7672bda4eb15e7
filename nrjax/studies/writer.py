"""Writing the chunks of a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import zarr

from nrjax._numerics import check
from nrjax.studies.arrays import attributes_of, check_chunks, read_mark, set_attributes, write_mark
from nrjax.studies.folder import explained
from nrjax.studies.layout import checked_arrays

if TYPE_CHECKING:
    from nrjax.studies.store import Store


class Writer:
    """Writes chunks; from `Store.writer`."""

    def __init__(self, store: Store):
        self._store = store
        self._arrays: dict[tuple[str, str], dict[str, zarr.Array]] = {}

    def pending(self, case: str, name: str) -> list[int]:
        """Numbers of the chunks of a pass that are not done.

        Raises:
            DamagedError: one that is done lacks a file.
        """
        done = self._store.done(case, name)
        layout = self._store.layout_of(case, name)
        check_chunks(self._store.path_of(case, name), layout, done)
        return np.flatnonzero(~done).tolist()

    def write(
        self, case: str, name: str, chunk: int, arrays: Mapping[str, Any], seconds: float = 0.0
    ) -> None:
        """Write one chunk: all variables of the pass, each of shape (trials of the chunk, ...).

        Where the trials were folded they are of shape (...), without an axis of trials.

        Args:
            case: its name.
            name: the pass.
            chunk: its number.
            arrays: the variables by name.
            seconds: how long it took to simulate.

        Raises:
            ValueError: a name, shape or dtype differs from the pass's, or the chunk is done
                already (writing it twice could leave half of it behind a flag).
            OSError: the disk is full, or failed. What is done stays done.
        """
        layout = self._store.layout_of(case, name)
        checked = checked_arrays(layout, chunk, arrays)
        targets, here = self._open(case, name), self._store.path_of(case, name)
        size = layout.span(chunk).stop - layout.span(chunk).start
        right = f"pending, but {case}/{name} has it done"
        check(read_mark(here, "done", chunk) != size, "chunk", chunk, right)
        try:
            for variable, values in checked.items():
                self._write_data(targets[variable], layout.rows_of(chunk), values)
            write_mark(here, "seconds", chunk, seconds)
            self._write_flag(here, chunk, size)
        except OSError as error:
            raise explained(
                error,
                f"cannot write chunk {chunk} of {case}/{name} to {self._store.folder}; the chunks "
                "done before it are kept",
            ) from error

    def add_seconds(self, case: str, *, compile: float) -> None:
        """Add to the seconds that the programs of a case took to compile; rank 0 only."""
        folder = self._store.path_of(case)
        found = attributes_of(folder)
        try:
            set_attributes(folder, found | {"compile_seconds": found["compile_seconds"] + compile})
        except OSError as error:
            raise explained(error, f"cannot note the seconds of {case}") from error

    def _open(self, case: str, name: str) -> dict[str, zarr.Array]:
        if (case, name) not in self._arrays:
            # A chunk equal to the fill value would otherwise be no file at all, and -0.0 would
            # come back as 0.0.
            with zarr.config.set({"array.write_empty_chunks": True}):
                group = zarr.open_group(self._store.path_of(case, name), mode="r+")
                names = self._store.layout_of(case, name).variables
                self._arrays[case, name] = {key: cast(zarr.Array, group[key]) for key in names}
        return self._arrays[case, name]

    @staticmethod
    def _write_data(target: zarr.Array, rows: slice, values: np.ndarray) -> None:
        target[rows] = values

    @staticmethod
    def _write_flag(here: Path, chunk: int, size: int) -> None:
        write_mark(here, "done", chunk, size)
