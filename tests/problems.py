"""Small problems that several test files use."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.erm import LogisticProblem


class Distance(nrjax.Utility):
    """Minus the l1 distance of a release from a target, NaN for a release above `broken`."""

    target: Any
    broken: Any = np.inf

    def hypothesis(self, release):
        return release

    def evaluate(self, hypothesis):
        distance = jnp.sum(jnp.abs(hypothesis - self.target))
        return jnp.where(jnp.any(hypothesis > self.broken), jnp.nan, -distance)


class Ceiled(Distance):
    """A distance with an upper bound that is `slack` too high. A negative slack is a fault."""

    slack: Any = 0.3

    def bounds_from_release(self, release):
        return -jnp.inf, self.evaluate(release) + self.slack


class Planted(nrjax.Guarantee):
    """A faulty guarantee: the epsilon of another one times a factor."""

    other: Any
    factor: Any = 1.0

    @property
    def noise(self):
        return self.other.noise

    @property
    def delta(self):
        return self.other.delta

    def epsilon(self, time):
        return self.factor * self.other.epsilon(time)

    def time(self, epsilon):
        return self.other.time(epsilon / self.factor)


def scalar(times=None, threshold=-0.5, **changes):
    """Return the fields of an interaction: a Brownian mechanism on the number 3."""
    times = np.geomspace(100.0, 0.01, 50) if times is None else times
    parts = {
        "value": 3,
        "process": nrjax.Brownian(()),
        "guarantee": nrjax.LinearBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6),
        "schedule": nrjax.Grid(times),
        "utility": Distance(3.0),
        "rule": nrjax.PublicThreshold(threshold),
    }
    return parts | changes


def interaction(*arguments, **changes):
    """Return an `Interaction` of `scalar`'s arguments and of other fields."""
    return nrjax.Interaction(**scalar(*arguments, **changes))


def doubling(times, **changes):
    """Return the fields of a doubling method on the number 0, with new noise at each time."""
    parts = {
        "value": 0.0,
        "process": nrjax.IndependentLaplace(()),
        "guarantee": nrjax.PureGuarantee(1.0),
        "utility": Distance(0.0),
    }
    return scalar(times, **(parts | changes))


def small_data(rows=300, dimension=5, seed=0):
    """Return rows of unit norm with duplicates, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows // 2, dimension)).round(1)
    x = np.concatenate([x, x])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    y = np.where(x @ np.ones(dimension) + rng.normal(size=rows // 2 * 2) > 0, 1.0, -1.0)
    return x, y


def small_logistic(regularisation=0.05):
    """Return a logistic problem on 300 rows of 5 features."""
    return LogisticProblem.fit(*small_data(), regularisation)


def logistic_parts(tight_at=1.0, target=1.05, factor=1.0):
    """Return the fields of an interaction: logistic regression under Brownian noise."""
    problem = small_logistic()
    sensitivity = factor * problem.l2_sensitivity
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(tight_at, sensitivity, 1e-6)
    return {
        "value": problem.optimum,
        "process": nrjax.Brownian((problem.dimension,)),
        "guarantee": guarantee,
        "schedule": nrjax.Grid.geometric(guarantee, 0.8, 30.0, 60),
        "utility": problem.utility,
        "rule": nrjax.PublicThreshold(-target * problem.optimum_loss),
        "shift": np.full(problem.dimension, 0.01),
    }
