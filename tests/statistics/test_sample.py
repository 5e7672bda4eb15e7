"""Intervals hold with the stated probability, for every law, and infinity is a value."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("xarray")
from nrjax._base.quantiles import rank_of
from nrjax.statistics.intervals import band_width, binomial_interval, rank_interval
from nrjax.statistics.sample import Sample
from tests.statistics.coverage import below_95

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
