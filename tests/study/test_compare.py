"""Comparisons of two cases: intervals hold their level, and dominance is not imagined."""

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
import nrjax
from nrjax._base.keys import study_key
from nrjax.simulation.bins import LogBins
from nrjax.statistics.paired import paired_interval
from nrjax.study import compare, figures
from nrjax.study.formats import upper
from tests.statistics.coverage import below_95
from tests.study import cheap
from tests.study.binned import binned
from tests.study.cheap import outcomes


def exponentials(rng, trials=400):
    """Return two samples of means 1 and 1.5, from common numbers in most of the trials."""
    first, second = rng.exponential(size=(2, trials))
    return first, 1.5 * np.where(rng.uniform(size=trials) < 0.7, first, second)


def test_the_paired_interval_is_that_of_the_medians():
    rng = np.random.default_rng(7)
    first, second = exponentials(rng)
    both = outcomes(a=first, b=second)
    low, high = compare.interval_of(both, "a", "b")
    assert (low, high) == paired_interval([first, second], (0.5, 0.5), (1, -1), np.subtract)
    assert low < -0.5 * np.log(2) < high
    assert compare.interval_of(both, "a", "b", of="ratio")[1] < 1
    assert compare.interval_of(both, "a", "b", of="iqr")[1] < 0
    shuffled = compare.interval_of(outcomes(a=first, b=rng.permutation(second)), "a", "b")
    assert high - low < 0.9 * (shuffled[1] - shuffled[0])


def test_fractions_of_pairs_cover_the_truth():
    """Exponentials of means 1 and 1.5: the first is smaller with probability 0.6."""
    rng, ends = np.random.default_rng(8), []
    for _ in range(300):
        both = outcomes(a=rng.exponential(size=100), b=rng.exponential(1.5, size=100))
        ends.append(compare._paired(both, "a", "b", "epsilon")[1].interval)
    low, high = np.transpose(ends)
    assert not below_95((low <= 0.6) & (high >= 0.6))
    assert below_95((low <= 0.5) & (high >= 0.5))


def frequency(verdict, draw, band=1.0):
    """Return how often two samples get a verdict."""
    rng, verdicts = np.random.default_rng(9), []
    for _ in range(300):
        first, second = map(nrjax.Sample, draw(rng))
        excess, deficit, width = compare._dominance(first, second)
        verdicts.append(compare.Dominance(excess, deficit, band * width).verdict)
    return np.mean(np.array(verdicts) == verdict)


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
def test_equal_distributions_are_undecided_and_others_are_found(verdict, draw):
    assert frequency(verdict, draw) >= (0.95 if verdict == "undecided" else 1)


def test_a_planted_narrower_band_imagines_differences():
    assert frequency("undecided", exponential, band=0.4) < 0.9


def test_differences_by_rounding_are_none():
    """One level may differ by rounding, but a difference a hundred times as large counts."""
    levels = np.repeat([0.6, 1.2, np.inf], 200)
    for off, verdict, share in ((5e-15, "undecided", 0.0), (5e-13, "smaller", 2 / 3)):
        comparison = outcomes(a=levels, b=levels * (1 + off)).compare("a", "b")
        shares = comparison.smaller.value, comparison.larger.value
        assert shares == (pytest.approx(share), 0)
        assert comparison.dominance.verdict == verdict
        assert (comparison.median_difference == 0) == (share == 0)


