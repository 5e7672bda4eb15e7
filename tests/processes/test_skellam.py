"""Skellam noise: its samplers at counts of every size, and its privacy loss."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from nrjax._base.outcome import Status
from nrjax.processes import Skellam, _counts, skellam
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.processes.skellam import SkellamState
from tests.processes.laws import FAULTY, SOUND, spread, uniform_p

pytestmark = pytest.mark.numerical

MANY = (200_000,)  # of one shape: the samplers take seconds to compile


def counts_p(time, share, scale=1.0):
    """Return the p-value of both counts and of the thinned counts, under scaled laws."""
    process = Skellam(MANY, 1.0, 1.0)
    first = process.init(jax.random.key(0), time)
    second = process.rewind(jax.random.key(1), first, share * time)
    n, kept = (np.concatenate(state[:2]).astype(float) for state in (first, second))
    if time < 1e3:
        laws = stats.poisson(scale * time), stats.binom(n, scale * share)
    else:  # within 1e-3, and faster
        first_law = stats.norm(time - 0.5, scale * np.sqrt(time))
        laws = first_law, stats.norm(share * n - 0.5, scale * np.sqrt(share * (1 - share) * n))
    pairs = zip((n, kept), laws, strict=True)
    numbers = [spread(law.cdf(k - 1), law.cdf(k), i) for i, (k, law) in enumerate(pairs)]
    return uniform_p(np.stack(numbers, axis=1))


@pytest.mark.long
@pytest.mark.parametrize("time", [8.4, 12.0, 28.0, 57.0, 1e6, 1.6e7])
def test_counts_have_their_laws(time):
    """Means are large, or on both sides of 10, where the samplers switch."""
    for share in (0.3, 0.7):
        assert counts_p(time, share) > SOUND
    assert counts_p(time, 0.3, scale=0.97) < FAULTY


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["poisson", "binomial"])
def test_the_samplers_of_jax_are_not_good_enough(monkeypatch, dtype, sampler):
    """Negative control: the test detects the error of `jax.random` that `_counts` states."""
    if sampler == "binomial" and dtype == jnp.float64:
        pytest.skip("jax.random.binomial is right at these counts in float64")
    theirs = {
        "poisson": lambda key, mean, shape: jax.random.poisson(key, mean, shape).astype(dtype),
        "binomial": lambda key, n, kept, lost: jax.random.binomial(key, n, kept).astype(dtype),
    }[sampler]
    monkeypatch.setattr(skellam, sampler, theirs)
    assert counts_p(1.6e7, 0.4) < 1e-6


EDGES = {  # the smallest means of rejection, and a count of at most 20
    "poisson": (stats.poisson(10.0), lambda key, one: poisson(key, 10 * one, MANY)),
    "binomial": (stats.binom(20, 0.5), lambda key, one: binomial(key, 20 * one, 0.5, 0.5)),
    "rare": (stats.binom(1000, 0.01), lambda key, one: binomial(key, 1000 * one, 0.01, 0.99)),
}


@pytest.mark.parametrize("name", EDGES)
def test_rejection_has_its_law_at_its_smallest_mean(name, dtype):
    law, draw = EDGES[name]
    drawn = np.asarray(jax.jit(draw)(jax.random.key(0), np.ones(MANY, dtype)))
    assert drawn.dtype == dtype
    k = np.arange(41)
    seen = np.bincount(drawn.astype(int), minlength=k.size)

    def p_value(expected):
        usual = expected * MANY[0] > 5
        rest = MANY[0] - seen[usual].sum(), 1 - expected[usual].sum()
        found, shares = np.append(seen[usual], rest[0]), np.append(expected[usual], rest[1])
        return stats.chisquare(found, MANY[0] * shares / shares.sum()).pvalue

    assert p_value(law.pmf(k)) > SOUND
    faulty = law.pmf(k) ** 0.95
    assert p_value(faulty / faulty.sum()) < FAULTY


def test_the_bound_of_the_largest_probability_holds():
    """`PEAK` bounds it in units of a normal density, and is close."""
    mean = np.geomspace(_counts.REJECTION_FROM, 1e5, 4001)
    scaled = [np.sqrt(2 * np.pi * mean) * stats.poisson(mean).pmf(np.floor(mean))]
    for p in (1e-4, 0.01, 0.1, 0.3, 0.5):
        n = np.unique(np.ceil(mean / p))
        law = stats.binom(n, p)
        scaled.append(np.sqrt(2 * np.pi) * law.std() * law.pmf(np.floor((n + 1) * p)))
    most = np.concatenate(scaled).max()
    assert 0.99 < most < _counts.PEAK


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40])
def test_draws_of_any_number_take_their_turns(size, dtype):
    """All are drawn, also next to draws that count gaps, and few are equal."""
    mean = np.where(np.arange(size) % 3 == 1, 2.0, 1e6).astype(dtype)
    drawn = np.asarray(poisson(jax.random.key(0), mean, (size,)))
    assert np.all(np.abs(drawn - mean) < 6 * np.sqrt(mean))
    assert np.unique(drawn[mean > 2]).size >= np.sum(mean > 2) - 2


def test_a_mean_of_zero_gives_no_count(monkeypatch, dtype):
    exponential = _counts.exponential

    def often_zero(*arguments):
        drawn = exponential(*arguments)
        return jnp.where(drawn < 0.5, 0, drawn)

    monkeypatch.setattr(_counts, "exponential", often_zero)

    # Unwrapped, or a program compiled before the patch could serve.
    @jax.jit
    def drawn(key, mean):
        unguarded = _counts._gaps(key, jnp.broadcast_to(mean, (100,)), lambda gap: gap)
        return poisson.__wrapped__(key, mean, (100,)), unguarded

    guarded, unguarded = drawn(jax.random.key(0), jnp.zeros((), dtype))
    assert not np.any(guarded)
    assert np.any(unguarded > 0)  # the fault is forced


def test_overflow_is_detected_and_sticks(dtype):
    process = Skellam(MANY, 1.0, 1e-3)
    state = process.init(jax.random.key(0), 1.01 * largest_count(dtype))
    assert process.status(state) == Status.OVERFLOW
    state = process.rewind(jax.random.key(1), state, 1.0)
    assert process.status(state) == Status.OVERFLOW
    assert not np.any(np.isfinite(process.value(state)))
    # The mean fits, but some of these counts do not.
    process = Skellam(MANY, 1e-3, 1.0)
    for share, status in ((1.0, Status.OVERFLOW), (0.9, Status.RUNNING)):
        state = process.init(jax.random.key(2), share * largest_count(dtype))
        assert process.status(state) == status


def test_a_later_time_has_no_law():
    """The result is NaN, and the sampler does not hang."""
    process = Skellam(MANY, 2.0, 900.0)
    state = process.init(jax.random.key(0), 1.3)
    assert np.all(np.isnan(process.value(process.rewind(jax.random.key(1), state, 2.0))))


LOSSES = 2**13  # in one call


def _log_pmf(k, mean1, mean2, nodes=1500):
    """Return log p(k) by a contour integral through the saddle point.

    Large terms have 50 digits. `test_the_oracle` compares it with mpmath's Bessel function.
    """
    k, mean1, mean2 = mp.mpf(float(k)), mp.mpf(mean1), mp.mpf(mean2)
    w = mp.sqrt(k * k + 4 * mean1 * mean2)
    side, mean = (1, mean1) if k >= 0 else (-1, mean2)
    theta = side * mp.log((abs(k) + w) / (2 * mean))
    width = float(w)
    top = min(np.pi, 12 / np.sqrt(width)) if width > 300 else np.pi
    angle = (np.arange(nodes) + 0.5) * top / nodes
    s = angle * angle
    near = -(angle**3) / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110))))
    phase = float(k) * np.where(angle < 0.3, near, np.sin(angle) - angle)
    integral = np.exp(-2 * width * np.sin(angle / 2) ** 2) @ np.cos(phase) * top / nodes / np.pi
    return w - mean1 - mean2 - k * theta + mp.log(mp.mpf(float(integral)))


@pytest.mark.parametrize(
    ("k", "mean1", "mean2"),
    [(0, 0.5, 0.5), (3, 10, 2), (-7, 3, 3), (1, 1e-9, 2), (300, 100, 90), (-300, 1e3, 2e3)],
)
def test_the_oracle(k, mean1, mean2):
    with mp.workdps(50):
        m1, m2 = mp.mpf(mean1), mp.mpf(mean2)
        bessel = mp.besseli(abs(k), 2 * mp.sqrt(m1 * m2))
        direct = -m1 - m2 + mp.mpf(k) / 2 * mp.log(m1 / m2) + mp.log(bessel)
        assert abs(direct - _log_pmf(k, mean1, mean2)) < 1e-14


def _loss(*columns):
    """Return losses of cases (time, rate1, rate2, noise, shift), padded to share a program."""
    columns = np.stack(np.broadcast_arrays(*columns)).astype(jnp.result_type(float))
    assert columns.shape[1] <= LOSSES
    padded = np.pad(columns, ((0, 0), (0, LOSSES - columns.shape[1])), constant_values=1)
    return np.asarray(_losses(*padded))[: columns.shape[1]]


@jax.jit
@jax.vmap
def _losses(time, rate1, rate2, noise, shift):
    up, down = jnp.maximum(noise, 0), jnp.maximum(-noise, 0)
    state = SkellamState(up, down, time, jnp.asarray(False))
    return Skellam((), rate1, rate2).privacy_loss(state, shift)


def _grid():
    cases = []
    for time in (1e-12, 0.1, 3.0, 9.0, 10.5, 40.0, 300.0, 1e4, 1e6):
        for rate1, rate2 in ((1.0, 1.0), (1.0, 0.3), (0.25, 1.0), (1.0, 1e-4)):
            mean, deviation = time * (rate1 - rate2), np.sqrt(time * (rate1 + rate2))
            typical = {round(mean + c * deviation) for c in (-6, -2, -0.5, 0, 0.3, 1, 2.5, 6)}
            for noise in sorted(typical | {0, 1, -2, 19, -21, -int(time)}):
                shifts = {1, -1, 2, -3, 25, -40, 1000, -1000, -noise, 1 - 2 * noise, 10**6}
                cases += [(time, rate1, rate2, noise, shift) for shift in sorted(shifts)]
    return np.array(cases)


def test_loss_against_the_oracle(dtype):
    cases = _grid().astype(dtype)
    computed = np.asarray(_loss(*cases.T), float)
    memory = {}

    def log_pmf(k, time, rate1, rate2):
        case = (k, time, rate1, rate2)
        if case not in memory:
            memory[case] = _log_pmf(k, mp.mpf(time) * mp.mpf(rate1), mp.mpf(time) * mp.mpf(rate2))
        return memory[case]

    with mp.workdps(50):
        exact, error = np.empty(len(cases)), np.empty(len(cases))
        for i, (time, rate1, rate2, noise, shift) in enumerate(cases.astype(float)):
            rates = (time, rate1, rate2)
            right = log_pmf(noise, *rates) - log_pmf(noise + shift, *rates)
            exact[i], error[i] = float(right), float(computed[i] - right)
    tolerance = {4: 1e-3, 8: 1e-9}[dtype.itemsize]
    # A loss of 1e4 has no more digits than this.
    allowed = tolerance + 10 * np.finfo(dtype).eps * np.abs(exact)
    worst = np.argmax(np.abs(error) / allowed)
    assert np.all(np.abs(error) <= allowed), (cases[worst], exact[worst], error[worst])
    wrong_rates = _loss(*(cases * [1, 0.8, 0.8, 1, 1]).T)
    for wrong in (-computed, wrong_rates):  # planted faults
        assert np.mean(np.abs(wrong - exact) > allowed) > 0.5
    time, rate1, rate2, noise, shift = cases.T.astype(float)
    typical = np.abs(noise - time * (rate1 - rate2)) <= 10 * np.sqrt(time * (rate1 + rate2)) + 20
    usual = typical & (np.abs(shift) <= 1000) & (np.abs(exact) < 100)
    assert np.sum(usual) > 1000
    assert np.max(np.abs(error[usual])) <= tolerance


def test_one_rate_may_be_zero(dtype):
    x, law = np.arange(-16.0, 1.0), stats.poisson(6.0)
    for shift in (-1, -40):
        right = law.logpmf(-x) - law.logpmf(-x - shift)
        atol = {4: 1e-4, 8: 1e-9}[dtype.itemsize]
        np.testing.assert_allclose(_loss(3.0, 0.0, 2.0, x, shift), right, rtol=1e-5, atol=atol)
    k = np.array([-2, -1, 0])
    np.testing.assert_array_equal(np.isposinf(_loss(3.0, 0.0, 2.0, k, 1)), [False, False, True])
    np.testing.assert_array_equal(_loss(3.0, 0.0, 2.0, k, 0), 0)
