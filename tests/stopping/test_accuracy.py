"""Utility bounds of the private tests, and exact probabilities of failure."""

import jax
import numpy as np
import pytest

from nrjax.stopping.accuracy import (
    acceptance_probability,
    epsilon_for_shortfall,
    first_level,
    ligett_epsilon,
    ligett_shortfall,
    private_test,
    shortfall,
    surplus,
    whitehouse_shortfall,
)
from tests.stopping.oracle import stopping_law

GAMMA = 0.1
STEPS = 10
SENSITIVITY = 0.3
CONSTANT = np.full(STEPS, 0.8)
RISING = np.geomspace(0.2, 2.0, STEPS)
EQUAL = np.full(STEPS, 1 / STEPS)
FALLING = 0.5 ** np.arange(1, STEPS + 1)  # any shares that sum to at most 1

both_noises = pytest.mark.parametrize("noise", ["laplace", "exponential"])


@both_noises
def test_the_probability_of_a_yes_is_that_of_one_query(noise):
    distances = np.array([-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0])
    want = stopping_law(-distances[:, None], 0.7, 0.5, noise=noise)[0][:, 0]
    got = acceptance_probability(distances, 0.7, 0.5, noise)
    np.testing.assert_allclose(got, want, rtol=2e-5)


@both_noises
@pytest.mark.parametrize("share", [1.0, 0.3, 1e-3])
def test_shortfall_is_exact_and_near_the_simple_formula(share, noise):
    gamma, epsilon = np.array([0.3, 0.1, 1e-3]), np.array([0.1, 1.0, 5.0])
    ahead = surplus(epsilon, SENSITIVITY, 0.3 * gamma, noise)
    accepted = acceptance_probability(-ahead, epsilon, SENSITIVITY, noise)
    np.testing.assert_allclose(accepted, 1 - 0.3 * gamma, atol=1e-6)
    depth = shortfall(epsilon, SENSITIVITY, gamma, share, noise)
    accepted = acceptance_probability(depth, epsilon, SENSITIVITY, noise)
    np.testing.assert_allclose(accepted, gamma * share, rtol=1e-5)
    simple = 4 * SENSITIVITY / epsilon * np.log(2 / (3 * gamma * share))
    assert np.all(depth <= simple * (1 + 1e-5))
    np.testing.assert_allclose(depth, simple, rtol=0.25 if noise == "laplace" else 1e-5)
    found = epsilon_for_shortfall(depth, SENSITIVITY, gamma, share, noise)
    np.testing.assert_allclose(found, epsilon, rtol=1e-5)
    assert np.all(depth < whitehouse_shortfall(epsilon, SENSITIVITY, gamma, share))
    # The shortfall is 0 if half of the answers may fail.
    np.testing.assert_array_equal(shortfall(1.0, 1.0, np.array([0.5, 0.7, 0.99])), 0)


def test_printed_formulas():
    """Values are at the settings of Ligett 2017, section 8: ridge regression, alpha = 0.05."""
    steps, alpha, sensitivity = 1000, 0.05, (0.005**-0.5 + 1) ** 2 / 100_000
    printed = ligett_epsilon(alpha / 2, sensitivity, GAMMA, steps)
    sharper = epsilon_for_shortfall(alpha / 2, sensitivity, GAMMA, 1 / steps)
    for found, want, tolerance in (
        (printed, 16 * sensitivity * np.log(2 * steps / GAMMA) / alpha, 1e-6),
        (printed, 7.27, 1e-3),
        (sharper, 8 * sensitivity * np.log(2 * steps / (3 * GAMMA)) / alpha, 1e-4),
        (sharper, 3.23, 1e-3),
        (ligett_shortfall(printed, sensitivity, GAMMA, steps), alpha / 2, 1e-6),
        (whitehouse_shortfall(0.5, 2.0, GAMMA, 0.25), 16 * (np.log(20) - np.log(0.25)), 1e-6),
    ):
        np.testing.assert_allclose(found, want, rtol=tolerance)


def failures(depths, epsilons, noise="laplace"):
    """Return the probability of accepting a utility, all `depths` below their thresholds."""
    utilities = -np.array(depths, float)
    return 1 - stopping_law(utilities, epsilons, SENSITIVITY, noise=noise)[1][..., -1]


