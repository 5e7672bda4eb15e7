"""Noise along a grid: its law across blocks, its keys, and its invariances."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.keys import Role, role_key, step_key
from nrjax._base.normals import normals
from nrjax._base.threefry import unrolled_key
from nrjax.processes import (
    Brownian,
    IndependentLaplace,
    Laplace,
    LaplaceJumps,
    Skellam,
    noise_path,
    scan_noise,
)
from nrjax.processes.paths import BLOCK, _noise_path
from tests.problems import scalar
from tests.processes.laws import FAULTY, SOUND, fresh, gaussian, laplace, path_p

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

STEPS = 1 + BLOCK + 24  # the first, a whole block, a part of one
TIMES = np.geomspace(40.0, 2.0, STEPS)
TRIALS = 10_000
BROWNIAN, LAPLACE = Brownian(()), Laplace(())
TINY = float(jnp.finfo(jnp.result_type(float)).tiny)
NO_LATER = (2.0, 0.0, np.nan, TINY / 2, TINY / 2**60)  # the last is zero in the dtype


def keys(trials, first=0):
    trial = functools.partial(nrjax.trial_key, jax.random.key(1))
    return jax.vmap(trial)(jnp.arange(first, first + trials))


@functools.cache
def draw(process, steps=STEPS, trials=TRIALS, first=0):
    paths = jax.jit(jax.vmap(lambda key: noise_path(key, process, TIMES[:steps])))
    return np.asarray(paths(keys(trials, first)))


def block_p(noise, law):
    """Return the p-value of steps within a block and a block apart."""
    times = np.array([0, 1, 2, 3, 1 + BLOCK, 2 + BLOCK, STEPS - 1])
    return path_p(noise[:, times, None].astype(float), TIMES[times], law)


def test_laws():
    assert block_p(draw(BROWNIAN), gaussian) > SOUND
    assert block_p(draw(LAPLACE), laplace) > SOUND


@pytest.mark.long
def test_planted_faults_are_seen(monkeypatch):
    assert block_p(fresh(draw(BROWNIAN)), gaussian) < FAULTY
    assert block_p(fresh(draw(LAPLACE)), laplace) < FAULTY

    def shared(key, number):
        return step_key(key, jnp.minimum(number, 1))

    monkeypatch.setattr("nrjax.processes.paths.step_key", shared)
    _noise_path.jitted.clear_cache()
    assert block_p(draw.__wrapped__(BROWNIAN), gaussian) < FAULTY
    _noise_path.jitted.clear_cache()


@pytest.mark.long
def test_blocks_are_keyed_by_their_number(dtype):
    """NumPy gives the same with key 0 for the first noise, then key b for block b."""
    process, times, size = Brownian((3,)), TIMES[:40].astype(dtype).astype(float), BLOCK // 3
    key = nrjax.trial_key(jax.random.key(3), 5)
    noise_key = role_key(unrolled_key(key), Role.NOISE)
    drawn = [normals(step_key(noise_key, 0), (1, 3), dtype)]
    drawn += [normals(step_key(noise_key, b), (size, 3), dtype) for b in (1, 2)]
    drawn = np.concatenate(drawn).astype(float)
    want = [np.sqrt(times[0]) * drawn[0]]
    for now, time, normal in zip(times[:-1], times[1:], drawn[1:], strict=False):
        want.append(time / now * want[-1] + np.sqrt(time * (now - time) / now) * normal)
    got = jax.jit(lambda key: noise_path(key, process, times))(key)
    assert got.shape == (40, 3)
    assert got.dtype == dtype
    tolerance = 2000 * float(jnp.finfo(dtype).eps)  # of differences of near times
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.long
def test_depends_on_the_trial_and_earlier_times_alone():
    """Noise is bit-for-bit equal for other numbers of trials and of later steps."""
    few = draw(BROWNIAN, BLOCK + 4, 7, 11)
    np.testing.assert_array_equal(few, draw(BROWNIAN)[11:18, : BLOCK + 4])
    for steps, first in ((9, 42), (1, 0)):
        few = draw(LAPLACE, steps, 1, first)
        np.testing.assert_array_equal(few, draw(LAPLACE)[first : first + 1, :steps])


def test_times_may_be_a_list_or_a_table():
    pandas, key = pytest.importorskip("pandas"), jax.random.key(0)
    expected = noise_path(key, nrjax.Brownian(()), np.array([4.0, 2.0, 0.5]))
    for times in ([4.0, 2.0, 0.5], pandas.Series([4.0, 2.0, 0.5])):
        np.testing.assert_array_equal(noise_path(key, nrjax.Brownian(()), times), expected)


def test_folding_sees_the_same_noise():
    def visit(largest, state):
        return jnp.maximum(largest, BROWNIAN.value(state)), None

    fold = jax.jit(jax.vmap(lambda key: scan_noise(key, BROWNIAN, TIMES, visit, -jnp.inf)))
    largest, kept = fold(keys(TRIALS))
    np.testing.assert_array_equal(largest, draw(BROWNIAN).max(axis=1))
    assert kept is None


@pytest.mark.long
def test_other_processes_are_stepped_as_the_engine_does():
    """`IndependentLaplace` draws at every step, so that every key matters."""
    times, process = TIMES[:5], IndependentLaplace((2,))
    key = nrjax.trial_key(jax.random.key(4), 0)
    own = scalar(times, threshold=1.0, value=np.zeros(2), process=process, guarantee=None)
    path = nrjax.scan_path(key, nrjax.Interaction(**own))
    got = jax.jit(lambda key: noise_path(key, process, times))(key)
    np.testing.assert_allclose(got, path.release, rtol=1e-6)


def test_noise_beyond_the_law_is_nan():
    """Below `eta` a jump path ends, and invalid traced times end any path."""
    key, jumps = jax.random.key(0), LaplaceJumps((2,), 1.0, 8.0)
    noise = jax.jit(lambda key: noise_path(key, jumps, [4.0, 2.0, 0.5, 0.4]))(key)
    np.testing.assert_array_equal(np.isnan(noise).all(axis=1), [False, False, True, True])
    assert not np.isnan(noise[:2]).any()
    traced = jax.jit(jax.vmap(lambda times: noise_path(key, LAPLACE, times)))
    times = jnp.array([[4.0, 2, 1, 0.5], [4, 2, 3, 1], [4, 2, -1, 1], [4, 2, np.nan, 1]])
    sound = ~np.isnan(traced(times))
    np.testing.assert_array_equal(sound, [[True] * 4] + [[True, True, False, False]] * 3)
    assert np.isnan(traced(times.at[0, 0].set(jnp.inf))[0]).all()


@pytest.mark.parametrize("times", [[], 3.0, [[2, 1]], *([1.0, s] for s in NO_LATER), [np.inf, 1.0]])
def test_times_and_key_are_checked(times):
    for given in (times, np.array(times)):
        with pytest.raises(ValueError, match=r"times must be positive, finite and not ris"):
            noise_path(jax.random.key(0), BROWNIAN, given)
    with pytest.raises(ValueError, match="key must"):
        noise_path(jnp.zeros(3), BROWNIAN, [1.0])


def test_noise_is_nan_below_the_smallest_time():
    """There a product of the time and a rounded difference of times would be subnormal."""
    least = BROWNIAN.smallest_time(jnp.result_type(float))
    path = noise_path(jax.random.key(0), BROWNIAN, [1.0, least, least / 2])
    np.testing.assert_array_equal(np.isfinite(path), [True, True, False])


def test_a_path_is_compiled_once():
    """A second call with another key, other times and another rate compiles nothing."""
    programs = _noise_path.jitted._cache_size()
    for rate in (1.0, 3.0):
        process = Skellam((5,), rate1=rate, rate2=1.0)
        noise_path(jax.random.key(int(rate)), process, [4.0, 2.0, 1.0 / rate])
    assert _noise_path.jitted._cache_size() == programs + 1
