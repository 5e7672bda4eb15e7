"""Distributions that are known by the counts of bins, against NumPy."""

import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.simulation.bins import LogBins
from nrjax.statistics.sample import Sample
from nrjax.study.histograms import BinnedDistribution
from tests.study.binned import FRACTIONS, binned

KEEP = ("trials", "summary")
RESOLUTION = 0.3
SIGNED = LogBins(-8, 6, 5, signed=True)


@pytest.fixture(scope="module")
def values():
    """Values of either sign, with zeros and infinities."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=2000) * np.exp(rng.normal(size=2000))
    drawn[:40], drawn[40:70], drawn[70:75] = 0.0, np.inf, -np.inf
    return drawn


def assert_within_resolution(rough, values):
    """Check that quantiles are those of the values, rounded up by at most a bin."""
    exact = Sample(values)
    for q in FRACTIONS:
        right, found = exact.quantile(q), rough.quantile(q)
        assert found >= right
        if np.isfinite(right) and abs(right) >= 2.0**-8:
            assert found - right <= rough.resolution * abs(right)
        narrow, wide = exact.quantile_interval(q), rough.quantile_interval(q)
        assert wide[0] <= narrow[0]
        assert narrow[1] <= wide[1]


class Middle(BinnedDistribution):
    """A planted fault: order statistics are the middles of bins."""

    def order_statistic(self, rank):
        low, high = super().order_statistic(rank)
        middle = low if np.isinf(low) else (low + high) / 2
        return middle, middle


def test_quantiles_are_within_the_resolution(values):
    assert_within_resolution(binned(values, SIGNED), values)
    positive = np.abs(values)
    assert_within_resolution(binned(positive, LogBins(-8, 6, 5)), positive)
    with pytest.raises(AssertionError):
        assert_within_resolution(binned(values, SIGNED, Middle), values)


def test_counts_are_exact_at_edges(values):
    rough, exact = binned(values, SIGNED), Sample(values)
    edges = SIGNED.upper
    np.testing.assert_array_equal(rough.count_above(edges), exact.count_above(edges))
    between = np.linspace(-5, 5, 1001)
    assert (rough.count_above(between) >= exact.count_above(between)).all()
    largest = values[np.isfinite(values)].max()
    ends = np.array([largest, 1e30])
    np.testing.assert_array_equal(rough.count_above(ends), exact.count_above(ends))
    points = rough.points(50)
    assert 40 <= points.size <= 60
    assert (np.diff(points) > 0).all()
    np.testing.assert_array_equal(rough.below(points), exact.below(points))
    assert rough.points()[-1] == largest
    assert rough.band() == exact.band()
    assert rough.fraction_above_interval(0.5) == exact.fraction_above_interval(0.5)
    for x in between[::50]:
        (low, high), right = (one.fraction_above_interval(x) for one in (rough, exact))
        assert low <= right[0] < right[1] <= high


def test_moments_and_infinite_values(values):
    assert np.isnan(binned(values, SIGNED).mean)
    above = values[values > -np.inf]
    assert binned(above, SIGNED).mean == binned(above, SIGNED).std == np.inf
    finite = values[np.isfinite(values)]
    rough, exact = binned(finite, SIGNED), Sample(finite)
    for name in ("mean", "std", "standard_error", "trials"):
        assert getattr(rough, name) == pytest.approx(getattr(exact, name), rel=1e-12)
    assert rough.mean_interval() == pytest.approx(exact.mean_interval())
    none = binned(finite[:0], SIGNED)
    assert none.trials == none.points().size == 0
    assert np.isnan([none.mean, none.std, none.quantile(0.5)]).all()
    only_infinite = binned(values[40:70], SIGNED)
    assert only_infinite.quantile(0.5) == np.inf
    assert only_infinite.points().size == 0
    alone = binned(finite, None)
    assert alone.mean_interval() == rough.mean_interval()
    with pytest.raises(ValueError, match="Only moments"):
        alone.quantile(0.5)
    with pytest.raises(ValueError, match="values of the moments"):
        BinnedDistribution(SIGNED, np.zeros(SIGNED.size, int), np.ones(13))
