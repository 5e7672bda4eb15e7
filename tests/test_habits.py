"""JAX's modes and transformations: runs work under them, or say in a sentence what to do."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import nrjax
from tests.problems import scalar

KEY = jax.random.key(5)
DEVICES = jax.devices()[:2]
BATCHING = nrjax.Batching(tile=4, lanes=8, devices=DEVICES)


PARTS = scalar(np.geomspace(40.0, 0.02, 6), threshold=-2.0)


def simulate(key=KEY, **changes):
    return nrjax.simulate(key, nrjax.Interaction(**PARTS | changes), trials=5, batching=BATCHING)


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
        jax.tree.map(np.testing.assert_array_equal, simulate(), usual)


@pytest.mark.parametrize("mode", ["NaNs", "used keys"])
def test_so_is_one_trial(mode, usual):
    key = nrjax.trial_key(KEY, 2)
    with MODES[mode]():
        assert nrjax.run_until(key, nrjax.Interaction(**PARTS)).step == usual.step[2]
        assert np.isnan(
            nrjax.scan_path(key, nrjax.Interaction(**PARTS, max_steps=2)).privacy_loss
        ).all()
        # In a `jit` of one's own the mode looks into it, and at what comes out.
        assert (
            jax.jit(lambda key: nrjax.run_until(key, nrjax.Interaction(**PARTS)).step)(key)
            == usual.step[2]
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda: jax.vmap(lambda key: simulate(key))(jax.random.split(KEY, 2)),
        lambda: jax.vmap(lambda value: simulate(value=value))(np.ones(2)),
        lambda: jax.jit(lambda key: simulate(key))(KEY),
        lambda: jax.jit(lambda: simulate())(),
    ],
    ids=["vmap of keys", "vmap of values", "jit of a key", "jit of nothing"],
)
def test_what_runs_on_the_host_cannot_be_traced(call):
    with pytest.raises(
        ValueError, match=r"cannot be traced: under jit or vmap use nrjax\.run_until"
    ):
        call()


def in_shard_map(function, given, check_vma):
    split = PartitionSpec("x")
    return jax.shard_map(
        jax.vmap(function), mesh=mesh(), in_specs=split, out_specs=split, check_vma=check_vma
    )(given)


def test_shard_map(usual):
    keys = jax.vmap(lambda number: nrjax.trial_key(KEY, number))(np.arange(2))
    for function, given in (
        (lambda key: nrjax.run_until(key, nrjax.Interaction(**PARTS)).step, keys),
        (
            lambda value: nrjax.run_until(KEY, nrjax.Interaction(**PARTS | {"value": value})).step,
            np.ones(2),
        ),
        (lambda key: nrjax.scan_path(key, nrjax.Interaction(**PARTS)).time, keys),
    ):
        with pytest.raises(ValueError, match="need its option check_vma=False"):
            in_shard_map(function, given, check_vma=True)
    steps = in_shard_map(
        lambda key: nrjax.run_until(key, nrjax.Interaction(**PARTS)).step, keys, check_vma=False
    )
    np.testing.assert_array_equal(steps, usual.step[:2])
