"""Three presets of constants for the experiments of Ligett 2017.

* `paper`: the algorithms as printed, with errata corrected.
* `figures`: the constants of the program that drew the printed figures.
* `tight`: the smallest constants with a proof (`docs/proofs/regression.md`), and a smaller ball of
  hypotheses.

With every preset, a release at the epsilon of the utility theorem has the stated accuracy. Theorem
A.9 (ridge regression by output perturbation) is false as printed, so all presets use the corrected
theorem. The program that the authors published later (Zenodo 3371774) is not a preset. It uses
half of the excess risk's sensitivity, so its epsilons are no guarantee.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jax import Array

from nrjax._base.validation import check
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

HIGHEST = 4.0  # last level of a grid, as a multiple of the theory's epsilon (appendix B.1)
_QUARTER = 0.25
"""The threshold of the preset `tight`, as a fraction of alpha. The rest is for noise."""


class Test(NamedTuple):
    """A private test of the excess risk.

    Attributes:
        threshold: excess risk below which the test accepts. It leaves a margin for the noise.
        sensitivity: Delta, the sensitivity of the excess risk.
        epsilon: cost of the whole test (AboveThreshold) or of each answer (doubling).
    """

    threshold: float
    sensitivity: float
    epsilon: float


class Problem(NamedTuple):
    """The public parameters of a learning task, and its preset of constants.

    Attributes:
        constants: name of the preset: "paper", "figures" or "tight".
        task: the model to fit.
        perturbation: what gets noise: the optimum ("output"), or X'X and X'y ("covariance").
        rows: number of rows.
        dimension: number of features.
        regularisation: lambda of the l2 penalty.
    """

    constants: Name
    task: Task
    perturbation: Perturbation
    rows: int
    dimension: int
    regularisation: float

    @property
    def ball(self) -> Ball:
        """Return the name of the ball that holds the hypotheses."""
        return "tight" if self.constants == "tight" else "paper"

    @property
    def radius(self) -> float:
        """Return M, an upper bound on the l2 norm of every hypothesis."""
        least = ridge_radius if self.task == "ridge" else logistic_radius
        return float(least(self.regularisation, self.ball))


def query_sensitivity(problem: Problem) -> float:
    """Return Delta, the sensitivity of the excess risk."""
    if problem.task == "logistic":
        loss, risk = sensitivity.logistic_loss(problem.rows, problem.radius), math.log(2)
    else:
        loss, risk = sensitivity.squared_loss(problem.rows, problem.radius), 0.5
    return sensitivity.excess_risk(sensitivity.evaluated(loss, risk))


def theory_epsilon(problem: Problem, alpha: float) -> float:
    """Return the epsilon at which a theorem bounds a release's mean excess risk by alpha."""
    public = (alpha, problem.rows, problem.dimension, problem.regularisation)
    if problem.task == "logistic":
        return float(theory.output_logistic_epsilon(*public))
    covariance = problem.perturbation == "covariance"
    theorem = theory.covariance_epsilon if covariance else theory.output_ridge_epsilon
    return float(theorem(*public, constants=problem.ball, ball=problem.ball))


def levels(problem: Problem, alpha: float, count: int) -> np.ndarray:
    """Return `count` epsilons from 1/rows to 4 times the theory's epsilon (appendix B.1)."""
    return np.geomspace(*_range(problem, alpha), count)


def doubling_levels(problem: Problem, alpha: float) -> np.ndarray:
    """Return the epsilons of the doubling method, each twice the previous one."""
    low, high = _range(problem, alpha)
    doublings, text = math.log2(high / low), problem.constants in ("paper", "tight")
    count = math.ceil(doublings) if text else int(doublings + 1) + 1
    return low * 2.0 ** np.arange(max(count, 1))


