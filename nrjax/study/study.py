"""A study: named cases, run many times under common random numbers, into a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jax import Array

from nrjax._tracing import sharing_traces
from nrjax._validation import check, is_integer
from nrjax.guarantees.notions import notion_of
from nrjax.interaction import Interaction
from nrjax.keys import study_key
from nrjax.study import identity, layout
from nrjax.study.case import Case, Quantity
from nrjax.study.checks import check_folders, check_mapping, check_run
from nrjax.study.cluster import by_workers
from nrjax.study.folder import MANIFEST, RESULTS, check_folder, check_packages
from nrjax.study.layout import from_plain, to_plain
from nrjax.study.local import Progress, fill, run_locally
from nrjax.study.passes import PassSpec, pass_specs
from nrjax.study.precision import check_until_se, first_interim, most_trials, next_trial_count
from nrjax.study.results import Reporting, Results
from nrjax.study.settings import Keep, RunSettings, check_own, shared_with
from nrjax.study.store import Store


class Study:
    """Named cases that share their random numbers, and what is told of their results.

    Args:
        name: of the study.
        cases: by name, each an `nrjax.Interaction`, a session, or a `nrjax.Case`, which says more
            of it. Names are those of folders, so they may not differ only in upper and lower case.
        quantities: kept of every interaction, as `Case.quantities`.
        reporting: what tells of the results; None for the standard table and figures.
        settings: what was chosen, a dataclass, for the record; a run is resumed only with the same
            ones. Its fields `seed` and `trials` are those of the run; other options of a run, such
            as `keep`, cannot be names of fields.
        facts: what else the store should hold, by name; strict JSON. Names that the store has for
            something else, such as `seed`, are refused.
        source: where `nrjax resume` finds the study: a paper's name or a file; None where only
            this program can make it.

    Raises:
        ValueError: there is no case, or one cannot be simulated or stored; or another argument is
            of the wrong kind.
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
        check_packages()
        check(isinstance(name, str) and name, "name", name, "the name of the study")
        right = "interactions or cases, such as {'brownian': interaction}"
        check_mapping("cases", cases, right)
        check(len(cases) > 0, "cases", dict(cases), "at least one, by name")
        check_folders("case", cases, (MANIFEST,))
        check_mapping("quantities", quantities or {}, "functions or nrjax.Quantity")
        ok = reporting is None or isinstance(reporting, Reporting)
        check(ok, "reporting", reporting, "a nrjax.Reporting, or None")
        if settings is not None:
            check_own(settings)
        self.name = name
        self.cases: dict[str, Case] = {}
        for one, given in cases.items():
            try:
                case = given if isinstance(given, Case) else Case(trial=given)
                if quantities and isinstance(case.trial, Interaction):
                    case = dataclasses.replace(case, quantities={**quantities, **case.quantities})
            except ValueError as error:
                raise ValueError(f"case {one!r}: {error}") from None
            self.cases[one] = case
        self.reporting = Reporting() if reporting is None else reporting
        self.settings = settings
        self.facts = identity.checked_facts(facts or {})
        self.source = source
        self.spent: dict[str, float] = {}

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
            chunk: trials between two writes; by default as many as take a few seconds.
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
        check_run(folder, overwrite, progress, client)
        out = Path(folder)
        begins, asked = (
            {name: value for name, value in given.items() if value is not None}
            for given in (
                {"seed": seed, "keep": keep, "chunk": chunk},
                {"trials": trials, "until_se": until_se, "most_trials": most_trials},
            )
        )
        with _shown(progress) as told:
            if (out / RESULTS).is_dir() and not overwrite:
                store = Store.open(out)
                identity.refuse_options(store, begins)
                return take_up(store, self, self.reporting, told, client, **asked)
            with untouched(out, overwrite):
                chosen = shared_with(self.settings) | begins | asked
                settings = RunSettings(out=out, overwrite=overwrite, **chosen)
                return begin(self, settings, told, client)

    def plans(
        self, settings: RunSettings, trials: int | None = None
    ) -> dict[str, dict[str, PassSpec]]:
        """What is run, by case and pass; `trials` in place of those of the settings."""
        number = settings.trials if trials is None else trials
        check_until_se(self.cases, settings)
        return {
            name: pass_specs(case, number, settings.chunk, settings.keep)
            for name, case in self.cases.items()
        }

    def own(self) -> dict[str, Any]:
        """Its settings, as a store has them."""
        return {} if self.settings is None else to_plain(self.settings)

    def layouts(
        self, plans: Mapping[str, Mapping[str, PassSpec]], settings: RunSettings
    ) -> list[layout.Case]:
        """Its cases, as a store has them."""
        found = []
        for name, case in self.cases.items():
            said = {"goal": case.goal, "notion": notion_of(getattr(case.trial, "guarantee", None))}
            said = {key: value for key, value in said.items() if value is not None}
            labels = {**case.labels, "trials": settings.trials, **said}
            passes = {one: plan.layout for one, plan in plans[name].items()}
            found.append(layout.Case(name, labels, passes))
        return found


