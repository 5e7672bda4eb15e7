"""Distributions that are known by the counts of bins, and what they share with the trials'."""

import numpy as np
import pytest

import nrjax
from nrjax.simulation import counting
from nrjax.simulation.counting import HistogramSpec
from nrjax.study.histograms import BinnedDistribution

FRACTIONS = (1e-4, 0.05, 0.25, 0.5, 0.75, 0.95, 1)


def binned(values, bins, kind=BinnedDistribution):
    """The distribution of values that NumPy has counted."""
    spec = HistogramSpec("x", None)
    _, moments = counting.count(values, None, np.full(len(values), True), spec)
    if bins is None:
        return kind(None, None, moments)
    counts = np.bincount(np.searchsorted(bins.upper, values), minlength=bins.size)
    return kind(bins, counts.astype(np.int64), moments)


def assert_alike(exact, binned):
    """Check a distribution of histograms against that of the trials."""
    assert (exact.trials, exact.finite) == (binned.trials, binned.finite)
    assert binned.mean == pytest.approx(exact.mean, rel=1e-5, abs=1e-6, nan_ok=True)
    assert binned.std == pytest.approx(exact.std, rel=1e-5, abs=1e-6, nan_ok=True)
    for q in FRACTIONS if exact.trials else ():
        expected, quantile = exact.quantile(q), binned.quantile(q)
        assert quantile >= expected
        assert quantile == pytest.approx(expected, rel=1.001 * binned.resolution, abs=1e-6)


def assert_quantities_alike(kept, short):
    """Check numbers, and moments along levels, and return how many have trials."""
    number = 0
    for case in kept:
        assert kept.statuses(case) == short.statuses(case)
        for quantity, one in short.histograms(case).items():
            if one.dim is None and one.bins is not None:
                exact = kept.distribution(case, quantity)
                assert_alike(exact, short.distribution(case, quantity))
                number += exact.trials > 0
            elif one.bins is None and one.dim is not None:
                for level, values in enumerate(kept[case][quantity].values.T):
                    exact, moments = nrjax.Sample(values[~np.isnan(values)]), one.at(level)
                    assert moments.trials == exact.trials
                    assert moments.mean == pytest.approx(exact.mean, rel=1e-12)
                    number += exact.trials > 0
    return number
