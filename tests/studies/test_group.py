"""A group of processes: which chunks are whose, the flags, and who may write to a folder."""

import itertools
import os
import signal
import subprocess
import sys

import jax
import pytest

from nrjax.studies.folder import StoreBusyError, lock
from nrjax.studies.group import ALONE, Group, Machines, join, leave, speaker


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_every_pending_chunk_is_one_process_s(processes, offset):
    pending = [0, 1, 2, 3, 5, 8, 13, 21, 22, 23]
    shares = [Group(rank, processes).share(pending, offset) for rank in range(processes)]
    assert sorted(itertools.chain(*shares)) == pending
    assert all(share == sorted(share) for share in shares)


def test_a_chunk_s_process_does_not_depend_on_when_one_looks():
    # Another process may have finished chunks meanwhile: what is left must not change hands.
    for rank in range(3):
        early = Group(rank, 3).share(range(20))
        assert Group(rank, 3).share(range(7, 20)) == [chunk for chunk in early if chunk >= 7]


def test_single_chunks_of_many_passes_go_round():
    owners = [
        [rank for rank in range(4) if Group(rank, 4).share([0], offset)] for offset in range(8)
    ]
    assert sorted(itertools.chain(*owners)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_alone_nothing_is_waited_for():
    assert ALONE.first
    assert ALONE.share([4, 7]) == [4, 7]
    ALONE.wait("nobody")
    assert ALONE.agree(5) == 5
    ALONE.check_same("seed", 3)
    assert join(Machines()) is ALONE
    assert leave(2) == 2
    assert speaker() == "nrjax"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"processes": 2}, r"^--coordinator and --rank must be given too"),
        ({"rank": 0}, r"^--coordinator and --processes must be given too"),
        ({"coordinator": "a:1", "processes": 2}, r"^--rank must be given too"),
        ({"coordinator": "node1", "processes": 2, "rank": 0}, r"^coordinator = 'node1'.*host:port"),
        ({"coordinator": "a:70000", "processes": 2, "rank": 0}, r"^coordinator = 'a:70000'"),
        ({"coordinator": "a:0", "processes": 2, "rank": 0}, r"^coordinator = 'a:0'"),
        ({"coordinator": "a:1", "processes": 0, "rank": 0}, r"^processes = 0"),
        ({"coordinator": "a:1", "processes": 2, "rank": 2}, r"^rank = 2.*below processes"),
        ({"coordinator": "a:1", "processes": 2, "rank": -1}, r"^rank = -1"),
        ({"distributed": True, "join_timeout": 0}, r"^join_timeout = 0"),
        ({"distributed": True, "heartbeat_timeout": 0}, r"^heartbeat_timeout = 0"),
    ],
)
def test_wrong_flags_are_named(flags, message):
    with pytest.raises(ValueError, match=message):
        Machines(**flags)


def test_flags_that_a_cluster_completes_are_taken():
    assert Machines().alone
    assert not Machines(distributed=True).alone
    assert not Machines(distributed=True, coordinator="[::1]:5000").alone
    assert not Machines(coordinator="node1:5000", processes=2, rank=1).alone


def test_cores_are_divided_among_processes_known_to_be_on_this_host():
    def cores(coordinator, processes):
        return Machines(coordinator=coordinator, processes=processes, rank=0).cores(8)

    assert cores("localhost:5000", 2) == cores("127.0.0.1:5000", 2) == 4
    assert cores("[::1]:5000", 16) == 1
    assert cores("node1:5000", 2) == 8
    assert Machines().cores(8) == Machines(distributed=True).cores(8) == 8


def test_each_process_of_a_group_has_a_lock_of_its_own(tmp_path):
    with lock(tmp_path), lock(tmp_path, 1), lock(tmp_path, 2):
        with pytest.raises(StoreBusyError, match=r"^another run"), lock(tmp_path):
            pass
        with pytest.raises(StoreBusyError, match=r"^process 2 of another run"), lock(tmp_path, 2):
            pass
    with lock(tmp_path), lock(tmp_path, 2):  # all were let go of
        pass


def test_process_0_waits_for_stragglers_of_a_dead_group(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from nrjax.studies.folder import lock\n"
        "with lock(pathlib.Path(sys.argv[1]), 3):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    straggler = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        text=True,
    )
    with straggler:
        assert straggler.stdout is not None
        assert straggler.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError, match=r"^process 3 of another run"), lock(tmp_path):
            pass
        straggler.kill()
    with lock(tmp_path):  # and the lock of process 0 was let go of, too
        pass


def test_what_keeps_processes_from_joining_is_said_in_a_sentence():
    # In a process of its own, which has made no array, and which the last attempt ends.
    code = """
import socket
from nrjax.studies.group import Machines, join
taken = socket.create_server(("localhost", 0))
port = taken.getsockname()[1]
for machines in (
    Machines(distributed=True),
    Machines(coordinator=f"localhost:{port}", processes=2, rank=0),
    Machines(coordinator="localhost:1", processes=2, rank=1, join_timeout=1),
):
    try:
        join(machines)
    except (ValueError, OSError) as error:
        print(error, flush=True)
"""
    names = ("SLURM_", "OMPI_", "KUBERNETES_", "JAX_COORDINATOR")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(names)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    cluster, port = run.stdout.splitlines()
    assert cluster.startswith("--distributed: no cluster told of its processes")
    assert "Slurm" in cluster
    assert "--coordinator, --processes and --rank" in cluster
    assert "its port must be free on the machine of process 0" in port
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last.startswith("nrjax: error: not all processes had joined at localhost:1 within")
    assert "--join-timeout = 1 seconds" in last


class Board:
    """What the runtime's coordination service holds; its barrier does not wait."""

    def __init__(self, dead=False):
        self.said, self.dead = {}, dead

    def key_value_set(self, key, value):
        assert key not in self.said
        self.said[key] = value

    def wait_at_barrier(self, key, milliseconds):
        assert milliseconds >= 30 * 24 * 3600 * 1000, "shorter than a long study"
        if self.dead:
            raise jax.errors.JaxRuntimeError("heartbeat timeout")

    def blocking_key_value_get(self, key, milliseconds):
        return self.said[key]


def test_process_0_s_number_is_all_s():
    board = Board()
    first, second = Group(0, 2, board), Group(1, 2, board)
    for group in (first, second):
        group.wait("laid out")
        assert group.agree(1000 + group.rank) == 1000
    first.check_same("trials", 45)
    with pytest.raises(ValueError, match=r"^trials = 60: must be 45, as in process 0"):
        second.check_same("trials", 60)
    for value in (0.1 + 0.2, None):
        first.check_same("until_se", value)
        second.check_same("until_se", value)
    first.check_same("until_se", 0.3)
    with pytest.raises(ValueError, match=r"^until_se = None: must be 0.3, as in process 0"):
        second.check_same("until_se", None)


def test_processes_that_wait_for_different_things_are_told():
    board = Board()
    Group(0, 2, board).wait("the store is laid out")
    with pytest.raises(ValueError, match=r"'the store is laid out'.*'the store is opened'.*same"):
        Group(1, 2, board).wait("the store is opened")


def test_the_death_of_another_is_told_while_waiting():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ConnectionError, match=r"another process .* has died.*nrjax resume"):
        Group(1, 2, Board(dead=True)).wait("the store is opened")
    assert signal.getsignal(signal.SIGINT) is before
