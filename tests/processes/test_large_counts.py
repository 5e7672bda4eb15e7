"""Poisson, binomial and Skellam counts up to the largest that a dtype holds: parity, chi-square."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax._base.outcome import Status
from nrjax.processes import _counts
from nrjax.processes._counts import binomial, largest_count, poisson

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

MANY = (100_000,)
SOUND, FAULTY = 1e-5, 1e-12


@jax.jit
def drawn(key, mean, n, kept):
    """Return Poisson counts of a mean, and binomial counts of n."""
    first, second = jax.random.split(key)
    return poisson(first, mean, MANY), binomial(second, jnp.full(MANY, n), kept, 1 - kept)


def p_values(counts, law):
    """Return p-values of the residues modulo 2, 4 and 8, and of 20 bins of the counts."""
    counts = np.asarray(counts, np.float64)
    assert np.all(counts == np.floor(counts))
    found = []
    for modulus in (2, 4, 8):
        seen = np.bincount((counts % modulus).astype(int), minlength=modulus)
        found.append(stats.chisquare(seen).pvalue)
    if law.mean() > 2**30:  # normal within 1e-5, where SciPy's counts are slow or wrong
        law = stats.norm(law.mean() - 0.5, law.std())
    edges = np.floor(law.ppf(np.arange(1, 20) / 20))
    shares = np.diff(law.cdf(edges), prepend=0, append=1)
    seen = np.bincount(np.searchsorted(edges, counts), minlength=20)
    return [*found, stats.chisquare(seen, counts.size * shares).pvalue]


def both_p(mean, kept, dtype):
    """Return the p-values of Poisson counts, and of binomial counts of n = mean."""
    mean, kept = np.asarray(mean, dtype), np.asarray(kept, dtype)
    n = np.floor(mean)
    laws = stats.poisson(float(mean)), stats.binom(float(n), float(kept))
    pairs = zip(drawn(jax.random.key(7), mean, n, kept), laws, strict=True)
    return np.array([p_values(counts, law) for counts, law in pairs])


def test_counts_are_right_up_to_the_largest(dtype):
    """The old sum with 1/2 was rounded to an even number in the last two octaves."""
    largest = largest_count(dtype)
    usual, octaves = np.geomspace(1e3, largest / 8, 3), largest * 2.0 ** np.arange(-2.6, 0, 0.5)
    # Of the last mean, all draws are below the largest count.
    for number, mean in enumerate([*usual, *octaves, largest / 2, largest - 8 * largest**0.5]):
        found = both_p(mean, (0.5, 0.75)[number % 2], dtype)
        assert found.min() > SOUND, (mean, found)


def test_parity_finds_the_sum_with_a_half(monkeypatch, dtype):
    """The planted fault: the sum of a large mean and 1/2."""
    mean = np.asarray(0.7 * largest_count(dtype), dtype)
    monkeypatch.setattr(_counts, "largest_count", lambda dtype: np.inf)
    counts = jax.jit(lambda key: poisson.__wrapped__(key, mean, MANY))(jax.random.key(0))
    assert p_values(counts, stats.poisson(float(mean)))[0] < FAULTY


def test_counts_beyond_the_largest_are_refused(dtype):
    largest = largest_count(dtype)
    above = np.nextafter(np.asarray(largest, dtype), np.inf)
    assert np.isnan(poisson(jax.random.key(0), jnp.asarray(above), (2,))).all()
    process = nrjax.Skellam((30,), 1.0, 1.0)
    init = jax.jit(process.init)
    for time, status in ((0.9, Status.RUNNING), (1.0, Status.OVERFLOW), (1.1, Status.OVERFLOW)):
        state = init(jax.random.key(0), jnp.asarray(time * largest, dtype))
        assert int(process.status(state)) == status


def test_skellam_noise_is_even_and_odd(dtype):
    """Of the issue: all noise was even at a mean of 1e7."""
    noise = nrjax.noise_path(
        jax.random.key(0), nrjax.Skellam((20_000,), 1.0, 1.0), jnp.asarray([1e7, 4e6], dtype)
    )
    for row, time in zip(np.asarray(noise, float), (1e7, 4e6), strict=True):
        law = stats.norm(-0.5, np.sqrt(2 * time))  # of integers
        assert min(p_values(row, law)) > SOUND
