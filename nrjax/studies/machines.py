"""The options of the command that say with which other processes a study is run."""

import dataclasses
import re
from typing import Annotated

import tyro

from nrjax._numerics import check

_ADDRESS = re.compile(r"(?P<host>[^\s:]+|\[[^\s\]]+\]):(?P<port>\d{1,5})")

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclasses.dataclass(frozen=True)
class Machines:
    """Several processes on one study; each is started with the same options, but for `rank`.

    Raises:
        ValueError: some of `coordinator`, `processes` and `rank` are given and `distributed` is
            not, or one of them is out of range.
    """

    distributed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Take what is not given below from the cluster: Slurm, Open MPI, Cloud TPU, or Kubernetes."""
    coordinator: str | None = None
    """Address and free port of process 0, such as node1:9876."""
    processes: int | None = None
    """How many processes there are."""
    rank: int | None = None
    """Which of them this one is, from 0."""
    join_timeout: int = 300
    """Seconds to wait for all processes to start."""
    heartbeat_timeout: int = 30
    """Seconds without a sign of life after which a process counts as dead, and all end."""

    def __post_init__(self):
        given = {
            "--coordinator": self.coordinator,
            "--processes": self.processes,
            "--rank": self.rank,
        }
        missing = [name for name, value in given.items() if value is None]
        if not self.distributed and 0 < len(missing) < len(given):
            raise ValueError(
                f"{' and '.join(missing)} must be given too: a group of processes needs all of "
                f"{', '.join(given)}, or --distributed where a cluster knows them"
            )
        if self.coordinator is not None:
            match = _ADDRESS.fullmatch(self.coordinator)
            ok = match is not None and 0 < int(match["port"]) < 2**16
            check(ok, "coordinator", self.coordinator, "host:port, such as node1:9876")
        if self.processes is not None:
            check(self.processes >= 1, "processes", self.processes, "at least 1")
        if self.rank is not None:
            right = "0 or more, and below processes"
            check(0 <= self.rank < (self.processes or self.rank + 1), "rank", self.rank, right)
        check(self.join_timeout >= 1, "join_timeout", self.join_timeout, "at least 1 second")
        right = "at least 1 second"
        check(self.heartbeat_timeout >= 1, "heartbeat_timeout", self.heartbeat_timeout, right)

    @property
    def alone(self) -> bool:
        """Whether nothing was asked for but a single process."""
        return not self.distributed and self.coordinator is None

    def cores(self, cores: int) -> int:
        """How many of this host's `cores` are this process's: fewer where others are known here.

        They are where the coordinator's address is the loopback. A cluster divides them itself, by
        the affinity that it gives its tasks.
        """
        match = _ADDRESS.fullmatch(self.coordinator or "")
        here = match is not None and match["host"] in _LOOPBACK
        return max(1, cores // (self.processes or 1)) if here else cores
