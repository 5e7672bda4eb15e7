"""Slow, exact distributions of private selections of finite base mechanisms, in NumPy."""

import math
from typing import NamedTuple

import numpy as np

RUNS = 120  # numbers of runs are summed up to here, which leaves out less than 1e-60


class Stage(NamedTuple):
    """A stage: mean number of runs, caps of successes and of others, and the bases of neighbours.

    Outcome i has probability `p[i]` or `other[i]`, loss at most `costs[i]`, and score i. The first
    `failures` outcomes are no successes.
    """

    mean: float
    cap: float
    others: float
    p: np.ndarray
    other: np.ndarray
    failures: int

    @property
    def costs(self):
        """The smallest ex-post epsilon of each outcome."""
        return np.abs(np.log(self.p / self.other))


def poisson(mean):
    """Return P(K = k) for k = 0, ..., RUNS."""
    return [math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(RUNS + 1)]


def chosen(p, failures, weights, best):
    """Return P(nothing), and P(success i is published) by summing over the numbers of runs."""
    runs, weights = np.arange(len(weights))[:, None], np.asarray(weights)
    if best:  # the largest score of k runs is at most that of outcome i
        each = np.diff(np.cumsum(p)[failures - 1 :] ** runs)
    else:  # the first success of k runs, if there is one, is a success of one run
        fail = p[:failures].sum()
        each = (1 - fail**runs) * p[failures:] / (1 - fail)
    return weights @ p[:failures].sum() ** runs[:, 0], weights @ each


def losses(stages, best):
    """Return the realised loss of giving up after each stage, and of each outcome of the last."""
    given_up = 0.0
    for stage in stages:
        nothing, results = zip(
            *(chosen(p, stage.failures, poisson(stage.mean), best) for p in (stage.p, stage.other)),
            strict=True,
        )
        success = given_up + np.log(results[0] / results[1])
        given_up += math.log(nothing[0] / nothing[1])
    return given_up, success


def worst(mean, cap, others, best, rare=1e-7):
    """Return a stage whose rare outcome, published, and whose failure cost all that is stated.

    The rare outcome is the likelier one under the first of the neighbours, the other success, which
    has the larger score with `best`, under the second.
    """
    likelier = -math.expm1(-others) / -math.expm1(-(cap + others))
    rest, rare = likelier * math.exp(-cap), rare * np.array([math.exp(cap), 1.0])
    order = [0, 2, 1] if best else [0, 1, 2]
    p = np.array([1 - rest - rare[0], rest, rare[0]])[order]
    return Stage(
        mean, cap, others, p, np.array([1 - likelier - rare[1], likelier, rare[1]])[order], 1
    )


def random_stage(rng, outcomes):
    """Return a random stage, whose losses reach the caps or stay below them."""
    p, tilt = rng.dirichlet(np.ones(outcomes)), rng.choice([0.1, 1.0, 4.0])
    other = p * np.exp(tilt * rng.uniform(-1, 1, outcomes))
    other /= other.sum()
    failures, loss = int(rng.integers(1, outcomes)), np.abs(np.log(p / other))
    caps = (max(loss[part].max(), 1e-6) for part in (slice(failures, None), slice(failures)))
    return Stage(rng.choice([0.1, 1.0, 6.0]), *caps, p, other, failures)
