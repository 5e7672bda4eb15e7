"""A split function computes what the whole does, and what trials share only once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import nrjax
from nrjax.simulation.hoisting import depends, split

TABLE = np.array([2.0, 3.0, 5.0], np.float32)


def step(time, place, noise):
    """Return two shared numbers and an own one."""
    scale = jnp.sqrt(time) * jnp.asarray(TABLE)[place]
    return time / 2, scale, scale * noise + jnp.cos(noise), jnp.float32(7)


@pytest.fixture
def program():
    return jax.make_jaxpr(step)(4.0, 1, 0.5)


def names(part):
    conversions = ("convert_element_type",)
    every = [equation.primitive.name for equation in part.jaxpr.eqns]
    return [name for name in every if name not in conversions]


def test_only_what_differs_depends_on_it(program):
    assert depends(program, [False, False, True]) == [False, False, True, False]
    assert depends(program, [True, False, False]) == [True, True, True, False]


def test_the_parts_compute_what_the_whole_does(program):
    first, second = split(program, [False, False, True], [0, 1], [2, 3])
    half, scale, *needed = jaxpr_as_fun(first)(4.0, 1)
    whole = step(4.0, 1, 0.5)
    assert (half, scale) == whole[:2]
    assert tuple(jaxpr_as_fun(second)(*needed, 0.5)) == whole[2:]


def test_nothing_that_trials_share_is_computed_for_each(program):
    first, second = split(program, [False, False, True], [0, 1], [2, 3])
    assert "sqrt" in names(first)
    assert names(second) == ["mul", "cos", "add"]
    # Nothing is shared if the time differs, and the table's entry alone if the noise does not.
    first, second = split(program, [True, False, True], [], [0, 1, 2, 3])
    assert "sqrt" in names(second)
    assert "sqrt" not in names(first)


def test_operations_with_an_effect_stay_with_each_trial():
    def noisy(time, noise):
        jax.debug.callback(lambda time: None, time)
        return time + 1, noise * time

    program = jax.make_jaxpr(noisy)(1.0, 2.0)
    first, second = split(program, [False, True], [0], [1])
    assert names(first) == ["add"]
    assert names(second) == ["debug_callback", "mul"]


@jax.jit
def watched(time):
    """Return half of the time, in a program that has an effect."""
    jax.debug.callback(lambda time: None, time)
    return time / 2


@jax.jit
def accumulated(time):
    """Return half of the time, by an array that is written to."""
    place = jax.new_ref(time)
    place[...] /= 2
    return place[...]


@pytest.mark.parametrize("halve", [watched, accumulated])
def test_results_of_an_effect_belong_to_each_trial(halve):
    def noisy(time, noise):
        return halve(time), time + 1, halve(time) * noise

    program = jax.make_jaxpr(noisy)(4.0, 3.0)
    found = depends(program, [False, True])
    assert found[1:] == [False, True]
    places = [[p for p, own in enumerate(found) if own == wanted] for wanted in (False, True)]
    first, second = split(program, [False, True], *places)
    shared = len(places[False])
    stated, needed = np.split(np.array(jaxpr_as_fun(first)(4.0)), [shared])
    results = dict(zip(places[False], stated, strict=True))
    results |= zip(places[True], jaxpr_as_fun(second)(*needed, 3.0), strict=True)
    assert [float(results[place]) for place in range(3)] == [2.0, 5.0, 6.0]


class WatchedHalving(nrjax.Schedule):
    first: float
    halve: Any = nrjax.static()
    max_steps: int = nrjax.static(default=10)

    def init(self):
        return (jnp.int32(1), jnp.asarray(self.first)), jnp.asarray(self.first)

    def next(self, state, release):
        number, time = state[0] + 1, self.halve(state[1])
        return (number, time), time, number > self.max_steps


def score(release):
    return -jnp.abs(release - 10)


def test_a_schedule_with_an_effect_gives_the_trials_of_one_without():
    epsilons = []
    for halve in (accumulated, lambda time: time / 2):
        interaction = nrjax.laplace(10.0, 1.0).until(
            score, at_least=-1.0, levels=WatchedHalving(4.0, halve)
        )
        epsilons.append(nrjax.simulate(jax.random.key(0), interaction, trials=8).epsilon)
    np.testing.assert_array_equal(*epsilons)
