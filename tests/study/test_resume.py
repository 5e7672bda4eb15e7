"""A stopped run is resumed from its files, and a study that does not fit is refused."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xarray")

from nrjax import cli
from nrjax.study.files import StoreBusyError, manifest_bytes
from nrjax.study.store import Store
from tests.study.interrupted import FILE, Killed, Then, assert_same_bits, resume, run

KILLS = 100
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "scales.csv"
    np.savetxt(path, [1.0, 2.0, 0.5])
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """Run without interruption, and return the stores by number of trials."""
    folder = tmp_path_factory.mktemp("whole")
    return {trials: run(folder / str(trials), data, trials) for trials in (10, 12, 23)}


@pytest.fixture
def copied(finished, tmp_path):
    """Copy the finished run of ten trials."""
    shutil.copytree(finished[10].folder, tmp_path / "copy")
    return tmp_path / "copy"


def edit(folder, change):
    """Change the schema in a manifest and its checksum."""
    path = folder / "results" / "manifest.json"
    layout = json.loads(path.read_text())["layout"]
    change(layout)
    path.write_bytes(manifest_bytes(layout))


def test_a_finished_run_is_concluded_again_without_its_data(copied, finished, monkeypatch):
    (copied / "summary.json").unlink()
    host = socket.gethostname().replace(".", "-")
    dead = f"{host}.{2**22 + 1}.tmp"  # a number that no process has
    for leftover in (f".summary.json.{dead}", f"figures/.sums.png.{dead}", ".summary.json.b.1.tmp"):
        (copied / leftover).touch()
    os.utime(copied / ".summary.json.b.1.tmp", (0, 0))  # of another node, long ago
    (copied / f".report.html.{dead}").touch()
    (copied / ".report.md.b.1.tmp").touch()  # another node may be writing this one
    edit(copied, lambda layout: layout["settings"].update(jaxlib="0.0"))  # nothing will run
    monkeypatch.setattr(np, "loadtxt", None)
    assert cli.main(["resume", str(copied)]) == 0
    assert (copied / "summary.json").exists()
    assert [path.name for path in copied.rglob("*.tmp")] == [".report.md.b.1.tmp"]
    assert_same_bits(Store.open(copied), finished[10])
    figure = copied / "figures" / "sums.png"
    drawn = figure.read_bytes()
    figure.unlink()
    assert cli.main(["plot", str(copied)]) == 0
    assert figure.read_bytes() == drawn


def test_trials_are_added_by_one_rename(copied, finished, monkeypatch):
    """If killed before the rename, the store is unchanged and can be extended again."""
    renamed = []

    def dies(path, target):
        renamed.append(target.name)
        raise Killed

    store = Store.open(copied)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        with pytest.raises(Killed):
            store.extend(23, store.settings)
    assert renamed == ["manifest.json"]
    assert_same_bits(Store.open(copied), finished[10])
    assert_same_bits(resume(copied, 12), finished[12])
    assert_same_bits(more := resume(copied, 23), finished[23])
    assert more.cases == finished[23].cases
    assert more.settings["settings"]["trials"] == 23


ENVIRONMENT = [  # a fact of the manifest, its planted value (None: missing), and the refusal
    ("nrjax", "0.0", r"nrjax is '.*' here and was '0\.0' \(install nrjax 0\.0 from its"),
    ("jaxlib", "0.0", r"jaxlib is '.*' here and was '0\.0'"),
    ("cpu", "another", r"cpu is '.*' here and was 'another' \(use a processor of that kind\)"),
    ("device", "gpu", r"device is 'cpu' here and was 'gpu' \(set JAX_PLATFORMS=gpu\)"),
    ("precision", "float16", r"precision is 'float.*' here and was 'float16' \(unset JAX_ENA"),
    ("stream", 1, r"stream is 5 here and was 1 \(install an nrjax whose seeds give those bits\)"),
    ("seed", 7, r"seed is 0 here and was 7"),  # the seed among the settings is 0
    ("fingerprints", {}, r"the fingerprint of from-0/outcome, .* is not recorded"),
]
SETTINGS = [  # a planted setting, and the refusal
    ("trials", "many", "trials must be an integer"),
    ("keep", "nothing", "keep must be 'trials' or 'summary'"),
    ("wide", None, "the stored settings lack 'wide', and this version"),
    ("wide", 2, "wide is 2 here and was|total of from-0|the arrays that are kept of"),
]


@pytest.mark.parametrize(
    ("is_setting", "name", "value", "message"),
    [(one, *row) for one, rows in ((False, ENVIRONMENT), (True, SETTINGS)) for row in rows],
)
def test_changes_are_refused_by_name(copied, is_setting, name, value, message):
    def change(layout):
        facts = layout["settings"]["settings"] if is_setting else layout["settings"]
        facts.pop(name) if value is None else facts.update({name: value})

    edit(copied, change)
    before = (copied / "results" / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        resume(copied, 12)
    assert is_setting or "cannot be resumed" in str(caught.value)
    assert (copied / "results" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1.0, 2.0, 0.25], "total of from-0 is 3.25 here and was 3.5"),
        ([2.0, 1.0, 0.5], "the data of from-0/outcome, .* differ .use the same files"),
        ([1.0, 2.5], "the arrays that are kept of from-0 differ"),
    ],
)
def test_other_data_are_refused(data, tmp_path, numbers, message):
    own = tmp_path / "own.csv"
    shutil.copy(data, own)
    run(tmp_path / "run", own)
    np.savetxt(own, numbers)
    with pytest.raises(ValueError, match=message):
        resume(tmp_path / "run", 12)


def test_a_file_is_recognised_by_its_computations(data, finished, tmp_path):
    """Names and comments may change, but not a program, even with the same numbers."""
    own = tmp_path / "own.py"
    text = Path(FILE).read_text()
    own.write_text(text)
    command = f"run {own} --data {data} --trials 10 --chunk 4 --out {tmp_path}/run"
    assert cli.main(command.split()) == 0
    assert_same_bits(Store.open(tmp_path / "run"), finished[10])
    renamed = text.replace("moves", "changes").replace('"""Walks: sums of normal steps."""', "")
    own.write_text(renamed + "\n# a comment\n")
    assert_same_bits(resume(tmp_path / "run", 12), finished[12])
    own.write_text(text.replace("normal(key", "laplace(key"))
    with pytest.raises(ValueError, match="the code of from-0/outcome") as caught:
        resume(tmp_path / "run", 23)
    assert f"see nrjax fingerprint {tmp_path}/run)" in str(caught.value)
    assert "the data of" not in str(caught.value)
    own.unlink()
    with pytest.raises(FileNotFoundError, match=r"own\.py"):
        resume(tmp_path / "run", 23)


@pytest.mark.parametrize("trials", [None, 12])  # None: only the summary and figures
def test_a_run_in_progress_is_left_alone(copied, trials):
    with Store.open(copied).writer(), pytest.raises(StoreBusyError, match="another run"):
        resume(copied, trials)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=30)


def test_a_full_disk_is_explained_and_the_run_can_be_resumed(small_disk, data, tmp_path):
    whole = run(tmp_path / "whole", data, wide=10)
    out, ballast = small_disk / "run", small_disk / "ballast"
    ballast.write_bytes(b"")

    def fills(chunks):
        return Then(chunks, lambda: _fill(ballast))

    with pytest.raises(OSError, match=r"No space left on device; then `nrjax resume") as caught:
        run(out, data, wide=10, progress=fills(2))
    assert caught.value.errno == errno.ENOSPC
    # Then at every later moment: in the chunks, in the summary, in the figures.
    failures = []
    for chunks in range(1, 5):
        ballast.write_bytes(b"")
        try:
            resume(out, None, fills(chunks))
        except OSError as error:
            failures.append(error)
    assert len(failures) >= 2
    assert all(error.errno == errno.ENOSPC for error in failures)
    assert all("resumes the run" in str(error) for error in failures)
    ballast.unlink()
    assert_same_bits(resume(out), whole)
    assert (out / "figures" / "sums.png").exists()


def _fill(path):
    """Take all free space."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


