"""Ridge regression: the optimum, its statistics and their sensitivity, and a release's loss."""

import dataclasses
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import datasets
from nrjax.erm import RidgeProblem, statistics

SHARED = Path(os.environ.get("NRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))

LAYOUTS = (("gaussian", "paper"), ("laplace", "paper"), ("laplace", "tight"))


def small_data(rows=300, dimension=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, dimension))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = 0.5 * x @ np.linspace(-1, 1, dimension) + 0.2 * rng.uniform(-1, 1, size=rows)
    return x, y


def plain_loss(theta, x, y, regularisation):
    """The definition, row by row."""
    return 0.5 * np.mean((y - x @ theta) ** 2) + 0.5 * regularisation * theta @ theta


def in_ball(rng, count, dimension, radius):
    theta = rng.normal(size=(count, dimension))
    theta *= radius * rng.uniform(0, 1, size=(count, 1)) / np.linalg.norm(theta, axis=1)[:, None]
    return theta


@pytest.fixture(scope="module")
def flights():
    data = datasets.load("flights", "ridge")
    return data, RidgeProblem.fit(data.x, data.y, 0.05)


def test_the_optimum_is_stationary_and_no_other_point_is_better():
    x, y = small_data()
    problem = RidgeProblem.fit(x, y, 0.05)
    assert problem.minimum.gradient_norm <= 1e-14
    assert problem.optimum_loss == pytest.approx(plain_loss(problem.optimum, x, y, 0.05), rel=1e-14)
    assert np.linalg.norm(problem.optimum) <= problem.radius
    for theta in in_ball(np.random.default_rng(1), 1000, 4, problem.radius):
        assert plain_loss(theta, x, y, 0.05) > problem.optimum_loss
    for step in 1e-4 * np.concatenate([np.eye(4), -np.eye(4)]):
        assert plain_loss(problem.optimum + step, x, y, 0.05) > problem.optimum_loss


def test_the_optimum_on_flights(flights):
    data, problem = flights
    assert data.x.shape == (10_000, problem.dimension)
    assert problem.optimum_loss == pytest.approx(0.02232, abs=5e-6)


def test_the_optimum_on_the_paper_data():
    if not any(one.name == "twitter" and one.where for one in datasets.available(SHARED)):
        pytest.skip("the Twitter data are not on this machine")
    data = datasets.load("twitter", "ridge", data_dir=SHARED)
    problem = RidgeProblem.fit(data.x, data.y, 0.05)
    assert problem.dimension == 77
    assert problem.optimum_loss == pytest.approx(0.013443, abs=1e-6)


def test_the_utility_is_minus_the_loss_over_the_rows(flights, dtype):
    """In float32 it was off by 2e-7 of the loss."""
    data, problem = flights
    utility = problem.released("gaussian").utility
    evaluate = jax.jit(jax.vmap(utility.evaluate))
    rng = np.random.default_rng(2)
    near = problem.optimum + 1e-3 * rng.normal(size=(50, problem.dimension))
    thetas = np.concatenate(
        [in_ball(rng, 100, problem.dimension, problem.radius), near, problem.optimum[None]]
    ).astype(dtype)
    losses = [plain_loss(theta, data.x, data.y, 0.05) for theta in thetas.astype(float)]
    got = evaluate(thetas)
    assert got.dtype == dtype
    rtol = 2e-6 if dtype == jnp.float32 else 1e-13
    np.testing.assert_allclose(-got, losses, rtol=rtol)


@pytest.mark.parametrize(("noise", "constants"), LAYOUTS)
def test_a_release_is_unpacked_and_its_risk_minimised_over_the_ball(noise, constants, dtype):
    x, y = small_data()
    problem = RidgeProblem.fit(x, y, 0.05)
    value, _, utility = problem.released(noise, constants)
    rng = np.random.default_rng(3)
    d, n = 4, problem.rows
    find = jax.jit(utility.hypothesis)
    rtol = 2e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(find(value.astype(dtype)), problem.optimum, rtol=rtol)
    points = in_ball(rng, 4000, d, problem.radius)
    points[:2000] *= problem.radius / np.linalg.norm(points[:2000], axis=1)[:, None]
    for spread in (10.0, 100.0, 1000.0):
        noise_on_gram, noise_on_moments = (
            spread * rng.normal(size=(d, d)),
            spread * rng.normal(size=d),
        )
        if noise != "laplace" or constants != "paper":
            noise_on_gram = np.tril(noise_on_gram) + np.tril(noise_on_gram, -1).T
        gram, moments = (
            problem.statistics[0] + noise_on_gram,
            problem.statistics[1] + noise_on_moments,
        )
        release = statistics.pack(gram, moments, utility.layout)
        assert release.shape == value.shape
        theta = np.asarray(find(release.astype(dtype)), np.float64)
        assert np.linalg.norm(theta) <= problem.radius * (1 + 8 * np.finfo(dtype).eps)

        def risk(theta, gram=gram, moments=moments):
            quadratic = np.einsum("...i,ij,...j", theta, gram, theta)
            return (0.5 * quadratic - theta @ moments) / n + 0.025 * np.sum(theta**2, -1)

        scale = np.abs(gram).sum() * problem.radius**2 / n
        assert np.all(risk(points) > risk(theta) - 1e-6 * scale)
        # And it is a minimum to second order: the best of the points comes near.
        assert np.min(risk(points)) < risk(theta) + 0.05 * scale


def covariance(dimension, layout):
    """Of the symmetric matrix that unit noise on the release gives, entry by entry."""
    size = statistics.pack(np.zeros((dimension,) * 2), np.zeros(dimension), layout).size
    matrices = jax.vmap(lambda row: statistics.unpack(row, dimension, layout)[0])(jnp.eye(size))
    flat = np.asarray(matrices).reshape(size, -1)
    return flat.T @ flat


def test_isometric_noise_is_in_law_the_symmetric_part_of_noise_on_all_entries():
    """Gaussian laws are their covariances; the mirrored triangle has another."""
    every = covariance(4, "matrix")
    np.testing.assert_allclose(covariance(4, "isometric"), every, atol=1e-6)
    assert np.diag(covariance(4, "triangle")).max() == np.diag(every).max() == 1
    assert np.abs(covariance(4, "triangle") - every).max() == pytest.approx(0.5)
    for layout in ("isometric", "matrix", "triangle"):
        gram, moments = np.arange(16.0).reshape(4, 4), np.arange(4.0)
        gram = gram + gram.T
        matrix, vector = statistics.unpack(
            jnp.asarray(statistics.pack(gram, moments, layout)), 4, layout
        )
        np.testing.assert_allclose(matrix, gram, rtol=1e-6)
        np.testing.assert_array_equal(vector, moments)


def moves(rows, labels, layout):
    """What the replacement of one row changes in the release; rows (2, pairs, d)."""
    grams = np.einsum("spi,spj->spij", rows, rows)
    moments = labels[..., None] * rows
    return [
        statistics.pack(gram, moment, layout)
        for gram, moment in zip(grams[0] - grams[1], moments[0] - moments[1], strict=True)
    ]


def worst_pair(order, layout, dimension, tries=400, steps=60, seed=0):
    """Largest change found, in the norm of this order, by a climb from random pairs of rows."""
    rng = np.random.default_rng(seed)

    def unit(rows):
        return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1)

    start = rng.normal(size=(2, tries, dimension))
    start[:, ::2] = np.sign(start[:, ::2])
    rows = unit(100 * start)
    labels = np.broadcast_to(np.array([[1.0], [-1.0]]), (2, tries))
    best = np.linalg.norm(moves(rows, labels, layout), order, axis=1)
    for step in range(steps):
        other = unit(rows + 0.5 * 0.9**step * rng.normal(size=rows.shape))
        got = np.linalg.norm(moves(other, labels, layout), order, axis=1)
        rows = np.where((got > best)[:, None], other, rows)
        best = np.maximum(best, got)
    return best.max()


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_no_neighbour_moves_the_statistics_further_than_the_sensitivity(dimension):
    x, y = small_data(dimension=dimension)
    problem = RidgeProblem.fit(x, y, 0.05)
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


