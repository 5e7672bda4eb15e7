"""Utilities that differ by step, and what a rule and a utility promise each other at the door."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.types import Status
from tests.problems import Distance, scalar

KEY = jax.random.key(0)


class Sensitive(Distance):
    """A distance that one row moves by at most `sensitivity`."""

    sensitivity: Any = 0.5


class Priced(nrjax.StoppingRule):
    """A rule that charges its own price."""

    threshold: Any
    price: Any = 0.25

    def init(self, key, epsilon):
        return ()

    def step(self, key, state, epsilon, utility):
        return state, utility >= self.threshold

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.full_like(epsilon, self.price)


class Breaking(Priced):
    """Loses its law at a step, and charges by its answer."""

    at: Any = 3

    def init(self, key, epsilon):
        return jnp.int32(0)

    def step(self, key, state, epsilon, utility):
        return state + 1, utility >= self.threshold

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.where(stopped, self.price, self.price / 2)

    def status(self, state):
        return jnp.where(state > self.at, Status.INVALID_TIME, Status.RUNNING)


TARGETS = np.array([30.0, -20.0, 3.0, 10.0, 4.0])


def five(**changes):
    """Five steps, each with a target of its own."""
    utilities = nrjax.UtilitySequence.of([Sensitive(target) for target in TARGETS])
    times = np.geomspace(1.0, 0.01, 5)
    return scalar(times, threshold=np.inf) | {"utility": utilities} | changes


def test_each_step_is_judged_by_its_own_utility():
    path = nrjax.scan_path(KEY, nrjax.Interaction(**five()))
    np.testing.assert_allclose(path.utility, -np.abs(path.release - TARGETS), rtol=1e-6)
    every = nrjax.simulate(
        KEY, nrjax.Interaction(**five(rule=nrjax.PublicThreshold(-2.0))), trials=100
    )
    # Releases near 3 are near the third target, which no earlier one would have shown.
    assert np.all(every.step == 2)
    np.testing.assert_allclose(every.utility, -np.abs(every.release - 3.0), rtol=1e-5)
    one = nrjax.run_until(
        nrjax.trial_key(KEY, 7), nrjax.Interaction(**five(rule=nrjax.PublicThreshold(-2.0)))
    )
    np.testing.assert_allclose(one.release, every.release[7], rtol=1e-5)


def test_lanes_in_tiles_use_the_utility_of_their_own_step():
    """Trials under way together are at different steps."""
    utilities = nrjax.UtilitySequence.of([Distance(3.0 + 0.01 * n) for n in range(50)])
    parts = scalar() | {"utility": utilities, "rule": nrjax.PublicThreshold(-0.8)}
    batching = nrjax.Batching(tile=2, lanes=8, inner_steps=3)
    outcome = nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=60, batching=batching)
    assert len(np.unique(outcome.step)) > 5
    wanted = -np.abs(outcome.release - (3.0 + 0.01 * outcome.step))
    np.testing.assert_allclose(outcome.utility, wanted, rtol=1e-4, atol=1e-5)


def test_the_largest_sensitivity_counts():
    sequence = nrjax.UtilitySequence.of([Sensitive(1.0, sensitivity=s) for s in (0.1, 0.7, 0.3)])
    assert sequence.sensitivity == 0.7
    assert sequence.max_steps == 3
    assert nrjax.UtilitySequence.of([Distance(1.0)]).sensitivity is None
    assert nrjax.UtilitySequence.of([Distance(0.0)]).max_steps == 1
    assert nrjax.UtilitySequence.of([Distance(1.0)], sensitivity=2.0).sensitivity == 2.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nrjax.UtilitySequence.of([]), r"utilities = \[\]: must be at least one"),
        (
            lambda: nrjax.UtilitySequence.of([Distance(1.0), Distance(np.ones(2))]),
            "must be of one class and one set of shapes",
        ),
        (
            lambda: nrjax.UtilitySequence.of([Distance(1.0), Sensitive(1.0)]),
            "must be of one class and one set of shapes",
        ),
        (
            lambda: nrjax.UtilitySequence.of([Distance(1.0)], sensitivity=0.0),
            r"sensitivity = 0\.0: must be positive",
        ),
        (
            lambda: nrjax.UtilitySequence.of([Sensitive(1.0, sensitivity=10.0)], sensitivity=0.1),
            r"sensitivity = 0\.1: must be at least 10, which one of the utilities states",
        ),
    ],
)
def test_bad_sequences_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


PRIVATE = nrjax.AboveThreshold(np.inf, 0.5, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": nrjax.Grid(np.geomspace(1.0, 0.1, 6))}, "for 5 steps: must cover the 6"),
        ({"rule": nrjax.PublicThreshold(np.zeros(4))}, "for 4 steps: must cover the 5"),
        (
            {"rule": nrjax.AboveThreshold(0.0, 0.4, 1.0)},
            r"sensitivity of the rule = 0\.4: must be at least 0\.5, the sensitivity of the util",
        ),
        (
            {
                "utility": nrjax.UtilitySequence(
                    Sensitive(TARGETS, np.full(5, np.inf), TARGETS), 0.1
                ),
                "rule": nrjax.AboveThreshold(0.0, 0.1, 1.0),
            },
            r"sensitivity of the rule = 0\.1: must be at least 30",
        ),
        (
            {"utility": Sensitive(3.0, sensitivity=None), "rule": PRIVATE},
            "must state its sensitivity for AboveThreshold",
        ),
        (
            {"rule": nrjax.ReducedAboveThreshold(0.0, 0.5), "guarantee": None},
            "guarantee = None: ReducedAboveThreshold sets its noise by",
        ),
    ],
)
def test_promises_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        nrjax.run_until(KEY, nrjax.Interaction(**five(**changes)))


def test_promises_that_fit_are_accepted():
    assert nrjax.run_until(KEY, nrjax.Interaction(**five(rule=PRIVATE))).status == Status.EXHAUSTED
    longer = {"schedule": nrjax.Grid(np.geomspace(1.0, 0.1, 9)), "max_steps": 5}
    assert nrjax.run_until(KEY, nrjax.Interaction(**five(**longer))).step == 4
    # Through float32 and back: the same number, a little smaller.
    rule = nrjax.AboveThreshold(np.inf, np.float32(0.1), 1.0)
    utility = Sensitive(3.0, sensitivity=0.1 + 1e-9)
    assert nrjax.run_until(KEY, nrjax.Interaction(**five(rule=rule, utility=utility))).step == 4


def test_a_rule_that_fails_ends_the_trial_and_is_charged_for_noes():
    outcome = nrjax.run_until(KEY, nrjax.Interaction(**five(rule=Breaking(np.inf))))
    assert (outcome.status, outcome.step) == (Status.INVALID_TIME, 3)
    assert outcome.test_epsilon == 0.125
    assert (
        nrjax.run_until(KEY, nrjax.Interaction(**five(rule=Breaking(-np.inf)))).test_epsilon == 0.25
    )
    assert nrjax.run_until(KEY, nrjax.Interaction(**five(rule=Priced(np.inf)))).test_epsilon == 0.25


def test_a_nan_utility_is_not_covered_by_what_a_private_rule_states():
    broken = Distance(3.0, broken=-1e6)  # NaN from the first release on
    for rule, charged in ((Priced(0.0), np.inf), (nrjax.PublicThreshold(0.0), 0.0)):
        outcome = nrjax.run_until(KEY, nrjax.Interaction(**scalar(utility=broken, rule=rule)))
        assert outcome.status == Status.NAN_UTILITY
        assert outcome.test_epsilon == charged
        assert outcome.epsilon == outcome.mechanism_epsilon + charged


class Bounded(Distance):
    """Knows a bound of itself: the distance, less `slack`; a negative slack is a false promise."""

    slack: Any = 0.3

    def ceiling(self, release):
        return self.evaluate(release) + self.slack


def outcomes_with(utility, rule, trials=300, **changes):
    batching = nrjax.Batching(tile=4, lanes=16, inner_steps=3)
    parts = scalar() | {"utility": utility, "rule": rule} | changes
    return nrjax.simulate(KEY, nrjax.Interaction(**parts), trials=trials, batching=batching)


RULES = (
    nrjax.PublicThreshold(-0.5),
    pytest.param(nrjax.ReducedAboveThreshold(-0.5, 0.2), marks=pytest.mark.long),
    nrjax.PublicThreshold(1.0),  # never: every lane ends on a release that was not assessed
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_ceiling_spares_work_and_changes_nothing(rule):
    plain = outcomes_with(Distance(3.0), rule)
    for slack in (0.0, 0.3, 100.0):
        bounded = outcomes_with(Bounded(3.0, slack=slack), rule)
        jax.tree.map(np.testing.assert_array_equal, bounded, plain)
    # Negative control: a ceiling that is too low is believed.
    if rule.threshold < 0:
        low = outcomes_with(Bounded(3.0, slack=-0.4), rule)
        assert np.mean(low.step != plain.step) > 0.1


def test_a_nan_under_a_ceiling_is_found():
    utility = {"broken": 2.9, "slack": 0.5}
    plain = outcomes_with(Distance(3.0, broken=2.9), nrjax.PublicThreshold(-0.05))
    bounded = outcomes_with(Bounded(3.0, **utility), nrjax.PublicThreshold(-0.05))
    assert np.mean(plain.status == Status.NAN_UTILITY) > 0.3
    jax.tree.map(np.testing.assert_array_equal, bounded, plain)


def test_trials_that_fail_are_assessed_too():
    """Overflowing noise, and starts without a time, end between two looks."""
    jumps = nrjax.LaplaceJumps((), 0.01, 100.0, size=6)
    for start in (100.0, 200.0):
        schedule = nrjax.Grid(np.geomspace(start, 0.01, 30))
        changes = {
            "process": jumps,
            "guarantee": nrjax.PureGuarantee(1.0),
            "schedule": schedule,
        }
        rule = nrjax.PublicThreshold(1.0)
        plain = outcomes_with(Distance(3.0), rule, **changes)
        bounded = outcomes_with(Bounded(3.0), rule, **changes)
        jax.tree.map(np.testing.assert_array_equal, bounded, plain)
        assert np.any(plain.status != Status.EXHAUSTED)
        assert not np.any(plain.status == Status.STOPPED)
