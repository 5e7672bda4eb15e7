"""Several processes on one study: who they are, which chunks are whose, and waiting for each other.

They share nothing but their rank and the store. The JAX runtime (`jax.distributed`) tells them of
each other and, when one dies, ends the others; whatever was done is in the store.
"""

import contextlib
import errno
import itertools
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jax

from nrjax._numerics import check
from nrjax.studies.machines import Machines

__all__ = ["ALONE", "Group", "Machines", "join", "leave", "speaker", "start_devices"]

_PATIENCE = 365 * 24 * 3600
"""Seconds that a process waits for the others to finish their chunks: longer than any study."""

_KNOWN = "Slurm, Open MPI, Cloud TPU, and Kubernetes (indexed jobs, with the package kubernetes)"
"""The cluster environments that JAX 0.10 takes coordinator, number and rank from."""


class Group:
    """The processes of a study, seen from one of them; from `join`.

    Attributes:
        rank: this process's number, from 0.
        processes: how many there are.
    """

    def __init__(self, rank: int = 0, processes: int = 1, client: Any = None):
        self.rank = rank
        self.processes = processes
        self._client = client
        self._calls = itertools.count()

    @property
    def first(self) -> bool:
        """Whether this is the process that lays out, extends, concludes and prints."""
        return self.rank == 0

    def share(self, pending: Sequence[int], offset: int = 0) -> list[int]:
        """Those of the pending chunks that are this process's to run.

        By the chunks' numbers alone, so that processes that look at different moments agree.

        Args:
            pending: numbers of chunks.
            offset: turns the order of the processes; a pass's own number, for the single chunks
                of many small passes not to be all process 0's.
        """
        return [chunk for chunk in pending if (chunk + offset) % self.processes == self.rank]

    def wait(self, name: str) -> None:
        """Wait until all processes have called this, for as long as it takes.

        Every process calls `wait` and `agree` in the same order.

        Args:
            name: what is waited for, the same in all of them.

        Raises:
            ConnectionError: another process died meanwhile.
            ValueError: process 0 is elsewhere: it was started with another command.
        """
        self._meet(name, "")

    def agree(self, number: int) -> int:
        """Process 0's number, in all of them.

        Raises:
            ConnectionError, ValueError: as `wait`.
        """
        return int(self._meet("a number", str(number)))

    def check_same(self, name: str, value: float | None) -> None:
        """Refuse to go on with a number, or with none, where process 0 has another.

        Raises:
            ValueError: it has.
            ConnectionError: as `wait`.
        """
        right = self._meet(name, repr(value))
        check(repr(value) == right, name, value, f"{right}, as in process 0")

    def _meet(self, name: str, word: str) -> str:
        """A barrier; afterwards all have process 0's word."""
        if self._client is None:
            return word
        key = f"nrjax/{next(self._calls)}"
        try:
            if self.first:
                self._client.key_value_set(key, f"{name}={word}")
            with _stoppable():
                self._client.wait_at_barrier(key, _PATIENCE * 1000)
            there, _, said = self._client.blocking_key_value_get(key, 60_000).rpartition("=")
        except jax.errors.JaxRuntimeError as error:
            raise ConnectionError(
                "another process of the group has died; what is done is in the store, which "
                "`nrjax resume` takes up"
            ) from error
        if there != name:
            raise ValueError(
                f"process 0 is at {there!r} and this one at {name!r}: all processes of a group "
                "must be started with the same command"
            )
        return said


ALONE = Group()
"""A single process: it waits for nobody, and all chunks are its own."""

_joined: list[Group] = []
"""The group that this process is in, if any; there is one for the life of a process."""


