"""User-stated bounds on a loss: the constants that follow, and bounds that do not hold."""

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import _stated_bounds
from tests.erm import risks as own
from tests.erm.risks import DATA, HUBER, LAMBDA, fit, huber, linear


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        # Only a row of the largest norm shows it: those of the data have norm 0.1.
        ({"lipschitz": 0.5}, r"lipschitz must be at least 1, .*, scaled \(label"),
        # Only a label that the data do not have shows it.
        (
            {"label_range": (-1.0, 1.0), "loss_at_zero": (0.0, 0.5), "lowest_loss": 0.0},
            r"loss_at_zero must be two around 0.75",
        ),
    ],
)
def test_rows_and_labels_beyond_the_data_are_tried(stated, message):
    rows, labels = 0.1 * DATA[0] / np.linalg.norm(DATA[0], axis=1).max(), np.zeros(120)
    with pytest.raises(ValueError, match=message):
        fit(features=rows, labels=labels, **stated)


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
    stated = problem.utility_sensitivity, problem.excess_risk_sensitivity
    if spread is None:
        assert stated == (None, None)
    else:
        assert stated == pytest.approx((spread / 120, 2 * spread / 120), rel=2e-4)
    assert problem.utility.sensitivity == problem.utility_sensitivity


@pytest.mark.parametrize(
    ("loss", "stated"),
    [
        (huber, HUBER),
        (linear, {"loss_at_zero": (0.0, 0.0), "loss_spread": 2 / LAMBDA}),
        # Lipschitz on a ball alone: a prediction is at most sqrt(20) there.
        (own.squared, own.SQUARED),
        (own.with_offset, {"dimension": 5, "lipschitz": np.sqrt(2)}),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": with_label(1.5)} | HUBER, r"labels\[5\] must be in label_range = \(-1"),
        ({"labels": with_label(np.nan)}, r"labels\[5\] must be finite"),
        ({"lipschitz": 0.99}, r"lipschitz must be at least 1, the gradient norm of .*at "),
        # At zero its gradient is below 1, and it is so at the optimum: only the ball shows it.
        (
            {"loss": own.squared, "label_range": (-1.0, 1.0)},
            r"lipschitz must be at least 2\d.*, the gradient norm of .* theta of norm 20",
        ),
        ({"lipschitz": 0.0}, "lipschitz must be above 0"),
        ({"lipschitz": np.inf}, "lipschitz must be above 0 and finite"),
        ({"regularisation": -1.0}, "regularisation must be above 0"),
        ({"max_norm": -1.0}, "max_norm must be above 0"),
        ({"radius": 0.5}, r"radius must be at least \d.*, the l2 norm of the optimum"),
        ({"loss_at_zero": (0.0, 0.5)}, r"loss_at_zero must be two around 0.75"),
        ({"loss_at_zero": (0.01, 0.75)}, r"loss_at_zero = .* two around 0, .*features\[\d+\]"),
        ({"loss_at_zero": (1.0, 0.5)}, r"loss_at_zero must be two finite numbers"),
        ({"loss_at_zero": 0.5}, r"loss_at_zero must be two finite numbers"),
        ({"lowest_loss": 0.01}, r"lowest_loss must be at most .* the loss of .* at theta"),
        (HUBER | {"lowest_loss": 0.01}, r"lowest_loss must be at most 0, the lowest loss_"),
        (
            {"loss_spread": 3.0},
            r"loss_spread must be at least (19|2\d).*, by which another row",
        ),
        ({"loss": own.sigmoid}, "loss must be convex in theta, .* above the mean"),
        ({"loss": own.norm}, "loss must be finite .* gradient's norm nan, for features"),
        ({"loss": own.vector}, r"loss must return a scalar .* returns .*\(4,\)"),
        ({"loss": own.narrow}, "loss must return .* of its arguments' dtype, .*float32"),
        ({"loss": 3}, r"loss must be a function of theta, row and label"),
        ({"dimension": 0}, "dimension must be an integer, at least 1"),
    ],
)
def test_a_wrong_bound_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


@pytest.mark.parametrize("tile", [2**20, 200])
def test_a_wrong_bound_is_found_in_one_row(tile, monkeypatch):
    """One row among many breaks a bound, and is named; also when rows are tried in batches."""
    monkeypatch.setattr(_stated_bounds, "_TILE_SIZE", tile)

    def rare(theta, row, label):
        return huber(theta, row, label) * jnp.where(row[0] == 0.625, 2.0, 1.0)

    x, y = DATA[0].copy(), DATA[1].copy()
    x[33], y[33] = [0.625, 0.0, 0.0, 0.0], 1.0
    with pytest.raises(ValueError, match=r"lipschitz must be at least 1.25, .*\[33\]"):
        fit(rare, x, y)