def test_the_real_statistics_move_by_no_more_either():
    x, y = small_data(rows=20)
    problem = RidgeProblem.fit(x, y, 0.05)
    for noise, constants in LAYOUTS:
        value, sensitivity, _ = problem.released(noise, constants)
        for row in range(4):
            other_x, other_y = x.copy(), y.copy()
            other_x[row], other_y[row] = -other_x[row, ::-1], -np.sign(y[row])
            other = RidgeProblem.fit(other_x, other_y, 0.05).released(noise, constants).value
            assert np.linalg.norm(value - other, 2 if noise == "gaussian" else 1) <= sensitivity


def test_the_utility_moves_by_its_sensitivity_and_no_more():
    x, y = small_data(rows=20)
    regularisation = 0.05
    problem = RidgeProblem.fit(x, y, regularisation)
    stated, radius = problem.utility_sensitivity, problem.radius
    assert stated == pytest.approx((1 / np.sqrt(regularisation) + 1) ** 2 / 40)
    assert problem.excess_risk_sensitivity == pytest.approx(2 * stated)
    for noise, constants in LAYOUTS:
        assert problem.released(noise, constants).utility.sensitivity == stated
    rng = np.random.default_rng(4)
    theta = np.zeros(4)
    theta[0] = radius
    worst = 0.0
    for trial in range(200):
        other_x, other_y = x.copy(), y.copy()
        first_x, first_y = x.copy(), y.copy()
        first_x[0], first_y[0] = np.eye(4)[0], -1.0
        other_x[0] = rng.normal(size=4)
        other_x[0] /= np.linalg.norm(other_x[0])
        other_y[0] = rng.uniform(-1, 1)
        if trial == 0:
            other_x[0], other_y[0] = 0, 0  # no loss at all
        risks = [
            plain_loss(theta, *data, regularisation)
            for data in ((first_x, first_y), (other_x, other_y))
        ]
        worst = max(worst, abs(risks[0] - risks[1]))
    assert worst <= stated * (1 + 1e-12)
    assert worst > 0.999 * stated


