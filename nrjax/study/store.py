"""The results of a run, in a folder; they survive being killed at any moment.

A folder holds `results/`, `summary.json`, `report.md` and `figures/`. In `results/` are
`manifest.json`, which says what is to be there, and for each pass of each case a folder of files.
A file holds the consecutive trials that its name gives, and is put in place by a rename: if it
exists, these trials are done. More trials are one rename of the manifest.
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

from nrjax._validation import check
from nrjax.study import folder as disk
from nrjax.study import layout as layouts
from nrjax.study.folder import MANIFEST, RESULTS, DamagedError, StoreError, UnfinishedError
from nrjax.study.layout import FORMAT, Case, Pass

if TYPE_CHECKING:
    import xarray

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
        self._read: dict[tuple[str, str], dict[str, np.ndarray]] = {}

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
        are not as nrjax wrote them never are.

        Raises:
            FileExistsError, OSError: as `check_folder`; or there is too little room.
            StoreBusyError: another process is writing to this folder.
            ValueError: as `layout.to_json`.
        """
        layout, path = layouts.to_json(settings, cases), Path(folder)
        disk.check_folder(path, overwrite=overwrite)
        cls(path, {}, cases).check_space()
        with disk.lock(path):
            disk.check_folder(path, overwrite=overwrite)  # another run may have come in between
            disk.lay_out(path, manifest_of(layout))
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
                f"folder {RESULTS!r} in it (a run that was stopped before it was laid out leaves "
                "none: begin it again)"
                if path.is_dir()
                else f"folder = {str(path)!r}: must be the folder of an earlier run; there is none"
            )
        where, found = path / RESULTS / MANIFEST, disk.read_manifest(path / RESULTS)
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
        return cls(path, *layouts.from_json(layout))

    def read(self, case: str, name: str) -> xarray.Dataset:
        """One pass of a case, along `trial` or, where the trials were folded, along `chunk`.

        Raises:
            UnfinishedError: some trials are not done.
            DamagedError: a file is broken.
        """
        arrays, about = self.arrays(case, name), self.cases[case].attributes
        return self.layout_of(case, name).dataset(arrays, about)

    def arrays(self, case: str, name: str, *, partial: bool = False) -> dict[str, np.ndarray]:
        """The same, by variable, and its axis; `partial` leaves out what is not done."""
        layout = self.layout_of(case, name)
        if (case, name) in self._read and not partial:
            return dict(self._read[case, name])
        parts = {key: [np.empty((0, *of.shape), of.dtype)] for key, of in layout.variables.items()}
        parts[layout.axis] = [np.empty(0, int)]
        for span, arrays in self.parts(case, name, partial=partial):
            numbers = layout.as_numeric(span)
            rows = arrays | {layout.axis: numbers}
            for key, values in parts.items():
                values.append(rows[key].reshape(numbers.size, *values[0].shape[1:]))
        found = {key: np.concatenate(parts.pop(key)) for key in list(parts)}
        if not partial:
            self._read[case, name] = found
            while len(self._read) > 1 and self._bytes_read() > _REMEMBERED:
                self._read.pop(next(iter(self._read)))
        return dict(found)

    def _bytes_read(self) -> int:
        return sum(one.nbytes for arrays in self._read.values() for one in arrays.values())

    def parts(
        self, case: str, name: str, *, partial: bool = False
    ) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
        """Yield the trials and arrays of each file of a pass, read as needed; as `read`."""
        if not partial and self.pending(case, name):
            self.check_finished()
        for span in self.done(case, name):
            yield span, self._unpacked(case, name, span)

    def _unpacked(self, case: str, name: str, span: range) -> dict[str, np.ndarray]:
        file = layouts.file_of(span)
        return layouts.unpacked(self.path_of(case, name) / file, self.tag_of(case, name, file))

    def _written(self, case: str, name: str) -> list[range]:
        """Return the trials of all files of a pass, in order; also files that are replaced."""
        here = self.path_of(case, name)
        spans = map(layouts.span_of, os.listdir(here) if here.is_dir() else ())
        found = [span for span in spans if span is not None]
        return sorted(found, key=lambda span: (span.start, span.stop))

    def done(self, case: str, name: str) -> list[range]:
        """Return the trials of a pass that are done, a range per file, in order."""
        return list(filter(self.layout_of(case, name).holds, self._written(case, name)))

    def pending(self, case: str, name: str) -> list[range]:
        """Return the trials of a pass that are not done, in order; no range crosses a chunk."""
        layout, found, at = self.layout_of(case, name), [], 0
        for span in (*self.done(case, name), range(layout.trials, layout.trials)):
            if at < span.start:
                found += layout.pieces(range(at, span.start))
            at = span.stop
        return found

    def passes(self) -> Iterator[tuple[str, str, Pass]]:
        """All of them, with the names of the case and of the pass."""
        for case in self.cases.values():
            for name, layout in case.passes.items():
                yield case.name, name, layout

    def finished(self) -> bool:
        """Whether every trial of every pass is done."""
        return not any(self.pending(case, name) for case, name, _ in self.passes())

    def check_finished(self) -> None:
        """Raise UnfinishedError if a trial is missing; StoreError as `check_current`."""
        if not self.finished():
            self.check_current()
            raise UnfinishedError(
                f"the run in {self.folder} is not finished: {self.again} finishes it"
            )

    def check_current(self) -> None:
        """Raise StoreError if the results were extended or replaced since this store was opened."""
        current = Store.open(self.folder)
        if (current.settings, current.cases) != (self.settings, self.cases):
            raise StoreError(
                f"the results in {self.folder} were extended, or replaced by another run, since "
                "they were opened: open them again"
            )

    @property
    def again(self) -> str:
        """What takes the run up again, in words."""
        shell = self.settings.get("source") is not None
        return f"`nrjax resume {self.folder}`" if shell else "the same call of Study.run"

    def check_space(self) -> None:
        """Raise OSError if what is not done yet cannot be written, or will not fit on the disk."""
        missing = [
            layout.bytes_of(span)
            for case, name, layout in self.passes()
            for span in self.pending(case, name)
        ]
        disk.check_writable(self.folder, sum(missing))

    def seconds(self, case: str) -> dict[str, float]:
        """Return the seconds spent on a case so far, in all calls and by all that took part.

        `compile`, `run`, and of the latter what passes other than that of the trials took:
        `curves`. A folded chunk that was run again, since trials were added, counts twice.
        """
        spent, curves = np.zeros(2), 0.0
        for name, layout in self.cases[case].passes.items():
            for span in self._written(case, name):
                if span.stop <= layout.trials:
                    seconds = self._unpacked(case, name, span)["seconds"]
                    spent += seconds
                    curves += 0.0 if name == "outcome" else float(seconds[1])
        return dict(zip(("compile", "run", "curves"), (*spent.tolist(), curves), strict=True))

    @contextlib.contextmanager
    def writer(self) -> Iterator[Writer]:
        """The right to write chunks, summary or figures, until the block ends or the process dies.

        Raises:
            StoreBusyError: somebody else holds it.
            StoreError: the results were extended or replaced since this store was opened.
        """
        with disk.lock(self.folder):
            self.check_current()
            disk.clear_temporary(self.folder)
            yield Writer(self)

    def extend(self, trials: int, settings: Mapping[str, Any]) -> Store:
        """Ask for so many trials of every pass, in all; all of it or, if killed meanwhile, nothing.

        All files stay. A short last chunk of folded trials is longer now: it is pending again.
        `settings` replace the store's, which name the trials.

        Raises:
            ValueError: there are more already.
            OSError: there is too little room.
            StoreBusyError, StoreError: as `writer`.
        """
        for case, _, layout in self.passes():
            right = f"at least the {layout.trials} that {case} has: trials are never taken away"
            check(trials >= layout.trials, "trials", trials, right)
        cases = [layouts.with_trials(case, trials) for case in self.cases.values()]
        manifest = manifest_of(layouts.to_json(settings, cases))
        Store(self.folder, {}, cases).check_space()
        with self.writer(), disk.saying(f"cannot add trials to {self.folder}"):
            disk.write_whole(self.folder / RESULTS / MANIFEST, manifest)
        return Store.open(self.folder)

    def layout_of(self, case: str, name: str) -> Pass:
        """The pass of a case; ValueError if there is no such case or pass."""
        return layouts.pass_of(self.cases, case, name)

    def tag_of(self, case: str, name: str, file: str) -> bytes:
        """What a chunk in a file is of: its run, its case and pass, and its trials."""
        prints = self.settings.get("fingerprints", {}).get(case, {})
        run = self.settings.get("seed"), prints.get(name)
        return repr((*run, case, name, file)).encode()

    def path_of(self, case: str, name: str) -> Path:
        """Folder of a pass of a case; there once it has a chunk."""
        return self.folder / RESULTS / case / name


