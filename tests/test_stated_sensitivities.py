"""Stated sensitivities against brute force over neighbours, as a run computes the scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.counts import MeanAbsoluteError, ShareOutside
from nrjax.erm import LogisticProblem, RidgeProblem

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

RNG = np.random.default_rng
LARGE = pytest.param(300_000, marks=pytest.mark.long)


def excess(scores, sensitivity, roundings=2):
    """Return the largest change of scores, over what is stated and what private rules allow.

    `scores` has a row per data set, the first of which is the neighbour of the others.
    """
    scores = np.asarray(scores)
    eps, scores = np.finfo(scores.dtype).eps, scores.astype(np.float64)
    change, size = np.abs(scores[1:] - scores[0]), np.abs(scores).max(axis=0)
    return np.max(change / (sensitivity + roundings * eps * size))


def of_each(utilities, hypotheses):
    """Return the score of each hypothesis under each utility, in the dtype of a run."""
    dtype = jnp.result_type(float)

    def cast(*leaves):
        return jnp.asarray(np.stack([np.asarray(leaf, float) for leaf in leaves]), dtype)

    stacked = jax.tree.map(cast, *utilities)
    over = jax.vmap(lambda utility, hypothesis: utility.evaluate(hypothesis), (None, 0))
    return jax.jit(jax.vmap(over, (0, None)))(stacked, jnp.asarray(hypotheses, dtype))


def moved(counts, rng):
    """Return counts in which one row is in another group."""
    i, j = rng.choice(np.flatnonzero(counts >= 1), 1), rng.integers(counts.size)
    counts = counts.copy()
    counts[i] -= 1
    counts[j] += 1
    return counts


def utilities_of_counts(kind, groups, rng):
    counts = rng.integers(0, 200, groups).astype(float)
    tables = [counts, *(moved(counts, rng) for _ in range(8))]
    if kind is ShareOutside:  # a public tolerance
        return [ShareOutside(table, np.full(groups, 12.0)) for table in tables]
    return list(map(MeanAbsoluteError, tables))


@pytest.mark.parametrize("groups", [10, 5000, LARGE])
@pytest.mark.parametrize("kind", [MeanAbsoluteError, ShareOutside])
def test_utilities_of_counts(kind, groups):
    rng = RNG(groups)
    utilities = utilities_of_counts(kind, groups, rng)
    largest, unpaid = 0.0, 0.0
    for scale in (2.0, 20.0, 200.0):  # the noise at epsilons of 1, 0.1 and 0.01
        releases = utilities[0].counts + rng.laplace(0, scale, (12, groups))
        scores = of_each(utilities, np.maximum(np.round(releases), 0))
        largest = max(largest, excess(scores, utilities[0].sensitivity))
        unpaid = max(unpaid, excess(scores, utilities[0].sensitivity, roundings=0))
    assert 0.4 < largest <= 1
    if kind is MeanAbsoluteError:  # the planted fault: rounding that nothing pays for
        assert unpaid > 1


def replaced(x, value):
    changed = x.copy()
    changed[0] = value
    return changed


def question_pairs(rows, rng):
    """Generate a question of each kind and questions on neighbouring data."""
    for low, high in ((0.0, 5.0), (100.0, 101.0)):
        x = replaced(rng.uniform(low, high, rows), low)
        tables = [x, replaced(x, high), replaced(x, 0.7 * low + 0.3 * high)]
        for function in (nrjax.questions.mean, nrjax.questions.sum):
            yield [function(table, (low, high)) for table in tables]
    flags = replaced(rng.random(rows) < 0.3, False)
    yield [nrjax.questions.count(table) for table in (flags, replaced(flags, True))]
    normal, edges = replaced(rng.normal(size=rows), -1.0), np.linspace(-3, 3, 31)
    tables = normal, replaced(normal, 1.0)
    yield [nrjax.questions.histogram(table, edges) for table in tables]
    groups = replaced(rng.integers(0, 2, rows), 0)
    groups[-2:] = 0, 1
    yield [nrjax.questions.counts(table, 2.0) for table in (groups, replaced(groups, 1))]
    vectors = rng.normal(size=(rows, 30)) / np.sqrt(30)
    vectors[0] = 1 / np.sqrt(30)
    yield [
        nrjax.questions.vector_mean(table, 1.0)
        for table in (vectors, replaced(vectors, -vectors[0]))
    ]


@pytest.mark.parametrize("rows", [10, 3000, LARGE])
def test_questions(rows):
    """Errors are up to three times the whole answer, in both directions."""
    rng, largest = RNG(rows), []
    for first, *others in question_pairs(rows, rng):
        truth, along = np.asarray(first.data[0], float), others[0].data[0] - first.data[0]
        along = np.sign(along) if truth.ndim < 2 else along / np.linalg.norm(along)
        utilities = [
            nrjax.utilities.FunctionUtility(q.score, tuple(map(np.asarray, q.data)))
            for q in (first, *others)
        ]
        found = []
        for share in (1e-3, 0.03, 0.3, 3.0):
            draws = rng.uniform(-1, 1, (100, *truth.shape)) * share * max(first.whole, 1)
            signs = np.sign(rng.uniform(-1, 1, (100, *[1] * truth.ndim)))
            lines = signs * along * share * max(first.whole, 1)
            releases = truth + np.concatenate([draws, lines])
            found.append(excess(of_each(utilities, releases), first.sensitivity))
        assert max(found) <= 1, (first.name, found)
        largest.append(max(found))
    assert np.median(largest) > 0.4


@pytest.mark.parametrize("rows", [12, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [RidgeProblem, LogisticProblem])
def test_regressions(kind, rows):
    """Hypotheses lie in the ball, mostly near its surface and along the rows that differ."""
    rng, dimension = RNG(rows), 3
    x = rng.normal(size=(rows, dimension))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    y = np.where(rng.random(rows) < 0.5, -1.0, 1.0)
    x[0], y[0] = (1.0, 0.0, 0.0), 1.0
    tables = [(x, y), (x, replaced(y, -1.0)), (replaced(x, (-1.0, 0.0, 0.0)), y)]
    problems = [kind.fit(*table, regularisation=0.05) for table in tables]
    utilities = [
        getattr(problem, "released_optimum", problem.released)("laplace").utility
        for problem in problems
    ]
    radius = float(utilities[0].radius)
    theta = rng.normal(size=(100, dimension))
    theta *= radius * rng.uniform(0.5, 1, (100, 1)) / np.linalg.norm(theta, axis=1, keepdims=True)
    ends = radius * np.array([[0.999, 0, 0], [-0.999, 0, 0]])
    scores = of_each(utilities, np.concatenate([theta, ends]))
    assert 0.1 < excess(scores, float(utilities[0].sensitivity)) <= 1
