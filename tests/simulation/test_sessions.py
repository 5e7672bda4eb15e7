"""Trials that run by themselves: their results do not depend on how they are batched."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.simulation import montecarlo
from nrjax.simulation.program import _on_devices

KEY = jax.random.key(5)
TRIALS = 150
DEVICES = tuple(jax.devices())


class Walked(NamedTuple):
    """How one walk ended."""

    steps: jax.Array
    place: jax.Array
    marks: jax.Array
    """Steps at which each of three places was passed first, or 0."""


class Walk(nrjax.Pytree):
    """A normal walk with drift, stopped where it is above a level."""

    level: Any
    drift: Any = 0.5
    most: int = nrjax.static(default=40)

    def run(self, key):
        places = self.level * jnp.array([0.25, 0.5, 0.75])

        def step(state):
            number, place, marks = state
            place = place + self.drift + jax.random.normal(jax.random.fold_in(key, number))
            number = number + 1
            marks = jnp.where((marks == 0) & (place > places), number, marks)
            return number, place, marks

        def going(state):
            return (state[0] < self.most) & (state[1] <= self.level)

        start = jnp.int32(0), jnp.zeros(()), jnp.zeros(3, jnp.int32)
        return Walked(*jax.lax.while_loop(going, step, start))


def program(walk, chunk=TRIALS, devices=1):
    batching = montecarlo.Batching(tile=16, devices=DEVICES[:devices])
    return montecarlo.sessions(walk, chunk, batching)


@pytest.fixture(scope="module")
def whole():
    return program(Walk(6.0)).run(KEY, TRIALS)


def assert_same(one, two):
    assert list(one) == list(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name, strict=True)


def test_results_are_named_and_shaped_by_the_tuple(whole, dtype):
    assert {name: (v.shape, v.dtype) for name, v in whole.items()} == {
        "steps": ((TRIALS,), np.int32),
        "place": ((TRIALS,), dtype),
        "marks": ((TRIALS, 3), np.int32),
    }
    assert np.unique(whole["steps"]).size > 5
    assert np.unique(whole["place"]).size == TRIALS
    assert (whole["marks"][whole["steps"] < 40] > 0).all()


def test_results_do_not_depend_on_chunks_or_devices(whole):
    odd = program(Walk(6.0), chunk=67, devices=3)
    parts = [odd.run(KEY, min(67, TRIALS - at), at) for at in range(0, TRIALS, 67)]
    assert_same(whole, {name: np.concatenate([p[name] for p in parts]) for name in whole})
    single = program(Walk(6.0), chunk=1)
    for number in (0, 16, 149):
        assert_same(
            {n: v[number : number + 1] for n, v in whole.items()}, single.run(KEY, 1, number)
        )


def test_trials_are_those_of_run(whole, dtype):
    tolerance = 2e-5 if dtype == jnp.float32 else 1e-12
    for number in (0, 1, 77, 149):
        one = Walk(6.0).run(nrjax.trial_key(KEY, number))
        assert one.steps == whole["steps"][number]
        np.testing.assert_allclose(one.place, whole["place"][number], rtol=tolerance)


def test_another_session_of_the_same_layout_is_not_compiled_again(whole):
    one = program(Walk(6.0))
    before = _on_devices._cache_size()  # pyright: ignore[reportFunctionMemberAccess]
    other = one.of(Walk(3.0)).run(KEY, TRIALS)
    assert _on_devices._cache_size() == before  # pyright: ignore[reportFunctionMemberAccess]
    assert other["steps"].mean() < whole["steps"].mean()
    assert_same(whole, one.run(KEY, TRIALS))


def test_what_cannot_be_run_is_refused():
    with pytest.raises(ValueError, match="chunk = 0: must be an integer, at least 1"):
        montecarlo.sessions(Walk(6.0), 0)
    with pytest.raises(ValueError, match="trials = 151: must be at most chunk = 150"):
        program(Walk(6.0)).run(KEY, TRIALS + 1)
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.jit(lambda level: montecarlo.sessions(Walk(level), 8).chunk)(6.0)
