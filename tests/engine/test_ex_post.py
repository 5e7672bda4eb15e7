"""Ex-post validity: the realised loss exceeds the stated epsilon with probability at most delta.

This holds under every stopping rule, also one that stops as soon as the loss is exceeded.

The realised loss of a trial is that of its releases and, with a private rule, the log-ratio of the
probabilities of its answers given the releases, by `tests.stopping.oracle`. One row moves the
value by 1 and each utility by at most 1: under x' the utility is 0, under x it is 1 if the loss of
the releases is too large, else -1, so that the stop reveals more.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from tests.problems import Planted
from tests.stopping.oracle import stopping_law

KEY = jax.random.key(11)
COMMON, RARE = 0.3, 1e-6
TRIALS, STEPS, WAITS = 4096, 12, 100
Z = stats.norm.isf(1e-4)


class Excess(nrjax.Utility):
    """The excess of the realised Brownian loss over a level, for f(x) = 0."""

    time: Any
    level: Any
    sensitivity: Any = None
    shift: Any = 1.0

    def evaluate(self, hypothesis):
        return self.shift * (self.shift / 2 + hypothesis) / self.time - self.level


class Alarm(Excess):
    """The utility `size` if the loss is above the level, else `-size`."""

    size: Any = 1.0

    def evaluate(self, hypothesis):
        return jnp.where(super().evaluate(hypothesis) > 0, self.size, -self.size)


def interaction(boundary, times, utility, rule, value=0, sensitivity=None, shift=1.0):
    levels = np.asarray(boundary.epsilon(np.asarray(times)))
    pairs = zip(times, levels, strict=True)
    utilities = [utility(time, level, sensitivity, shift) for time, level in pairs]
    return {
        "value": value,
        "process": nrjax.Brownian(()),
        "guarantee": boundary,
        "schedule": nrjax.Grid(np.asarray(times)),
        "utility": nrjax.UtilitySequence.of(utilities),
        "rule": rule,
        "shift": shift,
    }


def simulated(parts, trials=4 * TRIALS, **changes):
    return nrjax.simulate(KEY, nrjax.Interaction(**parts | changes), trials=trials)


def at_most(hits, delta):
    """Return whether the number of hits is plausible for a probability of at most delta."""
    return stats.binom.sf(np.sum(hits) - 1, np.size(hits), delta) > 1e-4


LINEAR = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, COMMON)
MIXTURE = nrjax.MixtureBoundary.tight_at_epsilon(1.0, 1.0, COMMON)
ONE_SIDED = nrjax.OneSidedMixtureBoundary.tight_at_epsilon(1.0, 1.0, COMMON)


def spanning(boundary, steps, factor=30.0):
    """Times around the one at which the boundary is tight, falling."""
    centre = float(boundary.time(1.0))
    return np.geomspace(factor * centre, centre / factor, steps)


@pytest.mark.parametrize(
    "boundary",
    # The tests below have the line by default.
    [*(pytest.param(one, marks=pytest.mark.long) for one in (LINEAR, MIXTURE)), ONE_SIDED],
    ids=["linear", "two", "one"],
)
def test_a_public_rule_that_waits_for_a_violation(boundary):
    """It stops as soon as the loss is above what the boundary states, and never otherwise."""
    times, rule, stated = spanning(boundary, WAITS), nrjax.PublicThreshold(0.0), Planted(boundary)
    outcome = simulated(interaction(stated, times, Excess, rule))
    violated = outcome.privacy_loss > outcome.epsilon
    stopped = outcome.status == Status.STOPPED
    assert np.mean(violated != stopped) < 1e-3  # the utility and the loss round differently
    assert at_most(violated, COMMON)
    assert violated.mean() > 0.3 * COMMON  # the test can fail: it tries, and comes near
    # Negative control: the loss against a value half as far again is not covered.
    further = simulated(interaction(stated, times, Excess, rule, shift=1.5))
    assert not at_most(further.privacy_loss > further.epsilon, COMMON)


def answers(rule, outcome, utilities, epsilons):
    """Return the log-ratio of the probabilities of each trial's answers given its releases."""
    reduced = isinstance(rule, nrjax.ReducedAboveThreshold)
    at, stopped = outcome.step, outcome.status == Status.STOPPED
    patterns, which = np.unique(utilities, axis=0, return_inverse=True)
    probabilities = []
    for queries, rows in ((patterns, which), (np.zeros((1, STEPS)), np.zeros_like(which))):
        level = epsilons if reduced else float(rule.epsilon)
        stop, none = stopping_law(queries, level, 1.0, float(rule.threshold))
        probabilities.append(np.where(stopped, stop[rows, at], none[rows, at]))
    return np.log(probabilities[0] / probabilities[1])


