"""A store: the results of a run in a folder, which survive a kill at any moment.

The folder of a run holds `results/`, `summary.json`, `report.md` and `figures/`. The folder
`results/` holds `manifest.json`, which describes all cases and passes, and one folder of chunks per
pass of each case. A chunk is a file of consecutive trials. Its name gives the trials, and it is
renamed to this name after it is complete, so the trials of an existing chunk are done. A run is
extended by a new manifest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.validation import check
from nrjax.study import files
from nrjax.study.checks import check_path
from nrjax.study.chunks import decode_chunk, disjoint, encode_chunk, file_of, overlap, span_of
from nrjax.study.files import (
    MANIFEST,
    RESULTS,
    StoreBusyError,
    StoreError,
    UnfinishedError,
    checksum_of,
    manifest_bytes,
    read_manifest,
    read_schema,
)
from nrjax.study.locks import Part, lock
from nrjax.study.schema import Pass, StoredCase, pass_of, to_json

_CACHE_BYTES = 2**30
"""The largest number of bytes in the cache of a store."""


class Store:
    """The results of one run of a study.

    Attributes:
        folder: path of the run.
        settings: facts of the run, such as its seed and environment, as strict JSON.
        cases: descriptions of the cases by name, in the order of the study.
        checksum: checksum of the schema when the store was opened.
        part: the part of the run that is written by this store, or None for the whole run.
        workers: numbers of workers of the cluster that ran trials for this store, or None.
    """

    part: Part | None = None
    workers: dict[str, int] | None = None

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        cases: Sequence[StoredCase],
        checksum: str = "",
    ):
        self.folder, self.settings, self.checksum = folder, settings, checksum
        self.cases = {case.name: case for case in cases}
        self._cache: dict[tuple[str, str], tuple[list[range], dict[str, np.ndarray]]] = {}
        self._seconds: dict[tuple[str, str, str], np.ndarray] = {}
        self._replacing: bytes | None = None
        self._earlier: dict[str, Any] = {}

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        cases: Sequence[StoredCase],
        *,
        overwrite: bool = False,
        deferred: bool = False,
        patient: bool = False,
    ) -> Store:
        """Create an empty store. A kill leaves the whole store or nothing.

        With `overwrite`, the results, summary, report and figures of an earlier run are removed.
        With `deferred`, they are removed when the first trials are written. With `patient`, wait
        for another process that creates a store in this folder.

        Raises:
            FileExistsError, OSError: as for `files.check_folder`.
            StoreBusyError: another process is writing to this folder.
            ValueError: as for `schema.to_json`.
        """
        schema, path = to_json(settings, cases), Path(folder)
        files.check_folder(path, overwrite=overwrite)
        store = cls._from_schema(path, schema)
        with lock(path, patient=patient):
            if not overwrite:  # another run may have started in between
                files.check_folder(path, overwrite=False)
            store._replacing, store._earlier = manifest_bytes(schema), read_manifest(path / RESULTS)
            if not (deferred and (path / RESULTS).exists()):
                store.replace()
        return store

    @property
    def is_deferred(self) -> bool:
        """Whether the folder still holds the earlier run, which the first trials will replace."""
        return self._replacing is not None

    def replace(self) -> None:
        """Replace an earlier run by this store, unless it is done. The caller holds the lock."""
        if self._replacing is not None:
            files.replace_results(self.folder, self._replacing)
            self._replacing = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Store:
        """Open the results in a folder, finished or not, without a lock.

        Raises:
            FileNotFoundError: the folder holds no results.
            ValueError: the results have another format, or were not written by nrjax.
            DamagedError: the manifest is broken.
        """
        check_path(folder)
        path = Path(folder)
        if not (path / RESULTS).is_dir():
            expected = "the folder of a run"
            hint = "There is no such folder."
            if path.is_dir():
                hint = f"It has no subfolder {RESULTS!r}. A run that stopped early leaves none: "
                hint += "start it again."
            raise FileNotFoundError(f"folder must be {expected} (got {str(path)!r}). {hint}")
        return cls._from_schema(path, read_schema(path))

    @classmethod
    def _from_schema(cls, folder: Path, schema: dict[str, Any]) -> Store:
        cases = [StoredCase.from_dict(case) for case in schema["cases"]]
        return cls(folder, schema["settings"], cases, checksum_of(schema))

    def arrays(
        self, case: str, name: str, *, partial: bool = False, rows: bool = True
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a pass, and with `rows` the array that labels their first axis.

        With `partial`, return the trials that are done.

        Raises:
            UnfinishedError: some trials are not done, without `partial`.
            DamagedError: a file is broken.
        """
        pass_, cached = self.pass_of(case, name), self._cache.get((case, name))
        if cached is None or partial:
            spans = self._readable(case, name, partial)
            cached = spans, self._joined(case, name, spans)
        if not partial:
            self._cache[case, name] = cached
            while len(self._cache) > 1 and _bytes_of(self._cache.values()) > _CACHE_BYTES:
                self._cache.pop(next(iter(self._cache)))
        spans, joined = cached
        if not rows:
            return dict(joined)
        return {pass_.axis: np.concatenate([np.empty(0, int), *map(pass_.rows, spans)]), **joined}

    def _joined(self, case: str, name: str, spans: list[range]) -> dict[str, np.ndarray]:
        """Return the arrays of the trials in `spans`. Two threads read one file each."""
        pass_ = self.pass_of(case, name)
        sizes = [len(span) if pass_.axis == "trial" else 1 for span in spans]
        shapes = {key: (sum(sizes), *one.shape) for key, one in pass_.variables.items()}
        joined = {key: np.empty(shapes[key], one.dtype) for key, one in pass_.variables.items()}

        def read(span: range, size: int, end: int) -> None:
            chunk = self.read(case, name, span)
            for key, values in joined.items():
                values[end - size : end] = chunk[key]

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(read, spans, sizes, np.cumsum(sizes)))  # raises their errors
        return joined

    def parts(
        self, case: str, name: str, *, partial: bool = False
    ) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
        """Yield the trials and arrays of each file of a pass. Errors are as for `arrays`."""
        for span in self._readable(case, name, partial):
            yield span, self.read(case, name, span)

    def _readable(self, case: str, name: str, partial: bool) -> list[range]:
        """Return the trials of each file of a pass, or raise an error as for `arrays`."""
        if not partial and self.pending(case, name):
            self.check_finished()
        return self.done(case, name)

    def read(self, case: str, name: str, span: range) -> dict[str, np.ndarray]:
        """Return the arrays of a file of a pass, or raise DamagedError if it is broken."""
        file = file_of(span)
        arrays = decode_chunk(self.path_of(case, name) / file, self.tag_of(case, name, file))
        self._seconds[case, name, file] = arrays["seconds"].copy()  # not a view of the file
        return arrays

    def written(self, case: str, name: str) -> list[range]:
        """Return the trials of each file in the folder of a pass, in order."""
        folder = self.path_of(case, name)
        exists = folder.is_dir() and not self.is_deferred
        spans = map(span_of, os.listdir(folder) if exists else ())
        return sorted(filter(None, spans), key=lambda span: (span.start, span.stop))

    def done(self, case: str, name: str) -> list[range]:
        """Return the trials of a pass that are done, as one range per file, in order.

        No trial is in two of them. Files that share trials with another file are left out. They
        arise if two runs write at once on a file system without locks. Nothing is lost, since a
        trial gives the same results whenever it is run.
        """
        return disjoint(filter(self.pass_of(case, name).holds, self.written(case, name)))

    def wanted(self, case: str, name: str) -> range:
        """Return the trials of a pass that this store is to run: those of its part, or all."""
        trials = self.pass_of(case, name).trials
        return range(trials) if self.part is None else self.part.span(trials)

    def pending(self, case: str, name: str, within: range | None = None) -> list[range]:
        """Return the pending trials of a pass, in ranges that lie within one chunk each.

        By default all of them, otherwise those within a range of trials.
        """
        pass_, pending = self.pass_of(case, name), []
        within = range(pass_.trials) if within is None else within
        at = within.start
        for span in (*self.done(case, name), range(within.stop, within.stop)):
            if at < min(span.start, within.stop):
                pending += pass_.pieces(range(at, min(span.start, within.stop)))
            at = max(at, span.stop)
        return pending

    def passes(self) -> Iterator[tuple[str, str, Pass]]:
        """Yield the name of the case, the name of the pass and the pass, for every pass."""
        for case in self.cases.values():
            for name, pass_ in case.passes.items():
                yield case.name, name, pass_

    def finished(self) -> bool:
        """Return whether every trial of every pass is done."""
        return not any(self.pending(case, name) for case, name, _ in self.passes())

    def check_finished(self) -> None:
        """Raise UnfinishedError if a trial is pending, or StoreError as for `check_current`."""
        if not self.finished():
            self.check_current()
            raise UnfinishedError(
                f"the run in {self.folder} is not finished: {self.resume_command} finishes it"
            )

    def check_current(self) -> None:
        """Raise StoreError if the results were extended or replaced since this store was opened."""
        if self.is_deferred:
            same = read_manifest(self.folder / RESULTS) == self._earlier
        else:
            same = checksum_of(read_schema(self.folder)) == self.checksum
        if not same:
            raise StoreError(
                f"the results in {self.folder} were extended, or replaced by another run, since "
                "they were opened: open them again"
            )

    @property
    def resume_command(self) -> str:
        """The command or the call that resumes the run, as text for a message."""
        here = f"`nrjax resume {self.folder}`"
        return here if self.is_from_shell else "the same call of Study.run"

    @property
    def is_from_shell(self) -> bool:
        """Whether the command can make the study again."""
        return self.settings.get("source") is not None

    def seconds(self, case: str) -> dict[str, float]:
        """Return the seconds spent on a case so far, by all calls and all workers.

        `compile` and `run` are totals over all passes. `curves` is the part of `run` that was spent
        on passes other than "outcome".
        """
        totals, curves = np.zeros(2), 0.0
        for name, pass_ in self.cases[case].passes.items():
            for span in self.written(case, name):
                if span.stop <= pass_.trials:
                    key = case, name, file_of(span)
                    if key not in self._seconds:
                        self.read(case, name, span)
                    seconds = self._seconds[key]
                    totals += seconds
                    curves += 0.0 if name == "outcome" else float(seconds[1])
        return dict(zip(("compile", "run", "curves"), (*totals.tolist(), curves), strict=True))

    @contextlib.contextmanager
    def writer(self) -> Iterator[Writer]:
        """Hold the lock of the folder until the block ends, and yield a writer.

        The lock is released if the process dies.

        Raises:
            StoreBusyError: another process or writer holds the lock.
            StoreError: the results were extended or replaced since this store was opened.
        """
        with lock(self.folder, self.part):
            self.check_current()
            if self.part is None:  # the other parts may be writing theirs
                files.remove_temporary(self.folder)
            yield Writer(self)

    def extend(self, trials: int, settings: Mapping[str, Any]) -> Store:
        """Increase the number of trials of every pass, and return the new store.

        All files of trials stay. `settings` replaces the settings of the store. A kill leaves the
        old or the new number of trials.

        Raises:
            ValueError: the run has more than `trials` trials already.
            StoreBusyError, StoreError: as for `writer`.
        """
        for case, _, pass_ in self.passes():
            expected = f"at least the {pass_.trials} that {case} has: trials are never removed"
            check(trials >= pass_.trials, "trials", trials, expected)
        cases = [case.with_trials(trials) for case in self.cases.values()]
        schema = to_json(settings, cases)
        store = Store._from_schema(self.folder, schema)
        with self.writer(), files.explaining(f"cannot add trials to {self.folder}"):
            files.atomic_write(self.folder / RESULTS / MANIFEST, manifest_bytes(schema))
        return store

    def pass_of(self, case: str, name: str) -> Pass:
        """Return a pass of a case, or raise KeyError if there is none."""
        return pass_of(self.cases, case, name)

    def tag_of(self, case: str, name: str, file: str) -> bytes:
        """Return bytes that identify the run, case, pass and trials in a chunk's checksum."""
        prints = self.settings.get("fingerprints", {}).get(case, {})
        return repr((self.settings.get("seed"), prints.get(name), case, name, file)).encode()

    def path_of(self, case: str, name: str) -> Path:
        """Return the path of a pass's folder, which exists only if the pass has a chunk."""
        return self.folder / RESULTS / case / name


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


def _bytes_of(passes: Iterable[tuple[list[range], dict[str, np.ndarray]]]) -> int:
    return sum(array.nbytes for _, arrays in passes for array in arrays.values())