def join(machines: Machines) -> Group:
    """Join the other processes; before any array is made. `ALONE` where none were asked for.

    From here on an exception that nobody catches ends this process at once, and with it the
    others: at a usual exit JAX would first wait for them. Call `leave` instead of `sys.exit`.

    Raises:
        ValueError: no cluster is known here, the processes were not started alike, or JAX cannot
            start its devices.
        OSError: the coordinator's port is taken.
        RuntimeError: arrays have been made already, or JAX is older than 0.9.
    """
    if machines.alone:
        start_devices()
        return ALONE
    if not hasattr(jax.config, "jax_enable_preemption_service"):
        raise ValueError(
            f"jax = {jax.__version__}: several processes need JAX 0.9 or newer, whose shutdown "
            "can outlast a study"
        )
    # Else SIGTERM, with which clusters end a job, would be kept for a later checkpoint; a store
    # can be left at any moment.
    jax.config.update("jax_enable_preemption_service", False)
    if machines.rank == 0 and machines.coordinator is not None:
        _check_port(machines.coordinator)
    watch = threading.Timer(machines.join_timeout, _nobody_came, [machines])
    watch.daemon = True
    watch.start()
    try:
        _initialize(machines)
        start_devices()  # JAX waits here for every process to make its devices: so all do now
    finally:
        watch.cancel()
    # JAX has no public door to its coordination service. Its public barrier is a collective over
    # all devices: that needs one GPU a process, and on CPUs it gives up after half an hour.
    from jax._src import distributed

    group = Group(jax.process_index(), jax.process_count(), distributed.global_state.client)
    _joined.append(group)
    sys.excepthook = _end_at_once
    if machines.processes is not None:
        group.check_same("processes", machines.processes)
    return group


def start_devices() -> None:
    """Make JAX's devices, for what it says of those that it lacks to be said in a sentence.

    Raises:
        ValueError: JAX cannot start what `JAX_PLATFORMS` names.
    """
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # of CUDA without a GPU, a bare assertion
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        right = f"left out, or what JAX can start here; {str(error) or 'there is none such'}"
        check(False, "JAX_PLATFORMS", platforms, right)


def speaker() -> str:
    """Who speaks on standard error: `nrjax`, or which process of how many."""
    if not _joined:
        return "nrjax"
    return f"nrjax (process {_joined[0].rank} of {_joined[0].processes})"


def leave(status: int) -> int:
    """Say goodbye with an exit status, which is returned if it is 0 or this process is alone.

    With any other, the process ends here, and the runtime then ends the rest of its group.
    """
    if status == 0 or not _joined:
        return status
    _exit(status)


def _initialize(machines: Machines) -> None:
    explicit = not machines.distributed  # not even a look at the cluster then
    try:
        jax.distributed.initialize(
            machines.coordinator,
            machines.processes,
            machines.rank,
            cluster_detection_method="deactivate" if explicit else None,
            # Past its own limit the runtime aborts without a word on what to do; ours comes first.
            initialization_timeout=machines.join_timeout + 30,
            heartbeat_timeout_seconds=machines.heartbeat_timeout,
            shutdown_timeout_seconds=_PATIENCE,
        )
    except (ValueError, KeyError, RuntimeError) as error:
        if explicit or "before any JAX" in str(error):
            raise
        raise ValueError(
            f"--distributed: no cluster told of its processes ({error}); known are {_KNOWN}; "
            "elsewhere give --coordinator, --processes and --rank"
        ) from error


def _check_port(coordinator: str) -> None:
    """Refuse a port on which another program listens; the runtime would just wait."""
    port = int(coordinator.rsplit(":", 1)[1])
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            trial.bind(("", port))
        except OSError as error:
            right = "free on the machine of process 0"
            if error.errno != errno.EADDRINUSE:
                right = f"one that may be opened ({error.strerror})"
            raise OSError(f"--coordinator = {coordinator}: its port must be {right}") from error


def _nobody_came(machines: Machines) -> None:
    where = machines.coordinator or "the cluster's coordinator"
    print(
        f"nrjax: error: not all processes had joined at {where} within --join-timeout = "
        f"{machines.join_timeout} seconds: start all of them, with the same --coordinator and "
        "--processes, on machines that reach each other",
        file=sys.stderr,
    )
    _exit(2)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let Ctrl-C end the process: Python would not hear it before the runtime's call is over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_at_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    print(f"{speaker()}:", file=sys.stderr)
    traceback.print_exception(kind, error, trace)
    _exit(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _exit(status: int) -> NoReturn:
    """Without JAX's own exit, which waits for the other processes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
