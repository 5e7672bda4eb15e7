"""What the findings of `ligett2017` say of results that are known."""

import numpy as np
import pytest

from nrjax.papers import ligett2017
from nrjax.types import Status
from tests.invented import invented


def test_a_goal_that_is_never_met_costs_infinitely_much(tmp_path):
    """Failures count; means of what was paid are over the trials that stopped."""
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
    found, nothing = (ligett2017.reporting.measure(results, name) for name in statuses)
    assert found["test_epsilon"]["mean"] == 1
    assert found["hypothesis_epsilon"]["mean"] == 3
    assert found["excess_risk"] == {"mean": 0.125, "q95": 0.2, "max": 0.2}
    assert found["norm"]["mean"] == 1.5
    # Of all four: one stopped too early, one failed; the exhausted one shows the optimum.
    assert found["missed"]["share"] == 0.5
    assert nothing["missed"]["share"] == 0
    assert nothing["excess_risk"] == {"mean": None, "q95": None, "max": None}
    assert nothing["test_epsilon"] == {"mean": None}


@pytest.fixture
def compared(tmp_path_factory):
    """Comparisons of methods that paid so much in each trial."""

    def made(**epsilons):
        cases = {}
        for method, values in epsilons.items():
            status = np.where(np.isinf(values), Status.EXHAUSTED, Status.STOPPED).astype("int32")
            arrays = {"epsilon": values, "status": status, "utility": -np.ones(len(values))}
            cases[method] = ({"task": "ridge", "alpha": 0.1, "method": method}, arrays)
        results = invented(tmp_path_factory.mktemp("paid"), cases)
        return ligett2017.reporting.findings(results)["comparisons"]

    return made


def test_few_trials_decide_nothing(compared):
    for trials, cheaper in ((1, None), (5, None), (6, "noise_reduction")):
        ones = np.ones(trials)
        (found,) = compared(noise_reduction=2 * ones, doubling=3 * ones)
        assert (found["difference"], found["interval"]) == (1.0, [1.0, 1.0])
        assert found["cheaper"] == cheaper


def test_what_most_trials_never_reach_is_dearer_than_any_price(compared):
    """Differences with infinite medians are null, the verdict is not; two have none."""
    some, never = np.arange(1.0, 41), np.full(40, np.inf)
    doubling, theory = compared(noise_reduction=never, doubling=some, theory=never)
    assert doubling["values"] == [None, 20.0]
    assert (doubling["difference"], doubling["interval"]) == (None, [None, None])
    assert doubling["cheaper"] == "doubling"
    assert (theory["difference"], theory["interval"], theory["cheaper"]) == (None, None, None)
    (turned,) = compared(noise_reduction=some, doubling=never)
    assert turned["cheaper"] == "noise_reduction"
    half = np.where(some < 21, some, np.inf)  # the median is finite, and in many resamples not
    (unclear,) = compared(noise_reduction=some, doubling=half)
    assert unclear["cheaper"] is None
