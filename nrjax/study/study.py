"""The class `Study`: named cases, simulated with common random numbers into a folder."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jax import Array

from nrjax._base.keys import study_key
from nrjax._base.tracing import sharing_traces
from nrjax._base.validation import check, check_positive
from nrjax.engine.interaction import Interaction
from nrjax.study import provenance
from nrjax.study.case import Case, Quantity, stated_facts, stated_relation
from nrjax.study.checks import check_folders, check_mapping, check_run
from nrjax.study.dask import run_on_dask
from nrjax.study.ending import conclude, explaining_resume
from nrjax.study.files import MANIFEST, RESULTS, StoreBusyError, check_packages, new_folder
from nrjax.study.fingerprint import Fingerprint
from nrjax.study.local import Progress, fill, run_locally
from nrjax.study.locks import Part, check_whole
from nrjax.study.options import Keep, RunOptions, check_settings, shared_options, to_json
from nrjax.study.passes import CasePass, passes_of
from nrjax.study.precision import check_until_se, next_trial_count
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results
from nrjax.study.schema import StoredCase
from nrjax.study.store import Store

_Prepared = tuple[Store, RunOptions, dict[str, dict[str, CasePass]], int | None]
"""A store, its options, the passes to run, and the number of trials to which to extend it first."""

_PACKAGES = ("filelock", "matplotlib", "scipy", "xarray")
"""The optional packages that every run needs."""


class Study:
    """A set of named cases, simulated with common random numbers, with results in a folder.

    Use it for runs that you want to keep, resume, extend or compare. Use `nrjax.simulate` to run
    one interaction in memory.

    Args:
        name: name of the study, for its report.
        cases: cases by name. A case is an `nrjax.Interaction`, an `nrjax.Case` with labels and
            quantities, or a custom trial with a method `run(key)`. Names become names of folders,
            so two names may not differ only in upper and lower case.
        quantities: quantities to keep of every interaction, as for `Case.quantities`.
        reporting: maker of the report and the figures; None for the standard ones.
        settings: instance of a dataclass, stored with the results. A run is resumed only with equal
            settings. The fields `seed` and `trials`, if it has them, are options of the run. Fields
            may not have the name of another option, such as `keep`.
        facts: further facts to store, by name, as strict JSON. A name that the store uses, such as
            `seed`, is not allowed.
        source: name of a paper's study, or path of a file, from which `nrjax resume` makes the
            study again. None for a study that only your program can make.
        compares_relations: whether epsilons may be for different relations of neighbours
            (`nrjax.Sensitivity`), such as "replace" and "add-remove".

    Raises:
        ValueError: cases state different relations without `compares_relations`, there is no case,
            a case cannot be simulated or stored, or another argument has the wrong type.

    Example:
        >>> def score(release):
        ...     return -jnp.abs(release - 3.0)
        >>> interaction = nrjax.laplace(3.0, sensitivity=1.0).until(score, at_least=-0.5)
        >>> study = nrjax.Study("mean", {"laplace": interaction})
        >>> results = study.run("runs/mean", trials=100, progress=False)
        >>> results.distribution("laplace").trials
        100
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
        compares_relations: bool = False,
    ):
        check(isinstance(name, str) and name, "name", name, "text that is not empty")
        expected = "interactions or cases, such as {'brownian': interaction}"
        check_mapping("cases", cases, expected)
        check(len(cases) > 0, "cases", dict(cases), "at least one, by name")
        check_folders("case", cases, (MANIFEST,))
        if quantities is not None:
            check_mapping("quantities", quantities, "functions or nrjax.Quantity")
        is_reporting = reporting is None or isinstance(reporting, Reporting)
        check(is_reporting, "reporting", reporting, "an nrjax.Reporting, or None")
        check(source is None or isinstance(source, str), "source", source, "text, or None")
        is_flag = isinstance(compares_relations, bool)
        check(is_flag, "compares_relations", compares_relations, "True or False")
        if settings is not None:
            check_settings(settings)
        self.name = name
        self.cases: dict[str, Case] = {}
        for key, value in cases.items():
            try:
                case = value if isinstance(value, Case) else Case(trial=value)
                if quantities and isinstance(case.trial, Interaction):
                    case = dataclasses.replace(case, quantities={**quantities, **case.quantities})
            except ValueError as error:
                raise ValueError(f"case {key!r}: {error}") from None
            self.cases[key] = case
        relations = {
            key: known for key, case in self.cases.items() if (known := stated_relation(case))
        }
        single = compares_relations or len(set(relations.values())) <= 1
        hint = "Make a study for each relation, or write compares_relations=True."
        check(single, "relations of the cases", relations, "one relation of neighbours", hint)
        self.reporting = Reporting() if reporting is None else reporting
        self.settings = settings
        self.facts = provenance.checked_facts({} if facts is None else facts)
        self.source = source
        self._timings: dict[str, float] = {}

    def loaded_from(self, source: str, settings: Any, seconds: float) -> Study:
        """Return a copy of the study for the command, which records how to make it again.

        Args:
            source: name of a paper's study, or path of the study's file.
            settings: settings from which the study was made, if it has none itself.
            seconds: seconds that it took to make the study, for the report.
        """
        study = copy.copy(self)
        study.source = source
        study.settings = settings if self.settings is None else self.settings
        study._timings = {"data": seconds}
        return study

    def __repr__(self) -> str:
        return f"Study {self.name}: {', '.join(self.cases)}"

    @sharing_traces()
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
        worker_timeout: float | None = None,
        part: tuple[int, int] | str | None = None,
    ) -> Results:
        """Run the pending trials, and write results, a report and figures to the folder.

        If a run was stopped, the same call resumes it, and results are bit-for-bit identical. A
        call with more `trials` extends a run. For a finished run, the call only writes the report
        and the figures again.

        Args:
            folder: path of the folder for the results.
            trials: number of trials per case. The default is 1000, or the number of trials of the
                run in the folder.
            seed: seed of all randomness, from 0 to 2^32 - 1; default 0.
            keep: "trials" (default) stores every trial; "summary" stores histograms and moments,
                so that a study of any size takes megabytes.
            chunk: number of trials per file; by default files are written every few seconds.
            until_se: largest standard error of every case's median stopping epsilon: trials are
                added until it is reached. It is checked after 1000, 2000, 4000, ... trials.
            most_trials: largest number of trials with `until_se`.
            overwrite: whether to replace an earlier run in the folder. The earlier run stays until
                the first trials of the new one are written.
            progress: True prints progress: a bar on a terminal or in a notebook, otherwise a line
                every ten seconds. You can also pass an object with methods `begin` and `advance`.
            client: `dask.distributed.Client` whose workers run the trials; None runs the trials in
                this process.
            worker_timeout: seconds without a worker of the client until the run fails; None waits
                for ever.
            part: `(3, 100)` or "3/100" runs only the third of 100 equal parts of the trials, in the
                same folder as the other parts or in one of its own. No report is written. When all
                parts are done, `Results.merge` makes one run of them, with the bits of a single
                run. Not with `until_se` or `overwrite`, which concern the whole run.

        Raises:
            ValueError: the run in the folder has another study, other settings, another version
                or another machine, and the message lists the differences; or an argument is out of
                range.
            StoreBusyError: another process is writing to the folder.
            DamagedError: files of the results are broken.
            ConnectionError: the scheduler of the client is gone, or its workers cannot go on.
            OSError: the folder cannot be written to, or the disk is full.
        """
        check_run(folder, overwrite, progress, client)
        if worker_timeout is not None:
            check_positive("worker_timeout", worker_timeout)
        own = Part.of(part)
        if own is not None:
            check_whole(own, overwrite=overwrite, until_se=until_se)
        check_packages(*_PACKAGES)
        out = Path(folder)
        fixed, variable = (
            {name: value for name, value in options.items() if value is not None}
            for options in (
                {"seed": seed, "keep": keep, "chunk": chunk},
                {"trials": trials, "until_se": until_se, "most_trials": most_trials},
            )
        )
        with _reporter(progress) as reporter:
            made = None
            if overwrite or not (out / RESULTS).is_dir():
                made = self._created(out, fixed | variable, overwrite, own)
            store, options, passes, missing = made or self._opened(out, fixed, variable)
            if own is not None:
                check_whole(own, until_se=options.until_se, trials=missing)
            store.part = own
            compute: Any = run_locally
            if client is not None:
                compute = partial(run_on_dask, client, worker_timeout=worker_timeout)
            return self._finish(store, options, passes, missing, reporter, compute)

    def _created(
        self, out: Path, given: dict[str, Any], overwrite: bool, part: Part | None
    ) -> _Prepared | None:
        """Create the store of a new run, or return None if another part has done so meanwhile."""
        shared, seed = shared_options(self.settings), given.get("seed")
        same = seed is None or shared.get("seed", seed) == seed
        check(same, "seed", seed, f"{shared.get('seed')}, that of the settings")
        try:
            with new_folder(out, overwrite=overwrite):
                options = RunOptions(**shared | given).resolved()
                passes = self._passes(options)
                return self._create(out, options, passes, overwrite, part), options, passes, None
        except (FileExistsError, StoreBusyError):
            if part is None or not (out / RESULTS).is_dir():
                raise
        return None

    def _opened(self, out: Path, fixed: dict[str, Any], variable: dict[str, Any]) -> _Prepared:
        """Open the store of a run, after checks that it is a run of this study."""
        store = Store.open(out)
        provenance.refuse_options(store, fixed)
        stored = RunOptions.from_json(store.settings["settings"])
        options = stored.extended(**variable)
        passes = self._checked_passes(store, stored, options)
        return store, options, passes, None if options == stored else options.trials

    def fingerprints(self) -> dict[str, dict[str, Fingerprint]]:
        """Return the fingerprint of each case and pass, as `{case: {pass: Fingerprint}}`.

        `run` resumes a folder only if its fingerprints are equal. Nothing is simulated. To see the
        program and the arrays behind one, write `print(study.fingerprints()["a"]["outcome"])`.

        Raises:
            ValueError: a trial calls back into Python, for example by `jax.pure_callback`.
        """
        return provenance.identify(self._passes(RunOptions(**shared_options(self.settings))))

    def _passes(self, options: RunOptions) -> dict[str, dict[str, CasePass]]:
        """Return the passes of each case, for as many trials as the run may need."""
        check_until_se(self.cases, options)
        # Programs for `most_trials` are compiled once, however many trials `until_se` adds.
        most = 0 if options.until_se is None else options.limit
        trials = max(options.trials, most)
        return {
            name: passes_of(case, trials, options.chunk, options.keep)
            for name, case in self.cases.items()
        }

    def _stored_cases(
        self, passes: Mapping[str, Mapping[str, CasePass]], trials: int
    ) -> list[StoredCase]:
        """Return the descriptions of the cases for a store, with this number of trials."""
        cases = []
        for name, case in self.cases.items():
            layouts = {key: each.layout for key, each in passes[name].items()}
            facts = {**case.labels, "trials": trials, **stated_facts(case)}
            stored = StoredCase(name, facts, layouts)
            cases.append(stored.with_trials(trials))
        return cases

    def _recorded(self, options: RunOptions) -> dict[str, Any]:
        """Return the settings of the study and of the run, for the manifest."""
        return to_json(self.settings) | to_json(options)

    def _create(
        self,
        out: Path,
        options: RunOptions,
        passes: dict[str, dict[str, CasePass]],
        overwrite: bool,
        part: Part | None,
    ) -> Store:
        """Create the store of a new run, with its options, environment and fingerprints."""
        facts = {
            "study": self.name,
            "source": self.source,
            **provenance.environment(),
            "seed": options.seed,
            "settings": self._recorded(options),
            "fingerprints": provenance.fingerprints(passes),
            **self.facts,
        }
        cases = self._stored_cases(passes, options.trials)
        is_part = part is not None
        return Store.create(
            out, facts, cases, overwrite=overwrite, deferred=not is_part, patient=is_part
        )

    def _checked_passes(
        self, store: Store, stored: RunOptions, options: RunOptions
    ) -> dict[str, dict[str, CasePass]]:
        """Check that a run matches this study, and return the passes to run."""
        changes = provenance.environment_changes(store.settings)
        is_complete = options == stored and store.finished()
        if not is_complete or next_trial_count(Results(store), options) is not None:
            provenance.refuse_changes(store.folder, changes)
        own = to_json(self.settings)
        own = {name: own[name] for name in own if name not in RunOptions.__dataclass_fields__}
        other = provenance.changed(store.settings, {"study": self.name, "seed": stored.seed})
        settings = store.settings["settings"]
        other = other or provenance.changed(settings, own, kind="the setting ")
        provenance.refuse_changes(store.folder, other)
        passes = self._passes(options)
        # Fingerprints of different environments cannot be compared.
        prints = None if changes else provenance.fingerprints(passes)
        cases = self._stored_cases(passes, stored.trials)
        provenance.refuse_changes(store.folder, provenance.case_changes(store, cases, prints))
        return passes

    def _finish(
        self,
        store: Store,
        options: RunOptions,
        passes: dict[str, dict[str, CasePass]],
        trials: int | None,
        reporter: Any,
        compute: Any,
    ) -> Results:
        """Run the pending trials, extend the run until it is precise enough, and write reports.

        `trials` is the number of trials to which to extend the run first, or None.
        """
        with explaining_resume(store):
            while True:
                if trials is not None:
                    options = dataclasses.replace(options, trials=trials)
                    settings = {"settings": self._recorded(options)}
                    store = store.extend(trials, store.settings | settings)
                fill(store, study_key(options.seed), passes, reporter, compute)
                if store.part is not None:
                    return Results(store, self.reporting, part=True)
                results = Results(store, self.reporting)
                trials = next_trial_count(results, options)
                if trials is None:
                    break
        results.timings |= self._timings
        conclude(results)
        return results


def _reporter(progress: bool | Progress) -> contextlib.AbstractContextManager[Any]:
    if progress is True:
        from nrjax._base.progress import progress as reporter

        return reporter()
    return contextlib.nullcontext(None if progress is False else progress)
