"""Laplace noise at the ends of its range, and the buffer of its jumps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax._base.outcome import Status
from nrjax.processes import Laplace, LaplaceJumps
from nrjax.processes._kernel import (
    NoiseState,
    laplace,
    rewind_laplace,
    uniform,
    uniform_and_complement,
)
from nrjax.processes.laplace_jumps import buffer_size
from tests.processes.laws import FAULTY, SOUND, bonferroni, mean_p

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

JUMPS = LaplaceJumps((2,), 0.5, 6.0)


def test_random_bits_reach_the_tails(dtype):
    """All-zero and all-one bits give finite, symmetric noise, beyond 22 scales in float32."""
    kind = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    bits = jnp.array([0, 1, jnp.iinfo(kind).max - 1, jnp.iinfo(kind).max], kind)
    noise = np.asarray(laplace(bits, dtype), float)
    assert noise[0] > (22 if dtype == jnp.float32 else 44)
    assert noise[1] == -noise[0]
    assert np.all(np.abs(noise[2:]) < 1e-6)
    levels = np.asarray(uniform(bits, dtype), float)
    assert 0 < levels[0] < 1e-9
    assert levels[-1] == 1


def test_draws_on_the_edge_between_two_moves_stay_finite(dtype):
    """Try every draw within a few units of a boundary between two kinds of move."""
    kind = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    levels = 2.0 ** jnp.iinfo(kind).bits
    values = np.array([0.0, 1e-6, 0.01, 1.0, 30.0, -1.0], dtype)[:, None]
    near = np.arange(-600, 601) * max(1, int(levels * 2**-55))

    @jax.jit
    def moved(bits, ratio):
        return rewind_laplace(
            *uniform_and_complement(bits, dtype), values, jnp.asarray(1.0, dtype), ratio
        )

    for ratio in (0.5, 0.9, 0.995, 1e-3):
        past = (1 - ratio) / 2 * (1 + np.exp(-values[:5, 0] * (1 / ratio - 1)))
        edges = np.append(past, [(1 - ratio) / 2, 1e-12, 1 - 1e-12])
        bits = (edges[:, None] * levels).astype(np.uint64) + near.astype(np.uint64)
        bits = np.clip(bits.ravel(), 0, jnp.iinfo(kind).max).astype(kind)
        noise = np.asarray(moved(bits, ratio))
        assert np.all(np.isfinite(noise))
        assert np.all(np.abs(noise) < np.abs(values) + 50)


def test_privacy_loss_of_a_tiny_shift_does_not_cancel(dtype):
    state = NoiseState(jnp.asarray([1000.0, -1000.0, 0.0], dtype), jnp.asarray(2.0, dtype))
    for shift, want in (([1, 0, 0], 5e-13), ([0, 1, 0], -5e-13), ([0, 0, -1], 5e-13)):
        loss = Laplace((3,)).privacy_loss(state, 1e-12 * jnp.asarray(shift, dtype))
        assert float(loss) == pytest.approx(want)


def test_jump_buffer_has_the_promised_size():
    """The smallest size that keeps the exact Poisson tail below 1e-12."""
    for mean in (0.01, 1.0, 9.2, 41.4, 300.0, 2800.0):
        size = buffer_size(mean)
        assert stats.poisson.sf(size - 1, mean) < 1e-12 <= stats.poisson.sf(size - 2, mean)
    assert LaplaceJumps((3,), 2.0, 2.0).size == 1
    assert LaplaceJumps((), np.array([1.0, 0.1]), 10.0).size == LaplaceJumps((), 0.1, 10.0).size


def test_overflow_is_detected_as_often_as_it_happens():
    """A buffer of two jumps on [1, 3] overflows with probability P(Poisson(2 log 3) >= 2)."""
    keys = jax.random.split(jax.random.key(6), 50_000)

    def running(process, first, last):
        @jax.jit
        @jax.vmap
        def status(key):
            return process.status(process.rewind(key, process.init(key, first), last))

        found = np.asarray(status(keys))
        assert set(np.unique(found)) <= {Status.RUNNING, Status.OVERFLOW}
        return found == Status.RUNNING

    seen = running(LaplaceJumps((2,), 1.0, 3.0, size=2), 3.0, 1.0)
    sound = stats.poisson.cdf(1, 2 * np.log(3)) ** 2
    assert bonferroni([mean_p(seen, sound)]) > SOUND
    assert bonferroni([mean_p(seen, 0.9 * sound)]) < FAULTY
    assert running(JUMPS, 6.0, 6.0).all()  # of the promised size


def test_a_time_outside_the_range_is_reported_for_good():
    @jax.jit
    @jax.vmap
    def statuses(time):
        key = jax.random.key(0)
        state = JUMPS.rewind(key, JUMPS.init(key, 5.0), time)
        states = state, JUMPS.rewind(key, state, 1.0), JUMPS.init(key, time)
        return [JUMPS.status(state) for state in states]

    found = statuses(jnp.array([0.4999, 6.001, np.nan, -1.0, np.inf]))
    np.testing.assert_array_equal(found, np.full((3, 5), Status.INVALID_TIME))


def test_a_time_outside_by_rounding_passes(dtype):
    key = jax.random.key(0)
    eta, horizon = np.asarray(JUMPS.eta, dtype), np.asarray(JUMPS.horizon, dtype)
    high = JUMPS.init(key, np.nextafter(horizon, np.asarray(np.inf, dtype)))
    low = JUMPS.rewind(key, high, np.nextafter(eta, np.asarray(0, dtype)))
    assert JUMPS.status(low) == Status.RUNNING
    np.testing.assert_array_equal(JUMPS.value(low), JUMPS.value(JUMPS.rewind(key, low, eta)))


def test_traced_range_asks_for_a_size():
    with pytest.raises(ValueError, match="size must be an integer, at least 1, if eta"):
        jax.vmap(lambda eta: LaplaceJumps((), eta, 6.0).init(jax.random.key(0), 2.0))(jnp.ones(2))
