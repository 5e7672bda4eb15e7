"""The commands of `nrjax`: run, choose, design, audit, resume, merge, and others for folders."""

import contextlib
import difflib
import io
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

from nrjax._base.extras import missing

try:
    import rich.console  # noqa: F401
    import tyro
except ModuleNotFoundError as error:
    raise missing(error.name, "the command nrjax") from error

import nrjax
from nrjax._base.progress import progress
from nrjax._base.validation import check
from nrjax.cli import loading, printing
from nrjax.cli.auditing import Audit
from nrjax.cli.choosing import Choose
from nrjax.cli.describing import Data
from nrjax.cli.designing import Design
from nrjax.cli.fingerprinting import Fingerprint
from nrjax.cli.folders import Merge, Plot, Resume, Summary, print_run
from nrjax.cli.options import Cluster, Output, checked, joined, unchecked, with_fractions
from nrjax.cli.wording import in_shell
from nrjax.papers import OWN_TABLE, STUDIES
from nrjax.study import devices
from nrjax.study.files import RESULTS, new_folder
from nrjax.study.locks import Part
from nrjax.study.options import RunOptions, shared_options
from nrjax.study.store import Store, StoreError

_MISUSE = 2
"""The exit status for errors that the user can fix."""

INTERRUPTED, TERMINATED = 130, 143
"""The exit statuses after Ctrl-C and after SIGTERM, by the convention of shells."""


def _run_help() -> None:
    """Run a paper's study, a study from a file, or a regression on your table."""


_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": _run_help,
    "choose": Choose,
    "design": Design,
    "audit": Audit,
    "resume": Resume,
    "merge": Merge,
    "plot": Plot,
    "summary": Summary,
    "fingerprint": Fingerprint,
    "data": Data,
}
"""The callable of each command, from which tyro derives the command's options."""


def _command(name: str) -> Callable[..., Callable[[], None]]:
    """Return a function whose signature defines the arguments of `nrjax run NAME` for tyro."""
    source = loading.find(name)
    options = unchecked(RunOptions, [])
    defaults: Any = options(**shared_options(source.settings))
    here = Cluster()

    def with_settings(
        output: Any, study: Any, run: Any = defaults, cluster: Cluster = here
    ) -> Callable[[], None]:
        return lambda: _run(source, study, output, run, cluster)

    def without_settings(
        output: Any, run: Any = defaults, cluster: Cluster = here
    ) -> Callable[[], None]:
        return lambda: _run(source, None, output, run, cluster)

    parser: Any = without_settings if source.settings is None else with_settings
    parser.__annotations__ = {
        "output": tyro.conf.OmitArgPrefixes[Output],
        "run": tyro.conf.OmitArgPrefixes[options],
        "cluster": tyro.conf.OmitArgPrefixes[Cluster],
    }
    parser.__doc__ = f"The study in {name}."
    if source.settings is not None:
        # Options that are also fields of the settings appear only as options of the run.
        own = unchecked(source.settings, list(shared_options(source.settings)))
        parser.__annotations__["study"] = tyro.conf.OmitArgPrefixes[own]
        parser.__doc__ = source.settings.__doc__
    return parser


def _papers() -> Callable[..., Callable[[], None]]:
    """Return the function for `nrjax run`, with all studies of the package as subcommands."""

    def command(name: str) -> Any:
        parser = _command(name)
        parser.__doc__ = (parser.__doc__ or "").splitlines()[0]  # one line per study in a list
        return Annotated[Any, tyro.conf.subcommand(name, constructor=parser)]

    def run(chosen: Any) -> Any:
        return chosen

    commands = Union[tuple(map(command, STUDIES))]  # noqa: UP007
    run.__annotations__ = {"chosen": tyro.conf.OmitSubcommandPrefixes[commands]}
    run.__doc__ = (
        "Run a study and write its results, a summary and figures to a folder. For a regression on "
        "your own table: `nrjax run --data my.csv --target COLUMN`, with the options that `nrjax "
        "run regression --help` lists. For a paper's study, or the study in a file: `nrjax run "
        "whitehouse2022 --help`, `nrjax run my_study.py --help`."
    )
    return run


