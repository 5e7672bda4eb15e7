"""The command `nrjax`: parse, call, report."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import rich.box
    import rich.console
    import rich.progress
    import rich.table
    import tyro
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'the command nrjax needs {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

import jax

import nrjax
from nrjax import datasets
from nrjax.studies import ligett2017, rogers2023, skellam_counts, whitehouse2022
from nrjax.studies.report import Report
from nrjax.studies.store import StoreBusyError

_LINES = 20
"""Most passes whose progress is on the screen."""

_MISUSE = 2
"""Exit status where the user can mend the call."""

_INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class _Bar:
    """Progress with trials per second and time left."""

    def __init__(self, console: rich.console.Console):
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[rate]}"),
            rich.progress.TimeRemainingColumn(),
            console=console,
        )
        self._tasks: list[Any] = []
        self._trials, self._seconds = 0, 0.0

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, case: str, name: str, trials: int, done: int) -> None:
        """A new line for this pass; the oldest goes where there are many."""
        self._trials, self._seconds = 0, 0.0
        if len(self._tasks) >= _LINES:
            self._bar.remove_task(self._tasks.pop(0))
        self._tasks.append(
            self._bar.add_task(f"{case} {name}", total=trials, completed=done, rate="compiling")
        )

    def advance(self, trials: int, seconds: float) -> None:
        """More trials are done."""
        self._trials += trials
        self._seconds += seconds
        rate = f"{self._trials / self._seconds:,.0f} trials/s"
        self._bar.update(self._tasks[-1], advance=trials, rate=rate)


def _table(report: Report) -> rich.table.Table:
    table = rich.table.Table(title=report.title, box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column, heading in enumerate(report.headings):
        table.add_column(heading, justify="right" if column else "left", no_wrap=column > 0)
    for row in report.rows:
        table.add_row(*row)
    return table


@dataclasses.dataclass(frozen=True)
class _Run:
    """Run a study; `nrjax run --help` lists the studies."""

    study: str
    """Which study; its own options follow."""


@dataclasses.dataclass(frozen=True)
class _Data:
    """List the data sets that studies know, and where they are; or download one."""

    fetch: tuple[str, ...] = ()
    """Data sets to download first; kdd99 is the one that can be."""
    data_dir: Path | None = None
    """Folder of data files (else the variable NRJAX_DATA, else the cache folder)."""


_STUDIES = {study.NAME: study for study in (ligett2017, whitehouse2022, skellam_counts, rogers2023)}
"""Modules with `Settings`, `run` and `report`."""


def _run(arguments: Sequence[str]) -> None:
    """Run the study that the arguments name."""
    settings = tyro.extras.subcommand_cli_from_dict(
        {name: study.Settings for name, study in _STUDIES.items()},
        prog="nrjax run",
        description="Run a study and leave its results, a summary and figures in a folder.",
        args=arguments,
    )
    study = next(study for study in _STUDIES.values() if isinstance(settings, study.Settings))
    _prepare_jax()
    console = rich.console.Console()
    with _Bar(console) as bar:
        store = study.run(settings, bar)
    report = study.report(store)
    console.print(_table(report))
    for remark in report.remarks:
        console.print(remark, soft_wrap=True, highlight=False)
    console.print(
        f"Results, summary.json, report.md and figures are in {store.folder}", soft_wrap=True
    )


def _data(options: _Data) -> None:
    console = rich.console.Console()
    for name in options.fetch:
        console.print(f"{name}: {datasets.fetch(name, options.data_dir)}", soft_wrap=True)
    table = rich.table.Table()
    for heading in ("name", "tasks", "rows", "features", "where, or how to get it"):
        justify = "right" if heading in ("rows", "features") else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for one in datasets.available(options.data_dir):
        where = one.how if one.where is None else str(one.where)
        table.add_row(one.name, ", ".join(one.tasks), f"{one.rows:,}", str(one.features), where)
    console.print(table)


def _prepare_jax() -> None:
    """A device for each core, and compilations kept between runs, unless the user chose."""
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not chosen:  # pyright: ignore[reportAttributeAccessIssue]
        affinity = getattr(os, "sched_getaffinity", None)  # what a container may use; not on macOS
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        with contextlib.suppress(RuntimeError):  # JAX runs already, with the devices it has
            jax.config.update("jax_num_cpu_devices", cores)
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(datasets.cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command `nrjax`; returns its exit status.

    What the user can mend (a wrong value, data that are not there, a folder in use) is said in a
    sentence; anything else is a defect and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"nrjax {nrjax.__version__}")
        return 0
    try:
        if arguments[:1] == ["run"]:
            _run(arguments[1:])
        else:
            options = tyro.extras.subcommand_cli_from_dict(
                {"run": _Run, "data": _Data},
                prog="nrjax",
                description="Simulate noise-reduction mechanisms and their ex-post privacy.",
                args=arguments,
            )
            assert isinstance(options, _Data)  # `run` was taken above
            _data(options)
    except KeyboardInterrupt:
        print("nrjax: interrupted; what was done is in the folder, unfinished", file=sys.stderr)
        return _INTERRUPTED
    except (ValueError, OSError, ModuleNotFoundError, StoreBusyError) as error:
        print(f"nrjax: error: {error}", file=sys.stderr)
        return _MISUSE
    return 0


if __name__ == "__main__":
    sys.exit(main())
