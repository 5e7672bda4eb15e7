"""Tile, lanes and launch, and NumPy arguments of `simulate`."""

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.simulation import montecarlo
from nrjax.types import overrides
from tests.problems import Ceiled, Distance, interaction, logistic_parts, small_logistic
from tests.simulation.small import KEY, ONE, simulate

pytestmark = pytest.mark.bits

USUAL = 2048 if jax.default_backend() == "cpu" else 4096
"""The default tile of a number."""


class Uncertain(nrjax.PublicThreshold):
    """A rule whose state depends on the utility, so that bounds replace no utility."""

    def step(self, key, state, epsilon, utility):
        return state + (utility > 0), utility >= self.threshold


def test_raw_keys_and_integers_of_numpy_are_accepted():
    batching = nrjax.Batching(
        tile=np.int64(16), lanes=np.int32(32), launch=np.int64(10), devices=ONE
    )
    found = nrjax.simulate(
        jax.random.key_data(KEY),
        interaction(),
        trials=np.int64(10),
        first_trial=np.uint8(3),
        batching=batching,
    )
    chex.assert_trees_all_equal(found, simulate(interaction(), 10, first_trial=3), strict=True)


def test_the_old_name_of_a_launch_still_works():
    with pytest.warns(DeprecationWarning, match=r"write Batching\(launch=...\)"):
        old = nrjax.Batching(tile=16, chunk=64)
    assert old == nrjax.Batching(tile=16, launch=64)
    with pytest.warns(DeprecationWarning, match=r"use Batching.launch"):
        assert old.chunk == 64
    with pytest.raises(ValueError, match="chunk must be None if launch is given"):
        nrjax.Batching(launch=64, chunk=32)
    assert dataclasses.replace(old, tile=32) == nrjax.Batching(32, None, 64)


@pytest.mark.parametrize("bounds", [True, False])
def test_a_sequence_is_batched_like_its_elements(bounds):
    utility = small_logistic().utility if bounds else Ceiled(np.full(5, 3.0))
    parts = logistic_parts() | {"rule": nrjax.PublicThreshold(0.0)}
    one, many = (
        nrjax.Interaction(**parts | {"utility": these})
        for these in (utility, nrjax.UtilitySequence.of([utility] * 60))
    )
    size = nrjax.Batching().resolve(one)
    assert size == nrjax.Batching().resolve(many)
    # Only bounds of a hypothesis make tiles smaller.
    spared = size != nrjax.Batching().resolve(many, 1)
    assert spared == overrides(utility, nrjax.Utility, "bounds")


def test_large_releases_are_batched_in_bounded_memory():
    small = interaction()
    assert nrjax.Batching().resolve(small) == (USUAL, 4096)
    assert nrjax.Batching().resolve_launch(small) == 2**18
    zeros = np.zeros(1_000_000)
    large = interaction(value=zeros, process=nrjax.Brownian(zeros.shape), utility=Distance(zeros))
    levels = 100_000
    path = levels * jnp.zeros(()).dtype.itemsize
    assert nrjax.Batching().resolve(small, 100)[0] == 4096
    assert nrjax.Batching().resolve(small, levels)[0] * 3 * path <= 2**28
    tile, lanes = nrjax.Batching().resolve(large)
    state = 3 * zeros.size * large.dtype.itemsize
    assert tile >= 1
    assert lanes * state <= 2**28
    assert nrjax.Batching().resolve_launch(large) * state <= 2**29


def test_an_accelerator_gets_more_trials_at_a_time():
    class Pair(NamedTuple):
        """A custom trial, or one that returns more."""

        size: int

        def run(self, key):
            return (jax.random.normal(key, (self.size,)),)

    gpu = nrjax.Batching(devices=[SimpleNamespace(platform="gpu")])
    assert gpu.resolve(interaction())[0] == gpu.resolve_custom_trials(Pair(1)) * 32 == 2**20
    assert gpu.resolve_custom_trials(Pair(2**18)) == 2**12 // jnp.zeros(()).dtype.itemsize
    assert gpu.resolve_launch(interaction()) == 2**24 // jnp.zeros(()).dtype.itemsize
    rows = np.zeros((2**16, 3), np.float32)
    taken = nrjax.brownian(np.zeros(3), sensitivity=1.0, delta=1e-6).until(
        lambda release: jnp.mean(jnp.abs(jnp.asarray(rows, release.dtype) @ release)), at_least=0.0
    )
    assert gpu.resolve(taken)[0] == 2**12 // (jnp.zeros(()).dtype.itemsize // 4)
    learned = nrjax.Interaction(**logistic_parts() | {"rule": nrjax.PublicThreshold(0.0)})
    assert gpu.resolve(learned) == (512, 2**14)
    assert nrjax.Batching().resolve(learned) == (16, 128)


def test_lanes_set_the_tile():
    """The largest power of two that divides them, unless the usual tile is smaller."""
    trial = interaction()
    for lanes, tile in ((1, 1), (2, 2), (12, 4), (8192, USUAL)):
        assert nrjax.Batching(lanes=lanes).resolve(trial) == (tile, lanes)


def test_inner_steps_depend_on_the_platform_and_the_data():
    trial = interaction()
    for platform, steps in (("cpu", 12), ("gpu", 16), ("tpu", 16)):
        device = SimpleNamespace(platform=platform)
        assert nrjax.Batching(devices=[device]).resolve_inner_steps(trial) == steps
        assert nrjax.Batching(inner_steps=5, devices=[device]).resolve_inner_steps(trial) == 5
        for bounds, several in ((True, 8 if platform == "cpu" else 16), (False, 1)):
            rule = nrjax.PublicThreshold(0.0) if bounds else Uncertain(0.0)
            parts: dict[str, Any] = logistic_parts() | {"rule": rule}
            learned = nrjax.Interaction(**parts)
            assert learned.bounds_decide == bounds
            assert nrjax.Batching(devices=[device]).resolve_inner_steps(learned) == several
    program = montecarlo.outcomes(trial, 8, batching=nrjax.Batching(devices=ONE))
    assert program.options.inner_steps == nrjax.Batching(devices=ONE).resolve_inner_steps(trial)
