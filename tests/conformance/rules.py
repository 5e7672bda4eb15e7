"""The conformance suite of stopping rules. Add a case for a new rule."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax._base.keys import is_key
from nrjax._base.outcome import Status
from nrjax.stopping import (
    AboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
)
from tests.conformance import common

LANES, STEPS = 256, 6


@dataclasses.dataclass(frozen=True)
class RuleCase:
    """A stopping rule to check.

    Attributes:
        name: identifier of the test.
        build: returns the rule of a threshold, which may be traced or a vector.
        parameters: names of further arguments of `build`, which must be positive.
        private: whether the rule has a sensitivity, draws noise and charges for its answers.
        separate: whether each answer is a separate mechanism, with noise from the query's key only
            and its own cost. Otherwise all negative answers together cost half of a positive one.
    """

    name: str
    build: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    private: bool = True
    separate: bool = False

    @property
    def errors(self):
        for value in (np.nan, [1.0, np.nan], np.zeros(0)):
            yield partial(self.build, value), "threshold must be a number"
        for name in self.parameters:
            for value in (0.0, -1.0, np.nan, np.inf):
                faulty = partial(self.build, 0.5, **{name: value})
                yield faulty, f"{name} must be positive and finite"


def _classical(kind, options=None, **traits):
    def build(threshold, sensitivity=1.0, epsilon=2.0):
        return kind(threshold, sensitivity, epsilon, **(options or {}))

    name = " ".join([kind.__name__, *(options or {}).values()])
    return RuleCase(name, build, ("sensitivity", "epsilon"), **traits)


def _reduced(threshold, sensitivity=1.0, noise="laplace"):
    return ReducedAboveThreshold(threshold, sensitivity, noise=noise)


ONE_SIDED = {"noise": "exponential"}


RULES = (
    RuleCase("PublicThreshold", PublicThreshold, private=False),
    _classical(AboveThreshold),
    _classical(LaplaceTests, separate=True),
    RuleCase("ReducedAboveThreshold", _reduced, ("sensitivity",)),
    _classical(AboveThreshold, ONE_SIDED),
    RuleCase("ReducedAboveThreshold exponential", partial(_reduced, **ONE_SIDED), ("sensitivity",)),
)


def _ask(rule, keys, epsilons, utilities):
    """Return answers, costs of positive and negative answers, statuses and states per step."""

    def step(state, inputs):
        i, epsilon, utility = inputs
        state, stop = rule.step(jax.random.fold_in(keys[1], i), state, epsilon, utility)
        costs = rule.cost(epsilon, stopped=True), rule.cost(epsilon, stopped=False)
        return state, (stop, costs, rule.status(state), _plain(state))

    start = rule.init(keys[0], epsilons[0])
    return jax.lax.scan(step, start, (jnp.arange(STEPS), epsilons, utilities))[1]


def _plain(state):
    """Return a state with its keys as numbers."""
    return jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if is_key(jnp.asarray(leaf)) else leaf, state
    )


def _ask_eagerly(rule, keys, epsilons, utilities):
    state, seen = rule.init(keys[0], epsilons[0]), []
    for i, (epsilon, utility) in enumerate(zip(epsilons, utilities, strict=True)):
        state, stop = rule.step(jax.random.fold_in(keys[1], i), state, epsilon, utility)
        costs = rule.cost(epsilon), rule.cost(epsilon, False)
        seen.append((stop, costs, rule.status(state), _plain(state)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen)


ask = jax.jit(_ask)
ask_lanes = jax.jit(jax.vmap(_ask))


def _questions(case, dtype=None, seed=0):
    """Return a rule, keys, rising epsilons and utilities near the threshold."""
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    utilities = np.random.default_rng(seed).normal(0.5, 3.0, STEPS).astype(dtype)
    epsilons = np.geomspace(0.5, 4.0, STEPS).astype(dtype)
    return case.build(0.5), jax.random.split(jax.random.key(seed)), epsilons, utilities


def _lanes_of_questions(case, seed):
    """Return rules, keys, epsilons and utilities that differ between trials."""
    rng, dtype = np.random.default_rng(seed), jnp.result_type(float)
    rule, _, epsilons, _ = _questions(case)
    factors = rng.uniform(0.5, 2.0, LANES).astype(dtype)
    many = jax.tree.map(lambda leaf: (leaf * factors).astype(dtype), rule)
    keys = jax.random.split(jax.random.key(seed), (LANES, 2))
    utilities = rng.normal(0.5, 3.0, (LANES, STEPS)).astype(dtype)
    return many, keys, np.outer(factors, epsilons).astype(dtype), utilities


def check_purity(case):
    """Answers depend on the keys if there is noise, and on nothing hidden."""
    inputs = rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=1)
    first = ask_lanes(*inputs)
    common.assert_same(first, ask_lanes(*inputs))
    for changed, draws in (
        (keys.at[:, 0].set(keys[:, 1]), case.private and not case.separate),
        (keys.at[:, 1].set(keys[:, 0]), case.private),
    ):
        stops = ask_lanes(rule, changed, epsilons, utilities)[0]
        assert np.any(stops != first[0]) == draws


def check_dtype(case):
    """Floats have the dtype of epsilon, answers are bool, statuses and counts int32."""
    for dtype in (jnp.result_type(float), np.float32):
        stop, costs, status, states = jax.eval_shape(_ask, *_questions(case, dtype))
        assert (stop.dtype, status.dtype) == (bool, jnp.int32)
        floats = [leaf for leaf in jax.tree.leaves(states) if leaf.dtype.kind == "f"]
        assert all(leaf.dtype == dtype for leaf in (*costs, *floats))


def check_jit_against_eager(case):
    inputs = _questions(case)
    common.assert_close(ask(*inputs), _ask_eagerly(*inputs))


def check_vmap_against_loop(case):
    """`vmap` over all arguments at once, and over thresholds only, equals a loop."""
    inputs = _lanes_of_questions(case, seed=3)
    lanes = ask_lanes(*inputs)
    for i in range(5):
        common.assert_close(common.lane(lanes, i), ask(*(common.lane(part, i) for part in inputs)))
    thresholds = np.array([-9.0, 0.5, 9.0], jnp.result_type(float))
    rules = [jax.tree.map(thresholds.dtype.type, case.build(value)) for value in thresholds]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *rules)
    common.assert_same(jax.jit(jax.vmap(case.build))(thresholds), stacked)


def check_is_monotone(case):
    """With equal keys a larger utility never turns a positive answer into a negative one."""
    rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=4)
    order = np.argsort(np.argsort(utilities, axis=0), axis=0)
    better = np.sort(utilities, axis=0)[np.minimum(order + LANES // 4, LANES - 1), range(STEPS)]
    low = np.asarray(ask_lanes(rule, keys, epsilons, utilities)[0])
    high = np.asarray(ask_lanes(rule, keys, epsilons, better.astype(utilities.dtype))[0])
    assert np.all(high >= low)
    assert np.any(high > low)
    for utility, stops in ((np.inf, True), (-np.inf, False), (np.nan, False)):
        extreme = np.full_like(utilities, utility)
        assert np.all(ask_lanes(rule, keys, epsilons, extreme)[0] == stops)


def check_state_is_blind(case):
    """The new state does not depend on the utility."""
    rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=5)
    seen = ask_lanes(rule, keys, epsilons, utilities)[3]
    for other in (-utilities, np.full_like(utilities, np.inf), np.full_like(utilities, np.nan)):
        common.assert_same(seen, ask_lanes(rule, keys, epsilons, other)[3])


def check_sequence_of_thresholds(case):
    """Shifted thresholds equal utilities shifted the other way, up to the sequence's end."""
    end = STEPS - 2
    inside = np.arange(STEPS) < end
    for seed in range(20):  # until there are answers of both kinds
        rule, keys, epsilons, utilities = _questions(case, seed=seed)
        want = ask(rule, keys, epsilons, utilities)[0] & inside
        if 0 < np.sum(want) < end:
            break
    assert 0 < np.sum(want) < end
    shifts = np.arange(STEPS, dtype=utilities.dtype)
    moved, same = case.build(0.5 + shifts[:end]), case.build(np.full(end, 0.5).tolist())
    assert rule.max_steps is None
    assert moved.max_steps == same.max_steps == end
    np.testing.assert_array_equal(ask(same, keys, epsilons, utilities)[0], want)
    np.testing.assert_array_equal(ask(moved, keys, epsilons, utilities + shifts)[0], want)
    stops = ask(case.build(np.full(end, -np.inf)), keys, epsilons, utilities)[0]
    np.testing.assert_array_equal(stops, inside)
    with pytest.raises(ValueError, match="threshold must be a scalar or a vector"):
        ask(case.build(np.zeros((2, STEPS))), keys, epsilons, utilities)


