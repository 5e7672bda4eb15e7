"""A study on Dask workers in real processes: killed, added and refused."""

import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

pytest.importorskip("distributed")
import distributed

import nrjax
from nrjax._base.progress import Reporter
from nrjax.cli import loading
from nrjax.study import dask, dask_team, dask_worker, local, provenance
from nrjax.study.options import RunOptions
from tests.study import small
from tests.study.interrupted import Then, assert_same_bits
from tests.study.long_walks import LongWalk

ROOT = Path(__file__).parents[2]
TRIALS, CHUNK = 24, 2
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")
pytestmark = [pytest.mark.usefixtures("quiet_sockets", "undrawn"), pytest.mark.bits]


def run(folder, client=None, progress=False):
    """Run a study of long walks and return the bytes of its results."""
    study = nrjax.Study("walks", {"walk": LongWalk()})
    options = {"trials": TRIALS, "chunk": CHUNK, "progress": progress, "client": client}
    return study.run(folder, **options)["walk"]["place"].values.tobytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone") / "run")


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A cluster whose workers share a compilation cache."""
    import logging

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster:
            yield cluster


@pytest.fixture
def client(workers):
    with distributed.Client(workers) as client:
        client.wait_for_workers(2, timeout=120)
        yield client


def a_worker(client):
    return next(iter(client.run(os.getpid).values()))


@pytest.mark.long
@posix
def test_a_killed_worker_costs_its_chunks_only(client, alone, tmp_path):
    def kill():
        os.kill(a_worker(client), signal.SIGKILL)

    assert run(tmp_path / "run", client, Then(2, kill)) == alone


@pytest.mark.long
def test_a_worker_that_is_added_gets_chunks(client, workers, alone, tmp_path):
    def add():
        workers.scale(3)
        client.wait_for_workers(3, timeout=120)

    try:
        results = run(tmp_path / "run", client, Then(1, add))
        busy = client.run(lambda: len(dask_worker._STUDIES))
    finally:
        workers.scale(2)
    assert results == alone
    assert sorted(busy.values()) == [1, 1, 1]


@pytest.mark.long
@posix
def test_a_killed_client_loses_nothing_that_was_done(client, workers, alone, tmp_path):
    program = f"""
        from distributed import Client
        from tests.study import test_dask
        with Client({workers.scheduler_address!r}) as client:
            test_dask.run({str(tmp_path / "run")!r}, client)
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
    assert run(tmp_path / "run", client) == alone
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_a_worker_that_would_give_other_bits_is_refused(client, tmp_path, monkeypatch):
    environment = provenance.environment()
    monkeypatch.setattr(provenance, "environment", lambda: environment | {"jaxlib": "0.0.1"})
    refused = pytest.raises(ValueError, match=r"worker tcp.* cannot take part.*jaxlib .*was '0.0.1")
    with pytest.warns(match="The others go on"), refused:
        run(tmp_path / "run", client)


@pytest.mark.long
def test_an_error_on_a_worker_is_raised_by_the_client(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dask, "run_file", _failing)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "run", client)


def _failing(*_):
    return 1 // 0


@pytest.mark.long
@pytest.mark.parametrize("name", small.PAPERS_LONG)
def test_results_are_bit_for_bit_identical_on_workers(client, name, tmp_path):
    """On fewer devices, with code from a file that no worker can import."""
    small.data(tmp_path)
    study = small.study(name, tmp_path)
    if name == "example":
        path = shutil.copy(ROOT / "tests/study/example.py", tmp_path / "own.py")
        source = loading.find(str(path))
        study = source.study(source.settings())
    stores = (
        study.run(tmp_path / name, trials=20, chunk=8, progress=False, client=chosen).store
        for name, chosen in (("workers", client), ("here", None))
    )
    assert_same_bits(*stores)


@pytest.mark.long
def test_a_worker_with_other_code_is_refused(client):
    study = nrjax.Study("walks", {"walk": LongWalk()})
    passes = study._passes(RunOptions(trials=TRIALS, chunk=CHUNK))
    prints, task = provenance.fingerprints(passes), local.Task("walk", "outcome", 0, CHUNK)
    other = {"walk": {"outcome": prints["walk"]["outcome"][::-1]}}
    environment = dask_worker.environment_of(provenance.environment())

    def run_file(prints):
        data = dask_worker.serialise(passes, jax.random.key(0), prints)
        facts = data, repr(prints), environment, task, 1.0
        return client.submit(dask_worker.run_file, *facts).result()

    trials, arrays, *_ = run_file(prints)
    assert (trials, arrays["place"].shape) == (CHUNK, (CHUNK,))
    assert "its code of the study or nrjax is not" in run_file(other).reason
    environment["python"] = "3.0"
    assert "Python is 3." in run_file(prints).reason


@pytest.fixture
def fragile(client, workers, monkeypatch):
    """A cluster that gives a chunk up after the first worker that stops while it holds it."""
    monkeypatch.setattr(workers.scheduler, "allowed_failures", 0)
    yield client
    workers.scale(0)
    workers.scale(2)


