"""Runs under a real Slurm: a job array, jobs that are stopped or requeued, workers of Dask.

Needs Debian's packages slurm-wlm and munge; a private cluster of four nodes is started. The test of
preemption also needs dask-jobqueue.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")

import nrjax
from nrjax import cli
from nrjax.study.store import Store
from tests.study import slurm
from tests.study.interrupted import Then, assert_same_bits
from tests.study.long_walks import LongWalk

ROOT = Path(__file__).parents[2]
TRIALS = 120
LONGER = 480
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(slurm.missing()), reason=f"not installed: {slurm.missing()}"),
]

FILE = """
import nrjax
from tests.study.long_walks import LongWalk

study = nrjax.Study("walks", {"walk": LongWalk(100_000)})
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "walks.py").write_text(FILE)
    return folder


@pytest.fixture(scope="module")
def environment(place):
    more = {
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": str(place / "compiled"),
        "JAX_NUM_CPU_DEVICES": "1",
    }
    with slurm.cluster(place / "cluster") as environment:
        yield environment | more


@pytest.fixture(scope="module")
def whole(place):
    """The run without Slurm."""
    command = ["run", str(place / "walks.py"), "--trials", str(TRIALS), "--out", f"{place}/whole"]
    assert cli.main(command) == 0
    return Store.open(place / "whole")


@pytest.fixture(scope="module")
def longer(place):
    """A run of more trials, without Slurm."""
    command = ["run", str(place / "walks.py"), "--trials", str(LONGER), "--out", f"{place}/longer"]
    assert cli.main(command) == 0
    return Store.open(place / "longer")


def submit(place, environment, options, *arguments):
    """Submit a job of the command nrjax, and return its number."""
    words = " ".join(arguments)
    script = place / "job.sh"
    script.write_text(f"#!/bin/bash\nexec {sys.executable} -m nrjax {words}\n")
    log = f"--output={place}/%j.log"
    command = ["sbatch", "--parsable", "--open-mode=append", log, *options, str(script)]
    return _said(command, environment).strip()


def _said(command, environment):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def finished(environment, job, seconds=600):
    """Wait until a job has left the queue."""
    end = time.monotonic() + seconds
    while _said(["squeue", "--noheader", "--format=%i"], environment).find(job) >= 0:
        assert time.monotonic() < end, f"job {job} is still in the queue"
        time.sleep(0.5)


def wait_for_files(out, count, seconds=300):
    end = time.monotonic() + seconds
    while len(list(out.glob("results/*/*/*.npz"))) < count:
        assert time.monotonic() < end, f"no {count} files in {out}"
        time.sleep(0.1)


def logs(place):
    return "\n".join(path.read_text() for path in place.glob("*.log"))


def test_a_job_array_and_its_merge(place, environment, whole):
    out = place / "array"
    study, trials = str(place / "walks.py"), ["--trials", str(TRIALS), "--out", str(out)]
    part = ["--part", "$SLURM_ARRAY_TASK_ID/5"]
    array = submit(place, environment, ["--array=1-5"], "run", study, *trials, *part)
    merge = submit(place, environment, [f"--dependency=afterany:{array}"], "merge", str(out))
    finished(environment, merge)
    assert_same_bits(Store.open(out), whole)
    assert (out / "report.md").exists(), logs(place)


def test_a_requeued_job_goes_on(place, environment, whole):
    out = place / "requeued"
    options = ["run", str(place / "walks.py"), "--trials", str(TRIALS), "--chunk", "8"]
    job = submit(place, environment, ["--requeue"], *options, "--resume", "--out", str(out))
    for files in (2, 5):
        wait_for_files(out, files)
        _said(["scontrol", "requeue", job], environment)
        _said(["scontrol", "update", f"jobid={job}", "starttime=now"], environment)
    finished(environment, job)
    assert Store.open(out).finished(), logs(place)
    assert_same_bits(Store.open(out), whole)


