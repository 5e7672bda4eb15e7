"""Trials are cut into launches and files by batches, seconds and bytes, without effect on bits."""

import contextlib
import heapq
import itertools
import threading
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.simulation.program import Program
from nrjax.study import local
from nrjax.study.dask_queue import Waiting, file_seconds
from nrjax.study.schema import Pass, Variable
from tests.study import cheap
from tests.study.interrupted import Killed, Then, assert_same_bits


class Timed:
    """A program with its own clock, by which each batch takes the given seconds, one by one."""

    def __init__(self, batch, most, seconds):
        self.batch, self.launch_size, self.seconds = batch, most, seconds
        self.now, self.busy, self.launches = 0.0, 0.0, []

    def perf_counter(self):
        return self.now

    def launch(self, key, trials, first):
        assert 0 < trials <= self.launch_size
        self.busy = max(self.busy, self.now) + -(-trials // self.batch) * self.seconds
        self.launches.append(trials)
        return self.busy, np.arange(first, first + trials, dtype=np.int32)

    def collect(self, launch):
        self.now = max(self.now, launch[0])
        return {"x": launch[1]}


def files(monkeypatch, program, spans, chunk=None, width=5, progress=None):
    monkeypatch.setattr(local, "time", program)
    layout = Pass(spans[-1].stop, chunk, {"x": Variable("int32", (("wide", width),))})
    return [
        (span, arrays["x"], seconds)
        for span, arrays, seconds in local._files(program, None, layout, spans, progress)
    ]


RUNS = [  # batch, largest launch, seconds of a batch, trials; launches, files
    ("three thousand counts", 256, 2**18, 9.0, 1000, 4, 4),
    ("ridge regression", 32, 2**20, 1.0, 1000, 32, 8),
    ("scalars", 4096, 2**20, 0.004, 4_000_000, 8, 2),
    ("an accelerator", 4096, 2**20, 1e-5, 10_000_000, 14, 5),
    ("few scalars", 4096, 2**20, 0.004, 1000, 1, 1),
]


@pytest.mark.parametrize(
    ("batch", "most", "seconds", "trials", "launches", "number"),
    [pytest.param(*row, id=name) for name, *row in RUNS],
)
def test_a_kill_costs_seconds_and_launches_are_large(
    monkeypatch, batch, most, seconds, trials, launches, number
):
    program = Timed(batch, most, seconds)
    found = files(monkeypatch, program, [range(trials)])
    assert [span.start for span, *_ in found] == [0, *(span.stop for span, *_ in found[:-1])]
    np.testing.assert_array_equal(np.concatenate([x for _, x, _ in found]), np.arange(trials))
    assert len(program.launches) == launches
    assert len(found) == number
    # No launch is shorter than a batch, but for the last; none is much longer than a second, so
    # that a kill costs that and the seconds of a file.
    assert all(size % batch == 0 for size in program.launches[:-1])
    longest = max(local.LAUNCH_SECONDS, seconds)
    assert max(spent for *_, spent in found) <= local.FILE_SECONDS + longest
    assert sum(spent for *_, spent in found) == pytest.approx(program.now)


def test_a_file_holds_what_is_asked_for(monkeypatch):
    """The user may choose the trials of a file. Launches stay short, so progress moves."""
    told = []
    progress = SimpleNamespace(advance=lambda trials, seconds: told.append(trials))
    program = Timed(10, 50, 1.0)
    spans = Pass(250, 100, {}).pieces(range(30, 250))
    found = files(monkeypatch, program, spans, chunk=100, progress=progress)
    assert [span for span, *_ in found] == [range(30, 100), range(100, 200), range(200, 250)]
    assert told == program.launches == [10] * 22


def test_the_next_launch_follows_the_pace_of_the_last():
    pace = local.Pace(100, 100_000, 1.0)
    sizes = []
    for each in (1e-9, 1e-9, 1e-4, 1e-4, 3e-4, 1.0, 1e-9):
        pace.took(pace.size, each * pace.size)
        sizes.append(pace.size)
    assert sizes == [800, 6400, 10_000, 10_000, 3300, 100, 800]
    assert local.Pace(4096, 1000, 1.0).size == 1000


def test_a_study_of_scalars_is_a_few_launches_and_a_file(tmp_path, monkeypatch):
    paid, launches = np.random.default_rng(0).exponential(size=20_000), []
    launch = cheap._Known.launch

    def counted(self, key, trials, first):
        launches.append(trials)
        return launch(self, key, trials, first)

    monkeypatch.setattr(cheap._Known, "launch", counted)
    told = []
    names = ("begin", "compiled", "advance")
    progress = SimpleNamespace(**{n: lambda *_, n=n: told.append(n) for n in names})
    results = cheap.Known({"one": paid}).run(tmp_path / "run", trials=20_000, progress=progress)
    np.testing.assert_array_equal(results.values("one"), paid.astype(results.values("one").dtype))
    assert len(launches) <= 4
    assert told == ["begin", "compiled", *["advance"] * len(launches)]
    assert len(results.store.done("one", "outcome")) == 1


def test_no_bit_depends_on_launches_and_files(tmp_path, monkeypatch):
    """A run with launches of odd sizes is killed, resumed with other sizes, and extended."""
    cases = {"near": cheap.interaction(), "low": cheap.Walk(np.float32(0))}
    study, more = cheap.study(cases), {"progress": False}
    whole = study.run(tmp_path / "whole", trials=97, **more)
    sizes = itertools.cycle((5, 1, 11, 3))

    def took(self, trials, seconds):
        self.size = next(sizes)

    monkeypatch.setattr(Program, "batch", 3)
    monkeypatch.setattr(local.Pace, "took", took)
    monkeypatch.setattr(local, "FILE_SECONDS", 0.0)
    out = tmp_path / "run"
    for launches in (2, 15):
        with pytest.raises(Killed):
            study.run(out, trials=50, **more | {"progress": Then(launches)})
    assert 0 < len(study.run(out, trials=50, **more).store.done("near", "outcome")) < 50
    monkeypatch.setattr(local, "FILE_SECONDS", 1e9)
    assert_same_bits(study.run(out, trials=97, **more).store, whole.store)


def test_a_file_is_written_while_the_next_trials_run():
    """An error of the last file is raised, too."""
    resumed, written = threading.Event(), []

    def write(case, name, span, arrays, *seconds):
        assert resumed.wait(20)
        resumed.clear()
        written.append((span, *arrays))
        if len(written) == 3:
            raise OSError("the disk is full")

    def compute(*_):
        for first in range(3):
            yield local.Task("a", "outcome", first, 1), {"x": 0, "other": 0}, 1.0, 0.0
            resumed.set()  # while the file is written

    layout = Pass(3, None, {"x": Variable("int8")})
    writer = contextlib.nullcontext(SimpleNamespace(write=write))
    store = SimpleNamespace(writer=lambda: writer, pass_of=lambda *_: layout)
    with pytest.raises(OSError, match="the disk is full"):
        local.fill(store, None, {}, None, compute)
    assert written == [(range(first, first + 1), "x") for first in range(3)]


@pytest.mark.parametrize(
    ("batch", "seconds", "chunk", "trials"),
    [
        pytest.param(256, 9.0, None, 256, id="one batch is enough"),
        pytest.param(32, 1.0, None, 128, id="batches of a second"),
        pytest.param(4096, 0.004, None, None, id="scalars"),
        pytest.param(32, 1.0, 10**7, 1000, id="a given chunk is run as a whole"),
    ],
)
def test_a_worker_runs_trials_for_the_seconds_of_a_file(monkeypatch, batch, seconds, chunk, trials):
    program = Timed(batch, 2**20, seconds)
    monkeypatch.setattr(local, "time", program)
    layout = Pass(10**7, chunk, {"x": Variable("int32")})
    pace = local.Pace(batch, 2**20, local.LAUNCH_SECONDS)
    span = range(10**6, 10**6 + 1000 if chunk else 10**7)
    for _ in range(3):  # from the second file on, the speed is known
        begun = program.now
        done, arrays, spent = local.first_file(program, None, layout, span, pace, 4.0)
    np.testing.assert_array_equal(arrays["x"], np.arange(10**6, 10**6 + done))
    assert trials in (None, done)
    assert spent == pytest.approx(program.now - begun)
    assert chunk or spent <= max(seconds, 4.0 + 2 * local.LAUNCH_SECONDS)


def waiting_of(shapes, batch=10):
    """Return the queue of passes by name, each of a chunk and its pending spans."""
    passes = {name: Pass(10**9, chunk, {"x": Variable("int8")}) for name, (chunk, _) in shapes}
    store = SimpleNamespace(pass_of=lambda case, name: passes[case])
    spec = SimpleNamespace(program=lambda: SimpleNamespace(batch=batch))
    pending = {(name, "outcome"): spans for name, (_, spans) in shapes}
    return Waiting(store, {name: {"outcome": spec} for name, _ in shapes}, pending)


def test_workers_get_spans_of_which_they_run_what_they_can():
    """Each trial is in one file, and a chunk that the user chose stays one."""
    shapes = [("a", (None, [range(5, 1000)])), ("b", (40, [range(40), range(40, 70)]))]
    waiting = waiting_of(shapes)
    done, sizes = {"a": [], "b": []}, []
    while waiting:
        task = waiting.pop(4)
        trials = task.trials if task.case == "b" else min(task.trials, 80)
        kept = waiting.took(task, trials, 0.05 * trials)
        assert (kept.first, kept.trials) == (task.first, trials)
        done[task.case] += range(kept.first, kept.first + trials)
        sizes.append(trials)
    assert {name: sorted(found) for name, found in done.items()} == {
        "a": list(range(5, 1000)),
        "b": list(range(70)),
    }
    assert max(sizes) == 80
    assert sizes[-2:] == [40, 30]


@pytest.mark.parametrize("workers", [1, 2, 16, 256])
def test_workers_of_any_speed_finish_together(workers):
    """One is four times as slow. Two tasks a worker wait at most, and files are few and long."""
    waiting, trials = waiting_of([("a", (None, [range(10**9)]))]), 10**9
    speed = [trials / workers / 1000 / (4 if number == 0 else 1) for number in range(workers)]
    seconds, running, files, ends = file_seconds(workers), [], 0, [0.0] * workers
    held = [deque() for _ in range(workers)]

    def start(number, now):
        while waiting and len(held[number]) < 2:
            held[number].append(waiting.pop(workers))
        if held[number]:
            task = held[number].popleft()
            count = min(task.trials, int(seconds * speed[number]))
            heapq.heappush(running, (now + count / speed[number], number, task, count))

    for number in range(workers):
        start(number, 0.0)
    while running:
        ends[number], number, task, count = now, *_ = heapq.heappop(running)
        waiting.took(task, count, count / speed[number])
        files += 1
        start(number, now)
    best = trials / sum(speed)
    assert max(ends) < 1.05 * best + seconds
    assert files < best / 0.125 + 12 * workers


class Stopped:
    """A terminal that fails, or a user who presses Ctrl-C, before the first trial."""

    def __init__(self, trouble):
        self.trouble = trouble

    def begin(self, *_):
        raise self.trouble

    def advance(self, *_):
        pass


def test_an_overwrite_that_does_not_start_leaves_the_earlier_run(tmp_path):
    study = cheap.study({"low": cheap.Walk(np.float32(0))})
    earlier = study.run(tmp_path, trials=20, progress=False)
    files_of = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for trouble in (
        KeyboardInterrupt(),
        UnicodeEncodeError("latin-1", "x", 0, 1, "no"),
        OSError(5),
    ):
        again = {"trials": 20, "seed": 1, "overwrite": True}
        with pytest.raises(type(trouble)) as stopped:
            study.run(tmp_path, progress=Stopped(trouble), **again)
        kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert {path: kept.get(path) for path in files_of} == files_of
        if isinstance(trouble, KeyboardInterrupt):
            assert "the earlier run in" in str(stopped.value)
    assert study.run(tmp_path, progress=False)["low"].identical(earlier["low"])
    new = study.run(tmp_path, progress=False, **again)
    assert not new["low"].identical(earlier["low"])
