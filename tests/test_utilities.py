"""Utilities that differ by step, checks of rule against utility, and bounds from a release."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status
from tests.problems import Ceiled, Distance, interaction, scalar

pytestmark = pytest.mark.bits

KEY = jax.random.key(0)


class Sensitive(Distance):
    """A distance with a sensitivity."""

    sensitivity: Any = 0.5


TARGETS = np.array([30.0, -20.0, 3.0, 10.0, 4.0])


def five(**changes):
    """Five steps with different targets."""
    utilities = nrjax.UtilitySequence.of([Sensitive(target) for target in TARGETS])
    parts = scalar(np.geomspace(1.0, 0.01, 5), threshold=np.inf) | {"utility": utilities} | changes
    return nrjax.Interaction(**parts)


@pytest.mark.long
def test_each_step_is_judged_by_its_own_utility():
    path = nrjax.scan_path(KEY, five())
    np.testing.assert_allclose(path.utility, -np.abs(path.release - TARGETS), rtol=1e-6)
    trial = five(rule=nrjax.PublicThreshold(-2.0))
    every = nrjax.simulate(KEY, trial, trials=100)
    # Releases near 3 are near the third target, which no earlier one would have shown.
    assert np.all(every.step == 2)
    np.testing.assert_allclose(every.utility, -np.abs(every.release - 3.0), rtol=1e-5)
    one = nrjax.run_until(nrjax.trial_key(KEY, 7), trial)
    np.testing.assert_allclose(one.release, every.release[7], rtol=1e-5)


def test_the_largest_sensitivity_counts():
    sequence = nrjax.UtilitySequence.of([Sensitive(1.0, sensitivity=s) for s in (0.1, 0.7, 0.3)])
    assert (sequence.sensitivity, sequence.max_steps) == (0.7, 3)
    assert nrjax.UtilitySequence.of([Distance(1.0)]).sensitivity is None
    assert nrjax.UtilitySequence.of([Distance(1.0)], sensitivity=2.0).sensitivity == 2.0


STRICT = Sensitive(1.0, sensitivity=10.0)


@pytest.mark.parametrize(
    ("utilities", "sensitivity", "message"),
    [
        ([], None, r"utilities must be at least one"),
        ([Distance(1.0), Distance(np.ones(2))], None, "must be of one class and one set of shapes"),
        ([Distance(1.0), Sensitive(1.0)], None, "must be of one class and one set of shapes"),
        ([Distance(1.0)], 0.0, r"sensitivity must be positive"),
        ([STRICT], 0.1, r"sensitivity must be at least 10, which one of the utilities"),
    ],
)
def test_bad_sequences_are_named(utilities, sensitivity, message):
    with pytest.raises(ValueError, match=message):
        nrjax.UtilitySequence.of(utilities, sensitivity)


PRIVATE = nrjax.AboveThreshold(np.inf, 0.5, 1.0)
STATED_TOO_LOW = nrjax.UtilitySequence(Sensitive(TARGETS, np.full(5, np.inf), TARGETS), 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": nrjax.Grid(np.geomspace(1.0, 0.1, 6))},
            "steps of the utility must be at least 6",
        ),
        ({"rule": nrjax.PublicThreshold(np.zeros(4))}, "steps of the rule must be at least 5"),
        (
            {"rule": nrjax.AboveThreshold(0.0, 0.4, 1.0)},
            r"sensitivity of the rule must be at least 0\.5, the sensitivity of the util",
        ),
        (
            {"utility": STATED_TOO_LOW, "rule": nrjax.AboveThreshold(0.0, 0.1, 1.0)},
            r"sensitivity of the rule must be at least 30",
        ),
        (
            {"utility": Sensitive(3.0, sensitivity=None), "rule": PRIVATE},
            "utility must state its sensitivity, on which the cost of AboveThreshold",
        ),
        (
            {"rule": nrjax.ReducedAboveThreshold(0.0, 0.5), "guarantee": None},
            "guarantee must be given: ReducedAboveThreshold sets its noise by",
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        five(**changes)


@pytest.mark.long
def test_rules_that_fit_are_accepted():
    assert nrjax.run_until(KEY, five(rule=PRIVATE)).status == Status.EXHAUSTED
    longer = five(schedule=nrjax.Grid(np.geomspace(1.0, 0.1, 9)), max_steps=5)
    assert nrjax.run_until(KEY, longer).step == 4
    # A number that has been through float32 may be a little smaller.
    rule = nrjax.AboveThreshold(np.inf, np.float32(0.1), 1.0)
    utility = Sensitive(3.0, sensitivity=0.1 + 1e-9)
    assert nrjax.run_until(KEY, five(rule=rule, utility=utility)).step == 4


def test_a_nan_utility_voids_the_cost_of_a_private_rule():
    broken = Distance(3.0, broken=-1e6)  # NaN from the first release on
    rules = nrjax.AboveThreshold(0.0, 0.5, 1.0), nrjax.PublicThreshold(0.0)
    for rule, charged in zip(rules, (np.inf, 0.0), strict=True):
        outcome = nrjax.run_until(KEY, interaction(utility=broken, rule=rule))
        assert (outcome.status, outcome.test_epsilon) == (Status.NAN_UTILITY, charged)
        assert outcome.epsilon == outcome.mechanism_epsilon + charged


def outcomes_with(utility, rule, **changes):
    batching = nrjax.Batching(tile=4, lanes=16, inner_steps=3)
    trial = interaction(utility=utility, rule=rule, **changes)
    return nrjax.simulate(KEY, trial, trials=300, batching=batching)


RULES = (
    nrjax.PublicThreshold(-0.5),
    pytest.param(nrjax.ReducedAboveThreshold(-0.5, 0.2), marks=pytest.mark.long),
    nrjax.PublicThreshold(1.0),  # never met: every lane ends on a release that was not assessed
)


@pytest.mark.filterwarnings("ignore::nrjax.NoStopWarning")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_bounds_from_a_release_change_nothing(rule):
    plain = outcomes_with(Distance(3.0), rule)
    for slack in (0.0, 0.3, 100.0):
        chex.assert_trees_all_equal(outcomes_with(Ceiled(3.0, slack=slack), rule), plain)
    # Negative control: a bound that is too low is believed.
    if rule.threshold < 0:
        low = outcomes_with(Ceiled(3.0, slack=-0.4), rule)
        assert np.mean(low.step != plain.step) > 0.1


@pytest.mark.filterwarnings("ignore::nrjax.FailedTrialsWarning")
@pytest.mark.filterwarnings("ignore::nrjax.NoStopWarning")
def test_a_nan_below_a_bound_is_found():
    rule = nrjax.PublicThreshold(-0.05)
    plain = outcomes_with(Distance(3.0, broken=2.9), rule)
    assert np.mean(plain.status == Status.NAN_UTILITY) > 0.3
    bounded = outcomes_with(Ceiled(3.0, broken=2.9, slack=0.5), rule)
    chex.assert_trees_all_equal(bounded, plain)


class Limited(nrjax.Brownian):
    """Noise that overflows beyond 12, and has no law at times above 100."""

    def status(self, state):
        large = jnp.where(jnp.abs(state.value) > 12, Status.OVERFLOW, Status.RUNNING)
        return jnp.where(state.time > 100, Status.INVALID_TIME, large).astype(jnp.int32)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::nrjax.FailedTrialsWarning", "ignore::nrjax.NoStopWarning")
@pytest.mark.parametrize(
    ("start", "failed"), [(100.0, Status.OVERFLOW), (200.0, Status.INVALID_TIME)]
)
def test_trials_that_fail_are_assessed_too(start, failed):
    """Overflowing noise and a start without a time end between two checks of the lanes."""
    changes = {
        "process": Limited(()),
        "schedule": nrjax.Grid(np.geomspace(start, 0.01, 50)),
        "rule": nrjax.PublicThreshold(1.0),
    }
    plain = outcomes_with(Distance(3.0), **changes)
    chex.assert_trees_all_equal(outcomes_with(Ceiled(3.0), **changes), plain)
    assert np.any(plain.status == failed)
    assert not np.any(plain.status == Status.STOPPED)


def test_python_numbers_adopt_the_dtype_of_the_value():
    """In float64 too: the default bounds are Python's infinities."""
    found = nrjax.run_until(jax.random.key(0), interaction(value=np.float32(3)))
    assert found.release.dtype == np.float32
