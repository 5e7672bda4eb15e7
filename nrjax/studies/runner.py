"""A study from its settings to its store and figures; taken up again where it was stopped.

What is in the folder says how far a run is, and every step can be killed: the layout appears
whole, chunks count when they are flagged, more trials are asked for by one rename, and summary,
report and figures are made again from the store.
"""

import contextlib
import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nrjax._numerics import check
from nrjax.keys import study_key
from nrjax.program import Program
from nrjax.studies import identity
from nrjax.studies.common import Progress, chunk_size, fill
from nrjax.studies.folder import RESULTS
from nrjax.studies.group import ALONE, Group
from nrjax.studies.layout import with_trials
from nrjax.studies.precision import first_look, wanted
from nrjax.studies.report import Report
from nrjax.studies.settings import begun, from_plain, to_plain
from nrjax.studies.store import Store, UnfinishedError

__all__ = ["STUDIES", "Study", "find", "finished", "resume", "run"]

STUDIES = ("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023")
"""Packages of `nrjax.studies` that are a `Study`, in the order in which help lists them."""

_LATER = ("scipy.special", "xarray", "nrjax.plots")
"""What summary and figures need, and nothing before: slow to import."""

_LATE = 60.0
"""Seconds after which a network file system has shown what other machines wrote: NFS remembers for
up to 60 that a file was not there."""


class Study(Protocol):
    """A study's package; `also(cases)`, what else its store's settings hold, is optional."""

    @property
    def NAME(self) -> str:
        """As the command has it."""
        ...

    @property
    def Settings(self) -> type[Any]:
        """What can be chosen: a `RunSettings` with the study's own fields."""
        ...

    def setups(self, settings: Any) -> list[Any]:
        """The cases, dataclasses with a `case` each; nothing is written."""
        ...

    def programs(self, cases: Sequence[Any]) -> Mapping[str, Mapping[str, Program]]:
        """What fills the store, by case and pass."""
        ...

    def conclude(self, store: Store) -> None:
        """Write summary.json and report.md, from the store alone."""
        ...

    def plot(self, store: Store) -> None:
        """Write the figures, from the store alone."""
        ...

    def report(self, store: Store) -> Report:
        """The table, from the store and its summary."""
        ...


def find(name: Any) -> Any:
    """The package of a study.

    Raises:
        ValueError: there is none of that name.
    """
    check(name in STUDIES, "study", name, f"one of {STUDIES}")
    return importlib.import_module(f"nrjax.studies.{name}")


def finished(folder: str | os.PathLike[str]) -> tuple[Any, Store]:
    """The study and the store of a finished run.

    Raises:
        UnfinishedError: it is not finished.
        FileNotFoundError, ValueError, DamagedError: as `Store.open`.
    """
    store = Store.open(folder)
    study = find(store.settings.get("study"))
    if not store.finished():
        raise UnfinishedError(
            f"the run in {store.folder} is not finished: finish it with `nrjax resume "
            f"{store.folder}`"
        )
    return study, store


def run(study: Any, settings: Any, progress: Progress | None = None, group: Group = ALONE) -> Store:
    """Run a study and leave its store, summary, report and figures in `settings.out`.

    Args:
        study: its package, a `Study`.
        settings: of its class `Settings`.
        progress: told of every chunk that is done; None for silence.
        group: the processes that run it together; each calls this.

    Returns:
        The finished store.

    Raises:
        FileExistsError: the folder holds results already and `overwrite` is not set.
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
        OSError: the folder cannot be written to, or the disk is full; the message says whether
            something is kept.
        DamagedError: files of the store have been broken meanwhile.
    """
    fresh = not settings.out.exists()
    if group.first:
        Store.check(settings.out, overwrite=settings.overwrite)
    settings = begun(settings)
    # What is chosen by the number of trials must stay as it is when trials are added.
    settings = dataclasses.replace(settings, chunk=chunk_size(settings))
    store = None
    try:
        setups = study.setups(settings)
        programs = study.programs(setups)
        prints = identity.fingerprints(programs)
        if group.first:
            also = getattr(study, "also", None)
            facts = identity.facts(study.NAME, settings) | {"fingerprints": prints}
            store = Store.create(
                settings.out,
                facts | ({} if also is None else also(setups)),
                [setup.case for setup in setups],
                overwrite=settings.overwrite,
            )
    except BaseException:
        if fresh and group.first:
            with contextlib.suppress(OSError):
                settings.out.rmdir()  # nothing was written: leave no trace
        raise
    group.wait("the store is laid out")
    if store is None:
        store = _laid_out(settings.out)
        identity.refuse(settings.out, identity.differences_of_run(store.settings, study, settings))
        _check_same(store, settings, setups, prints)
    return _complete(study, store, settings, setups, progress, group)


