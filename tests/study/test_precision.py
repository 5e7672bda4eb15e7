"""Runs that go on until medians are known well enough: when they stop, and what they say."""

import contextlib
import dataclasses
import types
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
from nrjax.study.folds import epsilon_folds

from nrjax.cli import main
from nrjax.sketches import described
from nrjax.study import precision, rogers2023, runner, skellam_counts, whitehouse2022
from nrjax.study.distribution import Sample
from nrjax.study.settings import RunSettings, begun
from nrjax.study.store import Case, Pass, Store, Variable
from nrjax.types import Status
from tests.studies.interrupted import DiesAfter, Killed

MOST = 64_000
PAID = {  # epsilon of each trial; infinite: did not stop
    "exponential": np.random.default_rng(0).exponential(size=MOST),
    "uniform": np.random.default_rng(1).uniform(size=MOST),
    "rarely stops": np.where(np.arange(MOST) % 5 == 0, 1.0, np.inf),
    "few values": np.random.default_rng(3).binomial(3, 0.4, MOST).astype(float),
    "no guarantee": np.full(MOST, np.nan),
    # At 1000 trials the 95 % interval is 1 alone; at 4000 almost every interval is 2 alone.
    "two levels": np.repeat([1.0, 2, 1, 2, 1, 2], [533, 467, 467, 533, 900, MOST - 2900]),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    cases: tuple[str, ...] = ("exponential", "uniform")


@dataclasses.dataclass(frozen=True)
class Setup:
    case: Case


class Known:
    """A program whose results are known beforehand, by the number of a trial."""

    def __init__(self, name, chunk):
        self.name, self.chunk, self.trial = name, chunk, np.zeros(1)

    def compile(self, key):
        del key

    def run(self, key, trials, first_trial):
        del key
        assert trials <= self.chunk
        epsilon = PAID[self.name][first_trial : first_trial + trials]
        status = np.where(np.isinf(epsilon), Status.EXHAUSTED, Status.STOPPED).astype("int32")
        return {"epsilon": np.where(np.isinf(epsilon), 9.0, epsilon), "status": status}


def setups(settings):
    variables = {"epsilon": Variable("float64"), "status": Variable("int32")}
    layout = Pass(settings.trials, settings.chunk, variables)
    names = {name: name.replace(" ", "-") for name in settings.cases}
    return [Setup(Case(names[name], {"of": name}, {"outcome": layout})) for name in names]


def programs(cases):
    made = {one.case.name: (one.case.attributes["of"], one.case.passes["outcome"]) for one in cases}
    return {name: {"outcome": Known(of, one.largest)} for name, (of, one) in made.items()}


STUDY = types.SimpleNamespace(
    NAME="known",
    Settings=Settings,
    setups=setups,
    programs=programs,
    conclude=lambda store: None,
    plot=lambda store: None,
)


def settings(out, **changes):
    return Settings(**{"out": out, "until_se": 0.02, "most_trials": MOST} | changes)


def trials_of(store):
    return {case.passes["outcome"].trials for case in store.cases.values()}


def error_of(values):
    """By SciPy's binomial law: two intervals, half their widths over their z; the larger."""
    law, ordered = stats.binom(values.size, 0.5), np.sort(values)
    look = 1 + max(0, np.ceil(np.log2(values.size / 1000)))
    found = []
    for tail in (0.025, 0.025 * 6 / (np.pi * look) ** 2):
        low, high = law.ppf(tail), law.isf(tail) + 1  # ranks from 1
        found.append((ordered[int(high) - 1] - ordered[int(low) - 1]) / 2 / stats.norm.isf(tail))
    return max(found)


def first_at(goal, counts):
    return next(
        count
        for count in counts
        if all(error_of(PAID[name][:count]) <= goal for name in ("exponential", "uniform"))
    )


LOOKS = [1000 * 2**k for k in range(7)]


@pytest.mark.parametrize("goal", [0.05, 0.02, 0.01])
def test_a_run_ends_at_the_first_look_that_is_good_enough(tmp_path, goal):
    expected = first_at(goal, LOOKS)
    store = runner.run(STUDY, settings(tmp_path / "out", until_se=goal))
    assert trials_of(store) == {expected}
    for name in store.cases:
        found = store.read(name, "outcome")["epsilon"].values
        np.testing.assert_array_equal(found, PAID[name][:expected])
    (said, *_) = precision.remarks(store)
    assert f"reached with {expected:,} trials" in said


def test_planted_look_at_every_chunk_would_end_elsewhere():
    assert first_at(0.015, range(125, MOST, 125)) not in LOOKS


@pytest.mark.parametrize("chunk", [125, 1000, 16_000])
def test_chunks_change_nothing(tmp_path, chunk):
    store = runner.run(STUDY, settings(tmp_path / "out", chunk=chunk))
    assert trials_of(store) == {first_at(0.02, LOOKS)}


@pytest.mark.parametrize("cases", [("exponential", "uniform"), ("two levels",)])
def test_interruptions_change_nothing(tmp_path, monkeypatch, cases):
    monkeypatch.setattr(runner, "find", lambda name: STUDY)
    whole = runner.run(STUDY, settings(tmp_path / "whole", chunk=500, cases=cases))
    assert (cases != ("two levels",)) or trials_of(whole) == {4000}
    with pytest.raises(Killed):
        runner.run(STUDY, settings(tmp_path / "out", chunk=500, cases=cases), DiesAfter(3))
    for chunks in (1, 2, 3, 5):
        with contextlib.suppress(Killed):
            runner.resume(tmp_path / "out", progress=DiesAfter(chunks))
    store = runner.resume(tmp_path / "out")
    assert trials_of(store) == trials_of(whole)
    for name in store.cases:
        ours, theirs = (one.read(name, "outcome") for one in (store, whole))
        np.testing.assert_array_equal(ours["epsilon"].values, theirs["epsilon"].values)
    # Reached: another call adds nothing; more trials can be asked for, and nothing comes on top.
    assert trials_of(runner.resume(tmp_path / "out")) == trials_of(whole)
    more = max(trials_of(whole)) + 500
    assert trials_of(runner.resume(tmp_path / "out", trials=more)) == {more}


def test_no_more_trials_than_allowed(tmp_path):
    chosen = settings(tmp_path / "out", until_se=1e-4, most_trials=5000)
    store = runner.run(STUDY, chosen)
    assert trials_of(store) == {4000}
    (said,) = precision.remarks(store)
    assert "Warning: not reached with 4,000 trials" in said
    assert "uniform" in said or "exponential" in said


def test_no_fewer_trials_than_asked_for(tmp_path):
    store = runner.run(STUDY, settings(tmp_path / "out", until_se=1.0, trials=1500))
    assert trials_of(store) == {2000}


def test_medians_that_no_trial_makes_better_known_end_the_run(tmp_path):
    """An infinite median and one that is not defined are left out, and named."""
    cases = ("uniform", "rarely stops", "few values", "no guarantee")
    chosen = settings(tmp_path / "out", cases=cases)
    store = runner.run(STUDY, chosen)
    alone = runner.run(STUDY, settings(tmp_path / "alone", cases=("uniform",)))
    assert trials_of(store) == trials_of(alone)
    said = precision.remarks(store)
    assert any("nothing of rarely-stops: the median epsilon is infinite" in one for one in said)
    assert any("nothing of no-guarantee: no guarantee" in one for one in said)
    assert any("single value, or within one bin, in few-values:" in one for one in said)
    assert not any("finer than the histogram" in one for one in said)


class Coarse(Sample):
    """Known up to an eighth."""

    def order_statistic(self, rank):
        value = super().order_statistic(rank)[0]
        return np.floor(8 * value) / 8, np.ceil(8 * value) / 8


@pytest.fixture
def coarse(monkeypatch):
    monkeypatch.setattr(runner, "find", lambda name: STUDY)
    monkeypatch.setattr(
        precision,
        "distribution_of",
        lambda store, name: Coarse(PAID[name][: max(trials_of(store))]),
    )


def test_what_is_finer_than_the_histogram_is_refused_at_the_first_look(tmp_path, coarse):
    out = tmp_path / "out"
    message = r"until_se = 0\.02: must be at least 0\.125, the width of the histogram's bin"
    with pytest.raises(ValueError, match=message) as said:
        runner.run(STUDY, settings(out))
    assert f"the 1,000 trials are kept: ask for less with `nrjax resume {out}" in str(said.value)
    assert trials_of(Store.open(out)) == {1000}
    with pytest.raises(ValueError, match=message):
        runner.resume(out)
    # What it says to do ends it; so does another number of trials, with a warning.
    assert "--until-se 0.13`" in str(said.value)
    store = runner.resume(out, until_se=0.13)
    assert trials_of(store) == {1000}
    assert "reached with 1,000 trials" in precision.remarks(store)[0]
    assert trials_of(runner.resume(out)) == {1000}


def test_a_number_of_trials_that_somebody_asks_for_is_run_with_a_warning(tmp_path, coarse):
    with pytest.raises(ValueError, match="until_se"):
        runner.run(STUDY, settings(tmp_path / "out"))
    said = precision.remarks(runner.resume(tmp_path / "out", 1500))
    assert sum("0.02 is finer than the histogram of" in one for one in said) == 2


@pytest.mark.parametrize("goal", [0.125, 0.07])
def test_bins_as_narrow_as_what_is_asked_for_do(tmp_path, coarse, goal):
    """An interval has two of them at most. What is reached all the same is not warned of."""
    said = precision.remarks(runner.run(STUDY, settings(tmp_path / "out", until_se=goal)))
    assert any("reached" in one and "not reached" not in one for one in said)
    assert not any("finer" in one for one in said)


@pytest.mark.parametrize("trials", [None, 1500])
def test_another_error_can_be_asked_for_later(tmp_path, monkeypatch, trials):
    monkeypatch.setattr(runner, "find", lambda name: STUDY)
    begun = settings(tmp_path / "out", until_se=0.05)
    if trials is not None:
        begun = settings(
            tmp_path / "out", until_se=None, most_trials=None, trials=trials, chunk=500
        )
    runner.run(STUDY, begun)
    store = runner.resume(tmp_path / "out", until_se=0.01)
    assert trials_of(store) == {first_at(0.01, LOOKS)}
    assert store.settings["settings"]["until_se"] == 0.01
    assert trials_of(runner.resume(tmp_path / "out")) == trials_of(store)


def widest(bins, most):
    """Of the bins that are no more than `most`."""
    ends = slice(
        2, np.searchsorted(bins.upper, most) + 1
    )  # the first are those of zero, and near it
    return (bins.upper[ends] - bins.lower[ends]).max()


@pytest.mark.parametrize(
    ("ends", "width", "usual"),
    [((0.16, 40.0), 1e-3, None), ((0.01, 640.0), 1e-3, 10.0), ((0.3, 7.9), 1e-4, None)],
)
def test_bins_are_as_narrow_as_what_is_asked_for(ends, width, usual):
    bins = epsilon_folds(*ends, width, usual)["epsilon"].bins
    high = ends[1] if usual is None else usual
    assert width / 2 < widest(bins, high) <= width
    assert bins.size < 2**20 + 5
    # Without, they are too wide: this is what would be refused.
    assert widest(epsilon_folds(*ends)["epsilon"].bins, high) > width


def test_bins_are_never_wider_than_usual_nor_too_many():
    usual = epsilon_folds(0.01, 640.0)["epsilon"].bins
    assert epsilon_folds(0.01, 640.0, 0.5)["epsilon"].bins == usual
    fine = epsilon_folds(0.01, 640.0, 1e-5)["epsilon"].bins
    assert 2**19 < fine.size < 2**20 + 5
    with pytest.raises(ValueError, match=r"until_se = 1e-08: must be at least 2\.\d+e-07, the"):
        epsilon_folds(0.01, 640.0, 1e-8)


def test_a_study_lays_out_bins_for_what_is_asked_for():
    chosen = whitehouse2022.Settings(
        out=Path("run"),
        task=("logistic",),
        mechanism=("brownian",),
        test=("public",),
        rows=200,
        keep="summary",
        until_se=1e-3,
    )
    chosen = dataclasses.replace(begun(chosen), chunk=1000)
    for until_se in (1e-3, 0.1):  # asked for later, it must not lay out others
        (setup,) = whitehouse2022.setups(dataclasses.replace(chosen, until_se=until_se))
        folds = setup.case.passes["outcome"].variables["moments"].attributes["folds"]
        bins = described(folds).folds["epsilon"].bins
        assert widest(bins, 2 * chosen.highest_epsilon) <= 1e-3


def test_the_error_is_that_of_a_normal_median():
    """Of the normal law: sqrt(pi / (2 n)), to a tenth at 20,000 trials."""
    values = np.random.default_rng(2).standard_normal(20_000)
    assert precision.median_error(Sample(values)) == pytest.approx(
        np.sqrt(np.pi / 2 / values.size), rel=0.1
    )
    assert precision.median_error(Sample(np.ones(1000))) == 0
    assert precision.median_error(Sample(np.ones(5))) == np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk": 1500}, r"chunk = 1500: must be with until_se a divisor of 1000 x 2\^k"),
        ({"until_se": None}, f"most_trials = {MOST}: must be left out without until_se"),
        ({"most_trials": 999}, "most_trials = 999: must be at least 1000, the first look"),
        ({"trials": 3000, "most_trials": 3000}, "must be at least 4000, the first look"),
        ({"until_se": 0.0}, "until_se = 0.0: must be positive"),
        ({"until_se": float("nan")}, "until_se = nan: must be positive"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path / "out", **changes)


def test_studies_without_an_epsilon_refuse(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"until_se = 0\.1: must be left out"):
        rogers2023.Settings(out=tmp_path / "out", until_se=0.1)
    with pytest.raises(ValueError, match=r"until_se = 0\.1: must be left out, or another"):
        skellam_counts.Settings(out=tmp_path / "out", until_se=0.1, mechanism=("skellam",))
    assert main(["run", "rogers2023", "--out", str(tmp_path / "out"), "--until-se", "0.1"]) == 2
    assert capsys.readouterr().err.startswith("nrjax: error: until_se = 0.1")
    assert not (tmp_path / "out").exists()


def test_nothing_is_said_where_nothing_was_asked(tmp_path):
    store = runner.run(
        STUDY, settings(tmp_path / "out", until_se=None, most_trials=None, trials=10)
    )
    assert isinstance(store, Store)
    assert trials_of(store) == {10}
    assert precision.remarks(store) == []
