"""Statements of the report of `ligett2017` about known results."""

import numpy as np
import pytest

from nrjax.outcome import Status
from nrjax.papers import ligett2017
from tests.invented import invented


def test_failures_count_as_missed_and_means_are_over_the_trials_that_stopped(tmp_path):
    utility = np.array([-0.05, -0.5, -0.2, np.nan])
    outcome = {
        "utility": utility,
        "excess_risk": -utility,
        "test_epsilon": np.array([1.0, 0.5, 1.0, np.inf]),
        "mechanism_epsilon": np.array([2.0, 9.0, 4.0, 1.0]),
        "norm": np.array([1.0, 3.0, 2.0, np.nan]),
    }
    outcome["epsilon"] = outcome["test_epsilon"] + outcome["mechanism_epsilon"]
    statuses = {
        "some": [Status.STOPPED, Status.EXHAUSTED, Status.STOPPED, Status.NAN_UTILITY],
        "none": [Status.EXHAUSTED] * 4,
    }
    cases = {
        name: ({"goal": -0.1}, outcome | {"status": np.array(status, "int32")})
        for name, status in statuses.items()
    }
    results = invented(tmp_path, cases)
    some, none = (ligett2017.reporting.measure(results, name) for name in statuses)
    assert some["test_epsilon"]["mean"] == 1
    assert some["hypothesis_epsilon"]["mean"] == 3
    assert some["excess_risk"] == {"mean": 0.125, "q95": 0.2, "max": 0.2}
    assert some["norm"]["mean"] == 1.5
    # One of four stopped too early and one failed; the exhausted one falls back on the optimum.
    assert some["missed"]["share"] == 0.5
    assert none["missed"]["share"] == 0
    assert none["excess_risk"] == {"mean": None, "q95": None, "max": None}
    assert none["test_epsilon"] == {"mean": None}


@pytest.fixture
def compare(tmp_path_factory):
    """Return a function that compares methods by their epsilons in each trial."""

    def comparisons(**epsilons):
        cases = {}
        for method, values in epsilons.items():
            status = np.where(np.isinf(values), Status.EXHAUSTED, Status.STOPPED).astype("int32")
            arrays = {"epsilon": values, "status": status, "utility": -np.ones(len(values))}
            cases[method] = ({"task": "ridge", "alpha": 0.1, "method": method}, arrays)
        results = invented(tmp_path_factory.mktemp("paid"), cases)
        return ligett2017.reporting.findings(results)["comparisons"]

    return comparisons


def test_few_trials_decide_nothing(compare):
    for trials, end, cheaper in ((1, None, None), (5, None, None), (6, 1.0, "noise_reduction")):
        ones = np.ones(trials)
        (one,) = compare(noise_reduction=2 * ones, doubling=3 * ones)
        assert (one["difference"], one["interval"]) == (1.0, [end, end])
        assert one["cheaper"] == cheaper


def test_infinite_medians_are_more_expensive_than_finite_ones(compare):
    """Their difference is null but not the verdict, unless both are infinite."""
    some, never = np.arange(1.0, 41), np.full(40, np.inf)
    doubling, theory = compare(noise_reduction=never, doubling=some, theory=never)
    assert doubling["values"] == [None, 20.0]
    assert (doubling["difference"], doubling["interval"]) == (None, [None, None])
    assert doubling["cheaper"] == "doubling"
    assert (theory["difference"], theory["interval"], theory["cheaper"]) == (None, None, None)
    (reverse,) = compare(noise_reduction=some, doubling=never)
    assert reverse["cheaper"] == "noise_reduction"
    half = np.where(some < 21, some, np.inf)  # the median is infinite in many resamples only
    (unclear,) = compare(noise_reduction=some, doubling=half)
    assert unclear["cheaper"] is None
