"""The result store that all studies share; it survives being killed at any moment.

A folder holds `results.zarr` (Zarr v3, laid out for xarray: one group per case and pass),
`summary.json` and `figures/`. Trials are written in chunks: the data first, then, in a separate
write, how many trials of that chunk are `done`. Only `done` counts, since several arrays cannot be
written as one. Each file is put in place by a rename. That is safe against the death of the process
at any moment and a full disk, not against a power cut.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import zarr  # noqa: F401

    if importlib.util.find_spec("xarray") is None:  # imported only to read: pandas comes with it
        raise ModuleNotFoundError("No module named 'xarray'", name="xarray")
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'the result store needs {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

from nrjax._numerics import check
from nrjax.studies import arrays, reading
from nrjax.studies.folder import (
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
    read_layout,
    remove_results,
    write_figure,
)
from nrjax.studies.layout import (
    FORMAT,
    Case,
    Coordinate,
    Pass,
    Variable,
    from_json,
    to_json,
    with_trials,
)
from nrjax.studies.writer import Writer

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
        check_space(path, arrays.space(cases))
        with lock(path):
            cls.check(path, overwrite=overwrite)  # another run may have come in between
            clear_leftovers(path)
            try:
                arrays.lay_out(path / NEW, layout)
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
            DamagedError: files are missing or broken.
        """
        path = Path(folder)
        if not (path / RESULTS).is_dir():
            raise FileNotFoundError(
                f"folder = {str(path)!r}: must be the folder of an earlier run, but there is no "
                f"{RESULTS} in it (a run that was stopped before it was laid out leaves none: "
                "begin it again with `nrjax run`)"
            )
        layout = read_layout(path / RESULTS)
        if "nrjax_store" not in layout:
            raise ValueError(
                f"{path / RESULTS / 'zarr.json'} is missing, broken or not nrjax's: restore it "
                "from a copy, or choose another folder; nothing was changed"
            )
        if layout["nrjax_store"] != FORMAT:
            written = layout.get("settings", {}).get("nrjax", "another version")
            raise ValueError(
                f"{path / RESULTS} has store format {layout['nrjax_store']!r}, written by nrjax "
                f"{written}; this version reads format {FORMAT}: use that version, or run the "
                "study again in another folder"
            )
        try:
            settings, cases = from_json(layout)
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"{path / RESULTS / 'zarr.json'} lacks parts of the layout ({error!r}): restore "
                "it from a copy, or run the study again in another folder"
            ) from error
        arrays.check_whole(path / RESULTS, cases)
        return cls(path, settings, cases)

    def read(self, case: str, name: str, *, partial: bool = False) -> xarray.Dataset:
        """One pass of a case, with the coordinate `trial`; loaded from disk as it is used.

        Where the trials were folded, chunk by chunk, the coordinate is `chunk`.

        Args:
            case: its name.
            name: the pass.
            partial: leave out the chunks that are not done yet, instead of refusing.

        Raises:
            UnfinishedError: some trials are not done and `partial` is false.
            DamagedError: a file is missing or broken.
        """
        layout, here = self.layout_of(case, name), self.path_of(case, name)
        done = self.done(case, name)
        if not done.all() and not partial:
            raise UnfinishedError(
                f"{case}/{name} in {self.folder} is not finished: {int((~done).sum())} of "
                f"{layout.chunks} chunks are missing: finish the run with `nrjax resume "
                f"{self.folder}`, or read what there is with partial=True"
            )
        arrays.check_chunks(here, layout, done)
        dataset = reading.opened(here, layout, done)
        dataset.attrs = dict(self.cases[case].attributes)
        return dataset

    def done(self, case: str, name: str) -> np.ndarray:
        """Which chunks of a pass are done: bool, shape (chunks,)."""
        layout = self.layout_of(case, name)
        return self._marks(case, name, "done") == layout.sizes()

    def finished(self) -> bool:
        """Whether every trial of every pass is done."""
        return all(
            self.done(name, one).all() for name, case in self.cases.items() for one in case.passes
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
        """Seconds spent on a case so far: `{"compile": ..., "run": ...}`.

        Where several processes ran it, their seconds of running are added, and one compiled.
        """
        passes = self._case(case).passes
        compiled = arrays.attributes_of(self.path_of(case))["compile_seconds"]
        run = sum(
            float(self._marks(case, name, "seconds")[self.done(case, name)].sum())
            for name in passes
        )
        return {"compile": compiled, "run": run}

    @contextlib.contextmanager
    def writer(self, rank: int = 0) -> Iterator[Writer]:
        """The right to write chunks, summary or figures, until the block ends or the process dies.

        Args:
            rank: of this process, where several write different chunks. Rank 0 clears up first,
                before the others may begin.

        Raises:
            StoreBusyError: somebody else holds it.
            StoreError: the results were replaced since this store was opened.
            DamagedError: a chunk that is done lacks a file.
        """
        with lock(self.folder, rank):
            current = Store.open(self.folder)
            if (current.settings, current.cases) != (self.settings, self.cases):
                raise StoreError(
                    f"the results in {self.folder} were replaced by another run since they were "
                    "opened: open them again"
                )
            if rank == 0:
                clear_temporary(self.folder)
                arrays.fit(self.folder / RESULTS, list(self.cases.values()))
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
        check_space(self.folder, arrays.space(cases) - arrays.space(list(self.cases.values())))
        with self.writer():
            try:
                arrays.fit(self.folder / RESULTS, cases)
                arrays.set_attributes(self.folder / RESULTS, layout)
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

    def path_of(self, *parts: str) -> Path:
        """Folder of a case, a pass or an array."""
        return (self.folder / RESULTS).joinpath(*parts)

    def _marks(self, case: str, name: str, array: str) -> np.ndarray:
        chunks = self.layout_of(case, name).chunks
        return arrays.read_marks(self.path_of(case, name), array, chunks)
