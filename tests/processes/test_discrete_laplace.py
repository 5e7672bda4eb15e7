"""Discrete Laplace noise against Bayes' rule, and what its releases reveal."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.processes import DiscreteLaplace
from nrjax.processes.discrete_laplace import DiscreteLaplaceState
from nrjax.types import Status
from tests.problems import Distance
from tests.processes.laws import SOUND, bonferroni, coin, law_p, spread

pytestmark = pytest.mark.numerical

WORDS = 2**18
PAIRS = ((5.0, 3.0), (5.0, 4.9), (2.0, 0.6), (0.7, 0.2), (40.0, 1.0), (3.0, 3.0))


def law(t, k):
    return stats.dlaplace(1 / t).pmf(k)


def bayes(s, t, k, j, stay=coin):
    """`P(Z_s = j | Z_t = k)` from the two laws forwards: the oracle."""
    a = stay(s, t)
    return law(s, j) * (a * (j == k) + (1 - a) * law(t, k - j)) / law(t, k)


def laplace_like(s, t, k, j):
    """Fault: the branches of Laplace noise, `h = (1 - s/t)/2`, on integers."""
    h, r, ratio = (1 - s / t) / 2, np.exp(1 / t - 1 / s), np.exp(-1 / s - 1 / t)
    inside = (1 - h) * (1 - r) * r ** np.maximum(j, 0)
    outside = h * np.where(j < 0, 1, r**k) * (1 - ratio)
    outside = outside * ratio ** np.where(j < 0, -j - 1, np.maximum(j - k - 1, 0))
    return np.where(j == k, (1 - 2 * h) * r**k, np.where((j >= 0) & (j < k), inside, outside))


def test_kernel_is_bayes_rule():
    """For evenly spaced words, every one so to speak: shares are right to the grain of these."""
    process, dtype = DiscreteLaplace((WORDS,)), jnp.result_type(float)
    size = 64 if dtype == jnp.float64 else 32
    bits = (np.arange(WORDS, dtype=np.uint64) << (size - 18)) + (1 << (size - 19))
    bits = jnp.asarray(bits.astype(f"uint{size}"))
    states = np.arange(-12, 13)

    @jax.jit
    def shares(value, t, s):
        state = DiscreteLaplaceState(jnp.full(WORDS, value), t, jnp.bool_(False))
        moved = process.move(bits, state, s).value
        return jnp.sum(moved == states[:, None].astype(dtype), axis=1) / WORDS

    worst = {}
    for (t, s), k in itertools.product(PAIRS, (0, 1, 4, -4)):
        found = np.asarray(shares(*(jnp.asarray(x, dtype) for x in (k, t, s))))
        np.testing.assert_allclose(found, bayes(s, t, k, states), atol=4 / WORDS)
        if k >= 0 and s < t:
            for name, fault in {
                "h of laplace": laplace_like(s, t, k, states),
                "coin of laplace": bayes(s, t, k, states, lambda s, t: (s / t) ** 2),
            }.items():
                worst[name] = max(worst.get(name, 0), np.abs(found - fault).max())
    assert min(worst.values()) > 1000 / WORDS  # negative controls


@pytest.mark.parametrize("time", [0.05, 0.4, 1.0, 30.0, 2.0**10])
def test_first_release_and_deviation(time):
    noise = np.asarray(DiscreteLaplace((200_000,)).init(jax.random.key(1), time).value, float)
    np.testing.assert_array_equal(noise, np.round(noise))
    own = stats.dlaplace(1 / time)
    uniform = spread(own.cdf(noise - 1), own.cdf(noise))[:, None]
    assert bonferroni([law_p(uniform, stats.uniform.cdf)]) > SOUND
    np.testing.assert_allclose(DiscreteLaplace(()).deviation(time), own.std(), rtol=2e-6)


def test_noise_beyond_exact_integers_is_a_failure():
    process = DiscreteLaplace((64,))
    largest = process.largest_time(jnp.result_type(float))

    @jax.jit
    def statuses(time):
        first = process.init(jax.random.key(0), time)
        second = process.rewind(jax.random.key(1), first, 1.0)
        return process.status(first), process.status(second)

    assert statuses(1.01 * largest) == (Status.OVERFLOW, Status.OVERFLOW)
    assert statuses(largest) == (Status.RUNNING, Status.RUNNING)


def test_zeros_have_no_sign():
    """A release of -0 would tell a value of -0 from all others."""
    process = DiscreteLaplace((4000,))

    @jax.jit
    def drawn(times):
        state, found = process.init(jax.random.key(0), 0.5), []
        for time in times:
            state = process.rewind(jax.random.key(1), state, time)
            found.append(state.value)
        return found

    for noise in map(np.asarray, drawn([0.5, 0.3])):
        assert not np.any(np.signbit(noise) & (noise == 0))
    outcomes = nrjax.simulate(jax.random.key(3), integers([-0.0, 0.0, 1.0]), trials=2000)
    assert not np.any(np.signbit(outcomes.release) & (outcomes.release == 0))


def integers(value, **changes):
    guarantee = nrjax.DiscretePureGuarantee(2)
    parts = {
        "process": DiscreteLaplace((3,)),
        "guarantee": guarantee,
        "shift": np.array([1, -1, 0]),
    }
    parts["schedule"] = nrjax.Grid.geometric(guarantee, 0.05, 5.0, 30)
    parts["rule"] = nrjax.ReducedAboveThreshold(-6.0, 1.0)
    parts["utility"] = Distance(jnp.asarray(value, float))
    return nrjax.Interaction(value=np.asarray(value), **parts | changes)


def test_trials_of_integers_cost_what_they_state():
    outcomes = nrjax.simulate(jax.random.key(3), integers([40, 7, 0]), trials=2000)
    np.testing.assert_array_equal(outcomes.release, np.round(outcomes.release))
    stated = nrjax.DiscretePureGuarantee(2).epsilon(outcomes.time)
    np.testing.assert_array_equal(outcomes.mechanism_epsilon, stated)
    assert np.all(outcomes.privacy_loss <= outcomes.mechanism_epsilon)
    assert np.any(outcomes.privacy_loss > 0.99 * outcomes.mechanism_epsilon)


def test_values_that_would_lose_their_integers_are_refused():
    with pytest.raises(ValueError, match=r"value = .*: must be integers, as DiscreteLaplace is"):
        integers([40.0, 7.5, 0.0])
    most = 2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1)
    with pytest.raises(ValueError, match=r"value = .*: must be at most \d+, with noise of up to"):
        integers([most, 0, 0])
    early = nrjax.Grid([1.01 * DiscreteLaplace(()).largest_time(jnp.result_type(float)), 1.0])
    with pytest.raises(ValueError, match=r"first time = .*: must be at most .* is exact"):
        integers([1, 2, 3], schedule=early)
    with pytest.raises(ValueError, match=r"guarantee = .*: must be for discrete laplace noise"):
        integers([1, 2, 3], guarantee=nrjax.PureGuarantee(2.0))
    with pytest.raises(ValueError, match=r"shift = .*: must be of l1 norm at most 2"):
        integers([1, 2, 3], shift=np.array([2, -1, 0]))


def test_a_traced_fraction_is_not_shown():
    """Integer noise does not hide it; integers are released as they are."""
    rule, times = nrjax.PublicThreshold(-np.inf), [5.0, 2.0]
    parts = {"schedule": nrjax.Grid(times), "utility": Distance(0.0), "rule": rule}

    def release(value):
        trial = nrjax.Interaction(value=value, process=DiscreteLaplace((2,)), **parts)
        return nrjax.run_until(jax.random.key(2), trial).release

    shown = jax.jit(release)(jnp.array([3.0, 3.3]))
    np.testing.assert_array_equal(np.isnan(shown), [False, True])
    assert shown[0] == release(np.array([3.0, 3.0]))[0]
