"""Looking again and again at a median that is one of few levels: how often it ends with another."""

import numpy as np
import pytest

pytest.importorskip("xarray")
from nrjax.simulation.bins import LogBins
from nrjax.simulation.sketches import Fold
from nrjax.study import precision
from nrjax.study.distribution import Sample
from nrjax.study.sketched import Sketched


def kept_as(keep, counts):
    """The distribution of as many trials at each of a grid's levels, 1, 2, ..."""
    values = np.arange(1, len(counts) + 1)
    if keep == "trials":
        return Sample(np.repeat(values.astype(np.int8), counts))
    bins, at = LogBins(-1, 3, 6), np.repeat(values, np.minimum(counts, 1))
    placed = np.zeros(bins.size, np.int64)
    placed[np.searchsorted(bins.upper, values)] = counts
    return Sketched(Fold(bins=bins), placed, np.array([sum(counts), 0, 0, at[0], at[-1], 0, 0, 0]))


def wrong_alone(keep, looks, runs=20_000):
    """In which share of runs the look that ends one sees a level that is not the median alone.

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
    """Within four standard errors of 5 %; the 95 % interval at every look has many times that."""
    assert wrong_alone(keep, looks) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 20_000)
    monkeypatch.setattr(
        precision, "median_error", lambda one: np.ptp(one.quantile_interval(50)) / 2 / 1.96
    )
    assert wrong_alone(keep, looks) > 0.2