def test_the_fields_and_the_text_of_a_comparison():
    rng = np.random.default_rng(1)
    first, second = exponentials(rng, 2000)
    utility = {"a": np.where(np.arange(2000) < 1500, 0.0, -1.0), "b": np.zeros(2000)}
    both = outcomes({"a": -0.5, "b": -0.5}, utility, a=first, b=second)
    comparison = both.compare("a", "b")
    medians = comparison.medians
    assert medians == (np.sort(first)[999], np.sort(second)[999])
    assert comparison.median_difference == medians[0] - medians[1]
    low, high = comparison.median_interval
    assert low < comparison.median_difference < high < 0
    assert comparison.difference.mean == pytest.approx(np.mean(first - second))
    assert comparison.smaller.value == np.mean(first < second)
    assert comparison.larger.value == np.mean(first > second)
    excess = stats.ks_2samp(first, second, alternative="greater").statistic
    assert comparison.dominance.max_cdf_excess == pytest.approx(excess)
    assert comparison.met == (0.75, 1.0)
    for words in (
        "stopping_epsilon of a against b:",
        f"medians {upper(medians[0])} and {upper(medians[1])}, difference",
        f"smaller in {np.mean(first < second):.1%} of the trials",
        "a is stochastically smaller, as far as these trials show",
        "not of the same accuracy: the goal was met in 75 % and 100 % of the trials",
        "so do not conclude from these numbers that a is better",
    ):
        assert words in str(comparison)
    opposite = both.compare("b", "a")
    assert (opposite.smaller, opposite.larger) == (comparison.larger, comparison.smaller)
    assert opposite.dominance.verdict == "larger"
    alike = str(outcomes(a=first, b=second).compare("a", "b"))
    assert "accuracy" not in alike
    assert "conclude" not in alike


def test_a_comparison_states_that_one_epsilon_leaves_out_the_decision_to_stop():
    rng = np.random.default_rng(3)
    both = outcomes(a=16 + 1e-3 * rng.uniform(size=200), b=rng.uniform(size=200))
    assert both.compare("a", "b").public_tests is None
    for case, is_public in (("a", False), ("b", True)):
        both.cases[case].attributes["public_test"] = is_public
    tested = both.compare("a", "b")
    assert tested.public_tests == (False, True)
    assert both.compare("a", "b", "step").public_tests is None
    assert "the epsilon of a covers the decision to stop, that of b does not" in str(tested)
    assert "so do not conclude from these numbers that b is better" in str(tested)
    assert "decision to stop" not in str(tested._replace(public_tests=None))
    # An interval with a width has two ends that differ as texts.
    narrow = tested._replace(median_difference=-16.0, median_interval=(-16.002, -15.9996))
    assert "difference -16 (95 %: -16.002 to -16)" in str(narrow)
    exact = tested._replace(median_difference=0.0, median_interval=(0.0, 0.0))
    assert "difference 0 (95 %: 0 to 0)" in str(exact)


def test_infinite_values_and_trials_without_one():
    many = outcomes(a=[1, 2, np.inf, np.inf, np.inf], b=[2, np.inf, 3, np.inf, np.inf])
    comparison = many.compare("a", "b")
    assert comparison.medians == (np.inf, np.inf)
    assert np.isnan(comparison.median_difference)
    assert comparison.median_interval is None
    assert comparison.difference.quantile([0.3, 0.6, 1]).tolist() == [-np.inf, -1, np.inf]
    assert (comparison.smaller.value, comparison.larger.value) == (0.4, 0.2)
    # A trial that did not stop has no shortfall: of the others, a missed by 2 and b by 1.
    paid, utility = np.where(np.arange(1000) < 600, 1.0, np.inf), np.full(1000, -1.0)
    short = outcomes({"a": 1.0, "b": 0.0}, dict.fromkeys("ab", utility), a=paid, b=paid)
    comparison = short.compare("a", "b", "shortfall")
    assert comparison.medians == (2, 1)
    assert comparison.median_interval is None
    assert comparison.difference.trials == 600
    assert comparison.larger.value == 0.6


