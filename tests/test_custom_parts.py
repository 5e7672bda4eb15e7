"""Custom parts: results that an interface forbids, costs, states and bounds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status
from tests.custom import GUARANTEE, LARGEST, Costs, Counting, Part, run
from tests.problems import Ceiled, Distance, Planted, interaction, scalar

KEY = jax.random.key(3)
LIMITS = jnp.finfo(jnp.result_type(float))


def step_gives(answer):
    return lambda step, *arguments: answer(*step(*arguments))


def twice(method, *arguments):
    return jnp.stack([method(*arguments)] * 2)


class Indexed(Distance):
    """A utility with an index that should be static."""

    place: int = 0

    def evaluate(self, hypothesis):
        return jnp.stack([hypothesis, hypothesis])[self.place]


PARTS = {
    "process": nrjax.Brownian(()),
    "guarantee": GUARANTEE,
    "schedule": nrjax.Grid([4.0, 2.0]),
    "utility": Distance(3.0),
    "rule": nrjax.PublicThreshold(-0.5),
}
RULE = PARTS["rule"]

RESULTS = [
    ("process", "value", twice, r"must be a scalar, .* \(got float"),
    ("process", "rewind", lambda f, k, s, t: f(k, s, t).value, "must be of the form of the first"),
    ("process", "status", lambda f, s: None, r"must be a scalar, an integer \(got None\)"),
    ("process", "init", lambda f, k, t: t.item(), "must work under a trace"),
    ("guarantee", "epsilon", twice, r"epsilon of guarantee Part must .*got float"),
    ("guarantee", "epsilon", lambda f, t: "0.1", r"must be a scalar.*got '0.1'"),
    ("schedule", "init", lambda f: f()[1], r"must be \(state, time\)"),
    ("schedule", "next", lambda f, s, r: f(s, r)[:2], r"must be \(state, time, done\)"),
    ("schedule", "next", lambda f, s, r: (*f(s, r)[:2], 0.0), "done from next of schedule Part"),
    ("utility", "evaluate", twice, r"must be a scalar, float.*got float(32|64)\[2\]"),
    ("utility", "evaluate", lambda f, h: None, "evaluate of utility Part must be a scalar"),
    ("utility", "hypothesis", lambda f, r: r @ r, "hypothesis.* must work under a trace"),
    ("utility", "bounds", lambda f, h: (0, 0), "bounds.* must work under a trace.*rounding"),
    ("utility", "bounds_from_release", lambda f, r: 0, r"must be \(lower, upper\)"),
    ("rule", "step", step_gives(lambda s, stop: (s, 1.0 * stop)), "must be a scalar, a bool"),
    ("rule", "step", step_gives(lambda s, stop: stop), r"must be \(state, stop\)"),
    ("rule", "step", step_gives(lambda s, stop: (s + 0.5, stop)), "form of the first state"),
    ("rule", "cost", lambda f, e, *_: jnp.stack([e, e]), "cost of rule Part must be a scalar"),
    ("rule", "cost", lambda f, e: e, "cost.* must work under a trace"),
    ("rule", "status", lambda f, s: 0.5, "status of rule Part must be a scalar, an integer"),
]


@pytest.mark.parametrize(("part", "method", "replacement", "message"), RESULTS)
def test_each_part_gives_what_its_interface_says(part, method, replacement, message):
    with pytest.raises(ValueError, match=rf"(?s){part} Part.*must") as error:
        interaction(**{part: Part(PARTS[part], method, replacement)})
    assert error.match(rf"(?s){message}")


def test_an_index_must_be_static():
    with pytest.raises(ValueError, match=r"evaluate\(.*\) of utility Indexed.*declare an index"):
        interaction(utility=Indexed(3.0))


class Assigning(nrjax.Utility):
    """A utility with a constructor that assigns, which a frozen dataclass refuses."""

    target: Any

    def __init__(self, target):
        self.target = target

    def evaluate(self, hypothesis):
        return hypothesis


def test_a_constructor_that_assigns_is_refused_with_advice():
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"'target': Assigning is.*__post_"):
        Assigning(3.0)


class Numbered(nrjax.Brownian):
    """A process whose state and status contain Python numbers."""

    def init(self, key, time):
        return super().init(key, time), 0, 1.5, True

    def rewind(self, key, state, time):
        return super().rewind(key, state[0], time), state[1] + 1, *state[2:]

    def value(self, state):
        return super().value(state[0])

    def status(self, state):
        return 0


def test_python_numbers_may_be_states_and_leaves():
    parts = {"rule": Counting(), "process": Numbered(())}
    trial = interaction([4.0, 3.0, 2.0, 1.0], **parts)
    assert nrjax.run_until(KEY, trial).step == 2
    np.testing.assert_array_equal(nrjax.simulate(KEY, trial, trials=5).step, 2)
    rule = Part(RULE, "status", lambda f, s: Status.RUNNING)
    assert run(rule=rule).status == Status.STOPPED
    assert interaction(utility=Distance(2**40)).utility.target == 2.0**40
    assert interaction(utility=Distance(-LARGEST)).utility.target == -float(LARGEST)
    eps = float(LIMITS.eps)  # a cost may fall by rounding
    interaction(guarantee=Costs(lambda time: 1 + 4 * eps * jnp.cos(time)))


@jax.jit
def run_planted(factor, delta_sensitivity=0.0):
    boundary = dataclasses.replace(GUARANTEE, sensitivity=1.0 + delta_sensitivity)
    return run(threshold=-1e-3, guarantee=Planted(boundary, factor))


class Priced(nrjax.PublicThreshold):
    """A rule with an invalid price."""

    price: Any = nrjax.static(default=-1.0)

    def __post_init__(self):
        pass

    def cost(self, epsilon, stopped=True, answers=1):
        return self.price + 0 * epsilon


def test_invalid_costs_end_the_trial():
    """Traced numbers can be checked in the run only, where they become a status."""
    assert run_planted(1.0).status != Status.INVALID_COST
    broken = [
        run_planted(-1.0),
        run_planted(np.nan),
        run_planted(1.0, -3.0),  # a negative sensitivity
        run(rule=Priced(-0.5)),
        run(rule=Priced(-0.5, np.nan)),
    ]
    for outcome in broken:
        assert (outcome.status, outcome.epsilon) == (Status.INVALID_COST, np.inf)


class Bounded(Distance):
    """A utility with bounds `width` below and above, inverted if the width is negative."""

    width: Any = 0.2
    sensitivity: Any = 0.01

    def bounds(self, hypothesis, *, rounding=True):
        exact = self.evaluate(hypothesis)
        return exact - self.width, exact + self.width


class TwoInARow(nrjax.PublicThreshold):
    """Stops at the second good release in a row, so that the state depends on the utility."""

    def step(self, key, state, epsilon, utility):
        good = utility >= self.threshold
        count = jnp.where(good, state % 1000 + 1, 0)
        return count.astype(jnp.int32), count >= 2


class Patience(nrjax.PublicThreshold):
    """Stops when the best utility has not risen for three releases."""

    def init(self, key, epsilon):
        return jnp.full_like(epsilon, -jnp.inf), jnp.int32(0)

    @jax.jit
    def step(self, key, state, epsilon, utility):
        best, waited = state
        waited = jnp.where(utility > best, 0, waited + 1)
        return (jnp.maximum(best, utility), waited), waited >= 3


class Referring(TwoInARow):
    """Keeps the count of `TwoInARow` in a mutable array."""

    def step(self, key, state, epsilon, utility):
        count = jax.new_ref(state)
        count[...] = super().step(key, state, epsilon, utility)[0]
        return count[...], count[...] >= 2


@pytest.mark.parametrize(
    ("rule", "utility"),
    [
        (TwoInARow(-0.5), Bounded(3.0)),
        (Patience(0.0), Bounded(3.0)),
        (Referring(-0.5), Ceiled(3.0)),
    ],
    ids=["two", "patience", "ref"],
)
def test_bounds_do_not_determine_a_state_that_follows_the_utility(rule, utility):
    parts = scalar(np.geomspace(30.0, 0.05, 30), rule=rule, utility=utility)
    assert not nrjax.Interaction(**parts).bounds_decide
    assert nrjax.Interaction(**parts | {"rule": RULE}).bounds_decide


@pytest.mark.long
@pytest.mark.parametrize("rule", [TwoInARow(-0.5), Patience(0.0), Referring(-0.5)])
def test_simulations_evaluate_the_utility_for_such_a_state(rule):
    trial = interaction(np.geomspace(30.0, 0.05, 30), rule=rule, utility=Bounded(3.0))
    many = nrjax.simulate(KEY, trial, trials=400)
    keys = jax.vmap(lambda number: nrjax.trial_key(KEY, number))(jnp.arange(400))
    alone = jax.vmap(lambda key: nrjax.run_until(key, trial))(keys)
    np.testing.assert_array_equal(many.step, alone.step)
    assert len(np.unique(many.step)) > 3


def test_inverted_bounds_end_the_trial():
    inverted = Bounded(3.0, width=-0.2)
    planted = Planted(GUARANTEE)
    for rule, cost in ((RULE, 0.0), (nrjax.AboveThreshold(-0.5, 0.01, 0.5), np.inf)):
        trial = interaction(rule=rule, utility=inverted, guarantee=planted)
        with pytest.warns(nrjax.FailedTrialsWarning, match="INVALID_BOUNDS"):
            outcome = nrjax.simulate(KEY, trial, trials=4)
        assert np.all(outcome.status == Status.INVALID_BOUNDS)
        np.testing.assert_array_equal(outcome.test_epsilon, cost)
    sound = interaction(rule=RULE, utility=inverted, guarantee=planted)
    factor = sound.guarantee.factor  # negated behind the back of the constructor
    unsound = jax.tree.map(lambda leaf: -leaf if leaf is factor else leaf, sound)
    with pytest.warns(nrjax.FailedTrialsWarning, match="INVALID_COST"):
        outcome = nrjax.simulate(KEY, unsound, trials=4)
    assert np.all(outcome.status == Status.INVALID_COST)
    assert np.all(outcome.epsilon == np.inf)
