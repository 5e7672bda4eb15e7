"""Sparse steps of Laplace noise against the reverse kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax._base.keys import step_key
from nrjax.processes import Laplace, _sparse
from nrjax.processes._kernel import (
    move_probability,
    random_bits,
    rewind_laplace,
    uniform_and_complement,
)
from tests.processes import laws
from tests.processes.laws import FAULTY, SOUND, Altered, bonferroni, draw_paths, law_p, mean_p

pytestmark = pytest.mark.numerical

MANY = Laplace((_sparse._LEAST,))
TRIALS = 200
FINE, MIXED, COARSE = (1.0, 0.985), (1.0, 0.99, 0.97), (5.0, 2.0, 1.5)


def chances(before, now, time):
    """Return the exact probabilities of moves across 0, inwards and outwards."""
    r, k, a = time / now, 1 / time - 1 / now, np.abs(before)
    side = (1 - r) / 2
    return side + 0 * a, (1 - side) * -np.expm1(-k * a), side * np.exp(-k * a)


def kernel_p(path, times):
    """Return the p-value of a step: directions, lengths, and independence of the moves."""
    (now, time), before, after = times, path[:, 0], path[:, 1]
    k, m, a = 1 / time - 1 / now, 1 / time + 1 / now, np.abs(before)
    ahead = after * np.sign(before)
    across = ahead < 0
    seen = across, (ahead < a) & ~across, ahead > a
    p = []
    for low, high in ((0, 0.5), (0.5, 1), (1, 2), (2, 4), (4, np.inf)):
        here = (low <= a) & (a < high)
        for flag, chance in zip(seen, chances(before, now, time), strict=True):
            p.append(mean_p((flag - chance)[here], 0.0))
    lengths = m * np.where(across, -ahead, ahead - a)
    p += [law_p(lengths[flag][:, None], stats.expon.cdf) for flag in (seen[0], seen[2])]
    share = np.expm1(-k * ahead[seen[1]]) / np.expm1(-k * a[seen[1]])
    p.append(law_p(share[:, None], stats.uniform.cdf))
    chance = sum(chances(before, now, time))
    moved = sum(seen) - chance
    p.append(mean_p(moved.sum(1) ** 2 - (chance * (1 - chance)).sum(1), 0.0))
    p += [mean_p((moved[:, i:] * moved[:, :-i]).sum(1), 0.0) for i in (1, 2, 8)]
    return bonferroni(p)


def pairs(path):
    """Split coordinates into pairs, as separate trials."""
    return np.moveaxis(path.reshape(*path.shape[:2], -1, 2), 2, 1).reshape(-1, path.shape[1], 2)


@pytest.mark.parametrize("times", [MIXED, COARSE])
@pytest.mark.long
def test_joint_law_of_three_times(times):
    """Batches have sparse steps, dense steps, or both."""
    path = pairs(draw_paths(MANY, times, TRIALS, seed=1)[0])
    assert laws.path_p(path, times, laws.laplace) > SOUND


@pytest.mark.parametrize("slots", [_sparse._SLOTS, 16])
@pytest.mark.long
def test_a_step_has_the_law_of_the_kernel(monkeypatch, slots):
    """Steps take one pass, or many."""
    monkeypatch.setattr(_sparse, "_SLOTS", slots)
    process = Altered(MANY, slots=slots)  # a program of its own
    assert kernel_p(draw_paths(process, FINE, TRIALS, seed=3)[0], FINE) > SOUND


def one_word(key, shape, dtype):
    """Plant a fault: gaps and draws share a word."""
    bits = random_bits(key, shape, dtype)
    return bits.at[1].set(bits[0]) if len(shape) == 2 else bits


PUT = _sparse._scatter
FAULTS = {
    "share": ("move_probability", lambda *of: 0.3 * move_probability(*of)),
    "words": ("random_bits", one_word),
    "turns": ("step_key", lambda key, turn: key),
    "places": ("_scatter", lambda value, places, new: PUT(value, places + 1, new)),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(monkeypatch, fault):
    name, function = FAULTS[fault]
    monkeypatch.setattr(_sparse, name, function)
    if fault == "turns":
        monkeypatch.setattr(_sparse, "_SLOTS", 2)
    process = Altered(MANY, fault=function)  # a program of its own
    assert kernel_p(draw_paths(process, FINE, TRIALS, seed=3)[0], FINE) < FAULTY


@pytest.mark.long
def test_outliers_and_lanes_of_all_kinds(dtype):
    """Noise does not depend on the batch."""
    process = Laplace((2, 600))
    keys = jax.random.split(jax.random.key(4), 6)
    times = jnp.asarray([0.999, 0.99, 0.5, 1.0, 1e-6, 0.97], dtype)

    @jax.jit
    def moved(key, time):
        state = process.init(key, jnp.asarray(1.0, dtype))
        return state.value, process.rewind(key, state, time).value

    start, together = jax.jit(jax.vmap(moved))(keys, times)
    assert together.shape == (6, 2, 600)
    assert np.all(np.isfinite(together))
    for lane in (0, 2, 5):
        alone = moved(keys[lane], times[lane])[1]
        np.testing.assert_allclose(alone, together[lane], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(together[3], start[3])  # where it is
    assert 0 < np.mean(together[0] != start[0]) < 0.01
    assert np.all(together[4] != start[4])


def test_dense_trials_take_a_draw_per_coordinate():
    """Among trials that stay, and in passes that are not full."""
    size, trials = MANY.shape[0], 2 * _sparse._ROWS + 3
    keys = jax.random.split(jax.random.key(5), trials)
    values = jax.random.laplace(jax.random.key(6), (trials, size))
    rewind = jax.jit(jax.vmap(_sparse.rewind_sparse, (0, 0, None, 0)))

    @jax.jit
    @jax.vmap
    def expected(key, value, time):
        bits = random_bits(step_key(key, 0), (size,), value.dtype)
        return rewind_laplace(*uniform_and_complement(bits, value.dtype), value, jnp.ones(()), time)

    for count in (1, _sparse._ROWS + 2, trials):
        dense = np.random.default_rng(count).permutation(trials) < count
        times = jnp.where(dense, 0.5, 1.0)
        after = np.asarray(rewind(keys, values, jnp.ones(()), times))
        alone = np.asarray(expected(keys, values, times))
        np.testing.assert_allclose(after[dense], alone[dense], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(after[~dense], np.asarray(values)[~dense])


@pytest.mark.long
def test_lanes_that_are_done_do_not_count_on(dtype):
    """The place of a finished trial must not overflow while others continue."""
    values = jnp.full((2, 250_000), 6.0, dtype)
    now, times = jnp.ones(2, dtype), jnp.asarray([0.9765, 0.9999999], dtype)
    keys = jax.random.split(jax.random.key(0), 2)
    together = jax.jit(jax.vmap(_sparse.rewind_sparse))(keys, values, now, times)
    alone = jax.jit(_sparse.rewind_sparse)(keys[1], values[1], now[1], times[1])
    assert np.mean(together[0] != 6) > 0.1
    np.testing.assert_array_equal(together[1] != 6, alone != 6)


def test_no_draw_above_the_share_moves(dtype):
    """Coordinates that are not sampled would have stayed."""
    distance = jnp.asarray(np.geomspace(1e-6, 50, 200), dtype)
    kind = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    for time in (0.9, 0.99, 0.999, 0.99999):
        now, time = jnp.asarray(1.0, dtype), jnp.asarray(time, dtype)
        share = move_probability(distance, now, time)
        exact = -np.expm1(np.log(float(time)) - (1 / float(time) - 1) * np.asarray(distance, float))
        np.testing.assert_allclose(share, exact, rtol=0.01 if dtype == jnp.float32 else 1e-9)
        eps = float(jnp.finfo(dtype).eps)
        bits = jnp.asarray(
            (np.asarray(share, float) + 32 * eps) * 2.0 ** jnp.iinfo(kind).bits, kind
        )
        np.testing.assert_array_equal(
            rewind_laplace(*uniform_and_complement(bits, dtype), distance, now, time), distance
        )
