"""The command `nrjax`: parse, call, report."""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

from nrjax._extras import missing

try:
    import rich.box
    import rich.console
    import rich.table
    import tyro
except ModuleNotFoundError as error:
    raise missing(error.name, "the command nrjax") from error

import nrjax
from nrjax import datasets
from nrjax._validation import check
from nrjax.papers import PAPERS
from nrjax.progress import progress
from nrjax.study import machine, sources
from nrjax.study.cluster import connected
from nrjax.study.folder import saying
from nrjax.study.results import Results
from nrjax.study.settings import RunSettings, shared_with
from nrjax.study.sources import Source
from nrjax.study.store import Store, StoreError
from nrjax.study.study import begin, take_up, untouched

_MISUSE = 2
"""Exit status where the user can mend the call."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """Workers that share the chunks of a run; see docs/clusters.md."""

    scheduler: str | None = None
    """Address of a Dask scheduler, such as tcp://node1:8786, whose workers run the chunks."""
    workers: int | None = None
    """Run the chunks in so many processes on this machine."""

    def client(self) -> contextlib.AbstractContextManager[Any]:
        """Of the cluster, or None; checked here, not while parsing (see `_checked`)."""
        ok = self.workers is None or self.workers >= 1
        check(ok, "workers", self.workers, "at least 1")
        right = "left out with --workers, which starts a scheduler of its own"
        check(None in (self.scheduler, self.workers), "scheduler", self.scheduler, right)
        machine.prepare_jax(machine.cores())
        machine.check_matplotlib()
        return connected(self.scheduler, self.workers)


@dataclasses.dataclass(frozen=True)
class _OnFolder:
    folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    def finished(self) -> Results:
        store = Store.open(self.folder)
        store.check_finished()
        return Results(store, sources.reporting_of(store))


@dataclasses.dataclass(frozen=True)
class _Resume(_OnFolder):
    """Take up a run that was stopped, or add trials to it; the same results as without a stop."""

    trials: int | None = None
    """How many trials of each case there are to be, in all; by default as many as planned."""
    until_se: float | None = None
    """Add trials until every median epsilon has this standard error, in place of what the run has
    asked for; see `nrjax run`."""
    most_trials: int | None = None
    """With --until-se: no more trials than this, in place of what the run has asked for."""
    cluster: tyro.conf.OmitArgPrefixes[_Cluster] = dataclasses.field(default_factory=_Cluster)

    def __call__(self) -> None:
        store = Store.open(self.folder)
        source, reporting = sources.of_store(store), sources.reporting_of(store)
        asked = {name: getattr(self, name) for name in ("trials", "until_se", "most_trials")}
        with self.cluster.client() as client, progress() as bar:
            study = functools.partial(source.stored, store)
            results = take_up(store, study, reporting, bar, client, **asked)
            _show(results)
            _name_folder(results)


@dataclasses.dataclass(frozen=True)
class _Plot(_OnFolder):
    """Draw the figures of a finished run again, from its results alone."""

    def __call__(self) -> None:
        results = self.finished()
        machine.prepare_jax(machine.cores())
        with results.store.writer():
            results.draw()
        print(f"Figures are in {results.folder / 'figures'}")


@dataclasses.dataclass(frozen=True)
class _Summary(_OnFolder):
    """Write summary.json and report.md of a finished run again, from its results alone."""

    def __call__(self) -> None:
        results = self.finished()
        _show(results)  # first: the folder may be one that you can only read
        with results.store.writer():
            results.conclude()
        _name_folder(results)


@dataclasses.dataclass(frozen=True)
class _Data:
    """List the data sets that studies know, and where they are; or download one."""

    fetch: tuple[str, ...] = ()
    """Data sets to download first; kdd99 is the one that can be."""
    data_dir: Path | None = None
    """Folder of data files (else the variable NRJAX_DATA, else the cache folder)."""

    def __call__(self) -> None:
        console = rich.console.Console()
        for name in self.fetch:
            console.print(f"{name}: {datasets.fetch(name, self.data_dir)}", soft_wrap=True)
        table = rich.table.Table()
        for heading in ("name", "tasks", "rows", "features", "where, or how to get it"):
            justify = "right" if heading in ("rows", "features") else "left"
            table.add_column(heading, justify=justify, overflow="fold")
        for one in datasets.available(self.data_dir):
            where = one.how if one.where is None else str(one.where)
            table.add_row(one.name, ", ".join(one.tasks), f"{one.rows:,}", str(one.features), where)
        console.print(table)


def _run_help() -> None:
    """Run a study, a paper's or that of a file; `nrjax run --help` lists the papers'."""


_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": _run_help,
    "resume": _Resume,
    "plot": _Plot,
    "summary": _Summary,
    "data": _Data,
}
"""What each command is made from; then it is called."""


def _command(name: str) -> Callable[..., Callable[[], None]]:
    """What parses the arguments of `run NAME`."""
    source = sources.find(name)
    settings = _unchecked(RunSettings, [], overwrite=tyro.conf.FlagCreatePairsOff)
    usual: Any = settings(out=tyro.MISSING, **shared_with(source.settings))  # pyright: ignore[reportCallIssue]

    def chosen(study: Any, run: Any = usual, cluster: _Cluster = _Cluster()) -> Callable[[], None]:
        return lambda: _run(source, study, run, cluster)

    def only(run: Any = usual, cluster: _Cluster = _Cluster()) -> Callable[[], None]:
        return lambda: _run(source, None, run, cluster)

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


