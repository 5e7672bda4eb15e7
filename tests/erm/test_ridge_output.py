"""Ridge regression by output perturbation, and rows of l1 norm at most 1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.erm import RidgeOutputUtility, RidgeProblem, sensitivity, statistics

LAMBDA = 0.05


def regression(rows=300, dimension=4, norm=2):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(rows, dimension))
    x /= np.linalg.norm(x, norm, axis=1, keepdims=True)
    y = 0.5 * x @ np.linspace(-1, 1, dimension) + 0.2 * rng.uniform(-1, 1, size=rows)
    return x, y


def plain_loss(theta, x, y):
    return 0.5 * np.mean((y - x @ theta) ** 2) + 0.5 * LAMBDA * theta @ theta


def test_what_is_released_is_the_optimum():
    x, y = regression()
    problem = RidgeProblem.fit(x, y, LAMBDA)
    value, moved, utility = problem.released_optimum("gaussian", "tight")
    assert value is problem.optimum
    assert isinstance(moved, float)
    assert isinstance(utility, RidgeOutputUtility)
    assert utility.sensitivity == problem.utility_sensitivity
    reach = 1 / np.sqrt(LAMBDA) + 1
    expected = {"paper": reach / np.sqrt(300 * LAMBDA), "tight": 2 * reach / (300 * LAMBDA)}
    for constants, l2 in expected.items():
        for noise, factor in (("gaussian", 1), ("laplace", 2)):
            stated = problem.released_optimum(noise, constants).sensitivity
            assert factor * l2 < stated < factor * l2 * (1 + 1e-9)  # the solver's tolerance
    # Where n lambda is below 4 Lemma A.8 is the smaller.
    few = RidgeProblem.fit(x[:40], y[:40], LAMBDA)
    paper, tight = (few.released_optimum("laplace", name).sensitivity for name in expected)
    assert paper == tight


def test_a_release_is_projected_and_judged_by_the_definition(dtype):
    x, y = regression()
    problem = RidgeProblem.fit(x, y, LAMBDA)
    utility = problem.released_optimum("laplace").utility
    rng = np.random.default_rng(1)
    evaluate = jax.jit(lambda utility, release: utility.evaluate(utility.hypothesis(release)))
    for scale in (0.0, 0.1, 1.0, 1e4):
        release = scale * rng.normal(size=4)
        norm = np.linalg.norm(release)
        theta = release * min(1, problem.radius / max(norm, 1e-300))
        found = evaluate(utility, jnp.asarray(release, dtype))
        assert found.dtype == dtype
        rtol = 2e-6 if dtype == jnp.float32 else 1e-12
        np.testing.assert_allclose(-found, plain_loss(theta, x, y), rtol=rtol)
        if norm <= problem.radius:
            hypothesis = utility.hypothesis(jnp.asarray(release, dtype))
            np.testing.assert_array_equal(hypothesis, release.astype(dtype))


@pytest.mark.parametrize(("rows", "weight"), [(40, 0.05), (400, 0.05), (2000, 0.005)])
def test_no_neighbour_moves_the_optimum_further_and_one_moves_it_far(rows, weight):
    """All rows agree but one, which is on the wrong side, slanted to the left and to the right."""
    largest = 0.0
    for length in np.linspace(0.05, 1, 20):
        for angle in np.linspace(0, np.pi, 13):
            found = []
            for side in (1, -1):
                x, y = np.tile([length, 0.0], (rows, 1)), np.ones(rows)
                x[0], y[0] = [np.cos(angle), side * np.sin(angle)], -1
                gram = x.T @ x / rows + weight * np.eye(2)
                found.append(np.linalg.solve(gram, x.T @ y / rows))
            largest = max(largest, float(np.linalg.norm(found[0] - found[1])))
    stated = sensitivity.ridge_output_l2(rows, weight, "tight")
    assert stated <= sensitivity.ridge_output_l2(rows, weight, "paper")
    assert sensitivity.ridge_output_l1(rows, weight, 9, "tight") == pytest.approx(3 * stated)
    assert 0.25 * stated < largest <= stated


def test_trials_run_end_to_end():
    x, y = regression()
    problem = RidgeProblem.fit(x, y, LAMBDA)
    value, moved, utility = problem.released_optimum("laplace", "tight")
    utility = utility.excess_risk()
    guarantee = nrjax.PureGuarantee(moved)
    outcome = nrjax.simulate(
        jax.random.key(0),
        nrjax.Interaction(
            value=value,
            process=nrjax.Laplace(value.shape),
            guarantee=guarantee,
            schedule=nrjax.Grid.geometric(guarantee, 0.5, 500.0, 100),
            utility=utility,
            rule=nrjax.PublicThreshold(-0.01),
        ),
        trials=32,
        batching=nrjax.Batching(tile=32, lanes=32),
    )
    assert np.all(outcome.status == nrjax.Status.STOPPED)
    assert np.mean(outcome.step) > 5
    for theta, found in zip(outcome.hypothesis, outcome.utility, strict=True):
        above = plain_loss(np.asarray(theta, np.float64), x, y) - problem.optimum_loss
        assert -found == pytest.approx(above, rel=1e-4, abs=1e-7)
        assert above <= 0.01 * (1 + 1e-5)


def worst_pair(order, dimension, row_norm, tries=600, steps=80):
    """Largest change that two rows were found to make, by a climb from random pairs of rows.

    In the norm of this order over all entries, which is also that of the isometric layout.
    """
    rng = np.random.default_rng(3)

    def admissible(rows):
        return rows / np.maximum(np.linalg.norm(rows, row_norm, axis=-1, keepdims=True), 1)

    def moved(rows):
        grams = np.einsum("spi,spj->spij", rows, rows)
        vectors = labels[:, None, None] * rows
        matrices = (grams[0] - grams[1]).reshape(tries, -1)
        every = np.concatenate([matrices, vectors[0] - vectors[1]], axis=1)
        return np.linalg.norm(every, order, axis=1)

    labels = np.array([1.0, -1.0])
    # Some rows are almost along one axis.
    start = rng.normal(size=(2, tries, dimension)) ** rng.choice([1, 3, 9], size=(2, tries, 1))
    rows = admissible(100 * start)
    best = moved(rows)
    for step in range(steps):
        other = admissible(rows + 0.5 * 0.9**step * rng.normal(size=rows.shape))
        got = moved(other)
        rows = np.where((got > best)[:, None], other, rows)
        best = np.maximum(best, got)
    return best.max()


@pytest.mark.parametrize("dimension", [2, 5])
def test_rows_of_unit_l1_norm_move_the_statistics_as_far_as_stated(dimension):
    problem = RidgeProblem.fit(*regression(dimension=dimension, norm=1), LAMBDA, "l1")
    for noise, order, stated in (("gaussian", 2, 2), ("laplace", 1, 4)):
        value, moved, utility = problem.released(noise, "l1_rows")
        assert moved == stated
        assert utility.layout == {"gaussian": "isometric", "laplace": "matrix"}[noise]
        assert value.size == statistics.pack(*problem.statistics, utility.layout).size
        found = worst_pair(order, dimension, 1)
        assert 0.99 * stated < found <= stated * (1 + 1e-12)
        # Rows of unit l2 norm move them further: the search would see it.
        assert worst_pair(order, dimension, 2) > 1.03 * stated
    # Reached by rows along two axes; the rest of the data does not matter.
    matrix = np.diag([1.0, -1.0])
    moved = statistics.pack(matrix, np.array([1.0, 1.0]), "isometric")
    assert np.linalg.norm(moved) == pytest.approx(2)


def test_rows_are_checked_in_the_norm_that_was_asked_for():
    x, y = regression()  # of unit l2 norm
    with pytest.raises(ValueError, match=r"features\[\d+\] has l1 norm 1.9\d*: must be at most 1"):
        RidgeProblem.fit(x, y, LAMBDA, row_norm="l1")
    with pytest.raises(ValueError, match="row_norm = 'l0': must be 'l2' or 'l1'"):
        RidgeProblem.fit(x, y, LAMBDA, row_norm="l0")
    problem = RidgeProblem.fit(x, y, LAMBDA)
    for call in (
        lambda: problem.released("laplace", "l1_rows"),
        lambda: problem.released("gaussian", "l1_rows"),
    ):
        with pytest.raises(ValueError, match=r"constants = 'l1_rows': must be .*row_norm='l1'"):
            call()
    single = np.float32(x) / np.abs(np.float32(x)).sum(axis=1, keepdims=True)
    short = RidgeProblem.fit(single, y, LAMBDA, "l1")
    assert short.row_norm == "l1"
    np.testing.assert_allclose(
        short.optimum,
        RidgeProblem.fit(single, y, LAMBDA).optimum,
        rtol=1e-6,
    )
    # The rows' l2 norms are smaller too: the other constants hold as well.
    assert short.released("laplace", "tight").sensitivity > 4


def test_bad_arguments_are_named():
    problem = RidgeProblem.fit(*regression(), LAMBDA)
    with pytest.raises(ValueError, match="noise = 'cauchy': must be 'gaussian' or 'laplace'"):
        problem.released_optimum("cauchy")
    with pytest.raises(ValueError, match="constants = 'l1_rows': must be 'paper' or 'tight'"):
        problem.released_optimum("laplace", "l1_rows")
    rough = RidgeProblem(
        problem.rows,
        problem.dimension,
        LAMBDA,
        problem.minimum._replace(gradient_norm=1e-9),
        problem.statistics,
    )
    with pytest.raises(ValueError, match=r"gradient norm at the optimum is 1e-09: must be at most"):
        rough.released_optimum("laplace")
    # The statistics do not depend on the optimum; what the utility makes of it does.
    assert rough.released("laplace").utility.sensitivity == problem.utility_sensitivity
    rougher = dataclasses.replace(problem, minimum=problem.minimum._replace(gradient_norm=1e-8))
    with pytest.raises(ValueError, match=r"gradient norm at the optimum is 1e-08: must be at most"):
        rougher.released("laplace")
