"""The Laplace process three ways (forward grid, jumps, reverse kernel), and against its law."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Laplace, LaplaceJumps
from nrjax.processes._coordinates import NoiseState
from nrjax.processes._kernel import laplace, random_bits, rewound, uniform, uniforms
from nrjax.processes.laplace import buffer_size
from nrjax.types import Status
from tests.processes.laws import (
    FAULTY,
    SOUND,
    Altered,
    bonferroni,
    draw_paths,
    fresh,
    law_p,
    mean_p,
    same_law_p,
    same_mean_p,
    shrunk,
)

pytestmark = pytest.mark.numerical

TIMES = (5.0, 2.0, 1.5)
TRIALS = 50_000
KERNEL = Laplace((2,))
JUMPS = LaplaceJumps((2,), 0.5, 6.0)


def forward_grid(times, trials, seed, one_coin=False):
    """Slow oracle, eq. 3 as printed: stay with probability (s/t)^2, else add Lap(t)."""
    rng = np.random.default_rng(seed)
    values = [rng.laplace(scale=times[-1], size=(trials, 2))]
    for s, t in itertools.pairwise(reversed(times)):
        stays = rng.random((trials, 1 if one_coin else 2)) < (s / t) ** 2
        jump = rng.laplace(scale=t, size=(trials, 2))
        values.append(np.where(stays, values[-1], values[-1] + jump))
    return np.stack(values[::-1], axis=1)


@pytest.fixture(scope="module")
def samples():
    return {
        "grid": forward_grid(TIMES, TRIALS, seed=1),
        "kernel": draw_paths(KERNEL, TIMES, TRIALS, seed=2)[0],
        "jumps": draw_paths(JUMPS, TIMES, TRIALS, seed=3)[0],
    }


def exact_p(path, times):
    """Marginals, staying, covariances and the coordinates' independence, all in closed form."""
    times = np.asarray(times)
    n, k = path.shape[:2]
    p = [law_p((path / times[None, :, None]).reshape(n, -1), stats.laplace.cdf)]
    for i, j in itertools.combinations(range(k), 2):
        stay = path[:, i] == path[:, j]
        chance = (times[j] / times[i]) ** 2
        p.append(mean_p(stay, chance))
        p.append(mean_p(stay.all(axis=1), chance**2))
        p.append(mean_p(path[:, i] * path[:, j], 2 * times[j] ** 2))
        p.append(mean_p(path[:, i, 0] * path[:, j, 1], 0.0))
    return bonferroni(p)


def functionals(path):
    """What two samplers of the joint law of three times must agree in, (trials, many)."""
    columns = []
    for i, j in itertools.combinations(range(path.shape[1]), 2):
        t, s = path[:, i], path[:, j]
        stay = t == s
        columns += [
            stay,
            stay & (np.abs(t) > TIMES[i]),
            np.sign(t) * np.sign(s),
            np.abs(t) * np.abs(s),
            np.abs(t - s),
            (np.abs(s) > np.abs(t)) & (np.sign(s) == np.sign(t)),
            (np.abs(t) < TIMES[i] / 2) & (np.abs(s) < TIMES[j] / 2),
            np.broadcast_to((stay[:, :1] & stay[:, 1:]), stay.shape),
        ]
    first, second, third = path[:, 0], path[:, 1], path[:, 2]
    columns += [
        (first == second) & (second == third),
        (first == second) & (second != third),
        (first != second) & (second == third),
        np.abs(first - second) * np.abs(second - third),
        np.sign(first) * np.sign(third) * (np.abs(second) > TIMES[1]),
    ]
    return np.concatenate(columns, axis=1)


def same_p(one, two):
    def differences(path):
        return np.concatenate([path[:, 0] - path[:, 1], path[:, 1] - path[:, 2]], axis=1)

    return bonferroni(
        [
            same_mean_p(functionals(one), functionals(two)),
            same_law_p(one.reshape(len(one), -1), two.reshape(len(two), -1)),
            same_law_p(differences(one), differences(two)),
            same_law_p(one.sum(axis=1), two.sum(axis=1)),
        ]
    )


