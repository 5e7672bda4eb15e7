"""Intervals hold with the stated probability, for every law, and infinity is a value."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
from nrjax.study import bootstrap
from nrjax.study.bootstrap import interval, resampled_quantiles
from nrjax.study.statistics import Sample, band_width, binomial_interval, rank_interval, rank_of

REPEATS, SIZE = 4000, 60
LAWS = {
    "exponential": stats.expon(),
    "few values": stats.binom(3, 0.4),  # quantiles at atoms
}


@pytest.fixture(scope="module")
def samples():
    """REPEATS sorted samples of SIZE values, by law."""
    rng = np.random.default_rng(0)
    drawn = {name: law.rvs((REPEATS, SIZE), random_state=rng) for name, law in LAWS.items()}
    return {name: np.sort(values.astype(float), axis=1) for name, values in drawn.items()}


def those_that_hold(ordered, law, q, narrower=0):
    """Return which intervals hold the true quantile, after both ends move inwards."""
    low, high = rank_interval(SIZE, q)
    ends = np.pad(ordered, [(0, 0), (1, 1)], constant_values=[(0, 0), (-np.inf, np.inf)])
    true = law.ppf(q)
    return (ends[:, low + narrower] <= true) & (true <= ends[:, high - narrower])


def below_95(hits):
    """Return whether a fraction of hits is below 95 % by more than four standard errors."""
    return np.mean(hits) < 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(hits))


def test_quantile_intervals_hold_and_planted_narrower_ones_do_not(samples):
    for name, law in LAWS.items():
        for q in (0.05, 0.25, 0.5, 0.95):
            assert not below_95(those_that_hold(samples[name], law, q))
    of_one = samples["exponential"], LAWS["exponential"]
    assert all(below_95(those_that_hold(*of_one, q, 2)) for q in (0.25, 0.5))


def farthest(ordered, law):
    """Return the largest distance of each sample's distribution function from the law's."""
    found = np.empty(len(ordered))
    for number, values in enumerate(ordered):
        above = np.searchsorted(values, values, side="right") / SIZE
        below = np.searchsorted(values, values, side="left") / SIZE
        before = law.cdf(values) - (law.pmf(values) if hasattr(law.dist, "pmf") else 0)
        found[number] = max(np.max(above - law.cdf(values)), np.max(before - below))
    return found


def test_the_band_holds_the_whole_function_and_a_planted_narrower_one_does_not(samples):
    """A tenth narrower already fails where the law is continuous: Massart's constant is tight."""
    assert band_width(1000) == pytest.approx(np.sqrt(np.log(40) / 2000))
    assert band_width(1) == band_width(0) == 1.0
    apart = farthest(samples["exponential"], LAWS["exponential"])
    few = farthest(samples["few values"][:1000], LAWS["few values"])
    for distance in (apart, few):
        assert not below_95(distance <= band_width(SIZE))
    assert below_95(apart <= 0.9 * band_width(SIZE))


def test_ranks_are_those_of_a_printed_table():
    """Conover 1999, table A3, and David & Nagaraja 2003: nonparametric limits of the median."""
    table = {6: (1, 6), 8: (1, 8), 10: (2, 9), 15: (4, 12), 20: (6, 15), 25: (8, 18), 50: (18, 33)}
    assert {size: rank_interval(size, 0.5) for size in table} == table
    assert rank_interval(5, 0.5) == (0, 6)  # 2 (1/2)^5 is above 5 %


def test_ranks_are_exact():
    """Neither tail is above 2.5 %, and a rank further in would make it so."""
    for size, q in itertools.product((1, 7, 100, 1000), (0.05, 0.5, 0.99, 1 - 1e-6)):
        assert rank_of(size, q) == max(1, np.ceil(size * q - 1e-9))
        low, high = rank_interval(size, q)
        count = stats.binom(size, q)  # of values up to the quantile
        assert (count.cdf(low - 1) <= 0.025) & (count.cdf(low) > 0.025 if low < size else True)
        assert (count.sf(high - 1) <= 0.025) & (count.sf(high - 2) > 0.025 if high > 1 else True)
    # Cheap, too, of very many trials.
    size = 4 * 10**9
    ends = size / 2 + 1.959964 * np.sqrt(size / 4) * np.array([-1, 1])
    assert np.abs(rank_interval(size, 0.5) - ends).max() < 3


def test_exact_binomial_intervals():
    """Intervals are those of Clopper & Pearson's chart, and two that follow by hand."""
    np.testing.assert_allclose(binomial_interval(0, 10), (0, 0.3085), atol=5e-5)
    np.testing.assert_allclose(binomial_interval(3, 10), (0.0667, 0.6525), atol=5e-5)
    np.testing.assert_allclose(binomial_interval(10, 10), (0.6915, 1), atol=5e-5)
    assert binomial_interval(1, 1)[0] == pytest.approx(0.025)
    assert binomial_interval(0, 0) == (0, 1)
    assert binomial_interval(0, 10**9)[1] == pytest.approx(-np.log(0.025) / 1e9, rel=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 19, 20, 21, 100, 1000])
