"""Runs with `until_se` end at the right interim count and report their precision."""

import contextlib

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
from nrjax.simulation.bins import LogBins
from nrjax.simulation.moments import PARTS
from nrjax.statistics.sample import Sample
from nrjax.study import precision
from nrjax.study.histograms import BinnedDistribution
from nrjax.study.precision import INTERIM_COUNTS
from nrjax.study.results import Results
from tests.study import cheap
from tests.study.interrupted import Killed, Then

MOST = 64_000
PAID = {  # epsilon of each trial; infinite: did not stop
    "exponential": np.random.default_rng(0).exponential(size=MOST),
    "uniform": np.random.default_rng(1).uniform(size=MOST),
    "rarely-stops": np.where(np.arange(MOST) % 5 == 0, 1.0, np.inf),
    "few-values": np.random.default_rng(3).binomial(3, 0.4, MOST).astype(float),
    "no-guarantee": np.full(MOST, np.nan),
    # At 1000 trials the 95 % interval is 1 alone; at 4000 almost every interval is 2 alone.
    "two-levels": np.repeat([1.0, 2, 1, 2, 1, 2], [533, 467, 467, 533, 900, MOST - 2900]),
}


def run(out, *cases, **changes):
    chosen = {"until_se": 0.02, "most_trials": MOST, "progress": False} | changes
    return cheap.Known({name: PAID[name] for name in cases or ("exponential", "uniform")}).run(
        out, **chosen
    )


def again(out, *cases, **changes):
    """Resume a run, with the precision that it was started with."""
    return run(out, *cases, **{"until_se": None, "most_trials": None} | changes)


def error_of(values):
    """Return the larger of two half-widths over their z, by SciPy's binomial distribution."""
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


@pytest.mark.parametrize(
    ("goal", "chunk"), [(0.05, None), (0.02, 125), (0.02, 1500), (0.02, 16_000), (0.01, 1000)]
)
def test_a_run_ends_at_the_first_look_that_is_good_enough(tmp_path, goal, chunk):
    """Chunks do not matter."""
    expected = first_at(goal, INTERIM_COUNTS)
    results = run(tmp_path / "out", until_se=goal, chunk=chunk)
    assert results.trials == expected
    for name in results:
        found = results.values(name, "epsilon")
        np.testing.assert_array_equal(found, PAID[name][:expected].astype(found.dtype))
    (said, *_) = precision.remarks(results)
    assert f"reached with {expected:,} trials" in said
    # Planted: a look at every chunk would end elsewhere.
    assert first_at(0.015, range(125, MOST, 125)) not in INTERIM_COUNTS


@pytest.mark.parametrize(
    "cases", [pytest.param(("exponential", "uniform"), marks=pytest.mark.long), ("two-levels",)]
)
def test_interruptions_change_nothing(tmp_path, cases):
    out, whole = tmp_path / "out", run(tmp_path / "whole", *cases, chunk=500)
    assert (cases != ("two-levels",)) or whole.trials == 4000
    with pytest.raises(Killed):
        run(out, *cases, chunk=500, progress=Then(3))
    for chunks in (1, 2, 3, 5):
        with contextlib.suppress(Killed):
            again(out, *cases, progress=Then(chunks))
    results = again(out, *cases)
    for name in results:
        np.testing.assert_array_equal(results.values(name), whole.values(name))
    # Reached: another call adds nothing; more trials can be asked for, and nothing comes on top.
    assert again(out, *cases).trials == whole.trials
    more = whole.trials + 500
    assert again(out, *cases, trials=more).trials == more


def test_no_more_trials_than_allowed_and_no_fewer_than_asked_for(tmp_path):
    results = run(tmp_path / "most", until_se=1e-4, most_trials=5000)
    assert results.trials == 4000
    (said,) = precision.remarks(results)
    assert "Warning: not reached with 4,000 trials" in said
    assert "uniform" in said or "exponential" in said
    assert run(tmp_path / "least", until_se=1.0, trials=1500).trials == 2000
    plain = run(tmp_path / "plain", until_se=None, most_trials=None, trials=10)
    assert plain.trials == 10
    assert precision.remarks(plain) == []


def test_medians_that_no_trial_makes_better_known_end_the_run(tmp_path):
    """Infinite and undefined medians are left out, and named."""
    results = run(tmp_path / "out", "uniform", "rarely-stops", "few-values", "no-guarantee")
    assert results.trials == run(tmp_path / "alone", "uniform").trials
    said = " ".join(precision.remarks(results))
    assert "does not apply to rarely-stops: the median stopping epsilon is infinite" in said
    assert "does not apply to no-guarantee: no guarantee" in said
    assert "single value, or within one bin, in few-values:" in said
    assert "finer than the histogram" not in said


class Coarse(Sample):
    """A distribution whose values are known up to an eighth."""

    def order_statistic(self, rank):
        value = super().order_statistic(rank)[0]
        return np.floor(8 * value) / 8, np.ceil(8 * value) / 8


@pytest.fixture
def coarse(monkeypatch):
    def distribution(self, case, *_):
        return Coarse(PAID[case][: self.trials])

    monkeypatch.setattr(Results, "distribution", distribution)
    monkeypatch.setattr(Results, "write_reports", lambda self, writer: None)


def test_a_run_ends_where_bins_are_wider_than_what_is_asked_for(tmp_path, coarse):
    """More trials would not help. The report says so, and a larger error can be chosen."""
    for _ in range(2):
        results = run(tmp_path / "out")
        assert results.trials == 1000
        text = precision.remarks(results)
        assert "Warning: not reached with 1,000 trials" in text[0]
        assert sum("0.02 is finer than the histogram of" in line for line in text) == 2
    results = again(tmp_path / "out", until_se=0.13)
    assert "; reached with 1,000 trials" in precision.remarks(results)[0]


