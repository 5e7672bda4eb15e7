"""Random keys of trials, folded from the numbers of the trial, round, role and step.

The keys decide the random bits of a trial. No key is folded from a float time, because two nearly
equal times would share their noise.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.modes import neutral_config
from nrjax._base.numerics import check_floats
from nrjax._base.threefry import is_nrjax_key, jax_key, placed_key
from nrjax._base.validation import as_numeric, check, check_integer

_GENERATOR = "threefry2x32"


class Role(enum.IntEnum):
    """A use of randomness in a trial. Each use has a separate stream of keys."""

    NOISE = 0
    THRESHOLD = 1
    QUERY = 2


@neutral_config()
def trial_key(key: Array, trial: Array | int, round: Array | int = 0) -> Array:
    """Return the key of one mechanism (`round`) of one trial.

    `nrjax.simulate(key, ...)` runs trial i with `trial_key(key, i)`.

        >>> keys = jax.vmap(nrjax.trial_key, (None, 0))(jax.random.key(0), jnp.arange(1000))
        >>> keys.shape
        (1000,)

    Args:
        key: key of the study.
        trial: number of the trial.
        round: number of the mechanism, in trials with several.

    Raises:
        ValueError: `key` is not a key, or a number is not an integer in [0, 2^32). Traced numbers
            are taken modulo 2^32.
    """
    key = check_key(key)
    for name, number in (("trial", trial), ("round", round)):
        expected = "an integer in [0, 2^32)"
        array = as_numeric(name, number, expected)
        integer = jnp.issubdtype(jnp.result_type(number), jnp.integer) and jnp.shape(number) == ()
        check(integer and (array is None or 0 <= array < 2**32), name, number, expected)
        key = jax.random.fold_in(key, number)
    return key


def role_key(key: Array, role: Role) -> Array:
    """Return the key for one role (noise, threshold or query), folded from a trial's key."""
    return jax.random.fold_in(key, int(role))


def step_key(key: Array, step: Array | int) -> Array:
    """Return the key for one step, an integer below 2^30 - 1, folded from a role's key."""
    return placed_key(key, step)


def is_custom(part: Any) -> bool:
    """Return whether the class of a part is defined outside nrjax."""
    return type(part).__module__.partition(".")[0] != "nrjax"


def key_for(part: Any, key: Array) -> Array:
    """Return the key that a part receives: for a custom part, an ordinary JAX key."""
    return jax_key(key) if is_custom(part) else key


def abstract_key() -> Any:
    """Return the shape and dtype of a key."""
    return jax.eval_shape(lambda: jax.random.key(0))


def is_key(value: Any) -> bool:
    """Return whether an array holds typed random keys."""
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def without_keys(tree: Any) -> Any:
    """Return a pytree in which typed keys are arrays of their words, which NumPy can hold."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _holds_keys(leaf) else leaf, tree)


def _holds_keys(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and is_key(leaf)


def check_key(key: Any) -> Array:
    """Return a single typed threefry key, made from raw key data if necessary.

    Other generators are refused: under `vmap` they draw a whole batch from the key of one trial, so
    that trials would depend on each other and have a wrong distribution.

    Every random run calls it, so that it also checks the arithmetic of XLA (`check_floats`).

    Raises:
        ValueError: `key` is not a single threefry key, or XLA runs with fast-math.
    """
    check_floats()
    if isinstance(key, jax.Array) and is_key(key):
        check(key.shape == (), "key", key, "a single key, not a batch of them")
        supported = is_nrjax_key(key) or str(jax.random.key_impl(key)) == _GENERATOR
        hint = f'Make it by jax.random.key(0, impl="{_GENERATOR}").'
        check(supported, "key", key, f"of the generator {_GENERATOR}", hint)
        return key
    is_array = isinstance(key, (jax.Array, np.ndarray))
    is_raw = is_array and key.dtype == np.uint32 and key.shape == (2,)
    check(is_raw, "key", key, "a JAX random key", "For example jax.random.key(0).")
    return jax.random.wrap_key_data(jnp.asarray(key), impl=_GENERATOR)


def study_key(seed: int) -> Array:
    """Return the key for a study's seed, an integer in [0, 2^32), whatever JAX's settings are."""
    words = [0, check_integer("seed", seed, 0, 2**32 - 1)]
    return jax.random.wrap_key_data(jnp.array(words, jnp.uint32), impl=_GENERATOR)
