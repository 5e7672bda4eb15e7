"""A run that was stopped is taken up again; trials are added; what does not fit is refused."""

import contextlib
import errno
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

pytest.importorskip("xarray")

from nrjax import cli
from nrjax.studies import identity, runner, skellam_counts, whitehouse2022
from nrjax.studies import store as store_module
from nrjax.studies.settings import begun
from nrjax.studies.store import Store, StoreBusyError, UnfinishedError
from tests.studies import toy
from tests.studies.interrupted import DiesAfter, Killed

CHUNK = 4
KILLS = 100


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """`resume` finds the study that compiles in no time."""
    monkeypatch.setattr(runner, "find", runner.find)
    toy.use(runner)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "scales.txt"
    np.savetxt(path, [1.0, 2.0, 0.5])
    return path


def settings(out, data, trials=10, **more):
    return toy.Settings(**{"out": out, "trials": trials, "chunk": CHUNK, "data": data} | more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """Runs that were not interrupted, by their number of trials."""
    home = tmp_path_factory.mktemp("whole")
    return {
        trials: runner.run(toy, settings(home / str(trials), data, trials))
        for trials in (10, 12, 23)
    }


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run of ten trials."""
    shutil.copytree(finished[10].folder, tmp_path / "copy")
    return tmp_path / "copy"


def assert_same(store, other):
    assert store.cases == other.cases
    for name, case in store.cases.items():
        for one in case.passes:
            left, right = store.read(name, one), other.read(name, one)
            assert set(left.variables) == set(right.variables)
            for variable in left.variables:
                assert left[variable].values.tobytes() == right[variable].values.tobytes()


def edit(folder, change):
    """Change the attributes of the store's root."""
    root = folder / "results" / "manifest.json"
    layout = json.loads(root.read_text())["layout"]
    change(layout)
    store_module._write_manifest(root.parent, layout)


@pytest.mark.parametrize("chunks", [1, 3, 5])
def test_a_stopped_run_gives_the_same_arrays(finished, data, tmp_path, chunks):
    with pytest.raises(Killed):
        runner.run(toy, settings(tmp_path / "run", data), DiesAfter(chunks))
    with pytest.raises(UnfinishedError, match="nrjax resume"):
        runner.finished(tmp_path / "run")
    with pytest.raises(FileExistsError, match=r"unfinished\): take them up again with `nrjax res"):
        runner.run(toy, settings(tmp_path / "run", data))
    store = runner.resume(tmp_path / "run")
    assert_same(store, finished[10])
    assert (store.folder / "summary.json").exists()
    assert (store.folder / "figures" / "sums.png").exists()
    assert runner.finished(tmp_path / "run")[0] is toy


def test_a_finished_run_is_concluded_again_without_its_data(copied, finished, monkeypatch):
    (copied / "summary.json").unlink()
    for left in (".summary.json.1.tmp", "figures/.sums.png.1.tmp"):  # by a killed process
        (copied / left).touch()
    monkeypatch.setattr(toy, "setups", None)
    edit(copied, lambda layout: layout["settings"].update(jaxlib="0.0"))  # nothing is run
    store = runner.resume(copied)
    assert (copied / "summary.json").exists()
    assert not list(copied.rglob("*.tmp"))
    assert_same(store, finished[10])
    assert_same(runner.resume(copied, 10), finished[10])


@pytest.mark.parametrize("trials", [12, 23])
def test_trials_can_be_added(copied, finished, trials):
    files = {
        path: path.stat().st_ino
        for path in copied.glob("results/*/outcome/*.npz")
        if "10." not in path.name
    }
    assert len(files) == 2 * 2
    store = runner.resume(copied, trials)
    assert_same(store, finished[trials])
    assert_same(Store.open(copied), finished[trials])
    # What was full is not written again.
    assert {path: path.stat().st_ino for path in files} == files
    assert store.settings["settings"]["trials"] == trials
    assert store.settings["fingerprints"] == finished[trials].settings["fingerprints"]
    assert (
        json.loads((copied / "summary.json").read_text())["cases"]
        == json.loads((finished[trials].folder / "summary.json").read_text())["cases"]
    )


def test_fewer_trials_are_refused(copied):
    with pytest.raises(ValueError, match="trials = 9: must be at least 10, which there are"):
        runner.resume(copied, 9)
    with pytest.raises(ValueError, match="trials = 9: must be at least the 10 that from-0 has"):
        Store.open(copied).extend(9)


def test_trials_added_to_a_run_that_was_stopped(finished, data, tmp_path):
    with pytest.raises(Killed):
        runner.run(toy, settings(tmp_path / "run", data), DiesAfter(2))
    with pytest.raises(Killed):
        runner.resume(tmp_path / "run", 23, DiesAfter(3))
    with pytest.raises(Killed):
        runner.resume(tmp_path / "run", None, DiesAfter(3))
    assert_same(runner.resume(tmp_path / "run"), finished[23])


def _dying(monkeypatch, number):
    """Let the process die at the `number`-th rename from now on; tells whether it came to that."""
    count = itertools.count()
    replace = Path.replace
    came = []

    def dies(self, target):
        if next(count) == number:
            came.append(self)
            raise Killed
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    return came


@pytest.mark.parametrize("back_to_trials", [None, 12, 23])
def test_kills_between_all_renames_of_extending(copied, finished, monkeypatch, back_to_trials):
    """Whatever is left is the store of before, and can be taken up and extended again."""
    for number in itertools.count():
        folder = copied.with_name(f"{back_to_trials}-{number}")
        shutil.copytree(copied, folder)
        with monkeypatch.context() as patch:
            came = _dying(patch, number)
            with contextlib.suppress(Killed):
                Store.open(folder).extend(23)
        if not came:
            assert Store.open(folder).cases == finished[23].cases
            break
        assert_same(Store.open(folder), finished[10])
        if back_to_trials is None:
            continue
        assert_same(runner.resume(folder, back_to_trials), finished[back_to_trials])
    assert number == 1  # the manifest


@pytest.mark.parametrize(
    ("fact", "value", "message"),
    [
        ("jaxlib", "0.0.1", r"jaxlib is '.*' here and was '0.0.1' \(pip install"),
        ("nrjax", "0.0.1", r"nrjax is '.*' here and was '0.0.1'"),
        ("cpu", "abacus", r"cpu is '.*' here and was 'abacus'"),
        ("cpu_features", "", r"cpu_features is '.*' here and was ''"),
        ("device", "gpu", r"device is 'cpu' here and was 'gpu' \(set JAX_PLATFORMS=gpu\)"),
        ("precision", "float16", r"precision is 'float.*' here and was 'float16' \(unset JAX_EN"),
        ("seed", 7, r"seed is 0 here and was 7"),  # or the one among its settings was changed
        ("fingerprints", {}, r"the data of from-0, or what is computed from them, are not those"),
    ],
)
def test_other_circumstances_are_refused_by_name(copied, fact, value, message):
    here = identity.facts("toy", settings(Path("x"), "y"))
    if fact == "cpu_features" and not here["cpu_features"]:
        pytest.skip("the processor's instructions are not known here")
    edit(copied, lambda layout: layout["settings"].update({fact: value}))
    before = (copied / "results" / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        runner.resume(copied, 12)
    assert "cannot be taken up here" in str(caught.value)
    assert (copied / "results" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1.0, 2.0, 0.25], r"total of from-0 is 3.25 here and was 3.5"),
        ([2.0, 1.0, 0.5], "the data of from-0, or what is computed from them"),
        ([1.0, 2.5], "laid out in another way"),
    ],
)
def test_other_data_are_refused(data, tmp_path, numbers, message):
    own = tmp_path / "own.txt"
    shutil.copy(data, own)
    runner.run(toy, settings(tmp_path / "run", own))
    np.savetxt(own, numbers)
    with pytest.raises(ValueError, match=message):
        runner.resume(tmp_path / "run", 12)
    own.unlink()
    with pytest.raises(FileNotFoundError, match=r"own\.txt"):
        runner.resume(tmp_path / "run", 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields.pop("wide"), "stored settings lack 'wide'"),
        (lambda fields: fields.update(deep=1), "stored settings hold 'deep'"),
        (lambda fields: fields.update(wide="1"), "wide = '1': must be of type int"),
        (lambda fields: fields.update(start=1.0), "start = 1.0: must be a list"),
        (lambda fields: fields.update(keep="all"), "keep = 'all': must be one of"),
    ],
)
def test_settings_that_cannot_be_read_back_are_refused(copied, change, message):
    edit(copied, lambda layout: change(layout["settings"]["settings"]))
    with pytest.raises(ValueError, match=message):
        runner.resume(copied)


