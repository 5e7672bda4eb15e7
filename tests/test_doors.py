"""Bad input: argument, value, and words that the message must have; one row each."""

import dataclasses
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.stopping import first_yes
from nrjax.types import Status
from tests.problems import Ceiled, Distance, Planted, interaction, scalar

KEY = jax.random.key(3)


def run(key=KEY, *given, **changes):
    return nrjax.run_until(key, interaction(*given, **changes))


def simulate(trials, **changes):
    return nrjax.simulate(KEY, interaction(**changes), trials=trials)


OBJECTS = (None, "a", np.array([None]), np.array(["1"]), 1j, [1.0, 2.0])
X, Y = np.ones((4, 2)) / 2, np.array([1.0, -1.0, 1.0, -1.0])
PURE = nrjax.PureGuarantee(1.0)

NUMBERS = [
    ("sensitivity", nrjax.PureGuarantee),
    ("sensitivity", lambda bad: nrjax.LinearBoundary(bad, 1e-6, 1.0, 10.0)),
    ("delta", lambda bad: nrjax.LinearBoundary(1.0, bad, 1.0, 10.0)),
    ("rho", lambda bad: nrjax.MixtureBoundary(1.0, 1e-6, bad)),
    ("sensitivity", lambda bad: nrjax.AboveThreshold(0.0, bad, 0.5)),
    ("epsilon", lambda bad: nrjax.AboveThreshold(0.0, 1.0, bad)),
    ("epsilon", lambda bad: nrjax.LaplaceTests(0.0, 1.0, bad)),
    ("sensitivity", lambda bad: nrjax.ReducedAboveThreshold(0.0, bad)),
]
CALLS = [
    ("threshold", nrjax.PublicThreshold),
    ("threshold", lambda bad: nrjax.AboveThreshold(bad, 1.0, 1.0)),
    ("labels", lambda bad: LogisticProblem.fit(X, bad, 0.1)),
    ("labels", lambda bad: RidgeProblem.fit(X, bad, 0.1)),
    ("features", lambda bad: RidgeProblem.fit(bad, Y, 0.1)),
    ("regularisation", lambda bad: LogisticProblem.fit(X, Y, bad)),
    ("low", lambda bad: nrjax.Grid.geometric(PURE, bad, 1.0, 5)),
    ("high", lambda bad: nrjax.Grid.linear(PURE, 0.1, bad, 5)),
    ("guarantee", lambda bad: nrjax.Grid.linear(bad, 0.1, 1.0, 5)),
    ("times", nrjax.Grid),
    ("epsilon", lambda bad: nrjax.LinearBoundary.tight_at_epsilon(bad, 1.0, 1e-6)),
    ("delta", lambda bad: nrjax.MixtureBoundary.tight_at_time(1.0, 1.0, bad)),
    ("epsilon", PURE.time),
    ("time", PURE.epsilon),
    ("rate1", lambda bad: nrjax.Skellam((), bad, 1.0)),
    ("eta", lambda bad: nrjax.LaplaceJumps((), bad, 2.0)),
    ("rule", lambda bad: first_yes(KEY, bad, [1.0])),
    ("utilities", lambda bad: first_yes(KEY, nrjax.PublicThreshold(0.0), bad)),
    ("epsilons", lambda bad: first_yes(KEY, nrjax.ReducedAboveThreshold(0.0, 1.0), [1.0], bad)),
    ("value", lambda bad: interaction(value=bad)),
    ("max_steps", lambda bad: interaction(max_steps=bad or "")),
    ("trials", simulate),
    ("key", run),
    ("process", lambda bad: interaction(process=bad)),
]


@pytest.mark.parametrize(
    ("name", "call", "objects"),
    [*[(*row, OBJECTS) for row in NUMBERS], *[(*row, OBJECTS[:3]) for row in CALLS]],
)
def test_what_is_no_number_is_named(name, call, objects):
    for bad in objects:
        with pytest.raises(ValueError, match=rf"^{name} (must|has shape)"):
            call(bad)


