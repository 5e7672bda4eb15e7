"""Custom trials: their results do not depend on batching."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.simulation import montecarlo
from nrjax.simulation.program import _on_devices

pytestmark = pytest.mark.bits

KEY = jax.random.key(5)
TRIALS = 150
DEVICES = tuple(jax.devices())


class Walked(NamedTuple):
    """The end of a walk: number of steps, place, and the last places."""

    steps: jax.Array
    place: jax.Array
    last: jax.Array


class Walk(nrjax.Pytree):
    """A normal walk with drift that stops above a level."""

    level: Any

    def run(self, key):
        def step(state):
            place = state.place + 0.5 + jax.random.normal(jax.random.fold_in(key, state.steps))
            return Walked(state.steps + 1, place, jnp.append(state.last[1:], place))

        def going(state):
            return (state.steps < 40) & (state.place <= self.level)

        return jax.lax.while_loop(going, step, Walked(jnp.int32(0), jnp.zeros(()), jnp.zeros(3)))


def program(walk, chunk=TRIALS, devices=1):
    batching = montecarlo.Batching(tile=16, devices=DEVICES[:devices])
    return montecarlo.custom_trials(walk, chunk, batching)


@pytest.fixture(scope="module")
def whole():
    return program(Walk(6.0)).run(KEY, TRIALS)


def test_results_are_named_and_shaped_by_the_tuple(whole, dtype):
    assert {name: (v.shape, v.dtype) for name, v in whole.items()} == {
        "steps": ((TRIALS,), np.int32),
        "place": ((TRIALS,), dtype),
        "last": ((TRIALS, 3), dtype),
    }
    assert np.unique(whole["steps"]).size > 5
    assert np.unique(whole["place"]).size == TRIALS
    np.testing.assert_array_equal(whole["last"][:, -1], whole["place"])


def test_results_do_not_depend_on_chunks_or_devices(whole):
    odd = program(Walk(6.0), chunk=67, devices=3)
    chex.assert_trees_all_equal(odd.run_all(KEY, TRIALS), whole, strict=True)
    single = program(Walk(6.0), chunk=1)
    for number in (0, 16, 149):
        one = {name: values[number : number + 1] for name, values in whole.items()}
        chex.assert_trees_all_equal(single.run(KEY, 1, number), one, strict=True)


def test_trials_are_those_of_run(whole, dtype):
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    for number in (0, 1, 77, 149):
        one = Walk(6.0).run(nrjax.trial_key(KEY, number))
        assert one.steps == whole["steps"][number]
        np.testing.assert_allclose(one.place, whole["place"][number], rtol=tolerance)


def test_another_trial_of_the_same_layout_is_not_compiled_again(whole):
    before = _on_devices._cache_size()
    other = program(Walk(3.0)).run(KEY, TRIALS)
    assert _on_devices._cache_size() == before
    assert other["steps"].mean() < whole["steps"].mean()