def check_cost(case):
    """Negative answers cost half of a positive one at any epsilon, public answers nothing.

    If each answer is paid for, both kinds cost the same, and answers cost their sum.
    """
    rule, _, epsilons, _ = _questions(case)
    positive, negative = rule.cost(epsilons), rule.cost(epsilons, stopped=False)
    assert positive.shape == negative.shape == epsilons.shape
    if case.separate:
        np.testing.assert_array_equal(negative, positive)
        answers = np.arange(STEPS, dtype=np.int32)
        total = np.asarray(rule.cost(epsilons, answers % 2 == 0, answers))
        np.testing.assert_allclose(total, answers * positive, rtol=1e-6)
        assert total[0] == 0
    else:
        np.testing.assert_array_equal(2 * negative, positive)
        np.testing.assert_array_equal(rule.cost(epsilons, True, 7), positive)
    np.testing.assert_array_equal(
        rule.cost(epsilons, np.arange(STEPS) % 2 == 0)[::2], positive[::2]
    )
    assert np.all(positive > 0) == np.any(positive > 0) == case.private
    assert (rule.sensitivity is not None) == case.private


def check_status(case):
    """The status is `RUNNING` at rising epsilons."""
    status = ask_lanes(*_lanes_of_questions(case, seed=6))[2]
    np.testing.assert_array_equal(status, np.full((LANES, STEPS), Status.RUNNING))


