"""Floats that are cast after construction: refused by name, or widened, wherever they run."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.composition import BrownianReduction, FilteredSchedule, Pure
from nrjax.engine import steps

pytestmark = pytest.mark.numerical

KEY = jax.random.key(0)
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def closeness(release, truth):
    return -jnp.abs(release - truth)


def cast(tree, dtype):
    """Return a pytree whose floats have another dtype, as `jax.tree.map` makes it."""

    def one(leaf):
        is_float = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        return jnp.asarray(leaf).astype(dtype) if is_float else leaf

    return jax.tree.map(one, tree)


def budget():
    return nrjax.UnifiedFilter(1.0, 1e-6)


@functools.cache
def interactions():
    """Return interactions by name, with tables of costs, a filter and a private rule."""
    options = {"score": closeness, "data": (120.0,), "at_least": -2.0}
    brownian = nrjax.brownian(120.0, 1.003, 1e-6)
    line = nrjax.brownian(120.0, 1.003, 1e-6, tight_at_epsilon=0.3)
    private = {"private": True, "sensitivity": 0.1, "margin": 2.0}
    grid = nrjax.Grid([1e4, 1e3, 1e2])
    paid = FilteredSchedule(grid, budget(), budget().init(), BrownianReduction, 1.003)
    return {
        "laplace": nrjax.laplace(120.0, 1.003).until(**options),
        "boundary": brownian.on((0.1, 3.0, 5)).until(**options),
        "filtered": line.until(**options, levels=paid),
        "private": brownian.until(**options, **private),
    }


def runs(interaction):
    """Return the runs of an interaction by name."""
    keys = jax.random.split(KEY, 2)
    return {
        "run_until": lambda: nrjax.run_until(KEY, interaction),
        "scan_path": lambda: nrjax.scan_path(KEY, interaction),
        "simulate": lambda: nrjax.simulate(KEY, interaction, trials=2),
        "vmap": lambda: jax.vmap(nrjax.run_until, (0, None))(keys, interaction),
        "jit": lambda: jax.jit(nrjax.run_until)(KEY, interaction),
        "sweep": lambda: nrjax.sweep(KEY, [interaction, interaction], trials=2),
        "audit": lambda: nrjax.audit(interaction, neighbour=1.0, trials=2),
    }


@pytest.mark.parametrize("name", ["laplace", "boundary", "filtered", "private"])
def test_every_run_refuses_an_interaction_that_was_cast(name, dtype):
    interaction = interactions()[name]
    message = rf"interaction\..* must be of {dtype.name}, as it was|of 32 bits|dtype of value must"
    wide = jnp.float32 if dtype == jnp.float64 else "float16"
    for other in (*NARROW, wide):
        for run in runs(cast(interaction, other)).values():
            with pytest.raises(ValueError, match=message):
                run()


def test_the_cast_of_a_single_number_is_refused_by_its_name(dtype):
    for interaction in interactions().values():
        leaves, structure = jax.tree.flatten_with_path(interaction)
        for place, (path, leaf) in enumerate(leaves):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                numbers = [number for _, number in leaves]
                numbers[place] = leaf.astype("bfloat16")
                with pytest.raises(ValueError, match="must be of") as refusal:
                    nrjax.run_until(KEY, jax.tree.unflatten(structure, numbers))
                assert f"interaction{jax.tree_util.keystr(path)} " in str(refusal.value)


def test_a_guarantee_that_was_cast_is_refused_by_a_new_interaction(dtype):
    """Its sensitivity was rounded. Narrow numbers that are given are exact, and are widened."""
    interaction = interactions()["laplace"]
    with pytest.raises(ValueError, match=r"guarantee\.sensitivity must be of 32 bits"):
        dataclasses.replace(interaction, guarantee=cast(interaction.guarantee, "bfloat16"))
    made = dataclasses.replace(interaction, guarantee=nrjax.PureGuarantee(jnp.bfloat16(1.5)))
    assert made.guarantee.sensitivity.dtype == dtype
    assert made.guarantee.sensitivity == 1.5


def test_the_refusal_is_needed(monkeypatch):
    """The planted fault: without it, epsilons are below sensitivity / time."""
    monkeypatch.setattr(steps, "check_uncast", lambda *_: None)
    interaction = cast(interactions()["laplace"], "bfloat16")
    keys = jax.random.split(KEY, 200)
    # A new function, which shares no trace with other tests.
    found = jax.jit(jax.vmap(lambda key: steps._run_until.__wrapped__(interaction, key)))(keys)
    stated = np.asarray(found.epsilon, float) * np.asarray(found.time, float)
    assert np.mean(stated < 1.003) > 0.2


def test_noise_paths_widen_their_times_and_the_numbers_of_a_process():
    times = jnp.asarray([16.0, 4.0, 1.0], jnp.float32)
    process = nrjax.Skellam((5,), 2.5, 1.25)
    expected = nrjax.noise_path(KEY, process, times)
    for name in ("bfloat16", "float8_e4m3fn"):
        narrow = jax.tree.map(lambda rate, name=name: jnp.asarray(rate, name), process)
        noise = nrjax.noise_path(KEY, narrow, times.astype(name))
        assert noise.dtype == jnp.float32
        np.testing.assert_array_equal(noise, expected)


def test_filters_and_their_states_refuse_casts(dtype):
    request = Pure(0.1)
    for kind in (nrjax.UnifiedFilter, nrjax.ZCDPFilter):
        own = kind(1.0, 1e-6)
        for name in NARROW:
            narrow = jax.tree.map(lambda x, name=name: jnp.asarray(x, name), own)
            with pytest.raises(ValueError, match=f"must be made in {name}"):
                narrow.take(own.init(), request)
            leaves, structure = jax.tree.flatten(state := own.init(rounds=1))
            for place, leaf in enumerate(leaves):
                if jnp.issubdtype(leaf.dtype, jnp.floating):
                    changed = [*leaves[:place], leaf.astype(name), *leaves[place + 1 :]]
                    with pytest.raises(ValueError, match=f"state must be in {dtype}"):
                        own.take(jax.tree.unflatten(structure, changed), request)
        assert bool(own.take(state, request)[1])


def test_releases_refuse_casts(dtype):
    releases = nrjax.Releases.of(jnp.zeros(3), nrjax.Laplace((3,)), nrjax.PureGuarantee(1.0))
    for name in NARROW:
        with pytest.raises(ValueError, match=rf"releases.* must be of {dtype}, as it was made"):
            cast(releases, name).at(KEY, 1.0)
    assert releases.at(KEY, 1.0)[1].dtype == dtype


def test_a_mechanism_that_was_cast_before_until_is_refused():
    """A value, sensitivity or table of costs would be rounded, and the stated cost too small."""

    def until(mechanism):
        return mechanism.until(lambda release: -jnp.abs(release), at_least=-3.0)

    mechanism = nrjax.laplace(257.0, 1.003)
    with pytest.raises(ValueError, match=r"must be of 32 bits"):
        until(cast(mechanism, jnp.bfloat16))
    narrow = cast(mechanism.guarantee, jnp.float16)
    with pytest.raises(ValueError, match=r"guarantee.* must be of 32 bits"):
        nrjax.Mechanism(257.0, mechanism.process, narrow)
    rule = cast(nrjax.ReducedAboveThreshold(-2.0, 1.003), jnp.bfloat16)
    with pytest.raises(ValueError, match=r"rule.* must be of 32 bits"):
        mechanism.until(lambda release: -jnp.abs(release), rule=rule, sensitivity=1.0)
    # Narrow numbers that are given are exact, and are widened.
    given = nrjax.laplace(jnp.bfloat16(256.0), jnp.bfloat16(1.5))
    assert until(given).guarantee.sensitivity == 1.5


def test_a_key_threshold_that_was_cast_is_refused():
    options = {"epsilon": 1.0, "delta": 1e-5, "keys_per_user": 1}
    for method in ("laplace", "gaussian", "geometric"):
        trial = nrjax.counts.KeyThreshold.fitted(np.array([257.0]), method, **options)
        with pytest.raises(ValueError, match=r"trial.* must be of 32 bits"):
            cast(trial, jnp.bfloat16).run(jax.random.key(0))