def Part(other, name, gives):
    """Another part, of which one method, or field, gives something else."""

    def replaced(self, *arguments):
        return gives(partial(getattr(type(other), name), self), *arguments)

    part = object.__new__(type("Part", (type(other),), {name: replaced}))
    for field in dataclasses.fields(other):
        value = gives if field.name == name else getattr(other, field.name)
        object.__setattr__(part, field.name, value)
    return part


def step_gives(answer):
    return lambda step, *arguments: answer(*step(*arguments))


def twice(method, *arguments):
    return jnp.stack([method(*arguments)] * 2)


PARTS = {
    "process": nrjax.Brownian(()),
    "guarantee": scalar()["guarantee"],
    "schedule": nrjax.Grid([4.0, 2.0]),
    "utility": Distance(3.0),
    "rule": nrjax.PublicThreshold(-0.5),
}
GUARANTEE, RULE = PARTS["guarantee"], PARTS["rule"]

RESULTS = [
    ("process", "value", twice, "gives float.*: must be a scalar"),
    ("process", "rewind", lambda f, k, s, t: f(k, s, t).value, "must be that of its first"),
    ("process", "status", lambda f, s: None, "status gives None must be a scalar, an int"),
    ("process", "init", lambda f, k, t: t.item(), "must work under a trace; it ends in"),
    ("guarantee", "epsilon", twice, "epsilon gives float"),
    ("guarantee", "epsilon", lambda f, t: "0.1", "epsilon gives '0.1': must be a scalar"),
    ("schedule", "init", lambda f: f()[1], r"must be \(state, time\)"),
    ("schedule", "next", lambda f, s, r: f(s, r)[:2], r"must be \(state, time, done\)"),
    ("schedule", "next", lambda f, s, r: (*f(s, r)[:2], 0.0), "the done of next gives"),
    ("utility", "evaluate", twice, r"evaluate gives float(32|64)\[2\] must be a scalar, float"),
    ("utility", "evaluate", lambda f, h: None, "evaluate gives None must be a scalar"),
    ("utility", "hypothesis", lambda f, r: r @ r, "hypothesis.* it ends in"),
    ("rule", "step", step_gives(lambda s, stop: (s, 1.0 * stop)), "must be a scalar, a bool"),
    ("rule", "step", step_gives(lambda s, stop: stop), r"must be \(state, stop\)"),
    ("rule", "step", step_gives(lambda s, stop: (s + 0.5, stop)), "state of the form float"),
    ("rule", "cost", lambda f, e, *_: jnp.stack([e, e]), "cost gives .*: must be a scalar"),
    ("rule", "cost", lambda f, e: e, "cost.* must work under a trace"),
    ("rule", "status", lambda f, s: 0.5, "status gives .*: must be a scalar, an integer"),
]


@pytest.mark.parametrize(("part", "method", "gives", "message"), RESULTS)
def test_each_part_gives_what_its_interface_says(part, method, gives, message):
    with pytest.raises(ValueError, match=rf"(?s){part} = Part.*{message}"):
        interaction(**{part: Part(PARTS[part], method, gives)})


def test_paths_are_as_long_as_is_known_of_their_steps():
    path = jax.jit(lambda n: nrjax.scan_path(KEY, interaction(max_steps=n)))
    assert path(3).time.shape == (50,)
    assert nrjax.scan_path(KEY, interaction(max_steps=jnp.int32(3))).time.shape == (3,)


def test_a_status_may_be_the_enumeration_itself():
    rule = Part(RULE, "status", lambda f, s: Status.RUNNING)
    assert run(rule=rule).status == Status.STOPPED


SKELLAM = {"process": nrjax.Skellam((), 1.0, 1.0), "guarantee": None}
INDEPENDENT = {"process": nrjax.IndependentLaplace(()), "guarantee": None}

