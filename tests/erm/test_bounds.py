"""Bounds of the logistic utility: they hold, including rounding, and change no outcome."""

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax._base import numerics
from nrjax._base.outcome import Status
from nrjax.erm import LogisticProblem
from nrjax.erm import expansion as expansions
from nrjax.simulation import montecarlo
from tests.erm.risks import WithoutBounds, cast, laplace_trial, logistic_risk
from tests.marks import long_except

pytestmark = [pytest.mark.numerical, pytest.mark.bits]


def one_direction():
    """Return data whose margins are 0, where the bound of the remainder is attained.

    The rows differ slightly, so that none are merged: the programs are those of `long_tail`.
    """
    x = np.eye(6)[np.zeros(310, int)]
    x[:, 1] = 1e-9 * np.arange(310)
    return x, np.where(np.arange(310) % 2, 1.0, -1.0)


def long_tail(rows=300, dimension=6):
    """Return unit rows of falling spread, some of them twice."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, dimension)) * 0.5 ** np.arange(dimension) + 0.2
    x = np.concatenate([x, x[:50]])
    x /= np.linalg.norm(x, axis=1)[:, None]
    return x, np.where(x[:, 1] + 0.3 * rng.normal(size=len(x)) > 0, 1.0, -1.0)


def wide(dimension=60):
    """Return data with more directions than rows and than the third derivative has."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(55, dimension))
    return x / np.linalg.norm(x, axis=1)[:, None], rng.choice([-1.0, 1.0], 55)


def separable():
    """Return data that a hyperplane separates, so that some margins are large, with few equal."""
    x, _ = long_tail(310)
    x = x[:310] * (1 - 1e-9 * np.arange(310)[:, None])
    return x, np.where(x[:, 1] > x[:, 0] - 0.2, 1.0, -1.0)


def one_long_row():
    """Return rows of norm 0.02 and one of norm 1, whose margin is by far the largest."""
    x, y = separable()
    x *= 0.02
    x[17] *= 50
    return x, y


DATA = {
    build.__name__: build for build in (one_direction, long_tail, wide, separable, one_long_row)
}
LAMBDAS = {"separable": 1e-3, "one_long_row": 1e-4}


@functools.cache
def problem_on(name):
    return LogisticProblem.fit(*DATA[name](), LAMBDAS.get(name, 0.05))


@jax.jit
def bounded(utility, hypotheses):
    """Return lower bounds, evaluated utilities and upper bounds."""
    low, high = jax.vmap(lambda theta: utility.bounds(theta))(hypotheses)
    return low, jax.vmap(lambda theta: utility.evaluate(theta))(hypotheses), high


def hypotheses_of(problem, dtype):
    """Return hypotheses near and far, along several directions, some on the sphere."""
    rng = np.random.default_rng(2)
    optimum, basis = problem.optimum, problem.utility.expansion.basis
    directions = np.concatenate([rng.normal(size=(20, optimum.size)), basis.T[:8], -basis.T[:8]])
    more = [optimum + 1e-9, -optimum - 1e-9, np.ones(optimum.size)]
    directions = np.concatenate([directions, more])
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    near = optimum + np.geomspace(1e-4, 12.0, 24)[:, None, None] * directions
    near = near.reshape(-1, optimum.size)
    scale = problem.utility.radius / np.linalg.norm(near, axis=1)
    near[::3] *= np.minimum(scale, 1)[::3, None]
    return np.concatenate([near, [optimum, 0 * optimum]]).astype(dtype)


def reference(name, hypotheses):
    """Return the utility in float64, from the data."""
    x, y = DATA[name]()
    risk = functools.partial(logistic_risk, x=x, y=y, weight=LAMBDAS.get(name, 0.05))
    return -np.array([risk(theta) for theta in hypotheses.astype(float)])


def violations(name, utility, hypotheses, dtype):
    low, found, high = bounded(cast(utility, dtype), hypotheses)
    assert low.dtype == high.dtype == dtype
    exact = reference(name, hypotheses)
    return int(np.sum((low > found) | (found > high) | (low > exact) | (exact > high)))


@pytest.mark.parametrize("name", long_except(DATA, "one_direction", "long_tail"))
def test_bounds_contain_the_evaluated_and_the_exact_utility(name, dtype):
    problem = problem_on(name)
    hypotheses = hypotheses_of(problem, dtype)
    distance = np.linalg.norm(hypotheses - problem.optimum, axis=1)
    for utility in (problem.utility, problem.utility.excess_risk()):
        low, found, high = bounded(cast(utility, dtype), hypotheses)
        assert np.all((low <= found) & (found <= high))
        width = np.asarray(high - low, np.float64)
        assert np.all(width[distance < 0.02] < (3e-5 if dtype == jnp.float32 else 2e-8))
        assert np.all(width < 0.02 * distance**4 + 0.004 * distance**2 + 1e-4)
        # Room for rounding on other devices; losses that are all alike round alike.
        error = np.abs(found - reference(name, hypotheses))[distance < 1].max()
        if utility.baseline == 0:
            room = 4 if name == "one_direction" else 20
            assert width[distance < 0.02].min() > room * error
    assert violations(name, problem.utility, hypotheses, dtype) == 0


