"""A study on Dask workers, real processes: killed, added, frozen, refused; and a killed client."""

import os
import shutil
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
from nrjax.study import cluster, identity, local, sources
from nrjax.study.settings import RunSettings
from tests.study import small, test_conformance

ROOT = Path(__file__).parents[2]
TRIALS, CHUNK = 24, 2
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")
pytestmark = pytest.mark.usefixtures("quiet_sockets")


class Walked(NamedTuple):
    place: jax.Array


class LongWalk(nrjax.Pytree):
    """So long that a chunk takes a while."""

    steps: int = nrjax.static(default=20_000)

    def run(self, key):
        def move(step, place):
            return place + jax.random.normal(jax.random.fold_in(key, step % 1000))

        return Walked(jax.lax.fori_loop(0, self.steps, move, jnp.zeros(())))


def run(folder, client=None, progress=False):
    """The bytes of its results."""
    study = nrjax.Study("walks", {"walk": LongWalk()})
    more = {"trials": TRIALS, "chunk": CHUNK, "progress": progress, "client": client}
    return study.run(folder, **more)["walk"]["place"].values.tobytes()


undrawn = test_conformance.undrawn


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone") / "run")


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """Those that come later find what was compiled."""
    import logging

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as found:
            yield found


@pytest.fixture
def client(workers):
    with distributed.Client(workers) as found:
        found.wait_for_workers(2, timeout=120)
        yield found


Then = test_conformance.Then


def a_worker(client):
    return next(iter(client.run(os.getpid).values()))


@posix
def test_a_killed_worker_costs_its_chunks_alone(client, alone, tmp_path):
    def kill():
        os.kill(a_worker(client), signal.SIGKILL)

    found = run(tmp_path / "run", client, Then(2, kill))
    assert found == alone


@pytest.mark.long
def test_a_worker_that_is_added_gets_chunks(client, workers, alone, tmp_path):
    def add():
        workers.scale(3)
        client.wait_for_workers(3, timeout=120)

    try:
        found = run(tmp_path / "run", client, Then(1, add))
        busy = client.run(lambda: len(cluster._MADE))
    finally:
        workers.scale(2)
    assert found == alone
    assert sorted(busy.values()) == [1, 1, 1]


@pytest.mark.long
@posix
def test_a_frozen_worker_holds_up_nothing(client, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 1.0)
    frozen = a_worker(client)
    try:
        then = Then(2, lambda: os.kill(frozen, signal.SIGSTOP))
        found = run(tmp_path / "run", client, then)
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert found == alone


@pytest.mark.long
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
    found = run(tmp_path / "run", client)
    assert found == alone
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


@pytest.mark.long
@pytest.mark.parametrize("name", test_conformance.PAPERS_LONG)
def test_all_that_a_study_can_have_is_the_same_on_workers(client, name, tmp_path):
    """With fewer devices; code of one's own goes along, which no worker can import."""
    small.data(tmp_path)
    study = small.study(name, tmp_path)
    if name == "example":
        path = shutil.copy(ROOT / "tests/study/example.py", tmp_path / "own.py")
        source = sources.find(str(path))
        study = source.study(source.settings())
    found, here = (
        study.run(tmp_path / kind, trials=20, chunk=8, progress=False, client=one).store
        for kind, one in (("workers", client), ("here", None))
    )
    test_conformance.assert_same_bits(found, here)


def test_a_worker_with_other_code_is_refused(client):
    study = nrjax.Study("walks", {"walk": LongWalk()})
    plans = study.plans(RunSettings(out=Path("unused"), trials=TRIALS, chunk=CHUNK))
    stated, task = identity.fingerprints(plans), local.Task("walk", "outcome", 0, CHUNK)
    other = {"walk": {"outcome": stated["walk"]["outcome"][::-1]}}

    def made(prints):
        data = cluster.packed(plans, jax.random.key(0), prints)
        facts = identity.circumstances()
        return client.submit(cluster.run_chunk, data, repr(prints), facts, task).result()

    assert made(stated)[0]["place"].shape == (CHUNK,)
    with pytest.raises(ValueError, match="it has other code of the study"):
        made(other)
