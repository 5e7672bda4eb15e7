"""No exact log-ratio of a private rule exceeds its stated cost, by laws that are exact.

For every step the probabilities of stopping there, and of no stop up to there, are compared between
utilities that differ by at most the sensitivity in each query, in both directions.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from nrjax.stopping import AboveThreshold, ReducedAboveThreshold
from tests.stopping.oracle import law_options, stopping_law, survival

STEPS = 8
SENSITIVITY = 0.5
ERROR = 1e-10  # of a log-ratio, from integrals accurate to 1e-11 (see below)

# Float32 holds these numbers exactly.
CONSTANT = np.full(STEPS, 0.5)
RISING = np.array([0.25, 0.25, 0.375, 0.375, 0.5, 0.5, 0.625, 0.75])
LATE = np.array([0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])


ONE_SIDED = {"noise": "exponential"}


def classical(**options):
    return AboveThreshold(0.0, SENSITIVITY, 0.5, **options), CONSTANT


def reduced(epsilons, **options):
    return ReducedAboveThreshold(0.0, SENSITIVITY, **options), epsilons


CASES = {
    "classical": classical(),
    "reduced": reduced(RISING),
    "reduced, late": reduced(LATE),
    "other share": classical(share=0.3),
    "monotone": classical(monotone=True),
    "one-sided": classical(**ONE_SIDED),
    "one-sided, late": reduced(LATE, **ONE_SIDED),
    "one-sided, other share": reduced(RISING, share=0.4, **ONE_SIDED),
    "one-sided, monotone": classical(monotone=True, share=0.4, **ONE_SIDED),
}
AT_LEAST = {"reduced": 0.7, "monotone": 0.85}  # fraction of the cost attained; else nearly all
FAULTS = {  # factors of the scales of threshold and query noise, and options
    "fresh": (1, 1, {"fresh": True}),
    "half": (0.5, 1, {}),
    "narrow": (1, 0.5, {}),
}


def moves(rng):
    """Return changes of the queries, in units of the sensitivity: (moves, STEPS)."""
    step = np.arange(STEPS)
    named = [
        np.ones(STEPS),
        np.where(step % 2, 1.0, -1.0),
        np.where(step // 2 % 2, 1.0, -1.0),
        # The worst changes for n = 1, 2, ..., since P(stop at n) falls in every earlier utility
        # and rises in the last. The other changes confirm this.
        *(np.where(step < n, 1.0, -1.0) for n in range(STEPS)),
    ]
    signs = rng.choice([-1.0, 1.0], (6, STEPS))
    partial = rng.integers(-2, 3, (3, STEPS)) / 2
    return np.concatenate([named, signs, partial])


def bases(rng):
    """Return ordinary query values: (bases, STEPS)."""
    spread = rng.normal(0.0, [[1.0], [4.0], [10.0]], (3, STEPS))
    shaped = [np.zeros((1, STEPS)), np.linspace([-5.0], [5.0], STEPS).T]
    return to_lattice(np.concatenate([*shaped, spread]))


def to_lattice(values):
    """Round so that queries and their changes share few distinct values, and few panels."""
    return np.round(4 * values) / 4


def losses(case, utilities, changes, **fault):
    """Return log-ratios (bases, changes, STEPS) of a stop at a step, and of no stop up to it."""
    rule, epsilons = CASES[case]
    changes = np.concatenate([np.abs(changes), -np.abs(changes)]) if rule.monotone else changes
    moved = utilities[:, None] + SENSITIVITY * changes
    together = np.concatenate([utilities[:, None], moved], axis=1)
    laws = stopping_law(together, epsilons, SENSITIVITY, **(law_options(rule) | fault))
    return [np.log(law[:, 1:]) - np.log(law[:, :1]) for law in laws]


def excess(case, utilities, changes, **fault):
    """Return the largest log-ratios in units of the cost, of a stop and of no stop."""
    rule, epsilons = CASES[case]
    found = losses(case, utilities, changes, **fault)
    costs = [np.asarray(rule.cost(epsilons, stopped), float) for stopped in (True, False)]
    slack = ERROR / costs[0].min()
    return [np.max(np.abs(f) / cost) - slack for f, cost in zip(found, costs, strict=True)]


@cache
def search(case, rounds=4):
    """Search query values that are close to the bound at the last step, under the worst move."""
    rng, worst = np.random.default_rng(0), np.append(np.ones(STEPS - 1), -1.0)[None]
    best = np.append(np.full(STEPS - 1, 4.0), -4.0)
    for _ in range(rounds):
        tried = best + rng.normal(0.0, 4.0, (12, STEPS)) * (rng.random((12, STEPS)) < 0.5)
        tried = to_lattice(np.concatenate([best[None], 1.3 * best[None], tried]))
        best = tried[np.argmax(np.abs(losses(case, tried, worst)[0][:, 0, -1]))]
    return best[None]


@pytest.mark.parametrize("case", CASES)
def test_no_log_ratio_exceeds_the_cost_and_it_is_hardly_too_high(case):
    rng = np.random.default_rng(1)
    found = [excess(case, base, moves(rng)) for base in (bases(rng), search(case))]
    assert np.all(np.array(found) <= 1)
    stop, none = np.max(found, axis=0)
    assert stop > AT_LEAST.get(case, 0.99)
    assert none > 0.95


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("case", ["classical", "reduced, late", "one-sided", "one-sided, late"])
def test_planted_faults_exceed_the_cost(case, fault):
    *scaled, options = FAULTS[fault]
    factors = np.multiply(law_options(CASES[case][0])["factors"], scaled)
    changes = moves(np.random.default_rng(1))
    stop, none = excess(case, search(case), changes, factors=factors, **options)
    assert stop > 1.2
    assert none > 1.2 or fault == "narrow"  # only threshold noise pays for negative answers


def test_exponential_noise_must_not_be_taken_away_from_queries():
    neighbours = np.array([[3.0, 1.0], [4.0, 0.0]])
    for noise, private in (("exponential", True), ("taken away", False)):
        here, there = stopping_law(neighbours, 1.0, noise=noise)[0][:, -1]
        assert (here < np.exp(1 + 1e-9) * there) == private


@pytest.mark.parametrize(
    ("name", "value"), [("noise", "normal"), ("share", 0.0), ("share", 1.0), ("monotone", 1)]
)
def test_bad_options_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        classical(**{name: value})


both_noises = pytest.mark.parametrize("noise", ["laplace", "exponential"])


def density(x, scale, noise):
    if noise == "exponential":
        return np.exp(-x / scale) / scale if x > 0 else 0.0
    return np.exp(-abs(x) / scale) / (2 * scale)


def integral(function, *marks):
    pieces = pairwise([-120.0, *np.unique([0.0, *marks]), 120.0])
    return sum(quad(function, low, high, epsrel=1e-10, epsabs=0)[0] for low, high in pieces)


@both_noises
def test_the_classical_law_by_another_quadrature(noise):
    gaps, epsilon, sensitivity = np.array([1.0, -2.0, 0.5, 3.0]), 0.8, 1.5
    thresholds = np.array([0.0, 1.0, -1.0, 2.0])
    stop, none = stopping_law(gaps + thresholds, epsilon, sensitivity, thresholds, noise=noise)
    scale = 2 * sensitivity / epsilon

    def yes(z, n):
        return survival((z - gaps[n]) / (2 * scale), noise)

    def noes(z, count):
        return density(z, scale, noise) * np.prod([1 - yes(z, n) for n in range(count)])

    for n in range(4):
        yes_at_n = integral(lambda z, n=n: noes(z, n) * yes(z, n), *gaps)
        noes_alone = integral(lambda z, n=n: noes(z, n + 1), *gaps)
        np.testing.assert_allclose([stop[n], none[n]], [yes_at_n, noes_alone], rtol=1e-9)


@both_noises
def test_the_reduced_law_of_two_queries_by_the_reverse_kernel(noise):
    """Integrate from the first noise to the second (the oracle goes the other way)."""
    gaps, epsilons = np.array([1.0, -0.7]), np.array([0.5, 0.8])
    t, s = 2 / epsilons
    ratio, near, far = s / t, 1 / s - 1 / t, 1 / s + 1 / t

    def answer_yes(w):
        return survival((w - gaps[1]) / (2 * s), noise)

    def after(z):
        """Return P(positive second answer | first noise z) by the kernel of the process."""
        a, sign = abs(z), np.sign(z)
        if noise == "exponential":
            inside = integral(lambda w: near * np.exp(-near * w) * answer_yes(w) * (0 < w < a), a)
            return np.exp(-near * a) * answer_yes(a) + inside
        stay = ratio * np.exp(-near * a) * answer_yes(z)

        def moving(w):  # in the direction of z
            if w < 0:
                weight = (1 - ratio) / 2 * far * np.exp(far * w)
            elif w < a:
                weight = (1 + ratio) / 2 * near * np.exp(-near * w)
            else:
                weight = (1 - ratio) / 2 * np.exp(-near * a) * far * np.exp(-far * (w - a))
            return weight * answer_yes(sign * w)

        return stay + integral(moving, a, sign * gaps[1])

    def no_then_yes(z):
        first = density(z, t, noise)
        return first and first * (1 - survival((z - gaps[0]) / (2 * t), noise)) * after(z)

    stop, none = stopping_law(gaps, epsilons, noise=noise)
    np.testing.assert_allclose(stop[1], integral(no_then_yes, *gaps), rtol=1e-7)
    np.testing.assert_allclose(none[0] - none[1], stop[1], rtol=1e-12)


@pytest.mark.long
@both_noises
@pytest.mark.parametrize("epsilons", [0.6, np.geomspace(0.2, 2.0, 8)])
def test_finer_panels_and_longer_tails_change_nothing(epsilons, noise):
    utilities = np.random.default_rng(0).normal(0, 8.0, (3, 8))
    coarse, fine = (stopping_law(utilities, epsilons, noise=noise, fine=f) for f in (1, 2))
    for one, other in zip(coarse, fine, strict=True):
        assert one.min() > 0
        np.testing.assert_allclose(one, other, rtol=1e-11)
    total = coarse[0].sum(axis=1) + coarse[1][:, -1]
    np.testing.assert_allclose(total, 1, rtol=1e-12)
