"""Normals from pairs of random words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax._base import threefry
from nrjax._base.normals import _polar, normals
from nrjax._base.threefry import placed_key, unrolled_key
from tests.processes.laws import FAULTY, SOUND, bonferroni, uniform_p, z_p

pytestmark = [pytest.mark.numerical, pytest.mark.bits]
TRIALS = 4_000_000
KEY = unrolled_key(jax.random.key(4))


def drawn(key=KEY, size=TRIALS, dtype=jnp.float32):
    return np.asarray(jax.jit(lambda key: normals(placed_key(key, 0), (size,), dtype))(key), float)


def sample_p(sample):
    """Return the p-value of pairs, of their successors, and of both tails."""
    x, y = sample.reshape(2, -1)[:, :400_001]
    tails = [(side, limit) for side in (1, -1) for limit in (2.0, 3.5, 4.2)]
    share = stats.norm.sf([limit for _, limit in tails])
    seen = np.array([np.mean(side * sample > limit) for side, limit in tails])
    body = uniform_p(stats.norm.cdf(np.stack([x[:-1], y[:-1], x[1:]], axis=1)))
    return bonferroni([body, z_p(seen - share, np.sqrt(share / sample.size))])


def test_distribution_and_tails(dtype):
    assert sample_p(drawn(dtype=dtype)) > SOUND


@pytest.mark.long
@pytest.mark.parametrize("fault", ["one radius", "one word", "short"])
def test_planted_faults_are_seen(fault):
    def faulty(first, second):
        x, y = _polar(first, first if fault == "one word" else second)
        return (x, y) if fault != "one radius" else (x, x)

    sample = drawn()
    if fault == "short":  # as from too few random bits
        sample = np.clip(sample, -4.1, 4.1)
    else:
        words = jax.random.bits(KEY, (2, TRIALS // 2))
        sample = np.concatenate([np.asarray(numbers, float) for numbers in faulty(*words)])
    assert sample_p(sample) < FAULTY


def test_pairs_are_radius_and_angle(dtype):
    """Compare with NumPy, at the smallest and largest words and in all quarters."""
    bits = 8 * jnp.dtype(dtype).itemsize
    rng, kind = np.random.default_rng(0), f"uint{bits}"
    first, second = (rng.integers(0, 2**bits, 10_000, kind) for _ in range(2))
    first[:2], second[:8] = (0, 2**bits - 1), np.arange(8).astype(kind) << np.array(bits - 3, kind)
    radius = np.sqrt(-2 * (np.log(first.astype(float) + 0.5) - bits * np.log(2)))
    angle = 2 * np.pi * (second.astype(np.longdouble) / 2**bits)
    x, y = jax.jit(_polar)(jnp.asarray(first), jnp.asarray(second))
    assert x.dtype == y.dtype == dtype
    loose = 20 * float(jnp.finfo(dtype).eps)
    exact = first < 2 ** (bits - 1)  # a uniform number near 1 has fewer digits
    np.testing.assert_allclose(x[exact], (radius * np.cos(angle))[exact], rtol=loose, atol=loose)
    np.testing.assert_allclose(y[exact], (radius * np.sin(angle))[exact], rtol=loose, atol=loose)
    np.testing.assert_allclose(x, radius * np.cos(angle), atol=1e-3 if bits == 32 else 1e-7)
    assert np.max(np.hypot(x, y)) == pytest.approx(6.76 if bits == 32 else 9.49, abs=0.01)


def test_words_are_those_of_the_place(dtype):
    """A pair takes one hash in float32, and two of neighbouring counts in float64."""
    step, wide = placed_key(KEY, 3), dtype == jnp.float64
    low = jnp.arange(8 if wide else 4, dtype=jnp.uint32)
    words = threefry._hash(jax.random.key_data(step), jnp.full_like(low, 4), low)
    if wide:
        joined = np.uint64(2**32) * np.asarray(words[0], np.uint64) + np.asarray(words[1])
        np.testing.assert_array_equal(jax.random.bits(step, (8,), jnp.uint64), joined)
        words = jnp.asarray(joined[::2]), jnp.asarray(joined[1::2])
    expected = np.concatenate(_polar(*words))
    for size in (2, 7, 8):
        pairs = -(-size // 2)
        both = np.concatenate([expected[:pairs], expected[4 : 4 + pairs]])[:size]
        drawn_here = normals(step, (size,), dtype)
        np.testing.assert_allclose(drawn_here, both, rtol=1e-6 if not wide else 1e-13)


@pytest.mark.long
def test_other_keys_and_precisions():
    plain = jax.random.key(3)
    assert normals(plain, (3, 5), jnp.float32).shape == (3, 5)
    assert normals(plain, (), jnp.float16).dtype == jnp.float16
    assert normals(placed_key(KEY, 1), (0, 2), jnp.float32).shape == (0, 2)
    x = jax.vmap(lambda key: normals(key, (3,), jnp.float32))(jax.random.split(plain, 10_000))
    assert stats.kstest(np.ravel(x), "norm").pvalue > 1e-3
