"""Rounds that are paid for by a boundary, alone and beside zCDP rounds, against an adversary.

It stops a round where its loss exceeds the charge. Counted naively, at deltas of 0.05 in all. The
zCDP rounds are approximate: now and then one gives everything away.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.composition.ex_post import ExPostFilter
from nrjax.composition.requests import ZCDP
from tests.composition.adversaries import DTYPE, boundary_round, lanes

ERRORS = 4.5  # standard errors
SHIFTS = (1.0, -1.0)


def share_of(over):
    """How often it was so, and the standard error."""
    share = float(np.mean(over))
    return share, np.sqrt(share * (1 - share) / len(over))


EACH, ROUNDS, TRIALS = 0.01, 5, 5000


@functools.cache
def violations():
    """How often a round's loss exceeds its charge; and where that is 0.7 of the boundary's."""
    boundary = nrjax.OneSidedMixtureBoundary.tight_at_time(20.0, 1.0, EACH)
    budget = ExPostFilter(20.0, 1.001 * EACH * ROUNDS)
    times = np.geomspace(400, 1, 60).astype(DTYPE)

    def one(key, shift, factor):
        def play(carry, number):
            state, over = carry
            round_key = nrjax.trial_key(key, 0, number)
            outcome, request = boundary_round(
                round_key, budget, state, boundary, times, shift, factor
            )
            state, ok = budget.spend(state, request)
            over |= (outcome.step >= 0) & (outcome.privacy_loss > factor * request.epsilon)
            return (state, over), ok

        start = budget.init(), jnp.asarray(False)
        (_, over), ok = jax.lax.scan(play, start, jnp.arange(ROUNDS))
        return over, ok.all()

    run = jax.jit(lambda shift, factor: lanes(lambda key: one(key, shift, factor), TRIALS))
    found = {}
    for shift, factor in ((1.0, 1.0), (-1.0, 1.0), (1.0, 0.7)):
        over, ok = run(DTYPE.type(shift), DTYPE.type(factor))
        assert np.all(ok)
        found[shift, factor] = share_of(over)
    return found


def test_ex_post_filter():
    """Some round's loss exceeds its epsilon with at most the sum of the deltas, counted naively."""
    for shift in SHIFTS:
        share, error = violations()[shift, 1.0]
        print(f"ex-post: {share:.4f} +- {error:.4f}, delta {EACH * ROUNDS}")
        assert share <= EACH * ROUNDS + ERRORS * error
        assert share > 0.25 * EACH * ROUNDS


def test_planted_ex_post_rounds_charged_too_little():
    share, error = violations()[1.0, 0.7]
    assert share - ERRORS * error > EACH * ROUNDS


FAILS, BOTH_ROUNDS, BOTH_TRIALS = 0.006, 6, 10_000
BOTH = nrjax.SideBySideFilter(
    nrjax.ZCDPFilter(1.5, 0.05, approximation=0.02), nrjax.ExPostFilter(1.2, 0.05)
)


@functools.cache
def player():
    boundary = nrjax.OneSidedMixtureBoundary.tight_at_time(40.0, 1.0, 0.02)
    times = np.geomspace(400, 4, 40).astype(DTYPE)

    def one(key, shift, fails):
        def play(carry, number):
            state, loss = carry
            round_key = nrjax.trial_key(key, 0, number)
            normal, coin = jax.random.split(jax.random.fold_in(round_key, 1))

            # A Gaussian mechanism: of a third of what is left, or of all of it to win or lose all.
            left = BOTH.remaining(state)[0]
            rho = left * jnp.where(number == BOTH_ROUNDS - 2, 1, jnp.where(loss > 0, 0.2, 0.5))
            gaussian, ok = BOTH.take(state, ZCDP(rho, FAILS))
            gave = rho + jnp.sqrt(2 * rho) * jax.random.normal(normal, (), DTYPE)
            gave = jnp.where(jax.random.bernoulli(coin, fails), jnp.inf, gave)

            outcome, request = boundary_round(round_key, BOTH, state, boundary, times, shift)
            made = outcome.step >= 0
            brownian, paid = BOTH.spend(state, request)
            seen = jnp.where(made, outcome.privacy_loss, 0)

            even = number % 2 == 0
            taken = jnp.where(even, ok, made)
            after = jax.tree.map(lambda a, b: jnp.where(even, a, b), gaussian, brownian)
            state = jax.tree.map(lambda a, b: jnp.where(taken, a, b), after, state)
            loss = loss + jnp.where(taken, jnp.where(even, gave, seen), 0)
            return (state, loss), even | ~made | paid

        start = BOTH.init(), jnp.zeros((), DTYPE)
        (state, loss), paid = jax.lax.scan(play, start, jnp.arange(BOTH_ROUNDS))
        return loss, paid.all(), BOTH.remaining(state)

    return jax.jit(lambda shift, fails: lanes(lambda key: one(key, shift, fails), BOTH_TRIALS))


def exceeded(shift, fails):
    """How often the loss exceeds the sum of the epsilons, and the standard error."""
    loss, paid, left = (np.asarray(column) for column in player()(DTYPE.type(shift), fails))
    assert np.all(paid)  # what the schedule let through was accepted
    assert np.all(left >= 0)
    share, error = share_of(loss > float(BOTH.epsilon))
    print(f"side by side: {share:.4f}, delta {float(BOTH.delta)}")
    return share, error


def test_the_loss_exceeds_the_sum_of_both_with_the_sum_of_the_deltas():
    for shift in SHIFTS:
        share, error = exceeded(shift, FAILS)
        assert share + ERRORS * error < float(BOTH.delta)
        assert share > 0.1 * float(BOTH.delta)  # the adversary is not idle


def test_planted_failures_that_were_not_charged():
    share, error = exceeded(1.0, 20 * FAILS)
    assert share - ERRORS * error > float(BOTH.delta)
