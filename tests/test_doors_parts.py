"""Mistakes that are easy to make with parts, custom ones above all: refused in words, or mended."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.stopping import first_yes
from tests.problems import Distance, interaction, scalar

KEY = jax.random.key(4)
NORM = nrjax.Sensitivity(0.01, "l2")
FILTER = nrjax.UnifiedFilter(1.0, 1e-6)
REQUEST = nrjax.composition.Pure(0.1)
LIMITS = jnp.finfo(jnp.result_type(float))
LARGEST = 2 ** (LIMITS.nmant + 1)
"""Up to which every integer is a number of the dtype."""


class Assigning(nrjax.Utility):
    """With a constructor of its own, which a frozen dataclass does not let assign."""

    target: Any

    def __init__(self, target):
        self.target = target

    def evaluate(self, hypothesis):
        return hypothesis


class Costs(nrjax.Guarantee):
    """What a function says of a time."""

    function: Any = nrjax.static()

    def epsilon(self, time):
        return self.function(time)


class Counting(nrjax.StoppingRule):
    """Stop at the third release; the count begins as a number of Python's."""

    third: Any = 3

    def init(self, key, epsilon):
        return 0

    def step(self, key, state, epsilon, utility):
        return state + 1, state + 1 >= self.third

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.zeros_like(epsilon)


class Numbered(nrjax.Brownian):
    """A process whose state and status hold numbers of Python's."""

    def init(self, key, time):
        return super().init(key, time), 0, 1.5, True

    def rewind(self, key, state, time):
        return super().rewind(key, state[0], time), state[1] + 1, *state[2:]

    def value(self, state):
        return super().value(state[0])

    def status(self, state):
        return 0


ROWS = [
    (lambda: interaction(utility=Distance(lambda release: release)), r"utility.target = <function"),
    (lambda: interaction(utility=Distance("far")), r"'far': must be a number.*nrjax.static\(\)"),
    (lambda: interaction(utility=Distance([3.0, "far"])), r"utility.target\[1\] must"),
    (
        lambda: interaction(utility=Distance(LARGEST + 1)),
        r"utility.target must be an integer",
    ),
    (lambda: interaction(utility=Distance(np.int64(LARGEST + 1))), r"holds exactly, .*static\(\)"),
    (lambda: interaction(utility=Distance(10**400)), "utility.target must be an integer"),
    (lambda: first_yes(KEY, Counting(LARGEST + 1), [1.0]), "fields of the rule must be int"),
    (
        lambda: interaction(guarantee=Costs(lambda t: -1 / t)),
        "epsilon of Costs at time 100 = -0.0",
    ),
    (lambda: interaction(guarantee=Costs(lambda t: 0 * t / 0)), "at time 100 must be at l"),
    (
        lambda: interaction(guarantee=Costs(jnp.sqrt)),
        r"at time 82.* must be at least 0, and no less than at a larger time, 10",
    ),
    (lambda: nrjax.LinearBoundary.tight_at_epsilon(NORM, 0.3, 1e-6), "epsilon must be"),
    (lambda: nrjax.RenyiBoundary.tight_at_time(NORM, 0.3, 1e-6), "a Sensitivity is given as sens"),
    (lambda: nrjax.LinearBoundary(1.0, NORM, 1.0, 10.0), "delta = Sensitivity"),
    (
        lambda: nrjax.Grid.geometric(Costs(abs), 0.1, 1.0, 10**9),
        "levels must be.*10000",
    ),
    *[
        (partial(nrjax.Grid.explicit, bad), "times must be a non-empty vector of numbers")
        for bad in ("abc", ["a"], [[1.0], [2.0, 3.0]], None, np.array(["1"]))
    ],
    *[
        (
            partial(getattr(FILTER, ask), REQUEST, FILTER.init(rounds=1)),
            r"state = Pure\(epsilon=0.1\)",
        )
        for ask in ("take", "admits", "open")
    ],
    (
        lambda: FILTER.close(FILTER.init(rounds=1), REQUEST, REQUEST),
        "round must be the ha",
    ),
]


@pytest.mark.parametrize(("call", "message"), ROWS)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_constructor_that_assigns_is_told_how():
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=r"'target': Assigning is.*__post_init__"
    ):
        Assigning(3.0)


def test_integers_that_the_dtype_holds_are_numbers():
    assert interaction(utility=Distance(2**40)).utility.target == 2.0**40
    assert interaction(utility=Distance(-LARGEST)).utility.target == -float(LARGEST)


def test_states_may_hold_numbers_of_python():
    parts = {"rule": Counting(), "process": Numbered(())}
    for changes in (parts, {"rule": parts["rule"]}):
        trial = interaction([4.0, 3.0, 2.0, 1.0], **changes)
        assert nrjax.run_until(KEY, trial).step == 2
        np.testing.assert_array_equal(nrjax.simulate(KEY, trial, trials=5).step, 2)
        np.testing.assert_array_equal(nrjax.sweep(KEY, [trial] * 2, trials=5).step, 2)


def test_a_copy_keeps_a_large_integer():
    """As large as an integer may be; a fraction is refused as it was."""
    if jnp.result_type(float) == jnp.float64:
        pytest.skip("float64 holds it")
    parts = {"process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(1.0)}
    trial = nrjax.Interaction(**scalar([1e14, 1e13], **parts, value=2**40 + 1))
    copy = dataclasses.replace(trial, rule=nrjax.PublicThreshold(-1.0))
    assert copy.value == trial.value
    assert copy.value.rest == 1


def test_a_cost_may_fall_by_rounding():
    eps = float(LIMITS.eps)
    assert (
        interaction(guarantee=Costs(lambda time: 1 + 4 * eps * jnp.cos(time))).guarantee is not None
    )