def _papers() -> Callable[..., Callable[[], None]]:
    """The same for all papers, whose names `run --help` lists."""

    def command(name: str) -> Any:
        found = _command(name)
        found.__doc__ = (found.__doc__ or "").splitlines()[0]  # the rest heads the options
        return Annotated[Any, tyro.conf.subcommand(name, constructor=found)]

    def run(chosen: Any) -> Any:
        return chosen

    commands = Union[tuple(map(command, PAPERS))]  # noqa: UP007
    run.__annotations__ = {"chosen": tyro.conf.OmitSubcommandPrefixes[commands]}
    run.__doc__ = (
        "Run a study, a paper's or that of a file, and leave its results, a summary and figures in "
        "a folder: `nrjax run my_study.py --help`, `nrjax run whitehouse2022 --help`."
    )
    return run


def _unchecked(kind: type[Any], hidden: Sequence[str] = (), **markers: Any) -> type[Any]:
    """The class of some options, without its checks; see `_checked`.

    `hidden` are fields that are no options of their own; `markers` are tyro's, by field.
    """
    hints = typing.get_type_hints(kind)
    fixed = {name: Annotated[hints[name], tyro.conf.Suppress, tyro.conf.Fixed] for name in hidden}
    fixed |= {name: Annotated[hints[name], marker] for name, marker in markers.items()}
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__annotations__": fixed}
    return type(kind.__name__, (kind,), names | {"__post_init__": lambda self: None})


def _checked(options: Any) -> Any:
    """The options in the class that they stand for, which checks them.

    Not while parsing: tyro would take the sentence of an error apart, and put it into a frame.
    """
    kind: Any = type(options).__base__
    fields = dataclasses.fields(options)
    return kind(**{field.name: getattr(options, field.name) for field in fields})


def _run(source: Source, own: Any, run: Any, cluster: _Cluster) -> None:
    settings = _checked(run)
    own = None if own is None else _checked(own)
    # Looked at before data are loaded.
    with untouched(settings.out, settings.overwrite), cluster.client() as client, progress() as bar:
        results = begin(source.study(own, settings), settings, bar, client)
    _show(results)
    _name_folder(results)


def _show(results: Results) -> None:
    """Print the report of a finished run."""
    console, report = rich.console.Console(), results.table()
    if not console.is_terminal:  # a file, or another program: nothing to fit into
        console.width = 10_000
    table = rich.table.Table(
        title=report.title, box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column, heading in enumerate(report.headings):
        justify = "right" if column else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=column == 0)
    for row in report.rows:
        table.add_row(*row)
    console.print(table)
    for remark in report.remarks:
        console.print(remark, soft_wrap=True, highlight=False)


def _name_folder(results: Results) -> None:
    text = f"Results, summary.json, report.md and figures are in {results.folder}"
    rich.console.Console().print(text, soft_wrap=True)


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    """Flush what the block prints; raise OSError if that fails.

    Python flushes at exit too, where it reports a failure in its own words.
    """
    try:
        yield
    finally:
        if sys.stdout is not None:  # which Python makes None if it is closed
            try:
                with saying("cannot print the output"):
                    sys.stdout.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `nrjax`; returns its exit status.

    What the user can mend (a wrong value, data that are not there, a folder in use) is said in a
    sentence; anything else is a defect and keeps its traceback.
    """
    try:
        with _flushed():
            _call(list(sys.argv[1:] if arguments is None else arguments))
    except BrokenPipeError:  # `| head` has read enough
        return 1
    except KeyboardInterrupt as interrupt:
        print("; ".join(["nrjax: interrupted", *interrupt.args]), file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, StoreError) as error:
        print(f"nrjax: error: {error}", file=sys.stderr)
        return _MISUSE
    return 0


def _call(arguments: list[str]) -> None:
    """Parse the arguments, and do what they say."""
    if arguments == ["--version"]:
        print(f"nrjax {nrjax.__version__}")
        return
    if arguments and arguments[0] in PAPERS:
        raise ValueError(f"{arguments[0]} is a study: nrjax run {' '.join(arguments)}")
    words = [word for one in arguments for word in one.split("=", one.startswith("--"))]
    for before, word in itertools.pairwise(["argument", *words]):
        check(word, before, word, "something: as a path it would be the working directory")
    name = arguments[1] if arguments[:1] == ["run"] and len(arguments) > 1 else ""
    if name and not name.startswith("-"):
        call = tyro.cli(_command(name), prog=f"nrjax run {name}", args=arguments[2:])
    else:
        call = tyro.extras.subcommand_cli_from_dict(
            _COMMANDS | ({"run": _papers()} if arguments[:1] == ["run"] else {}),
            prog="nrjax",
            description="Simulate noise-reduction mechanisms and their ex-post privacy.",
            args=arguments,
        )
    call()
