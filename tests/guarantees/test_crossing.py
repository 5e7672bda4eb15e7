"""The boundaries hold: probabilities that the loss ever exceeds them, down to delta = 1e-6.

Rare events by importance sampling, under a law that crosses often, each trial scored by its
likelihood ratio. Linear: the noise is shifted by the constant 2b, in release order. Mixtures: in
increasing time, with a drift drawn from the mixing law; the ratio is 1/M. The same kernel with no
shift is naive counting. Sensitivity and shift are 1 throughout.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from nrjax.processes import Brownian

pytestmark = pytest.mark.numerical

RARE, COMMON = 1e-6, 0.05
TRIALS, STEPS = 16_384, 256
Z = norm.isf(0.01 / 40)  # one-sided, Bonferroni over the comparisons of this file
PROCESS = Brownian(())
stated = jax.jit(lambda guarantee, times: guarantee.epsilon(times))


def keys(seed):
    return jax.random.split(jax.random.key(seed), TRIALS)


class Estimate(NamedTuple):
    """Mean and standard error of scores."""

    mean: float
    error: float = 0.0

    def at_most(self, delta):
        return self.mean - Z * self.error <= delta

    def equals(self, other, within=0.0):
        """Up to noise and a share `within`."""
        noise = Z * np.hypot(self.error, other.error)
        return abs(self.mean - other.mean) <= noise + within * other.mean


def estimate(scores):
    scores = np.asarray(scores, float)
    return Estimate(scores.mean(), scores.std(ddof=1) / np.sqrt(scores.size))


def releases(key, times, levels, tilt, bridge):
    """Score of one trial: its likelihood ratio where the loss first exceeds `levels`, else 0.

    Args:
        key: of the trial.
        times: falling, shape (k,); what the process is told.
        levels: the boundary there.
        tilt: constant added to the noise.
        bridge: also count crossings between the times.
    """

    def score(state, level, before, chance):
        noise = tilt + state.value
        loss = PROCESS.privacy_loss(state._replace(value=noise), 1.0)
        # The curve in units of the noise, and how far below it the noise is.
        gap = state.time * level - 0.5 - noise
        earlier, gap_before = before
        between = jnp.exp(-2 * gap * gap_before / (earlier - state.time))
        hit = (loss > level) | (bridge & (chance < between))
        ratio = jnp.exp((0.5 * tilt - noise) * tilt / state.time)
        return hit, jnp.where(hit, ratio, 0), (state.time, gap)

    first, rest = jax.random.split(key)
    state = PROCESS.init(first, times[0])
    far = (2 * times[0], jnp.full_like(times[0], jnp.inf))
    hit, ratio, before = score(state, levels[0], far, jnp.ones_like(times[0]))

    def step(carry, inputs):
        state, before, hit, ratio = carry
        time, level, number = inputs
        noise_key, coin_key = jax.random.split(jax.random.fold_in(rest, number))
        state = PROCESS.rewind(noise_key, state, time)
        chance = jax.random.uniform(coin_key, dtype=times.dtype)
        now, value, before = score(state, level, before, chance)
        return (state, before, hit | now, jnp.where(hit, ratio, value)), None

    inputs = (times[1:], levels[1:], jnp.arange(1, times.size))
    return jax.lax.scan(step, (state, before, hit, ratio), inputs)[0][3]


many_releases = jax.jit(jax.vmap(releases, in_axes=(0, None, None, None, None)))


def release_estimate(seed, times, levels, tilt=0.0, bridge=False):
    times, levels = jnp.asarray(times), jnp.asarray(levels)
    tilt = jnp.asarray(tilt, times.dtype)
    return estimate(many_releases(keys(seed), times, levels, tilt, jnp.asarray(bridge)))


def linear(delta, high=8.0, low=1 / 8):
    """A boundary, its tilt, falling times about its tight one, and what it states there."""
    guarantee = LinearBoundary.tight_at_epsilon(0.3, 1.0, delta)
    times = jnp.asarray(np.geomspace(high, low, STEPS) * float(guarantee.b / guarantee.a))
    return guarantee, 2 * guarantee.b, times, stated(guarantee, times)


def horizon_probability(guarantee, time):
    """P(W_s > a s + b for some s <= time), in closed form."""
    a, b, root = guarantee.a, guarantee.b, np.sqrt(float(time))
    line = norm.cdf(-(a * time + b) / root)
    return Estimate(line + np.exp(-2 * a * b) * norm.cdf((a * time - b) / root))


# Linear boundary


def test_linear_holds_on_a_grid():
    _, tilt, times, levels = linear(RARE)
    found = release_estimate(0, times, levels, tilt)
    assert found.at_most(RARE)
    assert found.mean > 0.6 * RARE  # most of it is used up
    assert found.error < 0.01 * found.mean


@pytest.mark.long
@pytest.mark.parametrize("top", [1.0, 2.0])
def test_linear_agrees_with_its_closed_form(top):
    guarantee, tilt, times, levels = linear(RARE, top, top / 12)
    exact = horizon_probability(guarantee, times[0])
    assert release_estimate(1, times, levels, tilt, bridge=True).equals(exact, within=0.01)
    # A coarse grid without its bridges misses some: the agreement is no accident of the scores.
    coarse = [part[::16].repeat(16) for part in (times, levels)]
    assert not release_estimate(1, *coarse, tilt).equals(exact, within=0.05)


@pytest.mark.long
def test_linear_counted_agrees_with_tilted():
    guarantee, tilt, times, levels = linear(COMMON)
    counted = release_estimate(2, times, levels)
    assert counted.at_most(COMMON)
    assert counted.equals(release_estimate(3, times, levels, tilt))
    whole = release_estimate(4, times, levels, bridge=True)
    assert whole.equals(horizon_probability(guarantee, times[0]))


@pytest.mark.long
@pytest.mark.parametrize("delta", [RARE, COMMON])
def test_planted_faults_break_the_linear_boundary(delta):
    _, tilt, times, levels = linear(delta)
    for shift in [tilt] if delta == RARE else [tilt, 0.0]:
        # The grid alone misses so many crossings that at 0.05 it would hide the weaker fault.
        def holds(times, levels, shift=shift):
            return release_estimate(0, times, levels, shift, bridge=True).at_most(delta)

        assert holds(times, levels)
        assert not holds(0.9 * times, levels)  # noise of variance 0.9 t
        assert not holds(times, 0.7 * levels)


@pytest.mark.long
def test_fresh_noise_breaks_the_boundary():
    _, _, times, levels = linear(COMMON)

    @jax.jit
    @jax.vmap
    def fresh(key):
        states = jax.vmap(PROCESS.init)(jax.random.split(key, STEPS), times)
        losses = jax.vmap(PROCESS.privacy_loss, in_axes=(0, None))(states, 1.0)
        return jnp.any(losses > levels)

    assert not estimate(fresh(keys(5))).at_most(COMMON)


def adaptive(key, guarantee, tilt, first):
    """As `releases`, the next time chosen from the last release: small steps near the line."""

    def score(state):
        noise = tilt + state.value
        loss = PROCESS.privacy_loss(state._replace(value=noise), 1.0)
        hit = loss > guarantee.epsilon(state.time)
        ratio = jnp.exp((0.5 * tilt - noise) * tilt / state.time)
        gap = (guarantee.curve(state.time) - noise) / jnp.sqrt(state.time)
        return hit, jnp.where(hit, ratio, 0), state.time * (1 - jnp.clip(0.1 * gap, 0.004, 0.3))

    state = PROCESS.init(key, first)

    def step(carry, number):
        state, hit, ratio, time = carry
        state = PROCESS.rewind(jax.random.fold_in(key, number), state, time)
        now, value, time = score(state)
        return (state, hit | now, jnp.where(hit, ratio, value), time), None

    return jax.lax.scan(step, (state, *score(state)), jnp.arange(1, STEPS))[0][2]


def test_linear_holds_at_adaptive_times(dtype):
    many = jax.jit(jax.vmap(adaptive, in_axes=(0, None, None, None)))

    def found(delta, seed, tilted=True, spoil=1.0):
        guarantee, tilt, times, _ = linear(delta, high=30.0)
        leaves = guarantee.sensitivity * spoil, guarantee.delta, guarantee.a, guarantee.b
        told = LinearBoundary(*(jnp.asarray(v, dtype) for v in leaves))
        shift = jnp.asarray(tilt if tilted else 0.0, dtype)
        return estimate(many(keys(seed), told, shift, times[0]))

    rare, counted = found(RARE, 6), found(COMMON, 7, tilted=False)
    assert rare.at_most(RARE)
    assert rare.mean > 0.65 * RARE
    assert counted.at_most(COMMON)
    assert counted.equals(found(COMMON, 8))
    assert not found(RARE, 6, spoil=0.9).at_most(RARE)  # a sensitivity understated by a tenth


# Mixture boundaries


def with_drift(key, times, levels, rho, two_sided):
    """Score of one trial of `W' = drift t + W` in increasing time: 1/M where it first crosses."""
    drift_key, path_key = jax.random.split(key)
    drift = jax.random.normal(drift_key, dtype=times.dtype) / jnp.sqrt(rho)
    drift = jnp.where(two_sided, drift, jnp.abs(drift))
    gaps = jnp.diff(times, prepend=0)
    steps = jax.random.normal(path_key, times.shape, times.dtype)
    noise = drift * times + jnp.cumsum(jnp.sqrt(gaps) * steps)
    loss = (0.5 + jnp.where(two_sided, jnp.abs(noise), noise)) / times
    first = jnp.argmax(loss > levels)
    z = noise[first] / jnp.sqrt(times[first] + rho)
    side = jnp.where(two_sided, 0, jnp.log(2.0) + jax.scipy.special.log_ndtr(z))
    log_m = 0.5 * z * z + side - 0.5 * jnp.log1p(times[first] / rho)
    return jnp.where(loss[first] > levels[first], jnp.exp(-log_m), 0)


many_with_drift = jax.jit(jax.vmap(with_drift, in_axes=(0, None, None, None, None)))


def drift_estimate(seed, times, levels, rho, two_sided=False):
    rho = jnp.asarray(rho, times.dtype)
    return estimate(many_with_drift(keys(seed), times, levels, rho, jnp.asarray(two_sided)))


def mixture(kind, delta):
    """Rising times, what the boundary states there, and its rho."""
    guarantee = kind.tight_at_epsilon(0.3, 1.0, delta)
    times = jnp.asarray(np.geomspace(0.3, 1e5, 2 * STEPS) * guarantee.rho)
    return times, stated(guarantee, times), guarantee.rho


@pytest.mark.parametrize("kind", [MixtureBoundary, OneSidedMixtureBoundary])
@pytest.mark.parametrize("delta", [RARE, COMMON])
def test_mixtures_hold(kind, delta):
    inputs = mixture(kind, delta)
    one, two = drift_estimate(10, *inputs), drift_estimate(11, *inputs, two_sided=True)
    assert one.at_most(delta)
    assert one.error < 0.01 * one.mean
    if kind is MixtureBoundary:
        # The loss needs one of the two sides: that is what the one-sided boundary saves.
        assert two.at_most(delta)
        assert two.mean > 0.5 * delta
        assert one.mean / two.mean == pytest.approx(0.5, abs=0.02)
    else:
        assert one.mean > 0.5 * delta
        # Its own curve is no boundary for |W|: the other side costs as much again.
        assert not two.at_most(delta)


@pytest.mark.long
def test_planted_faults_break_the_mixture():
    times, levels, rho = mixture(OneSidedMixtureBoundary, RARE)
    assert not drift_estimate(10, 0.9 * times, levels, rho).at_most(RARE)  # noise of variance 0.9 t
    assert not drift_estimate(10, times, 0.7 * levels, rho).at_most(RARE)


@pytest.mark.long
@pytest.mark.parametrize("kind", [MixtureBoundary, OneSidedMixtureBoundary])
def test_mixture_counted_agrees_with_tilted(kind):
    """The releases of the process, large times first, against drifting paths, small times first."""
    times, levels, rho = mixture(kind, COMMON)
    counted = release_estimate(12, times[::-1], levels[::-1])
    assert counted.at_most(COMMON)
    assert counted.equals(drift_estimate(13, times, levels, rho))


@pytest.mark.long
def test_rho_chosen_anew_at_each_time_is_no_boundary():
    """Tight everywhere is c sqrt(t), which is crossed surely in the end."""
    times = jnp.asarray(np.geomspace(1e7, 1.0, STEPS))
    for tuned, holds in ((times, False), (1e3, True)):
        levels = stated(OneSidedMixtureBoundary.tight_at_time(tuned, 1.0, COMMON), times)
        assert release_estimate(14, times, levels).at_most(COMMON) == holds
