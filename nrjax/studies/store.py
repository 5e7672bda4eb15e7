"""The result store that all studies share; it survives being killed at any moment.

A folder holds `results.zarr` (Zarr v3, laid out for xarray: one group per case and pass),
`summary.json` and `figures/`. Trials are written in chunks: the data first, then, in a separate
write, the flag `done` of that chunk. Only `done` counts, since several arrays cannot be written
as one. Each file is put in place by a rename. That is safe against the death of the process at
any moment and a full disk, not against a power cut.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

try:
    import xarray
    import zarr
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'the result store needs {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

from nrjax._numerics import check
from nrjax.studies.folder import (
    NEW,
    RESULTS,
    StoreBusyError,
    check_folder,
    clear_leftovers,
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
    checked_arrays,
    from_json,
    to_json,
)

__all__ = ["Case", "Coordinate", "Pass", "Store", "StoreBusyError", "Variable", "Writer"]


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
    ) -> "Store":
        """Lay out an empty store; all of it or, if killed meanwhile, nothing.

        With `overwrite` the results, summary and figures of an earlier run are removed; files that
        the store has not written never are.

        Raises:
            FileExistsError, OSError: as `check`.
            StoreBusyError: another process is writing to this folder.
            ValueError: a name, size or dimension that does not fit, or attributes that are not
                strict JSON.
        """
        layout = to_json(settings, cases)
        path = cls.check(folder, overwrite=overwrite)
        with lock(path):
            cls.check(path, overwrite=overwrite)  # another run may have come in between
            clear_leftovers(path)
            try:
                _lay_out(path / NEW, layout)
            except OSError as error:
                clear_leftovers(path)
                raise explained(error, f"cannot lay out the results in {path}") from error
            if overwrite:
                remove_results(path)
            (path / NEW).rename(path / RESULTS)
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Store":
        """Open the results in a folder, finished or not; takes no lock.

        Raises:
            FileNotFoundError: the folder holds no results.
            ValueError: they are of another format, or not nrjax's.
        """
        path = Path(folder)
        if not (path / RESULTS).is_dir():
            raise FileNotFoundError(
                f"folder = {str(path)!r}: must be the folder of an earlier run, "
                f"but there is no {RESULTS} in it"
            )
        layout = read_layout(path / RESULTS)
        if layout.get("nrjax_store") != FORMAT:
            raise ValueError(
                f"{path / RESULTS} has store format {layout.get('nrjax_store')!r}; "
                f"this version of nrjax reads format {FORMAT}"
            )
        return cls(path, *from_json(layout))

    def read(self, case: str, name: str, *, partial: bool = False) -> xarray.Dataset:
        """One pass of a case, with the coordinate `trial`; loaded from disk as it is used.

        Args:
            case: its name.
            name: the pass.
            partial: leave out the trials that are not done yet, instead of refusing.

        Raises:
            RuntimeError: some trials are not done and `partial` is false.
        """
        layout = self._pass(case, name)
        done = self.done(case, name)
        if not done.all() and not partial:
            raise RuntimeError(
                f"{case}/{name} in {self.folder} is not finished: {int((~done).sum())} of "
                f"{layout.chunks} chunks are missing; read it with partial=True, or finish the run"
            )
        # Undecoded, so that no number is ever taken for a mark of missing data or for a date.
        dataset = xarray.open_zarr(
            self.folder / RESULTS,
            group=f"{case}/{name}",
            decode_cf=False,
            consolidated=False,
            chunks=None,
        )
        dataset = dataset.drop_vars("done").set_coords(list(layout.coordinates))
        dataset = dataset.assign_coords(trial=np.arange(layout.trials))
        dataset.attrs = dict(self.cases[case].attributes)
        if not done.all():
            keep = np.repeat(done, layout.chunk)[: layout.trials]
            dataset = dataset.load().isel(trial=np.flatnonzero(keep))
        return dataset

    def done(self, case: str, name: str) -> np.ndarray:
        """Which chunks of a pass are done: bool, shape (chunks,)."""
        self._pass(case, name)
        array = zarr.open_array(self.folder / RESULTS / case / name / "done", mode="r")
        return np.asarray(array[:], dtype=bool)

    def seconds(self, case: str) -> dict[str, float]:
        """Seconds spent on a case so far: `{"compile": ..., "run": ...}`."""
        self._case(case)
        return dict(cast(Any, self._group(case, "r").attrs["seconds"]))

    @contextlib.contextmanager
    def writer(self) -> Iterator["Writer"]:
        """The right to write, held until the block ends or the process dies.

        Raises:
            StoreBusyError: somebody else holds it.
            RuntimeError: the results were replaced since this store was opened.
        """
        with lock(self.folder):
            current = Store.open(self.folder)
            if (current.settings, current.cases) != (self.settings, self.cases):
                raise RuntimeError(
                    f"the results in {self.folder} were replaced by another run since they were "
                    "opened: open them again"
                )
            for leftover in (self.folder / RESULTS).rglob("*.partial"):  # of a killed writer
                leftover.unlink(missing_ok=True)
            yield Writer(self)

    def write_figure(self, name: str, data: bytes) -> Path:
        """Put a file in `figures/` whole, and note that it is ours to replace; returns its path.

        Raises:
            FileExistsError: a file of that name is there which the store has not written.
        """
        return write_figure(self.folder, name, data)

    def _case(self, case: str) -> Case:
        check(case in self.cases, "case", case, f"one of {sorted(self.cases)}")
        return self.cases[case]

    def _pass(self, case: str, name: str) -> Pass:
        passes = self._case(case).passes
        check(name in passes, "pass", name, f"one of {sorted(passes)}, the passes of {case}")
        return passes[name]

    def _group(self, path: str, mode: Any) -> zarr.Group:
        return zarr.open_group(self.folder / RESULTS, path=path, mode=mode)


class Writer:
    """Writes chunks; from `Store.writer`."""

    def __init__(self, store: Store):
        self._store = store
        self._arrays: dict[tuple[str, str], dict[str, zarr.Array]] = {}

    def pending(self, case: str, name: str) -> list[int]:
        """Numbers of the chunks of a pass that are not done."""
        return np.flatnonzero(~self._store.done(case, name)).tolist()

    def write(self, case: str, name: str, chunk: int, arrays: Mapping[str, Any]) -> None:
        """Write one chunk: all variables of the pass, each of shape (trials of the chunk, ...).

        Raises:
            ValueError: a name, shape or dtype differs from the pass's, or the chunk is done
                already (writing it twice could leave half of it behind a flag).
            OSError: the disk is full, or failed. What is done stays done.
        """
        layout = self._store._pass(case, name)
        checked = checked_arrays(layout, chunk, arrays)
        targets = self._open(case, name)
        check(not targets["done"][chunk], "chunk", chunk, f"pending, but {case}/{name} has it done")
        try:
            for variable, values in checked.items():
                self._write_data(targets[variable], layout.span(chunk), values)
            self._write_flag(targets["done"], chunk)
        except OSError as error:
            raise explained(
                error,
                f"cannot write chunk {chunk} of {case}/{name} to {self._store.folder}; the chunks "
                "done before it are kept",
            ) from error

    def add_seconds(self, case: str, *, compile: float = 0.0, run: float = 0.0) -> None:
        """Add to the seconds spent on a case."""
        before = self._store.seconds(case)
        after = {"compile": before["compile"] + compile, "run": before["run"] + run}
        try:
            self._store._group(case, "r+").attrs["seconds"] = after
        except OSError as error:
            raise explained(error, f"cannot note the seconds of {case}") from error

    def _open(self, case: str, name: str) -> dict[str, zarr.Array]:
        if (case, name) not in self._arrays:
            # A chunk equal to the fill value would otherwise be no file at all, and -0.0 would
            # come back as 0.0.
            with zarr.config.set({"array.write_empty_chunks": True}):
                group = self._store._group(f"{case}/{name}", "r+")
                names = [*self._store._pass(case, name).variables, "done"]
                self._arrays[case, name] = {key: cast(zarr.Array, group[key]) for key in names}
        return self._arrays[case, name]

    @staticmethod
    def _write_data(target: zarr.Array, span: slice, values: np.ndarray) -> None:
        target[span] = values

    @staticmethod
    def _write_flag(target: zarr.Array, chunk: int) -> None:
        target[chunk] = True


def _lay_out(path: Path, layout: dict[str, Any]) -> None:
    """Groups, and arrays without data."""
    root = zarr.create_group(path, zarr_format=3, attributes=layout)
    made: list[tuple[Pass, Path]] = []
    for case in from_json(layout)[1]:
        seconds = {"seconds": {"compile": 0.0, "run": 0.0}}
        group = root.create_group(case.name, attributes=seconds)
        for name, one in case.passes.items():
            here = path / case.name / name
            # Zarr takes a tenth of a second for the arrays of a pass; copies of files take none.
            like = next((there for other, there in made if other == one), None)
            if like is None:
                _lay_out_arrays(group.create_group(name), one)
                made.append((one, here))
            else:
                shutil.copytree(like, here)
            # `coordinates` is how xarray finds them when it opens the group on its own.
            names = {"coordinates": " ".join(one.coordinates)} if one.coordinates else {}
            zarr.open_group(here, mode="r+").attrs.put({**case.attributes, **names})


def _lay_out_arrays(group: zarr.Group, layout: Pass) -> None:
    for name, variable in layout.variables.items():
        dims, sizes = [dim for dim, _ in variable.dims], [size for _, size in variable.dims]
        group.create_array(
            name,
            shape=(layout.trials, *sizes),
            chunks=(min(layout.chunk, layout.trials), *sizes),
            dtype=variable.dtype,
            fill_value=np.nan if np.dtype(variable.dtype).kind == "f" else 0,
            dimension_names=("trial", *dims),
            attributes=variable.attributes,
        )
    for name, coordinate in layout.coordinates.items():
        array = group.create_array(
            name,
            shape=(len(coordinate.values),),
            dtype="float64",
            dimension_names=(coordinate.dim,),
            attributes=coordinate.attributes,
        )
        array[:] = np.array(coordinate.values)
    # One flag a file, so that no flag is rewritten with its neighbours.
    group.create_array(
        "done",
        shape=(layout.chunks,),
        chunks=(1,),
        dtype="bool",
        fill_value=False,
        dimension_names=("chunk",),
    )
