"""Classes for results in a folder and outcomes in memory, with tables and figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nrjax._base.notions import Notion
from nrjax._base.outcome import Outcome
from nrjax._base.sensitivities import describe_relation
from nrjax._base.validation import check, check_choice
from nrjax.guarantees.notions import PUBLIC_TEST
from nrjax.study import merging
from nrjax.study import report as reports
from nrjax.study.case import FIELDS
from nrjax.study.checks import check_goal, check_known, check_mapping
from nrjax.study.files import PAGE, REPORT, SUMMARY
from nrjax.study.histograms import Histogram, read_histograms
from nrjax.study.reporting import Reported, Reporting
from nrjax.study.schema import Pass, StoredCase, Variable
from nrjax.study.store import Store, Writer

_SIMULATED = (
    "These are simulated runs, and no release: floating-point noise, the random generator and the "
    "duration of a run reveal more than epsilon covers."
)
"""A sentence on leaks that no stated epsilon covers, for every report of a run."""


class Results(Reported):
    """The results of a finished run, read from its folder.

    `results["brownian"]` is an `xarray.Dataset` of the outcomes of the case "brownian", with the
    axis `trial`. It includes `stopped`, `stopping_epsilon` (infinite if the trial did not stop, NaN
    if it stopped without a guarantee) and, with a goal, `shortfall`. `results["brownian/utility"]`
    is the curve "utility" of that case. If only summaries were kept, a dataset holds counts and
    moments in place of trials. The method `distribution` works in both cases. Use `nrjax.Outcomes`
    for trials that were not run by a study.

    If trials are added to the folder later, open the results again to read them.

    Args:
        store: the store in the folder.
        reporting: maker of tables and figures; None for the standard ones.
        part: whether the call ran only a part of the run, so that the run may be unfinished. Then
            `UnfinishedError` is raised when results are read, and not here.

    Attributes:
        folder: the folder of the run.
        timings: seconds spent in this call on `data` and `figures`; empty for opened results.

    Raises:
        UnfinishedError: the run is not finished.

    Examples:
        >>> import collections, tempfile
        >>> Drawn = collections.namedtuple("Drawn", ["value"])
        >>> class Draw(nrjax.Pytree):
        ...     def run(self, key):
        ...         return Drawn(jax.random.normal(key))
        >>> folder = tempfile.mkdtemp()
        >>> study = nrjax.Study("draws", {"draw": Draw()})
        >>> results = study.run(folder, trials=100, progress=False)
        >>> nrjax.Results.open(folder).distribution("draw", "value").trials
        100
    """

    folder: Path
    timings: dict[str, float]
    _written: reports.Report | None = None

    def __init__(self, store: Store, reporting: Reporting | None = None, *, part: bool = False):
        if not part:
            store.check_finished()
        super().__init__(store.cases, store.settings)
        self.reporting = reporting or Reporting()
        self.store, self.folder, self.timings = store, store.folder, {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Results:
        """Open the results in a folder, with the standard tables and figures.

        Raises:
            FileNotFoundError: there are no results in the folder.
            UnfinishedError: the run is not finished.
            DamagedError: files of the results are broken.
        """
        return cls(Store.open(folder))

    @classmethod
    def merge(
        cls,
        folders: Iterable[str | os.PathLike[str]],
        out: str | os.PathLike[str],
        reporting: Reporting | None = None,
    ) -> Results:
        """Merge the parts of one run into a folder, and write the report and the figures there.

        Each trial is taken once, whatever the folders hold. Files of trials are linked to those of
        the parts where the file system allows it, and otherwise copied. Histograms are added up.

        Args:
            folders: folders of `Study.run(..., part=...)`, or of the whole run.
            out: a new folder for the run, or one of the folders, which is then completed.
            reporting: maker of the report and the figures; None for the standard ones.

        Raises:
            ValueError: the folders hold different runs: of another study, seed, number of trials
                or environment.
            UnfinishedError: trials are missing. The message names the parts that hold them, and
                nothing is written.
            FileExistsError, StoreBusyError, DamagedError, OSError: as for `Study.run`.
        """
        results = cls(merging.merge(folders, out), reporting)
        with results.store.writer() as writer:
            results.write_reports(writer)
        return results

    def __repr__(self) -> str:
        part = "" if self.store.part is None else f"part {self.store.part} of "
        trials = f"{part}{self.trials:,} trials of {', '.join(self.cases)}"
        return f"Results of {trials} in {self.folder}"

    def _read(self, case: str, pass_: str, *, rows: bool = False) -> dict[str, np.ndarray]:
        return self.store.arrays(case, pass_, rows=rows)

    def seconds(self, case: str) -> dict[str, float]:
        """Return the seconds spent on a case in all calls: `compile`, `run` and `curves`."""
        return self.store.seconds(case)

    def histograms(self, case: str, pass_: str = "outcome") -> dict[str, Histogram]:
        """Return the histograms of a pass that keeps no trials, by name of the variable."""
        return self._cache.get(
            ("histograms", case, pass_),
            lambda: read_histograms(self.store, case, pass_),
            lambda histograms: sum(
                0 if each.counts is None else each.counts.size for each in histograms.values()
            ),
        )

    _histograms = histograms

    def table(self) -> reports.Report:
        """Return the table of the report, with its remarks."""
        return self._written or self._report(self.summary())

    def _report(self, summary: dict[str, Any]) -> reports.Report:
        table = super()._report(summary)
        # A study may state in its own words what a public test leaves out.
        own = tuple(remark for remark in table.remarks if remark.startswith(PUBLIC_TEST))
        return table._replace(
            uncovered=(*(own or _public_tests(summary)), *table.uncovered, _SIMULATED),
            remarks=(*(each for each in table.remarks if each not in own), *_relations(summary)),
            provenance=(
                *table.provenance,
                *reports.provenance(summary),
                *reports.times(summary, self.timings),
            ),
        )

    def write_reports(self, writer: Writer) -> None:
        """Write summary.json, the figures, report.md and report.html into the writer's folder.

        Raises:
            OSError: the disk is full, or writing fails.
        """
        self._prepare()
        summary = self.summary()
        if self.store.workers is not None:
            summary["workers"] = self.store.workers
        writer.write_document(SUMMARY, json.dumps(summary, indent=1, allow_nan=False) + "\n")
        before = time.monotonic()
        name, picture = self.write_figures(writer) or ("", None)
        self.timings["figures"] = time.monotonic() - before
        self._written = self._report(summary)._replace(figure=name)
        writer.write_document(REPORT, str(self._written))
        writer.write_document(PAGE, self._written.to_html(picture))

    def write_figures(self, writer: Writer) -> tuple[str, bytes] | None:
        """Write the figures as PNG and SVG files into the folder of the writer.

        Returns:
            The name and the PNG file of the first figure, or None without figures.
        """
        from nrjax.study import rendering  # slow to import

        first = None
        for name, figure in self.plot().items():
            picture = rendering.save_figure(writer, name, figure)
            first = first or (name, picture)
        return first


class Outcomes(Reported):
    """A set of named outcomes in memory, with the tables, comparisons and figures of a study.

    Use it for outcomes that `nrjax.simulate` returned. Use `nrjax.Study` for more trials than fit
    into memory. Simulate all outcomes with the same key: they then share their random numbers, so
    that differences between them are paired.

    Args:
        outcomes: an `nrjax.Outcome` per name. All fields of all outcomes have a leading axis of
            the same number of trials.
        goals: utility that the trials should reach, for some or all of the names.
        notions: privacy notion of epsilon (`Guarantee.notion`), for some or all of the names.

    Raises:
        ValueError: there are no outcomes, or their numbers of trials differ.

    Examples:
        >>> def score(release):
        ...     return -jnp.abs(release - 3.0)
        >>> interaction = nrjax.laplace(3.0, sensitivity=1.0).until(score, at_least=-0.5)
        >>> outcome = nrjax.simulate(jax.random.key(0), interaction, trials=100)
        >>> nrjax.Outcomes({"laplace": outcome}, goals={"laplace": -0.5})
        Outcomes of 100 trials of laplace
    """

    def __init__(
        self,
        outcomes: Mapping[str, Outcome],
        goals: Mapping[str, float] | None = None,
        notions: Mapping[str, str] | None = None,
    ):
        check_mapping("outcomes", outcomes, "nrjax.Outcome, such as {'brownian': outcome}")
        check(len(outcomes) > 0, "outcomes", dict(outcomes), "at least one, by name")
        labels = {"goal": goals, "notion": notions}
        labels = {label: {} if value is None else value for label, value in labels.items()}
        for label, values in labels.items():
            check_mapping(f"{label}s", values, f"the {label} of an outcome")
            for name in values:
                check_known(f"name in {label}s", name, outcomes)
        for name, goal in labels["goal"].items():
            check_goal(f"goals[{name!r}]", goal)
        for name, notion in labels["notion"].items():
            check_choice(f"notions[{name!r}]", notion, tuple(Notion))
        self._arrays, cases = {}, {}
        for name, outcome in outcomes.items():
            check("/" not in name, "name", name, "a name without a slash")
            check(isinstance(outcome, Outcome), f"outcomes[{name!r}]", outcome, "a nrjax.Outcome")
            arrays = {field: np.asarray(getattr(outcome, field)) for field in FIELDS}
            shape = arrays["status"].shape
            expected, hint = "of one axis, that of trials", "Take one point of a sweep."
            check(len(shape) == 1, f"outcomes[{name!r}]", shape, expected, hint)
            kept = {key: Variable(arrays[key].dtype.name, (), FIELDS[key]) for key in FIELDS}
            outcome_pass = Pass(trials=shape[0], chunk=shape[0], variables=kept)
            facts = {label: values[name] for label, values in labels.items() if name in values}
            cases[name] = StoredCase(name, facts, {"outcome": outcome_pass})
            self._arrays[name] = arrays
        sizes = {name: arrays["status"].size for name, arrays in self._arrays.items()}
        equal = len(set(sizes.values())) == 1 and min(sizes.values()) > 0
        check(equal, "trials", sizes, "the same number in all outcomes, at least 1")
        super().__init__(cases, {"study": "outcomes"})
        self.reporting = Reporting()

    def __repr__(self) -> str:
        return f"Outcomes of {self.trials:,} trials of {', '.join(self.cases)}"

    def _read(self, case: str, pass_: str, *, rows: bool = False) -> dict[str, np.ndarray]:
        return self._arrays[case] | ({"trial": np.arange(self.trials)} if rows else {})


def _public_tests(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the cases with an epsilon that leaves out the decision to stop."""
    stated = [case for case in summary["cases"] if case.get("notion") is not None]
    cases = [case["case"] for case in stated if case.get("public_test")]
    whose = "all cases" if len(cases) == len(summary["cases"]) else ", ".join(cases)
    right = "If the score reads private data, these numbers are too small for a release."
    return [f"{PUBLIC_TEST} ({whose}). {right}"] if cases else []


def _relations(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on the relation of neighbours for which each epsilon is stated."""
    cases_of: dict[str, list[str]] = {}
    for case in summary["cases"]:
        if case.get("relation") is not None:
            cases_of.setdefault(case["relation"], []).append(case["case"])
    return [
        f"Protected ({', '.join(cases) if len(cases_of) > 1 else 'all cases'}): whatever changes "
        f"if {describe_relation(relation)} (neighbours: {relation})."
        for relation, cases in cases_of.items()
    ]
