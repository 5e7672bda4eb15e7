"""The trials of `ligett2017` in plain NumPy, one at a time.

They are the baseline of `benchmarks.ligett2017`. As in the authors' program, Algorithm 1 draws the
noise of all levels at once, from the smallest up. Hypotheses are then made and judged, the noisiest
first, until the test accepts. For speed only the coordinates that move are touched, the ridge risk
is the quadratic form around its optimum, and the logistic risk is computed for `block` hypotheses
at a time. It shares no code with nrjax.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks import numpy_whitehouse


class Trial(NamedTuple):
    """The result of a trial.

    Attributes:
        step: last level tried, from 0.
        epsilon: total ex-post epsilon; infinite if no test accepted, in which case the exact
            minimiser is released.
        test_epsilon: cost of the tests, always finite.
        excess_risk: excess risk of the released hypothesis.
        norm: l2 norm of the released hypothesis.
    """

    step: int
    epsilon: float
    test_epsilon: float
    excess_risk: float
    norm: float


def walk(rng, value, levels, sensitivity) -> Iterator[np.ndarray]:
    """Yield releases at rising epsilons by Algorithm 1, in one array that is changed in place.

    From a level to the one below, a coordinate stays with probability `(eps_t/eps_{t+1})^2`, else
    `Lap(sensitivity/eps_t)` is added. All of these are drawn first, and then subtracted again.
    """
    size, last = value.size, len(levels) - 1
    scales = sensitivity / levels
    moves = 1 - (levels[:-1] / levels[1:]) ** 2
    # The few coordinates that move, level by level.
    moved = np.flatnonzero(rng.random((last, size), np.float32) < moves[:, None])
    step, place = np.divmod(moved, size)
    jumps = rng.laplace(size=moved.size) * scales[step]
    release = value + rng.laplace(scale=scales[-1], size=size)
    release += np.bincount(place, jumps, size)
    ends = np.searchsorted(step, np.arange(last), side="right").tolist()
    yield release
    start = 0
    for end in ends:
        release[place[start:end]] -= jumps[start:end]
        start = end
        yield release


def noise_reduction(
    rng, value, levels, sensitivity, judge, threshold, test_sensitivity, test_epsilon, block=1
) -> Trial:
    """Run noise reduction with InteractiveAboveThreshold (Algorithms 2, 3 and 5).

    Args:
        rng: NumPy generator.
        value: private value, shape (size,), float64.
        levels: rising epsilons, shape (steps,).
        sensitivity: l1-sensitivity of the value.
        judge: `Logistic` or `Ridge`, which returns excess risks and norms, shape (k,) each, for
            releases of shape (k, size). Its `optimum` is the exact minimiser.
        threshold: threshold for minus the excess risk.
        test_sensitivity: Delta, the sensitivity of the excess risk.
        test_epsilon: total cost of the test.
        block: number of hypotheses judged at a time.
    """
    steps, scale = len(levels), 2 * test_sensitivity / test_epsilon
    bar = threshold + rng.laplace(scale=scale)
    releases = walk(rng, value, levels, sensitivity)
    buffer = np.empty((block, value.size))
    for first in range(0, steps, block):
        count = min(block, steps - first)
        for row in buffer[:count]:
            row[:] = next(releases)
        excess, norms = judge(buffer[:count])
        yes = np.flatnonzero(-excess + rng.laplace(scale=2 * scale, size=count) >= bar)
        if yes.size:
            at = int(yes[0])
            epsilon = float(levels[first + at]) + test_epsilon
            return Trial(first + at, epsilon, test_epsilon, float(excess[at]), float(norms[at]))
    return Trial(steps - 1, math.inf, test_epsilon, 0.0, _norm(judge))


def doubling(
    rng, value, levels, sensitivity, judge, threshold, test_sensitivity, test_epsilon
) -> Trial:
    """Run Algorithm 4: fresh noise and a fresh test at each level, with the sum of all costs.

    Takes the arguments of `noise_reduction`, but `test_epsilon` is the cost of one test.
    """
    spent = 0.0
    for step, level in enumerate(levels.tolist()):
        spent += level
        release = value + rng.laplace(scale=sensitivity / level, size=value.size)
        excess, norm = _judge_one(judge, release)
        if -excess + rng.laplace(scale=test_sensitivity / test_epsilon) >= threshold:
            tests = (step + 1) * test_epsilon
            return Trial(step, spent + tests, tests, excess, norm)
    return Trial(len(levels) - 1, math.inf, len(levels) * test_epsilon, 0.0, _norm(judge))


def theory(rng, value, epsilon, sensitivity, judge) -> Trial:
    """Return one release at the epsilon of the utility theorem, without a test."""
    release = value + rng.laplace(scale=sensitivity / epsilon, size=value.size)
    return Trial(0, float(epsilon), 0.0, *_judge_one(judge, release))


def _judge_one(judge, release):
    excess, norms = judge(release[None])
    return float(excess[0]), float(norms[0])


def _norm(judge):
    return math.sqrt(judge.optimum @ judge.optimum)


@dataclasses.dataclass(frozen=True)
class Logistic:
    """A judge of noisy optima, projected onto a ball. Rows are features times labels."""

    rows: np.ndarray
    weights: np.ndarray
    regularisation: float
    radius: float
    optimum: np.ndarray
    tile: int = 1024  # rows at a time, so that intermediate arrays stay in the cache
    optimum_loss: float = dataclasses.field(init=False)

    def __post_init__(self):
        optimum = self.optimum[None].astype(self.rows.dtype)
        object.__setattr__(self, "optimum_loss", float(self._risks(optimum)[0]))

    def __call__(self, releases):
        """Return excess risks and norms."""
        norms = np.sqrt(np.einsum("ij,ij->i", releases, releases))
        shrink = np.minimum(1, self.radius / norms)
        thetas = (releases * shrink[:, None]).astype(self.rows.dtype)
        return self._risks(thetas) - self.optimum_loss, norms * shrink

    def _risks(self, thetas):
        """Return regularised risks. The radius bounds the margins: `exp` does not overflow."""
        total = np.zeros(len(thetas))
        tile = len(self.rows) if len(thetas) == 1 else self.tile
        for first in range(0, len(self.rows), tile):
            part = slice(first, first + tile)
            margins = self.rows[part] @ thetas.T
            np.negative(margins, out=margins)
            np.exp(margins, out=margins)
            total += self.weights[part] @ np.log1p(margins, out=margins)
        return total + 0.5 * self.regularisation * np.einsum("ij,ij->i", thetas, thetas)


@dataclasses.dataclass(frozen=True)
class Ridge(numpy_whitehouse.Ridge):
    """A judge of statistics with noise on every entry, whose hypothesis is their minimiser."""

    def __call__(self, releases):
        """Return excess risks and norms."""
        d = self.optimum.size
        thetas = np.empty((len(releases), d))
        for theta, release in zip(thetas, releases, strict=True):
            matrix = release[: d * d].reshape(d, d)
            matrix = (matrix + matrix.T) * (0.5 / self.rows)
            theta[:] = self._minimise(matrix, release[-d:] / self.rows)
        away = thetas - self.optimum
        excess = 0.5 * np.einsum("ij,ij->i", away @ self.hessian, away)
        return excess, np.sqrt(np.einsum("ij,ij->i", thetas, thetas))
