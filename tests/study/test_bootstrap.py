"""Resampling: exact laws, pairing, infinite values; coverage is tested in test_compare.py."""

import numpy as np
from scipy import stats

from nrjax.study.bootstrap import interval, resampled_quantiles
from nrjax.study.distribution import Sample


def test_the_resampled_median_has_its_exact_law():
    """The r-th of n resampled values is at most the k-th with probability P(Bin(n, k/n) >= r)."""
    values = np.random.default_rng(1).permutation(np.arange(25.0))
    (drawn,) = resampled_quantiles(values, (50,)).T
    k = np.arange(1, 26)
    law = np.diff(stats.binom.sf(12, 25, k / 25), prepend=0.0)
    counts = np.array([(drawn == value).sum() for value in k - 1.0])
    assert counts.sum() == drawn.size == 2000
    likely = law * drawn.size >= 5
    expected = law[likely] * drawn.size
    statistic = np.sum((counts[likely] - expected) ** 2 / expected)
    assert stats.chi2.sf(statistic, likely.sum() - 1) > 1e-3
    # Negative control: the median of another rank does not have that law.
    wrong = np.diff(stats.binom.sf(11, 25, k / 25), prepend=0.0)[likely] * drawn.size
    assert stats.chi2.sf(np.sum((counts[likely] - wrong) ** 2 / wrong), likely.sum() - 1) < 1e-6


def test_an_unsampled_quantile_is_the_order_statistic():
    """Values that are all alike resample to themselves; ranks agree with `quantile`."""
    values = np.repeat(2.5, 40)
    assert np.all(resampled_quantiles(values, (5, 95)) == 2.5)
    ranked = np.arange(1000.0)
    drawn = resampled_quantiles(ranked, (25, 75)).mean(axis=0)
    wanted = [Sample(ranked).quantile(25), Sample(ranked).quantile(75)]
    assert np.abs(drawn - wanted).max() < 4 * np.sqrt(1000 * 0.25 * 0.75 / 2000)


def test_cases_are_resampled_together():
    rng = np.random.default_rng(3)
    common = rng.normal(size=500)
    samples = {"a": common, "b": common + 0.01, "c": rng.permutation(common)}
    drawn = {name: resampled_quantiles(one, (50,))[:, 0] for name, one in samples.items()}
    assert np.std(drawn["b"] - drawn["a"]) < 1e-12
    assert np.std(drawn["c"] - drawn["a"]) > 0.02


def test_infinite_values_are_values():
    values = np.where(np.arange(100) < 50, 1.0, np.inf)
    drawn = resampled_quantiles(values, (50,))
    assert interval(drawn[:, 0]) == (1.0, np.inf)
    assert interval(np.array([1.0, np.nan])) is None
    ends = interval(np.arange(1000.0))
    assert ends == (25.0, 974.0)
