"""The command `nrjax`: parse, call, report."""

import contextlib
import dataclasses
import itertools
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

try:
    import rich.box
    import rich.console
    import rich.table
    import tyro
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'the command nrjax needs {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

import nrjax
from nrjax import datasets
from nrjax._numerics import check
from nrjax.progress import progress
from nrjax.study import machine, sources
from nrjax.study.cluster import connected
from nrjax.study.report import Report
from nrjax.study.results import Results
from nrjax.study.settings import RunSettings, shared_with
from nrjax.study.sources import PAPERS, Source
from nrjax.study.store import Store, StoreError
from nrjax.study.study import begin, take_up, untouched

_MISUSE = 2
"""Exit status where the user can mend the call."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def _table(report: Report) -> rich.table.Table:
    table = rich.table.Table(
        title=report.title, box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column, heading in enumerate(report.headings):
        table.add_column(heading, justify="right" if column else "left", no_wrap=column > 0)
    for row in report.rows:
        table.add_row(*row)
    return table


@dataclasses.dataclass(frozen=True)
class _Run:
    """Run a study, a paper's or that of a file; `nrjax run --help` lists the papers'."""

    source: tyro.conf.Suppress[Any] = None
    own: tyro.conf.Suppress[Any] = None
    settings: tyro.conf.Suppress[Any] = None
    cluster: tyro.conf.Suppress[Any] = None


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """Workers that share the chunks of a run; see docs/clusters.md."""

    scheduler: str | None = None
    """Address of a Dask scheduler, such as tcp://node1:8786, whose workers run the chunks."""
    workers: int | None = None
    """Run the chunks in so many processes on this machine."""

    def checked(self) -> "_Cluster":
        """The same; not while parsing, see `_checked`."""
        ok = self.workers is None or self.workers >= 1
        check(ok, "workers", self.workers, "at least 1")
        right = "left out with --workers, which starts a scheduler of its own"
        check(None in (self.scheduler, self.workers), "scheduler", self.scheduler, right)
        return self


_Folder = tyro.conf.Positional[Path]


@dataclasses.dataclass(frozen=True)
class _Resume:
    """Take up a run that was stopped, or add trials to it; the same results as without a stop."""

    folder: _Folder
    """Folder of the run."""
    trials: int | None = None
    """How many trials of each case there are to be, in all; by default as many as planned."""
    until_se: float | None = None
    """Add trials until every median epsilon has this standard error, in place of what the run has
    asked for; see `nrjax run`."""
    most_trials: int | None = None
    """With --until-se: no more trials than this, in place of what the run has asked for."""
    cluster: tyro.conf.OmitArgPrefixes[_Cluster] = dataclasses.field(default_factory=_Cluster)


@dataclasses.dataclass(frozen=True)
class _Plot:
    """Draw the figures of a finished run again, from its results alone."""

    folder: _Folder
    """Folder of the run."""


@dataclasses.dataclass(frozen=True)
class _Summary:
    """Write summary.json and report.md of a finished run again, from its results alone."""

    folder: _Folder
    """Folder of the run."""


@dataclasses.dataclass(frozen=True)
class _Data:
    """List the data sets that studies know, and where they are; or download one."""

    fetch: tuple[str, ...] = ()
    """Data sets to download first; kdd99 is the one that can be."""
    data_dir: Path | None = None
    """Folder of data files (else the variable NRJAX_DATA, else the cache folder)."""


def _command(name: str) -> Callable[..., _Run]:
    """What parses the arguments of `run NAME`."""
    source = sources.find(name)

    settings = _unchecked(RunSettings)
    usual: Any = settings(out=tyro.MISSING, **shared_with(source.settings))  # pyright: ignore[reportCallIssue]

    def chosen(study: Any, run: Any = usual, cluster: _Cluster = _Cluster()) -> _Run:
        return _Run(source, study, run, cluster)

    def only(run: Any = usual, cluster: _Cluster = _Cluster()) -> _Run:
        return _Run(source, None, run, cluster)

    found: Any = only if source.settings is None else chosen
    found.__annotations__ = {
        "run": tyro.conf.OmitArgPrefixes[settings],
        "cluster": tyro.conf.OmitArgPrefixes[_Cluster],
    }
    found.__doc__ = f"The study in {name}."
    if source.settings is not None:
        # What the run has too is given once, to the run.
        own = _unchecked(source.settings, list(shared_with(source.settings)))
        found.__annotations__["study"] = tyro.conf.OmitArgPrefixes[own]
        found.__doc__ = source.settings.__doc__
    return found


