"""The commands on the folder of a run: resume, merge, plot and summary."""

import dataclasses
from pathlib import Path
from typing import Annotated

import rich.console
import tyro

from nrjax._base.progress import progress
from nrjax._base.validation import check
from nrjax.cli import loading, printing
from nrjax.cli.options import Cluster
from nrjax.study import devices
from nrjax.study.ending import conclude
from nrjax.study.locks import Part
from nrjax.study.options import RunOptions
from nrjax.study.precision import next_trial_count
from nrjax.study.results import Results
from nrjax.study.store import Store


@dataclasses.dataclass(frozen=True)
class _OnFolder:
    folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    def finished(self) -> Results:
        store = Store.open(self.folder)
        store.check_finished()
        return Results(store, loading.reporting_of(store))


@dataclasses.dataclass(frozen=True)
class Resume(_OnFolder):
    """Resume a run that was stopped, or add trials to it, with bit-for-bit identical results."""

    trials: int | None = None
    """Total number of trials of each case. By default, the number of trials of the run."""
    until_se: float | None = None
    """Add trials until the standard error of every median stopping epsilon is at most this."""
    most_trials: int | None = None
    """Largest number of trials with --until-se."""
    part: Annotated[str | None, tyro.conf.arg(metavar="NUMBER/COUNT")] = None
    """Run only a part of the trials, as `nrjax run --part` does."""
    cluster: tyro.conf.OmitArgPrefixes[Cluster] = dataclasses.field(default_factory=Cluster)

    def __call__(self) -> None:
        """Resume the run, and print its report."""
        store = Store.open(self.folder)
        source = loading.of_store(store)
        part = Part.of(self.part)
        stored = RunOptions.from_json(store.settings["settings"])
        names = ("trials", "until_se", "most_trials")
        changes = {name: getattr(self, name) for name in names}
        with self.cluster.client() as client, progress() as bar:
            results = None
            if stored.extended(**changes) == stored and store.finished():
                results = Results(store, loading.reporting_of(store))
            if results is not None and next_trial_count(results, stored) is None:
                conclude(results)  # does not load the study, whose data may be missing
            else:
                with printing.plain_warnings():
                    study = source.stored(store)
                options = {**changes, "part": part, "progress": bar}
                options |= self.cluster.given(client)
                results = study.run(self.folder, **options)
            print_run(results, part)


@dataclasses.dataclass(frozen=True)
class Merge:
    """Merge the parts of a run, which `nrjax run --part` ran, and write the report and figures."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the parts. Parts that were run in one folder need only that one."""
    out: Path | None = None
    """Folder for the whole run. By default, the folder of the parts if there is only one."""

    def __call__(self) -> None:
        """Merge the parts, and print the report of the run."""
        hint = "Name the folder for the whole run, as --out runs/whole."
        single = len(self.folders) == 1
        check(single or self.out is not None, "out", self.out, "given for several folders", hint)
        reporting = loading.reporting_of(Store.open(self.folders[0]))
        devices.configure_jax(devices.cores())
        results = Results.merge(self.folders, self.out or self.folders[0], reporting)
        _show(results)
        _print_folder(results)


@dataclasses.dataclass(frozen=True)
class Plot(_OnFolder):
    """Draw the figures of a finished run again, only from its results."""

    def __call__(self) -> None:
        """Draw the figures."""
        results = self.finished()
        devices.configure_jax(devices.cores())
        with results.store.writer() as writer:
            results.write_figures(writer)
        print(f"Figures are in {results.folder / 'figures'}")


@dataclasses.dataclass(frozen=True)
class Summary(_OnFolder):
    """Write the summary, report and figures of a finished run again, from its results."""

    def __call__(self) -> None:
        """Print the report, and write it."""
        results = self.finished()
        _show(results)  # before writing, which fails in a read-only folder
        with results.store.writer() as writer:
            results.write_reports(writer)
        _print_folder(results)


def print_run(results: Results, part: Part | None) -> None:
    """Print the report of a finished run, or how to go on after a part."""
    if part is None:
        _show(results)
        _print_folder(results)
        return
    folder = results.folder
    text = f"Part {part} is done in {folder}. When all parts are done: nrjax merge {folder}"
    rich.console.Console().print(text, soft_wrap=True)


def _show(results: Results) -> None:
    """Print the report of a finished run."""
    report = results.table()
    if report.answer:
        printing.say(report.answer)
    printing.show(report.title, report.headings, report.rows)
    for heading, sentences in report.parts():
        printing.say(f"{heading}:")
        for sentence in sentences:
            printing.say(f"- {sentence}")


def _print_folder(results: Results) -> None:
    text = f"Results, summary.json, report.html, report.md and figures are in {results.folder}"
    rich.console.Console().print(text, soft_wrap=True)