def with_expansion(utility, **factors):
    """Return a utility with some of its expansion's numbers multiplied by a factor."""
    changed = {
        name: jax.tree.map(functools.partial(operator.mul, by), getattr(utility.expansion, name))
        for name, by in factors.items()
    }
    return dataclasses.replace(utility, expansion=dataclasses.replace(utility.expansion, **changed))


FAULTS = {"flattest": 2, "longest": 0.5, "curvatures": 0.98, "cubic": 0, "fourth": 0.95}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_of_an_expansion_are_caught(fault, dtype):
    """Constants of the remainder that are too small, and a third derivative of 0."""
    count = 0
    for name in ("one_direction", "long_tail"):
        problem = problem_on(name)
        broken = with_expansion(problem.utility, **{fault: FAULTS[fault]})
        count += violations(name, broken, hypotheses_of(problem, dtype), dtype)
    assert count > 0


@pytest.mark.parametrize("name", long_except(DATA, *(DATA.keys() - {"wide"})))
def test_bounds_for_a_large_margin_and_for_nan(name, dtype):
    """With a `phi''` of 0, by underflow, bounds are finite and include strong convexity."""
    problem = problem_on(name)
    utility = with_expansion(problem.utility, flattest=0.0)
    hypotheses = hypotheses_of(problem, dtype)
    low, found, high = bounded(cast(utility, dtype), hypotheses)
    assert np.all(np.isfinite(low) & (low <= found) & (found <= high))
    distance = np.linalg.norm(hypotheses - problem.optimum, axis=1)
    convex = -problem.optimum_loss - 0.5 * problem.regularisation * distance**2
    assert np.all(high < convex + 5e-4)
    hypotheses[:, -1] = np.nan
    low, _, high = bounded(cast(problem.utility, dtype), hypotheses)
    assert np.all(np.isnan(low) & np.isnan(high))


def test_the_expansion_has_the_derivatives_of_the_risk(monkeypatch):
    """Compare them, in several blocks, with differences of the gradient."""
    monkeypatch.setattr(expansions, "_BLOCK", 4)
    monkeypatch.setattr(numerics, "_BLOCK_SIZE", 2**9)
    problem = LogisticProblem.fit(*DATA["long_tail"](), 0.05)
    expansion = problem.utility.expansion
    kept = len(expansion.cubic[0])
    x, y = DATA["long_tail"]()

    def gradient(along):
        signed = x * y[:, None]
        shares = 1 / (1 + np.exp(signed @ (problem.optimum + expansion.basis @ along)))
        return -(shares @ signed / len(x)) @ expansion.basis

    steps = 1e-3 * np.eye(problem.dimension)
    slopes = np.array([(gradient(a) - gradient(-a)) / 2e-3 for a in steps])
    np.testing.assert_allclose(slopes, np.diag(expansion.curvatures), atol=1e-7)
    third = [[gradient(a + b) - gradient(a - b) for b in steps] for a in steps]
    third = np.array(third) + [[gradient(-a - b) - gradient(b - a) for b in steps] for a in steps]
    third = (third / 4e-6)[:kept, :kept, :kept]
    # Its values in all directions determine a symmetric tensor.
    along = np.random.default_rng(0).normal(size=(1000, kept)) / np.sqrt(kept)
    expected = np.einsum("ijk,ni,nj,nk->n", third, along, along, along)
    with jax.enable_x64(True):
        values = jax.vmap(expansion.third)(along)
    assert np.std(expected) > 1e-3
    np.testing.assert_allclose(values, expected, atol=1e-7)


LOSS = 1.05
"""The target, in units of the optimum's loss."""


def parts(name):
    """Return a utility and the rule of a name."""
    problem = problem_on("long_tail")
    target, sensitivity = -LOSS * problem.optimum_loss, problem.utility_sensitivity
    return problem.utility, {
        "public": nrjax.PublicThreshold(target),
        "above": nrjax.InteractiveAboveThreshold(target, sensitivity, 40.0),
        "reduced": nrjax.ReducedAboveThreshold(target, sensitivity),
    }[name]


BATCHING = nrjax.Batching(tile=8, lanes=32, inner_steps=3)
TRIALS = 150


def simulated(utility, rule, fields=nrjax.Outcome._fields):
    value, sensitivity, _ = problem_on("long_tail").released("laplace")
    trial = laplace_trial(value, sensitivity, utility, rule, (0.3, 60.0, 80))
    program = montecarlo.outcomes(trial, TRIALS, fields, BATCHING)
    return program.run(jax.random.key(0), TRIALS)


