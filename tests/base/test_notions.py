"""Privacy notions: each rule of the table against exact distributions, and a planted wrong rule.

A mechanism on finitely many outcomes is `(p, q, epsilon)`: the probabilities on a data set and on
its neighbour, and the announced epsilon of each outcome.
"""

import dataclasses
import itertools
import json
import pickle
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import nrjax
from nrjax._base import notions
from nrjax._base.notions import Notion, notion_of, notions_comparable, notions_differ

PURE, PROBABILISTIC, HOCKEY_STICK, DP = Notion
DELTA = 0.01


def holds(notion, mechanism, delta):
    """Return whether a mechanism has a notion (docs/explanation/notions.md), in one order."""
    p, q, epsilon = mechanism
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    slack = 1e-12
    if notion == PURE:
        return bool(np.all(loss <= epsilon + slack))
    if notion == PROBABILISTIC:
        return bool(p @ (loss > epsilon + slack) <= delta + slack)
    if notion == DP and np.ptp(epsilon) > slack:  # not defined for an ex-post epsilon
        return False
    return bool(p @ np.maximum(1 - np.exp(epsilon - loss), 0) <= delta + slack)


def stepped(excess):
    """Return a mechanism whose loss exceeds an ex-post epsilon in half of the cases."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.1, 0.7])
    return p, q, np.log(p / q) - [excess, 0.0, 0.0]


def constant(mechanism):
    p, q, epsilon = mechanism
    return p, q, np.full_like(epsilon, epsilon.max())


WITNESSES = {
    PURE: [stepped(0.0), constant(stepped(0.0))],
    PROBABILISTIC: [
        # An outcome that only the data set has, and one whose loss is exactly epsilon.
        (np.array([DELTA, 0.5, 0.5 - DELTA]), np.array([0.0, 0.25, 0.75]), np.log([2.0, 2.0, 1.0]))
    ],
    HOCKEY_STICK: [stepped(-np.log(1 - 2 * DELTA))],
    DP: [
        (np.array([0.5, 0.5]), np.array([0.25, 0.75]), np.full(2, np.log(2 * (1 - 2 * DELTA)))),
    ],
}
"""Mechanisms of each notion, at delta = 0.01 (a pure one at delta = 0)."""


def delta_of(notion):
    return 0.0 if notion == PURE else DELTA


def run_both(first, second):
    """Return the mechanism of two independent mechanisms, whose epsilons are added."""
    p, q = (np.outer(a, b).ravel() for a, b in zip(first[:2], second[:2], strict=True))
    return p, q, np.add.outer(first[2], second[2]).ravel()


def merge(mechanism):
    """Return a mechanism whose outcomes of equal epsilon are not told apart."""
    p, q, epsilon = mechanism
    levels, place = np.unique(epsilon.round(12), return_inverse=True)
    return np.bincount(place, p), np.bincount(place, q), levels


def check_combinations():
    """Assert that each pair of notions combines to one that its witnesses have."""
    for first, second in itertools.product(Notion, Notion):
        found = Notion.combine(first, second)
        total = delta_of(first) + delta_of(second)
        for one, other in itertools.product(WITNESSES[first], WITNESSES[second]):
            assert holds(found, run_both(one, other), total), (first, second, found)


def test_witnesses_have_their_notion_and_those_that_it_implies():
    for notion, mechanisms in WITNESSES.items():
        for mechanism in mechanisms:
            for other in Notion:
                implied = holds(other, mechanism, delta_of(notion))
                assert implied or not notion.implies(other)
            bounded = holds(PROBABILISTIC, mechanism, delta_of(notion))
            assert bounded == notion.bounds_losses
            assert holds(notion, mechanism, delta_of(notion))


def test_combinations_claim_no_more_than_both_imply(monkeypatch):
    check_combinations()
    table = [[str(Notion.combine(a, b)) for b in Notion] for a in Notion]
    assert table == [
        ["pure", "probabilistic", "hockey-stick", "hockey-stick"],
        ["probabilistic", "probabilistic", "hockey-stick", "hockey-stick"],
        ["hockey-stick", "hockey-stick", "hockey-stick", "hockey-stick"],
        ["hockey-stick", "hockey-stick", "hockey-stick", "(epsilon, delta)-DP"],
    ]
    assert Notion.combine("probabilistic") == "probabilistic"
    assert Notion.combine("pure", "pure", "hockey-stick") is HOCKEY_STICK
    # Planted faults: a hockey-stick epsilon that bounds losses, and one that is a constant.
    for wrong in (PROBABILISTIC, DP):
        rules = dict(notions._RULES)
        rule = rules[HOCKEY_STICK]
        rules[HOCKEY_STICK] = rule._replace(implied=(wrong, *rule.implied))
        with monkeypatch.context() as patch:
            patch.setattr(notions, "_RULES", rules)
            with pytest.raises(AssertionError, match="hockey-stick"):
                check_combinations()


@pytest.mark.parametrize("notion", Notion)
def test_post_processing_that_keeps_epsilon(notion):
    kept = [holds(notion, merge(each), delta_of(notion)) for each in WITNESSES[notion]]
    assert all(kept) == notion.survives_post_processing


def test_a_delta_decides_whether_a_notion_is_pure():
    for notion in Notion:
        assert notion.at_delta(0.0) is PURE
        assert notion.at_delta(np.zeros(2)) is PURE
        assert notion.at_delta(1e-6) is (PROBABILISTIC if notion == PURE else notion)
    traced = []
    jax.jit(lambda delta: traced.append(PURE.at_delta(delta)) or delta)(0.0)
    assert traced == [PROBABILISTIC]  # it may be positive


class Custom(nrjax.Guarantee):
    """A custom guarantee that states its notion as plain text."""

    delta: Any = 1e-6
    notion: ClassVar[str] = "hockey-stick"

    def epsilon(self, time):
        return 1 / time


class Overstated(Custom):
    notion: ClassVar[str] = "pure"


class Unknown(Custom):
    notion: ClassVar[str] = "zCDP"


def test_guarantees_state_a_notion_by_name():
    assert notion_of(None) is None
    assert notion_of(Custom()) is HOCKEY_STICK
    assert notion_of(Custom(0.0)) is PURE
    assert notion_of(Overstated()) is PROBABILISTIC  # with a delta it is not pure
    laplace, plain = nrjax.Laplace(()), nrjax.laplace(3.0, 1.0).until(abs, at_least=0.0)
    for use in (
        lambda: notion_of(Unknown()),
        lambda: nrjax.Mechanism(3.0, laplace, Unknown()),
        lambda: dataclasses.replace(plain, guarantee=Unknown()),
        lambda: nrjax.composition.ExPost.of(Unknown(), 1.0),
        lambda: nrjax.composition.ExPost(0.1, notion="zCDP"),
    ):
        with pytest.raises(ValueError, match=r"notion must be 'pure'.*got 'zCDP'"):
            use()


def test_a_notion_is_its_name():
    for notion in Notion:
        name = str(notion)
        assert type(name) is str
        assert (notion, f"{notion}", repr(notion)) == (name, name, repr(name))
        assert Notion(name) is notion
        assert {name: 1}[notion] == 1
        assert json.loads(json.dumps({"notion": notion})) == {"notion": name}
        assert pickle.loads(pickle.dumps(notion)) is notion
        assert nrjax.guarantees.NOTIONS[name] == notion.meaning


@pytest.mark.parametrize(
    ("names", "differ", "comparable"),
    [
        (("pure", "pure", None), False, True),
        (("pure", "probabilistic"), True, True),
        (("probabilistic", "hockey-stick"), True, False),
        (("hockey-stick", "hockey-stick"), False, True),
        (("pure", "mine"), True, False),  # a custom name in an older store
    ],
)
def test_epsilons_of_two_notions_are_told_apart(names, differ, comparable):
    assert notions_differ(*names) is differ
    assert notions_comparable(*names) is comparable
