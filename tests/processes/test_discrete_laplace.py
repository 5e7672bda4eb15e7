"""Discrete Laplace noise against Bayes' rule, and what its releases reveal."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from nrjax.processes import DiscreteLaplace
from nrjax.processes.discrete_laplace import (
    DiscreteLaplaceState,
    below,
    discrete_laplace,
    sizes,
)
from tests.problems import Distance
from tests.processes.laws import SOUND, bonferroni, law_p, spread
from tests.processes.laws import coin as stays
from tests.processes.words import (
    FAR,
    coin,
    counted,
    even_words,
    every_word,
    first_law,
    first_move,
    geometric,
    histogram,
    move_law,
    word_of,
)

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

WORDS = 2**18
PAIRS = ((5.0, 3.0), (5.0, 4.9), (2.0, 0.6), (0.7, 0.2), (40.0, 1.0), (3.0, 3.0))


def law(t, k):
    return stats.dlaplace(1 / t).pmf(k)


def bayes(s, t, k, j, stay=stays):
    """Return `P(Z_s = j | Z_t = k)` by Bayes' rule from the two laws forwards (the oracle)."""
    a = stay(s, t)
    return law(s, j) * (a * (j == k) + (1 - a) * law(t, k - j)) / law(t, k)


def laplace_like(s, t, k, j):
    """Plant a fault: the branches of Laplace noise, `h = (1 - s/t)/2`, on integers."""
    h, r, ratio = (1 - s / t) / 2, np.exp(1 / t - 1 / s), np.exp(-1 / s - 1 / t)
    inside = (1 - h) * (1 - r) * r ** np.maximum(j, 0)
    outside = h * np.where(j < 0, 1, r**k) * (1 - ratio)
    outside = outside * ratio ** np.where(j < 0, -j - 1, np.maximum(j - k - 1, 0))
    return np.where(j == k, (1 - 2 * h) * r**k, np.where((j >= 0) & (j < k), inside, outside))


def test_kernel_is_bayes_rule(dtype):
    """Evenly spaced words give the probabilities up to the spacing of the words."""
    states, worst = np.arange(-12, 13), {}
    for (t, s), k in itertools.product(PAIRS, (0, 1, 4)):
        words = even_words(dtype, WORDS)
        found = move_law(words, k, jnp.asarray(t, dtype), jnp.asarray(s, dtype))[1][states + FAR]
        np.testing.assert_allclose(found, bayes(s, t, k, states), atol=4 / WORDS)
        if s < t:
            for name, fault in {
                "h of laplace": laplace_like(s, t, k, states),
                "coin of laplace": bayes(s, t, k, states, lambda s, t: (s / t) ** 2),
            }.items():
                worst[name] = max(worst.get(name, 0), np.abs(found - fault).max())
    assert min(worst.values()) > 1000 / WORDS  # negative controls


def excess(law, time, most):
    """Return the relative excess of a unit's cost over 1/time, for noise up to `most` scales."""
    law = law[: int(most * time) + 1]
    return np.max(np.abs(np.log(law[:-1] / law[1:]))) * time - 1


@pytest.mark.parametrize("time", [0.5, 10.0, 300.0])
def test_first_draw_costs_what_it_states(dtype, time):
    """Count all words. A geometric integer in float arithmetic would cost more."""
    law = first_law(jnp.asarray(time, dtype))
    grain = 4 * 15 * time * 2.0**-40 * time  # of the words of the uniform integer
    assert excess(law, time, 15) + grain < 1e-4
    assert excess(law, time, 30) < 0.11
    alone = counted(geometric, dtype, jnp.asarray(time, dtype))
    if dtype == jnp.float32 and time == 300:
        assert excess(alone, time, 7) > 0.03


