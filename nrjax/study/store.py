"""The results of a run, in a folder; they survive being killed at any moment.

A folder holds `results/`, `summary.json`, `report.md` and `figures/`. In `results/` are
`manifest.json`, which says what is to be there, and for each pass of each case a folder of chunks.
A chunk is one file (`nrjax.study.chunks`), put in place by a rename: that it exists is that it is
done. More trials are one rename of the manifest. xarray opens a pass by
`xarray.open_dataset(folder, engine="nrjax", group="case/pass")`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax._numerics import check
from nrjax.study.chunks import packed, unpacked
from nrjax.study.folder import (
    MANIFEST,
    NEW,
    RESULTS,
    DamagedError,
    StoreBusyError,
    StoreError,
    UnfinishedError,
    check_folder,
    check_space,
    check_writable,
    clear_leftovers,
    clear_temporary,
    explained,
    lock,
    read_manifest,
    remove_results,
    write_figure,
    write_whole,
)
from nrjax.study.layout import (
    FORMAT,
    Case,
    Coordinate,
    Pass,
    Variable,
    checked_arrays,
    from_json,
    to_json,
    with_trials,
)

if TYPE_CHECKING:
    import xarray

__all__ = [
    "Case",
    "Coordinate",
    "DamagedError",
    "Pass",
    "Store",
    "StoreBusyError",
    "StoreError",
    "UnfinishedError",
    "Variable",
    "Writer",
]

_REMEMBERED = 2**28
"""Bytes of passes that were read last: one variable after another is asked for."""


class Store:
    """Results of one run of a study.

    Attributes:
        folder: where they are.
        settings: what `create` was given, as JSON gives it back.
        cases: the cases by name, in their order.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], cases: Sequence[Case]):
        self.folder = folder
        self.settings = settings
        self.cases = {case.name: case for case in cases}
        self._read: dict[tuple[str, str], xarray.Dataset] = {}

    @staticmethod
    def check(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Make the folder, and raise now what `create` would raise about it after hours of set-up.

        Raises:
            FileExistsError: it holds results and `overwrite` is false, or files that only look
                like results, which are never removed.
            OSError: it cannot be made or written to.
        """
        return check_folder(Path(folder), overwrite=overwrite)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        cases: Sequence[Case],
        *,
        overwrite: bool = False,
    ) -> Store:
        """Lay out an empty store; all of it or, if killed meanwhile, nothing.

        With `overwrite` the results, summary and figures of an earlier run are removed; files that
        the store has not written never are.

        Raises:
            FileExistsError, OSError: as `check`; or there is too little room.
            StoreBusyError: another process is writing to this folder.
            ValueError: a name, size or dimension that does not fit, or attributes that are not
                strict JSON.
        """
        layout = to_json(settings, cases)
        path = cls.check(folder, overwrite=overwrite)
        check_space(path, _space(cases))
        with lock(path):
            cls.check(path, overwrite=overwrite)  # another run may have come in between
            clear_leftovers(path)
            try:
                (path / NEW).mkdir()
                _write_manifest(path / NEW, layout)
            except OSError as error:
                clear_leftovers(path)
                raise explained(error, f"cannot lay out the results in {path}") from error
            if overwrite:
                remove_results(path)
            (path / NEW).rename(path / RESULTS)
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Store:
        """Open the results in a folder, finished or not; takes no lock.

        Raises:
            FileNotFoundError: the folder holds no results.
            ValueError: they are of another format, or not nrjax's.
            DamagedError: their manifest is broken.
        """
        path = Path(folder)
        if not (path / RESULTS).is_dir():
            raise FileNotFoundError(
                f"folder = {str(path)!r}: must be the folder of an earlier run, but there is no "
                f"{RESULTS} in it (a run that was stopped before it was laid out leaves none: "
                "begin it again with `nrjax run`)"
            )
        where, found = path / RESULTS / MANIFEST, read_manifest(path / RESULTS)
        if "nrjax_store" not in found:
            raise ValueError(
                f"{where} is missing, broken or not nrjax's: restore it from a copy, or choose "
                "another folder; nothing was changed"
            )
        if found["nrjax_store"] != FORMAT:
            raise ValueError(
                f"{path / RESULTS} has store format {found['nrjax_store']!r}; this version of "
                f"nrjax reads format {FORMAT}: use the version that wrote it, or run the study "
                "again in another folder"
            )
        layout = found.get("layout", {})
        if found.get("sha256") != _checksum(layout):
            raise DamagedError(
                f"{where} is broken: its checksum is not that of its contents; restore it from a "
                "copy, or run the study again in another folder"
            )
        return cls(path, *from_json(layout))

    def read(self, case: str, name: str, *, partial: bool = False) -> xarray.Dataset:
        """One pass of a case, with the coordinate `trial`.

        Where the trials were folded, chunk by chunk, the coordinate is `chunk`.

        Args:
            case: its name.
            name: the pass.
            partial: leave out the chunks that are not done yet, instead of refusing.

        Raises:
            UnfinishedError: some trials are not done and `partial` is false.
            DamagedError: a file is broken.
        """
        import xarray  # slow to import

        layout = self.layout_of(case, name)
        if (case, name) in self._read and not partial:
            return self._read[case, name]
        numbers: list[np.ndarray] = []
        parts: dict[str, list[np.ndarray]] = {variable: [] for variable in layout.variables}
        for chunk, arrays in self.parts(case, name, partial=partial):
            span = layout.span(chunk)
            numbers.append(
                np.arange(span.start, span.stop) if layout.axis == "trial" else np.array([chunk])
            )
            for variable, values in parts.items():
                one = arrays[variable]
                values.append(one if layout.axis == "trial" else one[None])
        variables = {}
        for variable, about in layout.variables.items():
            dims = [layout.axis, *(dim for dim, _ in about.dims)]
            none = np.empty((0, *(size for _, size in about.dims)), about.dtype)
            values = np.concatenate([none, *parts.pop(variable)])
            variables[variable] = (dims, values, about.attributes)
        along = {
            name: (one.dim, np.array(one.values), one.attributes)
            for name, one in layout.coordinates.items()
        }
        along[layout.axis] = (layout.axis, np.concatenate([np.empty(0, int), *numbers]), {})
        dataset = xarray.Dataset(variables, along, dict(self.cases[case].attributes))
        if not partial:
            self._read[case, name] = dataset
            while len(self._read) > 1 and sum(d.nbytes for d in self._read.values()) > _REMEMBERED:
                self._read.pop(next(iter(self._read)))
        return dataset

    def parts(
        self, case: str, name: str, *, partial: bool = False
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Number and arrays of each chunk of a pass, read as they are asked for.

        Raises:
            UnfinishedError, DamagedError: as `read`.
        """
        layout, here = self.layout_of(case, name), self.path_of(case, name)
        done = self.done(case, name)
        if not done.all() and not partial:
            raise UnfinishedError(
                f"{case}/{name} in {self.folder} is not finished: {int((~done).sum())} of "
                f"{layout.chunks} chunks are missing: finish the run with `nrjax resume "
                f"{self.folder}`, or read what there is with partial=True"
            )
        for chunk in np.flatnonzero(done).tolist():
            yield chunk, unpacked(here / layout.file_of(chunk))

    def done(self, case: str, name: str) -> np.ndarray:
        """Which chunks of a pass are done: bool, shape (chunks,)."""
        layout, here = self.layout_of(case, name), self.path_of(case, name)
        there = set(os.listdir(here)) if here.is_dir() else set()
        files = (layout.file_of(chunk) for chunk in range(layout.chunks))
        return np.fromiter((file in there for file in files), bool, layout.chunks)

    def finished(self) -> bool:
        """Whether every trial of every pass is done."""
        return all(
            self.done(name, one).all() for name, case in self.cases.items() for one in case.passes
        )

    def check_finished(self) -> None:
        """Raise if a trial is missing.

        Raises:
            UnfinishedError: one is.
        """
        if not self.finished():
            raise UnfinishedError(
                f"the run in {self.folder} is not finished: finish it with `nrjax resume "
                f"{self.folder}`, or the program that began it"
            )

    def check_space(self) -> None:
        """Raise if what is not done yet will not fit on the disk.

        Raises:
            OSError: there is too little room, or the folder cannot be written to.
        """
        check_writable(self.folder)
        missing = 0
        for name, case in self.cases.items():
            for one, layout in case.passes.items():
                missing += layout.bytes_of(int((~self.done(name, one)).sum()))
        check_space(self.folder, missing)

    def seconds(self, case: str) -> dict[str, float]:
        """Seconds spent on a case so far, by all that took part: `{"compile": ..., "run": ...}`."""
        spent = np.zeros(2)
        for name in self._case(case).passes:
            for _, arrays in self.parts(case, name, partial=True):
                spent += arrays["seconds"]
        return {"compile": float(spent[0]), "run": float(spent[1])}

    @contextlib.contextmanager
    def writer(self) -> Iterator[Writer]:
        """The right to write chunks, summary or figures, until the block ends or the process dies.

        Raises:
            StoreBusyError: somebody else holds it.
            StoreError: the results were replaced since this store was opened.
        """
        with lock(self.folder):
            current = Store.open(self.folder)
            if (current.settings, current.cases) != (self.settings, self.cases):
                raise StoreError(
                    f"the results in {self.folder} were replaced by another run since they were "
                    "opened: open them again"
                )
            clear_temporary(self.folder)
            yield Writer(self)

    def extend(self, trials: int, settings: Mapping[str, Any] | None = None) -> Store:
        """Ask for more trials in every pass; all of it or, if killed meanwhile, nothing.

        What is there stays, but for a short last chunk: longer now, it is pending again.

        Args:
            trials: how many there are to be in all.
            settings: in place of those of the store, where they name the trials.

        Returns:
            The store with the new trials, to be filled; this object still describes the old one.

        Raises:
            ValueError: there are more already.
            OSError: there is too little room.
            StoreBusyError, StoreError: as `writer`.
        """
        for name, case in self.cases.items():
            for one in case.passes.values():
                right = f"at least the {one.trials} that {name} has: trials are never taken away"
                check(trials >= one.trials, "trials", trials, right)
        cases = [with_trials(case, trials) for case in self.cases.values()]
        layout = to_json(self.settings if settings is None else settings, cases)
        check_space(self.folder, _space(cases) - _space(list(self.cases.values())))
        with self.writer():
            try:
                _write_manifest(self.folder / RESULTS, layout)
            except OSError as error:
                raise explained(error, f"cannot add trials to {self.folder}") from error
        return Store.open(self.folder)

    def write_figure(self, name: str, data: bytes) -> Path:
        """Put a file in `figures/` whole, and note that it is ours to replace; returns its path.

        Raises:
            FileExistsError: a file of that name is there which the store has not written.
        """
        return write_figure(self.folder, name, data)

    def layout_of(self, case: str, name: str) -> Pass:
        """The pass of a case.

        Raises:
            ValueError: there is no such case or pass.
        """
        passes = self._case(case).passes
        check(name in passes, "pass", name, f"one of {sorted(passes)}, the passes of {case}")
        return passes[name]

    def _case(self, case: str) -> Case:
        check(case in self.cases, "case", case, f"one of {sorted(self.cases)}")
        return self.cases[case]

    def path_of(self, case: str, name: str) -> Path:
        """Folder of a pass of a case; there once it has a chunk."""
        return self.folder / RESULTS / case / name


class Writer:
    """Writes chunks; from `Store.writer`."""

    def __init__(self, store: Store):
        self._store = store

    def pending(self, case: str, name: str) -> list[int]:
        """Numbers of the chunks of a pass that are not done."""
        return np.flatnonzero(~self._store.done(case, name)).tolist()

    def write(
        self,
        case: str,
        name: str,
        chunk: int,
        arrays: Mapping[str, Any],
        seconds: float = 0.0,
        compiling: float = 0.0,
    ) -> None:
        """Write one chunk: all variables of the pass, each of shape (trials of the chunk, ...).

        Where the trials were folded they are of shape (...), without an axis of trials.

        Args:
            case: its name.
            name: the pass.
            chunk: its number.
            arrays: the variables by name.
            seconds: how long it took to simulate.
            compiling: seconds of compilation before it.

        Raises:
            ValueError: a name, shape or dtype differs from the pass's.
            OSError: the disk is full, or failed. What is done stays done.
        """
        layout, here = self._store.layout_of(case, name), self._store.path_of(case, name)
        checked = checked_arrays(layout, chunk, arrays)
        data = packed(checked | {"seconds": np.array([compiling, seconds])})
        try:
            here.mkdir(parents=True, exist_ok=True)
            write_whole(here / layout.file_of(chunk), data)
        except OSError as error:
            raise explained(
                error,
                f"cannot write chunk {chunk} of {case}/{name} to {self._store.folder}; the chunks "
                "done before it are kept",
            ) from error
        # Shorter ones of the same beginning, from before trials were added.
        for old in here.glob(f"{layout.span(chunk).start:010}-*.npz"):
            if old.name != layout.file_of(chunk):
                old.unlink(missing_ok=True)


def _space(cases: Sequence[Case]) -> int:
    """Bytes that the results take."""
    passes = [one for case in cases for one in case.passes.values()]
    return sum(one.bytes_of(one.chunks) for one in passes)


def _write_manifest(results: Path, layout: dict[str, Any]) -> None:
    content = {"nrjax_store": FORMAT, "sha256": _checksum(layout), "layout": layout}
    write_whole(results / MANIFEST, json.dumps(content, indent=1).encode())


def _checksum(layout: Any) -> str:
    return hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest()
