"""Stated sensitivities against a search over rows, labels and hypotheses."""

import numpy as np
import pytest

from nrjax.erm import sensitivity
from tests.erm.risks import in_ball

ROWS = 200


def logistic(prediction, label):
    return np.logaddexp(0, -label * prediction)


def squared(prediction, label):
    return 0.5 * (prediction - label) ** 2


# Loss, admissible labels, and the stated sensitivities.
CASES = (
    (logistic, (-1.0, 1.0), sensitivity.logistic_loss, sensitivity.logistic_excess_risk),
    (squared, (-1.0, -0.3, 0.0, 1.0), sensitivity.squared_loss, sensitivity.squared_excess_risk),
)


@pytest.mark.parametrize("radius", [0.4, 1.0, 5.27])
@pytest.mark.parametrize(("loss", "labels", "stated", "_"), CASES)
def test_a_row_moves_the_mean_loss_as_far_as_stated(loss, labels, stated, _, radius):
    """Random rows and hypotheses, and rows along the hypothesis; exact in n, since it cancels."""
    rng = np.random.default_rng(0)
    theta = in_ball(rng, 400, 3, radius)
    rows = np.concatenate([in_ball(rng, 400, 3), theta / radius, -theta / radius, np.zeros((1, 3))])
    predictions = theta @ rows.T
    losses = np.stack([loss(predictions, label) for label in labels])
    spread = losses.max(axis=(0, 2)) - losses.min(axis=(0, 2))
    assert np.all(spread / ROWS <= stated(ROWS, radius) * (1 + 1e-12))
    assert spread.max() / ROWS > 0.999 * stated(ROWS, radius)
    # A ball that is a tenth smaller than the hypotheses need: the search sees it.
    assert np.any(spread / ROWS > stated(ROWS, 0.9 * radius))


@pytest.mark.parametrize(
    ("loss", "labels", "plain", "stated", "radius"),
    [(*CASES[0], 4.0), (*CASES[1], 1.0), (*CASES[0], 0.5), (*CASES[1], 3.0)],
)
def test_a_row_moves_the_excess_risk_as_far_as_stated(loss, labels, plain, stated, radius):
    """In one dimension, where the minimum over the ball is read off a grid."""
    theta = np.linspace(-radius, radius, 401)
    rng = np.random.default_rng(1)

    def excess(rows, labels):
        risk = np.mean(loss(theta * rows[:, None], labels[:, None]), axis=0) + 1e-9 * theta**2
        return risk - risk.min()

    largest = 0.0
    for trial in range(90):
        rows, chosen = rng.uniform(-1, 1, ROWS), rng.choice(labels, ROWS)
        if trial % 3 == 0:  # rows that pull one way; the changed one agrees, then does not
            rows, chosen = np.ones(ROWS), np.ones(ROWS)
        other_rows, other_labels = rows.copy(), chosen.copy()
        other_rows[0] = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)])
        other_labels[0] = rng.choice(labels)
        moved = np.abs(excess(rows, chosen) - excess(other_rows, other_labels)).max()
        assert moved <= stated(ROWS, radius) * (1 + 1e-12)
        largest = max(largest, moved)
    # What the plain loss moves by is not enough where the minimum moves the other way.
    assert stated(ROWS, radius) == pytest.approx(2 * plain(ROWS, radius))
    if radius in (4.0, 1.0, 0.5):
        assert largest > 1.9 * plain(ROWS, radius)


def test_values():
    assert sensitivity.output_l2(10_000, 0.05) == pytest.approx(2 / 500)
    assert sensitivity.output_l2(10_000, 0.05, 3.0, 1e-3) == pytest.approx(6 / 500 + 0.04)
    assert sensitivity.output_l1(10_000, 0.05, 16) == pytest.approx(8 / 500)
    assert sensitivity.logistic_loss(10_000, 5.0) == pytest.approx(5e-4)
    assert sensitivity.squared_loss(10_000, 4.0) == pytest.approx(25 / 20_000)
    assert sensitivity.bounded_loss(10_000, 3.0) == pytest.approx(3e-4)
