"""Tests that every study must pass: the papers' studies and a custom one."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("xarray")

import nrjax
from nrjax.study import rendering
from nrjax.study.files import DamagedError, UnfinishedError
from tests.study import small
from tests.study.binned import assert_quantities_alike
from tests.study.interrupted import Killed, Then, assert_same_bits
from tests.study.small import CHUNK, PAPERS_LONG, TRIALS

pytestmark = pytest.mark.usefixtures("undrawn")

CHANGES = {
    "example": {"radius": 1.4},
    "whitehouse2022": {"test_epsilon": 0.4},
    "ligett2017": {"gamma": 0.2},
    "skellam_counts": {"delta": 1e-5},
    "rogers2023": {"epsilon": 2.0},
    "tuning": {"stop": 0.1},
    "unknown_keys": {"delta": 1e-5},
}
"""A setting of each study that differs from that of the run."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    small.data(folder)
    return folder


@pytest.fixture(scope="module", params=PAPERS_LONG)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def study(name, data):
    return small.study(name, data)


def run(study, folder, trials=TRIALS, **options):
    return study.run(folder, trials=trials, **{"chunk": CHUNK, "progress": False} | options)


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory):
    """Run the study without interruption."""
    return run(study, tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.long
def test_a_killed_run_is_resumed(study, whole, tmp_path):
    for chunks in (1, 3):
        with pytest.raises(Killed):
            run(study, tmp_path / "run", progress=Then(chunks))
    with pytest.raises(UnfinishedError, match="is not finished: "):
        nrjax.Results.open(tmp_path / "run")
    results = run(study, tmp_path / "run")
    assert_same_bits(results.store, whole.store)
    for file in ("summary.json", "report.md", "report.html"):
        assert (tmp_path / "run" / file).is_file()


def test_a_run_is_extended(study, whole, tmp_path):
    run(study, tmp_path / "run", 10)
    full = (tmp_path / "run").glob(f"results/*/*/*-{CHUNK:010}.npz")
    files = {path: path.stat().st_ino for path in full}
    assert len(files) == len(list(whole.store.passes()))
    with pytest.raises(Killed):
        run(study, tmp_path / "run", TRIALS, progress=Then(2))
    results = run(study, tmp_path / "run")
    assert_same_bits(results.store, whole.store)
    # Full chunks are not written again.
    assert {path: path.stat().st_ino for path in files} == files
    assert results.store.settings["fingerprints"] == whole.store.settings["fingerprints"]
    with pytest.raises(ValueError, match=f"trials must be an integer, at least {TRIALS}"):
        run(study, tmp_path / "run", 5)


@pytest.mark.long
def test_both_ways_of_keeping_agree(study, whole, tmp_path):
    """Every quantity agrees within the stated resolution."""
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
        if case["stopping_epsilon"] is not None:
            assert set(case["stopping_epsilon"]) == set(case["stopped_epsilon"]) == percents
            median = whole.distribution(name).quantile(0.5)
            assert case["stopping_epsilon"]["q50"] == (median if np.isfinite(median) else None)


def test_another_setting_is_refused_by_name(name, study, whole, data, tmp_path):
    before = {path: path.read_bytes() for path in whole.folder.rglob("*") if path.is_file()}
    other = small.study(name, data, **CHANGES[name])
    with pytest.raises(ValueError, match="cannot be resumed, since its results would differ"):
        run(other, whole.folder)
    with pytest.raises(ValueError, match="seed must be 0, with which the run"):
        run(study, whole.folder, seed=1)
    with pytest.raises(ValueError, match="study is 'other' here"):
        run(nrjax.Study("other", study.cases), whole.folder)
    assert {path: path.read_bytes() for path in before} == before


def test_a_broken_chunk_is_named(study, whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path / "run")
    path = sorted((tmp_path / "run" / "results").glob("*/*/*.npz"))[1]
    broken = bytearray(path.read_bytes())
    broken[len(broken) // 2] ^= 1
    path.write_bytes(broken)
    with pytest.raises(DamagedError, match=f"{path} is broken.*remove it, and `nrjax resume`"):
        nrjax.Results.open(tmp_path / "run").summary()
    path.unlink()
    assert_same_bits(run(study, tmp_path / "run").store, whole.store)


def test_figures_and_comparisons(whole):
    with whole.store.writer() as writer:
        rendering.save_figure(writer, *next(iter(whole.plot().items())))
    assert len(list((whole.folder / "figures").iterdir())) == 2
    interactions = [name for name in whole if whole.statuses(name) is not None]
    with_epsilon = [name for name in interactions if whole.distribution(name) is not None]
    if len(with_epsilon) > 1:
        comparison = whole.compare(*with_epsilon[:2])
        assert comparison.smaller.value + comparison.larger.value <= 1
        assert comparison.dominance.verdict in ("smaller", "larger", "crossing", "undecided")
        assert with_epsilon[0] in str(comparison)
    assert "|" in str(whole.table())


def test_a_planted_other_bit_is_caught(whole):
    """Planted fault: a bit in any variable of any pass."""
    for case, name, pass_ in whole.store.passes():
        for variable in pass_.variables:

            def arrays(*pass_, planted=(case, name), variable=variable):
                copies = {key: values.copy() for key, values in whole.store.arrays(*pass_).items()}
                if pass_ == planted:
                    copies[variable].reshape(-1).view(np.uint8)[-1] ^= 1
                return copies

            with pytest.raises(AssertionError):
                assert_same_bits(SimpleNamespace(cases=whole.cases, arrays=arrays), whole.store)