def _run(
    source: loading.Source, settings: Any, output: Output, options: Any, cluster: Cluster
) -> None:
    """Run a study and print its report. The folder is checked before data are loaded."""
    options, part = checked(options), Part.of(output.part)
    settings = None if settings is None else checked(settings)
    chosen: dict[str, Any] = dict(vars(options)) | {"part": part, "overwrite": output.overwrite}
    out, overwrite = output.out, output.overwrite
    clash = "left out with --resume, which keeps the trials of the folder"
    check(not (output.resume and overwrite), "overwrite", overwrite, clash)
    with contextlib.ExitStack() as stack:
        if (output.resume or part is not None) and not overwrite and (out / RESULTS).is_dir():
            there = Store.open(out).settings["settings"]["trials"]
            if chosen["trials"] < there:
                text = f"{out} has {there:,} trials of each case, which are kept: "
                print(f"{text}--trials {chosen['trials']} is not used.", file=sys.stderr)
            if chosen["trials"] <= there:
                chosen["trials"] = None  # the run may have been extended since
        else:
            stack.enter_context(new_folder(out, overwrite=overwrite))
        client, bar = stack.enter_context(cluster.client()), stack.enter_context(progress())
        with printing.plain_warnings():
            study = source.study(settings, options)
        results = study.run(out, **chosen, progress=bar, **cluster.given(client))
    print_run(results, part)


def _flush() -> None:
    """Flush standard output, or redirect it to the null device and raise the error."""
    if sys.stdout is None:  # standard output is closed
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


@contextlib.contextmanager
def _polite_stops() -> Iterator[list[int]]:
    """Let SIGTERM, by which batch systems end a job, act as Ctrl-C does until the block ends.

    Yields a list, to which each SIGTERM that arrives is added. In a thread other than the main one,
    which cannot handle signals, nothing changes.
    """
    stopped: list[int] = []

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield stopped  # None: the handler is not Python's, and could not be restored
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `nrjax` and return its exit status.

    Errors that the user can fix, such as a wrong value or a folder in use, are printed without a
    traceback. Any other error is a defect of nrjax, and is raised.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # for terminals that lack a character
        sys.stdout.reconfigure(errors="replace")
    with _polite_stops() as stopped:
        return _status(list(sys.argv[1:] if arguments is None else arguments), stopped)


def _status(arguments: list[str], stopped: list[int]) -> int:
    """Run the command, print its error if it has one, and return the exit status."""
    try:
        try:
            _call(arguments)
        except (RuntimeError, AssertionError) as error:
            if not isinstance(error, StoreError):
                devices.check_platforms()  # explains it if JAX cannot start
            raise
        finally:
            _flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        return 1
    except KeyboardInterrupt as interrupt:
        how = "stopped by SIGTERM" if stopped else "interrupted"
        print("; ".join([f"nrjax: {how}", *interrupt.args]), file=sys.stderr)
        return TERMINATED if stopped else INTERRUPTED
    except (ValueError, OSError, MemoryError, ModuleNotFoundError, StoreError) as error:
        print(f"nrjax: error: {in_shell(_of_system(error))}", file=sys.stderr)
        return _MISUSE
    return 0


def _of_system(error: Exception) -> str:
    """Return the message of an error, without the number of one of the operating system."""
    if not isinstance(error, OSError) or error.errno is None or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}"


def _of_own_table(arguments: list[str], words: list[str]) -> list[str]:
    """Add the study of your own table to a call, and a folder if the call names none."""
    data = words[words.index("--data") + 1 :][:1]
    out = [] if "--out" in words else ["--out", *(f"runs/{Path(name).stem}" for name in data)]
    return ["run", OWN_TABLE, *arguments[1:], *out]


def _call(arguments: list[str]) -> None:
    """Parse the arguments and run the command."""
    if arguments == ["--version"]:
        print(f"nrjax {nrjax.__version__}")
        return
    if arguments and arguments[0] in STUDIES:
        raise ValueError(f"{arguments[0]} is a study: nrjax run {' '.join(arguments)}")
    if arguments and not arguments[0].startswith("-"):
        similar = difflib.get_close_matches(arguments[0], _COMMANDS, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else ""
        check(arguments[0] in _COMMANDS, "command", arguments[0], f"one of {[*_COMMANDS]}", hint)
    arguments = with_fractions(joined(arguments))
    words = [part for word in arguments for part in word.split("=", word.startswith("--"))]
    for before, word in itertools.pairwise(["argument", *words]):
        check(word, before, word, "not empty")  # an empty path would mean the working directory
    if arguments[:1] == ["run"] and "--data" in words:
        if arguments[1] == OWN_TABLE:
            arguments = ["run", *arguments[2:]]
        if arguments[1].startswith("-"):
            arguments = _of_own_table(arguments, words)
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
