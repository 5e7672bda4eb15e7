"""The samplers of the Skellam process against their laws, at counts of every size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Skellam, _counts, skellam
from nrjax.processes._counts import largest_count, poisson
from nrjax.types import Status
from tests.processes.laws import FAULTY, SOUND, spread, uniform_p

pytestmark = pytest.mark.numerical

MANY = (200_000,)  # of one shape: the samplers take seconds to compile


def counts_p(time, share, scale=1.0):
    """p-value of both counts at a time, and of what thinning leaves of them; of laws scaled."""
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
    """Means on both sides of 10, where the samplers switch, shares of 1/2; and large ones."""
    for share in (0.3, 0.7):
        assert counts_p(time, share) > SOUND
    assert counts_p(time, 0.3, scale=0.97) < FAULTY


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
    assert counts_p(1.6e7, 0.4) < 1e-6


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
