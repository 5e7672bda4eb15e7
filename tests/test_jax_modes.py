"""Runs under JAX's modes and transformations: they work, or the error has advice."""

from functools import partial

import chex
import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import nrjax
from tests.marks import long_except
from tests.problems import interaction

KEY = jax.random.key(5)
DEVICES = jax.devices()[:2]
BATCHING = nrjax.Batching(tile=4, lanes=8, devices=DEVICES)


build = partial(interaction, np.geomspace(40.0, 0.02, 6), -2.0)


def simulate(key=KEY, **changes):
    return nrjax.simulate(key, build(**changes), trials=5, batching=BATCHING)


def steps(key):
    return nrjax.run_until(key, build()).step


@pytest.fixture(scope="module")
def usual():
    return simulate()


def mesh(kind=AxisType.Auto):
    return jax.make_mesh((2,), ("x",), axis_types=(kind,), devices=DEVICES)


MODES = {
    "NaNs": lambda: jax.debug_nans(True),
    "used keys": lambda: jax.debug_key_reuse(True),
    "mesh": lambda: jax.set_mesh(mesh()),
    "explicit mesh": lambda: jax.set_mesh(mesh(AxisType.Explicit)),
}


@pytest.mark.parametrize("mode", long_except(MODES, "used keys"))
def test_many_trials_are_the_same_under_a_mode(mode, usual):
    assert np.isnan(usual.privacy_loss).all()  # NaNs would stop a run under the mode
    with MODES[mode]():
        chex.assert_trees_all_equal(simulate(), usual, strict=True)


@pytest.mark.parametrize("mode", long_except(("NaNs", "used keys"), "used keys"))
def test_so_is_one_trial(mode, usual):
    key = nrjax.trial_key(KEY, 2)
    with MODES[mode]():
        assert steps(key) == usual.step[2]
        assert np.isnan(nrjax.scan_path(key, build(max_steps=2)).privacy_loss).all()
        # In a custom `jit` the mode checks every intermediate value and the result.
        assert jax.jit(steps)(key) == usual.step[2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: jax.vmap(simulate)(jax.random.split(KEY, 2)),
        lambda: jax.vmap(lambda value: simulate(value=value))(np.ones(2)),
        lambda: jax.jit(simulate)(KEY),
        lambda: jax.jit(lambda: simulate())(),
    ],
    ids=["vmap of keys", "vmap of values", "jit of a key", "jit of nothing"],
)
def test_functions_of_the_host_cannot_be_traced(call):
    with pytest.raises(ValueError, match=r"traced\. Under jit or vmap use nrjax\.run_until"):
        call()


def test_shard_map(usual):
    keys = jax.vmap(lambda number: nrjax.trial_key(KEY, number))(np.arange(2))
    split = {"in_specs": PartitionSpec("x"), "out_specs": PartitionSpec("x")}
    call = jax.shard_map(jax.vmap(steps), mesh=mesh(), **split, check_vma=False)
    np.testing.assert_array_equal(call(keys), usual.step[:2])
