"""The NumPy peer of the Ligett 2017 benchmark has the law of nrjax."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from benchmarks import numpy_ligett
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.released import Mechanism
from nrjax.types import Status
from tests.papers.shared import apart
from tests.problems import small_data

TASKS = ("logistic", "ridge")
CASES = [
    ("logistic", "noise_reduction"),
    pytest.param("logistic", "doubling", marks=pytest.mark.long),
    # Dear to compile, and its parts are in the others: how it judges is a test of its own.
    pytest.param("ridge", "noise_reduction", marks=pytest.mark.long),
    pytest.param("ridge", "doubling", marks=pytest.mark.long),
]
TRIALS = {"noise_reduction": 2000, "doubling": 12_000}
LAMBDA = 0.05
THRESHOLD = -0.05
"""On minus the excess risk."""
NOISE = 0.08
"""Scale of the noise of one test's answer, in units of the risk."""


@functools.cache
def parts(task):
    """Private value, its l1-sensitivity, nrjax's utility, NumPy's judge, largest epsilon."""
    x, y = small_data(300, 4)
    x = x / np.abs(x).sum(axis=1).max()
    if task == "logistic":
        problem = LogisticProblem.fit(x, y, LAMBDA)
        rows, weights = x * y[:, None], np.full(len(x), 1 / len(x))
        radius = math.sqrt(2 * math.log(2) / LAMBDA)
        judge = numpy_ligett.Logistic(rows, weights, LAMBDA, radius, problem.optimum, tile=128)
        utility = problem.utility.excess_risk()
        return problem.value, problem.l1_sensitivity, utility, judge, 3.0
    problem = RidgeProblem.fit(x, y, LAMBDA, row_norm="l1")
    value, l1, utility = problem.released("laplace", "l1_rows")
    hessian = x.T @ x / len(x) + LAMBDA * np.eye(4)
    radius = 1 / math.sqrt(LAMBDA)
    judge = numpy_ligett.Ridge(hessian, problem.optimum, 0.0, len(x), LAMBDA, radius, "matrix")
    return value, l1, utility.excess_risk(), judge, 3.5


@functools.cache
def settings(task, method):
    """Levels of epsilon, and Delta and epsilon of a test whose answers have the noise above."""
    utility, highest = parts(task)[2], parts(task)[-1]
    if method == "doubling":
        return highest * 2.0 ** np.arange(-5, 3), utility.sensitivity, utility.sensitivity / NOISE
    levels = np.geomspace(highest / 50, highest, 30)
    return levels, utility.sensitivity, 4 * utility.sensitivity / NOISE


@functools.cache
def nrjax_trials(task, method):
    """Samples by name."""
    value, l1, utility, _, _ = parts(task)
    levels, sensitivity, epsilon = settings(task, method)
    guarantee = nrjax.PureGuarantee(l1)
    if method == "doubling":
        process = nrjax.IndependentLaplace(value.shape)
        rule = nrjax.LaplaceTests(THRESHOLD, sensitivity, epsilon)
    else:
        process = nrjax.Laplace(value.shape)
        rule = nrjax.InteractiveAboveThreshold(THRESHOLD, sensitivity, epsilon)
    schedule = nrjax.Grid.geometric(guarantee, levels[0], levels[-1], levels.size)
    interaction = Mechanism(value, process, guarantee).interaction(schedule, utility, rule)
    outcome = nrjax.simulate(jax.random.key(1), interaction, trials=TRIALS[method])
    stopped, norm = outcome.status == Status.STOPPED, np.linalg.norm(outcome.hypothesis, axis=1)
    costs = outcome.epsilon, outcome.test_epsilon
    return samples(outcome.step, stopped, *costs, -outcome.utility, norm)


