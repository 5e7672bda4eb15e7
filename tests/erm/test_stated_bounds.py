"""User-stated bounds on a loss: the constants that follow, and bounds that do not hold."""

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import _stated_bounds
from tests.erm import risks
from tests.erm.risks import DATA, HUBER, LAMBDA, fit, huber, linear

FAR, REACH = 1 / LAMBDA, np.sqrt(1.5 / LAMBDA)
AT_ZERO = {"loss_at_zero": HUBER["loss_at_zero"]}
STEEP = HUBER | {"lipschitz": 2.0}


@pytest.mark.parametrize(
    ("stated", "radius", "spread"),
    [
        ({}, FAR, None),
        ({"lowest_loss": 0.0}, FAR, None),
        ({"radius": 100.0}, FAR, None),
        (AT_ZERO, FAR, 2 * FAR + 0.75),
        (HUBER, REACH, REACH + 0.75),
        (STEEP, REACH, 2 * REACH + 0.75),
        (STEEP | {"loss_spread": 6.3}, REACH, 6.3),
        (HUBER | {"loss_spread": 50.0}, REACH, REACH + 0.75),
        (HUBER | {"radius": 2.0}, 2.0, 2.75),
    ],
)
def test_the_ball_and_the_sensitivity_are_the_smallest_that_follow(stated, radius, spread):
    problem = fit(**stated)
    assert problem.utility.radius == pytest.approx(radius)
    assert np.linalg.norm(problem.value) <= radius
    sensitivities = problem.utility_sensitivity, problem.excess_risk_sensitivity
    if spread is None:
        assert sensitivities == (None, None)
    else:
        assert sensitivities == pytest.approx((spread / 120, 2 * spread / 120), rel=2e-4)
    assert problem.utility.sensitivity == problem.utility_sensitivity


@pytest.mark.parametrize(
    ("loss", "stated"),
    [
        (huber, HUBER),
        (linear, {"loss_at_zero": (0.0, 0.0), "loss_spread": 2 / LAMBDA}),
        # Lipschitz on a ball only: a prediction is at most sqrt(20) there.
        (risks.squared, risks.SQUARED),
        (risks.with_offset, {"dimension": 5, "lipschitz": np.sqrt(2)}),
        (huber, {"max_norm": 3.0, "lipschitz": 3.0}),
        (huber, HUBER | {"label_range": np.array([-1, 1]), "loss_at_zero": np.array([0, 0.75])}),
    ],
)
def test_tight_bounds_pass(loss, stated):
    problem = fit(loss, **stated)
    assert problem.shape == problem.value.shape == (stated.get("dimension", 4),)
    assert problem.lipschitz == stated.get("lipschitz", 1.0)
    assert np.linalg.norm(problem.value) < problem.utility.radius


def with_label(label):
    y = DATA[1].copy()
    y[5] = label
    return y


def rare(theta, row, label):
    """Too steep for one row."""
    return huber(theta, row, label) * jnp.where(row[0] == 0.625, 2.0, 1.0)


def with_a_rare_row():
    x, y = DATA[0].copy(), DATA[1].copy()
    x[33], y[33] = [0.625, 0.0, 0.0, 0.0], 1.0
    return {"loss": rare, "features": x, "labels": y}


SHORT = {"features": 0.1 * DATA[0], "labels": np.zeros(120)}
MISTAKES = [
    ({"labels": with_label(1.5)} | HUBER, r"labels must be in label_range = .* \(row 5 is not\)"),
    ({"labels": with_label(np.nan)}, r"labels must be without missing values .*1 missing of 120"),
    ({"lipschitz": 0.99}, "lipschitz must be at least 1, a gradient norm"),
    # Only a row of the largest norm is too steep: those of the data have norm 0.1.
    (SHORT | {"lipschitz": 0.5}, "lipschitz must be at least 1, a gradient norm"),
    # Only a label that is not in the data has this loss.
    (SHORT | HUBER | {"loss_at_zero": (0.0, 0.5)}, "loss_at_zero must be .* 0.75"),
    # The gradient norm at zero and at the optimum is below 1: only the ball's boundary is steeper.
    ({"loss": risks.squared, "label_range": (-1.0, 1.0)}, r"lipschitz must be at least 2\d"),
    ({"lipschitz": 0.0}, "lipschitz must be positive and finite"),
    ({"lipschitz": np.inf}, "lipschitz must be positive and finite"),
    ({"regularisation": -1.0}, "regularisation must be positive"),
    ({"max_norm": -1.0}, "max_norm must be positive"),
    ({"radius": 0.5}, r"radius must be at least \d.*, the l2 norm of the optimum"),
    ({"loss_at_zero": (0.0, 0.5)}, "loss_at_zero must be .* 0.75"),
    ({"loss_at_zero": (0.01, 0.75)}, "loss_at_zero must be .* losses at zero 0 and"),
    ({"loss_at_zero": (1.0, 0.5)}, "loss_at_zero must be finite numbers"),
    ({"loss_at_zero": 0.5}, "loss_at_zero must be finite numbers"),
    ({"lowest_loss": 0.01}, "lowest_loss must be at most .*, a loss in the ball"),
    (HUBER | {"lowest_loss": 0.01}, "lowest_loss must be at most 0 and below 0.75"),
    (HUBER | {"loss_at_zero": (0.0, 0.0)}, "lowest_loss must be at most 0 and below 0"),
    ({"loss_spread": 3.0}, r"loss_spread must be at least (19|2\d)"),
    ({"loss": risks.sigmoid}, "loss must be convex in theta"),
    ({"loss": risks.norm}, "loss must be finite and differentiable"),
    ({"loss": risks.vector}, r"the result of loss must be a scalar .*\(4,\)"),
    ({"loss": risks.narrow}, "result of loss must be .* of its arguments' dtype .*float32"),
    ({"loss": 3}, "loss must be a function of theta, row and label"),
    ({"dimension": 0}, "dimension must be an integer, at least 1"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_wrong_bound_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


@pytest.mark.parametrize("tile", [2**20, 200])
def test_one_row_among_many_refutes_a_bound_in_any_batches(tile, monkeypatch):
    monkeypatch.setattr(_stated_bounds, "_TILE_SIZE", tile)
    with pytest.raises(ValueError, match=r"lipschitz must be at least 1.25"):
        fit(**with_a_rare_row())
