"""The conformance suite run over every stopping rule, and planted faults it must detect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax._base.outcome import Status
from nrjax.stopping import AboveThreshold, GaussianThreshold, LaplaceTests
from tests.conformance import rules
from tests.conformance.rules import RuleCase
from tests.marks import long_except

QUICK = long_except(rules.RULES, *rules.RULES[:4])
"""All rules, of which those with one-sided noise are long (test_law.py has their law)."""


@pytest.mark.parametrize("check", rules.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_rule(case, check):
    check(case)


def _tabulated(threshold, sensitivity=1.0):
    return GaussianThreshold(threshold, sensitivity, -4.0, 4.0, 2.0, 3.0, 10)


TABULATED = rules.check_dtype, rules.check_jit_against_eager, rules.check_traces, rules.check_pytree


@pytest.mark.parametrize("check", TABULATED, ids=lambda check: check.__name__)
def test_rule_with_tabulated_costs(check):
    """The checks without a traced threshold (test_gaussian.py has the law and the costs)."""
    check(RuleCase("GaussianThreshold", _tabulated, ("sensitivity",)))


def _step(change):
    """Return a step with changed arguments (key, state, epsilon, utility)."""
    return {"step": lambda self, *inputs: AboveThreshold.step(self, *change(*inputs))}


def _shows(self, key, state, epsilon, utility):
    state, stop = AboveThreshold.step(self, key, state, epsilon, utility)
    return state._replace(noise=state.noise + 1e-3 * jnp.where(utility > 0, 1, 0)), stop


def _halved(self, key, epsilon):
    state = AboveThreshold.init(self, key, epsilon)
    return state._replace(noise=state.noise.astype("float16"))


def _of_unit_sensitivity(self, key, epsilon):
    unit = AboveThreshold(self.threshold, np.float32(1.0), self.epsilon)
    return AboveThreshold.init(unit, key, epsilon)


def _negative_free(self, epsilon, stopped=True, answers=1):
    return super(type(self), self).cost(epsilon, stopped, answers) * stopped


def _for_any(self, epsilon, stopped=True, answers=1):
    return LaplaceTests.cost(self, epsilon)


def _with_first_key(self, key, state, *rest):
    return state, LaplaceTests.step(self, state[1], state[0], *rest)[1]


ONE_KEY = {
    "init": lambda self, key, epsilon: (jnp.int32(0), key),
    "step": _with_first_key,
    "status": lambda self, state: jnp.int32(Status.RUNNING),
}
ALARM = {"status": lambda self, state: jnp.int32(Status.OVERFLOW)}
OWN_KEY = _step(lambda key, *rest: (jax.random.key(0), *rest))
NEGATED = _step(lambda *inputs: (*inputs[:3], -inputs[3]))
FIRST = _step(lambda key, state, *rest: (key, state._replace(step=jnp.int32(0)), *rest))
FAULTS = {  # the rule, the check that detects the fault, and the replaced methods
    "a hidden key": (AboveThreshold, rules.check_purity, OWN_KEY),
    "a smaller dtype": (AboveThreshold, rules.check_dtype, {"init": _halved}),
    "the wrong side": (AboveThreshold, rules.check_is_monotone, NEGATED),
    "a state that depends on utilities": (
        AboveThreshold,
        rules.check_state_is_blind,
        {"step": _shows},
    ),
    "one threshold": (AboveThreshold, rules.check_sequence_of_thresholds, FIRST),
    "free negative answers": (AboveThreshold, rules.check_cost, {"cost": _negative_free}),
    "an alarm": (AboveThreshold, rules.check_status, ALARM),
    "unit sensitivity": (AboveThreshold, rules.check_scale, {"init": _of_unit_sensitivity}),
    "one key throughout": (LaplaceTests, rules.check_purity, ONE_KEY),
    "only positive answers paid": (LaplaceTests, rules.check_cost, {"cost": _negative_free}),
    "one price for any number of answers": (LaplaceTests, rules.check_cost, {"cost": _for_any}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    parent, check, methods = FAULTS[fault]
    kind = type("Faulty", (parent,), methods)
    separate = parent is LaplaceTests
    with pytest.raises(AssertionError):
        check(RuleCase("faulty", lambda threshold: kind(threshold, 1.0, 2.0), separate=separate))
