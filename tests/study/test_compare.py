"""Comparisons of two cases: intervals hold as often as they say, and dominance is not imagined."""

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
import nrjax
from nrjax.keys import study_key
from nrjax.simulation.bins import LogBins
from nrjax.study import bootstrap, compare, figures
from nrjax.study.case import FIELDS
from nrjax.types import Outcome, Status
from tests.study import cheap
from tests.study.test_distribution import below_95
from tests.study.test_keep_summary import folded


def outcomes(goals=None, utility=None, notions=None, **epsilons):
    """Of trials that paid so much; infinite: did not stop."""
    found = {}
    for name, epsilon in epsilons.items():
        epsilon = np.asarray(epsilon, float)
        status = np.where(np.isinf(epsilon), Status.EXHAUSTED, Status.STOPPED)
        fields = dict.fromkeys(FIELDS, np.zeros(epsilon.size))
        fields |= {"epsilon": epsilon, "status": status.astype(np.int32)}
        if utility is not None:
            fields["utility"] = np.asarray(utility[name], float)
        found[name] = Outcome(release=0, hypothesis=0, **fields)
    return nrjax.Outcomes(found, goals, notions)


def exponentials(rng, trials=400):
    """Two, of means 1 and 1.5, made from common numbers in most of the trials."""
    one, other = rng.exponential(size=(2, trials))
    return one, 1.5 * np.where(rng.uniform(size=trials) < 0.7, one, other)


@pytest.mark.parametrize("drawn", [pytest.param(400, marks=pytest.mark.long), 100])
def test_the_paired_interval_covers_the_truth(monkeypatch, drawn):
    """Trials are resampled, or groups of four."""
    monkeypatch.setattr(bootstrap, "_RESAMPLES", 300)
    monkeypatch.setattr(bootstrap, "_DRAWN", drawn)
    rng, truth = np.random.default_rng(7), -0.5 * np.log(2)
    ends, apart = [], []
    for number in range(200):
        first, second = exponentials(rng)
        ends.append(compare.interval_of(outcomes(a=first, b=second), "a", "b"))
        if number % 10 == 0:
            shuffled = outcomes(a=first, b=rng.permutation(second))
            apart.append(compare.interval_of(shuffled, "a", "b"))
    (low, high), widths = np.transpose(ends), np.ptp(apart, axis=1)
    distance = np.abs(truth - (low + high) / 2)
    assert not below_95((low <= truth) & (truth <= high))
    assert below_95(distance <= (high - low) / 4)  # planted: half as wide
    # Planted: pairs torn apart know less of the difference.
    assert np.mean(high - low) < 0.8 * np.mean(widths)


def test_shares_of_pairs_cover_the_truth():
    """Independent exponentials of means 1 and 1.5: the first is smaller with probability 0.6."""
    rng, ends = np.random.default_rng(8), []
    for _ in range(300):
        one = outcomes(a=rng.exponential(size=100), b=rng.exponential(1.5, size=100))
        ends.append(compare._paired(one, "a", "b", "epsilon")[1].interval)
    low, high = np.transpose(ends)
    assert not below_95((low <= 0.6) & (high >= 0.6))
    assert below_95((low <= 0.5) & (high >= 0.5))


def share_of(verdict, draw, band=1.0):
    """How often a verdict is given of two samples."""
    rng, found = np.random.default_rng(9), []
    for _ in range(300):
        first, second = draw(rng)
        ahead, behind, width = compare._dominance(nrjax.Sample(first), nrjax.Sample(second))
        found.append(compare.Dominance(ahead, behind, band * width).verdict == verdict)
    return np.mean(found)


def exponential(rng):
    return rng.exponential(size=(2, 500))


def permuted(rng):
    common = rng.normal(size=500)
    return common, rng.permutation(common)