class Writer:
    """Writes chunks; from `Store.writer`."""

    def __init__(self, store: Store):
        self._store = store

    def write(
        self,
        case: str,
        name: str,
        span: range,
        arrays: Mapping[str, Any],
        seconds: float = 0.0,
        compiling: float = 0.0,
    ) -> None:
        """Write a file of consecutive trials, and the seconds to simulate and to compile them.

        The arrays are of shape (trials of the file, ...), or (...) if the trials were folded.

        Raises:
            ValueError: a name, shape or dtype differs from the pass's.
            OSError: the disk is full, or failed. What is done stays done.
        """
        layout, here = self._store.layout_of(case, name), self._store.path_of(case, name)
        checked = layouts.checked_arrays(layout, span, arrays)
        file, spent = layouts.file_of(span), np.array([compiling, seconds])
        trials = f"trials {span.start} to {span.stop - 1} of {case}/{name}"
        what = f"cannot write {trials} to {self._store.folder}; what was done before is kept"
        with disk.saying(what):
            here.mkdir(parents=True, exist_ok=True)
            tag = self._store.tag_of(case, name, file)
            disk.write_whole(here / file, layouts.packed(checked | {"seconds": spent}, tag))


def manifest_of(layout: dict[str, Any]) -> bytes:
    """The contents of `manifest.json`."""
    content = {"nrjax_store": FORMAT, "sha256": _checksum(layout), "layout": layout}
    return json.dumps(content, indent=1).encode()


def _checksum(layout: Any) -> str:
    return hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest()
