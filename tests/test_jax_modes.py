"""Runs under JAX's modes and transformations: they work, or the error has advice."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import nrjax
from nrjax._base.keys import study_key
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
    "infinities": lambda: jax.debug_infs(True),
    "used keys": lambda: jax.debug_key_reuse(True),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
    "transfers": lambda: jax.transfer_guard("disallow_explicit"),
    "leaks": lambda: jax.check_tracer_leaks(True),
    "checks": lambda: jax.enable_checks(True),
    "no jit": lambda: jax.disable_jit(),
    "mesh": lambda: jax.set_mesh(mesh()),
    "explicit mesh": lambda: jax.set_mesh(mesh(AxisType.Explicit)),
}


@pytest.mark.parametrize("mode", long_except(MODES, "used keys", "ranks", "transfers"))
def test_many_trials_are_the_same_under_a_mode(mode, usual):
    assert np.isnan(usual.privacy_loss).all()  # NaNs would stop a run under the mode
    with MODES[mode]():
        chex.assert_trees_all_equal(simulate(), usual, strict=True)


def score(release, truth):
    return -jnp.max(jnp.abs(release - truth))


def mechanisms():
    value = np.arange(3.0)
    yield nrjax.laplace(value, 1.0)
    yield nrjax.brownian(value, 1.0, 1e-6)
    yield nrjax.discrete_laplace(value, 1)


def made():
    """Return what the functions make that `simulate` needs, and what they return."""
    goal = {"at_least": -2.0, "data": (np.arange(3.0),)}
    trials = [each.until(score, levels=(0.1, 2.0, 3), **goal) for each in mechanisms()]
    laplace, brownian, _ = mechanisms()
    trials.append(laplace.until(score, private=True, sensitivity=1.0, **goal))
    trials.append(laplace.until(score, **goal))
    trials.append(nrjax.FixedRelease(laplace, epsilon=0.5).until(score, **goal))
    made = nrjax.Releases.of(1.0, nrjax.Laplace(()), nrjax.PureGuarantee(1.0))
    processes = nrjax.Laplace((3,)), nrjax.Skellam((), 1.0, 2.0)
    return (
        *(trials, brownian.on((0.1, 2.0, 3)).guarantee, made.at(KEY, 2.0)),
        [nrjax.noise_path(KEY, process, [3.0, 2.0, 1.0]) for process in processes],
        nrjax.PureGuarantee(1.0).epsilon(np.array([1.0, 2.0])),
        jax.random.key_data(nrjax.trial_key(KEY, 3)),
    )


@pytest.mark.parametrize(
    "mode", long_except([mode for mode in MODES if mode != "no jit"], "transfers")
)
def test_so_are_mechanisms_and_paths(mode):
    expected = made()
    with MODES[mode]():
        found = made()
    chex.assert_trees_all_equal(found, expected, strict=True)


def budgets():
    """Return what a filter and an odometer return."""
    stopped = nrjax.composition.ExPost.of(nrjax.PureGuarantee(1.0), 10.0)
    ledger, odometer = nrjax.ExPostFilter(1.0), nrjax.ExPostOdometer()
    state, ok = ledger.take(ledger.init(), stopped)
    return (
        *(ledger.cost(stopped), ledger.remaining(state), ok, ledger.admits(state, stopped)),
        odometer.bound(odometer.spend(odometer.init(), stopped)),
    )


@pytest.mark.parametrize(
    "mode", long_except([mode for mode in MODES if mode != "no jit"], "transfers", "ranks")
)
def test_so_are_budgets(mode):
    expected = budgets()
    with MODES[mode]():
        found = budgets()
    chex.assert_trees_all_equal(found, expected, strict=True)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["infinities", "ranks", "dtypes", "transfers"])
def test_so_are_fits_audits_and_choices(mode):
    x = np.array([[0.5, 0.5], [0.1, 0.2], [0.3, 0.4], [0.2, 0.9]])
    question = nrjax.questions.mean(np.linspace(0, 1, 100), (0, 1))

    def results():
        problem = nrjax.erm.LogisticProblem.fit(x, [1.0, -1, 1, -1], 0.05)
        audited = nrjax.audit(
            problem.laplace().until(at_least=-0.5, levels=(0.1, 1, 3)), trials=256
        )
        choice = nrjax.choose(question, 0.05, trials=256, progress=False)
        return problem.optimum_loss, str(audited), str(choice)

    expected = results()
    with MODES[mode]():
        assert results() == expected


def test_a_seed_is_that_of_jax_whatever_its_offset_is():
    expected = jax.random.key_data(jax.random.key(7))
    offset = jax.config.jax_random_seed_offset
    try:
        for number in (0, 5):
            jax.config.update("jax_random_seed_offset", number)
            np.testing.assert_array_equal(jax.random.key_data(study_key(7)), expected)
    finally:
        jax.config.update("jax_random_seed_offset", offset)
    for seed in (-1, 2**32, 2**32 + 1, 1.0, True):
        with pytest.raises(ValueError, match=r"^seed must be an integer"):
            study_key(seed)


def test_checks_of_your_own_code_are_left_to_you():
    """Within a run they are off, and after it as before."""
    with jax.numpy_rank_promotion("raise"):
        simulate()
        with pytest.raises(ValueError, match="rank"):
            jnp.ones((2, 3)) + jnp.ones(3)


def test_a_traced_sensitivity_needs_levels():
    def epsilon(sensitivity, **levels):
        goal = {"at_least": -2.0, "data": (100.0,)}
        trial = nrjax.laplace(100.0, sensitivity).until(score, **goal, **levels)
        return nrjax.run_until(KEY, trial).epsilon

    sensitivities = jnp.array([1.0, 2.0])
    with pytest.raises(ValueError, match=r"^levels must be given if .* For example levels=\(0.01"):
        jax.vmap(epsilon)(sensitivities)
    levels = (0.1, 1.0, 5)
    batch = jax.vmap(partial(epsilon, levels=levels))(sensitivities)
    single = [epsilon(number, levels=levels) for number in (1.0, 2.0)]
    np.testing.assert_allclose(batch, single, rtol=1e-6)
    assert jax.jit(lambda: epsilon(1.0))() == epsilon(1.0)  # not traced


def test_a_batch_of_interactions_is_for_vmap():
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), build(), build())
    message = (
        r" must be a single interaction \(got 'a batch of shape \(2,\)'\)\. Use nrjax\.run_until"
    )
    for call in (
        lambda: nrjax.simulate(KEY, batch, trials=5),
        lambda: nrjax.sweep(KEY, [batch], trials=5),
        lambda: nrjax.run_until(KEY, batch),
        lambda: nrjax.scan_path(KEY, batch),
        lambda: nrjax.audit(batch),
        lambda: nrjax.Case(trial=batch),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert jax.vmap(partial(nrjax.run_until, KEY))(batch).step.shape == (2,)


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
