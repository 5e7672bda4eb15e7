"""A user's own loss: the optimum, its sensitivities, and promises that do not hold."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import nrjax
from nrjax.erm import OutputProblem, _promises, output_utility
from tests.problems import small_data, small_logistic

LAMBDA = 0.05
HUBER = {"loss_at_zero": (0.0, 0.75), "lowest_loss": 0.0, "label_range": (-1.0, 1.0)}


def huber(theta, row, label):
    """Slope at most 1, and 0.75 at an error of 1."""
    error = jnp.abs(row @ theta - label)
    return jnp.where(error < 0.5, error**2, error - 0.25)


def logistic(theta, row, label):
    return jnp.logaddexp(0, -label * (row @ theta))


def linear(theta, row, label):
    """Every bound is attained by it."""
    return -label * (row @ theta)


def squared(theta, row, label):
    return 0.5 * (row @ theta - label) ** 2


def with_offset(theta, row, label):
    """One parameter more than there are features."""
    return huber(theta[:-1], row, label - theta[-1])


def sigmoid(theta, row, label):
    return jax.nn.sigmoid(-label * (row @ theta))


def norm(theta, row, label):
    return jnp.linalg.norm(theta) + 0 * label * row[0]


def vector(theta, row, label):
    return label * row * theta


def narrow(theta, row, label):
    return huber(theta, row, label).astype(jnp.float32)


def regression(rows=120, dimension=4):
    """Rows of norm at most 1, duplicates among them, and labels in [-1, 1] with outliers."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows // 2, dimension)).round(1)
    x = np.concatenate([x, x]) / np.maximum(1, np.linalg.norm(x, axis=1).max())
    y = np.clip(x @ np.full(dimension, 0.9) + 0.2 * rng.standard_t(2, rows), -1, 1).round(1)
    return x, y


def plain_risk(theta, x, y):
    """The definition for `huber`, without merging."""
    error = np.abs(x @ theta - y)
    losses = np.where(error < 0.5, error**2, error - 0.25)
    return np.mean(losses) + 0.5 * LAMBDA * theta @ theta


def fit(loss: Any = huber, features=None, labels=None, **changes: Any):
    x, y = regression()
    features = x if features is None else features
    labels = y if labels is None else labels
    arguments: Any = {"regularisation": LAMBDA, "lipschitz": 1.0} | changes
    return OutputProblem.fit(loss, features, labels, **arguments)


def test_optimum_and_utility_against_the_definition(dtype):
    x, y = regression()
    problem = fit(**HUBER)
    found = optimize.minimize(plain_risk, np.zeros(4), (x, y), tol=1e-12)
    np.testing.assert_allclose(problem.value, found.x, atol=1e-5)
    np.testing.assert_allclose(problem.optimum_loss, found.fun, rtol=1e-10)
    assert problem.minimum.gradient_norm <= 1e-12
    assert problem.utility.rows.shape[0] < 120  # merged
    np.testing.assert_allclose(problem.utility.weights.sum(), 1.0)
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 100.0):
        release = scale * rng.normal(size=4)
        expected = release * min(1.0, problem.utility.radius / np.linalg.norm(release))
        hypothesis = problem.utility.hypothesis(jnp.asarray(release))
        np.testing.assert_allclose(hypothesis, expected, rtol=1e-5)
        utility = jax.jit(lambda u, h: u.evaluate(h))(problem.utility, hypothesis)
        rtol = 2e-6 if dtype == jnp.float32 else 1e-12
        np.testing.assert_allclose(-utility, plain_risk(expected, x, y), rtol=rtol)
        assert utility.dtype == dtype


def test_the_logistic_loss_gives_the_logistic_problem():
    x, y = small_data()
    known = small_logistic(LAMBDA)
    radius = known.utility.radius
    own = OutputProblem.fit(
        logistic,
        x,
        y,
        regularisation=LAMBDA,
        lipschitz=1.0,
        loss_at_zero=(np.log(2), np.log(2)),
        lowest_loss=0.0,
        loss_spread=radius,
    )
    assert own.utility.radius == radius
    np.testing.assert_allclose(own.value, known.value, atol=1e-9)
    np.testing.assert_allclose(own.optimum_loss, known.optimum_loss, rtol=1e-12)
    for name in ("l1_sensitivity", "l2_sensitivity", "excess_risk_sensitivity"):
        assert getattr(own, name) == pytest.approx(getattr(known, name), rel=1e-12)
    theta = jnp.linspace(-1, 1, 5)
    np.testing.assert_allclose(
        own.utility.evaluate(theta), known.utility.evaluate(theta), rtol=1e-6
    )


