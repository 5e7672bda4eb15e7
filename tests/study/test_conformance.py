"""What every study must do: the papers' and one of one's own, by the same tests."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("xarray")

import nrjax
from nrjax.study import drawing
from nrjax.study.folder import DamagedError, UnfinishedError
from tests.study import small
from tests.study.small import CHUNK, NAMES, TRIALS

CHANGES = {
    "example": {"radius": 1.4},
    "whitehouse2022": {"test_epsilon": 0.4},
    "ligett2017": {"gamma": 0.2},
    "skellam_counts": {"delta": 1e-5},
    "rogers2023": {"epsilon": 2.0},
}
"""A setting that was another one before."""


FRACTIONS = (1e-4, 0.05, 0.25, 0.5, 0.75, 0.95, 1)


class Killed(BaseException):
    """As a kill, which no handler hears of."""


class Then:
    """Progress that does something after so many chunks, once; by default it kills."""

    def __init__(self, chunks, act=None):
        self.left, self.act = chunks, act

    def begin(self, case, name, trials, done):
        """Nothing is shown."""

    def advance(self, trials, seconds):
        self.left -= 1
        if self.left == 0:
            if self.act is None:
                raise Killed
            self.act()


@pytest.fixture(autouse=True, scope="module")
def undrawn():
    """Figures take most of the time: the test of these draws them itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nrjax.Results, "draw", lambda self: None)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    small.data(folder)
    return folder


