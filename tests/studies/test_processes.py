"""Several processes on one study, over the loopback: the bits of one, and none survives another."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from nrjax.studies import runner
from nrjax.studies.store import Store
from tests.studies import tiny

TRIALS, CHUNK = 45, 8
OPTIONS = f"run tiny --trials {TRIALS} --chunk {CHUNK} --out".split()
LIMIT = 100
"""Seconds after which a group counts as hanging."""


@pytest.fixture(autouse=True, scope="module")
def tiny_study():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "nrjax.studies.tiny", tiny)
        patch.setattr(runner, "STUDIES", ("tiny", "rogers2023"))
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The results of a single process, on eight devices."""
    out = tmp_path_factory.mktemp("alone") / "run"
    return contents(runner.run(tiny, tiny.Settings(out=out, trials=TRIALS, chunk=CHUNK)))


def contents(store: Store) -> dict[str, np.ndarray]:
    assert store.finished()
    return {
        f"{case}/{name}/{variable}": array.values
        for case in store.cases
        for name in store.cases[case].passes
        for variable, array in store.read(case, name).data_vars.items()
    }


def assert_same(one, two):
    assert sorted(one) == sorted(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name, strict=True)


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("localhost", 0))
        return trial.getsockname()[1]


class Ended:
    """How a process ended."""

    def __init__(self, process: subprocess.Popen[str], output: str, error: str, seconds: float):
        self.status, self.output, self.error = process.returncode, output, error
        self.seconds = seconds


def group(arguments, processes, faults=None, more=None, heartbeat=4) -> list[Ended]:
    """Run the command in each process of a group; `faults` and `more` arguments by rank."""
    faults, more = faults or {}, more or {}
    cache = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": ".",
    }
    flags = f"--coordinator localhost:{free_port()} --processes {processes}".split()
    flags += ["--heartbeat-timeout", str(heartbeat), "--join-timeout", "50"]
    started, begin = [], time.monotonic()
    for rank in range(processes):
        command = [sys.executable, str(Path(__file__).with_name("grouped.py"))]
        command += [faults.get(rank, "none"), *arguments, *flags, "--rank", str(rank)]
        started.append(
            subprocess.Popen(
                [*command, *more.get(rank, ())],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=Path(__file__).parents[2],
            )
        )
    try:
        ended = []
        for process in started:
            output, error = process.communicate(timeout=LIMIT + begin - time.monotonic())
            ended.append(Ended(process, output, error, time.monotonic() - begin))
        return ended
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_two_processes_give_the_bits_of_one(alone, tmp_path):
    first, second = group([*OPTIONS, str(tmp_path / "run")], 2, heartbeat=30)
    assert (first.status, second.status) == (0, 0), first.error + second.error
    assert_same(contents(Store.open(tmp_path / "run")), alone)
    # One speaks for all.
    assert f"Results, summary.json, report.md and figures are in {tmp_path}" in first.output
    assert second.output == ""


def test_a_killed_process_takes_the_others_along_and_the_run_is_taken_up(alone, tmp_path):
    out = tmp_path / "run"
    first, second = group([*OPTIONS, str(out)], 2, {0: "hang 2", 1: "kill 1"})
    assert second.status == -signal.SIGKILL
    assert first.status not in (0, None), first.output
    assert "stopped sending heartbeats" in first.error
    done = [int(Store.open(out).done("walk", name).sum()) for name in ("outcome", "curve")]
    assert done == [3, 0]  # two by process 0, one by process 1
    assert_same(contents(runner.resume(out)), alone)


