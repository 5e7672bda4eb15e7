"""What a user promises of a loss: what follows from it, and promises that do not hold."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import _promises
from tests.erm import risks as own
from tests.erm.risks import DATA, HUBER, LAMBDA, fit, huber, linear


def weighted_classes(theta, row, label):
    """A softmax whose middle class weighs five times; of labels 0, 1 and 2."""
    scores = theta.reshape(3, -1) @ row
    label = label.astype(int)
    return jnp.array([1.0, 5.0, 1.0])[label] * (jnp.log(jnp.sum(jnp.exp(scores))) - scores[label])


def scaled_feature(theta, row, label):
    """Logistic; the last feature, which is 0 in the data, is scaled by 4."""
    return jnp.logaddexp(0, -label * jnp.dot(theta, row.at[-1].multiply(4)))


def logistic(theta, row, label):
    return jnp.logaddexp(0, -label * jnp.dot(theta, row))


def given(rows=40, zeros=0, label=None):
    """Short rows, the last feature unused, and the first ones empty."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-0.1, 0.1, (rows, 4))
    x[:, -1] = x[:zeros] = 0
    return x, rng.integers(0, 3, rows) if label is None else rng.choice(label, rows)


def tried(loss, data, dimension=4, **stated):
    """Whether promises hold wherever they are tried."""
    known = dict.fromkeys(f.name for f in dataclasses.fields(_promises.Promises))
    known |= {"regularisation": 0.1, "max_norm": 1.0, "lipschitz": 1.0} | stated
    promises = _promises.Promises(**known)
    _promises.Trials(loss, *data, promises).at_the_rim(dimension)


@pytest.mark.parametrize("label_range", [None, (0, 2)])
def test_classes_between_the_others_are_tried_on_the_longest_rows(label_range):
    of = {"dimension": 12, "label_range": label_range}
    tried(weighted_classes, given(), **of, lipschitz=5 * np.sqrt(2))
    with pytest.raises(ValueError, match=r"lipschitz = 1.4.*: must be at least [4-7]"):
        tried(weighted_classes, given(), **of, lipschitz=np.sqrt(2))


@pytest.mark.parametrize(
    ("loss", "data", "stated", "message"),
    [
        (logistic, given(zeros=2, label=(-1, 1)), {"lipschitz": 0.5}, "lipschitz = 0.5: must be"),
        (scaled_feature, given(label=(-1, 1)), {}, "lipschitz = 1.0: must be at least [1-4]"),
        (
            huber,
            given(label=(-1, 1)),
            {"label_range": (-1, 1), "loss_at_zero": (0.75, 0.75), "lowest_loss": 0.0},
            "loss_at_zero = .*: must be two around 0",
        ),
    ],
    ids=["empty rows first", "a feature that the data do not use", "labels within the range"],
)
def test_what_the_data_alone_would_not_show(loss, data, stated, message):
    with pytest.raises(ValueError, match=message):
        tried(loss, data, **stated)


FAR, REACH = 1 / LAMBDA, np.sqrt(1.5 / LAMBDA)
AT_ZERO = {"loss_at_zero": HUBER["loss_at_zero"]}
STEEP = HUBER | {"lipschitz": 2.0}


@pytest.mark.parametrize(
    ("promises", "radius", "spread"),
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
def test_the_ball_and_the_sensitivity_are_the_smallest_that_were_promised(promises, radius, spread):
    problem = fit(**promises)
    assert problem.utility.radius == pytest.approx(radius)
    assert np.linalg.norm(problem.value) <= radius
    stated = problem.utility_sensitivity, problem.excess_risk_sensitivity
    if spread is None:
        assert stated == (None, None)
    else:
        assert stated == pytest.approx((spread / 120, 2 * spread / 120), rel=2e-4)
    assert problem.utility.sensitivity == problem.utility_sensitivity


@pytest.mark.parametrize(
    ("loss", "promises"),
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
        ({"lipschitz": 0.99}, r"lipschitz = 0.99: must be at least 1, the gradient norm of .*at "),
        # At zero its gradient is below 1, and it is so at the optimum: only the ball shows it.
        (
            {"loss": own.squared, "label_range": (-1.0, 1.0)},
            r"lipschitz = 1.0: must be at least 2\d.*, the gradient norm of .* theta of norm 20",
        ),
        ({"lipschitz": 0.0}, "lipschitz = 0.0: must be above 0"),
        ({"lipschitz": np.inf}, "lipschitz = inf: must be above 0 and finite"),
        ({"regularisation": -1.0}, "regularisation = -1.0: must be above 0"),
        ({"max_norm": -1.0}, "max_norm = -1.0: must be above 0"),
        ({"radius": 0.5}, r"radius = 0.5: must be at least \d.*, the l2 norm of the optimum"),
        ({"loss_at_zero": (0.0, 0.5)}, r"loss_at_zero = \(0.0, 0.5\): must be two around 0.75"),
        ({"loss_at_zero": (0.01, 0.75)}, r"loss_at_zero = .* two around 0, .*features\[\d+\]"),
        ({"loss_at_zero": (1.0, 0.5)}, r"loss_at_zero = \(1.0, 0.5\): must be two finite numbers"),
        ({"loss_at_zero": 0.5}, r"loss_at_zero = 0.5: must be two finite numbers"),
        ({"lowest_loss": 0.01}, r"lowest_loss = 0.01: must be at most .* the loss of .* at theta"),
        (HUBER | {"lowest_loss": 0.01}, r"lowest_loss = 0.01: must be at most 0, the lowest loss_"),
        ({"loss_spread": 3.0}, r"loss_spread = 3.0: must be at least 2\d.*, by which another row"),
        ({"loss": own.sigmoid}, "loss = sigmoid: must be convex in theta, .* half way between"),
        ({"loss": own.norm}, "loss = norm: must be finite .* gradient's norm nan, for features"),
        ({"loss": own.vector}, r"loss = vector: must return a scalar .* returns .*\(4,\)"),
        ({"loss": own.narrow}, "loss = narrow: must return .* of its arguments' dtype, .*float32"),
        ({"loss": 3}, r"loss = 3: must be a function of theta, row and label"),
        ({"dimension": 0}, "dimension = 0: must be an integer, at least 1"),
    ],
)
def test_a_wrong_promise_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


def test_promises_are_tried_at_the_optimum(monkeypatch):
    seen, tried_at = [], _promises.Trials.at

    def watched(self, *thetas):
        seen.append(thetas)
        tried_at(self, *thetas)

    monkeypatch.setattr(_promises.Trials, "at", watched)
    problem = fit(**HUBER)
    np.testing.assert_array_equal(seen[-1][-1], problem.value)


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