@pytest.mark.long
@pytest.mark.timeout(900)
@posix
def test_chaos_changes_no_bit():
    """The whole of it, `python -m tests.study.chaos`, takes ten minutes and more."""
    command = [sys.executable, "-m", "tests.study.chaos", "--seeds", "1", "--seconds", "15"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@posix
def test_workers_that_stop_cost_no_run(fragile, alone, workers, tmp_path):
    class Stopping(Then):
        def advance(self, trials, seconds):
            self.left -= 1
            if self.left >= 0:
                os.kill(next(iter(workers.workers.values())).pid, signal.SIGTERM)

    assert run(tmp_path / "run", fragile, Stopping(3)) == alone


@pytest.mark.long
@posix
def test_a_chunk_that_stops_its_worker_alone_is_named(fragile, tmp_path, monkeypatch):
    monkeypatch.setattr(dask, "run_file", _stopping)
    with pytest.raises(ConnectionError, match=r"stopped during trials 0 to 1 of .* ran alone"):
        run(tmp_path / "run", fragile)
    assert len(list((tmp_path / "run/results/walk/outcome").glob("*.npz"))) == TRIALS // CHUNK - 1


def _stopping(data, digest, environment, task, seconds):
    if task.first == 0:
        os._exit(1)
    return dask_worker.run_file(data, digest, environment, task, seconds)


@pytest.mark.long
@posix
def test_a_worker_that_differs_is_left_out(client, workers, alone, tmp_path):
    """It computes in float64. The others do the work."""
    options = ["--nthreads", "1", "--no-dashboard"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", workers.scheduler_address, *options],
        env=os.environ | {"JAX_ENABLE_X64": "1"},
    )
    try:
        client.wait_for_workers(3, timeout=120)
        with pytest.warns(match=r"precision is 'float64' here.*The others go on"):
            assert run(tmp_path / "run", client) == alone
    finally:
        process.terminate()
        process.wait()


@pytest.mark.long
@posix
def test_the_loss_of_the_scheduler_is_told_in_one_sentence(tmp_path):
    file = tmp_path / "scheduler.json"
    found = ["--scheduler-file", str(file)]
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--port",
            "0",
            "--no-dashboard",
            *found,
        ]
    )
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            "--nthreads",
            "1",
            "--no-dashboard",
            *found,
        ]
    )
    lost = r"scheduler tcp://\S+ is gone; finished trials are kept: start .* the same call of Study"
    try:
        with distributed.Client(scheduler_file=str(file), timeout="60s") as client:
            client.wait_for_workers(1, timeout=120)
            with pytest.raises(ConnectionError, match=lost):
                run(tmp_path / "run", client, Then(2, scheduler.kill))
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def test_a_run_without_workers_says_that_it_waits_and_gives_up(tmp_path):
    shown = io.StringIO()
    study = nrjax.Study("walks", {"walk": LongWalk()})
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
        Reporter(shown, True, time.monotonic) as progress,
        pytest.raises(ConnectionError, match=r"no worker .* for \d+ s; finished trials are kept"),
    ):
        study.run(tmp_path, trials=4, progress=progress, client=client, worker_timeout=3)
    assert "waiting for workers (none c" in shown.getvalue()  # cut at the width of a terminal


class _Scheduler:
    """A client whose scheduler has some workers."""

    def __init__(self, **status):
        self.status = status

    def scheduler_info(self, n_workers):
        return {"workers": {name: {"status": status} for name, status in self.status.items()}}


def test_workers_that_are_all_paused_end_the_run_after_a_minute(monkeypatch):
    now, seen = [0.0], []
    monkeypatch.setattr(dask_team.time, "monotonic", lambda: now[0])
    client, progress = _Scheduler(a="running", b="paused"), Then(0)
    progress.workers = lambda *numbers: seen.append(numbers)
    team = dask_team.Team(client, progress, None)
    team.look()
    assert team.good == ["a"]
    client.status = {"b": "paused"}
    now[0] = 59.0
    team.look()
    assert seen == [(2, 1, 0), (1, 1, 1)]
    now[0] = 61.0
    with pytest.raises(ConnectionError, match="all 1 workers have been paused for 61 s"):
        team.look()
    assert team.counts == {"connected": 2, "paused": 1, "lost": 1, "refused": 0}


class _Future:
    """The future of a task whose result is lost with its worker once."""

    status = "pending"

    def __init__(self):
        self.asked = 0

    def add_done_callback(self, function):
        function(self)

    def cancelled(self):
        return False

    def result(self, timeout):
        self.asked += 1
        if self.asked == 1:
            raise TimeoutError
        return 2, {}, 1.0, 0.0


def test_a_result_that_is_lost_with_its_worker_stops_nothing(monkeypatch):
    client, task, future = _Scheduler(a="running"), local.Task("a", "outcome", 0, 2), _Future()
    client.submit = lambda *_, **__: future
    monkeypatch.setattr(dask, "environment_of", lambda *_: {})
    monkeypatch.setattr(dask, "serialise", lambda *_: b"")
    store = type("", (), {"settings": {"fingerprints": {}}})
    tasks = dask._Tasks(client, dask_team.Team(client, None, None), store, None, {})
    tasks._submit(task)
    assert tasks.ended() is None
    assert tasks.ended() == (task, (2, {}, 1.0, 0.0))


def test_a_run_fails_if_only_workers_that_differ_are_left():
    """Otherwise they would be asked without end."""
    client, refusal = _Scheduler(a="running", b="running"), dask_worker.Refusal("a", "it differs")
    team = dask_team.Team(client, None, None)
    team.look()
    with pytest.warns(match="worker a cannot take part, since it differs. The others go on"):
        dask._leave_out(team, refusal)
    dask._leave_out(team, refusal)
    client.status = {"a": "running"}
    team.look()
    with pytest.raises(ValueError, match="worker a cannot take part, since it differs"):
        dask._leave_out(team, refusal)


def test_a_worker_compiles_a_program_once():
    compiled = []
    program = SimpleNamespace(batch=1, launch_size=1, compile=compiled.append)
    made = dask_worker._Program(program, None)
    made.compile("key")
    made.compile("key")
    assert compiled == ["key"]
