"""Runs under a real Slurm: a job array, requeued and cancelled jobs, workers of Dask.

Needs Debian's packages slurm-wlm and munge; a private cluster of four nodes is started.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")

from nrjax import cli
from nrjax.study.store import Store
from tests.study import slurm
from tests.study.interrupted import assert_same_bits

ROOT = Path(__file__).parents[2]
TRIALS = 120
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(slurm.missing()), reason=f"not installed: {slurm.missing()}"),
]

FILE = """
import nrjax
from tests.study.test_dask import LongWalk

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
