"""The folder and cluster options of `nrjax run`, and functions to parse options."""

import contextlib
import dataclasses
import importlib
import logging
import os
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from nrjax._base.validation import check
from nrjax.study import devices
from nrjax.study.dask_worker import import_cloudpickle

_OWN_TIMEOUT = 120.0
"""The default of `worker_timeout` for processes of this machine."""

_TLS = (
    ". For TLS set the variables DASK_DISTRIBUTED__COMM__TLS__CA_FILE, "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY to the "
    "files of your certificates"
)


@dataclasses.dataclass(frozen=True)
class Output:
    """The folder of a run.

    Attributes:
        out: Folder for the results: the trials, summary.json, report.html, report.md and figures/.
        overwrite: Replace the results of an earlier run in the same folder.
        resume: Go on with the run if the folder holds it, and otherwise start it. The same command
            can then be given again at any time, as a batch system does.
        part: Run only a part of the trials, such as 3/100 for the third of 100, without a report.
            Parts may share a folder. `nrjax merge` makes one run of them.
    """

    out: Path
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    part: Annotated[str | None, tyro.conf.arg(metavar="NUMBER/COUNT")] = None


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Workers that run the trials, as docs/clusters.md describes.

    Attributes:
        scheduler: Address of a Dask scheduler, such as tcp://node1:8786, whose workers run the
            trials.
        scheduler_file: File that `dask scheduler --scheduler-file` wrote, in place of the address.
        workers: Number of processes on this machine that run the trials.
        worker_timeout: Seconds without a worker after which to give up; by default 120 with
            --workers, and otherwise never.
    """

    scheduler: str | None = None
    scheduler_file: Path | None = None
    workers: int | None = None
    worker_timeout: float | None = None

    def given(self, client: Any) -> dict[str, Any]:
        """Return the arguments of `Study.run` for a client from `client`."""
        own = None if self.workers is None else _OWN_TIMEOUT  # nothing starts them again
        timeout = own if self.worker_timeout is None else self.worker_timeout
        return {"client": client, "worker_timeout": timeout}

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Set up JAX and yield a client of the cluster, or None to run in this process.

        Raises:
            ValueError: an option or an environment variable has a wrong value.
            OSError: no scheduler can be reached at the address.
            ModuleNotFoundError: Dask is not installed.
        """
        is_count = self.workers is None or self.workers >= 1
        check(is_count, "workers", self.workers, "at least 1")
        ways = {"scheduler": self.scheduler, "scheduler_file": self.scheduler_file}
        given = [name for name, value in ways.items() if value is not None]
        hint = "The option --workers starts its own scheduler."
        is_single = not given or self.workers is None
        check(
            is_single, "".join(given[:1]), given and ways[given[0]], "left out with --workers", hint
        )
        expected = "left out with --scheduler-file"
        check(len(given) < 2, "scheduler", self.scheduler, expected)
        file = self.scheduler_file
        if file is not None and not file.is_file():
            raise FileNotFoundError(f"scheduler_file must be a file, and there is none at {file}")
        devices.configure_jax(devices.cores())
        _check_matplotlib()
        if not given and self.workers is None:
            expected = "left out without workers of a cluster"
            check(self.worker_timeout is None, "worker_timeout", self.worker_timeout, expected)
            yield None
            return
        import_cloudpickle()
        from distributed import Client, LocalCluster

        with contextlib.ExitStack() as stack:
            if self.workers is None:
                where: Any = {"address": self.scheduler}
                if file is not None:
                    where = {"scheduler_file": str(file)}
                try:
                    client = Client(**where, timeout="30s")
                except (OSError, ValueError, TypeError, RuntimeError) as error:
                    expected = "the address of a Dask scheduler that can be reached from here"
                    hint = _TLS if str(self.scheduler).startswith("tls:") else ""
                    raise OSError(
                        f"{given[0]} must be {expected}, such as tcp://node1:8786 "
                        f"(got {str(ways[given[0]])!r}: {error}){hint}"
                    ) from error
            else:
                cluster = LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=max(1, devices.cores() // self.workers),
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                )
                client = Client(stack.enter_context(cluster))
            yield stack.enter_context(client)


def _check_matplotlib() -> None:
    """Import Matplotlib, or raise ValueError if `MPLBACKEND` is not the name of a backend."""
    try:
        importlib.import_module("matplotlib")
    except ValueError as error:
        backend = os.environ.get("MPLBACKEND")
        check(False, "MPLBACKEND", backend, "unset, or a backend of Matplotlib", f"{error}")


_JOINED = ("--bins", "--bounds", "--leave-out", "--missing", "--read")


def joined(arguments: Sequence[str]) -> list[str]:
    """Return arguments with all values of a repeated list, of which argparse takes the last one."""
    current: list[str] = []
    groups, first = [current], dict[str, list[str]]()
    for word in arguments:
        option, *value = word.split("=", 1)
        option = option.replace("_", "-")
        if option in _JOINED:
            if option not in first:
                groups.append(first.setdefault(option, [option]))
            current = first[option]
            current.extend(value)
        elif word.startswith("--"):
            groups.append(current := [word])
        else:
            current.append(word)
    return [word for group in groups for word in group]


_FRACTIONS = ("--confidence", "--held-out", "--target-fraction")
_PERCENTAGE = re.compile(r"(\d+\.?\d*|\.\d+)\s*%")


def with_fractions(arguments: Sequence[str]) -> list[str]:
    """Return arguments with fractions in place of percentages, such as 0.2 for "20 %"."""
    changed, option = [], ""
    for word in arguments:
        name, equals, value = word.rpartition("=")
        found = _PERCENTAGE.fullmatch(value.strip())
        if found and (name or option).replace("_", "-") in _FRACTIONS:
            word = f"{name}{equals}{float(found[1]) / 100:.15g}"
        changed.append(word)
        option = word
    return changed


def unchecked(kind: type[Any], hidden: Sequence[str] = ()) -> type[Any]:
    """Return a subclass of a dataclass of options, for tyro, without checks of the values.

    Errors of the checks would be reformatted by tyro, so `checked` runs the checks after parsing.
    `hidden` are names of fields that are not options of the command.
    """
    hints = typing.get_type_hints(kind)
    fixed = {name: Annotated[hints[name], tyro.conf.Suppress, tyro.conf.Fixed] for name in hidden}
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__annotations__": fixed}
    return type(kind.__name__, (kind,), names | {"__post_init__": lambda self: None})


def checked(options: Any) -> Any:
    """Return options of a class made by `unchecked` as an instance of the class with checks."""
    kind: Any = type(options).__base__
    fields = dataclasses.fields(options)
    return kind(**{field.name: getattr(options, field.name) for field in fields})
