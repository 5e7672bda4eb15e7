"""Paired intervals of quantiles hold with the stated probability, whatever the pairs."""

from functools import partial

import numpy as np
import pytest
from scipy import special

from nrjax.statistics.paired import paired_interval
from nrjax.statistics.sample import Sample
from tests.statistics.coverage import below_95

REPEATS = 300


def iqr_difference(low, high, other_low, other_high):
    return (high - low) - (other_high - other_low)


def medians(function, samples):
    return paired_interval(samples, (0.5, 0.5), (1, -1), function)


def ranges(samples):
    repeated = [samples[0], samples[0], samples[1], samples[1]]
    return paired_interval(repeated, (0.25, 0.75) * 2, (-1, 1, 1, -1), iqr_difference)


INTERVALS = {
    "difference": partial(medians, np.subtract),
    "ratio": partial(medians, np.divide),
    "ranges": ranges,
}


def exponential(uniform, scale=1.0):
    return -scale * np.log1p(-uniform)


def levels(uniform, ends, scale=1.0):
    """Return few values, which change where the distribution function is one of `ends`."""
    return scale * (1 + np.digitize(uniform, ends, right=True))


HIGH = 1.5 * np.log(2)
COARSE, FINE = partial(levels, ends=(0.2, 0.49, 0.8)), (0.3, 0.505, 0.9)
LAWS = {  # two functions of uniform numbers
    "exponential": (exponential, partial(exponential, scale=1.5)),
    "levels": (COARSE, partial(levels, ends=FINE, scale=3.0)),
    "mixed": (exponential, partial(levels, ends=FINE, scale=100.0)),
}
TRUTHS = {
    ("exponential", "difference"): np.log(2) - HIGH,
    ("exponential", "ratio"): 1 / 1.5,
    ("exponential", "ranges"): np.log(3) - 1.5 * np.log(3),
    ("levels", "difference"): 3 - 6,
    ("levels", "ratio"): 3 / 6,
    ("levels", "ranges"): (3 - 2) - (9 - 3),
    ("mixed", "difference"): np.log(2) - 200,
    ("mixed", "ratio"): np.log(2) / 200,
    ("mixed", "ranges"): np.log(3) - 200,
}


def drawn(rng, law, trials, correlation):
    """Return paired samples, made of uniform numbers with a correlation of their normals."""
    first, other = rng.normal(size=(2, trials))
    second = correlation * first + np.sqrt(1 - correlation**2) * other
    return [
        function(special.ndtr(normal))
        for function, normal in zip(LAWS[law], (first, second), strict=True)
    ]


def intervals_of(law, trials, correlation, of, prepare=lambda samples: samples):
    """Return the ends of the intervals of many paired samples, shape (2, REPEATS)."""
    rng = np.random.default_rng(5)
    samples = (prepare(drawn(rng, law, trials, correlation)) for _ in range(REPEATS))
    return np.transpose([INTERVALS[of](each) for each in samples])


@pytest.mark.parametrize(
    ("law", "trials", "correlation", "of"),
    [
        ("exponential", 20, 0.0, "difference"),
        ("exponential", 400, 0.9, "ratio"),
        ("exponential", 400, 1.0, "difference"),
        ("exponential", 400, 0.7, "ranges"),
        ("levels", 50, 1.0, "difference"),
        ("levels", 200, 0.7, "ratio"),
        ("levels", 50, 0.9, "ranges"),
        ("mixed", 200, 0.0, "difference"),
        ("mixed", 50, 0.95, "ratio"),
    ],
)
def test_intervals_hold(law, trials, correlation, of):
    low, high = intervals_of(law, trials, correlation, of)
    truth = TRUTHS[law, of]
    assert not below_95((low <= truth) & (truth <= high))


def test_planted_faults_are_found():
    low, high = intervals_of("exponential", 400, 0.0, "difference")
    truth = TRUTHS["exponential", "difference"]
    assert below_95(np.abs(truth - (low + high) / 2) <= (high - low) / 4)  # half the width
    # Sorted samples look as if they depended on each other.
    as_sorted = partial(map, np.sort)
    short, long = intervals_of("exponential", 400, 0.0, "difference", lambda x: [*as_sorted(x)])
    assert below_95((short <= truth) & (truth <= long))


def test_intervals_are_no_longer_than_they_must_be():
    """Their width is that of a normal interval, and pairs make them shorter."""
    rng, trials = np.random.default_rng(6), 10_000
    ends, torn, differences = [], [], []
    for _ in range(150):
        first, second = drawn(rng, "exponential", trials, 0.9)
        ends.append(INTERVALS["difference"]([first, second]))
        torn.append(INTERVALS["difference"]([first, rng.permutation(second)]))
        differences.append(np.median(first) - np.median(second))
    normal = 2 * 1.96 * np.std(differences)  # known to within 5 %, its standard error
    assert 0.8 < np.mean(np.ptp(ends, axis=1)) / normal < 1.25
    assert np.mean(np.ptp(ends, axis=1)) < 0.7 * np.mean(np.ptp(torn, axis=1))


@pytest.mark.parametrize("trials", [1, 5, 6, 40, 1001])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9])
def test_one_sample_has_the_exact_interval_of_its_quantile(trials, fraction):
    values = np.random.default_rng(trials).permutation(trials).astype("float32")
    values[values > 0.7 * trials] = np.inf
    found = paired_interval([values], (fraction,), (1,), lambda quantile: quantile)
    assert found == Sample(values).quantile_interval(fraction)
    # So has a difference from a constant, and from a multiple of the same trials.
    constant = [values, np.full(trials, 2.0)]
    if trials > 6 and fraction == 0.5:
        assert INTERVALS["difference"](constant) == (found[0] - 2, found[1] - 2)
        low, high = INTERVALS["ratio"]([values + 1, 2 * (values + 1)])
        assert low <= 0.5 <= high < 0.6


def test_undefined_functions_have_no_interval():
    half = np.where(np.arange(100) < 50, 1.0, np.inf)
    assert INTERVALS["difference"]([half, np.ones(100)]) == (0, np.inf)
    assert INTERVALS["difference"]([half, half]) is None
    few = np.arange(5.0)  # too few trials for either end of a median
    assert INTERVALS["difference"]([few, few]) == (-np.inf, np.inf)
