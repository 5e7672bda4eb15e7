"""Keys: unrolled ones have the bits of JAX, and placed keys use both words of a hash."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import nrjax
from nrjax._base import threefry
from nrjax._base.keys import Role
from nrjax._base.normals import normals
from nrjax._base.threefry import placed_key, shared_key, unrolled_key
from nrjax.processes._kernel import random_bits
from nrjax.simulation import montecarlo
from nrjax.stopping import first_yes
from tests.problems import interaction


def draws(key):
    """Return draws of `jax.random` from a key, and from a batch of keys folded from it."""

    def uniform(trial):
        stream = jax.random.fold_in(jax.random.fold_in(key, trial), 2**32 - 1)
        return jax.random.uniform(stream, (3,))

    return {
        "bits": jax.random.bits(key, (7, 3)),
        "bytes": jax.random.bits(key, (5,), jnp.uint8),
        "one number": jax.random.bits(key),
        "normal": jax.random.normal(key, (64,)),
        "split": jax.random.key_data(jax.random.split(key, (2, 3))),
        "batch": jax.vmap(uniform)(jnp.arange(10)),
    }


def test_bits_are_those_of_jax():
    key = jax.random.key(5)
    expected, actual = jax.jit(draws)(key), jax.jit(draws)(unrolled_key(key))
    for name, numbers in expected.items():
        assert actual[name].dtype == numbers.dtype
        np.testing.assert_array_equal(actual[name], numbers, err_msg=name)


def hashed(key, high, low):
    """Return threefry2x32 of one count, by JAX."""
    data = jnp.asarray(jax.random.key_data(key)[:2], jnp.uint32)
    return np.asarray(threefry_2x32(data, jnp.asarray([high, low], jnp.uint32)))


SINGLE, SPLIT = 2**30, 2**31


@pytest.mark.numerical
@pytest.mark.parametrize("draw", [random_bits, normals])
def test_two_places_share_a_hash(draw, dtype):
    """Their single numbers are the two numbers of the shared key, and no other places share."""

    def alone(place):
        return draw(placed_key(key, place), (), dtype)

    key = unrolled_key(jax.random.key(12))
    both = jnp.stack([draw(shared_key(placed_key(key, place)), (2,), dtype) for place in (1, 3, 5)])
    single = jax.vmap(alone)(jnp.arange(1, 7)).reshape(3, 2)
    np.testing.assert_allclose(single, both, rtol=1e-6 if draw is normals else 0)
    assert np.unique(single).size == 6


def test_a_place_uses_both_words_and_no_draw_is_a_key():
    """Every use hashes the counts that the docstring of the module states."""
    key, drawn = jax.random.key(9), jax.jit(jax.random.bits, static_argnums=(1, 2))
    step = placed_key(unrolled_key(key), 6)
    words = np.stack([hashed(key, 7, i) for i in range(6)])
    for size in (2, 3, 11):
        pairs = -(-size // 2)
        expected = np.concatenate([words[:pairs, 0], words[:pairs, 1]])[:size]
        np.testing.assert_array_equal(drawn(step, (size,), "uint32"), expected)
    single = hashed(key, SINGLE + 3, 0)  # of the places 5 and 6
    for place, word in ((5, 0), (6, 1)):
        shape = (1,) if word else ()
        actual = drawn(placed_key(unrolled_key(key), place), shape, "uint32")
        np.testing.assert_array_equal(actual, np.broadcast_to(single[word], shape))
    folded, parts = jax.random.fold_in(step, 5), jax.random.split(step, 3)
    for derived, low in ((folded, 5), *((parts[i], i) for i in range(3))):
        expected = [*hashed(key, SPLIT + 7, low), 0]
        np.testing.assert_array_equal(jax.random.key_data(derived), expected)
    np.testing.assert_array_equal(drawn(folded, (), "uint32"), hashed(folded, SINGLE, 0)[0])
    child = jax.random.key_data(jax.random.fold_in(folded, 1))
    np.testing.assert_array_equal(child, [*hashed(folded, SPLIT, 1), 0])


def test_pairs_keep_all_bits_in_any_batch():
    """One word in 128 is NaN as a float, and keeps its bits too."""

    def bits(key, place):
        return jax.random.bits(placed_key(key, place), (1001,), "uint32")

    keys = unrolled_key(jax.random.key(11)), jnp.arange(4)
    batch = jax.jit(jax.vmap(jax.vmap(bits, (None, 0)), (0, None)))
    many = batch(jax.random.split(keys[0], 3), keys[1])
    words = np.asarray(many, np.uint32)
    assert 20 < np.isnan(words.view(np.float32)).sum() < 200
    for i, j in np.ndindex(3, 4):
        alone = placed_key(jax.random.split(keys[0], 3)[i], j)
        low = jnp.arange(501, dtype=jnp.uint32)
        pair = threefry._hash(jax.random.key_data(alone), jnp.full_like(low, j + 1), low)
        np.testing.assert_array_equal(words[i, j], np.concatenate(pair)[:1001])
    with jax.debug_nans(True):
        jax.random.bits(placed_key(keys[0], 1), (1001,))


def test_a_planted_fault_of_the_hash_is_seen(monkeypatch):
    monkeypatch.setattr(threefry, "_ROTATIONS", ((13, 15, 26, 7), (17, 29, 16, 24)))
    key = jax.random.key(6)
    fresh = jax.random.bits(unrolled_key(key), (11,))  # a new shape, for which nothing is cached
    assert not np.array_equal(fresh, jax.random.bits(key, (11,)))


class Drawing(nrjax.Brownian):
    """A custom process that unwraps and wraps its keys."""

    def init(self, key, time):
        assert jax.random.key_impl(key) == jax.random.key_impl(jax.random.key(0))
        again = jax.random.wrap_key_data(jax.random.key_data(key))
        jax.random.poisson(again, 3.0)
        return super().init(again, time)

    def rewind(self, key, state, time):
        return super().rewind(jax.random.wrap_key_data(jax.random.key_data(key)), state, time)


class Asking(nrjax.PublicThreshold):
    """A custom rule that unwraps and wraps its keys."""

    def init(self, key, epsilon):
        return jax.random.key_data(key)

    def step(self, key, state, epsilon, utility):
        drawn = jax.random.bits(jax.random.wrap_key_data(jax.random.key_data(key)), (), jnp.uint32)
        return jnp.stack([drawn, drawn]), utility >= self.threshold


class Result(NamedTuple):
    """The result of a custom trial."""

    data: Any


class Custom(nrjax.Pytree):
    def run(self, key):
        return Result(jax.random.key_data(key))


def test_custom_parts_get_ordinary_keys():
    """Their data are those that JAX folds from role and step."""
    key = jax.random.key(8)
    trial = interaction(process=Drawing(()), rule=Asking(-0.5))
    first = jax.random.fold_in(jax.random.fold_in(nrjax.trial_key(key, 1), Role.NOISE), 0)
    path = nrjax.noise_path(nrjax.trial_key(key, 1), Drawing(()), [100.0])
    np.testing.assert_allclose(path[0], 10 * normals(first, (), path.dtype), rtol=1e-6)
    np.testing.assert_allclose(
        path[0], nrjax.scan_path(nrjax.trial_key(key, 1), trial).release[0] - 3, rtol=1e-3
    )
    assert first_yes(key, Asking(-0.5), [0.0]).stopped
    data = montecarlo.custom_trials(Custom(), 4).run(key, 2)["data"]
    np.testing.assert_array_equal(data[1], jax.random.key_data(nrjax.trial_key(key, 1)))


def test_the_older_layout_of_bits_is_left_to_jax():
    key = jax.random.key(7)
    with jax.threefry_partitionable(False):
        assert jax.random.key_impl(unrolled_key(key)) == jax.random.key_impl(key)


KEY = jax.random.key(5)


def bits(key):
    return jax.random.key_data(key).tolist()


def test_numbers_of_any_kind_give_one_key():
    for number in (7, np.int64(7), np.uint8(7), jnp.int32(7), np.array(7)):
        assert bits(nrjax.trial_key(KEY, number)) == bits(nrjax.trial_key(KEY, 7))
        assert bits(nrjax.trial_key(KEY, 0, number)) == bits(nrjax.trial_key(KEY, 0, 7))
    last = 2**32 - 1
    assert bits(nrjax.trial_key(KEY, np.int64(last))) == bits(nrjax.trial_key(KEY, last))
    assert bits(jax.jit(nrjax.trial_key)(KEY, 7)) == bits(nrjax.trial_key(KEY, 7))


@pytest.mark.parametrize("name", ["trial", "round"])
@pytest.mark.parametrize(
    "number", [np.int64(2**32 + 1), 2**32, 2**70, -1, 1.5, 1.0, True, None, "1", np.arange(2)]
)
def test_other_numbers_are_refused(name, number):
    with pytest.raises(ValueError, match=rf"{name} must be an integer in \[0, 2\^32\)"):
        nrjax.trial_key(KEY, **{"trial": 0, name: number})


def test_a_traced_float_is_refused():
    with pytest.raises(ValueError, match=r"trial must be an integer"):
        jax.jit(nrjax.trial_key)(KEY, 1.0)
