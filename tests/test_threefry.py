"""Keys whose hash is written out: the bits are those of JAX's own generator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax import _threefry
from nrjax._threefry import with_written_out, written_out


def draws(key):
    """What `jax.random` gives by a key, and by a batch of keys folded from it."""

    def one(trial):
        stream = jax.random.fold_in(jax.random.fold_in(key, trial), 2**32 - 1)
        return jax.random.uniform(stream, (3,))

    return {
        "bits": jax.random.bits(key, (7, 3)),
        "bytes": jax.random.bits(key, (5,), jnp.uint8),
        "one number": jax.random.bits(key),
        "normal": jax.random.normal(key, (64,)),
        "split": jax.random.key_data(jax.random.split(key, (2, 3))),
        "batch": jax.vmap(one)(jnp.arange(10)),
    }


def test_bits_are_those_of_jax():
    key = jax.random.key(5)
    want, got = jax.jit(draws)(key), jax.jit(draws)(written_out(key))
    for name, numbers in want.items():
        assert got[name].dtype == numbers.dtype
        np.testing.assert_array_equal(got[name], numbers, err_msg=name)


def test_a_planted_slip_of_the_hash_is_seen(monkeypatch):
    monkeypatch.setattr(_threefry, "_ROTATIONS", ((13, 15, 26, 7), (17, 29, 16, 24)))
    key = jax.random.key(6)
    fresh = jax.random.bits(written_out(key), (11,))  # a shape of its own: nothing is cached
    assert not np.array_equal(fresh, jax.random.bits(key, (11,)))


def test_what_refuses_the_key_gets_one_of_jax():
    key = jax.random.key(8)
    drawn = jax.jit(lambda key: with_written_out(lambda key: jax.random.poisson(key, 3.0), key))
    assert drawn(key) == jax.random.poisson(key, 3.0)

    def unfinished(key):
        raise NotImplementedError("of our own")

    with pytest.raises(NotImplementedError, match="of our own"):
        with_written_out(unfinished, key)


def test_the_older_layout_of_bits_is_left_to_jax():
    key = jax.random.key(7)
    with jax.threefry_partitionable(False):
        assert jax.random.key_impl(written_out(key)) == jax.random.key_impl(key)