@pytest.mark.long
def test_two_processes_take_up_a_run_between_two_looks(tmp_path):
    """After 1000 trials it is not exact enough; it is stopped on the way to 2000."""
    chosen = tiny.Settings(out=tmp_path / "alone", until_se=0.02, chunk=500)
    whole = contents(runner.run(tiny, chosen))
    looked = len(whole["walk/outcome/epsilon"])
    assert looked > 1000
    out = tmp_path / "run"
    options = ["run", "tiny", "--until-se", "0.02", "--chunk", "500", "--out", str(out)]
    # Of 2 x 2 chunks, process 1 has two before the first look.
    first, second = group(options, 2, {1: "kill 2"})
    assert second.status == -signal.SIGKILL
    assert first.status not in (0, None), first.output
    store = Store.open(out)
    assert not store.finished()
    assert store.cases["walk"].passes["outcome"].trials == 2000
    ended = group(["resume", str(out)], 2, heartbeat=30)
    assert statuses(ended) == [0, 0], "".join(one.error for one in ended)
    assert_same(contents(Store.open(out)), whole)
    # More is asked for by process 0, and done by both.
    exact = dataclasses.replace(chosen, out=tmp_path / "exact", until_se=0.01)
    ended = group(["resume", str(out), "--until-se", "0.01"], 2, heartbeat=30)
    assert statuses(ended) == [0, 0], "".join(one.error for one in ended)
    assert_same(contents(Store.open(out)), contents(runner.run(tiny, exact)))


def statuses(ended):
    return [one.status for one in ended]


@pytest.mark.long
def test_four_processes_give_the_bits_of_one_and_add_trials_as_three(alone, tmp_path):
    out = tmp_path / "run"
    ended = group([*OPTIONS, str(out)], 4, heartbeat=30)
    assert statuses(ended) == [0] * 4, "".join(one.error for one in ended)
    assert_same(contents(Store.open(out)), alone)
    more = ["resume", str(out), "--trials", "61"]
    ended = group(more, 3, heartbeat=30)
    assert statuses(ended) == [0] * 3, "".join(one.error for one in ended)
    fresh = tiny.Settings(out=tmp_path / "fresh", trials=61, chunk=CHUNK)
    assert_same(contents(Store.open(out)), contents(runner.run(tiny, fresh)))


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("fault", ["kill", "terminate", "full"])
def test_whoever_dies_the_others_go_too_and_another_number_takes_it_up(
    alone, tmp_path, victim, fault
):
    out = tmp_path / "run"
    faults = {rank: f"{fault} 1" if rank == victim else "hang 1" for rank in range(4)}
    # Four compile on a few cores: with a short heartbeat, one can count as dead before its fault.
    ended = group([*OPTIONS, str(out)], 4, faults, heartbeat=10)
    expected = {"kill": -signal.SIGKILL, "terminate": -signal.SIGTERM, "full": 2}[fault]
    assert ended[victim].status == expected, ended[victim].error
    assert all(status != 0 for status in statuses(ended))
    if fault == "full":
        assert f"nrjax (process {victim} of 4): error: " in ended[victim].error
        assert "No space left on device" in ended[victim].error
    assert not Store.open(out).finished()
    ended = group(["resume", str(out)], 3, heartbeat=30)
    assert statuses(ended) == [0] * 3, "".join(one.error for one in ended)
    assert_same(contents(Store.open(out)), alone)


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "1"], "seed is 1 here and was 0"),
        (["--level", "2.5"], "level is 2.5 here and was 3.0"),
        (["--processes", "3"], "processes = 3: must be 2, as in process 0"),
        (["--rank", "0"], None),  # the coordinator's port is taken, or two are rank 0
    ],
)
def test_processes_that_were_not_started_alike_are_refused(tmp_path, more, message):
    first, second = group([*OPTIONS, str(tmp_path / "run")], 2, more={1: more})
    assert 0 not in (first.status, second.status), second.error
    if message is not None:
        assert message in second.error
        assert "Traceback" not in second.error


@pytest.mark.long
def test_a_folder_that_is_not_shared_is_found(tmp_path, monkeypatch):
    more = {1: ["--out", str(tmp_path / "elsewhere")]}
    ended = group([*OPTIONS, str(tmp_path / "run")], 2, more=more, heartbeat=30)
    assert "must be a folder that all processes share" in ended[1].error
    assert 0 not in statuses(ended)


@pytest.mark.long
def test_two_groups_on_one_folder(alone, tmp_path):
    out = tmp_path / "run"
    group([*OPTIONS, str(out)], 2, {0: "kill 1", 1: "kill 1"})
    with Store.open(out).writer(rank=1):  # one of a group whose process 0 is gone
        first, second = group(["resume", str(out)], 2)
    assert first.status == 2
    assert "error: process 1 of another run is still writing to" in first.error
    assert second.status != 0
    assert_same(contents(runner.resume(out)), alone)