@posix
def test_killed_runs_are_resumed(data, tmp_path, finished):
    """Processes are killed at planted and at random moments, until one finishes."""
    # Processes share a compilation cache, as those of the command do.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.study.killed_runs", str(tmp_path), str(data), "2"],
        cwd=Path(__file__).parents[2],
        env=os.environ | cache,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts.pop("at work") >= 1
    runs = facts.pop("runs")
    assert {code for codes in runs for code in codes} == {0, -signal.SIGKILL}, done.stderr
    assert {codes[-1] for codes in runs} == {0}
    # Planted fault: a chunk that is written in place, without a rename, is noticed.
    assert facts.pop("in its place") == [-signal.SIGKILL, 1]
    assert set(map(tuple, facts.values())) == {(-signal.SIGKILL, 0)}, done.stderr
    for name in (*facts, *(f"run-{number}" for number, _ in enumerate(runs))):
        assert_same_bits(Store.open(tmp_path / name), finished[23])


@posix
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_the_command(tmp_path):
    """Real processes of `nrjax run` and `nrjax resume`, killed while they run a real study."""
    counts = tmp_path / "counts.csv"
    counts.write_text("item,count\n" + "".join(f"{n},{400 - 50 * n}\n" for n in range(6)))
    options = f"--data {counts} --mechanism skellam brownian --trials 1500 --chunk 64 --levels 60"
    first = ["run", "skellam_counts", *options.split(), "--curve-levels", "10", "--out"]
    whole = tmp_path / "whole"
    assert _killed([*first, str(whole)], whole, 10**9, 0.0) == 0
    wanted = Store.open(whole)
    rng, kills, at_work, runs = np.random.default_rng(0), 0, 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run-{runs}"
        runs += 1
        while kills < KILLS:
            again = (folder / "results").exists()
            before = len(_chunks(folder))
            command = ["resume", str(folder)] if again else [*first, str(folder)]
            more = int(rng.integers(0, 40))
            code = _killed(command, folder, before + more, rng.uniform(0, 0.2))
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            at_work += len(_chunks(folder)) > before
        assert _killed(["resume", str(folder)], folder, 10**9, 0.0) == 0
        assert_same_bits(Store.open(folder), wanted)
    assert at_work >= KILLS // 2


def _chunks(folder):
    return list(folder.glob("results/*/*/*.npz"))


def _killed(arguments, folder, chunks, seconds):
    """Return the exit code of a command that is killed after some chunks and seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nrjax", *arguments], stdout=subprocess.DEVNULL
    )
    try:
        while process.poll() is None and len(_chunks(folder)) < chunks:
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        process.kill()
    return process.wait()
