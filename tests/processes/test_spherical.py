"""Spherical Laplace noise: its law, forwards and backwards, and the loss of its releases."""

import functools
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import nrjax
from nrjax.processes import spherical
from tests.marks import long_except
from tests.processes.laws import (
    FAULTY,
    SOUND,
    bonferroni,
    draw_paths,
    law_p,
    mean_p,
    same_law_p,
    spread,
    uniform_p,
)
from tests.processes.spherical_faults import WrongKernel, WrongRate

pytestmark = pytest.mark.numerical

TIMES = (4.0, 3.9, 2.0, 1.0)
TRIALS = {1: 20_000, 2: 20_000, 3: 20_000, 10: 20_000, 39: 10_000, 1000: 1000}
each = pytest.mark.parametrize("size", long_except(TRIALS, 2, 3, 10, 1000))


@functools.cache
def paths(size, kind=nrjax.SphericalLaplace):
    """Return noise (trials, times, size), rewound from the first of `TIMES`, in float64."""
    return draw_paths(kind((size,)), TIMES, TRIALS[size], seed=size)[0]


@functools.cache
def forward(size):
    """Return noise at the last two of `TIMES`, drawn forwards by the jumps in between."""
    process = nrjax.SphericalLaplace((size,))

    @jax.jit
    @jax.vmap
    def draw(key):
        first, second = jax.random.split(key)
        state = process.init(first, TIMES[-1])
        return process.advance(second, state, TIMES[-2]).value, state.value

    drawn = draw(jax.random.split(jax.random.key(7), TRIALS[size]))
    return np.stack([np.asarray(part, float) for part in drawn], axis=1)


def radii_p(noise, times):
    """Return the p-value that each |X|/t has a Gamma distribution of shape d."""
    radii = np.linalg.norm(noise, axis=-1) / np.asarray(times)
    return bonferroni([law_p(radii, stats.gamma(noise.shape[-1]).cdf)])


def increments_p(noise, times):
    """Return the p-value that increments, forwards, are independent of the noise and right.

    An increment is 0 with probability `(s/t)^(d + 1)`, and its mean square is
    `d (d + 1) (t^2 - s^2)`.
    """
    size, found = noise.shape[-1], []
    for i, (t, s) in enumerate(itertools.pairwise(times)):
        below, step = noise[:, i + 1], noise[:, i] - noise[:, i + 1]
        square, length = np.sum(below**2, -1), np.sum(step**2, -1)
        stays = (length == 0) - (s / t) ** (size + 1.0)
        parts = [length / (size * (size + 1) * (t * t - s * s)) - 1, np.sum(below * step, -1)]
        parts += [(square - square.mean()) * (length - length.mean())]
        found.append(mean_p(np.stack(parts, axis=1), 0.0))
        probability = (s / t) ** (size + 1.0)
        error = np.sqrt(probability * (1 - probability) / len(noise))
        if len(noise) * probability > 20:
            found.append(2 * stats.norm.sf(np.abs(stays.mean() / error)).reshape(1))
    return bonferroni(found)


@each
def test_noise_has_its_law_at_each_time(size):
    assert radii_p(paths(size), TIMES) > SOUND
    assert increments_p(paths(size), TIMES) > SOUND
    if size < 1000:
        assert radii_p(paths(size, WrongRate), TIMES) < FAULTY
        assert radii_p(paths(size, WrongKernel), TIMES) < FAULTY


@each
def test_directions_are_uniform(size):
    """The direction does not depend on the length: the first coordinate squared is a beta."""
    noise = paths(size)[:, -1]
    if size > 1:
        share = noise[:, :1] ** 2 / np.sum(noise**2, axis=1, keepdims=True)
        assert law_p(share, stats.beta(0.5, (size - 1) / 2).cdf)[0] > SOUND
    assert stats.binomtest(int(np.sum(noise[:, 0] > 0)), len(noise)).pvalue > SOUND


@each
def test_forward_jumps_and_rewinds_have_one_joint_law(size, monkeypatch):
    """Forwards only the jumps are drawn, and backwards only the kernel: they share no formula."""

    def features(pair):
        later, earlier = pair[:, 0], pair[:, 1]
        step = later - earlier
        lengths = [np.sum(part**2, -1) for part in (later, earlier, step)]
        return np.stack([*lengths, np.sum(earlier * step, -1)], axis=1)

    backward = features(paths(size)[:, 2:])
    assert bonferroni([same_law_p(features(forward(size)), backward)]) > SOUND
    if size != 3:
        return
    right = spherical._rises
    monkeypatch.setattr(
        spherical, "_rises", lambda *words: (right(*words)[0], right(*words)[1] ** 2 / 2)
    )
    faulty = features(forward.__wrapped__(size))
    assert bonferroni([same_law_p(faulty, backward)]) < FAULTY