def check_scale(case):
    """Answers do not depend on the unit of the utility (a power of two)."""
    if not case.private:
        return
    rule, keys, epsilons, utilities = _lanes_of_questions(case, seed=7)
    rule = dataclasses.replace(rule, sensitivity=np.ones_like(rule.threshold))
    other = dataclasses.replace(
        rule, threshold=4 * rule.threshold, sensitivity=4 * rule.sensitivity
    )
    want = ask_lanes(rule, keys, epsilons, utilities)[0]
    np.testing.assert_array_equal(ask_lanes(other, keys, epsilons, 4 * utilities)[0], want)


def check_traces(case):
    """New keys, parameters, epsilons and utilities reuse the program."""
    rule, keys, epsilons, utilities = _questions(case)
    changed = jax.tree.map(lambda leaf: 1.5 * leaf, rule)
    calls = ((rule, keys[::-1], 2 * epsilons, utilities + 1), (changed, keys, epsilons, utilities))
    assert common.count_traces(_ask, (rule, keys, epsilons, utilities), *calls) == 1


def check_pytree(case):
    rule, keys, epsilons, _ = _questions(case)
    common.assert_pytree(rule, jax.eval_shape(rule.init, keys[0], epsilons[0]))


check_errors = common.check_errors

CHECKS = tuple(check for name, check in list(globals().items()) if name.startswith("check_"))
