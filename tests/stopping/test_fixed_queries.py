"""`first_yes`: rules on fixed query values, compared with the engine."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.keys import Role, role_key, step_key
from nrjax._base.outcome import Status
from nrjax._base.threefry import unrolled_key
from nrjax.processes._kernel import laplace, random_bits
from nrjax.stopping import (
    AboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
    first_yes,
)
from nrjax.stopping.thresholds import noise_scale
from tests.custom import Counting
from tests.marks import long_except
from tests.problems import scalar

KEY = jax.random.key(5)


def test_a_public_threshold_is_the_first_value_above_it():
    for threshold, step in (
        (2.0, 2),
        ([2.0, 1.0, 9.0, 9.0], 1),
        ([2.0, 3.0, 3.0, 9.0], 2),  # at the threshold
        (9.0, None),
    ):
        found = first_yes(KEY, PublicThreshold(threshold), [0.0, 1.0, 3.0, 2.0])
        assert bool(found.stopped) == (step is not None)
        assert (found.step, found.cost) == (3 if step is None else step, 0)
        assert found.status == (Status.EXHAUSTED if step is None else Status.STOPPED)


@pytest.mark.parametrize("kind", [AboveThreshold, LaplaceTests])
def test_draws_are_those_that_its_keys_say(kind, dtype):
    """NumPy gives the same answers with the documented keys."""
    utilities = np.array([-1.0, 0.5, -2.0, 0.0, 1.0])

    def draw(key):
        return float(laplace(random_bits(key, (), dtype), dtype))

    seen = set()
    for number in range(48):
        key = jax.random.fold_in(KEY, number)
        stream, scale, threshold = unrolled_key(key), 0.5, 0.0
        if kind is AboveThreshold:
            scale, threshold = 2.0, draw(step_key(role_key(stream, Role.THRESHOLD), 0))
        queries = [scale * draw(step_key(role_key(stream, Role.QUERY), i)) for i in range(5)]
        yes = utilities + queries >= threshold
        found = first_yes(key, kind(0.0, 1.0, 2.0), utilities)
        assert found.stopped == yes.any()
        assert found.step == (np.argmax(yes) if yes.any() else 4)
        seen.add(int(found.step))
    assert len(seen) > 2


def test_costs():
    above, reduced = AboveThreshold(0.0, 1.0, 2.0), ReducedAboveThreshold(0.0, 1.0)
    tests, rising = LaplaceTests(0.0, 1.0, 2.0), [0.5, 1.0, 4.0]
    for rule, values, epsilons, cost in (
        (above, [-1e9, 1e9, 0.0], None, 2),
        (above, [-1e9] * 3, None, 1),
        (reduced, [-1e9, 1e9, 0.0], rising, 1),
        (reduced, [-1e9] * 3, rising, 2),
        (tests, [1e9] * 3, None, 2),
        (tests, [-1e9, 1e9, 0.0], None, 4),
        (tests, [-1e9] * 3, None, 6),
    ):
        np.testing.assert_allclose(first_yes(KEY, rule, values, epsilons).cost, cost, rtol=1e-5)


@pytest.mark.parametrize(
    ("rule", "cost"), [(PublicThreshold(0.0), 0.0), (AboveThreshold(0.0, 1.0, 2.0), np.inf)]
)
def test_a_nan_has_no_price_unless_all_is_free(rule, cost):
    values = jnp.array([-1e9, np.nan, 1e9])
    with pytest.raises(ValueError, match=r"utilities must be numbers, not NaN"):
        first_yes(KEY, rule, values)
    traced = jax.jit(lambda values: first_yes(KEY, rule, values))
    found, after = traced(values), traced(values[::-1])
    assert (found.step, found.status, found.cost) == (1, Status.NAN_UTILITY, cost)
    assert (after.step, after.status) == (0, Status.STOPPED)


def test_a_traced_epsilon_out_of_range_costs_no_less_than_nothing():
    @jax.jit
    def asked(epsilon):
        rules = AboveThreshold(0.5, 1.0, epsilon), LaplaceTests(0.5, 1.0, epsilon)
        return [first_yes(KEY, rule, jnp.zeros(2)) for rule in rules]

    for epsilon in (-1.0, np.nan):
        for found in asked(epsilon):
            assert (found.cost, found.status) == (np.inf, Status.INVALID_COST)


def test_a_sensitivity_beyond_int32_is_not_wrapped():
    """JAX would take 2^32 + 1 as 1, which draws less noise."""
    scale = jax.jit(lambda rule: noise_scale(rule.sensitivity, 0.5, jnp.result_type(float)))
    first = jax.jit(lambda rule: first_yes(KEY, rule, jnp.zeros(3), jnp.full(3, 0.5)))
    rules = partial(AboveThreshold, epsilon=0.5), partial(LaplaceTests, epsilon=0.5)
    for kind in (*rules, ReducedAboveThreshold):
        for size in (np.int64(2**32 + 1), np.array(2**32 + 1), np.array([2**32 + 1])):
            expected = scale(kind(0.0, float(size.max())))
            np.testing.assert_allclose(scale(kind(0.0, size)), expected, rtol=1e-6)
        assert first(kind(3e9, np.array(2**32 + 1))) == first(kind(3e9, float(2**32 + 1)))
    if not jax.config.jax_enable_x64:
        with pytest.raises(ValueError, match="fields of the rule must be within int32"):
            first_yes(KEY, Counting(np.array(2**32 + 1)), [1.0])


def test_a_rule_that_needs_epsilons_fails_at_the_first_without():
    found = jax.jit(lambda values: first_yes(KEY, ReducedAboveThreshold(0.0, 1.0), values))(
        jnp.array([1e9, 1e9])
    )
    assert (found.step, found.status, found.cost) == (-1, Status.INVALID_TIME, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PublicThreshold(0.0), 1.0), r"shape of utilities must be \(steps,\), not empty"),
        ((PublicThreshold(0.0), []), "utilities must be numbers, not NaN, not empty"),
        ((PublicThreshold([0.0]), [1.0, 2.0]), "number of utilities must be at most 1"),
        ((PublicThreshold(0.0), [1.0], [1.0, 2.0]), r"shape of epsilons must be \(1,\)"),
        (
            (AboveThreshold(0.0, 1.0, np.ones(3)), [1.0]),
            r"shape of an answer of AboveThreshold must be \(\), for one",
        ),
        ((AboveThreshold, [1.0]), r"rule must be a nrjax\.StoppingRule"),
        ((ReducedAboveThreshold(0.0, 1.0), [1.0]), "epsilons must be given for this"),
        (
            (ReducedAboveThreshold(0.0, 1.0), [1e9, 0.0], [1.0, 0.5]),
            r"epsilons must be given .*not falling",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        first_yes(KEY, *arguments)
    with pytest.raises(ValueError, match="key must be a JAX random key"):
        first_yes(0, PublicThreshold(0.0), [1.0])  # type: ignore


TRIALS = 64
TIMES = np.geomspace(100.0, 0.05, 24)

RULES = {
    "interactive": nrjax.InteractiveAboveThreshold(-0.6, 0.05, 0.5),
    "reduced": nrjax.ReducedAboveThreshold(np.linspace(-0.9, -0.3, 24), 0.05),
}


def parts(rule):
    return scalar(TIMES, rule=rule)


@pytest.mark.long
def test_simulate_scan_path_and_first_yes_agree():
    rule = RULES["reduced"]
    many = nrjax.simulate(KEY, nrjax.Interaction(**parts(rule)), trials=TRIALS)
    stopped = np.asarray(many.status) == Status.STOPPED
    assert np.all(stopped | (np.asarray(many.status) == Status.EXHAUSTED))
    assert len(np.unique(many.step)) > 3

    @jax.jit
    @jax.vmap
    def along(number):
        key = nrjax.trial_key(KEY, number)
        path = nrjax.scan_path(key, nrjax.Interaction(**parts(rule)))
        # Given the releases, the utilities are a fixed sequence.
        return path, first_yes(key, rule, path.utility, path.mechanism_epsilon)

    path, found = along(jnp.arange(TRIALS))
    yes = np.asarray(path.status) == Status.STOPPED
    np.testing.assert_array_equal(np.where(yes.any(1), yes.argmax(1), 23), many.step)
    np.testing.assert_array_equal(yes.any(1), stopped)
    np.testing.assert_array_equal(found.step, many.step)
    np.testing.assert_allclose(found.cost, many.test_epsilon, rtol=1e-5)


@pytest.mark.parametrize("name", long_except(RULES, "reduced"))
def test_the_total_is_that_of_releases_and_test(name):
    rule = RULES[name]
    for thresholds in (rule.threshold, np.full_like(rule.threshold, np.inf)):
        trial = nrjax.Interaction(**parts(dataclasses.replace(rule, threshold=thresholds)))
        outcome = nrjax.simulate(KEY, trial, trials=TRIALS)
        mechanism, test = np.asarray(outcome.mechanism_epsilon), np.asarray(outcome.test_epsilon)
        stopped = np.asarray(outcome.status) == Status.STOPPED
        assert np.any(stopped) == (np.max(thresholds) < 0)
        own = mechanism if name == "reduced" else np.full_like(mechanism, 0.5)
        np.testing.assert_array_equal(test, np.where(stopped, own, own / 2))
        np.testing.assert_array_equal(outcome.epsilon, mechanism + test)
        stated = parts(rule)["guarantee"].epsilon(outcome.time)
        np.testing.assert_allclose(mechanism, stated, rtol=1e-6)