@pytest.mark.long
def test_in_one_dimension_it_is_the_laplace_process():
    ours, other = paths(1)[:, :, 0], draw_paths(nrjax.Laplace((1,)), TIMES, TRIALS[1], seed=9)[0]
    other = other[:, :, 0]
    pairs = [
        (ours, other),
        (np.diff(ours), np.diff(other)),
        (ours[:, :1] * ours, other[:, :1] * other),
    ]
    assert bonferroni([same_law_p(a, b) for a, b in pairs]) > SOUND


def test_many_short_steps_have_the_law_of_one():
    """Biases of short steps would add up over 300 of them (Chapman-Kolmogorov)."""
    times = np.geomspace(5.0, 1.5, 301)
    noise = draw_paths(nrjax.SphericalLaplace((3,)), times, 4000, seed=4)[0][:, [0, -1]]
    assert radii_p(noise, (5.0, 1.5)) > SOUND
    assert increments_p(noise, (5.0, 1.5)) > SOUND


def log_increment(step, s, t, size):
    """Return the log density of an increment `step` of length > 0, by a sum over its jumps.

    The sum of N jumps of S is `s^2` times a Gamma draw of shape N, and N is negative binomial.
    Given N, the increment has the density of a Brownian motion at twice that time.
    """
    shape, stay = (size + 1) / 2, (s / t) ** 2
    counts = np.arange(1, 400)
    weights = stats.nbinom(shape, stay).logpmf(counts)
    length = np.linalg.norm(step) / s
    order = counts - size / 2
    logs = special.kve(order, length)
    with np.errstate(divide="ignore"):
        density = (
            np.log(2) + np.log(logs) - length - special.gammaln(counts)
            + order * np.log(length / 2) - size / 2 * np.log(4 * np.pi) - size * np.log(s)
        )  # fmt: skip
    return special.logsumexp(weights[np.isfinite(density)] + density[np.isfinite(density)])


def test_a_transcript_costs_what_its_last_release_does():
    """The joint density of two releases, under a shift of the value, moves by the last loss."""
    size, (t, s), shift = 3, (2.0, 1.0), np.array([0.5, -0.2, 0.1])
    noise = paths(size)[:200, 2:]

    def log_joint(later, earlier):
        """Return the log density of two releases: of the last noise, and of the increment."""
        return -np.linalg.norm(earlier) / s + log_increment(later - earlier, s, t, size)

    moved = 0
    for later, earlier in noise:
        if np.array_equal(later, earlier):
            continue
        moved += 1
        loss = log_joint(later, earlier) - log_joint(later + shift, earlier + shift)
        last = (np.linalg.norm(earlier + shift) - np.linalg.norm(earlier)) / s
        np.testing.assert_allclose(loss, last, atol=1e-9)
    assert moved > 100


def test_the_oracle_of_increments_is_a_density():
    size, s, t = 3, 1.0, 2.0

    def shell(radius):
        density = np.exp(log_increment(np.array([radius, 0, 0]), s, t, size))
        return 4 * np.pi * radius**2 * density

    mass = integrate.quad(shell, 0, 80, limit=200)[0]
    np.testing.assert_allclose(mass, 1 - (s / t) ** (size + 1), rtol=1e-6)
    lengths = np.linalg.norm(np.diff(paths(size)[:, 2:], axis=1)[:, 0], axis=-1)
    lengths = lengths[lengths > 0]
    grid = np.linspace(1e-3, 80, 4001)
    cumulative = integrate.cumulative_trapezoid([shell(r) for r in grid], grid, initial=0)
    upto = np.interp(lengths, grid, cumulative / cumulative[-1])
    assert uniform_p(spread(upto, upto)[:, None]) > SOUND