@pytest.mark.parametrize(
    ("verdict", "draw"),
    [
        ("undecided", exponential),
        ("undecided", lambda rng: rng.binomial(3, 0.4, (2, 500))),
        ("undecided", permuted),
        ("undecided", lambda rng: np.where(rng.uniform(size=(2, 500)) < 0.3, np.inf, 1.0)),
        ("smaller", lambda rng: rng.normal([[0], [0.5]], 1, (2, 1000))),
        ("larger", lambda rng: rng.normal([[0.5], [0]], 1, (2, 1000))),
        ("crossing", lambda rng: rng.normal(0, [[1], [3]], (2, 1000))),
    ],
)
def test_equal_laws_are_undecided_and_others_are_found(verdict, draw):
    assert share_of(verdict, draw) >= (0.95 if verdict == "undecided" else 1)


def test_planted_narrower_band_imagines_differences():
    assert share_of("undecided", exponential, band=0.4) < 0.9


def test_what_rounding_makes_of_one_level_is_equal():
    """And not what is a hundred times as far apart."""
    levels = np.repeat([0.6, 1.2, np.inf], 200)
    for off, verdict, share in ((5e-15, "undecided", 0.0), (5e-13, "smaller", 2 / 3)):
        found = outcomes(a=levels, b=levels * (1 + off)).compare("a", "b")
        assert (found.smaller.value, found.larger.value) == (pytest.approx(share), 0)
        assert found.dominance.verdict == verdict
        assert (found.median_difference == 0) == (share == 0)


def test_what_a_comparison_says():
    rng = np.random.default_rng(1)
    first, second = exponentials(rng, 2000)
    utility = {"a": np.where(np.arange(2000) < 1500, 0.0, -1.0), "b": np.zeros(2000)}
    both = outcomes({"a": -0.5, "b": -0.5}, utility, a=first, b=second)
    found = both.compare("a", "b")
    assert found.medians == (np.sort(first)[999], np.sort(second)[999])
    assert found.median_difference == found.medians[0] - found.medians[1]
    assert found.median_interval[0] < found.median_difference < found.median_interval[1] < 0
    assert found.difference.mean == pytest.approx(np.mean(first - second))
    assert found.smaller.value == np.mean(first < second)
    assert found.larger.value == np.mean(first > second)
    reach = stats.ks_2samp(first, second, alternative="greater").statistic
    assert found.dominance.ahead == pytest.approx(reach)
    assert found.met == (0.75, 1.0)
    said = str(found)
    for words in (
        "stopping_epsilon of a against b:",
        f"medians {found.medians[0]:.4g} and {found.medians[1]:.4g}, difference",
        f"smaller in {np.mean(first < second):.1%} of the trials",
        "a is stochastically smaller, as far as these trials tell",
        "not of the same accuracy: the goal was met in 75 % and 100 % of the trials",
    ):
        assert words in said
    opposite = both.compare("b", "a")
    assert (opposite.smaller, opposite.larger) == (found.larger, found.smaller)
    assert opposite.dominance.verdict == "larger"
    assert "accuracy" not in str(outcomes(a=first, b=second).compare("a", "b"))


def test_infinite_values_and_trials_without_one():
    many = outcomes(a=[1, 2, np.inf, np.inf, np.inf], b=[2, np.inf, 3, np.inf, np.inf])
    found = many.compare("a", "b")
    assert found.medians == (np.inf, np.inf)
    assert np.isnan(found.median_difference)
    assert found.median_interval is None
    assert [found.difference.quantile(p) for p in (0.3, 0.6, 1)] == [-np.inf, -1, np.inf]
    assert (found.smaller.value, found.larger.value) == (0.4, 0.2)
    # Who did not stop has no shortfall: of the others, a missed by 2 and b by 1.
    paid, utility = np.where(np.arange(1000) < 600, 1.0, np.inf), np.full(1000, -1.0)
    goals = {"a": 1.0, "b": 0.0}
    short = outcomes(goals, dict.fromkeys("ab", utility), a=paid, b=paid)
    found = short.compare("a", "b", "shortfall")
    assert found.medians == (2, 1)
    assert found.median_interval is None
    assert found.difference.trials == 600
    assert found.larger.value == 0.6


