"""The probability that a private test accepts a missed target, with the rule's own noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base.dtypes import float_dtype
from nrjax.stopping.accuracy import acceptance_probability, private_test, shortfall

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

GAMMA, DELTA = 0.1, 1e-3
both_noises = pytest.mark.parametrize("noise", ["laplace", "exponential"])


def accepted(rule, gap, epsilon):
    """Return the exact probability that a rule accepts a utility this far below its threshold."""
    threshold, query = (float(x) for x in rule._scales(epsilon, float_dtype()))
    assert query == pytest.approx(2 * threshold)
    return float(acceptance_probability(gap, 1.0, query / 4, rule.noise))


def smallest(dtype):
    """Return two small epsilons, with noise of the rule 0.9 % and 9 % wider than ideal."""
    return np.array([1e-3, 1e-4]) * float(np.finfo(dtype).eps / np.finfo(np.float32).eps)


@both_noises
def test_the_first_level_is_for_the_noise_of_the_rule(noise, dtype):
    """A level at which ideal noise would just fit the margin is left out."""
    for epsilon, wider in zip(smallest(dtype), (1.009, 1.088), strict=True):
        margin = float(shortfall(epsilon, DELTA, GAMMA, 1.0, noise)) * (1 + 1e-5)
        options = {"margin": margin, "confidence": 1 - GAMMA, "noise": noise}
        with pytest.raises(ValueError, match="margin must be at least"):
            private_test(0.0, [epsilon], DELTA, **options)
        levels = epsilon * np.linspace(1, 1.1, 101)
        fitting = [float(e) for e in levels if _fits(e, options)]
        assert fitting[0] / epsilon == pytest.approx(wider, abs=3e-3)
        rule = private_test(0.0, fitting[:1], DELTA, **options).rule
        assert 0.99 * GAMMA < accepted(rule, margin, fitting[0]) <= GAMMA * (1 + 1e-6)
        assert accepted(rule, margin, epsilon) > GAMMA * (1 + 1e-3)  # the planted fault


def _fits(epsilon, options):
    try:
        private_test(0.0, [epsilon], DELTA, **options)
    except ValueError:
        return False
    return True


def test_the_count_of_accepted_utilities_is_as_stated(dtype):
    """The draws of a rule, at the first level that fits and at that of ideal noise."""
    if dtype == jnp.float64:
        pytest.skip("the draws of float64 have no such small epsilon in tests")
    epsilon, trials = 1e-4, 400_000
    margin = float(shortfall(epsilon, DELTA, GAMMA))
    levels = epsilon * np.linspace(1, 1.1, 101)
    options = {"margin": margin, "confidence": 1 - GAMMA}
    fitting = next(float(e) for e in levels if _fits(e, options))
    rule = private_test(0.0, [fitting], DELTA, **options).rule

    @jax.jit
    def share(epsilon):
        def one(key):
            first, second = jax.random.split(key)
            state = rule.init(first, epsilon)
            return rule.step(second, state, epsilon, jnp.float32(0.0))[1]

        return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(3), trials)))

    error = np.sqrt(GAMMA * (1 - GAMMA) / trials)
    assert abs(share(jnp.float32(fitting)) - GAMMA) < 4 * error + 1e-3
    assert share(jnp.float32(fitting)) < GAMMA + 4 * error
    assert share(jnp.float32(epsilon)) > GAMMA + 10 * error


def test_until_leaves_out_levels_for_the_noise_of_the_rule(dtype):
    """A union bound over the levels that are left, with the rule's scales, is at most stated."""
    low = smallest(dtype)[1]
    levels = (low, 40 * low, 60)
    mechanism = nrjax.laplace(0.0, 1.0)
    options = {"at_least": -1.0, "private": True, "sensitivity": DELTA, "levels": levels}
    margin = 4 * DELTA / (3 * low)
    interaction = mechanism.until(jnp.abs, **options, margin=margin)
    epsilons = np.asarray(interaction.guarantee.epsilon(interaction.schedule.times))
    assert 0 < epsilons.size < 60
    wrong = [accepted(interaction.rule, margin, e) for e in epsilons]
    assert 0.5 * GAMMA < np.sum(wrong) <= GAMMA * (1 + 1e-6)


def test_noise_allows_for_the_rounding_of_utilities_near_the_threshold(dtype):
    """Two utilities near a large threshold are rounded apart by up to two spacings."""
    eps = float(np.finfo(dtype).eps)
    for threshold in (0.0, -40.0, np.array([-np.inf, 3.0, -40.0])):
        sensitivity = 600 * 40 * eps
        largest = 0.0 if np.size(threshold) == 1 and threshold == 0 else 40.0
        for rule in (
            nrjax.AboveThreshold(threshold, sensitivity, 0.5),
            nrjax.ReducedAboveThreshold(threshold, sensitivity, share=0.3),
            nrjax.LaplaceTests(threshold, sensitivity, 0.5),
        ):
            scale = float(rule._noise_scale(0.5, dtype, rule.max_noise_multiple))
            needed = (sensitivity + 2 * eps * largest) / 0.5
            assert needed < scale < needed * (1 + 1e-3)
            assert largest == 0 or scale > sensitivity / 0.5 * (1 + 1 / 400)


def test_lists_of_epsilons_are_levels():
    """Of the issue: a list was refused as neither positive nor finite."""
    assert private_test(-1.0, [0.1, 0.2], 0.01).first == 1