@pytest.mark.parametrize("size", [1, 39])
def test_realised_loss_is_bounded_and_precise(size, dtype):
    """The loss equals the difference of norms in float64, and never exceeds `|v|/t`."""
    process, generator = nrjax.SphericalLaplace((size,)), np.random.default_rng(0)
    loss = jax.jit(process.privacy_loss)
    for scale in (1e-12, 1e-3, 1.0, 1e3, 1e12):
        for time in (2.0**-60, 1.0, 2.0**60):
            noise = generator.normal(size=size) * time
            shift = np.asarray(generator.normal(size=size) * scale * time, dtype)
            noise = np.asarray(noise, dtype)
            state = spherical.SphericalState(
                jnp.asarray(noise), jnp.ones((), dtype), jnp.asarray(time, dtype)
            )
            got = float(loss(state, shift))
            x, v = noise.astype(np.longdouble), shift.astype(np.longdouble)
            right = (2 * x @ v + v @ v) / (np.sqrt((x + v) @ (x + v)) + np.sqrt(x @ x)) / time
            most = float(np.sqrt(v @ v) / time)
            assert abs(got) <= most * (1 + 8 * float(jnp.finfo(dtype).eps))
            assert abs(got - float(right)) <= 64 * float(jnp.finfo(dtype).eps) * most
    # Noise along the shift attains the bound, and -v/2 has no loss.
    state = spherical.SphericalState(
        -0.5 * jnp.ones(size, dtype), jnp.ones((), dtype), jnp.ones((), dtype)
    )
    assert abs(loss(state, jnp.ones(size, dtype))) <= 8 * size * float(jnp.finfo(dtype).eps)


def test_losses_have_the_law_of_their_noise():
    """The mean of `exp(-loss)` is 1, and no loss exceeds `|v|/t`."""
    shift = np.array([1.0, -1.0, 0.5])
    noise, losses = draw_paths(nrjax.SphericalLaplace((3,)), TIMES, 20_000, seed=3, shift=shift)
    del noise
    bounds = np.linalg.norm(shift) / np.array(TIMES)
    assert np.all(np.abs(losses) <= bounds * (1 + 1e-6))
    assert bonferroni([mean_p(np.exp(-losses), 1.0)]) > SOUND
    assert bonferroni([mean_p(np.exp(-1.5 * losses), 1.0)]) < FAULTY


@pytest.mark.parametrize("ratio", [1e-12, 1e-6, 1e-3])
def test_short_steps_move_with_the_right_probability(ratio, dtype):
    """A step of a small mean number of jumps moves with probability `1 - (s/t)^(d + 1)`.

    Words of 32 bits round this probability to a multiple of 2^-32, given the clock. Draws that were
    rounded to 24 bits would never move, or 2^-24 too often.
    """
    if ratio * 2 < float(jnp.finfo(dtype).eps):
        pytest.skip("the dtype does not hold the two times")
    clock, now = jnp.asarray(1.5, dtype), jnp.asarray(1.0, dtype)
    time = jnp.asarray(1.0 - ratio, dtype)
    gap = 1 / Fraction(float(time)) ** 2 - 1
    mean = 1.5 * float(gap)
    bits = 8 * jnp.dtype(dtype).itemsize
    # The largest words give the shortest waits: 1/2, 3/2, 5/2, ... of 2^-bits.
    count = round(-math.expm1(-mean) * 2**bits)
    slack = 2 + round(4 * float(jnp.finfo(dtype).eps) * count)
    words = [2**bits - 1 - max(count - slack, 0), 2**bits - 1 - count - slack]
    waits = spherical.precise_exponential(jnp.asarray(np.array(words, f"uint{bits}")), dtype)
    passed = waits / clock < spherical._gap(now, time)
    assert (bool(passed[0]), bool(passed[1])) == (True, False)


@pytest.mark.parametrize("power", [-90, -30, 30, 90])
def test_noise_is_scale_free(power):
    """Times of 2^power times as much give 2^power times the noise, bit for bit."""
    process, times = nrjax.SphericalLaplace((5,)), np.array([4.0, 3.5, 1.0], np.float32)
    key = jax.random.key(1)
    one = nrjax.noise_path(key, process, times)
    many = nrjax.noise_path(key, process, np.ldexp(times, power))
    np.testing.assert_array_equal(np.ldexp(np.asarray(one), power), many)


def test_one_step_over_the_whole_range_keeps_the_law():
    """A step from the largest to the smallest time of float32 draws all jumps in between."""
    process = nrjax.SphericalLaplace((2,))
    first, last = process.largest_time(jnp.float32), process.smallest_time(jnp.float32)

    @jax.jit
    @jax.vmap
    def draw(key):
        start, step = jax.random.split(key)
        state = process.rewind(step, process.init(start, jnp.float32(first)), jnp.float32(last))
        return state.value / jnp.float32(last)

    noise = np.asarray(draw(jax.random.split(jax.random.key(5), 2000)), float)
    assert radii_p(noise[:, None], [1.0]) > SOUND


def test_a_value_of_one_number_is_a_vector_of_one():
    key = jax.random.key(0)
    scalar = nrjax.noise_path(key, nrjax.SphericalLaplace(()), [4.0, 2.0])
    vector = nrjax.noise_path(key, nrjax.SphericalLaplace((1,)), [4.0, 2.0])
    np.testing.assert_array_equal(scalar, vector[:, 0])