def test_results_of_a_study_and_outcomes_in_memory_say_the_same(tmp_path):
    cases = {"near": cheap.interaction(), "far": cheap.interaction(-2.0)}
    results = cheap.study(cases).run(tmp_path, trials=300, progress=False)
    key = study_key(0)
    memory = nrjax.Outcomes(
        {name: nrjax.simulate(key, trial, trials=300) for name, trial in cases.items()},
        {"near": -0.5, "far": -2.0},
        dict.fromkeys(cases, "probabilistic"),
    )
    one, other = (each.compare("near", "far") for each in (results, memory))
    assert str(one) == str(other)
    assert one._replace(difference=None) == other._replace(difference=None)
    assert one.larger.value == 1 - one.smaller.value - np.mean(
        results.values("near") == results.values("far")
    )
    assert one.smaller.value == 0  # common random numbers: who is content with less stops before
    assert memory.statuses("near") == results.statuses("near")
    assert repr(memory) == "Outcomes of 300 trials of near, far"
    law = memory.distribution("near", "step")
    assert repr(law).startswith(f"Sample of 300 values, mean {law.mean:.4g}, median ")
    assert set(memory.plot()) == set(figures.standard(results))
    table, told = memory.table(), results.table()
    assert (table.headings, table.rows) == (told.headings, told.rows)
    assert table.remarks == told.remarks[:-1]  # but for the times
    assert memory._repr_html_() == table._repr_html_()
    without = memory.summary()["cases"], results.summary()["cases"]
    assert without[0] == [{k: v for k, v in case.items() if k != "seconds"} for case in without[1]]
    assert not {"open", "draw", "folds", "conclude", "store", "folder"} & set(dir(memory))
    np.testing.assert_array_equal(memory.values("far"), results.values("far"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.compare("a", "x"), "case must be one of"),
        (lambda one: one.compare("a", "b", "size"), "quantity must be one of"),
        (lambda one: one.compare("a", "none"), "quantity must be one that"),
        (lambda one: nrjax.Outcomes({}), "outcomes must be at least one, by name"),
        (lambda one: nrjax.Outcomes({"a": 3}), r"outcomes\['a'\] must be a nrjax.Outcome"),
        (lambda one: outcomes(a=[1.0], b=[1, 2]), "must be the same number in all outcomes"),
        (lambda one: outcomes(a=1.0), r"outcomes\['a'\] must be of one axis"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(outcomes(a=[1.0, 2.0], b=[2.0, 3.0], none=[np.nan, np.nan]))


def test_only_numbers_of_every_trial_are_paired(tmp_path):
    walks = {name: cheap.Walk(np.float32(n)) for n, name in enumerate("ab")}
    results = cheap.study(walks).run(tmp_path, trials=50, progress=False)
    found = results.compare("a", "b", "end")
    assert found.median_difference == pytest.approx(-1, abs=1e-6)
    assert found.smaller.value == 1
    assert found.met == (None, None)
    with pytest.raises(ValueError, match="quantity must be one number a trial"):
        results.compare("a", "b", "path")
    mixed = outcomes(a=[1.0, np.inf, 2.0], b=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="number of every trial of both cases, so that they pair"):
        mixed.compare("a", "b", "stopped_epsilon")
    other = outcomes(a=[1.0, np.inf, 2.0], b=[np.inf, 2.0, 3.0])  # as many, not the same ones
    with pytest.raises(ValueError, match="number of every trial of both cases, so that they pair"):
        other.compare("a", "b", "stopped_epsilon")


def test_what_a_bin_hides_is_no_dominance():
    """Two samples of one law whose values share a bin, which ends for each at its own largest."""
    rng, bins = np.random.default_rng(0), LogBins(0, 10, 7)

    values = (100.25 + 0.1 * rng.uniform(-1, 1, 4000) for _ in range(2))
    one, other = (folded(each, bins) for each in values)
    found = compare._dominance(one, other)
    assert found.verdict == "undecided"
    assert max(found.ahead, found.behind) < 0.05
    lower = folded(99.0 + rng.uniform(-1, 1, 4000), bins)  # negative control
    lower = compare._dominance(lower, other)
    assert lower.verdict == "smaller"
