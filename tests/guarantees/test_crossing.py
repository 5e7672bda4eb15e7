"""Probabilities that the loss ever exceeds a boundary, down to delta = 1e-6.

At fixed times they come from the quadrature of `GridBoundary`, which `test_grid.py` compares with
counting. At times chosen from the releases they come from trials, with importance sampling for rare
events: noise shifted by the constant 2b crosses often, and each trial is weighted by its likelihood
ratio (without a shift, trials are counted). Sensitivity and shift of the data are 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from nrjax.guarantees import LinearBoundary, OneSidedMixtureBoundary
from nrjax.guarantees._crossing import crossing
from nrjax.processes import Brownian
from tests.guarantees.oracle import KINDS

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

RARE, COMMON = 1e-6, 0.05
TRIALS, STEPS, LOOKS = 8192, 256, 128
PROCESS = Brownian(())


def exceeded(times, levels):
    """Return the probability that the loss, `(1/2 + W)/t`, exceeds levels at a time."""
    return crossing(times, times * levels - 0.5)[1]


def levels_of(boundary, times):
    return np.asarray(boundary.epsilon(times), float)


@pytest.mark.parametrize("delta", [RARE, COMMON])
@pytest.mark.parametrize("name", KINDS)
def test_holds_on_fixed_looks(name, delta):
    """At least a third of delta is used (for |W|, each side has half of it)."""
    boundary = KINDS[name].tight_at_epsilon(0.3, 1.0, delta)
    if name == "linear":
        times = np.geomspace(1 / 8, 8, LOOKS) * boundary.b / boundary.a
    else:
        times = np.geomspace(0.3, 1e5, LOOKS) * boundary.rho
    levels, most = levels_of(boundary, times), delta / 2 if name == "two" else delta
    assert 0.35 * most < exceeded(times, levels) <= most
    assert exceeded(times, 0.7 * levels) > most
    if delta == RARE:
        assert exceeded(0.9 * times, levels) > most  # noise of variance 0.9 t
    else:  # fresh noise at each look
        assert np.prod(norm.cdf((times * levels - 0.5) / np.sqrt(times))) < 1 - most


@pytest.mark.parametrize("top", [1.0, 2.0])
def test_linear_agrees_with_its_closed_form(top):
    """P(W_s > a s + b for some s <= t) is known, and Siegmund corrects for discrete times."""
    line = LinearBoundary.tight_at_epsilon(0.3, 1.0, RARE)
    last = top * line.b / line.a
    times, root = np.geomspace(last / 12, last, LOOKS), np.sqrt(last)
    exact = norm.cdf(-(line.a * last + line.b) / root)
    exact += np.exp(-2 * line.a * line.b) * norm.cdf((line.a * last - line.b) / root)
    levels, between = levels_of(line, times), 0.5826 * np.sqrt(np.diff(times, prepend=0))
    assert exceeded(times, levels) < 0.85 * exact
    assert exceeded(times, levels - between / times) == pytest.approx(exact, rel=0.01)


def test_rho_chosen_anew_at_each_time_is_no_boundary():
    """A boundary tight at every time is c sqrt(t), which is crossed with probability 1."""
    times = np.geomspace(1.0, 1e7, LOOKS)
    for tuned, holds in ((times, False), (1e3, True)):
        boundary = OneSidedMixtureBoundary.tight_at_time(tuned, 1.0, COMMON)
        assert (exceeded(times, levels_of(boundary, times)) <= COMMON) == holds


def adaptive(key, guarantee, tilt, first):
    """Return the likelihood ratio of a trial when its loss first exceeds epsilon, else 0.

    The next time is chosen from the last release, with small steps near the line. `tilt` is a
    constant added to the noise.
    """

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


many = jax.jit(jax.vmap(adaptive, in_axes=(0, None, None, None)))


def test_linear_holds_at_adaptive_times(dtype):
    z = norm.isf(0.01 / 40)

    def found(delta, seed, tilted=True, spoil=1.0):
        """Return the mean score, and z standard errors of it."""
        line = LinearBoundary.tight_at_epsilon(0.3, 1.0, delta)
        told = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), line)
        told = LinearBoundary(spoil * told.sensitivity, told.delta, told.a, told.b)
        tilt = 2 * told.b * tilted
        keys = jax.random.split(jax.random.key(seed), TRIALS)
        scores = np.asarray(many(keys, told, tilt, 30 * told.b / told.a), float)
        return scores.mean(), z * scores.std() / np.sqrt(TRIALS)

    mean, error = found(RARE, 6)
    assert 0.65 * RARE < mean < RARE + error
    (counted, spread), (mean, error) = found(COMMON, 7, tilted=False), found(COMMON, 8)
    assert counted < COMMON + spread
    assert abs(counted - mean) < np.hypot(spread, error)
    mean, error = found(RARE, 6, spoil=0.9)  # a sensitivity understated by a tenth
    assert mean > RARE + error
