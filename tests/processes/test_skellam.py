"""The Skellam process against its law, at counts of every size."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import _counts, skellam
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.processes.skellam import Skellam
from nrjax.types import Status
from tests.processes.laws import draw_paths, fresh

pytestmark = pytest.mark.numerical

TRIALS = 40_000
PATHS = 100_000
TIMES = (4.0, 2.5, 0.7)
MANY = (1000,)
LIMIT = 1e-6  # of a false alarm, for a whole family


def _draw(rate1, rate2, reuse_key=False):
    """Noise at TIMES, shape (trials, times)."""
    process = Skellam((2,), rate1, rate2)
    drawn = draw_paths(process, TIMES, PATHS, seed=1, reuse_key=reuse_key)[0]
    return drawn.transpose(0, 2, 1).reshape(-1, len(TIMES))


@pytest.fixture(scope="module")
def paths():
    return _draw(1.0, 0.6)


def _alarms(z):
    """Do z-scores exceed what a family of this size allows?"""
    return bool(np.max(np.abs(z)) > stats.norm.isf(LIMIT / (2 * np.size(z))))


def _bin_scores(values, law):
    lowest, highest = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    inner = np.arange(lowest + 1, highest)
    expected = np.concatenate([[law.cdf(lowest)], law.pmf(inner), [law.sf(highest - 1)]])
    seen = np.bincount(
        np.clip(values, lowest, highest).astype(int) - lowest, minlength=len(inner) + 2
    )
    n = len(values)
    return (seen - n * expected) / np.sqrt(n * expected * (1 - expected))


def _law_scores(paths):
    assert np.all(paths == np.round(paths))
    laws = [stats.skellam(t, 0.6 * t) for t in TIMES]
    return np.concatenate([_bin_scores(v, law) for v, law in zip(paths.T, laws, strict=True)])


def _increment_scores(paths):
    """Mean, second moment and products of the standardised increments, as z-scores."""
    lengths = -np.diff([*TIMES, 0.0])
    x = (-np.diff(paths, append=0.0) - 0.4 * lengths) / np.sqrt(1.6 * lengths)
    i, j = np.triu_indices(len(TIMES), 1)
    samples = np.concatenate([x, x**2 - 1, x[:, i] * x[:, j]], axis=1)
    return samples.mean(axis=0) / (samples.std(axis=0) / np.sqrt(len(paths)))


def _joint_scores(paths):
    """Each pair of (value at the smallest time, increment before it) against the product law."""
    later, step, n = paths[:, 2], paths[:, 1] - paths[:, 2], len(paths)
    law, step_law = stats.skellam(0.7, 0.42), stats.skellam(1.8, 1.08)
    scores = []
    for a, b in itertools.product(range(-2, 4), range(-3, 6)):
        p = law.pmf(a) * step_law.pmf(b)
        seen = np.sum((later == a) & (step == b))
        scores.append((seen - n * p) / np.sqrt(n * p * (1 - p)))
    return np.array(scores)


SCORES = (_law_scores, _increment_scores, _joint_scores)
FAULTS = {
    "fresh noise at each step": (fresh, SCORES[1:]),
    "variance x 0.9": (lambda _: _draw(0.92, 0.52), SCORES),  # the mean stays
    "reused key": (lambda _: _draw(1.0, 0.6, reuse_key=True), SCORES),
}


@pytest.mark.parametrize("scores", SCORES)
def test_law(paths, scores):
    assert not _alarms(scores(paths))


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(paths, fault):
    change, seen_by = FAULTS[fault]
    faulty = change(paths)
    for scores in seen_by:
        assert _alarms(scores(faulty)), scores


def test_counts_near_the_samplers_switch(dtype):
    # Means 8.4 and 12 lie on both sides of 10; 0.3 and 0.7 on both sides of 1/2.
    keys = jax.random.split(jax.random.key(3), 5)
    scores, wrong = [], []
    for key, mean in zip(keys, (8.4, 12.0), strict=False):
        drawn = np.asarray(poisson(key, jnp.asarray(mean, dtype), (TRIALS,)))
        scores.append(_bin_scores(drawn, stats.poisson(mean)))
        wrong.append(_bin_scores(drawn, stats.poisson(1.03 * mean)))
    for key, (n, p) in zip(keys[2:], ((28, 0.3), (40, 0.3), (40, 0.7)), strict=True):
        kept, lost = jnp.asarray(p, dtype), jnp.asarray(1 - p, dtype)
        drawn = np.asarray(binomial(key, jnp.full(TRIALS, n, dtype), kept, lost))
        scores.append(_bin_scores(drawn, stats.binom(n, p)))
        wrong.append(_bin_scores(drawn, stats.binom(n, 1.03 * p)))
    assert not _alarms(np.concatenate(scores))
    assert all(_alarms(z) for z in wrong)


def _large(time):
    """Counts at a time and those that thinning leaves at 0.4 of it, 2e5 coordinates of each."""
    process = Skellam((200_000,), 1.0, 1.0)
    first = process.init(jax.random.key(0), time)
    return first, process.rewind(jax.random.key(1), first, 0.4 * time)


def test_large_counts():
    first, second = _large(1e6)
    counts = [np.asarray(c[:TRIALS], float) for c in (*first[:2], *second[:2])]
    x = np.stack([(c - m) / np.sqrt(m) for c, m in zip(counts, (1e6, 1e6, 4e5, 4e5), strict=True)])

    def scores(x):
        levels = np.linspace(-3, 3, 13)[:, None, None]
        below = (x <= levels).mean(axis=-1)
        p = stats.norm.cdf(levels[..., 0])  # a Poisson law of mean 4e5 is within 1e-3
        return (below - p) / np.sqrt(p * (1 - p) / TRIALS + 1e-6)

    assert not _alarms(scores(x))
    assert _alarms(scores(x * 1.05))
    thinned = np.corrcoef(x)
    right = np.kron([[1, np.sqrt(0.4)], [np.sqrt(0.4), 1]], np.eye(2))
    assert not _alarms((thinned - right) * np.sqrt(TRIALS))


def _moment_scores():
    """Mean and variance of 4e5 counts at a time and of those that thinning leaves."""
    scores = []
    for time in (1e6, 1.6e7):
        n, kept = (np.concatenate(state[:2]).astype(float) for state in _large(time))
        for x in ((n - time) / np.sqrt(time), (kept - 0.4 * n) / np.sqrt(0.24 * n)):
            scores += [x.mean() * np.sqrt(x.size), (x.var() - 1) * np.sqrt(x.size / 2)]
    return np.array(scores)


def test_large_counts_have_the_right_moments():
    assert not _alarms(_moment_scores())


@pytest.mark.parametrize("sampler", ["poisson", "binomial"])
def test_the_samplers_of_jax_are_not_good_enough(monkeypatch, dtype, sampler):
    """Negative control: what `_counts` says of them is seen."""
    if sampler == "binomial" and dtype == jnp.float64:
        pytest.skip("jax.random.binomial is right at these counts in float64")
    theirs = {
        "poisson": lambda key, mean, shape: jax.random.poisson(key, mean, shape).astype(dtype),
        "binomial": lambda key, n, kept, lost: jax.random.binomial(key, n, kept).astype(dtype),
    }[sampler]
    monkeypatch.setattr(skellam, sampler, theirs)
    assert _alarms(_moment_scores())


def test_a_mean_of_zero_gives_no_count(monkeypatch, dtype):
    exponential = jax.random.exponential

    def often_zero(key, *arguments):
        drawn = exponential(key, *arguments)
        return jnp.where(drawn < 0.5, 0, drawn)

    monkeypatch.setattr(jax.random, "exponential", often_zero)
    key, mean = jax.random.key(0), jnp.zeros((), dtype)

    # Unwrapped, or a program compiled before the patch could serve.
    @jax.jit
    def drawn(key, mean):
        unguarded = _counts._gaps(key, (100,), jnp.broadcast_to(mean, (100,)), lambda gap: gap)
        return poisson.__wrapped__(key, mean, (100,)), unguarded

    guarded, unguarded = drawn(key, mean)
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
    state = process.init(jax.random.key(2), largest_count(dtype))
    assert process.status(state) == Status.OVERFLOW
    fine = process.init(jax.random.key(2), 0.9 * largest_count(dtype))
    assert process.status(fine) == Status.RUNNING
    assert process.status(fine).dtype == jnp.int32


def test_a_later_time_has_no_law():
    """It must not be a silent value, nor hang."""
    process = Skellam(MANY, 2.0, 900.0)
    state = process.init(jax.random.key(0), 1.3)
    assert np.all(np.isnan(process.value(process.rewind(jax.random.key(1), state, 2.0))))
