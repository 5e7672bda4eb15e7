"""A run from the shell that was stopped is taken up again; what does not fit is refused."""

import errno
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

pytest.importorskip("xarray")

from nrjax import cli
from nrjax.study import sources
from nrjax.study.folder import StoreBusyError
from nrjax.study.settings import RunSettings
from nrjax.study.store import Store, manifest_of
from nrjax.study.study import begin, take_up
from tests.study.test_conformance import Killed, Then, assert_same_bits

CHUNK = 4
KILLS = 100
FILE = str(Path(__file__).with_name("walks.py"))
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "scales.csv"
    np.savetxt(path, [1.0, 2.0, 0.5])
    return path


def run(out, data, trials=10, progress=None, chunk=CHUNK, **own):
    source = sources.find(FILE)
    settings = RunSettings(out=out, trials=trials, chunk=chunk)
    study = source.study(source.settings(data=data, **own), settings)
    return begin(study, settings, progress).store


def resume(folder, trials=None, progress=None):
    store = Store.open(folder)
    source = sources.of_store(store)
    made, reporting = lambda: source.stored(store), sources.reporting_of(store)
    return take_up(store, made, reporting, progress, trials=trials).store


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """Runs that were not interrupted, by their number of trials."""
    home = tmp_path_factory.mktemp("whole")
    return {trials: run(home / str(trials), data, trials) for trials in (10, 12, 23)}


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run of ten trials."""
    shutil.copytree(finished[10].folder, tmp_path / "copy")
    return tmp_path / "copy"


def edit(folder, change):
    """Change what the manifest says."""
    path = folder / "results" / "manifest.json"
    layout = json.loads(path.read_text())["layout"]
    change(layout)
    path.write_bytes(manifest_of(layout))


def test_a_finished_run_is_concluded_again_without_its_data(copied, finished, monkeypatch):
    (copied / "summary.json").unlink()
    for left in (".summary.json.1.tmp", "figures/.sums.png.1.tmp"):  # by a killed process
        (copied / left).touch()
    edit(copied, lambda layout: layout["settings"].update(jaxlib="0.0"))  # nothing is run
    monkeypatch.setattr(np, "loadtxt", None)
    store = resume(copied)
    assert (copied / "summary.json").exists()
    assert not list(copied.rglob("*.tmp"))
    assert_same_bits(store, finished[10])
    figure = copied / "figures" / "sums.png"
    drawn = figure.read_bytes()
    figure.unlink()
    assert cli.main(["plot", str(copied)]) == 0
    assert figure.read_bytes() == drawn


def test_more_trials_are_one_rename(copied, finished, monkeypatch):
    """Killed before it, the store is that of before, and can be extended again."""
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


NOT_HERE = [  # what the manifest says of circumstances; None: nothing
    ("nrjax", "0.0", r"nrjax is '.*' here and was '0\.0' \(install nrjax 0\.0 from its"),
    ("jaxlib", "0.0", r"jaxlib is '.*' here and was '0\.0'"),
    ("cpu", "another", r"cpu is '.*' here and was 'another' \(a processor of that kind\)"),
    ("device", "gpu", r"device is 'cpu' here and was 'gpu' \(set JAX_PLATFORMS=gpu\)"),
    ("precision", "float16", r"precision is 'float.*' here and was 'float16' \(unset JAX_ENA"),
    ("stream", None, r"stream is 3 here and was 1 \(an nrjax whose seeds give those bits\)"),
    ("seed", 7, r"seed is 0 here and was 7"),  # or the one among its settings was changed
    ("fingerprints", {}, r"what is computed of from-0, or the data it is computed from, are not"),
]
NOT_READ = [  # the same of settings
    ("trials", None, "the stored settings lack 'trials', and this version"),
    ("wide", None, "the stored settings lack 'wide', and this version"),
    ("trials", "many", "trials must be of type int"),
    ("keep", "nothing", "keep must be one of"),
    ("wide", 2, "wide is 2 here and was|total of from-0|laid out in another"),
]


@pytest.mark.parametrize(
    ("own", "name", "value", "message"),
    [(own, *row) for own, rows in ((False, NOT_HERE), (True, NOT_READ)) for row in rows],
)
def test_other_circumstances_and_settings_are_refused_by_name(copied, own, name, value, message):
    def change(layout):
        said = layout["settings"]["settings"] if own else layout["settings"]
        said.pop(name) if value is None else said.update({name: value})

    edit(copied, change)
    before = (copied / "results" / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        resume(copied, 12)
    assert own or "cannot be taken up here" in str(caught.value)
    assert (copied / "results" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1.0, 2.0, 0.25], "total of from-0 is 3.25 here and was 3.5"),
        ([2.0, 1.0, 0.5], "what is computed of from-0, or the data it is computed from"),
        ([1.0, 2.5], "what is kept of from-0 is laid out in another way here"),
    ],
)
def test_other_data_are_refused(data, tmp_path, numbers, message):
    own = tmp_path / "own.csv"
    shutil.copy(data, own)
    run(tmp_path / "run", own)
    np.savetxt(own, numbers)
    with pytest.raises(ValueError, match=message):
        resume(tmp_path / "run", 12)


def test_a_file_is_known_by_what_it_computes(data, finished, tmp_path):
    """Other words are the same study; another program is not, though all numbers are the same."""
    own = tmp_path / "own.py"
    text = Path(FILE).read_text()
    own.write_text(text)
    command = f"run {own} --data {data} --trials 10 --chunk 4 --out {tmp_path}/run"
    assert cli.main(command.split()) == 0
    assert_same_bits(Store.open(tmp_path / "run"), finished[10])
    renamed = text.replace("moves", "changes").replace('"""A case for each beginning."""', "")
    own.write_text(renamed + "\n# more words\n")
    assert_same_bits(resume(tmp_path / "run", 12), finished[12])
    own.write_text(text.replace("normal(key", "laplace(key"))
    with pytest.raises(ValueError, match="what is computed of from-0"):
        resume(tmp_path / "run", 23)
    own.unlink()
    with pytest.raises(FileNotFoundError, match=r"own\.py"):
        resume(tmp_path / "run", 23)


@pytest.mark.parametrize("trials", [None, 12])  # None: only the summary and figures would be made
def test_a_run_at_work_is_left_alone(copied, trials):
    with Store.open(copied).writer(), pytest.raises(StoreBusyError, match="another run"):
        resume(copied, trials)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
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


def test_a_disk_that_is_too_small_is_found_first(small_disk, data):
    out = small_disk / "run"
    with pytest.raises(OSError, match=r"take up to [0-9.]+ MB, and .* are free there") as caught:
        run(out, data, 1000, wide=500, chunk=100)
    assert caught.value.errno == errno.ENOSPC
    assert not [path for path in out.rglob("*") if path.suffix == ".npz"]


def test_a_disk_that_fills_ends_clearly_and_the_run_can_be_resumed(small_disk, data, tmp_path):
    whole = run(tmp_path / "whole", data, wide=10)
    out, ballast = small_disk / "run", small_disk / "ballast"
    ballast.write_bytes(b"")

    def fills(chunks):
        return Then(chunks, lambda: _fill(ballast))

    with pytest.raises(OSError, match=r"No space left on device; then `nrjax resume") as caught:
        run(out, data, wide=10, progress=fills(2))
    assert caught.value.errno == errno.ENOSPC
    # At every later moment too: in the chunks, in the summary, in the figures.
    failures = []
    for chunks in range(1, 5):
        ballast.write_bytes(b"")
        try:
            resume(out, None, fills(chunks))
        except OSError as error:
            failures.append(error)
    assert len(failures) >= 2
    assert all(error.errno == errno.ENOSPC for error in failures)
    assert all("goes on from there" in str(error) for error in failures)
    ballast.unlink()
    assert_same_bits(resume(out), whole)
    assert (out / "figures" / "sums.png").exists()


def _fill(path):
    """Take all the room that is left."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


@posix
def test_killed_runs_are_resumed(data, tmp_path, finished):
    """Processes killed at planted moments, and at any while they simulate; then one finishes."""
    # Lives share what they compile, as those of the command do.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.study.killed_runs", str(tmp_path), str(data), "4"],
        cwd=Path(__file__).parents[2],
        env=os.environ | cache,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts.pop("at work") >= 2
    runs = facts.pop("runs")
    assert {code for codes in runs for code in codes} == {0, -signal.SIGKILL}, done.stderr
    assert {codes[-1] for codes in runs} == {0}
    # Planted fault: a chunk that is written in its place is noticed after the same kill.
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
    chosen = f"--data {counts} --mechanism skellam brownian --trials 1500 --chunk 64 --levels 60"
    first = ["run", "skellam_counts", *chosen.split(), "--curve-levels", "10", "--out"]
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
    """Exit code of a command that is killed so long after so many chunks are done."""
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