def test_the_rounding_of_evaluated_risks_is_part_of_the_stated_sensitivity():
    """Of a million rows one moves, at a hypothesis on the rim and near it."""
    rows, regularisation = 10**6, 0.05
    exact = (1 / np.sqrt(regularisation) + 1) ** 2 / (2 * rows)
    x, y = np.zeros((rows, 2)), np.zeros(rows)
    risks = []
    for label in (-1.0, 0.0):
        x[0], y[0] = (-label, 0.0), label  # the second row has no loss
        utility = RidgeProblem.fit(x, y, regularisation).released("gaussian").utility
        lengths = jnp.linspace(0.999, 1, 2000) * utility.radius
        at = jnp.stack([lengths, jnp.zeros(2000)], axis=1)
        risks.append(np.asarray(jax.jit(jax.vmap(utility.evaluate))(at), float))
    moved = np.abs(risks[0] - risks[1]).max()
    assert moved <= utility.sensitivity
    if not jax.config.jax_enable_x64:
        assert moved > 1.001 * exact


def test_the_utility_survives_vmap_over_its_parameters(dtype):
    x, y = small_data()
    value, _, utility = RidgeProblem.fit(x, y, 0.05).released("gaussian")
    releases = value + 50 * np.random.default_rng(5).normal(size=(16, value.size))
    many = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, dtype)] * 16), utility)
    many = dataclasses.replace(many, regularisation=np.linspace(0.01, 0.2, 16, dtype=dtype))

    def loss(utility, release):
        return utility.evaluate(utility.hypothesis(release))

    together = jax.jit(jax.vmap(loss))(many, releases.astype(dtype))
    one = jax.jit(loss)
    alone = [
        one(jax.tree.map(lambda leaf, i=i: leaf[i], many), releases[i].astype(dtype))
        for i in range(16)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-4 if dtype == jnp.float32 else 1e-10)
    assert np.std(alone) > 0.01 * np.abs(np.mean(alone))


@pytest.mark.parametrize(
    ("noise", "constants"),
    [pytest.param(*layout, marks=pytest.mark.long) for layout in LAYOUTS[::2]],  # CI: the studies
)
def test_trials_run_end_to_end(noise, constants):
    x, y = small_data(rows=300)
    problem = RidgeProblem.fit(x, y, 0.05)
    value, sensitivity, utility = problem.released(noise, constants)
    if noise == "gaussian":
        process = nrjax.Brownian(value.shape)
        guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, sensitivity, 1e-6)
    else:
        process, guarantee = nrjax.Laplace(value.shape), nrjax.PureGuarantee(sensitivity)
    target = 1.5 * problem.optimum_loss
    outcome = nrjax.simulate(
        jax.random.key(0),
        nrjax.Interaction(
            value=value,
            process=process,
            guarantee=guarantee,
            schedule=nrjax.Grid.geometric(guarantee, 0.16, 20.0, 200),
            utility=utility,
            rule=nrjax.PublicThreshold(-target),
        ),
        trials=32,
        batching=nrjax.Batching(tile=32, lanes=32),
    )
    assert np.all(outcome.status == nrjax.Status.STOPPED)
    assert np.mean(outcome.step) > 5
    for theta, utility_ in zip(outcome.hypothesis, outcome.utility, strict=True):
        loss = plain_loss(np.asarray(theta, np.float64), x, y, 0.05)
        assert -utility_ == pytest.approx(loss, rel=1e-5)
        assert loss <= target * (1 + 1e-5)


def bad(**changes):
    x, y = small_data(rows=20)
    return lambda: RidgeProblem.fit(
        **{"features": x, "labels": y, "regularisation": 0.05} | changes
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (bad(features=np.full((20, 4), 2.0)), r"features\[0\] has l2 norm 4.*: must be at most 1"),
        (bad(features=np.full((20, 4), np.nan)), r"features\[0\] = .*must be finite"),
        (bad(labels=np.full(20, 1.5)), r"labels holds 1.5: must be in \[-1, 1\]"),
        (bad(labels=np.full(20, np.nan)), r"labels holds nan: must be in \[-1, 1\]"),
        (bad(labels=np.zeros(19)), r"labels has shape \(19,\): must be \(20,\)"),
        (bad(regularisation=-1.0), "regularisation = -1.0: must be above 0"),
        (lambda: bad()().released("cauchy"), "noise = 'cauchy': must be 'gaussian' or 'laplace'"),
        (lambda: bad()().released("laplace", "best"), "constants = 'best': must be 'paper' or"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