def test_the_ball_is_the_smallest_that_was_promised():
    bounds = {
        1 / LAMBDA: {},
        np.sqrt(2 * 0.75 / LAMBDA): HUBER,
        2.0: HUBER | {"radius": 2.0},
        1 / LAMBDA + 0.0: {"radius": 100.0},
    }
    for radius, promises in bounds.items():
        problem = fit(**promises)
        assert problem.utility.radius == pytest.approx(radius)
        assert np.linalg.norm(problem.value) <= radius
    # The first is attained: by a linear loss and rows that agree.
    rows = np.tile([0.6, 0.8], (10, 1))
    problem = fit(linear, rows, np.ones(10))
    assert np.linalg.norm(problem.value) == pytest.approx(1 / LAMBDA)


def test_the_utility_is_as_sensitive_as_the_promises_allow():
    n, reach = 120, np.sqrt(2 * 0.75 / LAMBDA)
    stated = [
        ({}, None),
        ({"lowest_loss": 0.0}, None),
        ({"loss_at_zero": (0.0, 0.75)}, 2 / LAMBDA + 0.75),
        (HUBER, reach + 0.75),
        (HUBER | {"lipschitz": 2.0}, 2 * reach + 0.75),
        (HUBER | {"lipschitz": 2.0, "loss_spread": 6.3}, 6.3),
        (HUBER | {"loss_spread": 50.0}, reach + 0.75),
    ]
    for promises, spread in stated:
        problem = fit(**promises)
        if spread is None:
            assert problem.utility_sensitivity is None
            assert problem.excess_risk_sensitivity is None
        else:
            assert problem.utility_sensitivity == pytest.approx(spread / n, rel=2e-4)
            assert problem.excess_risk_sensitivity == pytest.approx(2 * spread / n, rel=2e-4)
            assert problem.utility.sensitivity == problem.utility_sensitivity


@pytest.mark.parametrize(
    ("loss", "promises", "share"),
    [(huber, HUBER, 0.999), (linear, {"loss_at_zero": (0.0, 0.0)}, 0.999)],
)
def test_no_row_moves_the_utility_further(loss, promises, share):
    """Rows along the hypothesis, at the rim of the ball, with labels of either sign."""
    problem = fit(loss, **promises)
    rng = np.random.default_rng(7)
    theta = rng.normal(size=(200, 4))
    theta *= problem.utility.radius / np.linalg.norm(theta, axis=1)[:, None]
    along = theta / np.linalg.norm(theta, axis=1)[:, None]
    losses = [
        jax.vmap(loss)(theta, sign * along, np.full(200, label))
        for sign in (-1.0, 0.0, 0.2, 1.0)
        for label in (-1.0, 0.0, 1.0)
    ]
    moved = np.ptp(np.asarray(losses, np.float64), axis=0).max() / problem.rows
    stated = problem.utility_sensitivity
    assert stated is not None
    assert share * stated < moved <= (1 + 1e-6) * stated


@pytest.mark.parametrize("loss", [huber, linear])
def test_no_neighbour_moves_the_value_further_and_one_moves_it_far(loss):
    """All rows agree but one, which pulls to one side, then to the other."""
    features = np.tile([1.0, 0.0], (40, 1))
    values = []
    for side in (1, -1):
        features[0] = 0.0, side
        problem = fit(loss, features.copy(), np.ones(40))
        values.append(problem.value)
    moved = values[0] - values[1]
    assert problem.l2_sensitivity == pytest.approx(2 / (40 * LAMBDA))
    assert problem.l1_sensitivity == pytest.approx(np.sqrt(2) * problem.l2_sensitivity)
    assert np.linalg.norm(moved) <= problem.l2_sensitivity
    # The linear loss attains it; half of it would do for a row that is added or removed.
    share = 0.999 if loss is linear else 0.4
    assert np.linalg.norm(moved) > share * problem.l2_sensitivity