DOORS = [
    ({"value": [[3.0]]}, r"value has shape \(1, 1\)"),
    ({"value": np.zeros(2)}, r"value has shape \(2,\): must have the process's shape \(\)"),
    ({"value": np.nan}, "value must be finite"),
    ({"value": np.float16(3)}, "dtype of value must be float32 or float64"),
    ({"value": 1e16}, "subtract a public centre"),
    ({"shift": np.zeros(2)}, r"shift has shape \(2,\)"),
    ({"shift": 0.5, **SKELLAM}, "shift must"),
    ({"shift": 1.0, **INDEPENDENT}, r"shift must be None for IndependentLaplace"),
    ({"shift": 2.0}, r"shift must be of l2 norm at most 1, the sensitivity of the guar"),
    (
        {"shift": 3.0, "process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(2)},
        "must be of l1 norm at most 2",
    ),
    ({"guarantee": Part(GUARANTEE, "delta", lambda delta: delta)}, "delta of Part must be a"),
    ({"shift": "1"}, "shift must be numbers"),
    ({"rule": nrjax.AboveThreshold(np.int64(2**40), 1.0, 0.5)}, "to resolve the sensitivity"),
    ({"utility": Distance(np.array([2**40]))}, r"utility.*target must be within int32"),
    ({"max_steps": 0}, "max_steps must be an integer, at least 1"),
    ({"max_steps": 1.5}, "max_steps must be an integer"),
    ({"max_steps": True}, "max_steps must be an integer"),
    ({"max_steps": 2**31}, "must be an integer, at least 1 and below"),
    ({"guarantee": nrjax.PureGuarantee(1.0)}, "must be for gaussian noise, which Brownian"),
    ({"process": nrjax.Laplace(())}, "must be for laplace noise, which Laplace makes"),
    ({"process": nrjax.Brownian}, "process = .*must be an instance"),
    ({"process": Part(nrjax.Brownian(()), "shape", 3)}, "shape of Part must be a tuple"),
    ({"rule": -2.0}, r"rule must be an instance of nrjax\.StoppingRule"),
    ({"utility": lambda release: release}, r"utility = .*an instance of nrjax\.Utility"),
    ({"key": 0}, "key must be a JAX random key"),
    ({"key": jax.random.key(0, impl="rbg")}, "must be of the generator threefry2x32"),
]


@pytest.mark.parametrize(("changes", "message"), DOORS)
def test_parts_that_do_not_fit(changes, message):
    if jnp.result_type(float) == jnp.float64 and ("int32" in message or "resolve" in message):
        pytest.skip("float64 holds these integers")
    with pytest.raises(ValueError, match=message):
        run(**changes)


def test_errors_and_representations_hold_no_arrays():
    large = np.arange(1000.0)
    for shown in (Distance(large), nrjax.Grid(large[:0:-1]), nrjax.AboveThreshold(large, 1.0, 1.0)):
        assert len(repr(shown)) < 200
    with pytest.raises(ValueError, match=r"^threshold must be") as error:
        nrjax.PublicThreshold(np.append(large, np.nan))
    assert len(str(error.value)) < 200
    many = nrjax.Outcome(*[np.zeros(10, np.int32)] * len(nrjax.Outcome._fields))
    assert "step=int32[10]" in repr(many)


@pytest.mark.parametrize("value", [[2, 1], jnp.array([2, 1]), [2.0, 1.0]], ids=repr)
def test_integers_are_values(value):
    parts = {"process": nrjax.Brownian((2,)), "utility": Distance(np.array([2.0, 1]))}
    outcome = simulate(np.int64(5), **parts, value=value)
    chex.assert_trees_all_equal(outcome, simulate(5, **parts, value=np.array([2, 1])))
    assert run(value=np.int64(3)).status == Status.STOPPED


@jax.jit
def run_planted(factor, delta_sensitivity=0.0):
    boundary = dataclasses.replace(GUARANTEE, sensitivity=1.0 + delta_sensitivity)
    return run(threshold=-1e-3, guarantee=Planted(boundary, factor))


class Priced(nrjax.PublicThreshold):
    """With a price that is none."""

    price: Any = nrjax.static(default=-1.0)

    def __post_init__(self):
        pass

    def cost(self, epsilon, stopped=True, answers=1):
        return self.price + 0 * epsilon


def test_costs_that_are_none_end_the_trial():
    """What only numbers show is a status, and infinite; never a figure."""
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
    """With bounds that are half wrong: by so much apart, or the wrong way round."""

    width: Any = 0.2
    sensitivity: Any = 0.01

    def bounds(self, hypothesis, *, rounding=True):
        exact = self.evaluate(hypothesis)
        return exact - self.width, exact + self.width


class TwoInARow(nrjax.PublicThreshold):
    """Stop at the second good release in a row; the state follows the utility."""

    def step(self, key, state, epsilon, utility):
        good = utility >= self.threshold
        count = jnp.where(good, state % 1000 + 1, 0)
        return count.astype(jnp.int32), count >= 2


class Patience(nrjax.PublicThreshold):
    """Stop when the best utility has not risen for three releases."""

    def init(self, key, epsilon):
        return jnp.full_like(epsilon, -jnp.inf), jnp.int32(0)

    @jax.jit
    def step(self, key, state, epsilon, utility):
        best, waited = state
        waited = jnp.where(utility > best, 0, waited + 1)
        return (jnp.maximum(best, utility), waited), waited >= 3


class Referring(TwoInARow):
    """The same, the count kept in a mutable array on the way."""

    def step(self, key, state, epsilon, utility):
        kept = jax.new_ref(state)
        kept[...] = super().step(key, state, epsilon, utility)[0]
        return kept[...], kept[...] >= 2


@pytest.mark.parametrize(
    ("rule", "utility"),
    [
        (TwoInARow(-0.5), Bounded(3.0)),
        (Patience(0.0), Bounded(3.0)),
        (Referring(-0.5), Ceiled(3.0)),
    ],
    ids=["two", "patience", "ref"],
)
def test_rules_whose_state_follows_the_utility(rule, utility):
    """Bounds say nothing of such a state: simulate goes by the utility itself."""
    parts = scalar(np.geomspace(30.0, 0.05, 30), rule=rule, utility=utility)
    trial = nrjax.Interaction(**parts)
    many = nrjax.simulate(KEY, trial, trials=400)
    keys = jax.vmap(lambda number: nrjax.trial_key(KEY, number))(jnp.arange(400))
    one = jax.vmap(lambda key: nrjax.run_until(key, trial))(keys)
    np.testing.assert_array_equal(many.step, one.step)
    assert len(np.unique(many.step)) > 3
    assert not trial._uses_bounds
    assert nrjax.Interaction(**parts | {"rule": RULE})._uses_bounds


def test_inverted_bounds_end_the_trial():
    inverted = Bounded(3.0, width=-0.2)
    planted = Planted(GUARANTEE)
    for rule, cost in ((RULE, 0.0), (nrjax.AboveThreshold(-0.5, 0.01, 0.5), np.inf)):
        outcome = simulate(4, rule=rule, utility=inverted, guarantee=planted)
        assert np.all(outcome.status == Status.INVALID_BOUNDS)
        np.testing.assert_array_equal(outcome.test_epsilon, cost)
    sound = interaction(rule=RULE, utility=inverted, guarantee=planted)
    factor = sound.guarantee.factor  # turned where no constructor sees it
    unsound = jax.tree.map(lambda leaf: -leaf if leaf is factor else leaf, sound)
    outcome = nrjax.simulate(KEY, unsound, trials=4)
    assert np.all(outcome.status == Status.INVALID_COST)
    assert np.all(outcome.epsilon == np.inf)


def test_a_filter_pays_for_what_neighbours_differ_by():
    budget, moved = nrjax.UnifiedFilter(2.0, 1e-6), nrjax.Sensitivity(0.01, "l2")
    kind, grid = nrjax.composition.BrownianReduction, nrjax.Grid([100.0, 10.0, 1.0])
    paid = nrjax.composition.FilteredSchedule(grid, budget, budget.init(), kind, moved)
    made = partial(interaction, schedule=paid)
    made(guarantee=None, shift=0.01)
    right = r"shift must be of l2 norm at most 0.01, .*schedule"
    with pytest.raises(ValueError, match=right):
        made(guarantee=None, shift=1.0)
    right = r"sensitivity of the schedule must be at least 0.3, that of the guarantee"
    with pytest.raises(ValueError, match=right):
        made(guarantee=nrjax.LinearBoundary.tight_at_time(1.0, 0.3, 1e-6))