def test_quantiles_are_order_statistics(count):
    """Quantiles satisfy their definition, with half of the values infinite."""
    values = np.random.default_rng(count).permutation(count).astype("float32")
    values[values > count / 2] = np.inf
    sample = Sample(values)
    for percent in (5, 25, 50, 75, 95, 100):
        got = sample.quantile(percent / 100)
        assert got in values
        assert 100 * np.sum(values <= got) >= percent * count
        assert 100 * np.sum(values < got) < percent * count


def test_infinite_values_are_values():
    sample = Sample(np.array([1.0, np.inf, 2.0, np.inf]))
    assert sample.quantile([0.5, 0.51, 0.75]).tolist() == [2, np.inf, np.inf]
    # Negative control: the usual quantile is not a value.
    with np.errstate(invalid="ignore"):
        assert np.quantile([1.0, 2.0, np.inf, np.inf], 0.5) != 2.0
    assert sample.mean == sample.std == sample.standard_error == np.inf
    assert np.isnan(sample.mean_interval()).all()
    assert sample.finite == 0.5
    assert sample.quantile_interval(0.5) == (-np.inf, np.inf)
    np.testing.assert_array_equal(sample.points(), [1.0, 2.0])
    none = Sample(np.full(100, np.inf))
    assert none.quantile_interval(0.5) == (np.inf, np.inf)
    assert none.points().size == none.finite == 0


