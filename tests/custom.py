"""Custom parts of an interaction, and copies of parts with one method replaced."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import nrjax
from tests.problems import interaction, scalar

KEY = jax.random.key(3)
GUARANTEE = scalar()["guarantee"]
LARGEST = 2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1)
"""Every integer up to this one is a number of the dtype."""


def run(key=KEY, *arguments, **changes):
    return nrjax.run_until(key, interaction(*arguments, **changes))


def Part(other, name, replacement):
    """Return a copy of a part in which one method, or field, is replaced."""

    def replaced(self, *arguments):
        return replacement(partial(getattr(type(other), name), self), *arguments)

    part = object.__new__(type("Part", (type(other),), {name: replaced}))
    for field in dataclasses.fields(other):
        value = replacement if field.name == name else getattr(other, field.name)
        object.__setattr__(part, field.name, value)
    return part


class Costs(nrjax.Guarantee):
    """A guarantee whose epsilon is a function of the time."""

    function: Any = nrjax.static()

    def epsilon(self, time):
        return self.function(time)


class Counting(nrjax.StoppingRule):
    """Stops at the third release. The state starts as a Python number."""

    third: Any = 3

    def init(self, key, epsilon):
        return 0

    def step(self, key, state, epsilon, utility):
        return state + 1, state + 1 >= self.third

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.zeros_like(epsilon)