def resume(
    folder: str | os.PathLike[str],
    trials: int | None = None,
    progress: Progress | None = None,
    group: Group = ALONE,
    *,
    until_se: float | None = None,
) -> Store:
    """Take up a run that was stopped, or add trials to it; the same bits as without a stop.

    Its settings are those in the store. A finished run gets its summary and figures again.

    Args:
        folder: of the run.
        trials: how many there are to be of each case, in all; None for no more than planned.
        progress: told of every chunk that is done; None for silence.
        group: the processes that run it together, as many as there are now; each calls this.
        until_se: in place of the one in the store, as `RunSettings` has it.

    Returns:
        The finished store.

    Raises:
        FileNotFoundError: there are no results in the folder, or no data where they were.
        ValueError: `trials` are fewer than there are; `until_se` is finer than the histograms of
            the store; or the results would not be the same here, and why.
        DamagedError: files of the store are missing or broken.
        StoreBusyError: another process is at work on it.
        OSError: as `run`.
    """
    store = Store.open(folder)
    if group.first:
        store.check_space()
    study = find(store.settings.get("study"))
    settings = from_plain(
        study.Settings, store.settings["settings"], out=store.folder, overwrite=False
    )
    present = settings.trials
    if trials is not None:
        right = f"at least {present}, which there are: trials are never taken away"
        check(present <= trials <= 2**32, "trials", trials, f"{right}; and at most 2^32")
    other = until_se is not None and until_se != settings.until_se
    if other:
        settings = dataclasses.replace(settings, trials=trials or present, until_se=until_se)
        trials = first_look(settings)
        settings = dataclasses.replace(settings, trials=present)
    group.wait("the store is opened")
    group.check_same("trials", present if trials is None else trials)
    group.check_same("until_se", settings.until_se)
    nothing = store.finished() and trials in (None, present) and not other
    if group.agree(int(group.first and nothing and _wanted(store, settings) is None)):
        _conclude(study, store, group)
        return store
    here = identity.facts(study.NAME, settings)
    identity.refuse(store.folder, identity.differences_of_facts(store.settings, here))
    setups = study.setups(settings)
    programs = study.programs(setups)
    _check_same(store, settings, setups, identity.fingerprints(programs))
    if trials is not None and (trials > present or other):
        store, settings, setups = _extended(store, settings, setups, trials, group)
    return _complete(study, store, settings, setups, progress, group)


def _check_same(store: Store, settings: Any, setups: Sequence[Any], prints: Any) -> None:
    stored = store.settings.get("fingerprints", {})
    cases = [setup.case for setup in setups]
    found = identity.differences_of_cases(list(store.cases.values()), cases, stored, prints)
    identity.refuse(settings.out, found)


def _complete(
    study: Any,
    store: Store,
    settings: Any,
    setups: Sequence[Any],
    progress: Progress | None,
    group: Group,
) -> Store:
    """Run what is missing, and more as long as the precision asked for is not reached."""
    key = study_key(settings.seed)
    while True:
        with _resumable(store.folder):
            later = _LATER if group.first and study.NAME in STUDIES else ()
            fill(store, key, _programs(study, settings, setups), progress, group, later)
        group.wait("every chunk is done")
        if group.first and group.processes > 1:
            _eventually(store.finished)
        more = group.agree((_wanted(store, settings) or 0) if group.first else 0)
        if not more:
            break
        store, settings, setups = _extended(store, settings, setups, more, group)
    _conclude(study, store, group)
    return store


def _programs(
    study: Any, settings: Any, setups: Sequence[Any]
) -> Mapping[str, Mapping[str, Program]]:
    """The programs; with room for whole chunks where more trials may come, to compile only once."""
    if settings.until_se is not None:
        trials = max(settings.trials, settings.chunk)
        setups = [
            dataclasses.replace(setup, case=with_trials(setup.case, trials)) for setup in setups
        ]
    return study.programs(setups)


def _extended(
    store: Store, settings: Any, setups: Sequence[Any], trials: int, group: Group
) -> tuple[Store, Any, list[Any]]:
    """Store, settings and cases with more trials."""
    settings = dataclasses.replace(settings, trials=trials)
    if group.first:
        with _resumable(store.folder):
            store = store.extend(trials, store.settings | {"settings": to_plain(settings)})
    group.wait("trials are added")
    if not group.first:
        store = Store.open(store.folder)
    cases = [dataclasses.replace(setup, case=with_trials(setup.case, trials)) for setup in setups]
    return store, settings, cases


def _wanted(store: Store, settings: Any) -> int | None:
    return wanted(store, settings)


def _conclude(study: Any, store: Store, group: Group) -> None:
    if group.first:
        with _resumable(store.folder), store.writer():
            study.conclude(store)
            study.plot(store)
    group.wait("summary and figures are written")


def _laid_out(folder: Path) -> Store:
    """The store that process 0 has made."""
    _eventually((folder / RESULTS).exists)
    try:
        return Store.open(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"out = {str(folder)!r}: must be a folder that all processes share; process 0 has laid "
            "out the results in one of that name, and they are not seen here"
        ) from error


def _eventually(there: Callable[[], bool]) -> None:
    """Wait a while for what another process has written: network file systems show it late."""
    end = time.monotonic() + _LATE
    while not there() and time.monotonic() < end:
        time.sleep(0.1)


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say of a failure of the disk, or of Ctrl-C, how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"what was done is in the folder: `nrjax resume {folder}` takes it up again"
        raise KeyboardInterrupt(kept) from None
    except OSError as error:
        if error.errno is None:
            raise
        message = f"{error.strerror}; then `nrjax resume {folder}` goes on from there"
        raise OSError(error.errno, message) from error