@pytest.mark.parametrize(
    ("loss", "promises"),
    [
        (huber, HUBER),
        (linear, {"loss_at_zero": (0.0, 0.0), "loss_spread": 2 / LAMBDA}),
        # Lipschitz on a ball alone: a prediction is at most sqrt(20) there.
        (
            squared,
            HUBER
            | {
                "loss_at_zero": (0.0, 0.5),
                "lipschitz": 1 + np.sqrt(1 / LAMBDA),
                "loss_spread": 0.5 * (1 + np.sqrt(1 / LAMBDA)) ** 2,
            },
        ),
        (with_offset, {"dimension": 5, "lipschitz": np.sqrt(2)}),
        (huber, {"max_norm": 3.0, "lipschitz": 3.0}),
    ],
)
def test_promises_that_hold_to_the_letter_pass(loss, promises):
    problem = fit(loss, **promises)
    assert problem.shape == problem.value.shape == (promises.get("dimension", 4),)
    assert problem.lipschitz == promises.get("lipschitz", 1.0)
    assert np.linalg.norm(problem.value) < problem.utility.radius


def outside(**changes):
    """Features with one row changed."""
    x, _ = regression()
    x[17] = changes.get("row", 2.0)
    return x


def odd_label(label):
    _, y = regression()
    y[5] = label
    return y


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": outside()}, r"features\[17\] has l2 norm 4: must be at most max_norm = 1,"),
        ({"features": outside(), "max_norm": 3.5}, r"l2 norm 4: must be at most max_norm = 3.5,"),
        ({"features": outside(row=np.nan)}, r"features\[17\] = .*must be finite"),
        ({"features": np.zeros((0, 4))}, r"features has shape \(0, 4\)"),
        ({"labels": odd_label(1.5)} | HUBER, r"labels\[5\] = 1.5: must be in label_range = \(-1"),
        ({"labels": odd_label(np.nan)}, r"labels\[5\] = nan: must be finite"),
        ({"labels": np.ones(7)}, r"labels has shape \(7,\): must be \(120,\)"),
        ({"lipschitz": 0.99}, r"lipschitz = 0.99: must be at least 1, the gradient norm for .*at "),
        # At zero its gradient is below 1, and it is so at the optimum: only the ball shows it.
        (
            {"loss": squared, "label_range": (-1.0, 1.0)},
            r"lipschitz = 1.0: must be at least 2\d.*, the gradient norm for .* theta of norm 20",
        ),
        ({"lipschitz": 0.0}, "lipschitz = 0.0: must be above 0"),
        ({"lipschitz": np.inf}, "lipschitz = inf: must be above 0 and finite"),
        ({"regularisation": -1.0}, "regularisation = -1.0: must be above 0"),
        ({"max_norm": -1.0}, "max_norm = -1.0: must be above 0"),
        ({"radius": 0.5}, r"radius = 0.5: must be at least \d.*, the l2 norm of the optimum"),
        (HUBER | {"loss_at_zero": (0.0, 0.5)}, r"loss_at_zero = \(0.0, 0.5\): .* holds 0.75"),
        ({"loss_at_zero": (0.01, 0.75)}, r"loss_at_zero = .* holds .*features\[\d+\]"),
        ({"loss_at_zero": (1.0, 0.5)}, r"loss_at_zero = \(1.0, 0.5\): must be two finite numbers"),
        ({"loss_at_zero": 0.5}, r"loss_at_zero = 0.5: must be two finite numbers"),
        ({"lowest_loss": 0.01}, r"lowest_loss = 0.01: must be at most .* the loss of .* at theta"),
        (HUBER | {"lowest_loss": 0.01}, r"lowest_loss = 0.01: must be at most 0, the lowest loss_"),
        (
            {"loss_spread": 3.0},
            r"loss_spread = 3.0: must be at least 2\d.*, by which the losses of",
        ),
        (
            {"loss": sigmoid},
            r"loss = sigmoid: must be convex in theta, but the loss of .* half way",
        ),
        ({"loss": norm}, r"loss = norm: must be finite and .* gradient's norm is nan for features"),
        ({"loss": vector}, r"loss = vector: must return a scalar, .* returns shape \(4,\)"),
        ({"loss": narrow}, r"loss = narrow: must return the dtype of its arguments.* float32"),
        ({"loss": 3}, r"loss = 3: must be a function of theta, row and label"),
        ({"dimension": 0}, "dimension = 0: must be an integer, at least 1"),
        ({"tolerance": 1e-30}, "the optimum was not found: gradient norm"),
    ],
)
def test_a_wrong_promise_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