@pytest.mark.parametrize("goal", [0.125, 0.07])
def test_bins_as_narrow_as_what_is_asked_for_do(tmp_path, coarse, goal):
    """An interval covers at most two bins. A precision that was reached gets no warning."""
    said = " ".join(precision.remarks(run(tmp_path / "out", until_se=goal)))
    assert "reached" in said
    assert "not reached" not in said
    assert "finer" not in said


@pytest.mark.parametrize(
    "begun", [{"until_se": 0.05}, {"until_se": None, "most_trials": None, "trials": 1500}]
)
def test_another_error_can_be_asked_for_later(tmp_path, begun):
    run(tmp_path / "out", chunk=500, **begun)
    results = again(tmp_path / "out", until_se=0.01)
    assert results.trials == first_at(0.01, INTERIM_COUNTS)
    assert results.store.settings["settings"]["until_se"] == 0.01
    assert again(tmp_path / "out").trials == results.trials


def test_what_no_histogram_can_tell_is_refused_at_the_start(tmp_path):
    """The smallest epsilon of the grid is 0.3, where bins are 2^-14 wide."""
    study, out = cheap.study({"near": cheap.interaction()}), tmp_path / "out"
    options = {"keep": "summary", "progress": False}
    message = r"until_se must be at least 6\.1e-05 with keep='summary'.*smallest epsilon of near"
    with pytest.raises(ValueError, match=message):
        study.run(out, until_se=6e-5, **options)
    assert not out.exists()


@pytest.mark.long
def test_what_no_histogram_can_tell_is_refused_of_a_run(tmp_path):
    study, out = cheap.study({"near": cheap.interaction()}), tmp_path / "out"
    study.run(out, trials=10, keep="summary", progress=False)
    with pytest.raises(ValueError, match="until_se must be at least"):
        study.run(out, until_se=6e-5, progress=False)
    assert study.run(out, until_se=1.0, progress=False).trials == 1000


def test_the_error_is_that_of_a_normal_median():
    """The median of a normal law has standard error sqrt(pi / (2 n))."""
    values = np.random.default_rng(2).standard_normal(20_000)
    assert precision.median_error(Sample(values)) == pytest.approx(
        np.sqrt(np.pi / 2 / values.size), rel=0.1
    )
    assert precision.median_error(Sample(np.ones(1000))) == 0
    assert precision.median_error(Sample(np.ones(5))) == np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until_se": None}, "most_trials must be left out without until_se"),
        ({"most_trials": 999}, "most_trials must be at least 1000, the first interim count"),
        ({"trials": 3000, "most_trials": 3000}, "must be at least 4000, the first interim count"),
        ({"until_se": 0.0}, "until_se must be positive"),
        ({"until_se": float("nan")}, "until_se must be positive"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_studies_without_an_epsilon_refuse(tmp_path):
    for case in (cheap.interaction(guarantee=None), cheap.Walk(np.float32(0))):
        with pytest.raises(ValueError, match=r"until_se must be left out, since no case has an"):
            cheap.study({"one": case}).run(tmp_path / "out", until_se=0.1, progress=False)
        assert not (tmp_path / "out").exists()


def kept_as(keep, counts):
    """Return the distribution of the given numbers of trials at levels 1, 2, ... of a grid."""
    values = np.arange(1, len(counts) + 1)
    if keep == "trials":
        return Sample(np.repeat(values.astype(np.int8), counts))
    bins, at = LogBins(-1, 3, 6), np.repeat(values, np.minimum(counts, 1))
    placed = np.zeros(bins.size, np.int64)
    placed[np.searchsorted(bins.upper, values)] = counts
    moments = np.array([sum(counts), *(2 * PARTS * [0]), at[0], at[-1], 0, 0])
    return BinnedDistribution(bins, placed, moments)


def wrong_alone(keep, looks, runs=20_000):
    """Return the fraction of runs that end when they see only a level that is not the median.

    The levels are 1, 2 and 3; 2 is the median, but so rare that no run has it.
    """
    rng, up_to, trials = np.random.default_rng(5), np.zeros(runs, np.int64), 0
    going, wrong = np.ones(runs, bool), np.zeros(runs, bool)
    for look in range(looks):
        trials, before = 1000 * 2**look, trials
        up_to += rng.binomial(trials - before, 0.5, runs)
        # By symmetry a run ends where fewest of the trials are at one level, or fewer.
        fewest, enough = 0, trials // 2
        while enough - fewest > 1:
            some = (fewest + enough) // 2
            ends = precision.median_error(kept_as(keep, [some, 0, trials - some])) <= 0.01
            fewest, enough = (some, enough) if ends else (fewest, some)
        ended = going & (np.minimum(up_to, trials - up_to) <= fewest)
        going, wrong = going & ~ended, wrong | ended
    return wrong.mean()


@pytest.mark.parametrize(("keep", "looks"), [("trials", 8), ("summary", 21)])
def test_a_wrong_level_is_seldom_alone_at_any_look(keep, looks, monkeypatch):
    """It is at most 5 % of runs. With 95 % intervals at every look it is many times that."""
    assert wrong_alone(keep, looks) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 20_000)
    monkeypatch.setattr(
        precision, "median_error", lambda one: np.ptp(one.quantile_interval(0.5)) / 2 / 1.96
    )
    assert wrong_alone(keep, looks) > 0.2