@both_noises
@pytest.mark.parametrize("shares", [EQUAL, FALLING], ids=["equal", "falling"])
@pytest.mark.parametrize("epsilons", [CONSTANT, RISING], ids=["classical", "reduced"])
def test_failures_are_as_rare_as_promised_and_half_the_shortfall_is_too_little(
    epsilons, shares, noise
):
    """Every query is as bad as allowed, so that only the union bound is not sharp."""
    sharp = np.asarray(shortfall(epsilons, SENSITIVITY, GAMMA, shares, noise))
    printed = whitehouse_shortfall(epsilons, SENSITIVITY, GAMMA, shares)
    found = failures([sharp, printed, sharp / 2], epsilons, noise)
    assert 0.8 * GAMMA < found[0] < GAMMA
    assert found[1] < GAMMA / 3  # Proposition C.1 has a factor of 3 to spare
    assert found[2] > GAMMA


@both_noises
def test_a_test_from_the_first_level_accepts_bad_utilities_rarely(noise):
    """Every utility is as bad as allowed. Half of the first level is a planted fault."""
    epsilons, margin = np.geomspace(0.01, 4, 40), 9.0 * SENSITIVITY
    first = first_level(epsilons, margin, SENSITIVITY, GAMMA, noise)
    assert 5 < first < 35
    chosen = epsilons[first:]
    found = [failures(np.full(chosen.size, margin), factor * chosen, noise) for factor in (1, 0.5)]
    assert 0.6 * GAMMA < found[0] <= GAMMA < found[1]
    with pytest.raises(ValueError, match=r"margin must be at least .* at the last level"):
        first_level(epsilons, 0.1 * margin, SENSITIVITY, GAMMA, noise)


@both_noises
def test_a_private_test_is_set_up_from_a_target_and_a_confidence(noise):
    epsilons, target = np.geomspace(0.01, 4, 40), -12.0 * SENSITIVITY
    test = private_test(target, epsilons, SENSITIVITY, confidence=1 - GAMMA, noise=noise)
    assert test.margin == pytest.approx(9.0 * SENSITIVITY)
    assert test.rule.threshold == pytest.approx(-3.0 * SENSITIVITY)
    assert test.first == first_level(epsilons, test.margin, SENSITIVITY, GAMMA, noise)
    assert (test.epsilon, test.rule.noise) == (epsilons[test.first], noise)
    assert float(test.rule.cost(test.epsilon)) == pytest.approx(test.epsilon)
    surer = private_test(target, epsilons, SENSITIVITY, confidence=0.99, noise=noise)
    wider = private_test(target, epsilons, SENSITIVITY, margin=2 * test.margin, noise=noise)
    assert wider.first < test.first < surer.first
    for options, message in (({"best": target}, "at_least"), ({"confidence": 1}, "confidence")):
        with pytest.raises(ValueError, match=message):
            private_test(target, epsilons, SENSITIVITY, **options)


def test_theorem_a1_of_ligett_is_true_and_loose():
    printed = np.full(STEPS, ligett_shortfall(CONSTANT[0], SENSITIVITY, GAMMA, STEPS))
    assert failures(printed, CONSTANT) < GAMMA / 30


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shortfall(0.0, 1.0, 0.1), r"epsilon must be positive and finite"),
        (lambda: shortfall(1.0, -1.0, 0.1), r"sensitivity must be positive"),
        (lambda: shortfall(1.0, 1.0, 1.0), r"gamma must be strictly between 0 and 1"),
        (lambda: shortfall(1.0, 1.0, 0.1, 0.0), r"share must be above 0 and at most 1"),
        (lambda: epsilon_for_shortfall(0.0, 1.0, 0.1), r"gap must be positive"),
        (lambda: whitehouse_shortfall(1.0, 1.0, 0.1, 2.0), r"share must be above 0"),
        (lambda: ligett_shortfall(1.0, 1.0, 0.1, 0), "steps must be at least 1"),
        (lambda: ligett_epsilon(np.nan, 1.0, 0.1, 3), "gap must be positive"),
        (lambda: acceptance_probability(1.0, np.inf, 1.0), "epsilon must be positive"),
        (lambda: shortfall(1.0, 1.0, 0.1, noise="normal"), "noise must be"),  # type: ignore
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_they_batch_and_keep_the_dtype(dtype):
    depths = jax.jit(jax.vmap(lambda e: shortfall(e, 1.0, 0.1)))(np.array([0.5, 1.0], dtype))
    assert (depths.shape, depths.dtype) == ((2,), dtype)
    assert shortfall(np.float32(0.5), 1.0, 0.1).dtype == np.float32
