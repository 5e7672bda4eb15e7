"""Rényi certificates against adversaries in the engine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition as c
from nrjax.composition import certificates
from tests.composition.adversaries import DTYPE, Line, lanes, played, renyi_play

TRIALS, ERRORS = 20_000, 4.5  # standard errors
SHIFTS = (1.0, -1.0)


# A certificate C has `E exp(l (L - C)) <= 1`, where l is the order minus 1. Two tempting ones are
# false: `A e^2/2`, as for Brownian noise, and `min(C, e)`.
ORDER = 4.0


def moment(order, loss, cost):
    """Return `E exp(l (L - C))` and its standard error."""
    values = np.exp((order - 1) * (np.asarray(loss, float) - np.asarray(cost, float)))
    return values.mean(), values.std() / np.sqrt(values.size)


@functools.cache
def lone():
    """Return losses and `e = D1/t` of rounds that stop as soon as the noise is below a bar."""

    @jax.jit
    def run(times, bar):
        line = Line(jnp.full(times.shape, bar), jnp.full(times.shape, -1.0, DTYPE))

        def one(key):
            outcome = played(key, nrjax.Laplace(()), nrjax.Grid(times), line, DTYPE.type(-1))
            return outcome.privacy_loss, 1 / outcome.time

        return lanes(one, TRIALS // 2)

    plays = {
        # f(x') = f(x) + 1: below 1 the loss starts to rise, below 0 it is e.
        "early": (np.geomspace(30, 1, 400), 1.0),
        "late": (np.geomspace(8, 0.02, 400), 0.0),
    }
    return {
        name: [np.asarray(column, float) for column in run(times.astype(DTYPE), DTYPE.type(bar))]
        for name, (times, bar) in plays.items()
    }


def certified(epsilon):
    return np.asarray(certificates.laplace_reduction(ORDER, jnp.asarray(epsilon, DTYPE)), float)


@pytest.mark.parametrize("play", ["early", "late"])
@pytest.mark.parametrize("cost", [certified, np.asarray], ids=["C", "e"])
def test_certificates_of_laplace_noise_reduction(play, cost):
    """A round that stops early attains C, within the error."""
    loss, epsilon = lone()[play]
    value, error = moment(ORDER, loss, cost(epsilon))
    print(f"{value:.4f} +- {error:.4f}")
    assert 0.9 < value <= 1 + ERRORS * error
    assert error < 0.006
    if cost is certified and play == "early":
        assert abs(value - 0.9995) < ERRORS * error


@pytest.mark.parametrize(
    ("play", "cost", "least", "mean"),
    [
        ("early", lambda epsilon: 2 / 3 * certified(epsilon), 1, None),
        ("early", lambda epsilon: ORDER * epsilon**2 / 2, 1, 1.0465),
        ("late", lambda epsilon: np.minimum(certified(epsilon), epsilon), 1.1, None),
    ],
    ids=["two thirds of C", "A e^2/2", "min(C, e)"],
)
def test_planted_certificates_are_false(play, cost, least, mean):
    """For `min(C, e)`: stop early where that is good, else continue until the loss is e."""
    loss, epsilon = lone()[play]
    value, error = moment(ORDER, loss, cost(epsilon))
    print(f"{value:.4f} +- {error:.4f}")
    assert value - ERRORS * error > least
    assert mean is None or abs(value - mean) < ERRORS * error


MIXED_ORDER, ROUNDS, TIGHT = 3.0, 5, 2


@functools.cache
def mixed():
    """Return loss and cost after each round, (trials, rounds), for both signs of the shift."""
    budget = c.RenyiFilter(MIXED_ORDER, 6.6, 1e-6)
    leaves = jax.tree.map(jnp.asarray, budget)

    @jax.jit
    def run(leaves, shift):
        return lanes(lambda key: renyi_play(key, leaves, shift, ROUNDS)[1:], TRIALS)

    played = (run(leaves, DTYPE.type(shift)) for shift in SHIFTS)
    return budget, [[np.asarray(column, float) for column in columns] for columns in played]


@pytest.mark.long
def test_mixed_rounds_in_one_budget():
    """Brownian and Laplace rounds, coins and private tests, chosen by the loss so far."""
    budget, both = mixed()
    for loss, cost in both:
        assert np.all(np.diff(cost, axis=1) >= 0)
        assert np.max(cost) <= float(budget.budget) * (1 + 1e-5)  # a plain sum of its costs
        assert np.max(cost) > 0.9 * float(budget.budget)
        for number in range(ROUNDS):
            value, error = moment(MIXED_ORDER, loss[:, number], cost[:, number])
            print(f"after {number + 1} rounds: {value:.4f} +- {error:.4f}")
            assert value <= 1 + ERRORS * error
            assert error < 0.01
            # Brownian noise and coins attain their certificates, private tests do not.
            assert value > (0.97 if number < TIGHT else 0.5)


@pytest.mark.long
def test_planted_rounds_charged_too_little():
    """The adversary is strong enough to show costs that are too small by a third."""
    for loss, cost in mixed()[1]:
        value, error = moment(MIXED_ORDER, loss[:, TIGHT - 1], 2 / 3 * cost[:, TIGHT - 1])
        assert value - ERRORS * error > 1