@pytest.mark.long
@pytest.mark.parametrize("time", [100.0, 1000.0, 2.0**10])
def test_words_of_a_first_draw_are_counted(time):
    """Count words one by one, since bisection assumes that logarithms are monotone."""
    found = histogram(geometric, every_word(), jnp.float32(time))[FAR:]
    law = first_law(jnp.float32(time))
    found = first_law(jnp.float32(time), found[: len(law) // 2])
    np.testing.assert_allclose(found, law, rtol=1e-6)
    assert excess(found, time, 15) < 1e-4


def loss_error(words, value, time, then):
    """Return the error of the loss of a move that one move in 1000 exceeds.

    The loss compares noise `value` with `value + 1`. There are two results: with the first word
    only, and with all words.
    """
    time, then = jnp.float32(time), jnp.float32(then)
    near = np.arange(-16 * int(then), value + 16 * int(then))
    exact = [bayes(float(then), float(time), value + one, near + one) for one in (0, 1)]
    laws = [move_law(words(), value + one, time, then) for one in (0, 1)]
    for kind in (0, 1):
        found = [laws[one][kind][near + one + FAR] for one in (0, 1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(np.log(found[0] / found[1] * exact[1] / exact[0]))
        error[np.isnan(error)] = np.inf
        falling = np.argsort(-error)
        yield error[falling][np.searchsorted(np.cumsum(exact[0][falling]), 1e-3)]


@pytest.mark.parametrize(("time", "then", "value"), [(1000.0, 500.0, 1000), (100.0, 50.0, 100)])
def test_a_move_costs_what_it_states(time, then, value):
    alone, found = loss_error(lambda: even_words(jnp.float32, 2**22), value, time, then)
    assert found < 0.01 / then < alone


@pytest.mark.long
def test_a_move_costs_what_it_states_by_every_word():
    alone, found = loss_error(every_word, 1000, 1000.0, 500.0)
    assert found < 5e-7
    assert alone > 1 / 500  # as much as all the cost that is stated


def test_draws_are_made_of_their_words(dtype):
    """Compare draws with Python integers, since other tests idealise the last words."""
    rng, kind = np.random.default_rng(0), word_of(dtype)
    words = rng.integers(0, np.iinfo(kind).max, (5, 2000), kind, True)
    given, length = words.astype(object), 8 * kind.itemsize
    bits = jnp.asarray(words)

    def place(word, last, size):
        return ((word << 8 | last & 255) * size >> length + 8).astype(int)

    now, then = jnp.asarray(1000.0, dtype), jnp.asarray(500.0, dtype)
    reach = sum(np.asarray(part, int) for part in (*geometric(bits[:2], now), coin(bits[2], now)))
    wanted = place(given[3], given[4], 2 * reach + 1) - reach
    np.testing.assert_array_equal(jax.jit(discrete_laplace)(bits, now), wanted)

    k = 700
    first = np.asarray(first_move(bits[0], jnp.asarray(k, dtype), now, then), int)
    across, inside, stay = first < 0, (first >= 0) & (first < k), first == k
    rough = np.where(across, -1 - first, np.where(inside, first, first - k - 1))
    scales = jnp.where(inside, then / ((now - then) / now), then / (1 + then / now))
    size = rough + np.asarray(sizes(jnp.zeros_like(scales), bits[1], scales), int)
    found = place(given[2], given[1], np.where(inside, np.minimum(size, k), size))
    found = np.where(across, -1 - found, np.where(inside, found, k + 1 + found))
    found = np.where(stay, k, found)
    move = jax.jit(DiscreteLaplace((2000,)).move)
    for sign in (1, -1):
        state = DiscreteLaplaceState(jnp.full(2000, sign * k, dtype), now, jnp.bool_(False))
        moved = move(tuple(bits[:3]), state, then).value
        np.testing.assert_array_equal(moved, sign * found)
    ones = np.full((2, 3), np.iinfo(kind).max, kind)
    size = np.array([0, 2**16 - 1, 2**30], dtype)
    top = np.asarray(below(*jnp.asarray(ones), jnp.asarray(size)), int)
    np.testing.assert_array_equal(top, [0, *np.minimum(size[1:], 2.0 ** (length // 2) - 1) - 1])


first_release = jax.jit(DiscreteLaplace((200_000,)).init)


@pytest.mark.parametrize("time", [0.05, 0.4, 1.0, 30.0, 2.0**10])
def test_first_release_and_deviation(time):
    noise = np.asarray(first_release(jax.random.key(1), time).value, float)
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


def test_times_whose_tails_words_are_too_coarse_for_are_a_failure(dtype):
    """Far below these times no word makes noise, so that a release would be the value."""
    smallest, none = (0.2, 1 / 23) if dtype == jnp.float32 else (0.05, 1 / 46)
    counts = [counted(geometric, dtype, jnp.asarray(time, dtype)) for time in (smallest, none)]
    assert [np.count_nonzero(count) > 1 for count in counts] == [True, False]
    process, key = DiscreteLaplace(()), jax.random.key(0)
    first = process.init(key, jnp.asarray(1.0, dtype))
    for time, status in ((smallest, Status.RUNNING), (0.99 * smallest, Status.OVERFLOW)):
        time = jnp.asarray(time, dtype)
        assert process.status(process.init(key, time)) == status
        assert process.status(process.rewind(key, first, time)) == status


@pytest.mark.long
def test_zeros_have_no_sign():
    """A release of -0 would reveal a value of -0."""
    process = DiscreteLaplace((4000,))

    state, rewind = process.init(jax.random.key(0), 0.5), jax.jit(process.rewind)
    for time in (0.5, 0.3):
        state = rewind(jax.random.key(1), state, time)
        assert not np.any(np.signbit(state.value) & (np.asarray(state.value) == 0))
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


@pytest.mark.long
def test_trials_of_integers_cost_what_they_state():
    outcomes = nrjax.simulate(jax.random.key(3), integers([40, 7, 0]), trials=2000)
    np.testing.assert_array_equal(outcomes.release, np.round(outcomes.release))
    stated = nrjax.DiscretePureGuarantee(2).epsilon(outcomes.time)
    np.testing.assert_array_equal(outcomes.mechanism_epsilon, stated)
    assert np.all(outcomes.privacy_loss <= outcomes.mechanism_epsilon)
    assert np.any(outcomes.privacy_loss > 0.99 * outcomes.mechanism_epsilon)


def test_values_that_would_lose_their_integers_are_refused():
    with pytest.raises(ValueError, match=r"value must be integers, as DiscreteLaplace is"):
        integers([40.0, 7.5, 0.0])
    most = 2 ** (jnp.finfo(jnp.result_type(float)).nmant + 1)
    with pytest.raises(ValueError, match=r"value must be at most \d+, with noise of up to"):
        integers([most, 0, 0])
    early = nrjax.Grid([1.01 * DiscreteLaplace(()).largest_time(jnp.result_type(float)), 1.0])
    with pytest.raises(ValueError, match=r"first time must be at most .* is exact"):
        integers([1, 2, 3], schedule=early)
    least = DiscreteLaplace(()).smallest_time(jnp.result_type(float))
    integers([1, 2, 3], schedule=nrjax.Grid([1.0, least]))
    with pytest.raises(ValueError, match=r"last time must be at least .* End the levels"):
        integers([1, 2, 3], schedule=nrjax.Grid([1.0, 0.99 * least]))
    with pytest.raises(ValueError, match=r"guarantee must be for discrete laplace noise"):
        integers([1, 2, 3], guarantee=nrjax.PureGuarantee(2.0))
    with pytest.raises(ValueError, match=r"shift must be of l1 norm at most 2"):
        integers([1, 2, 3], shift=np.array([2, -1, 0]))


@pytest.mark.long
def test_a_traced_fraction_is_not_shown():
    """Integer noise does not hide a fraction."""
    rule, times = nrjax.PublicThreshold(-np.inf), [5.0, 2.0]
    parts = {"schedule": nrjax.Grid(times), "utility": Distance(0.0), "rule": rule}

    def release(value):
        trial = nrjax.Interaction(value=value, process=DiscreteLaplace((2,)), **parts)
        return nrjax.run_until(jax.random.key(2), trial).release

    shown = jax.jit(release)(jnp.array([3.0, 3.3]))
    np.testing.assert_array_equal(np.isnan(shown), [False, True])
    assert shown[0] == release(np.array([3.0, 3.0]))[0]