@pytest.mark.parametrize("command", ["resume", "plot", "summary"])
def test_a_chunk_that_is_cut_short_is_named(copied, finished, command, capsys):
    path = copied / "results" / "from-0" / "outcome" / "0000000004-0000000008.npz"
    path.write_bytes(path.read_bytes()[:20])
    own = (copied / name for name in ("summary.json", "figures/sums.png"))
    before = {one: one.read_bytes() for one in own}
    assert cli.main([command, str(copied)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"nrjax: error: {path} is broken")
    assert said.count("\n") == 1
    assert {one: one.read_bytes() for one in before} == before
    path.unlink()  # as it says
    assert_same(runner.resume(copied), finished[10])


def test_data_are_found_from_another_folder(data, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(data.parent)
    for name in ("run", "old"):
        with pytest.raises(Killed):
            runner.run(toy, settings(tmp_path / name, Path(data.name)), DiesAfter(1))
    # Stores once had it as it was given.
    edit(
        tmp_path / "old", lambda layout: layout["settings"]["settings"].update(data=str(data.name))
    )
    monkeypatch.chdir(tmp_path)
    assert_same(runner.resume(tmp_path / "run"), finished[10])
    with pytest.raises(FileNotFoundError, match=data.name):
        runner.resume(tmp_path / "old")
    monkeypatch.chdir(data.parent)
    assert_same(runner.resume(tmp_path / "old"), finished[10])


def test_files_of_studies_are_named_by_whole_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = whitehouse2022.Settings(
        out=Path("run"), data=("own.csv", "paper"), data_dir=Path("data")
    )
    found = begun(chosen)
    assert found.data == (str(tmp_path / "own.csv"), "paper")
    assert found.data_dir == tmp_path / "data"
    assert begun(skellam_counts.Settings(out=Path("run"), data="a.CSV")).data.startswith("/")
    assert begun(skellam_counts.Settings(out=Path("run"))).data == "flights"


def test_stores_from_before_bins_had_a_width_are_read(copied, finished):
    edit(copied, lambda layout: layout["settings"]["settings"].pop("bin_width"))
    assert_same(runner.resume(copied, 12), finished[12])


def test_nothing_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="begin it again with `nrjax run`"):
        runner.resume(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / ".results.new").mkdir()
    with pytest.raises(FileNotFoundError, match="stopped before it was laid out leaves none"):
        runner.resume(tmp_path)


@pytest.mark.parametrize("trials", [None, 12])  # None: only the summary and figures would be made
def test_a_run_at_work_is_left_alone(copied, trials):
    with Store.open(copied).writer(), pytest.raises(StoreBusyError, match="another run"):
        runner.resume(copied, trials)


def test_two_processes_at_once_share_the_chunks(finished, data, tmp_path):
    """Without a cluster: what one rank leaves pending the other one does, in any order."""
    from nrjax.keys import study_key
    from nrjax.studies.common import fill
    from nrjax.studies.group import Group

    with pytest.raises(Killed):
        runner.run(toy, settings(tmp_path / "run", data), DiesAfter(1))
    store, chosen = Store.open(tmp_path / "run"), settings(tmp_path / "run", data)
    programs = toy.programs(toy.setups(chosen))
    for rank in (1, 0):
        fill(store, study_key(0), programs, None, Group(rank, 2))
    assert_same(store, finished[10])


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of two megabytes."""
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
        runner.run(toy, settings(out, data, 1000, wide=500, chunk=100))
    assert caught.value.errno == errno.ENOSPC
    assert not out.exists()


def test_a_disk_that_fills_ends_clearly_and_the_run_can_be_resumed(small_disk, data, tmp_path):
    whole = runner.run(toy, settings(tmp_path / "whole", data, wide=10))
    out, ballast = small_disk / "run", small_disk / "ballast"
    ballast.write_bytes(b"")

    class Fills(DiesAfter):
        def advance(self, trials, seconds):
            self.left -= 1
            if self.left == 0:
                _fill(ballast)

    failures = 0
    chosen = settings(out, data, wide=10)
    with pytest.raises(OSError, match=r"No space left on device; then `nrjax resume") as caught:
        runner.run(toy, chosen, Fills(2))
    assert caught.value.errno == errno.ENOSPC
    # At every later moment too: in the chunks, in the summary, in the figures.
    for chunks in range(1, 5):
        ballast.write_bytes(b"")
        message = _failure(out, Fills(chunks))
        if message is not None:
            assert "goes on from there" in message
            failures += 1
    assert failures >= 2
    _fill(ballast)
    assert "cannot" in (_failure(out, None) or "")
    ballast.unlink()
    assert_same(runner.resume(out), whole)
    assert (out / "figures" / "sums.png").exists()


def _failure(folder, progress):
    """What a run that is taken up says of a full disk; None if it finishes."""
    try:
        runner.resume(folder, None, progress)
    except OSError as error:
        return str(error) if error.errno == errno.ENOSPC else f"not of a full disk: {error}"
    return None


def _fill(path):
    """Take all the room that is left."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


@pytest.mark.parametrize(
    ("kills", "at_work"), [(5, 3), pytest.param(95, 50, marks=pytest.mark.long)]
)
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_killed_runs_are_resumed(data, tmp_path, finished, kills, at_work):
    """Processes killed while they simulate: so many times, then one finishes."""
    facts = _kill(tmp_path, data, kills)
    assert facts["killed at work"] >= at_work
    for number in range(facts["runs"]):
        assert_same(Store.open(tmp_path / f"run-{number}"), finished[23])


def _kill(home, data, kills):
    program = [sys.executable, "-m", "tests.studies.killed_runs"]
    # Lives share what they compile, as those of the command do.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(home / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [*program, str(home), str(data), str(kills)],
        cwd=Path(__file__).parents[2],
        env=os.environ | cache,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_hundred_kills_of_the_command(tmp_path):
    """Real processes of `nrjax run` and `nrjax resume`, killed while they run a real study."""
    counts = tmp_path / "counts.csv"
    counts.write_text("item,count\n" + "".join(f"{n},{400 - 50 * n}\n" for n in range(6)))
    chosen = f"--data {counts} --mechanism skellam brownian --trials 1500 --chunk 64 --levels 60"
    begin = ["run", "skellam_counts", *chosen.split(), "--curve-levels", "10", "--out"]
    whole = tmp_path / "whole"
    assert _killed([*begin, str(whole)], whole, 10**9, 0.0) == 0
    wanted = Store.open(whole)
    rng, kills, at_work, runs = np.random.default_rng(0), 0, 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run-{runs}"
        runs += 1
        while kills < KILLS:
            again = (folder / "results").exists()
            before = len(_flags(folder))
            command = ["resume", str(folder)] if again else [*begin, str(folder)]
            more = int(rng.integers(0, 40))
            code = _killed(command, folder, before + more, rng.uniform(0, 0.2))
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            at_work += len(_flags(folder)) > before
        assert _killed(["resume", str(folder)], folder, 10**9, 0.0) == 0
        assert_same(Store.open(folder), wanted)
    print(f"{kills} kills, {at_work} of them after more chunks were done, in {runs} runs")
    assert at_work >= KILLS // 2


def _flags(folder):
    return list(folder.glob("results/*/*/*.npz"))


def _killed(arguments, folder, chunks, seconds):
    """Exit code of a command that is killed so long after so many chunks are done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nrjax", *arguments], stdout=subprocess.DEVNULL
    )
    try:
        while process.poll() is None and len(_flags(folder)) < chunks:
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        process.kill()
    return process.wait()
