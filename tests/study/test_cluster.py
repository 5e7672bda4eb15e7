"""A study on Dask workers, real processes: killed, added, frozen, refused; and a killed client."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("distributed")
import distributed

import nrjax
from nrjax.study import cluster, identity, sources
from nrjax.study.settings import RunSettings
from tests.study import test_conformance

ROOT = Path(__file__).parents[2]
TRIALS, CHUNK = 24, 2
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


class Walked(NamedTuple):
    place: jax.Array


class LongWalk(nrjax.Pytree):
    """So long that a chunk takes a while."""

    steps: int = nrjax.static(default=150_000)

    def run(self, key):
        def move(step, place):
            return place + jax.random.normal(jax.random.fold_in(key, step % 1000))

        return Walked(jax.lax.fori_loop(0, self.steps, move, jnp.zeros(())))


def study():
    return nrjax.Study("walks", {"walk": LongWalk()})


def run(folder, client=None, progress=False):
    return study().run(folder, trials=TRIALS, chunk=CHUNK, progress=progress, client=client)


undrawn = test_conformance.undrawn


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone") / "run")["walk"]["place"].values


@pytest.fixture(scope="module")
def workers():
    import logging

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as found:
        yield found


@pytest.fixture
def client(workers):
    with distributed.Client(workers) as found:
        found.wait_for_workers(2, timeout=120)
        yield found


class Then:
    """Progress that does something after so many chunks, once."""

    def __init__(self, chunks, act):
        self.left, self.act = chunks, act

    def begin(self, case, name, trials, done):
        """Nothing is shown."""

    def advance(self, trials, seconds):
        self.left -= 1
        if self.left == 0:
            self.act()


def pids(client):
    return client.run(os.getpid)


@posix
def test_a_killed_worker_costs_its_chunks_alone(client, alone, tmp_path):
    def kill():
        os.kill(next(iter(pids(client).values())), signal.SIGKILL)

    found = run(tmp_path / "run", client, Then(2, kill))["walk"]["place"].values
    assert found.tobytes() == alone.tobytes()


def test_a_worker_that_is_added_gets_chunks(client, workers, alone, tmp_path):
    def add():
        workers.scale(3)
        client.wait_for_workers(3, timeout=120)

    try:
        found = run(tmp_path / "run", client, Then(1, add))["walk"]["place"].values
        busy = client.run(lambda: len(cluster._MADE))
    finally:
        workers.scale(2)
    assert found.tobytes() == alone.tobytes()
    assert sorted(busy.values()) == [1, 1, 1]


@posix
def test_a_frozen_worker_holds_up_nothing(client, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 1.0)
    frozen = next(iter(pids(client).values()))
    try:
        then = Then(2, lambda: os.kill(frozen, signal.SIGSTOP))
        found = run(tmp_path / "run", client, then)["walk"]["place"].values
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert found.tobytes() == alone.tobytes()


@posix
def test_a_killed_client_loses_nothing_that_was_done(client, workers, alone, tmp_path):
    program = f"""
        from distributed import Client
        from tests.study import test_cluster
        with Client({workers.scheduler_address!r}) as client:
            test_cluster.run({str(tmp_path / "run")!r}, client)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT)
    chunks = tmp_path / "run" / "results" / "walk" / "outcome"
    end = time.monotonic() + 120
    while len(list(chunks.glob("*.npz"))) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in chunks.glob("*.npz")}
    assert 3 <= len(done) < TRIALS // CHUNK
    found = run(tmp_path / "run", client)["walk"]["place"].values
    assert found.tobytes() == alone.tobytes()
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_a_worker_that_would_make_other_bits_is_refused(client, tmp_path, monkeypatch):
    here = identity.circumstances()
    monkeypatch.setattr(identity, "circumstances", lambda: here | {"jaxlib": "0.0.1"})
    with pytest.raises(ValueError, match=r"worker tcp.* cannot take part.*jaxlib is '.*was '0.0.1"):
        run(tmp_path / "run", client)


def test_a_failure_in_a_chunk_is_raised_here(client, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "run_chunk", _failing)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "run", client)


def _failing(*_):
    return 1 // 0


def test_code_of_ones_own_is_sent_along(tmp_path):
    """Classes of a file, and their pytrees, in a process that cannot import it."""
    path = tmp_path / "own.py"
    path.write_text((ROOT / "tests/study/example.py").read_text())
    source = sources.find(str(path))
    made = source.study(source.settings(), RunSettings(out=tmp_path / "run"))
    plans = made.plans(RunSettings(out=tmp_path / "run", trials=4))
    (tmp_path / "data").write_bytes(cluster.packed(plans, jax.random.key(0)))
    program = f"""
        import importlib.util, pickle, jax
        plans, _ = pickle.load(open({str(tmp_path / "data")!r}, "rb"))
        utility = plans["brownian-public"]["outcome"].meaning[1].utility
        doubled = jax.tree.map(lambda x: 2 * x, utility)
        print(type(utility).__module__, len(jax.tree.leaves(utility)), doubled.target)
        print(importlib.util.find_spec(type(utility).__module__))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["nrjax_study_own 1 [2. 4. 6.]", "None"]


def test_what_the_door_refuses(monkeypatch):
    def nobody(*_, **__):
        raise OSError("no answer")

    monkeypatch.setattr(distributed, "Client", nobody)
    reached = cluster.connected("tcp://127.0.0.1:1", None)
    with pytest.raises(
        OSError, match=r"scheduler = 'tcp://127\.0\.0\.1:1': must be the address of"
    ):
        reached.__enter__()
    with cluster.connected(None, None) as found:
        assert found is None