def test_results_of_a_study_and_outcomes_in_memory_agree(tmp_path):
    cases = {"near": cheap.interaction(), "far": cheap.interaction(-2.0)}
    results = cheap.study(cases).run(tmp_path, trials=300, progress=False)
    key = study_key(0)
    memory = nrjax.Outcomes(
        {name: nrjax.simulate(key, trial, trials=300) for name, trial in cases.items()},
        {"near": -0.5, "far": -2.0},
        dict.fromkeys(cases, "probabilistic"),
    )
    stored, held = (frame.compare("near", "far") for frame in (results, memory))
    assert str(stored) == str(held)
    assert stored._replace(difference=None) == held._replace(difference=None)
    equal = np.mean(results.values("near") == results.values("far"))
    assert stored.larger.value == 1 - stored.smaller.value - equal
    assert stored.smaller.value == 0  # common random numbers: the lower threshold stops earlier
    assert memory.statuses("near") == results.statuses("near")
    assert repr(memory) == "Outcomes of 300 trials of near, far"
    assert set(memory.plot()) == set(figures.standard(results))
    table, stored_table = memory.table(), results.table()
    assert (table.headings, table.rows) == (stored_table.headings, stored_table.rows)
    assert table.remarks == stored_table.remarks
    (public, _) = stored_table.uncovered
    assert public.startswith("Public test: epsilon does not cover the decision to stop (all cases)")
    assert "This does not cover the decision to stop." in stored_table.answer
    assert memory._repr_html_() == table._repr_html_()
    summaries = [frame.summary()["cases"] for frame in (memory, results)]
    for case in summaries[1]:
        del case["seconds"], case["public_test"]
    assert summaries[0] == summaries[1]
    assert not {"open", "histograms", "write_figures", "write_reports", "store"} & set(dir(memory))
    np.testing.assert_array_equal(memory.values("far"), results.values("far"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda both: both.compare("a", "x"), "case must be one of"),
        (lambda both: both.compare("a", "b", "size"), "quantity must be one of"),
        (lambda both: both.compare("a", "none"), "quantity must be one that"),
        (lambda both: nrjax.Outcomes({}), "outcomes must be at least one, by name"),
        (lambda both: nrjax.Outcomes({"a": 3}), r"outcomes\['a'\] must be a nrjax.Outcome"),
        (lambda both: outcomes(a=[1.0], b=[1, 2]), "must be the same number in all outcomes"),
        (lambda both: outcomes(a=1.0), r"outcomes\['a'\] must be of one axis"),
        # Trials that do not pair: another number of them, and as many of others.
        (lambda both: both.compare("a", "b", "stopped_epsilon"), "of every trial of both cases"),
        (lambda both: both.compare("b", "c", "stopped_epsilon"), "of every trial of both cases"),
    ],
)
def test_cases_that_cannot_be_compared_are_refused(call, message):
    nan, inf = np.nan, np.inf
    with pytest.raises(ValueError, match=message):
        call(outcomes(a=[1.0, 2.0, 3.0], b=[2.0, inf, 3.0], c=[inf, 2.0, 3.0], none=[nan] * 3))


def test_only_numbers_per_trial_are_paired(tmp_path):
    walks = {name: cheap.Walk(np.float32(n)) for n, name in enumerate("ab")}
    results = cheap.study(walks).run(tmp_path, trials=50, progress=False)
    comparison = results.compare("a", "b", "end")
    assert comparison.median_difference == pytest.approx(-1, abs=1e-6)
    assert comparison.smaller.value == 1
    assert comparison.met == (None, None)
    with pytest.raises(ValueError, match="quantity must be one number per trial"):
        results.compare("a", "b", "path")


def test_differences_within_a_bin_are_no_dominance():
    """Two samples of one distribution share a bin, which ends for each at its largest value."""
    rng, bins = np.random.default_rng(0), LogBins(0, 10, 7)
    first, second = (binned(100.25 + 0.1 * rng.uniform(-1, 1, 4000), bins) for _ in range(2))
    dominance = compare._dominance(first, second)
    assert dominance.verdict == "undecided"
    assert max(dominance.max_cdf_excess, dominance.max_cdf_deficit) < 0.05
    lower = binned(99.0 + rng.uniform(-1, 1, 4000), bins)  # negative control
    assert compare._dominance(lower, second).verdict == "smaller"
