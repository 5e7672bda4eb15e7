"""Bounds on fourth moments of rows: they hold for hostile rows, and are close for even ones."""

import numpy as np
import pytest

from nrjax.erm import _fourth
from nrjax.erm._fourth import fourth_moment

COUNT, SIZE = 3000, 5


def table(name):
    """Return rows and weights of a name."""
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(COUNT, SIZE)), np.full(COUNT, 1 / COUNT)
    if name == "one direction":
        rows = np.outer(rng.choice([-1.0, 1.0], COUNT), np.arange(1.0, SIZE + 1))
    elif name == "one row":
        rows[7] *= 1e4
    elif name == "falling weights":
        weights = 10.0 ** -np.linspace(0, 300, COUNT)
    elif name == "clusters":
        rows = 0.01 * rows + rng.normal(size=(4, SIZE))[rng.integers(4, size=COUNT)]
    elif name == "axes":
        rows = np.eye(SIZE)[np.arange(COUNT) % SIZE]
    elif name == "fewer rows":
        rows, weights = rows[:3], weights[:3]
    elif name == "small":
        rows = 1e-30 * rows
    elif name == "nothing":
        rows = 0 * rows
    return rows, weights


NAMES = ["even", "one direction", "one row", "falling weights", "clusters", "axes"]
NAMES += ["fewer rows", "small", "nothing"]


def extremes(rows, weights):
    """Return the smallest and largest moment over directions, by random starts and ascent."""
    rng = np.random.default_rng(1)
    size = rows.shape[1]
    longest = rows[np.argmax(weights**0.25 * np.linalg.norm(rows, axis=1))]
    v = np.concatenate([rng.normal(size=(40, size)), np.eye(size), longest[None]]).T
    found = []
    for _ in range(60):
        length = np.linalg.norm(v, axis=0)
        v = v[:, length > 0] / length[length > 0]
        along = rows @ v
        square = along * along
        found.append(weights @ (square * square))
        v = rows.T @ (weights[:, None] * square * along)  # a step of the power method
    found = np.concatenate(found)
    return found.min(), found.max()


@pytest.mark.parametrize("name", NAMES)
def test_bounds_contain_the_moment_along_all_directions(name):
    rows, weights = table(name)
    low, high = fourth_moment(rows, weights, np.eye(SIZE))
    least, most = extremes(rows, weights)
    assert 0 <= low <= least * (1 + 1e-12)
    assert most * (1 - 1e-12) <= high
    if name in ("one direction", "one row", "axes"):  # where the largest is attained
        assert high <= 1.01 * most
    if name == "even":
        assert high < 1.4 * most
        assert low > 0.6 * least
    # The trace, which is the best bound without the tensor, is the bound for a single direction.
    assert high <= (weights @ np.sum(rows * rows, axis=1) ** 2) * (1 + 1e-3)


@pytest.mark.parametrize("block", [64, 512])
def test_the_error_of_float32_is_within_its_allowance(block, monkeypatch):
    monkeypatch.setattr(_fourth, "_ROWS", block)
    allowance, below = (block + 16) * 2.0**-24, 0
    for size in range(2, 14):  # of equal rows, which are rounded the same way
        high = fourth_moment(np.ones((COUNT, size)), np.ones(COUNT), np.eye(size))[1]
        exact = COUNT * size**2
        assert exact < high < exact * (1 + 2.1 * allowance)
        below += high - allowance * exact < exact * (1 - 1e-7)
    assert below > 0  # planted fault: no allowance


def test_directions_are_applied_to_the_rows():
    rows, weights = table("even")
    directions = np.random.default_rng(2).normal(size=(SIZE, 3))
    expected = fourth_moment(rows @ directions, weights, np.eye(3))
    np.testing.assert_allclose(fourth_moment(rows, weights, directions), expected, rtol=1e-5)


def test_the_tensor_is_that_of_a_plain_sum():
    rows = np.random.default_rng(3).normal(size=(700, 4)).astype(np.float32)
    exact = np.einsum("ri,rj,rk,rl->ijkl", *[rows.astype(float)] * 4)
    found = _fourth._tensor(rows)
    ordered = np.all(np.diff(np.indices(found.shape), axis=0) >= 0, axis=0)
    np.testing.assert_allclose(found[ordered], exact[ordered], atol=2e-2)
    assert np.all(found[~ordered] == 0)
