"""Trials that fail, never stop or stop at once are a warning, once per call and reason."""

import warnings

import jax
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status, describe_failures
from nrjax.simulation.failures import warn_about_trials
from nrjax.simulation.families import Family
from tests.problems import Distance, interaction

FAILED, UNSTOPPED, EARLY = (
    nrjax.FailedTrialsWarning,
    nrjax.NoStopWarning,
    nrjax.FirstLevelWarning,
)
S, E, N, T = Status.STOPPED, Status.EXHAUSTED, Status.NAN_UTILITY, Status.INVALID_TIME
NAN = "NAN_UTILITY (the utility of the last release was NaN)"
TIME = "INVALID_TIME (the next time rose"


def outcome(status, step=5, utility=-0.75):
    status = np.asarray(status, np.int32)
    floats = np.full(status.shape, utility, np.float32)
    return nrjax.Outcome(np.full(status.shape, step, np.int32), *[floats] * 8, status)


def caught(result, trials):
    """Return the warnings about an outcome, as pairs of class and text."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_about_trials(result, trials)
    return [(each.category, str(each.message)) for each in found]


CASES = {
    "none": (outcome([S] * 90 + [E] * 10), {}, []),
    "one failure": (outcome([S, N]), {}, [(FAILED, f"1 of 2 trials failed: {NAN}.")]),
    "two reasons": (
        outcome([N] * 30 + [T] * 7 + [S] * 963),
        {},
        [(FAILED, f"37 of 1,000 trials failed: 30 {NAN}, 7 {TIME}")],
    ),
    "all failed": (outcome([N] * 50), {}, [(FAILED, f"50 of 50 trials failed: {NAN}")]),
    "a target out of reach": (
        outcome([E] * 10),
        {},
        [(UNSTOPPED, "None of 10 trials stopped: the largest utility of a last release is -0.75")],
    ),
    "few trials": (outcome([E] * 9), {}, []),
    "no end on purpose": (outcome([E] * 10), {"threshold": np.inf}, []),
    "a level that is not reached": (outcome([E] * 9 + [N]), {}, [(FAILED, ""), (UNSTOPPED, "")]),
    "early": (outcome([S] * 100, 0), {}, [(EARLY, "100% of 100 trials stopped at the first le")]),
    "early, few trials": (outcome([S] * 99, 0), {}, []),
    "early, few of many": (outcome([S] * 100, [0] * 5 + [1] * 95), {}, []),
    "one level": (outcome([S] * 100, 0), {"max_steps": 1}, []),
    "a private test": (outcome([S] * 100, 0), {"rule": nrjax.AboveThreshold(-0.5, 1.0, 0.5)}, []),
    "early and failed": (outcome([S] * 99 + [N], 0), {}, [(FAILED, "1 of 100"), (EARLY, "99% of")]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_simulation(name):
    result, changes, expected = CASES[name]
    found = caught(result, interaction(**changes))
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert all(
        text.startswith(start) for (_, text), (_, start) in zip(found, expected, strict=True)
    )


def test_a_sweep_names_its_points():
    points = Family.from_interactions([interaction(threshold=float(n)) for n in range(5)])
    status = np.full((5, 100), E, np.int32)
    status[1] = S
    status[3, :4] = N
    step = np.where(np.arange(5)[:, None] == 1, 0, np.full((5, 100), 9))
    failed, unstopped, early = caught(outcome(status, step), points)
    assert failed[0] is FAILED
    assert failed[1].startswith(f"point 3: 4 of 100 trials failed: {NAN}. NAN_UTILITY: Noisy")
    assert unstopped[0] is UNSTOPPED
    text = "none of 100 trials stopped: the largest utility of a last release is -0.75, and the "
    for point in (0, 2, 3):
        assert f"point {point}: {text}threshold is {point:.1f}; " in unstopped[1]
    assert "; and 1 more. Allow larger epsilons" in unstopped[1]
    assert early == (EARLY, early[1])
    assert early[1].startswith("point 1: 100% of 100 trials stopped at the first level. They")


def test_simulate_and_sweep_warn_once_and_mark_the_trials():
    """In whatever number of chunks they run."""
    trial = interaction(threshold=-0.05, utility=Distance(3.0, 12.0))
    batching = nrjax.Batching(tile=16, lanes=32, launch=64, devices=jax.devices()[:1])
    for run, trials in ((nrjax.simulate, trial), (nrjax.sweep, [trial, trial])):
        with pytest.warns(FAILED, match=r"of 200 trials failed: NAN_UTILITY") as found:
            result = run(jax.random.key(3), trials, trials=200, batching=batching)
        (only,) = [each for each in found if each.category is FAILED]
        assert only.filename == __file__
        np.testing.assert_array_equal(result.failed, result.status == N)


def test_every_failure_has_a_hint():
    for status in Status:
        assert status.failed == (status not in (Status.RUNNING, S, E))
        assert status.hint.endswith(".") or not (status.failed or status is E)
    assert describe_failures({S: 3, E: 4, N: 0}) == ""
