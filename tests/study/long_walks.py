"""Custom trials that take a while, for runs that are stopped while they work."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import nrjax


class Walked(NamedTuple):
    """The end of a walk."""

    place: jax.Array


class LongWalk(nrjax.Pytree):
    """A custom trial so long that a chunk takes a while."""

    steps: int = nrjax.static(default=20_000)

    def run(self, key):
        def move(step, place):
            return place + jax.random.normal(jax.random.fold_in(key, step % 1000))

        return Walked(jax.lax.fori_loop(0, self.steps, move, jnp.zeros(())))
