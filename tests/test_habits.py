"""JAX's modes and transformations: runs work under them, or say in a sentence what to do."""

from functools import partial

import chex
import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import nrjax
from tests.problems import interaction

KEY = jax.random.key(5)
DEVICES = jax.devices()[:2]
BATCHING = nrjax.Batching(tile=4, lanes=8, devices=DEVICES)


made = partial(interaction, np.geomspace(40.0, 0.02, 6), -2.0)


def simulate(key=KEY, **changes):
    return nrjax.simulate(key, made(**changes), trials=5, batching=BATCHING)


def steps(key):
    return nrjax.run_until(key, made()).step


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


@pytest.mark.parametrize("mode", MODES)
def test_many_trials_are_the_same_under_a_mode(mode, usual):
    assert np.isnan(usual.privacy_loss).all()  # which a mode would trip over
    with MODES[mode]():
        chex.assert_trees_all_equal(simulate(), usual, strict=True)


@pytest.mark.parametrize("mode", ["NaNs", "used keys"])
def test_so_is_one_trial(mode, usual):
    key = nrjax.trial_key(KEY, 2)
    with MODES[mode]():
        assert steps(key) == usual.step[2]
        assert np.isnan(nrjax.scan_path(key, made(max_steps=2)).privacy_loss).all()
        # In a `jit` of one's own the mode looks into it, and at what comes out.
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
def test_what_runs_on_the_host_cannot_be_traced(call):
    with pytest.raises(ValueError, match=r"traced: under jit or vmap use nrjax\.run_until"):
        call()


def in_shard_map(function, given, check_vma):
    split = PartitionSpec("x")
    return jax.shard_map(
        jax.vmap(function), mesh=mesh(), in_specs=split, out_specs=split, check_vma=check_vma
    )(given)


def test_shard_map(usual):
    keys = jax.vmap(lambda number: nrjax.trial_key(KEY, number))(np.arange(2))
    for function, given in (
        (steps, keys),
        (lambda value: nrjax.run_until(KEY, made(value=value)).step, np.ones(2)),
        (lambda key: nrjax.scan_path(key, made()).time, keys),
    ):
        with pytest.raises(ValueError, match="need its option check_vma=False"):
            in_shard_map(function, given, check_vma=True)
    found = in_shard_map(steps, keys, check_vma=False)
    np.testing.assert_array_equal(found, usual.step[:2])
