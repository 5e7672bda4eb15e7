"""Random keys, folded from integers: trial, round, role, step.

Never from a float time: two nearly equal times would share their noise.
"""

import enum

import jax
from jax import Array


class Role(enum.IntEnum):
    """What the randomness of a trial is used for; each role has its own stream."""

    NOISE = 0
    THRESHOLD = 1
    QUERY = 2


def trial_key(key: Array, trial: Array | int, round: Array | int = 0) -> Array:
    """Key of one mechanism (`round`) of one trial; both below 2^32."""
    return jax.random.fold_in(jax.random.fold_in(key, trial), round)


def role_key(key: Array, role: Role) -> Array:
    """Stream of one role within a trial's key."""
    return jax.random.fold_in(key, int(role))


def step_key(key: Array, step: Array | int) -> Array:
    """Key of one step within a role's stream."""
    return jax.random.fold_in(key, step)