def test_one_value_none_and_nan():
    one = Sample(np.array([3.0]))
    assert (one.quantile(0.05), one.quantile(0.95), one.mean, one.std) == (3, 3, 3, 0)
    assert one.quantile_interval(0.5) == (-np.inf, np.inf)
    assert one.band() == 1.0
    assert np.isnan(one.mean_interval()).all()
    assert one.standard_error == np.inf
    # 12.706 is Student's 97.5 % point at 1 degree of freedom.
    ends = Sample(np.array([1.0, 3.0], "float32")).mean_interval()
    assert ends == pytest.approx((2 - 12.706, 2 + 12.706), rel=1e-4)
    nothing = Sample(np.empty(0))
    assert np.isnan([nothing.quantile(0.5), nothing.mean, nothing.std, nothing.finite]).all()
    assert nothing.quantile_interval(0.5) == (-np.inf, np.inf)
    assert np.isnan(nothing.mean_interval()).all()
    assert nothing.fraction_above_interval(1.0) == (0, 1)
    with pytest.raises(ValueError, match="values must be numbers"):
        Sample(np.array([1.0, np.nan]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_counts_and_moments_are_those_of_numpy(dtype):
    values = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 50, 1000).astype(dtype)
    if dtype.startswith("float"):
        values += np.asarray(0.1, dtype)
    sample = Sample(values)
    x = np.array([-np.inf, -1, 0, 0.1, float(np.float32(0.1)), 7.1, 25, 1e300, np.inf])
    wide = values.astype(float)
    np.testing.assert_array_equal(sample.count_above(x), [np.sum(wide > one) for one in x])
    np.testing.assert_allclose(sample.below(x), [np.mean(wide <= one) for one in x])
    assert sample.fraction_above(25) == np.mean(wide > 25)
    edges = np.array([-1, 0.5, 7, 49, 60])
    counts = sample.histogram(edges)
    assert counts.tolist() == [
        np.sum((wide > low) & (wide <= high)) for low, high in itertools.pairwise(edges)
    ]
    assert sample.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert sample.std == pytest.approx(wide.std(), rel=1e-12)
    ends = stats.t.interval(0.95, 999, wide.mean(), wide.std(ddof=1) / np.sqrt(1000))
    assert sample.mean_interval() == pytest.approx(ends, rel=1e-9)
    assert sample.points(5)[[0, -1]].tolist() == [wide.min(), wide.max()]
    # In float64, whatever their dtype.
    many = Sample(np.full(3_000_000, 0.1, "float32"))
    assert many.mean == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_the_resampled_median_has_its_exact_law():
    """The r-th of n resampled values is at most the k-th with probability P(Bin(n, k/n) >= r)."""
    values = np.random.default_rng(1).permutation(np.arange(25.0))
    drawn = resampled_quantiles(values, (0.5,))
    assert drawn.shape == (2000, 1)
    counts = np.array([(drawn == value).sum() for value in np.arange(25.0)])

    def probability(rank):  # of a chi-squared test against the law of that rank
        law = np.diff(stats.binom.sf(rank - 1, 25, np.arange(1, 26) / 25), prepend=0.0)
        expected = 2000 * law[likely]
        return stats.chi2.sf(np.sum((counts[likely] - expected) ** 2 / expected), likely.sum() - 1)

    likely = 2000 * np.diff(stats.binom.sf(12, 25, np.arange(1, 26) / 25), prepend=0.0) >= 5
    assert probability(13) > 1e-3
    assert probability(12) < 1e-6  # negative control


def test_resampled_quantiles_are_order_statistics_of_the_same_trials():
    rng, values = np.random.default_rng(3), np.arange(1000.0)
    middle = resampled_quantiles(values, (0.25, 0.75)).mean(axis=0)
    wanted = [Sample(values).quantile(0.25), Sample(values).quantile(0.75)]
    assert np.abs(middle - wanted).max() < 4 * np.sqrt(1000 * 0.25 * 0.75 / 2000)
    # Two cases are resampled together, by one seed: so their differences are paired.
    common = rng.normal(size=500)
    cases = common, common + 0.01, rng.permutation(common)
    first, near, other = (resampled_quantiles(one, (0.5,)) for one in cases)
    assert np.std(near - first) < 1e-12
    assert np.std(other - first) > 0.02
    values = np.where(np.arange(100) < 50, 1.0, np.inf)
    assert interval(resampled_quantiles(values, (0.5,))[:, 0]) == (1.0, np.inf)
    assert interval(np.array([1.0, np.nan])) is None
    assert interval(np.arange(1000.0)) == (25.0, 974.0)


def test_groups_of_trials_are_resampled_as_trials_are(monkeypatch):
    """Medians and paired differences of two cases have the same spread, with ties too."""
    rng = np.random.default_rng(4)
    first, other = rng.exponential(size=(2, 4000))
    cases = {"apart": (first, 1.5 * np.where(rng.uniform(size=4000) < 0.7, first, other))}
    cases["levels"] = tuple(np.ceil(8 * one) / 8 for one in cases["apart"])
    cases["torn"] = cases["apart"][0], rng.permutation(cases["apart"][1])
    found = {}
    for drawn in (4000, 1000):
        monkeypatch.setattr(bootstrap, "_DRAWN", drawn)
        for name, pair in cases.items():
            one, two = (resampled_quantiles(each, (0.25, 0.5, 0.75)) for each in pair)
            found[name, drawn] = one, two - one
    for name in ("apart", "levels"):
        for exact, grouped in zip(found[name, 4000], found[name, 1000], strict=True):
            # Of 1000 groups and 2000 resamples a spread is known to within 3 %, four times.
            np.testing.assert_allclose(grouped.std(axis=0), exact.std(axis=0), 0.12, 0.005)
            assert np.abs(grouped.mean(axis=0) - exact.mean(axis=0)).max() < exact.std() / 5
    monkeypatch.undo()  # of many trials, too, whose median moves by sqrt(trials) / 2 ranks
    many = resampled_quantiles(np.arange(200_000.0), (0.5,))
    assert many.shape == (2000, 1)
    assert many.std() == pytest.approx(np.sqrt(200_000) / 2, rel=0.1)
    # Planted: pairs torn apart know less of the difference.
    exact, torn = found["apart", 4000][1], found["torn", 1000][1]
    assert (torn.std(axis=0) > 1.12 * exact.std(axis=0)).all()


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (95, r"q must be a fraction from 0 to 1.*\(got 95\)\. For percentages type 0\.95\.$"),
        (99.9, r"type 0\.999\.$"),
        ([5, 50, 95], r"type \[0\.05, 0\.5, 0\.95\]\.$"),
        (200, r"must be a fraction from 0 to 1, or an array of fractions \(got 200\)\.$"),
        *((one, "must be a fraction") for one in (-0.1, np.nan, "50", None, [[0.5], [1, 2]], True)),
    ],
)
def test_quantiles_are_of_fractions(q, message):
    sample = Sample(np.arange(1, 101.0))
    for call in (sample.quantile, sample.quantile_interval, Sample([]).quantile):
        with pytest.raises(ValueError, match=message):
            call(q)
    assert (sample.quantile(0), sample.quantile(1), sample.quantile(0.9)) == (1, 100, 90)
    np.testing.assert_array_equal(sample.quantile([[0.05, 0.5], [0.9, 1]]), [[5, 50], [90, 100]])
    with pytest.raises(ValueError, match="q must be one fraction"):
        sample.quantile_interval([0.5])


@pytest.mark.parametrize(
    ("level", "message"),
    [(95, r"type 0\.95\.$"), (1.0, "strictly between"), (0, "strictly"), (-1, "level must be")],
)
def test_levels_are_fractions(level, message):
    sample = Sample(np.arange(1, 101.0))
    calls = sample.quantile_interval, sample.fraction_above_interval
    for call in (*(partial(each, 0.5) for each in calls), sample.mean_interval, sample.band):
        with pytest.raises(ValueError, match=message):
            call(level)


@pytest.mark.parametrize("values", ["abc", None, [1, 2, "3"], [[1], [1, 2]], [1, None], [1j]])
def test_a_sample_is_of_numbers(values):
    with pytest.raises(ValueError, match=r"values must be numbers, infinite ones included"):
        Sample(values)
