"""The samplers of the Skellam process against their laws, at counts of every size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Skellam, _counts, skellam
from nrjax.processes._counts import binomial, largest_count, poisson
from nrjax.types import Status
from tests.processes.laws import FAULTY, SOUND, bonferroni, law_p, mean_p, spread, z_p

pytestmark = pytest.mark.numerical

TRIALS = 40_000
MANY = (200_000,)  # of one shape: the samplers take seconds to compile


def counts_p(values, law):
    """p-value that counts have this law."""
    return law_p(spread(law.cdf(values - 1), law.cdf(values))[:, None], stats.uniform.cdf)


@pytest.mark.long
def test_counts_near_the_samplers_switch(dtype):
    # Means 8.4 and 12 lie on both sides of 10; 0.3 and 0.7 on both sides of 1/2.
    keys = jax.random.split(jax.random.key(3), 5)
    sound, wrong = [], []
    for key, mean in zip(keys, (8.4, 12.0), strict=False):
        drawn = np.asarray(poisson(key, jnp.full((2, 1), mean, dtype), (2, *MANY)))[0, :TRIALS]
        sound.append(counts_p(drawn, stats.poisson(mean)))
        wrong.append(counts_p(drawn, stats.poisson(1.03 * mean)))
    for key, (n, p) in zip(keys[2:], ((28, 0.3), (40, 0.3), (40, 0.7)), strict=True):
        kept, lost = jnp.asarray(p, dtype), jnp.asarray(1 - p, dtype)
        drawn = np.asarray(binomial(key, jnp.full((2, *MANY), n, dtype), kept, lost))[0, :TRIALS]
        sound.append(counts_p(drawn, stats.binom(n, p)))
        wrong.append(counts_p(drawn, stats.binom(n, 1.03 * p)))
    assert bonferroni(sound) > SOUND
    assert all(bonferroni([p]) < 1e-6 for p in wrong)


def large_counts():
    """4e5 standardised counts at a time, and those that thinning leaves at 0.4 of it; two times."""
    found = []
    for time in (1e6, 1.6e7):
        process = Skellam(MANY, 1.0, 1.0)
        first = process.init(jax.random.key(0), time)
        second = process.rewind(jax.random.key(1), first, 0.4 * time)
        n, kept = (np.concatenate(state[:2]).astype(float) for state in (first, second))
        found.append(((n - time) / np.sqrt(time), (kept - 0.4 * n) / np.sqrt(0.24 * n)))
    return found


def large_p(samples):
    """Normal laws (the exact ones are within 1e-3), moments, and independence."""
    found, levels = [], np.linspace(-3, 3, 13)[:, None]
    p = stats.norm.cdf(levels[:, 0])
    error = np.sqrt(p * (1 - p) / TRIALS + 1e-6)
    for x, y in samples:
        half = len(x) // 2  # of positive counts, the rest of negative ones
        found += [mean_p(x * y, 0.0), mean_p(x[:half] * x[half:], 0.0)]
        for part in (x, y):
            spread = z_p(part.var() - 1, np.sqrt(2 / part.size))
            below = z_p((part[:TRIALS] <= levels).mean(axis=1) - p, error)
            found += [z_p(part.mean(), part.size**-0.5), spread, below]
    return bonferroni(found)


@pytest.mark.long
def test_large_counts():
    samples = large_counts()
    assert large_p(samples) > SOUND
    assert large_p([(1.05 * x, 1.05 * y) for x, y in samples]) < FAULTY


@pytest.mark.long
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
    assert large_p(large_counts()) < 1e-6


def test_a_mean_of_zero_gives_no_count(monkeypatch, dtype):
    exponential = jax.random.exponential

    def often_zero(key, *arguments):
        drawn = exponential(key, *arguments)
        return jnp.where(drawn < 0.5, 0, drawn)

    monkeypatch.setattr(jax.random, "exponential", often_zero)

    # Unwrapped, or a program compiled before the patch could serve.
    @jax.jit
    def drawn(key, mean):
        unguarded = _counts._gaps(key, (100,), jnp.broadcast_to(mean, (100,)), lambda gap: gap)
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
    """It must not be a silent value, nor hang."""
    process = Skellam(MANY, 2.0, 900.0)
    state = process.init(jax.random.key(0), 1.3)
    assert np.all(np.isnan(process.value(process.rewind(jax.random.key(1), state, 2.0))))