def _papers() -> Callable[..., _Run]:
    """The same for all papers, whose names `run --help` lists."""

    def command(name: str) -> Any:
        found = _command(name)
        found.__doc__ = (found.__doc__ or "").splitlines()[0]  # the rest heads the options
        return Annotated[Any, tyro.conf.subcommand(name, constructor=found)]

    def run(chosen: Any) -> _Run:
        return chosen

    commands = Union[tuple(map(command, PAPERS))]  # noqa: UP007
    run.__annotations__ = {"chosen": tyro.conf.OmitSubcommandPrefixes[commands]}
    run.__doc__ = (
        "Run a study, a paper's or that of a file, and leave its results, a summary and figures in "
        "a folder: `nrjax run my_study.py --help`, `nrjax run whitehouse2022 --help`."
    )
    return run


def _unchecked(kind: type[Any], hidden: Sequence[str] = ()) -> type[Any]:
    """The class of some options, without its checks; see `_checked`.

    `hidden` are fields that are no options of their own.
    """
    hints = typing.get_type_hints(kind)
    fixed = {name: Annotated[hints[name], tyro.conf.Suppress, tyro.conf.Fixed] for name in hidden}
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__annotations__": fixed}
    return type(kind.__name__, (kind,), names | {"__post_init__": lambda self: None})


def _checked(options: Any) -> Any:
    """The options in the class that they stand for, which checks them.

    Not while parsing: tyro would take the sentence of an error apart, and put it into a frame.
    """
    kind: Any = type(options).__base__
    fields = dataclasses.fields(options)
    return kind(**{field.name: getattr(options, field.name) for field in fields})


def _run(options: _Run) -> None:
    source: Source = options.source
    settings, cluster = _checked(options.settings), options.cluster.checked()
    own = None if options.own is None else _checked(options.own)
    with untouched(settings.out):
        Store.check(settings.out, overwrite=settings.overwrite)  # before data are loaded
        with _workers(cluster) as client, _bar() as bar:
            results = begin(source.study(own, settings), settings, bar, client)
    _show(results)


def _resume(options: _Resume) -> None:
    store, cluster = Store.open(options.folder), options.cluster.checked()
    source = sources.of_store(store)
    reporting = sources.reporting_of(store)
    with _workers(cluster) as client, _bar() as bar:
        results = take_up(
            store,
            lambda: source.stored(store),
            reporting,
            bar,
            client,
            trials=options.trials,
            until_se=options.until_se,
            most_trials=options.most_trials,
        )
    _show(results)


def _plot(options: _Plot) -> None:
    results = _finished(options.folder)
    machine.prepare_jax(machine.cores())
    with results.store.writer():
        results.draw()
    print(f"Figures are in {results.folder / 'figures'}")


def _summary(options: _Summary) -> None:
    results = _finished(options.folder)
    with results.store.writer():
        results.conclude()
    _show(results)


def _finished(folder: Path) -> Results:
    store = Store.open(folder)
    store.check_finished()
    return Results(store, sources.reporting_of(store))


def _workers(cluster: _Cluster) -> contextlib.AbstractContextManager[Any]:
    machine.prepare_jax(machine.cores())
    return connected(cluster.scheduler, cluster.workers)


def _bar() -> contextlib.AbstractContextManager[Any]:
    return progress(rich.console.Console())


def _show(results: Results) -> None:
    """Print the report of a finished run."""
    console = rich.console.Console()
    report = results.table()
    console.print(_table(report))
    for remark in report.remarks:
        console.print(remark, soft_wrap=True, highlight=False)
    console.print(
        f"Results, summary.json, report.md and figures are in {results.folder}", soft_wrap=True
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `nrjax`; returns its exit status.

    What the user can mend (a wrong value, data that are not there, a folder in use) is said in a
    sentence; anything else is a defect and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"nrjax {nrjax.__version__}")
        return 0
    try:
        if arguments and arguments[0] in PAPERS:
            raise ValueError(f"{arguments[0]} is a study: nrjax run {' '.join(arguments)}")
        words = [word for one in arguments for word in one.split("=", one.startswith("--"))]
        for before, word in itertools.pairwise(["argument", *words]):
            check(word, before, word, "something: as a path it would be the working directory")
        kinds: dict[str, Any] = {name: kind for name, (kind, _) in _COMMANDS.items()}
        if arguments[:1] == ["run"]:
            name = next(iter(arguments[1:2]), "")
            if name in PAPERS or name.endswith(".py"):
                _run(tyro.cli(_command(name), prog=f"nrjax run {name}", args=arguments[2:]))
                return 0
            kinds["run"] = _papers()
        options = tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="nrjax",
            description="Simulate noise-reduction mechanisms and their ex-post privacy.",
            args=arguments,
        )
        call = next(call for kind, call in _COMMANDS.values() if isinstance(options, kind))
        call(options)
    except KeyboardInterrupt as interrupt:
        print("; ".join(["nrjax: interrupted", *interrupt.args]), file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, StoreError) as error:
        print(f"nrjax: error: {error}", file=sys.stderr)
        return _MISUSE
    return 0


_COMMANDS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "run": (_Run, _run),
    "resume": (_Resume, _resume),
    "plot": (_Plot, _plot),
    "summary": (_Summary, _summary),
    "data": (_Data, _data),
}
"""The options of each command, and what it does."""
