"""Parts of a run, in one folder or several, make one run with each trial once."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("filelock")
pytest.importorskip("xarray")

import nrjax
from nrjax import cli
from nrjax.study import locks
from nrjax.study.chunks import disjoint, overlap
from nrjax.study.files import StoreBusyError, StoreError, UnfinishedError
from nrjax.study.locks import Part
from nrjax.study.store import Store
from tests.study import cheap, unlocked_writers
from tests.study.interrupted import assert_same_bits

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
CASES = {"walk": cheap.Walk(np.float32(1.0)), "near": cheap.interaction()}


def run(folder, **options):
    study = nrjax.Study("parts", CASES, reporting=cheap.Quiet())
    return study.run(folder, **{"trials": 50, "progress": False} | options)


@pytest.fixture(scope="module", params=["trials", "summary"])
def keep(request):
    return request.param


@pytest.fixture(scope="module")
def whole(keep, tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), keep=keep)


def bits(results):
    """Return all that a report is made of: quantiles, comparisons and arrays."""
    found = [results.distribution("near", "stopping_epsilon").quantile(q) for q in (0.1, 0.5)]
    found += [results.distribution("near", "step").mean, *results.statuses("near").items()]
    if results.store.pass_of("near", "outcome").axis == "trial":
        found += [results[name].to_dict() for name in CASES]
    return str(found)


@pytest.mark.parametrize("total", [1, 3, 7])
@pytest.mark.parametrize("shared", [True, False])
def test_parts_make_the_bits_of_one_run(whole, keep, tmp_path, total, shared):
    folders = [tmp_path / ("all" if shared else str(n)) for n in range(total)]
    for number, folder in enumerate(folders):
        done = run(folder, part=(number + 1, total), keep=keep)
        assert f"part {number + 1}/{total}" in repr(done)
        assert not (folder / "summary.json").exists()
    out = folders[0] if shared else tmp_path / "out"
    merged = nrjax.Results.merge(dict.fromkeys(folders), out, cheap.Quiet())
    assert bits(merged) == bits(whole)
    assert (out / "report.md").exists()
    if keep == "trials":
        assert_same_bits(merged.store, whole.store)
    else:  # one file, however many parts there were
        assert len(list(out.glob("results/walk/outcome/*.npz"))) == 1
    assert bits(nrjax.Results.merge(folders, out, cheap.Quiet())) == bits(whole)


def test_a_part_that_is_missing_is_named(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    run(folders[0], part="1/4")
    run(folders[1], part="2/4")
    with pytest.raises(ValueError, match=r"part must be one of 4 parts, as part 2/4 in .* is"):
        run(folders[1], part="1/3")
    with pytest.raises(UnfinishedError, match=r"trials of part 3/4, part 4/4 are missing; run"):
        nrjax.Results.merge(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = run(folders[0], part=(4, 4))
    with pytest.raises(UnfinishedError, match="not finished"):
        done.distribution("near")
    run(folders[0], part=(3, 4))
    assert nrjax.Results.merge(iter(folders), tmp_path / "out").trials == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seed": 1}, "seed is 1 there and 0"), ({"trials": 60}, "trials is 60 there and 50")],
)
def test_parts_of_different_runs_are_refused(tmp_path, change, message):
    run(tmp_path / "a", part="1/2")
    run(tmp_path / "b", part="2/2", **change)
    with pytest.raises(ValueError, match=f"parts of one run .*{message}"):
        nrjax.Results.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")


@pytest.mark.parametrize("part", ["0/4", "5/4", (0, 4), (3, 2), "3", "a/b", 3, (1, 2, 3), (1.0, 2)])
def test_a_wrong_part_is_refused(tmp_path, part):
    with pytest.raises(ValueError, match=r"part must be NUMBER/COUNT .*Parts count from 1"):
        run(tmp_path / "out", part=part)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [{"overwrite": True}, {"until_se": 0.1}, {"trials": 60}])
def test_options_of_the_whole_run_are_refused_with_a_part(tmp_path, given):
    run(tmp_path, part="1/4")
    (name,) = given
    with pytest.raises(ValueError, match=f"{name} must be left out, or as before, with part 2/4"):
        run(tmp_path, part="2/4", **given)


def test_the_parts_hold_each_trial_once():
    for trials, total in itertools.product((1, 5, 50, 2**32), (1, 3, 7, 100)):
        spans = [Part(number, total).span(trials) for number in range(1, total + 1)]
        assert [one.stop for one in spans[:-1]] == [one.start for one in spans[1:]]
        assert (spans[0].start, spans[-1].stop) == (0, trials)
        for trial in {0, trials // 3, trials - 1}:
            (number,) = locks.parts_with(range(trial, trial + 1), trials, total)
            assert trial in spans[number - 1]


def test_files_that_overlap_hold_each_trial_once(tmp_path):
    """A longer run wrote some trials again; its file came into the folder of a shorter one."""
    shorter, longer = tmp_path / "a", tmp_path / "b"
    run(shorter, trials=30)
    run(shorter, trials=50)
    whole = run(longer)
    for file in longer.glob("results/*/*/*.npz"):
        shutil.copy(file, shorter / file.relative_to(longer))
    again = nrjax.Results.open(shorter)
    assert len(list(shorter.glob("results/walk/outcome/*.npz"))) == 3
    assert again.trials == 50
    assert_same_bits(again.store, whole.store)


def test_the_most_trials_are_chosen(monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(200):
        ends = np.sort(rng.integers(0, 12, (rng.integers(1, 7), 2)))
        spans = [range(a, b + 1) for a, b in ends.tolist()]
        chosen = disjoint(spans)
        assert not any(overlap(*pair) for pair in itertools.combinations(chosen, 2))
        choices = itertools.chain.from_iterable(
            itertools.combinations(spans, n) for n in range(len(spans) + 1)
        )
        best = max(
            sum(map(len, each))
            for each in choices
            if not any(overlap(*pair) for pair in itertools.combinations(each, 2))
        )
        assert sum(map(len, chosen)) == best
        assert set(chosen) <= set(spans)


def test_trials_that_another_run_has_written_are_refused(tmp_path):
    store = Store.create(tmp_path, {"seed": 0}, [unlocked_writers.CASE])
    with store.writer() as writer:
        writer.write("a", "outcome", range(5, 9), unlocked_writers.numbers(range(5, 9)))
    refused = pytest.raises(StoreBusyError, match="trials 0 to 5 of a/outcome were written by")
    with store.writer() as writer, refused:
        writer.write("a", "outcome", range(6), unlocked_writers.numbers(range(6)))


@posix
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.long)])
def test_writers_without_common_locks_write_each_trial_once(tmp_path, kills):
    done = subprocess.run(
        [sys.executable, "-m", "tests.study.unlocked_writers", str(tmp_path), str(kills)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert facts["killed"] >= kills
    assert facts["failed"] == 0
    overlapping = 0
    for folder in tmp_path.iterdir():
        store = Store.open(folder)
        arrays = store.arrays("a", "outcome")
        np.testing.assert_array_equal(arrays["trial"], np.arange(unlocked_writers.TRIALS))
        wanted = unlocked_writers.numbers(range(unlocked_writers.TRIALS))
        np.testing.assert_array_equal(arrays["x"], wanted["x"])
        overlapping += len(store.written("a", "outcome")) > len(store.done("a", "outcome"))
    assert facts["refused"] + overlapping > 0  # writers have met


def test_the_holder_of_a_lock_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    who = rf"process {os.getpid()} on \S+, job 17_3, since 20\d\d-"
    with locks.lock(tmp_path), pytest.raises(StoreBusyError, match=who), locks.lock(tmp_path):
        pass
    with locks.lock(tmp_path, Part(1, 2)):
        with locks.lock(tmp_path, Part(2, 2)):
            pass
        with pytest.raises(StoreBusyError, match=who), locks.lock(tmp_path):
            pass
        with pytest.raises(StoreBusyError, match=who), locks.lock(tmp_path, Part(1, 2)):
            pass
    with locks.lock(tmp_path):
        pass


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def acquire(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", acquire)
    with pytest.raises(OSError, match=r"needs a lock there: its file system has no locks"):
        run(tmp_path / "out")


FILE = """
import nrjax
from tests.study import cheap

