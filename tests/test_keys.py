"""Keys are folded from integers only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax

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