@sharing_traces()
def begin(
    study: Study, settings: RunSettings, progress: Progress | None = None, client: Any = None
) -> Results:
    """Lay out a new run, and complete it; errors as `Store.create` and `Study.run`."""
    settings = settings.begun()
    made = study.plans(settings)
    facts = {
        "study": study.name,
        "source": study.source,
        **identity.circumstances(),
        "seed": settings.seed,
        "settings": study.own() | to_plain(settings),
        "fingerprints": identity.fingerprints(made),
        **study.facts,
    }
    layouts = study.layouts(made, settings)
    store = Store.create(settings.out, facts, layouts, overwrite=settings.overwrite)
    return _complete(study, store, settings, None, progress, client)


@sharing_traces()
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

    A finished run gets its summary and figures again; then `made` is not called, if it is what
    makes the study. `trials`, `until_se` and `most_trials` are None for those in the store.

    Raises:
        ValueError: `trials` are fewer than there are; `until_se` is finer than the histograms of
            the store; or the results would not be the same here, and why.
    """
    store.check_space()
    begun = store.settings["settings"]
    settings = from_plain(RunSettings, begun, out=store.folder, overwrite=False)
    present = settings.trials
    if trials is not None:
        right = f"an integer, at least {present}, which there are: trials are never taken away"
        ok = is_integer(trials) and present <= trials <= 2**32
        check(ok, "trials", trials, f"{right}; and at most 2^32")
    asked = {"until_se": until_se, "most_trials": most_trials}
    changes = {k: v for k, v in asked.items() if v not in (None, getattr(settings, k))}
    if changes:
        looked = dataclasses.replace(settings, trials=trials or present, **changes)
        trials = trials if looked.until_se is None else first_interim(looked)
        settings = dataclasses.replace(looked, trials=present)
    more = bool(changes) or trials not in (None, present)
    done = Results(store, reporting) if store.finished() and not more else None
    if done is None or next_trial_count(done, settings) is not None:
        done = None
        identity.refuse(store.folder, identity.differences(store.settings))
    elif not isinstance(made, Study):
        return _concluded(done)
    study = made if isinstance(made, Study) else made()
    identity.refuse(store.folder, _differences(study, store, settings))
    if done is not None:
        return _concluded(done)
    return _complete(study, store, settings, trials if more else None, progress, client)


def _differences(study: Study, store: Store, settings: RunSettings) -> list[str]:
    """Where a study is not the one that began a run."""
    stored = store.settings
    own = {k: v for k, v in study.own().items() if k not in RunSettings.__dataclass_fields__}
    found = identity.unlike(stored, {"study": study.name, "seed": settings.seed})
    found = found or identity.unlike(stored["settings"], own)
    if found:
        return found
    made = study.plans(settings)
    return identity.differences_of_cases(
        store, study.layouts(made, settings), identity.fingerprints(made)
    )


def _complete(
    study: Study,
    store: Store,
    settings: RunSettings,
    more: int | None,
    progress: Progress | None,
    client: Any,
) -> Results:
    """Run what is missing, with `more` trials as long as the precision asked for is not reached."""
    key = study_key(settings.seed)
    compute = run_locally if client is None else partial(by_workers, client)
    with _resumable(store):
        while True:
            if more is not None:
                settings = dataclasses.replace(settings, trials=more)
                recorded = study.own() | to_plain(settings)
                store = store.extend(more, store.settings | {"settings": recorded})
            # Programs have room for the trials that may come, to compile only once.
            room = 0 if settings.until_se is None else most_trials(settings)
            made = study.plans(settings, max(settings.trials, room))
            fill(store, key, made, progress, compute)
            results = Results(store, study.reporting)
            results.spent |= study.spent
            more = next_trial_count(results, settings)
            if more is None:
                break
    return _concluded(results)


def _concluded(results: Results) -> Results:
    with _resumable(results.store), results.store.writer():
        results.conclude()
    return results


@contextlib.contextmanager
def untouched(folder: Path, overwrite: bool) -> Iterator[None]:
    """Check the folder; where a run does not even begin, leave none that was not there before."""
    fresh = not folder.exists()
    try:
        check_folder(folder, overwrite=overwrite)
        yield
    except BaseException:
        if fresh:
            with contextlib.suppress(OSError):
                folder.rmdir()  # not empty: something was written
        raise


def _shown(progress: bool | Progress) -> contextlib.AbstractContextManager[Any]:
    if progress is True:
        from nrjax.progress import progress as reporter  # needs the extra

        return reporter()
    return contextlib.nullcontext(None if progress is False else progress)


@contextlib.contextmanager
def _resumable(store: Store) -> Iterator[None]:
    """Say of a failure of the disk, or of Ctrl-C, how to go on."""
    again = store.again
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
