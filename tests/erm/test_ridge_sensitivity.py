"""How far one row moves what ridge regression releases: the statistics, the optimum, the utility.

By climbs from random neighbours, which find what is stated to be the most, or nearly.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import RidgeProblem, sensitivity, statistics
from tests.erm.risks import ridge_data

LAMBDA = 0.05
LAYOUTS = (("gaussian", "paper"), ("laplace", "paper"), ("laplace", "tight"))


def worst_pair(order, layout, dimension, row_norm=2, tries=600, steps=80):
    """Largest change of the statistics, in the norm of this order, by a climb from random pairs."""
    rng = np.random.default_rng(3)
    kept = np.triu_indices(dimension) if layout == "triangle" else np.indices((dimension,) * 2)
    labels = np.array([1.0, -1.0])[:, None, None]

    def admissible(rows):
        return rows / np.maximum(np.linalg.norm(rows, row_norm, axis=-1, keepdims=True), 1)

    def moved(rows):
        # The isometric layout has the l2 norm of the whole matrix.
        grams = np.einsum("spi,spj->spij", rows, rows)
        entries = (grams[0] - grams[1])[:, *kept].reshape(tries, -1)
        vectors = labels * rows
        return np.linalg.norm(np.hstack([entries, vectors[0] - vectors[1]]), order, axis=1)

    # Some rows are almost along one axis, some far from every.
    start = rng.normal(size=(2, tries, dimension)) ** rng.choice([1, 3, 9], size=(2, tries, 1))
    start[:, ::2] = np.sign(start[:, ::2])
    rows = admissible(100 * start)
    best = moved(rows)
    for step in range(steps):
        other = admissible(rows + 0.5 * 0.9**step * rng.normal(size=rows.shape))
        got = moved(other)
        rows = np.where((got > best)[:, None], other, rows)
        best = np.maximum(best, got)
    return best.max()


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_no_neighbour_moves_the_statistics_further_than_the_sensitivity(dimension):
    problem = RidgeProblem.fit(*ridge_data(dimension=dimension), LAMBDA)
    l2 = worst_pair(2, "isometric", dimension)
    tight = problem.released("gaussian", "tight").sensitivity
    assert tight == pytest.approx(3 / np.sqrt(2))
    assert l2 <= tight * (1 + 1e-12) < problem.released("gaussian").sensitivity
    assert problem.l2_sensitivity == pytest.approx(2 * np.sqrt(2))
    if dimension > 1:  # in one dimension no two rows are at an angle
        assert l2 > 0.99 * tight
        assert l2 > 2  # the larger of the two statistics' own sensitivities is not enough
    for constants, least in (("paper", 0.45), ("tight", 0.6)):
        layout = statistics.layout("laplace", constants)
        stated = problem.released("laplace", constants).sensitivity
        l1 = worst_pair(1, layout, dimension)
        assert l1 <= stated * (1 + 1e-12)
        assert l1 > least * stated
    assert problem.l1_sensitivity == pytest.approx(2 * dimension + 2 * np.sqrt(dimension))
    # The tight constant is the triangle's: the whole matrix moves further.
    if dimension == 5:
        assert worst_pair(1, "matrix", 5) > problem.released("laplace", "tight").sensitivity


@pytest.mark.parametrize("dimension", [2, 5])
def test_rows_of_unit_l1_norm_move_the_statistics_as_far_as_stated(dimension):
    problem = RidgeProblem.fit(*ridge_data(dimension=dimension, norm=1), LAMBDA, "l1")
    for noise, order, stated in (("gaussian", 2, 2), ("laplace", 1, 4)):
        value, moved, utility = problem.released(noise, "l1_rows")
        assert moved == stated
        assert utility.layout == {"gaussian": "isometric", "laplace": "matrix"}[noise]
        assert value.size == statistics.pack(*problem.statistics, utility.layout).size
        found = worst_pair(order, utility.layout, dimension, 1)
        assert 0.99 * stated < found <= stated * (1 + 1e-12)
        # Rows of unit l2 norm move them further: the search would see it.
        assert worst_pair(order, utility.layout, dimension, 2) > 1.03 * stated
    # Reached by rows along two axes; the rest of the data does not matter.
    moved = statistics.pack(np.diag([1.0, -1.0]), np.array([1.0, 1.0]), "isometric")
    assert np.linalg.norm(moved) == pytest.approx(2)
    # Their l2 norms are smaller too: the other constants hold as well; also for float32 rows.
    assert problem.released("laplace", "tight").sensitivity > 2 * np.sqrt(dimension)
    x, y = ridge_data(dimension=dimension)
    single = np.float32(x) / np.abs(np.float32(x)).sum(axis=1, keepdims=True)
    assert RidgeProblem.fit(single, y, LAMBDA, "l1").row_norm == "l1"


def test_the_real_statistics_move_by_no_more_either():
    x, y = ridge_data(rows=20)
    problem = RidgeProblem.fit(x, y, LAMBDA)
    for row in range(4):
        other_x, other_y = x.copy(), y.copy()
        other_x[row], other_y[row] = -other_x[row, ::-1], -np.sign(y[row])
        other = RidgeProblem.fit(other_x, other_y, LAMBDA)
        for noise, constants in LAYOUTS:
            value, stated, _ = problem.released(noise, constants)
            moved = value - other.released(noise, constants).value
            assert np.linalg.norm(moved, 2 if noise == "gaussian" else 1) <= stated


def test_what_is_stated_of_the_optimum():
    x, y = ridge_data()
    problem = RidgeProblem.fit(x, y, LAMBDA)
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
    stated = problem.utility_sensitivity
    assert stated == pytest.approx(sensitivity.squared_loss(300, problem.radius), rel=1e-4)
    assert stated == pytest.approx(reach**2 / 600, rel=1e-4)
    assert problem.excess_risk_sensitivity == 2 * stated
    # The statistics do not depend on the optimum.
    rough = dataclasses.replace(problem, minimum=problem.minimum._replace(gradient_norm=1e-9))
    assert rough.released("laplace").utility.sensitivity == problem.utility_sensitivity


def farthest_optima(rows, weight):
    """How far one row moves the optimum, where all others agree, at each length of theirs.

    It is on the wrong side, slanted to the left and to the right, at each angle.
    """
    lengths, angles = np.meshgrid(np.linspace(0.02, 1, 50), np.linspace(0, np.pi, 61))
    lengths, angles = lengths.ravel(), angles.ravel()
    found = []
    for side in (1, -1):
        turned = np.stack([np.cos(angles), side * np.sin(angles)], axis=1)
        gram = np.einsum("ti,tj->tij", turned, turned)
        gram[:, 0, 0] += (rows - 1) * lengths**2
        moment = -turned
        moment[:, 0] += (rows - 1) * lengths
        hessian = gram / rows + weight * np.eye(2)
        found.append(np.linalg.solve(hessian, moment[..., None] / rows)[..., 0])
    return np.linalg.norm(found[0] - found[1], axis=1).max()


@pytest.mark.parametrize(
    ("rows", "weight", "ball", "least"),
    [
        (40, 0.05, "paper", 0.25),
        (400, 0.05, "paper", 0.25),
        (2000, 0.005, "paper", 0.25),
        (100, 0.01, "tight", 0.4),
        (1000, 0.01, "tight", 0.4),
    ],
)
def test_no_neighbour_moves_the_optimum_further_and_one_moves_it_far(rows, weight, ball, least):
    moved = farthest_optima(rows, weight)
    paper, tight = (
        sensitivity.ridge_output_l2(rows, weight, name, ball=ball) for name in ("paper", "tight")
    )
    assert tight <= paper
    assert least * tight < moved <= tight
    l1 = sensitivity.ridge_output_l1(rows, weight, 9, "tight", ball=ball)
    assert l1 == pytest.approx(3 * tight)
    if ball == "tight":
        # Which of the two bounds is the smaller does not depend on the ball.
        large = sensitivity.ridge_output_l2(rows, weight, "tight", ball="paper")
        assert tight == pytest.approx(6 / np.sqrt(rows * weight) if rows == 100 else 1.2)
        assert tight / large == pytest.approx(6 / 11)
        # Negative control: a ball of a quarter of the radius does not hold the optima.
        if rows == 1000:
            assert moved > 2 * (0.25 * 5 + 1) / (rows * weight)


@pytest.mark.numerical
def test_the_rounding_of_evaluated_risks_is_part_of_the_stated_sensitivity():
    """Of a million rows one moves, at a hypothesis on the rim and near it."""
    rows = 10**6
    exact = (1 / np.sqrt(LAMBDA) + 1) ** 2 / (2 * rows)
    x, y = np.zeros((rows, 2)), np.zeros(rows)
    risks = []
    for label in (-1.0, 0.0):
        x[0], y[0] = (-label, 0.0), label  # the second row has no loss
        utility = RidgeProblem.fit(x, y, LAMBDA).released("gaussian").utility
        lengths = jnp.linspace(0.999, 1, 2000) * utility.radius
        at = jnp.stack([lengths, jnp.zeros(2000)], axis=1)
        risks.append(np.asarray(jax.jit(jax.vmap(utility.evaluate))(at), float))
    moved = np.abs(risks[0] - risks[1]).max()
    assert moved <= utility.sensitivity
    if not jax.config.jax_enable_x64:
        assert moved > 1.001 * exact
