"""What a user promises of a loss: what follows from it, and promises that do not hold."""

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import _promises
from tests.erm import losses as own
from tests.erm.losses import DATA, HUBER, LAMBDA, REACH, fit, huber, linear, squared


def test_the_ball_is_the_smallest_that_was_promised():
    bounds: tuple[tuple[float, dict], ...] = (
        (1 / LAMBDA, {}),
        (np.sqrt(2 * 0.75 / LAMBDA), HUBER),
        (2.0, HUBER | {"radius": 2.0}),
        (1 / LAMBDA, {"radius": 100.0}),
    )
    for radius, promises in bounds:
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
    ("loss", "promises"),
    [
        (huber, HUBER),
        (linear, {"loss_at_zero": (0.0, 0.0), "loss_spread": 2 / LAMBDA}),
        # Lipschitz on a ball alone: a prediction is at most sqrt(20) there.
        (
            squared,
            HUBER | {"loss_at_zero": (0.0, 0.5), "lipschitz": REACH, "loss_spread": 0.5 * REACH**2},
        ),
        (own.with_offset, {"dimension": 5, "lipschitz": np.sqrt(2)}),
        (huber, {"max_norm": 3.0, "lipschitz": 3.0}),
    ],
)
def test_promises_that_hold_to_the_letter_pass(loss, promises):
    problem = fit(loss, **promises)
    assert problem.shape == problem.value.shape == (promises.get("dimension", 4),)
    assert problem.lipschitz == promises.get("lipschitz", 1.0)
    assert np.linalg.norm(problem.value) < problem.utility.radius


def with_label(label):
    y = DATA[1].copy()
    y[5] = label
    return y


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": with_label(1.5)} | HUBER, r"labels\[5\] = 1.5: must be in label_range = \(-1"),
        ({"labels": with_label(np.nan)}, r"labels\[5\] = nan: must be finite"),
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
        ({"loss_spread": 3.0}, r"loss_spread = 3.0: must be at least 2\d.*, by which the losses"),
        (
            {"loss": own.sigmoid},
            r"loss = sigmoid: must be convex in theta, but the loss .* half way",
        ),
        (
            {"loss": own.norm},
            r"loss = norm: must be finite and .* gradient's norm is nan for features",
        ),
        ({"loss": own.vector}, r"loss = vector: must return a scalar, .* returns shape \(4,\)"),
        ({"loss": own.narrow}, r"loss = narrow: must return the dtype of its arguments.* float32"),
        ({"loss": 3}, r"loss = 3: must be a function of theta, row and label"),
        ({"dimension": 0}, "dimension = 0: must be an integer, at least 1"),
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

    x, y = DATA[0].copy(), DATA[1].copy()
    x[33], y[33] = [0.625, 0.0, 0.0, 0.0], 1.0
    with pytest.raises(ValueError, match=r"lipschitz = 1.0: must be at least 1.25, .*\[33\]"):
        fit(rare, x, y)
