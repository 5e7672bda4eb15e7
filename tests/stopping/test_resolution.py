"""Stated costs hold for large numbers, which the dtype barely resolves."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.outcome import Status
from nrjax.processes._kernel import exponential, laplace
from nrjax.stopping import first_yes, thresholds
from tests.problems import scalar
from tests.stopping.oracle import stopping_law

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

KEY = jax.random.key(5)
TRIALS = 200_000
LARGE = 2**26
private = pytest.mark.parametrize("kind", [nrjax.AboveThreshold, nrjax.LaplaceTests])


def share_of_yes(rule, utility):
    """Return the fraction of positive answers to one query, and its standard error."""
    keys = jax.random.split(jax.random.fold_in(KEY, int(utility)), TRIALS)
    yes = jax.vmap(lambda key: first_yes(key, rule, [utility]).stopped)(keys)
    share = float(jnp.mean(yes))
    return share, np.sqrt(share * (1 - share) / TRIALS)


@private
def test_large_counts_keep_the_law(kind):
    """Large counts have the answers of small counts at the same distance from a threshold."""
    for away in (-20, -19):
        share, error = share_of_yes(kind(LARGE + 40, 1.0, 0.1), LARGE + 40 + away)
        if kind is nrjax.AboveThreshold:
            exact = stopping_law(np.array([[float(away)]]), 0.1, 1.0, 0.0)[0][0, 0]
        else:
            exact = 0.5 * np.exp(away * 0.1)
        assert abs(share - exact) < 4.5 * error
    # Negative control: counts cast to float32 before are eight apart.
    moved = float(np.float32(LARGE + 21))
    share, error = share_of_yes(kind(float(LARGE + 40), 1.0, 0.1), moved)
    assert abs(share - exact) > 4.5 * error


def test_comparisons_are_exact(dtype):
    """Exact rationals give the same answers."""
    finite = [  # utility, threshold, noise
        (LARGE, LARGE + 8, 8.0),  # equality
        (LARGE, LARGE + 8, 7.999999),
        (LARGE, 3.0, -LARGE + 3.0),  # a sum of no exact difference
        (LARGE, 3.0, -LARGE + 4.0),
        (-LARGE, 5.0, LARGE + 8.0),
        (1.0, 1e-10, -1.0),
        (1.0, -1e-10, -1.0),
    ]
    infinite = [(np.inf, np.inf, 0.0), (1.0, -np.inf, -9.0), (1.0, np.inf, 9.0)]
    cases = np.array([*finite, *infinite], dtype)

    @jax.jit
    @jax.vmap
    def reached(utility, threshold, noise):
        return nrjax.PublicThreshold(threshold).reached(utility, jnp.int32(0), noise)

    numbers = [list(map(Fraction, map(float, case))) for case in cases[: len(finite)]]
    exact = [u + z >= t for u, t, z in numbers]
    np.testing.assert_array_equal(reached(*cases.T), [*exact, True, True, False])


def test_thresholds_and_utilities_that_the_dtype_does_not_hold():
    """Integers are not wrapped, and floats count as NaN if a cast would move them too far."""
    big = jax.jit(lambda u: first_yes(KEY, nrjax.PublicThreshold(np.int64(2**40)), u))
    assert big(jnp.array([100.0, 1e8])).status == Status.EXHAUSTED

    def asked(tau, utility, sensitivity=1.0):
        rule = nrjax.AboveThreshold(tau, sensitivity, 0.1)
        return first_yes(KEY, rule, [utility]).status

    traced = jax.jit(asked, static_argnums=(1, 2))
    lost = jnp.result_type(float) == jnp.float32
    for utility in (LARGE + 11.9, LARGE + 12.1):
        assert (traced(LARGE + 64.0, utility) == Status.NAN_UTILITY) == lost
    assert traced(LARGE + 64.0, float(LARGE + 8)) != Status.NAN_UTILITY
    assert traced(64.0, 11.9) != Status.NAN_UTILITY
    both = jax.jit(lambda tau, delta: asked(tau, LARGE + 11.9, delta))
    assert (both(LARGE + 64.0, 1.0) == Status.NAN_UTILITY) == lost
    assert both(LARGE + 64.0, 1e5) != Status.NAN_UTILITY


def test_noise_does_not_depend_on_what_a_cast_does_to_the_utilities():
    """A scale that depends on the rounding of utilities would reveal them."""
    keys = jax.random.split(KEY, 60_000)

    def first(last):
        utilities = np.array([-4000.0, last])

        def asked(tau, key):
            return first_yes(key, nrjax.AboveThreshold(tau, 1.0, 1e-3), utilities).step == 0

        return jax.jit(jax.vmap(asked, (None, 0)))(0.0, keys)

    held, other = first(0.5), first(0.6)
    assert 1000 < jnp.sum(held) < 59_000
    np.testing.assert_array_equal(held, other)


def test_integer_utilities_beyond_the_dtype_are_nan(dtype):
    found = jax.jit(lambda u: first_yes(KEY, nrjax.AboveThreshold(0.0, 1.0, 0.5), u))
    assert found(jnp.asarray([2**24], jnp.int32)).status == Status.STOPPED
    above, lost = found(jnp.asarray([2**24 + 1], jnp.int32)), dtype == jnp.float32
    assert above.status == (Status.NAN_UTILITY if lost else Status.STOPPED)
    assert np.isposinf(above.cost) == lost


def test_a_threshold_whose_neighbours_are_further_apart_than_the_sensitivity(dtype):
    large = 2.0**26 if dtype == jnp.float32 else 2.0**55
    rule = nrjax.AboveThreshold(-large, 1.0, 0.1)
    with pytest.raises(ValueError, match=r"threshold must be small enough .* are 8 apart"):
        nrjax.run_until(KEY, nrjax.Interaction(**scalar(rule=rule)))
    with pytest.raises(ValueError, match="to resolve the sensitivity"):
        jax.jit(lambda u: first_yes(KEY, rule, u))(jnp.ones(3))
    public = nrjax.Interaction(**scalar(threshold=-large))
    assert nrjax.run_until(KEY, public).step == 0


def test_unsigned_counts_and_half_precision_are_numbers():
    """Half precision is cast to float32, because its noise is NaN, or too coarse."""
    found = jax.jit(lambda u: first_yes(KEY, nrjax.AboveThreshold(30.0, 1.0, 50.0), u))
    wide = "uint64" if jax.config.jax_enable_x64 else "uint16"
    for kind in ("uint8", wide, "float16", "bfloat16"):
        seen = found(jnp.asarray([1, 100], kind))
        assert (seen.step, seen.status) == (1, Status.STOPPED)


@pytest.mark.parametrize("draw", [laplace, pytest.param(exponential, marks=pytest.mark.long)])
@pytest.mark.parametrize("epsilon", [pytest.param(1e-3, marks=pytest.mark.long), 1e-5])
def test_the_grain_of_noise_is_paid_for(draw, epsilon, monkeypatch):
    """No log-ratio of float32 noise exceeds the stated cost, counted over adjacent words."""
    words = 2**31 if draw is laplace else 2**32  # those of a sign

    def largest(depth):
        """Return `max_y log P(noise >= y)/P(noise >= y + 1)` at a depth in scales from 0."""
        last = int((words - 1) * np.exp(-depth))
        bits = np.arange(int(last * np.exp(-3 * epsilon)), last, dtype=np.uint32)
        scale = thresholds.noise_scale(1.0, epsilon, jnp.float32)
        noise = scale * draw(jnp.asarray(bits << (draw is laplace)), jnp.float32)
        noise = np.asarray(noise, np.float64)[::-1]
        atoms = np.unique(noise[(noise > noise[0]) & (noise < noise[-1] - 1)])
        beyond, moved = (last - np.searchsorted(noise, at) for at in (atoms, atoms + 1))
        return np.log(beyond / moved).max()

    depths = (0, 0.75, 3, 6)
    assert max(map(largest, depths)) <= epsilon
    # Negative control: without a margin for the grain, epsilon is exceeded.
    monkeypatch.setattr(thresholds, "_GRAIN_MARGIN", 0)
    assert max(map(largest, depths)) > epsilon


@private
def test_noise_that_the_dtype_does_not_hold(kind, dtype):
    """The rule refuses it, and never stops a trial under a trace."""

    def asked(sensitivity, epsilon):
        return first_yes(KEY, kind(0.0, sensitivity, epsilon), jnp.ones(1, dtype))

    limits, traced = jnp.finfo(dtype), jax.jit(asked)
    tiny, most, least = float(limits.tiny), float(limits.max), 39 * float(limits.eps)
    # Noise that would be flushed to 0, or whose grain is too large for epsilon.
    for parameters in ((tiny, 3.0), (64 * tiny, 1.0), (most / 4, 1e-3), (1.0, least)):
        with pytest.raises(ValueError, match=r"epsilon must be such that float(32|64) holds"):
            asked(*parameters)
        assert traced(*(jnp.asarray(p, dtype) for p in parameters)).status == Status.EXHAUSTED