def unbounded(utility):
    """Return a utility with infinite bounds, for the same program."""
    return with_expansion(utility, error=np.inf)


def assert_same(outcome, other):
    for field in outcome:
        np.testing.assert_array_equal(outcome[field], other[field], err_msg=field)


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("above", "reduced")]


@pytest.mark.parametrize("name", ["public", *LONG])
def test_bounds_change_no_outcome(name):
    utility, rule = parts(name)
    plain = simulated(unbounded(utility), rule)
    assert np.unique(plain["step"]).size > 10
    assert np.mean(plain["status"] == Status.STOPPED) > 0.9
    assert_same(simulated(utility, rule), plain)
    if name != "public":  # and in a program without bounds
        assert_same(simulated(WithoutBounds(utility), rule), plain)
    # Negative control: bounds of another risk are believed.
    low = simulated(with_expansion(utility, curvatures=0.5), rule)
    assert np.mean(low["step"] != plain["step"]) > 0.1


@pytest.mark.parametrize("name", ["public", LONG[1]])
def test_few_releases_are_evaluated(name):
    """All evaluations are NaN and end their trial, so that the spared ones can be counted."""
    utility, rule = parts(name)
    silent = dataclasses.replace(utility, weights=np.nan * utility.weights)
    found = simulated(silent, rule)
    evaluated = found["status"] == Status.NAN_UTILITY
    assert np.mean(evaluated) < 0.25
    # The release on which a trial ends is always evaluated.
    assert np.all(np.isnan(found["utility"]))
    steps = simulated(utility, rule)["step"]
    np.testing.assert_array_equal(found["step"][~evaluated], steps[~evaluated])
    blind = simulated(unbounded(silent), rule)
    assert np.all(blind["status"] == Status.NAN_UTILITY)


@pytest.mark.long
def test_without_the_utility_nothing_is_evaluated_late():
    utility, rule = parts("public")
    few = ("step", "epsilon", "release", "status")
    found, full = simulated(utility, rule, few), simulated(utility, rule)
    assert set(found) == set(few)
    assert_same(found, {name: full[name] for name in few})


@pytest.mark.long
def test_a_sequence_of_utilities_keeps_its_bounds():
    utility, rule = parts("public")
    steps = [dataclasses.replace(utility, baseline=0.01 * (n % 3)) for n in range(80)]
    found = simulated(nrjax.UtilitySequence.of(steps), rule)
    assert_same(found, simulated(nrjax.UtilitySequence.of(list(map(unbounded, steps))), rule))
    # A program without bounds may round utilities otherwise.
    other = simulated(nrjax.UtilitySequence.of(list(map(WithoutBounds, steps))), rule)
    np.testing.assert_allclose(found.pop("utility"), other.pop("utility"), rtol=1e-6)
    assert_same(found, other)
    silent = [dataclasses.replace(one, weights=np.nan * one.weights) for one in steps]
    found = simulated(nrjax.UtilitySequence.of(silent), rule)
    assert np.mean(found["status"] == Status.NAN_UTILITY) < 0.25


def one_by_one(terms):
    """Return the sum by a tree whose branches are added in order, with each addition rounded."""
    while terms.size > 1:
        branches = np.pad(terms, (0, -terms.size % 8)).reshape(8, -1)
        terms = np.cumsum(branches, axis=0)[-1]
    return terms[0]


@pytest.mark.long
def test_bounds_hold_in_whatever_order_a_million_rows_are_summed(dtype):
    """Equal losses make many additions round the same way."""
    count, size = 500_000, 12
    x = np.stack([np.full(2 * count, 0.6), np.repeat(np.linspace(1e-6, 0.8, count), 2)], axis=1)
    x[::2, 1] *= -1  # so that the optimum, like theta, is along the first axis
    problem = LogisticProblem.fit(x, np.ones(2 * count), 0.05, tolerance=1e-10)
    utility = cast(problem.utility, dtype)
    near = problem.optimum[0] * np.linspace(0.98, 1.02, size)
    theta = np.stack([near, np.zeros(size)], axis=1).astype(dtype)
    low, high = jax.jit(jax.vmap(utility.bounds))(theta)
    evaluate = jax.jit(lambda theta: jax.lax.map(utility.evaluate, theta))
    found = np.asarray(evaluate(theta))
    losses = np.log1p(np.exp(-theta[:, 0] * dtype.type(0.6)))
    weights = np.asarray(utility.weights)
    ridge = dtype.type(0.025) * np.sum(theta * theta, axis=1)
    worst = -np.array([one_by_one(weights * loss) for loss in losses]) - ridge
    assert worst.dtype == dtype
    assert np.all((low <= found) & (found <= high))
    assert np.all((low <= worst) & (worst <= high))
    if dtype == jnp.float32:  # planted fault: a sum without a tree
        chain = -np.array([np.cumsum(weights * loss)[-1] for loss in losses]) - ridge
        assert np.all((chain < low) | (chain > high))
