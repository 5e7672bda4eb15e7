"""A split function computes what the whole does, and what trials share only once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

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
