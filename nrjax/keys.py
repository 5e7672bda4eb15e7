"""Random keys, folded from integers: trial, round, role, step.

Never from a float time: two nearly equal times would share their noise.
"""

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._threefry import is_nrjax_key, ordinary, placed
from nrjax._validation import as_numeric, check

_GENERATOR = "threefry2x32"


class Role(enum.IntEnum):
    """What the randomness of a trial is used for; each role has its own stream."""

    NOISE = 0
    THRESHOLD = 1
    QUERY = 2


def trial_key(key: Array, trial: Array | int, round: Array | int = 0) -> Array:
    """Key of one mechanism (`round`) of one trial.

    Raises:
        ValueError: `key` is not a key, or a number not an integer in [0, 2^32). Traced ones are
            taken modulo 2^32.
    """
    key = check_key(key)
    for name, number in (("trial", trial), ("round", round)):
        right = "an integer in [0, 2^32)"
        known = as_numeric(name, number, right)
        whole = jnp.issubdtype(jnp.result_type(number), jnp.integer) and jnp.shape(number) == ()
        check(whole and (known is None or 0 <= known < 2**32), name, number, right)
        key = jax.random.fold_in(key, number)
    return key


def role_key(key: Array, role: Role) -> Array:
    """Stream of one role within a trial's key."""
    return jax.random.fold_in(key, int(role))


def step_key(key: Array, step: Array | int) -> Array:
    """Key of one step, below 2^31 - 1, within a role's stream."""
    return placed(key, step)


def is_custom(part: Any) -> bool:
    """Whether a part's class is defined outside of nrjax."""
    return type(part).__module__.partition(".")[0] != "nrjax"


def key_for(part: Any, key: Array) -> Array:
    """The key in the form that a part is given: for a custom part an ordinary key of JAX."""
    return ordinary(key) if is_custom(part) else key


def abstract_key() -> Any:
    """Shape and dtype of a key."""
    return jax.eval_shape(lambda: jax.random.key(0))


def is_key(value: Any) -> bool:
    """Whether an array holds typed random keys."""
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def check_key(key: Any) -> Array:
    """A single typed threefry key; raw key data are wrapped; a `ValueError` for anything else.

    Other generators draw a whole batch from one lane's key under `vmap`: a trial would depend on
    its neighbours, and their law is wrong as soon as lanes are reused.
    """
    if isinstance(key, jax.Array) and is_key(key):
        check(key.shape == (), "key", key, "a single key, not a batch of them")
        right = f'of the generator {_GENERATOR}: jax.random.key(0, impl="{_GENERATOR}")'
        known = is_nrjax_key(key) or str(jax.random.key_impl(key)) == _GENERATOR
        check(known, "key", key, right)
        return key
    is_array = isinstance(key, (jax.Array, np.ndarray))
    is_raw = is_array and key.dtype == np.uint32 and key.shape == (2,)
    check(is_raw, "key", key, "a JAX random key, such as jax.random.key(0)")
    return jax.random.wrap_key_data(jnp.asarray(key), impl=_GENERATOR)


def study_key(seed: int) -> Array:
    """The key of a study's seed, in [0, 2^32)."""
    check(0 <= seed < 2**32, "seed", seed, "in [0, 2^32)")
    return jax.random.key(seed, impl=_GENERATOR)
