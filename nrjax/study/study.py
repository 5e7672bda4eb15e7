"""A study: named cases, run many times under common random numbers, into a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jax import Array

from nrjax._numerics import check
from nrjax.interaction import Interaction
from nrjax.keys import study_key
from nrjax.study import identity, layout
from nrjax.study.case import Case, Quantity
from nrjax.study.cluster import fill_by_workers
from nrjax.study.filling import Progress, fill
from nrjax.study.folder import RESULTS
from nrjax.study.looks import chunk_size, first_look
from nrjax.study.plans import Plan, plans
from nrjax.study.precision import wanted
from nrjax.study.results import Reporting, Results
from nrjax.study.settings import Keep, RunSettings, from_plain, shared_with, to_plain
from nrjax.study.store import Store

_LATER = ("scipy.special", "xarray", "nrjax.study.drawing")
"""What summary and figures need, and nothing before: slow to import."""


class Study:
    """Named cases that share their random numbers, and what is told of their results.

    Args:
        name: of the study.
        cases: by name, each an `nrjax.Interaction`, a session, or a `nrjax.Case`, which says more
            of it; an iterator is used up.
        quantities: kept of every interaction, as `Case.quantities`.
        reporting: what tells of the results; None for the standard table and figures.
        settings: what was chosen, a dataclass, for the record; a run is taken up only where it is
            the same.
        facts: what else the store should hold, by name; strict JSON.
        source: where `nrjax resume` finds the study: a paper's name or a file; None where only
            this program can make it.

    Raises:
        ValueError: there is no case, or one is nothing that can be simulated.
    """

    def __init__(
        self,
        name: str,
        cases: Mapping[str, Interaction | Case | Any],
        *,
        quantities: Mapping[str, Quantity | Callable[[Any], Array]] | None = None,
        reporting: Reporting | None = None,
        settings: Any = None,
        facts: Mapping[str, Any] | None = None,
        source: str | None = None,
    ):
        check(isinstance(name, str) and name, "name", name, "the name of the study")
        check(len(cases) > 0, "cases", dict(cases), "at least one, by name")
        self.name = name
        self.cases = {one: _case(given, quantities or {}) for one, given in cases.items()}
        self.reporting = Reporting() if reporting is None else reporting
        self.settings = settings
        self.facts = dict(facts or {})
        self.source = source

    def __repr__(self) -> str:
        return f"Study {self.name}: {', '.join(self.cases)}"

    def run(
        self,
        folder: str | os.PathLike[str],
        *,
        trials: int | None = None,
        seed: int | None = None,
        keep: Keep | None = None,
        chunk: int | None = None,
        until_se: float | None = None,
        most_trials: int | None = None,
        overwrite: bool = False,
        progress: bool | Progress = True,
        client: Any = None,
    ) -> Results:
        """Run the study, or take up what is in the folder, to the same bits; gives the results.

        It leaves the trials, summary.json, report.md and figures/ there. It can be killed at any
        moment and called again. On all local devices, or the workers of a Dask cluster.

        Args:
            folder: for the results; made if it is not there.
            trials: independent trials of each case, 1000 unless given; more than there are are
                added.
            seed: of all randomness, 0 unless given; cases share it.
            keep: "trials", unless given, or "summary": histograms, moments and counts only, so
                that a study of any size takes megabytes.
            chunk: trials between two writes.
            until_se: add trials until the standard error of every case's median stopping epsilon
                is at most this; looked at after 1000, 2000, 4000, ... trials.
            most_trials: with `until_se`, no more trials than this.
            overwrite: begin anew, in place of the results of an earlier run.
            progress: whether to show it: a bar on a terminal or in a notebook, else a line every
                ten seconds; or what is told of it.
            client: a `dask.distributed.Client`, whose workers then run the chunks.

        Raises:
            ValueError: what is in the folder is of another study, settings, version or machine,
                and what differs; or an argument is out of range.
            StoreBusyError: another process is at work on it.
            DamagedError: files of the results are broken.
            OSError: the folder cannot be written to, or the disk is full; the message says whether
                something is kept.
        """
        out = Path(folder)
        given = {"trials": trials, "seed": seed, "keep": keep, "chunk": chunk}
        given |= {"until_se": until_se, "most_trials": most_trials}
        given = {name: value for name, value in given.items() if value is not None}
        with _shown(progress) as told:
            if (out / RESULTS).is_dir() and not overwrite:
                store = Store.open(out)
                fixed = {name: given[name] for name in ("seed", "keep", "chunk") if name in given}
                stored = store.settings["settings"]
                found = identity.differences_of_settings(stored, fixed, list(fixed))
                identity.refuse(out, found)
                return take_up(
                    store,
                    self,
                    self.reporting,
                    told,
                    client,
                    trials=trials,
                    until_se=until_se,
                    most_trials=most_trials,
                )
            with untouched(out):
                given = shared_with(self.settings) | given
                settings = RunSettings(out=out, overwrite=overwrite, **given)
                return begin(self, settings, told, client)

    def plans(self, settings: RunSettings, trials: int | None = None) -> dict[str, dict[str, Plan]]:
        """What is run, by case and pass; `trials` in place of those of the settings."""
        number = settings.trials if trials is None else trials
        chunk = chunk_size(settings)
        some = any(
            isinstance(case.trial, Interaction) and case.trial.guarantee is not None
            for case in self.cases.values()
        )
        right = "left out: no case has an epsilon, whose median could be known better"
        check(settings.until_se is None or some, "until_se", settings.until_se, right)
        return {
            name: plans(case, number, chunk, settings.keep, settings.bin_width)
            for name, case in self.cases.items()
        }

    def recorded(self, settings: RunSettings) -> dict[str, Any]:
        """Settings of the run and of the study, as a store has them."""
        own = {} if self.settings is None else to_plain(self.settings)
        return own | to_plain(settings)


def _case(given: Any, quantities: Mapping[str, Any]) -> Case:
    case = given if isinstance(given, Case) else Case(trial=given)
    if quantities and isinstance(case.trial, Interaction):
        case = dataclasses.replace(case, quantities={**quantities, **case.quantities})
    return case


def _layouts(
    study: Study, made: Mapping[str, Mapping[str, Plan]], trials: int
) -> list[layout.Case]:
    found = []
    for name, case in study.cases.items():
        labels = {**case.labels, "trials": trials}
        if case.goal is not None:
            labels["goal"] = case.goal
        passes = {one: plan.layout for one, plan in made[name].items()}
        found.append(layout.Case(name, labels, passes))
    return found


def begin(
    study: Study, settings: RunSettings, progress: Progress | None = None, client: Any = None
) -> Results:
    """Lay out a new run, and complete it.

    Raises:
        FileExistsError: the folder holds results already and `overwrite` is not set.
        ValueError, OSError, DamagedError: as `Study.run`.
    """
    Store.check(settings.out, overwrite=settings.overwrite)
    settings = settings.begun()
    # What is chosen by the number of trials must stay as it is when trials are added.
    settings = dataclasses.replace(settings, chunk=chunk_size(settings))
    made = study.plans(settings)
    facts = {
        "study": study.name,
        "source": study.source,
        **identity.circumstances(),
        "seed": settings.seed,
        "settings": study.recorded(settings),
        "fingerprints": identity.fingerprints(made),
        **study.facts,
    }
    cases = _layouts(study, made, settings.trials)
    store = Store.create(settings.out, facts, cases, overwrite=settings.overwrite)
    return _complete(study, store, settings, progress, client)


def take_up(
    store: Store,
    made: Study | Callable[[], Study],
    reporting: Reporting,
    progress: Progress | None = None,
    client: Any = None,
    *,
    trials: int | None = None,
    until_se: float | None = None,
    most_trials: int | None = None,
) -> Results:
    """Complete a run that was stopped, or add trials to it; the same bits as without a stop.

    A finished run gets its summary and figures again.

    Args:
        store: of the run.
        made: the study, which must be the run's; or what makes it, if something is to be run.
        reporting: what tells of the results.
        progress: told of every chunk that is done; None for silence.
        client: of a Dask cluster, or None.
        trials: how many there are to be of each case, in all; None for no more than planned.
        until_se: in place of the one in the store.
        most_trials: likewise.

    Raises:
        ValueError: `trials` are fewer than there are; `until_se` is finer than the histograms of
            the store; or the results would not be the same here, and why.
        StoreBusyError, DamagedError, OSError: as `Study.run`.
    """
    store.check_space()
    recorded = store.settings["settings"]
    settings = from_plain(RunSettings, recorded, out=store.folder, overwrite=False)
    present = settings.trials
    if trials is not None:
        right = f"at least {present}, which there are: trials are never taken away"
        check(present <= trials <= 2**32, "trials", trials, f"{right}; and at most 2^32")
    changes = {"until_se": until_se, "most_trials": most_trials}
    changes = {name: value for name, value in changes.items() if value is not None}
    other = any(getattr(settings, name) != value for name, value in changes.items())
    if other:
        settings = dataclasses.replace(settings, trials=trials or present, **changes)
        trials = first_look(settings) if settings.until_se is not None else trials
        settings = dataclasses.replace(settings, trials=present)
    study = made if isinstance(made, Study) else None
    if study is not None:
        identity.refuse(store.folder, _differences(study, store, settings))
    if store.finished() and trials in (None, present) and not other:
        results = Results(store, reporting)
        if wanted(results, settings) is None:
            return _concluded(results)
    here = identity.circumstances()
    identity.refuse(store.folder, identity.differences(store.settings, here))
    if study is None:
        assert not isinstance(made, Study)
        study = made()
        identity.refuse(store.folder, _differences(study, store, settings))
    if trials is not None and (trials > present or other):
        store, settings = _extended(study, store, settings, trials)
    return _complete(study, store, settings, progress, client)


def _differences(study: Study, store: Store, settings: RunSettings) -> list[str]:
    """Where a study is not the one that began a run."""
    stored = store.settings
    if study.name != stored.get("study"):
        return [f"study is {study.name!r} here and was {stored.get('study')!r}"]
    if settings.seed != stored.get("seed"):
        return [f"seed is {settings.seed!r} here and was {stored.get('seed')!r}"]
    own = {} if study.settings is None else to_plain(study.settings)
    names = [name for name in own if name not in RunSettings.__dataclass_fields__]
    found = identity.differences_of_settings(stored["settings"], own, names)
    if found:
        return found
    made = study.plans(settings)
    cases, prints = list(store.cases.values()), store.settings.get("fingerprints", {})
    here = _layouts(study, made, settings.trials)
    return identity.differences_of_cases(cases, here, prints, identity.fingerprints(made))


def _complete(
    study: Study, store: Store, settings: RunSettings, progress: Progress | None, client: Any
) -> Results:
    """Run what is missing, and more as long as the precision asked for is not reached."""
    key = study_key(settings.seed)
    # Programs have room for whole chunks where more trials may come, to compile only once.
    room = settings.trials if settings.until_se is None else settings.chunk or 0
    while True:
        made = study.plans(settings, max(settings.trials, room))
        with _resumable(store):
            if client is None:
                fill(store, key, made, progress, _LATER)
            else:
                fill_by_workers(store, key, made, client, progress)
        results = Results(store, study.reporting)
        more = wanted(results, settings)
        if more is None:
            return _concluded(results)
        store, settings = _extended(study, store, settings, more)


def _extended(
    study: Study, store: Store, settings: RunSettings, trials: int
) -> tuple[Store, RunSettings]:
    """Store and settings with more trials."""
    settings = dataclasses.replace(settings, trials=trials)
    with _resumable(store):
        recorded = store.settings | {"settings": study.recorded(settings)}
        return store.extend(trials, recorded), settings


def _concluded(results: Results) -> Results:
    with _resumable(results.store), results.store.writer():
        results.conclude()
    return results


@contextlib.contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Where a run does not even begin, leave no folder that was not there before."""
    fresh = not folder.exists()
    try:
        yield
    except BaseException:
        if fresh:
            with contextlib.suppress(OSError):
                folder.rmdir()  # not empty: something was written
        raise


@contextlib.contextmanager
def _shown(progress: bool | Progress) -> Iterator[Progress | None]:
    if isinstance(progress, bool):
        from nrjax import progress as shown  # not needed where nothing is shown

        with shown.progress() if progress else contextlib.nullcontext() as told:
            yield told
    else:
        yield progress


@contextlib.contextmanager
def _resumable(store: Store) -> Iterator[None]:
    """Say of a failure of the disk, or of Ctrl-C, how to go on."""
    again = f"`nrjax resume {store.folder}`"
    if store.settings.get("source") is None:
        again = "the same call of Study.run"
    try:
        yield
    except KeyboardInterrupt:
        kept = f"what was done is in {store.folder}: {again} takes it up again"
        raise KeyboardInterrupt(kept) from None
    except OSError as error:
        if error.errno is None:
            raise
        message = f"{error.strerror}; then {again} goes on from there"
        raise OSError(error.errno, message) from error