def realised(rule, size, path):
    """Return outcomes under a rule whose utility moves by `size`, and the loss of the answers."""
    times = spanning(LINEAR, STEPS, 6.0)
    parts = interaction(LINEAR, times, Excess, rule)
    excess = parts["utility"].utilities
    alarms = Alarm(excess.time, excess.level - 0.5, None, excess.shift, np.full(STEPS, size))
    # The stated sensitivity is 1, whatever the true one.
    parts["utility"] = nrjax.UtilitySequence(alarms, sensitivity=1.0)
    outcome = simulated(parts, TRIALS)
    utilities = np.where(path > -0.5, size, -size)
    utilities[np.arange(STEPS) > outcome.step[:, None]] = 0.0  # no further queries
    return outcome, answers(rule, outcome, utilities, np.asarray(LINEAR.epsilon(times)))


@pytest.fixture(scope="module")
def path():
    """The excess of the loss over the boundary at all steps, also after the stop."""
    parts = interaction(LINEAR, spanning(LINEAR, STEPS, 6.0), Excess, nrjax.PublicThreshold(np.inf))

    @jax.jit
    @jax.vmap
    def utility(number):
        return nrjax.scan_path(nrjax.trial_key(KEY, number), nrjax.Interaction(**parts)).utility

    return np.asarray(utility(jnp.arange(TRIALS)))


RULES = {
    "above": lambda threshold: nrjax.InteractiveAboveThreshold(threshold, 1.0, 2.0),
    "reduced": lambda threshold: nrjax.ReducedAboveThreshold(threshold, 1.0),
}


@pytest.mark.long
@pytest.mark.parametrize("rule", ["above", "reduced"])
def test_private_rules_on_brownian_releases(rule, path):
    outcome, loss = realised(RULES[rule](0.0), 1.0, path)
    assert 0.3 < np.mean(outcome.status == Status.STOPPED) < 0.999
    assert np.all(loss <= outcome.test_epsilon * (1 + 1e-5))
    assert np.max(loss / outcome.test_epsilon) > 0.5
    assert at_most(outcome.privacy_loss + loss > outcome.epsilon, COMMON)
    # Negative control: a utility that moves by more than it states.
    outcome, loss = realised(RULES[rule](20.0), 20.0, path)
    assert not at_most(outcome.privacy_loss + loss > outcome.epsilon, COMMON)


@pytest.mark.long
def test_laplace_releases_never_exceed_their_epsilon():
    """The guarantee is pure, and the rule stops at the largest possible loss."""
    pure = nrjax.PureGuarantee(1.0)
    times = np.geomspace(5.0, 0.1, 60)
    parts = interaction(pure, times, Excess, nrjax.PublicThreshold(-1e-6))
    outcome = simulated(parts, process=nrjax.Laplace(()), guarantee=Planted(pure))
    assert np.all(outcome.privacy_loss <= outcome.epsilon)
    assert np.mean(outcome.privacy_loss > 0.999 * outcome.epsilon) > 0.3
    # Negative control: a sensitivity stated too small by a tenth.
    wrong = simulated(parts, process=nrjax.Laplace(()), guarantee=Planted(pure, 0.9))
    assert np.mean(wrong.privacy_loss > wrong.epsilon) > 0.3


def rare_violation(boundary, times):
    """Return mean and error of P(a loss exceeds the boundary), by noise shifted by 2b."""
    shift = 2 * float(np.asarray(boundary.b))
    parts = interaction(boundary, times, Excess, nrjax.PublicThreshold(0.0), value=shift)
    outcome = simulated(parts)
    stopped = outcome.status == Status.STOPPED
    time = outcome.time.astype(float)
    score = np.exp(-shift * outcome.release / time + shift**2 / (2 * time))
    score = np.where(stopped, score, 0.0)
    return score.mean(), score.std(ddof=1) / np.sqrt(score.size)


@pytest.mark.long
def test_a_violation_at_a_small_delta():
    """Tilted sampling for delta = 1e-6: the rule is met often, with a small weight each time."""
    boundary = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, RARE)
    times = spanning(boundary, WAITS)
    mean, error = rare_violation(boundary, times)
    assert mean - Z * error <= RARE
    assert mean > 0.3 * RARE
    assert error < 0.02 * mean
    # Negative control: a line that is lower by a tenth, for the same stated delta.
    a, b = (0.9 * float(np.asarray(one)) for one in (boundary.a, boundary.b))
    lower = nrjax.LinearBoundary(1.0, float(np.exp(-2 * a * b)), a, b)
    mean, error = rare_violation(lower, times)
    assert mean - Z * error > RARE


@pytest.mark.long
def test_tilted_sampling_agrees_with_counting():
    times = spanning(LINEAR, WAITS)
    mean, error = rare_violation(LINEAR, times)
    outcome = simulated(interaction(LINEAR, times, Excess, nrjax.PublicThreshold(0.0)))
    hits = outcome.status == Status.STOPPED
    spread = np.hypot(error, hits.std(ddof=1) / np.sqrt(hits.size))
    assert abs(hits.mean() - mean) < 4 * spread