@pytest.mark.parametrize("tile", [2**20, 200])
def test_a_wrong_promise_is_found_in_one_row(tile, monkeypatch):
    """One row among many breaks a promise, and is named; also when rows are tried in tiles."""
    monkeypatch.setattr(_promises, "_TILE_SIZE", tile)

    def rare(theta, row, label):
        return huber(theta, row, label) * jnp.where(row[0] == 0.625, 2.0, 1.0)

    x, y = regression()
    x[33] = 0.625, 0.0, 0.0, 0.0
    y[33] = 1.0
    with pytest.raises(ValueError, match=r"lipschitz = 1.0: must be at least 1.25, .*\[33\]"):
        fit(rare, x, y)


def test_tiles_of_rows_give_the_same_risk(monkeypatch, dtype):
    problem = fit(**HUBER)
    theta = jnp.asarray(np.linspace(-1, 1, 4), dtype)
    whole = problem.utility.evaluate(theta)
    for rows in (50, problem.utility.rows.shape[0] // 2, 7):
        monkeypatch.setattr(output_utility, "_TILE_SIZE", 4 * rows)
        np.testing.assert_allclose(problem.utility.evaluate(theta), whole, rtol=1e-6)


def test_matrix_products_are_exact_on_accelerators():
    """The user's own products, which ask for no precision, get the highest."""
    utility = fit(**HUBER).utility
    program = str(jax.make_jaxpr(utility.evaluate)(jnp.zeros(4)))
    assert "dot_general" in program
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in program
    bare = str(jax.make_jaxpr(jax.vmap(huber, (None, 0, 0)))(jnp.zeros(4), *regression()))
    assert "HIGHEST" not in bare


def test_programs_are_kept_apart_by_loss():
    one, other = fit(**HUBER), fit(linear)
    assert jax.tree.structure(one.utility) == jax.tree.structure(fit(**HUBER).utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(other.utility)
    assert jax.tree.structure(one.utility) != jax.tree.structure(small_logistic().utility)


def simulated(problem, rule, trials=64):
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, problem.l2_sensitivity, 1e-6)
    return nrjax.simulate(
        jax.random.key(0),
        nrjax.Interaction(
            value=problem.value,
            process=nrjax.Brownian(problem.shape),
            guarantee=guarantee,
            schedule=nrjax.Grid.geometric(guarantee, 0.16, 100.0, 60),
            utility=problem.utility,
            rule=rule,
        ),
        trials=trials,
    )


@pytest.mark.long  # test_notebooks.py has a user's own problem as far as a public test
def test_the_whole_path_with_a_public_and_a_private_test(dtype):
    problem = fit(**HUBER)
    target = 1.5 * problem.optimum_loss
    public = simulated(problem, nrjax.PublicThreshold(-target))
    assert np.all(public.status == nrjax.Status.STOPPED)
    assert np.all(public.utility >= -target)
    x, y = regression()
    for trial in range(4):
        risk = plain_risk(np.asarray(public.hypothesis[trial], np.float64), x, y)
        np.testing.assert_allclose(-public.utility[trial], risk, rtol=2e-6)
    private = nrjax.InteractiveAboveThreshold(-target, problem.utility_sensitivity, 2.0)
    noisy = simulated(problem, private)
    np.testing.assert_allclose(noisy.test_epsilon, 2.0)
    assert np.any(noisy.utility < -target)  # the answers are noisy
    # Without noise to speak of, it stops where the public test does.
    sure = simulated(problem, dataclasses.replace(private, epsilon=1e6))
    assert np.mean(sure.step == public.step) > 0.95
    assert np.mean(noisy.step == public.step) < 0.5


def test_a_private_test_needs_a_stated_sensitivity():
    silent = fit()
    rule = nrjax.InteractiveAboveThreshold(-0.1, 0.1, 2.0)
    with pytest.raises(ValueError, match="utility = OutputUtility: must state its sensitivity"):
        simulated(silent, rule)
    stated = fit(**HUBER)
    assert stated.utility_sensitivity is not None
    low = dataclasses.replace(rule, sensitivity=0.9 * stated.utility_sensitivity)
    with pytest.raises(ValueError, match=r"sensitivity of the rule = .*: must be at least"):
        simulated(stated, low)