study = nrjax.Study("parts", {"walk": cheap.Walk(0.5)}, reporting=cheap.Quiet())
reporting = study.reporting
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(FILE)
    return str(path)


def test_the_command_runs_merges_and_resumes(file, tmp_path, capsys):
    out, whole = tmp_path / "out", tmp_path / "whole"
    for _ in range(2):
        assert cli.main(["run", file, "--trials", "40", "--resume", "--out", str(whole)]) == 0
    assert cli.main(["resume", str(whole), "--trials", "60"]) == 0
    assert cli.main(["run", file, "--trials", "40", "--resume", "--out", str(whole)]) == 0
    assert Store.open(whole).pass_of("walk", "outcome").trials == 60
    kept = f"{whole} has 60 trials of each case, which are kept: --trials 40 is not used."
    assert capsys.readouterr().err.count(kept) == 1
    assert cli.main(["run", file, "--trials", "60", "--part", "1/2", "--out", str(out)]) == 0
    capsys.readouterr()
    assert cli.main(["merge", str(out)]) == 2
    assert f"`nrjax resume {out} --part 2/2` runs the first" in capsys.readouterr().err
    assert cli.main(["resume", str(out), "--part", "2/2"]) == 0
    assert f"When all parts are done: nrjax merge {out}" in capsys.readouterr().out
    assert cli.main(["merge", str(out)]) == 0
    assert_same_bits(Store.open(out), Store.open(whole))
    assert cli.main(["merge", str(out), str(whole)]) == 2
    assert "out must be given for several folders" in capsys.readouterr().err


@posix
def test_a_polite_stop_says_how_to_go_on(file, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "nrjax", "run", file, "--trials", "2000000000", "--resume"]
    process = subprocess.Popen(
        [*command, "--keep", "summary", "--out", str(out)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(1200):
        if process.poll() is not None or list(out.glob("results/*/*/*.npz")):
            break
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert f"stopped by SIGTERM; finished trials are kept in {out}: `nrjax resume {out}`" in said
    with pytest.raises(StoreError):
        nrjax.Results.open(out)