def threshold_test(
    problem: Problem, alpha: float, gamma: float, count: int, noise: Noise = "laplace"
) -> Test:
    """Return the test of noise reduction: AboveThreshold over `count` levels.

    The papers give no margin for exponential noise, so its margin is the smallest with a proof.
    Exponential noise refuses good models less often than Laplace noise. With it, the threshold of
    `tight` is therefore lower, which leaves more of alpha for the margin.
    """
    delta, name = query_sensitivity(problem), problem.constants
    if name == "paper" and noise == "laplace":
        return Test(alpha / 2, delta, float(ligett_epsilon(alpha / 2, delta, gamma, count)))
    if name in ("paper", "tight"):
        share = 0.5
        if name == "tight":
            share = _QUARTER if noise == "laplace" else _one_sided_share(gamma, count)
        least = epsilon_for_shortfall((1 - share) * alpha, delta, gamma, 1 / count, noise)
        return Test(share * alpha, delta, float(least))
    # The preset `figures` has a threshold tuned for the smallest epsilon. With probability
    # 1 - gamma the noisy threshold stays above 0 and no accepted risk is above alpha.
    scale = alpha / (4 * math.log(1.5**0.75 * math.sqrt(count) / gamma))
    threshold = 0.25 * alpha + 0.75 * scale * math.log(1.5) - 0.5 * scale * math.log(count)
    return Test(threshold, delta, 2 * delta / scale)


def _one_sided_share(gamma: float, count: int) -> float:
    """Return the threshold of a test with exponential noise, as a fraction of alpha.

    With this threshold, the test refuses a perfect model as often per step as a test with Laplace
    noise and a threshold of alpha/4.
    """
    unit = 4.0, 1.0  # epsilon and Delta, so that lengths are in units of 4 Delta/epsilon
    ahead = float(shortfall(*unit, gamma, 1 / count)) * _QUARTER / (1 - _QUARTER)
    refused = 1 - float(acceptance_probability(-ahead, *unit))
    margin = float(shortfall(*unit, gamma, 1 / count, "exponential"))
    ahead = float(surplus(*unit, refused, "exponential"))
    return ahead / (ahead + margin)


def doubling_test(problem: Problem, alpha: float, gamma: float, count: int) -> Test:
    """Return the doubling method's test, with fresh noise in at most `count` answers.

    Raises:
        ValueError: gamma is so large that the accuracy holds with any noise, since a single answer
            is wrong at most half of the time.
    """
    delta = query_sensitivity(problem)
    # The printed scale has a tail of gamma/(2 T), half of the gamma/T that suffices.
    odds = count / gamma if problem.constants == "paper" else count / (2 * gamma)
    hint = f"With {count} doublings at alpha = {alpha:g} no test is needed."
    check(odds > 1, "gamma", gamma, f"below {count / 2:g}", hint)
    return Test(alpha / 2, delta, 2 * delta * math.log(odds) / alpha)


def reduced_levels(
    problem: Problem, alpha: float, gamma: float, count: int, noise: Noise = "laplace"
) -> np.ndarray:
    """Return the grid of epsilons for ReducedAboveThreshold, shape (count,).

    The first level is the smallest at which the test can distinguish an excess risk of 0 from
    alpha. The last level is four times the theory's epsilon, or four times the first level if that
    is larger: with few features, a test needs a larger epsilon than a release.
    """
    _, high = _range(problem, alpha)
    # Shortfalls are inversely proportional to epsilon.
    low = float(_shortfall(problem, 1.0, gamma, count, noise)) / alpha
    return np.geomspace(low, max(high, HIGHEST * low), count)


def reduced_thresholds(
    problem: Problem, alpha: float, gamma: float, epsilons: np.ndarray, noise: Noise = "laplace"
) -> np.ndarray:
    """Return the excess risk below which the test accepts at each level, shape (levels,).

    With probability 1 - gamma no step accepts an excess risk above alpha. A negative threshold
    would accept nothing if the test had no noise.
    """
    return alpha - np.asarray(_shortfall(problem, epsilons, gamma, epsilons.size, noise))


def _shortfall(problem: Problem, epsilon: Any, gamma: float, count: int, noise: Noise) -> Array:
    """Return the margin below alpha that ReducedAboveThreshold's test needs at an epsilon."""
    numbers = epsilon, query_sensitivity(problem), gamma, 1 / count
    if problem.constants == "tight" or noise == "exponential":
        return shortfall(*numbers, noise=noise)
    return whitehouse_shortfall(*numbers)


def _range(problem: Problem, alpha: float) -> tuple[float, float]:
    low, high = 1 / problem.rows, HIGHEST * theory_epsilon(problem, alpha)
    expected = f"such that {HIGHEST:g} times the theory's epsilon, {high:.4g}, is above 1/n"
    check(high > low, "alpha", alpha, f"{expected} = {low:.4g}", "Use a smaller alpha.")
    return low, high