SLOW = ("whitehouse2022", "ligett2017", "skellam_counts")
"""In CI without these, which take fifteen seconds of compilation each: what they run, say and draw
is tested in tests/papers."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in NAMES],
)
def name(request):
    return request.param


PAPERS_LONG = (NAMES[0], *(pytest.param(name, marks=pytest.mark.long) for name in NAMES[1:]))
"""In CI the example alone: others would be compiled anew, or show nothing new."""

papers_long = pytest.mark.parametrize("name", PAPERS_LONG, indirect=True, scope="module")


@pytest.fixture(scope="module")
def study(name, data):
    return small.study(name, data)


def run(study, folder, trials=TRIALS, **more):
    return study.run(folder, trials=trials, **{"chunk": CHUNK, "progress": False} | more)


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory):
    """A run that was not interrupted."""
    return run(study, tmp_path_factory.mktemp("whole") / "run")


def assert_same_bits(one, other):
    assert list(one.cases) == list(other.cases)
    for name, case in one.cases.items():
        for which in case.passes:
            left, right = one.read(name, which), other.read(name, which)
            assert set(left.variables) == set(right.variables)
            for variable in left.variables:
                assert left[variable].values.tobytes() == right[variable].values.tobytes()


def assert_alike(one, two):
    """Distributions of trials that were kept, and folded."""
    assert (one.trials, one.finite) == (two.trials, two.finite)
    assert two.mean == pytest.approx(one.mean, rel=1e-5, abs=1e-6, nan_ok=True)
    assert two.std == pytest.approx(one.std, rel=1e-5, abs=1e-6, nan_ok=True)
    for q in FRACTIONS if one.trials else ():
        right, found = one.quantile(q), two.quantile(q)
        assert found >= right
        assert found == pytest.approx(right, rel=1.001 * two.resolution, abs=1e-6)


def assert_quantities_alike(kept, short):
    """All quantities of one number a trial; gives how many there are with trials."""
    number = 0
    for case in kept:
        assert kept.statuses(case) == short.statuses(case)
        for quantity, one in short.folds(case).items():
            if one.dim is None and one.bins is not None:
                exact = kept.distribution(case, quantity)
                assert_alike(exact, short.distribution(case, quantity))
                number += exact.trials > 0
    return number


def test_killed_and_taken_up_again(study, whole, tmp_path):
    for chunks in (1, 3):
        with pytest.raises(Killed):
            run(study, tmp_path / "run", progress=Then(chunks))
    with pytest.raises(UnfinishedError, match="is not finished: "):
        nrjax.Results.open(tmp_path / "run")
    results = run(study, tmp_path / "run")
    assert_same_bits(results.store, whole.store)
    for file in ("summary.json", "report.md"):
        assert (tmp_path / "run" / file).is_file()


def test_extended(study, whole, tmp_path):
    run(study, tmp_path / "run", 10)
    full = (tmp_path / "run").glob(f"results/*/*/*-{CHUNK:010}.npz")
    files = {path: path.stat().st_ino for path in full}
    assert len(files) == len(list(whole.store.passes()))
    with pytest.raises(Killed):
        run(study, tmp_path / "run", TRIALS, progress=Then(2))
    results = run(study, tmp_path / "run")
    assert_same_bits(results.store, whole.store)
    # What was full is not written again.
    assert {path: path.stat().st_ino for path in files} == files
    assert results.store.settings["fingerprints"] == whole.store.settings["fingerprints"]
    with pytest.raises(ValueError, match=f"trials must be an integer, at least {TRIALS}"):
        run(study, tmp_path / "run", 5)


@pytest.mark.long
def test_both_ways_of_keeping_agree(study, whole, tmp_path):
    """In every quantity, within the resolution that is stated; in CI in test_keep_summary.py."""
    summarised = run(study, tmp_path / "run", keep="summary", chunk=None)
    assert assert_quantities_alike(whole, summarised) >= 5
    assert set(json.loads((tmp_path / "run/summary.json").read_text())) == set(whole.summary())


def test_the_summary_keeps_the_contract(whole):
    summary = json.loads((whole.folder / "summary.json").read_text())
    json.dumps(summary, allow_nan=False)
    facts = ["study", "nrjax", "jax", "device", "precision", "seed", "settings", "cases"]
    assert list(summary)[: len(facts)] == facts
    assert summary["settings"]["trials"] == TRIALS
    percents = {"mean", "q05", "q25", "q50", "q75", "q90", "q95"}
    for name, case in zip(whole, summary["cases"], strict=True):
        assert case["case"] == name
        assert set(case["seconds"]) == {"compile", "run", "curves"}
        statuses = whole.statuses(name)
        if statuses is None:
            assert "stopped" not in case
            continue
        assert sum(case["status"].values()) == case["trials"] == TRIALS
        assert case["stopped"] == case["status"].get("STOPPED", 0) / TRIALS
        assert case["step"]["q50"] >= 0
        if case["epsilon"] is not None:
            assert set(case["epsilon"]) == set(case["stopped_epsilon"]) == percents
            median = whole.distribution(name).quantile(0.5)
            assert case["epsilon"]["q50"] == (median if np.isfinite(median) else None)


def test_another_setting_is_refused_by_name(name, study, whole, data, tmp_path):
    before = {path: path.read_bytes() for path in whole.folder.rglob("*") if path.is_file()}
    other = small.study(name, data, **CHANGES[name])
    with pytest.raises(ValueError, match="cannot be taken up here, where other bits would come"):
        run(other, whole.folder)
    with pytest.raises(ValueError, match="seed must be 0, with which the run"):
        run(study, whole.folder, seed=1)
    with pytest.raises(ValueError, match="study is 'other' here"):
        run(nrjax.Study("other", study.cases), whole.folder)
    assert {path: path.read_bytes() for path in before} == before


@papers_long
def test_a_broken_chunk_is_named(study, whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path / "run")
    path = sorted((tmp_path / "run" / "results").glob("*/*/*.npz"))[1]
    bad = bytearray(path.read_bytes())
    bad[len(bad) // 2] ^= 1
    path.write_bytes(bad)
    with pytest.raises(DamagedError, match=f"{path} is broken.*remove it, and `nrjax resume`"):
        nrjax.Results.open(tmp_path / "run").summary()
    path.unlink()
    assert_same_bits(run(study, tmp_path / "run").store, whole.store)


def test_figures_and_comparisons(whole):
    drawing.save(whole.store, *next(iter(whole.plot().items())))
    assert len(list((whole.folder / "figures").iterdir())) == 2
    kept = [name for name in whole if whole.statuses(name) is not None]
    with_epsilon = [name for name in kept if whole.distribution(name) is not None]
    if len(with_epsilon) > 1:
        found = whole.compare(*with_epsilon[:2])
        assert found.smaller.value + found.larger.value <= 1
        assert found.dominance.verdict in ("smaller", "larger", "crossing", "undecided")
        assert with_epsilon[0] in str(found)
    assert "|" in str(whole.table())


def test_a_planted_other_bit_is_caught(whole):
    """Negative control: in any variable of any pass."""
    for case, name, layout in whole.store.passes():
        for variable in layout.variables:

            def read(*which, planted=(case, name), variable=variable):
                found = whole.store.read(*which).copy(deep=True)
                if which == planted:
                    found[variable].values.reshape(-1).view(np.uint8)[-1] ^= 1
                return found

            with pytest.raises(AssertionError):
                assert_same_bits(SimpleNamespace(cases=whole.cases, read=read), whole.store)