def test_a_job_at_its_walltime_is_resumed_by_the_next(place, environment, longer):
    """Slurm sends SIGTERM at the limit of a minute, or up to a minute before the seconds asked for.

    Without "B:" it would send the earlier signal to steps of the job only, of which there are none.
    """
    out = place / "walltime"
    run = ["run", str(place / "walks.py"), "--trials", str(LONGER), "--chunk", "8", "--resume"]
    stopped = f"stopped by SIGTERM; finished trials are kept in {out}"
    for limits, is_late in ((["--time=1"], True), (["--time=1", "--signal=B:TERM@25"], False)):
        job = submit(place, environment, limits, *run, "--out", str(out))
        finished(environment, job)
        said = (place / f"{job}.log").read_text()
        assert stopped in said
        assert ("TIME LIMIT" in said) == is_late
        assert not Store.open(out).finished()
    job = submit(place, environment, [], *run, "--out", str(out))
    finished(environment, job, 900)
    assert Store.open(out).finished(), logs(place)
    assert_same_bits(Store.open(out), longer)


def test_a_cancelled_job_says_how_to_go_on(place, environment):
    out = place / "cancelled"
    options = ["run", str(place / "walks.py"), "--trials", "1000000", "--chunk", "8"]
    job = submit(place, environment, [], *options, "--resume", "--out", str(out))
    wait_for_files(out, 2)
    _said(["scancel", "--full", job], environment)
    finished(environment, job)
    said = (place / f"{job}.log").read_text()
    assert f"stopped by SIGTERM; finished trials are kept in {out}" in said


def test_workers_on_two_nodes(place, environment, whole):
    out, file = place / "workers", place / "scheduler.json"
    quiet = ["--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *quiet],
        env=environment,
    )
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", *quiet]
    workers = subprocess.Popen(["srun", "--nodes=2", "--ntasks=2", *worker], env=environment)
    try:
        command = ["run", str(place / "walks.py"), "--trials", str(TRIALS), "--out", str(out)]
        done = subprocess.run(
            [sys.executable, "-m", "nrjax", *command, "--scheduler-file", str(file)],
            env=environment | {"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        for process in (workers, scheduler):
            process.terminate()
            process.wait(30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers" in done.stdout
    assert_same_bits(Store.open(out), whole)


@pytest.fixture
def adapted(place, environment, monkeypatch):
    """A cluster of dask-jobqueue that keeps three jobs, each of which stops after a while."""
    jobqueue = pytest.importorskip("dask_jobqueue")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with jobqueue.SLURMCluster(
        cores=1,
        memory="1GB",
        walltime="00:05:00",
        log_directory=str(place),
        python=sys.executable,
        worker_extra_args=["--lifetime", "60s", "--lifetime-stagger", "10s"],
        job_extra_directives=["--requeue"],
        scheduler_options={"dashboard_address": ":0", "host": "127.0.0.1"},
    ) as cluster:
        cluster.adapt(minimum_jobs=3, maximum_jobs=3, interval="1s")
        with cluster.get_client() as client:
            yield client


def test_workers_that_are_preempted_and_replaced(place, environment, adapted):
    """Jobs end at their lifetime, are cancelled, and put back into the queue."""
    preempted = []

    def preempt():
        """Cancel a job or put it back into the queue, as Slurm does for the sake of another."""
        running = ["squeue", "--noheader", "--states=RUNNING", "--format=%i"]
        jobs = _said(running, environment).split()
        if jobs and len(preempted) < 4:
            how = ["scancel"] if len(preempted) % 2 else ["scontrol", "requeue"]
            preempted.append([*how, jobs[0]])
            subprocess.run(preempted[-1], env=environment, check=False)

    study = nrjax.Study("walks", {"walk": LongWalk(50_000)})
    options = {"chunk": 8, "progress": Repeatedly(4, preempt), "client": adapted}
    store = study.run(place / "adapted", trials=240, **options).store
    assert len(preempted) == 4
    here = study.run(place / "here", trials=240, progress=False).store
    assert_same_bits(store, here)


class Repeatedly(Then):
    """Progress that calls a function after every few files."""

    def __init__(self, every, action):
        super().__init__(every, action)
        self.every = every

    def advance(self, trials, seconds):
        super().advance(trials, seconds)
        self.left = self.left or self.every
