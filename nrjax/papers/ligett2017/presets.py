"""The constants that Ligett 2017's experiments can be run with, as functions of public numbers.

`paper`: the algorithms as printed, their errata corrected. `figures`: the program that drew the
printed figures. `tight`: the smallest constants that are proved (`docs/mathematics.md`), with
smaller balls for the hypotheses.

All presets meet the stated accuracy at the epsilon of the theorems. For ridge by output
perturbation Theorem A.9 as printed is false: all presets use the corrected theorem. The program
that the authors published later (Zenodo 3371774) is not a preset: its sensitivities are half of
what the excess risk needs, so its epsilons are no guarantee.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jax import Array

from nrjax._validation import check
from nrjax.erm import sensitivity, theory
from nrjax.erm.sensitivity import Ball, logistic_radius, ridge_radius
from nrjax.stopping.accuracy import (
    Noise,
    acceptance_probability,
    epsilon_for_shortfall,
    ligett_epsilon,
    shortfall,
    surplus,
    whitehouse_shortfall,
)

Name = Literal["paper", "figures", "tight"]
Task = Literal["logistic", "ridge"]
Perturbation = Literal["output", "covariance"]

HIGHEST = 4.0
"""The largest level of a grid is this many times the theory's epsilon (appendix B.1)."""

_QUARTER = 0.25
"""Threshold of `tight`, as a share of alpha: three quarters are left for the noise."""


class Test(NamedTuple):
    """A private test of the excess risk."""

    threshold: float
    """The excess risk to fall below, less what the noise may add."""
    sensitivity: float
    """Delta, that of the excess risk."""
    epsilon: float
    """Of the test as a whole, or of each answer where every answer is paid for."""


class Problem(NamedTuple):
    """The public numbers of a task, and the preset by which it is solved."""

    constants: Name
    task: Task
    perturbation: Perturbation
    """How it is released: with noise on the optimum, or on X'X and X'y."""
    rows: int
    dimension: int
    regularisation: float

    @property
    def ball(self) -> Ball:
        """Which ball holds the hypotheses."""
        return "tight" if self.constants == "tight" else "paper"

    @property
    def radius(self) -> float:
        """M, which bounds the norm of every hypothesis."""
        least = ridge_radius if self.task == "ridge" else logistic_radius
        return float(least(self.regularisation, self.ball))


def query_sensitivity(problem: Problem) -> float:
    """Return Delta, the sensitivity of the excess risk."""
    if problem.task == "logistic":
        moved, risk = sensitivity.logistic_loss(problem.rows, problem.radius), math.log(2)
    else:
        moved, risk = sensitivity.squared_loss(problem.rows, problem.radius), 0.5
    return sensitivity.excess_risk(sensitivity.evaluated(moved, risk))


def theory_epsilon(problem: Problem, alpha: float) -> float:
    """The epsilon at which one release is good enough by the utility theorem."""
    public = (alpha, problem.rows, problem.dimension, problem.regularisation)
    if problem.task == "logistic":
        return float(theory.output_logistic_epsilon(*public))
    covariance = problem.perturbation == "covariance"
    theorem = theory.covariance_epsilon if covariance else theory.output_ridge_epsilon
    return float(theorem(*public, constants=problem.ball, ball=problem.ball))


def levels(problem: Problem, alpha: float, count: int) -> np.ndarray:
    """The grid of epsilons, rising, shape (count,): from 1/n to 4 E (appendix B.1)."""
    return np.geomspace(*_range(problem, alpha), count)


def doubling_levels(problem: Problem, alpha: float) -> np.ndarray:
    """Epsilons of the doubling method, each twice the one before, shape (T,)."""
    low, high = _range(problem, alpha)
    doublings, text = math.log2(high / low), problem.constants in ("paper", "tight")
    count = math.ceil(doublings) if text else int(doublings + 1) + 1
    return low * 2.0 ** np.arange(max(count, 1))


