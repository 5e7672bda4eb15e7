"""The conformance suite, run over every stopping rule; and faults that it must see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.stopping import AboveThreshold, LaplaceTests
from nrjax.types import Status
from tests import conformance
from tests.conformance import RULE_CHECKS, RULES, RuleCase
from tests.stopping.faults import faulty


@pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", RULES, ids=lambda case: case.name)
def test_rule(case, check):
    check(case)


def _step(change):
    """A step with its arguments (key, state, epsilon, utility) changed."""
    return lambda self, *inputs: AboveThreshold.step(self, *change(*inputs))


def _shows(self, key, state, epsilon, utility):
    state, stop = AboveThreshold.step(self, key, state, epsilon, utility)
    return state._replace(noise=state.noise + 1e-3 * jnp.where(utility > 0, 1, 0)), stop


def _halved(self, key, epsilon):
    state = AboveThreshold.init(self, key, epsilon)
    return state._replace(noise=state.noise.astype("float16"))


FAULTS = {
    "a key of its own": (
        conformance.check_rule_purity,
        {"step": _step(lambda key, *rest: (jax.random.key(0), *rest))},
    ),
    "a smaller dtype": (conformance.check_rule_dtype, {"init": _halved}),
    "the wrong side": (
        conformance.check_rule_is_monotone,
        {"step": _step(lambda *inputs: (*inputs[:3], -inputs[3]))},
    ),
    "a state that shows the utility": (conformance.check_rule_state_is_blind, {"step": _shows}),
    "the first threshold throughout": (
        conformance.check_rule_sequence_of_thresholds,
        {"step": _step(lambda key, state, *rest: (key, state._replace(step=jnp.int32(0)), *rest))},
    ),
    "noes for free": (
        conformance.check_rule_cost,
        {
            "cost": lambda self, epsilon, stopped=True: (
                stopped * AboveThreshold.cost(self, epsilon, stopped)
            )
        },
    ),
    "an alarm": (
        conformance.check_rule_status,
        {"status": lambda self, state: jnp.int32(Status.OVERFLOW)},
    ),
    "noise that ignores the sensitivity": (
        conformance.check_rule_scale,
        {
            "init": lambda self, key, epsilon: AboveThreshold.init(
                AboveThreshold(self.threshold, np.float32(1.0), self.epsilon), key, epsilon
            )
        },
    ),
}


def _yes_alone(self, epsilon, stopped=True, answers=1):
    return LaplaceTests.cost(self, epsilon, stopped, answers) * stopped


def _for_any(self, epsilon, stopped=True, answers=1):
    return LaplaceTests.cost(self, epsilon)


SEPARATE_FAULTS = {
    "one key throughout": (
        conformance.check_rule_purity,
        {
            "init": lambda self, key, epsilon: (jnp.int32(0), key),
            "step": lambda self, key, state, *rest: (
                state,
                LaplaceTests.step(self, state[1], state[0], *rest)[1],
            ),
            "status": lambda self, state: jnp.int32(Status.RUNNING),
        },
    ),
    "a yes alone paid for": (conformance.check_rule_cost, {"cost": _yes_alone}),
    "one price for any number of answers": (conformance.check_rule_cost, {"cost": _for_any}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    check, methods = FAULTS[fault]
    kind = faulty(AboveThreshold, "Faulty", **methods)
    with pytest.raises(AssertionError):
        check(RuleCase("faulty", lambda threshold: kind(threshold, 1.0, 2.0), ()))


@pytest.mark.parametrize("fault", SEPARATE_FAULTS)
def test_planted_faults_of_separate_tests_are_seen(fault):
    check, methods = SEPARATE_FAULTS[fault]
    kind = faulty(LaplaceTests, "Faulty", **methods)
    with pytest.raises(AssertionError):
        check(RuleCase("faulty", lambda threshold: kind(threshold, 1.0, 2.0), (), separate=True))
