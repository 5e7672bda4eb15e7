"""The command `nrjax`: parse, call, report."""

import contextlib
import dataclasses
import itertools
import os
import sys
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

import jax

import nrjax
from nrjax import _machine, datasets
from nrjax._numerics import check
from nrjax.progress import progress
from nrjax.studies import runner
from nrjax.studies.group import ALONE, Group, Machines, join, leave, speaker, start_devices
from nrjax.studies.report import Report
from nrjax.studies.store import Store, StoreError

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
    """Run a study; `nrjax run --help` lists the studies."""

    study: tyro.conf.Suppress[Any] = None
    settings: tyro.conf.Suppress[Any] = None
    machines: tyro.conf.Suppress[Any] = None


@dataclasses.dataclass(frozen=True)
class _Machines(Machines):
    __doc__ = Machines.__doc__

    def __post_init__(self):
        """Not while parsing; see `_checked`."""


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
    machines: tyro.conf.OmitArgPrefixes[_Machines] = dataclasses.field(default_factory=_Machines)


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


def _studies() -> Callable[..., _Run]:
    """What parses the arguments of `run`; imports the studies, which other commands do not need."""

    def command(name: str) -> Any:
        study = runner.find(name)

        def chosen(settings: Any, machines: Machines = _Machines()) -> _Run:
            return _Run(study, settings, machines)

        chosen.__annotations__ = {
            "settings": tyro.conf.OmitArgPrefixes[_unchecked(study.Settings)],
            "machines": tyro.conf.OmitArgPrefixes[_Machines],
        }
        chosen.__doc__ = study.Settings.__doc__.splitlines()[0]  # the rest heads the options
        return Annotated[Any, tyro.conf.subcommand(name, constructor=chosen)]

    def run(chosen: Any) -> _Run:
        return chosen

    commands = Union[tuple(command(name) for name in runner.STUDIES)]  # noqa: UP007
    run.__annotations__ = {"chosen": tyro.conf.OmitSubcommandPrefixes[commands]}
    run.__doc__ = "Run a study and leave its results, a summary and figures in a folder."
    return run


def _unchecked(kind: type[Any]) -> type[Any]:
    """The class of some options, without its checks; see `_checked`."""
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), names | {"__post_init__": lambda self: None})


def _checked(options: Any) -> Any:
    """The options in the class that they stand for, which checks them.

    Not while parsing: tyro would take the sentence of an error apart, and put it into a frame.
    """
    kind: Any = type(options).__base__
    fields = dataclasses.fields(options)
    return kind(**{field.name: getattr(options, field.name) for field in fields})


def _run(options: _Run) -> None:
    settings, machines = _checked(options.settings), _checked(options.machines)
    group = _join(machines)
    with _bar(group) as bar:
        store = runner.run(options.study, settings, bar, group)
    _show(options.study, store, group)


def _resume(options: _Resume) -> None:
    group = _join(_checked(options.machines))
    with _bar(group) as bar:
        store = runner.resume(options.folder, options.trials, bar, group, until_se=options.until_se)
    _show(runner.find(store.settings["study"]), store, group)


def _plot(options: _Plot) -> None:
    study, store = runner.finished(options.folder)
    start_devices()
    with store.writer():
        study.plot(store)
    print(f"Figures are in {store.folder / 'figures'}")


def _summary(options: _Summary) -> None:
    study, store = runner.finished(options.folder)
    with store.writer():
        study.conclude(store)
    _show(study, store)


def _join(machines: Machines) -> Group:
    _prepare_jax(machines)
    return join(machines)


def _bar(group: Group) -> contextlib.AbstractContextManager[Any]:
    """Process 0 speaks for all."""
    return progress(rich.console.Console()) if group.first else contextlib.nullcontext()


def _show(study: Any, store: Store, group: Group = ALONE) -> None:
    """Print the report of a finished run."""
    if not group.first:
        return
    console = rich.console.Console()
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


def _prepare_jax(machines: Machines) -> None:
    """A device for each core, and compilations kept between runs, unless the user chose."""
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not chosen:  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(RuntimeError):  # JAX runs already, with the devices it has
            jax.config.update("jax_num_cpu_devices", machines.cores(_machine.cores()))
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(datasets.cache_folder() / "jax"))
        # The small programs too: a study's are a hundred, and together take as long as a large one.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


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
        if arguments and arguments[0] in runner.STUDIES:
            raise ValueError(f"{arguments[0]} is a study: nrjax run {' '.join(arguments)}")
        words = [word for one in arguments for word in one.split("=", one.startswith("--"))]
        for before, word in itertools.pairwise(["argument", *words]):
            check(word, before, word, "something: as a path it would be the working directory")
        kinds: dict[str, Any] = {name: kind for name, (kind, _) in _COMMANDS.items()}
        if arguments[:1] == ["run"]:
            kinds["run"] = _studies()
        options = tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="nrjax",
            description="Simulate noise-reduction mechanisms and their ex-post privacy.",
            args=arguments,
        )
        call = next(call for kind, call in _COMMANDS.values() if isinstance(options, kind))
        call(options)
    except KeyboardInterrupt as interrupt:
        print("; ".join([f"{speaker()}: interrupted", *interrupt.args]), file=sys.stderr)
        return leave(INTERRUPTED)
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, StoreError) as error:
        print(f"{speaker()}: error: {error}", file=sys.stderr)
        return leave(_MISUSE)
    return 0


_COMMANDS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "run": (_Run, _run),
    "resume": (_Resume, _resume),
    "plot": (_Plot, _plot),
    "summary": (_Summary, _summary),
    "data": (_Data, _data),
}
"""The options of each command, and what it does."""
