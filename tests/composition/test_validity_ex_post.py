"""Rounds that are paid for by a boundary, alone and beside zCDP rounds, against an adversary.

It stops a round where its loss exceeds the charge. Counted naively, at deltas of 0.05 in all. The
zCDP rounds are approximate: now and then one gives everything away.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.composition import ZCDP, ExPostFilter
from nrjax.composition._state import choose
from tests.composition.adversaries import DTYPE, boundary_round, lanes

ERRORS = 4.5  # standard errors
SHIFTS = (1.0, -1.0)
EACH, FAILS = 0.01, 0.006
ALONE = ExPostFilter(20.0, 1.001 * 5 * EACH)
BOTH = nrjax.SideBySideFilter(
    nrjax.ZCDPFilter(1.5, 0.05, approximation=0.02), nrjax.ExPostFilter(1.2, 0.05)
)
PLAYS = {  # the filter, its boundary, the times of a round, rounds and trials
    "alone": (ALONE, (20.0, 1.0, EACH), np.geomspace(400, 1, 60), 5, 5000),
    "beside zCDP": (BOTH, (40.0, 1.0, 0.02), np.geomspace(400, 4, 40), 6, 10_000),
}


@functools.cache
def player(name):
    """Whether a round's loss exceeds `factor` times its charge; the loss; and what remains."""
    filter, tight, times, rounds, trials = PLAYS[name]
    boundary, times = nrjax.OneSidedMixtureBoundary.tight_at_time(*tight), times.astype(DTYPE)

    def mechanism(key, state, loss, number, fails):
        """A Gaussian one: of a third of what is left, or of all of it to win or lose all."""
        normal, coin = jax.random.split(jax.random.fold_in(key, 1))
        left = filter.remaining(state)[0]
        rho = left * jnp.where(number == rounds - 2, 1, jnp.where(loss > 0, 0.2, 0.5))
        after, ok = filter.take(state, ZCDP(rho, FAILS))
        gave = rho + jnp.sqrt(2 * rho) * jax.random.normal(normal, (), DTYPE)
        gave = jnp.where(jax.random.bernoulli(coin, fails), jnp.inf, gave)
        return choose(ok, after, state), jnp.where(ok, gave, 0)

    def one(key, shift, factor, fails):
        def play(carry, number):
            state, loss, over = carry
            round_key = nrjax.trial_key(key, 0, number)
            outcome, request = boundary_round(
                round_key, filter, state, boundary, times, shift, factor
            )
            made = outcome.step >= 0
            paid, ok = filter.spend(state, request)
            after = choose(made, paid, state), loss + jnp.where(made, outcome.privacy_loss, 0)
            exceeds = made & (outcome.privacy_loss > factor * request.epsilon)
            if filter.takes(ZCDP):
                even = number % 2 == 0
                released, gave = mechanism(round_key, state, loss, number, fails)
                after = choose(even, (released, loss + gave), after)
                exceeds, ok = exceeds & ~even, ok | even
            return (*after, over | exceeds), ok | ~made

        start = filter.init(), jnp.zeros((), DTYPE), jnp.asarray(False)
        (state, loss, over), ok = jax.lax.scan(play, start, jnp.arange(rounds))
        return over, loss, ok.all(), filter.remaining(state)

    return jax.jit(lambda *numbers: lanes(lambda key: one(key, *numbers), trials))


def exceeded(name, shift, factor=1.0, fails=FAILS):
    """How often some charge, or the sum of the epsilons, is exceeded, and the standard error."""
    numbers = (DTYPE.type(number) for number in (shift, factor, fails))
    over, loss, paid, left = (np.asarray(column) for column in player(name)(*numbers))
    assert np.all(paid)  # what the schedule let through was accepted
    assert np.all(left >= 0)
    share = float(np.mean(over if name == "alone" else loss > float(BOTH.epsilon)))
    print(f"{name}: {share:.4f}")
    return share, np.sqrt(share * (1 - share) / len(over))


@pytest.mark.parametrize("name", ["alone", pytest.param("beside zCDP", marks=pytest.mark.long)])
def test_losses_exceed_their_charges_with_at_most_the_sum_of_the_deltas(name):
    delta, least, sign = (5 * EACH, 0.25, 1) if name == "alone" else (float(BOTH.delta), 0.1, -1)
    for shift in SHIFTS:
        share, error = exceeded(name, shift)
        assert share <= delta + sign * ERRORS * error
        assert share > least * delta  # the adversary is not idle


@pytest.mark.long
def test_planted_rounds_charged_too_little_and_failures_not_charged():
    for name, delta, changes in (
        ("alone", 5 * EACH, {"factor": 0.7}),
        ("beside zCDP", float(BOTH.delta), {"fails": 20 * FAILS}),
    ):
        share, error = exceeded(name, 1.0, **changes)
        assert share - ERRORS * error > delta
