"""The presets' constants against printed numbers, and the accuracy they guarantee."""

import math

import numpy as np
import pytest

from nrjax.papers.ligett2017 import presets
from nrjax.papers.ligett2017.presets import Problem
from nrjax.stopping.accuracy import acceptance_probability

NAMES = ("paper", "figures", "tight")
RIDGE, RIDGE_OUTPUT, LOGISTIC = (
    {name: Problem(name, *public, 0.005) for name in NAMES}
    for public in (
        ("ridge", "covariance", 100_000, 77),
        ("ridge", "output", 100_000, 77),
        ("logistic", "output", 100_000, 38),
    )
)
GAMMA, LEVELS = 0.1, 1000


def test_ridge_tests_cost_what_the_texts_say():
    """At alpha 0.05, exp(eps_0) is 1431 by Algorithm 3 and below 10 by the figures' program."""
    costs = {name: presets.threshold_test(RIDGE[name], 0.05, GAMMA, LEVELS) for name in NAMES}
    assert costs["paper"].epsilon == pytest.approx(7.27, abs=0.005)
    assert math.exp(costs["paper"].epsilon) == pytest.approx(1431, rel=0.005)
    assert math.exp(costs["figures"].epsilon) == pytest.approx(9.24, abs=0.01)
    assert costs["tight"].epsilon < costs["figures"].epsilon


def test_sensitivities():
    """As in the papers, plus the rounding of the risk in float32."""
    expected = (1 / math.sqrt(0.005) + 1) ** 2 / 1e5
    assert presets.query_sensitivity(RIDGE["paper"]) == pytest.approx(expected, rel=1e-3)
    radius = math.sqrt(2 * math.log(2) / 0.005)
    assert LOGISTIC["paper"].radius == pytest.approx(radius)
    assert LOGISTIC["tight"].radius < 0.9 * radius
    expected = 2 * radius / 1e5
    assert presets.query_sensitivity(LOGISTIC["paper"]) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("problem", [RIDGE, RIDGE_OUTPUT, LOGISTIC])
@pytest.mark.parametrize("name", NAMES)
def test_grids_run_from_one_row_to_four_times_the_theory(name, problem):
    problem = problem[name]
    high = 4 * presets.theory_epsilon(problem, 0.05)
    grid = presets.levels(problem, 0.05, LEVELS)
    assert grid.shape == (LEVELS,)
    assert grid[0] == pytest.approx(1e-5)
    assert grid[-1] == pytest.approx(high)
    ratios = grid[1:] / grid[:-1]
    np.testing.assert_allclose(ratios, ratios[0])
    doubling = presets.doubling_levels(problem, 0.05)
    assert doubling[0] == pytest.approx(1e-5)
    np.testing.assert_allclose(doubling[1:] / doubling[:-1], 2)
    assert high / 2 <= doubling[-1] <= 2 * high


@pytest.mark.parametrize("problem", [RIDGE, LOGISTIC])
@pytest.mark.parametrize(
    ("name", "noise"),
    [*((name, "laplace") for name in NAMES), ("paper", "exponential"), ("tight", "exponential")],
)
@pytest.mark.parametrize("alpha", [0.005, 0.2])
def test_excess_risks_above_alpha_are_accepted_with_probability_gamma_at_most(
    name, noise, problem, alpha
):
    """By a union bound over all steps, for the private tests as they run."""
    problem = problem[name]
    test = presets.threshold_test(problem, alpha, GAMMA, LEVELS, noise)
    assert 0 < test.threshold < alpha
    numbers = alpha - test.threshold, test.epsilon, test.sensitivity
    accepted = acceptance_probability(*numbers, noise)
    assert LEVELS * float(accepted) <= GAMMA * (1 + 1e-4)  # the rounding of float32
    if name == "tight" or noise == "exponential":
        assert LEVELS * float(accepted) == pytest.approx(GAMMA, rel=1e-3)
    if noise == "exponential" and name == "tight":
        usual = presets.threshold_test(problem, alpha, GAMMA, LEVELS)
        # Planted: the margin of Laplace noise is too small.
        less = usual.epsilon * 0.75 * alpha / numbers[0]
        assert LEVELS * float(acceptance_probability(numbers[0], less, numbers[2], noise)) > GAMMA
        # The optimum is refused as often, at a smaller epsilon.
        refused = acceptance_probability(-test.threshold, *numbers[1:], noise)
        alike = acceptance_probability(-usual.threshold, usual.epsilon, usual.sensitivity)
        assert float(refused) == pytest.approx(float(alike), abs=1e-4)
        assert 0.8 < test.epsilon / usual.epsilon < 0.9
    steps = presets.doubling_levels(problem, alpha).size
    test = presets.doubling_test(problem, alpha, GAMMA, steps)
    tail = 0.5 * math.exp(-(alpha - test.threshold) * test.epsilon / test.sensitivity)
    assert steps * tail <= GAMMA * (1 + 1e-9)
    epsilons = presets.reduced_levels(problem, alpha, GAMMA, LEVELS, noise)
    below = presets.reduced_thresholds(problem, alpha, GAMMA, epsilons, noise)
    delta = presets.query_sensitivity(problem)
    total = float(np.sum(acceptance_probability(alpha - below, epsilons, delta, noise)))
    assert total <= GAMMA * (1 + 1e-3)
    assert np.all(np.diff(below) > 0)
    assert abs(below[0]) < 1e-3 * alpha  # the first level separates 0 from alpha


def test_where_testing_costs_more_than_one_release_the_tests_grid_is_longer():
    """With one feature the theory's epsilon is smaller than that of any test."""
    few = Problem("paper", "ridge", "covariance", 1000, 1, 0.005)
    high = 4 * presets.theory_epsilon(few, 0.1)
    grid = presets.reduced_levels(few, 0.1, GAMMA, LEVELS)
    assert high < grid[0]
    assert grid[-1] == pytest.approx(4 * grid[0])
    below = presets.reduced_thresholds(few, 0.1, GAMMA, grid)
    np.testing.assert_allclose(below, 0.1 * (1 - grid[0] / grid), atol=1e-6)
    # With more features the grids end together.
    grid = presets.reduced_levels(RIDGE["paper"], 0.1, GAMMA, LEVELS)
    assert grid[-1] == pytest.approx(4 * presets.theory_epsilon(RIDGE["paper"], 0.1))


@pytest.mark.parametrize("name", NAMES)
def test_an_accuracy_that_needs_no_test_is_refused(name):
    """An answer of pure noise is wrong half the time, and `paper` allows for twice as much."""
    assert presets.doubling_test(RIDGE[name], 0.05, 0.49, 1).epsilon > 0
    if name == "paper":
        assert presets.doubling_test(RIDGE[name], 0.05, 0.9, 1).epsilon > 0
        return
    for gamma in (0.5, 0.9):
        with pytest.raises(ValueError, match=r"gamma must be below 0\.5 .*With 1 doub"):
            presets.doubling_test(RIDGE[name], 0.05, gamma, 1)
