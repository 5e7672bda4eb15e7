"""Trials on several devices, some of them idle: no communication, and the same bits.

Chunks, lanes and numbers of devices are varied in test_montecarlo, test_custom_trials and
test_sweeps.
"""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import nrjax
from nrjax._base.captured import jit_with_captured
from nrjax._base.placing import placed
from nrjax.simulation import montecarlo
from nrjax.simulation.families import Family
from nrjax.simulation.program import Program, _in_pinned_memory, _on_devices, _shards
from tests.draws import Draws
from tests.problems import interaction, logistic_parts

pytestmark = pytest.mark.bits

KEY = jax.random.key(11)
DEVICES = tuple(jax.devices())
TRIALS = 40
COMMUNICATION = re.compile(
    r"all[-_](reduce|gather|to[-_]all)|collective|reduce[-_]scatter|ragged|\b(send|recv)\b"
)
"""Operations by which devices communicate, in StableHLO and in HLO."""


def outcomes(chunk, devices, trial=None):
    batching = nrjax.Batching(tile=4, lanes=8, inner_steps=3, devices=devices)
    trial = trial or interaction(np.geomspace(40.0, 0.02, 12), threshold=-2.0)
    return montecarlo.outcomes(trial, chunk, ("step", "release", "utility"), batching)


PROGRAMS = {
    "outcomes": lambda: outcomes(TRIALS, DEVICES, nrjax.Interaction(**logistic_parts())),
    "paths": lambda: montecarlo.paths(interaction(), TRIALS),
    "custom trials": lambda: montecarlo.custom_trials(Draws(0.7), TRIALS),
}


def lowered(program):
    """Return the lowered program that `run` compiles."""
    return program._idle(KEY, _on_devices.lower)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_devices_do_not_communicate(kind):
    assert not COMMUNICATION.search(lowered(PROGRAMS[kind]()).as_text())


@pytest.mark.long
def test_compiled_programs_do_not_communicate():
    assert not COMMUNICATION.search(lowered(outcomes(13, DEVICES[::-1])).compile().as_text())


def test_a_planted_sum_over_devices_is_found():
    def total(x):
        return jax.lax.psum(x, "trials")

    mesh = Mesh(np.array(DEVICES), ("trials",))
    spec = PartitionSpec("trials")
    made = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=spec, out_specs=PartitionSpec()))
    assert COMMUNICATION.search(made.lower(jnp.arange(8.0)).as_text())
    assert COMMUNICATION.search(made.lower(jnp.arange(8.0)).compile().as_text())


def test_the_same_bits_on_any_devices(monkeypatch):
    """Two trials per device, the last device idle, and a last chunk of one trial."""
    on_one = outcomes(TRIALS, DEVICES[:1]).run(KEY, TRIALS)
    assert np.unique(on_one["step"]).size > 3
    program = outcomes(13, DEVICES[::-1])
    chex.assert_trees_all_equal(program.run_all(KEY, TRIALS), on_one, strict=True)
    # Planted fault: each device numbers its trials from 0.
    call = Program._call
    monkeypatch.setattr(
        Program, "_call", lambda self, key, firsts, counts: call(self, key, 0 * firsts, counts)
    )
    other = program.run_all(KEY, TRIALS)
    np.testing.assert_array_equal(on_one["release"][:2], other["release"][:2])
    assert not np.array_equal(on_one["release"], other["release"])


def divided(array, devices=DEVICES):
    mesh = Mesh(np.array(devices), ("x",))
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec("x")))


def test_arrays_on_other_devices_are_moved_to_those_of_the_program():
    numbers, key = jnp.arange(16.0), jax.random.key(3)
    third = DEVICES[3]
    tree = {
        "free": numbers,
        "host": np.arange(2),
        "there": jax.device_put(numbers, third),
        "divided": divided(numbers),
        "reversed": divided(numbers, DEVICES[::-1]),
        "key": jax.device_put(key, third),
    }
    for devices in (DEVICES, DEVICES[2:4], (third,)):
        moved = placed(tree, devices)
        assert moved["free"] is numbers
        assert moved["host"] is tree["host"]
        assert (moved["divided"] is tree["divided"]) == (devices == DEVICES)
        assert (moved["there"] is tree["there"]) == (moved["key"] is tree["key"])
        assert (moved["there"] is tree["there"]) == (devices == (third,))
        for name in ("there", "divided", "reversed", "key"):
            assert moved[name].sharding.device_set == set(devices)
        chex.assert_trees_all_equal(
            *(
                {name: jax.device_get(tree[name]) for name in ("there", "divided", "reversed")}
                for tree in (moved, tree)
            )
        )
    mesh = jax.make_mesh((len(DEVICES),), ("d",), axis_types=(AxisType.Explicit,))
    explicit = jax.device_put(numbers, NamedSharding(mesh, PartitionSpec("d")))
    assert placed([explicit])[0] is explicit
    assert placed([explicit], DEVICES)[0].sharding.spec == PartitionSpec()
    assert placed({"free": numbers, "there": tree["there"]})["there"] is tree["there"]
    both = placed([tree["there"], tree["divided"]])
    assert [each.sharding.device_set for each in both] == [{third}, {third}]


def test_the_same_bits_if_arrays_are_on_other_devices():
    batching = nrjax.Batching(tile=4, devices=DEVICES[:2])
    trial = Draws(jnp.float32(0.7))
    there, key = jax.device_put(trial, DEVICES[3]), jax.device_put(KEY, DEVICES[4])
    expected = montecarlo.custom_trials(trial, 22, batching).run(KEY, 22)
    found = montecarlo.custom_trials(there, 22, batching).run(key, 22)
    chex.assert_trees_all_equal(found, expected, strict=True)
    numbers = jnp.arange(16.0)
    total = jit_with_captured(jnp.add)(jax.device_put(numbers, DEVICES[3]), divided(numbers))
    np.testing.assert_array_equal(total, 2 * numbers)
    points = [interaction(value=value) for value in (3.0, 4.0)]
    points = [jax.device_put(*each) for each in zip(points, DEVICES[:2], strict=True)]
    assert Family.from_interactions(points).points == 2


def test_results_of_accelerators_pass_through_memory_of_the_host():
    """CPUs have such memory too, though their results do not need it."""
    batching = nrjax.Batching(tile=4, devices=DEVICES[:3])
    launch = montecarlo.custom_trials(Draws(0.7), 22, batching).launch(KEY, 22)
    shards = {name: _shards(leaf) for name, leaf in launch.results.items()}
    for rows, expected in ((8, 8), (5, 8), (3, 4), (1, 1)):  # rounded up to a power of two
        pinned = _in_pinned_memory(shards, rows)
        for name, parts in pinned.items():
            assert {part.sharding.memory_kind for part in parts} == {"pinned_host"}
            chex.assert_trees_all_equal(parts, [part[:expected] for part in shards[name]])
    direct = launch.empty(22)
    launch.copy(direct, 0)
    chex.assert_trees_all_equal(direct["epsilon"][-6:], np.asarray(shards["epsilon"][2])[:6])
    assert np.unique(direct["epsilon"]).size == 22
