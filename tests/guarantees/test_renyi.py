"""The Rényi boundary: its cost, and no stopping rule gains more than delta."""

import numpy as np
import pytest

from nrjax.guarantees import LinearBoundary, RenyiBoundary
from tests.guarantees.oracle import best_gain, exceeds, hockey_stick

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

# Statement 13, at delta = 1e-6: epsilon, D2/sqrt(t), order, variance relative to the line.
PUBLISHED = [
    (0.1, 0.02534, 165.7, 0.562),
    (0.3, 0.07127, 62.7, 0.634),
    (1.0, 0.22071, 22.0, 0.717),
    (3.0, 0.60839, 8.9, 0.796),
]


@pytest.mark.parametrize(("epsilon", "x", "order", "ratio"), PUBLISHED)
def test_costs_less_than_the_linear_boundary(epsilon, x, order, ratio):
    found = RenyiBoundary.tight_at_epsilon(epsilon, 2.0, 1e-6)
    linear = LinearBoundary.tight_at_epsilon(epsilon, 2.0, 1e-6)
    time = float(found.time(epsilon))
    assert found.order == pytest.approx(order, abs=0.06)
    assert 2 / np.sqrt(time) == pytest.approx(x, abs=6e-6)
    assert time / float(linear.time(epsilon)) == pytest.approx(ratio, abs=6e-4)
    again = RenyiBoundary.tight_at_time(time, 2.0, 1e-6)
    assert again.order == pytest.approx(found.order, rel=1e-4)
    others = [RenyiBoundary(2.0, 1e-6, found.order * f) for f in (0.9, 0.99, 1.01, 1.1)]
    assert all(float(other.epsilon(time)) > epsilon for other in others)


@pytest.mark.parametrize("order", [1.0001, 1.5, 20.0, 1e6])
def test_rounded_up(order):
    """Epsilon is at least the formula in float64, and close to it."""
    order = float(np.float32(order))
    found = RenyiBoundary(1.5, 1e-6, order)
    times = np.geomspace(1e-3, 1e6, 50)
    exact = order * 1.5**2 / (2 * times) + np.log1p(-1 / order)
    exact += (np.log(1e6) - np.log(order)) / (order - 1)
    stated = np.asarray(found.epsilon(times), float)
    assert np.all(stated >= np.maximum(exact, 0) * (1 - 1e-14))
    np.testing.assert_allclose(stated, np.maximum(exact, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("delta", "epsilon"), [(0.05, 1.0), (1e-3, 1.0)])
def test_no_stopping_rule_gains_more_than_delta(delta, epsilon):
    found = RenyiBoundary.tight_at_epsilon(epsilon, 1.0, delta)
    last = 4 / float(found.time(epsilon))
    steps = np.full(160, last / 160)
    times = 1 / np.cumsum(steps)
    stated = np.asarray(found.epsilon(times), float)
    gain = best_gain(stated, steps, hockey_stick)
    assert 0.85 * delta < gain <= delta
    # Negative controls: an order chosen after the stop, and the boundaries' notion, which does not
    # hold, because the loss itself exceeds epsilon more often.
    chosen = np.asarray(RenyiBoundary.tight_at_time(times, 1.0, delta).epsilon(times), float)
    assert best_gain(chosen, steps, hockey_stick) > 1.1 * delta
    assert best_gain(stated, steps, exceeds) > 1.5 * delta


def test_names_its_notion_and_its_floor():
    found = RenyiBoundary.tight_at_epsilon(0.3, 1.0, 1e-6)
    assert found.notion == "hockey-stick"
    assert LinearBoundary.notion == "probabilistic"
    with pytest.raises(ValueError, match=r"epsilon must be finite and above 0\.1"):
        found.time(0.1)
    for order in (1.0, 0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"order must be"):
            RenyiBoundary(1.0, 1e-6, order)