def test_closed_forms_and_the_joint_law_of_three_times(samples):
    for sample in samples.values():
        assert exact_p(sample, TIMES) > SOUND
    for one, other in itertools.combinations(samples.values(), 2):
        assert same_p(one, other) > SOUND


def shared_draws(key, state, time):
    """Fault: one coin, and one exponential, for the whole vector."""
    one = jax.vmap(lambda z: Laplace(()).rewind(key, NoiseState(z, state.time), time).value)
    return NoiseState(one(state.value), jnp.asarray(time, state.time.dtype))


def with_bits(process, method, alter):
    """A process whose method sees its random bits through `alter`."""

    def faulty(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                f"{type(process).__module__}.random_bits",
                lambda key, shape, dtype: alter(random_bits(key, shape, dtype)),
            )
            return getattr(process, method)(*arguments)

    return Altered(process, **{method: faulty})


def one_coin(bits):
    """Fault: the first coordinate's high bits, which say what happens, hold for all."""
    low = jnp.asarray(2, bits.dtype) ** (jnp.iinfo(bits.dtype).bits - 10) - 1
    return (bits & low) | (bits[:1] & ~low)


def one_key(bits):
    """Fault: all coordinates' jumps are those of the first."""
    return bits.at[:, 1].set(bits[:, 0])


def marks_from_waits(bits):
    """Fault: the jumps' sizes use the key of their waits."""
    return bits.at[JUMPS.size + 1 :].set(bits[: JUMPS.size])


def drawn(process, **fault):
    return lambda samples: draw_paths(process, TIMES, TRIALS, seed=2, **fault)[0]


FAULTS = {
    "shared": drawn(Altered(KERNEL, rewind=shared_draws)),
    "one coin": drawn(with_bits(KERNEL, "rewind", one_coin)),
    "reused key": drawn(KERNEL, reuse_key=True),
    "jumps, one key for all coordinates": drawn(with_bits(JUMPS, "init", one_key)),
    "jumps, reused key": drawn(with_bits(JUMPS, "init", marks_from_waits)),
    "forward, one coin": lambda samples: forward_grid(TIMES, TRIALS, seed=2, one_coin=True),
    "kernel, fresh": lambda samples: fresh(samples["kernel"]),
    "kernel, shrunk": lambda samples: shrunk(samples["kernel"]),
    "jumps, fresh": lambda samples: fresh(samples["jumps"]),
    "jumps, shrunk": lambda samples: shrunk(samples["jumps"]),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(samples, fault):
    path = FAULTS[fault](samples)
    assert exact_p(path, TIMES) < FAULTY
    assert same_p(samples["grid"], path) < FAULTY


@pytest.mark.long
def test_many_short_steps_have_the_law_of_one():
    """Chapman-Kolmogorov over 300 steps: a bias of a short step would add up."""
    path = draw_paths(KERNEL, np.geomspace(5.0, 1.5, 301), 20_000, seed=4)[0]
    assert exact_p(path[:, [0, -1]], (5.0, 1.5)) > SOUND


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
    """Every draw within a few units of a probability at which the move changes its kind."""
    kind = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    levels = 2.0 ** jnp.iinfo(kind).bits
    values = np.array([0.0, 1e-6, 0.01, 1.0, 30.0, -1.0], dtype)[:, None]
    near = np.arange(-600, 601) * max(1, int(levels * 2**-55))

    @jax.jit
    def moved(bits, ratio):
        return rewound(*uniforms(bits, dtype), values, jnp.asarray(1.0, dtype), ratio)

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
    """Room for two jumps on [1, 3]: lost with probability P(Poisson(2 log 3) >= 2), twice."""
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
    with pytest.raises(ValueError, match="size is missing"):
        jax.vmap(lambda eta: LaplaceJumps((), eta, 6.0).init(jax.random.key(0), 2.0))(jnp.ones(2))

    @jax.jit
    @jax.vmap
    def started(eta):
        return LaplaceJumps((), eta, 6.0, size=40).init(jax.random.key(0), 2.0)

    failure = started(np.array([1.0, 2.0])).failure
    np.testing.assert_array_equal(failure, [Status.RUNNING] * 2)