def numpy_trials(task, method, louder=1.0):
    """Samples by name; the noise of tests may be louder than what they are said to cost."""
    value, l1, _, judge, _ = parts(task)
    levels, sensitivity, epsilon = settings(task, method)
    asked = value, levels, l1, judge, THRESHOLD, louder * sensitivity, epsilon
    run, rng = getattr(numpy_ligett, method), np.random.default_rng(0)
    trials = [run(rng, *asked) for _ in range(TRIALS[method])]
    step, epsilon, test, excess, norm = np.array(trials).T
    return samples(step, np.isfinite(epsilon), epsilon, test, excess, norm)


def samples(step, stopped, epsilon, test_epsilon, excess_risk, norm):
    """What is compared: steps of all, the rest over the trials that stopped."""
    return {
        "stopped": np.asarray(stopped, float),
        "step": np.asarray(step, float),
        "epsilon": epsilon[stopped],
        "test_epsilon": test_epsilon[stopped],
        "excess_risk": excess_risk[stopped],
        "norm": norm[stopped],
    }


def fresh_walk(rng, value, levels, sensitivity):
    """Noise at each level that does not follow from the last one's: right at every level."""
    for level in levels:
        yield value + rng.laplace(scale=sensitivity / level, size=value.size)


def hasty_walk(rng, value, levels, sensitivity):
    """Numbers stay with probability `eps_t/eps_{t+1}`, not its square."""
    release = value + rng.laplace(scale=sensitivity / levels[-1], size=value.size)
    releases = [release]
    for level, above in zip(levels[-2::-1], levels[:0:-1], strict=True):
        moved = rng.random(value.size) >= level / above
        release = release + moved * rng.laplace(scale=sensitivity / level, size=value.size)
        releases.append(release)
    yield from releases[::-1]


@pytest.mark.parametrize(("task", "method"), CASES)
def test_law_is_that_of_nrjax(task, method):
    ours, theirs = nrjax_trials(task, method), numpy_trials(task, method)
    assert ours["stopped"].mean() > 0.9
    assert ours["step"].std() > 0.5
    assert apart(ours, theirs) == {}


@pytest.mark.parametrize(("task", "method"), CASES)
def test_louder_tests_are_noticed(task, method):
    ours, theirs = nrjax_trials(task, method), numpy_trials(task, method, louder=1.5)
    assert "excess_risk" in apart(ours, theirs)


@pytest.mark.parametrize("faulty", [fresh_walk, hasty_walk])
def test_another_walk_is_noticed(faulty, monkeypatch):
    monkeypatch.setattr(numpy_ligett, "walk", faulty)
    ours, theirs = (
        trials("logistic", "noise_reduction") for trials in (nrjax_trials, numpy_trials)
    )
    assert {"step", "epsilon"} <= set(apart(ours, theirs))


@pytest.mark.parametrize("task", TASKS)
def test_releases_are_judged_alike(task):
    """At the last level, which is about where trials stop, and at the first and noisiest."""
    value, l1, utility, judge, _ = parts(task)
    levels = settings(task, "noise_reduction")[0]
    rng, dtype = np.random.default_rng(5), jnp.result_type(float)
    noise = rng.laplace(size=(2, 1000, value.size)) * (l1 / levels[[-1, 0]])[:, None, None]
    release = np.concatenate(value + noise).astype(dtype)
    hypothesis, ours = _judged(utility, release)
    excess, norms = judge(release.astype(float))
    # NumPy's search ends 1e-9 off the sphere.
    digits = 1e-7 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(norms, np.linalg.norm(hypothesis, axis=1), rtol=digits)
    np.testing.assert_allclose(excess, -ours, rtol=digits, atol=digits / 1000)
    # Hypotheses inside the ball and on its sphere were among them.
    assert norms.min() < 0.8 * judge.radius
    assert norms.max() == pytest.approx(judge.radius)


@jax.jit
def _judged(utility, releases):
    hypotheses = jax.vmap(utility.hypothesis)(releases)
    return hypotheses, jax.vmap(utility.evaluate)(hypotheses)
