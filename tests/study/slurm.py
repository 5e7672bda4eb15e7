"""A private Slurm cluster of this machine: four nodes of one core, in a folder of its own.

It needs Debian's packages slurm-wlm and munge, and nothing of them to be configured.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "scontrol")
NODES = 4

_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=300
OverTimeLimit=0
SchedulerParameters=sched_interval=1,bf_interval=1
PropagateResourceLimits=NONE
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PreemptMode=requeue
"""


def missing() -> list[str]:
    """Return the programs of Slurm and munge that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start a cluster, and yield the environment for its commands."""
    (folder / "munge").mkdir(parents=True, mode=0o700)
    (folder / "state").mkdir()
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    ports, host = _free_ports(NODES + 1), socket.gethostname()
    nodes = "\n".join(
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[number]} CPUs=1 "
        "RealMemory=4000 State=UNKNOWN"
        for number in range(1, NODES + 1)
    )
    facts = {"host": host, "ports": ports, "folder": folder, "nodes": nodes, "user": _user()}
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(**facts))
    environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(configuration)}
    files = {"key": key, "socket": "socket", "pid": "pid", "log": "log", "seed": "seed"}
    munge = [
        f"--{name}{'' if name == 'socket' else '-file'}={folder / 'munge' / file}"
        for name, file in files.items()
    ]
    commands = [
        ["munged", "--foreground", "--force", *munge],
        ["slurmctld", "-D", "-f", str(configuration)],
        *(["slurmd", "-D", "-f", str(configuration), "-N", f"n{n}"] for n in range(1, NODES + 1)),
    ]
    with contextlib.ExitStack() as stack:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # they write logs
        for command in commands:
            process = subprocess.Popen(command, env=environment, **quiet)
            stack.callback(_stop, process)
            if command[0] == "munged":
                _wait(lambda: (folder / "munge" / "socket").exists(), 20)
        _wait(lambda: _idle(environment) == NODES, 60)
        yield environment


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _idle(environment: dict[str, str]) -> int:
    found = subprocess.run(
        ["sinfo", "--noheader", "--format=%D %t", "--states=idle"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    return int(found[0]) if found else 0


def _wait(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not start")
        time.sleep(0.1)


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