def threshold_test(
    problem: Problem, alpha: float, gamma: float, count: int, noise: Noise = "laplace"
) -> Test:
    """The test of noise reduction: InteractiveAboveThreshold over `count` levels.

    For exponential noise the papers have no margin: it is the one that is proved. It refuses good
    models less, so that the threshold of `tight` can be lower, which leaves more for the margin.
    """
    moved, name = query_sensitivity(problem), problem.constants
    if name == "paper" and noise == "laplace":
        return Test(alpha / 2, moved, float(ligett_epsilon(alpha / 2, moved, gamma, count)))
    if name in ("paper", "tight"):
        share = 0.5
        if name == "tight":
            share = _QUARTER if noise == "laplace" else _one_sided_share(gamma, count)
        least = epsilon_for_shortfall((1 - share) * alpha, moved, gamma, 1 / count, noise)
        return Test(share * alpha, moved, float(least))
    # A threshold tuned for the smallest epsilon: with probability 1 - gamma the noisy one stays
    # above 0, and no accepted risk is above alpha.
    scale = alpha / (4 * math.log(1.5**0.75 * math.sqrt(count) / gamma))
    threshold = 0.25 * alpha + 0.75 * scale * math.log(1.5) - 0.5 * scale * math.log(count)
    return Test(threshold, moved, 2 * moved / scale)


def _one_sided_share(gamma: float, count: int) -> float:
    """The share of alpha at which exponential noise refuses as often as Laplace's at a quarter.

    An excess risk of 0, at a look, with the margins of either for the rest of alpha.
    """
    unit = 4.0, 1.0  # epsilon and Delta: lengths in units of 4 Delta/epsilon
    ahead = float(shortfall(*unit, gamma, 1 / count)) * _QUARTER / (1 - _QUARTER)
    refused = 1 - float(acceptance_probability(-ahead, *unit))
    margin = float(shortfall(*unit, gamma, 1 / count, "exponential"))
    ahead = float(surplus(*unit, refused, "exponential"))
    return ahead / (ahead + margin)


def doubling_test(problem: Problem, alpha: float, gamma: float, count: int) -> Test:
    """The test of the doubling method: fresh Laplace noise, `count` answers at most.

    Raises:
        ValueError: any noise at all keeps the promise, as a single answer is wrong half the time.
    """
    moved = query_sensitivity(problem)
    # The tail in Theorem A.2 is gamma/(2 T): half of what the printed scale allows for.
    odds = count / gamma if problem.constants == "paper" else count / (2 * gamma)
    right = f"below {count / 2:g}: with {count} doublings at alpha = {alpha:g} no test is needed"
    check(odds > 1, "gamma", gamma, right)
    return Test(alpha / 2, moved, 2 * moved * math.log(odds) / alpha)


def reduced_levels(
    problem: Problem, alpha: float, gamma: float, count: int, noise: Noise = "laplace"
) -> np.ndarray:
    """The grid for ReducedAboveThreshold, rising, shape (count,).

    It begins where the test can first tell an excess risk of 0 from one of alpha; at smaller
    epsilons a yes would be the noise's. It ends where the other grids do, or at four times its
    first level if that is more: with few features one release needs less than a test of it does.
    """
    _, high = _range(problem, alpha)
    # Shortfalls are in inverse proportion to epsilon.
    low = float(_shortfall(problem, 1.0, gamma, count, noise)) / alpha
    return np.geomspace(low, max(high, HIGHEST * low), count)


def reduced_thresholds(
    problem: Problem, alpha: float, gamma: float, epsilons: np.ndarray, noise: Noise = "laplace"
) -> np.ndarray:
    """The excess risk to fall below at each level, shape (levels,); negative where none will do.

    With it no excess risk above alpha is accepted in any of the steps, but with probability gamma.
    """
    return alpha - np.asarray(_shortfall(problem, epsilons, gamma, epsilons.size, noise))


def _shortfall(problem: Problem, epsilon: Any, gamma: float, count: int, noise: Noise) -> Array:
    """By how much ReducedAboveThreshold may err at each of `count` levels, or less."""
    numbers = epsilon, query_sensitivity(problem), gamma, 1 / count
    if problem.constants == "tight" or noise == "exponential":
        return shortfall(*numbers, noise=noise)
    return whitehouse_shortfall(*numbers)


def _range(problem: Problem, alpha: float) -> tuple[float, float]:
    low, high = 1 / problem.rows, HIGHEST * theory_epsilon(problem, alpha)
    right = f"such that {HIGHEST:g} times the theory's epsilon, {high:.4g}, is above 1/n"
    check(high > low, "alpha", alpha, f"{right} = {low:.4g}: lower")
    return low, high
