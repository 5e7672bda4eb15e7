"""zCDP and ex-post rounds side by side against an adversary, counted naively at deltas of 0.05.

The zCDP rounds are approximate: now and then one gives everything away.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.composition.requests import ZCDP, ExPost
from nrjax.composition.schedule import FilteredSchedule
from tests.composition.adversaries import DTYPE, Line, lanes

TRIALS, ERRORS, ROUNDS = 10_000, 4.5, 6  # standard errors
FAILS, EACH = 0.006, 0.02
FILTER = nrjax.SideBySideFilter(
    nrjax.ZCDPFilter(1.5, 0.05, approximation=0.02), nrjax.ExPostFilter(1.2, 0.05)
)
BOUNDARY = nrjax.OneSidedMixtureBoundary.tight_at_time(40.0, 1.0, EACH)
TIMES = np.geomspace(400, 4, 40).astype(DTYPE)


@functools.cache
def player():
    psi = np.asarray(BOUNDARY.epsilon(TIMES))

    def one(key, shift, fails):
        def play(carry, number):
            state, loss = carry
            round_key = nrjax.trial_key(key, 0, number)
            normal, coin = jax.random.split(jax.random.fold_in(round_key, 1))

            # A Gaussian mechanism: of a third of what is left, or of all of it to win or lose all.
            left = FILTER.remaining(state)[0]
            rho = left * jnp.where(number == ROUNDS - 2, 1, jnp.where(loss > 0, 0.2, 0.5))
            gaussian, ok = FILTER.take(state, ZCDP(rho, FAILS))
            gave = rho + jnp.sqrt(2 * rho) * jax.random.normal(normal, (), DTYPE)
            gave = jnp.where(jax.random.bernoulli(coin, fails), jnp.inf, gave)

            # Brownian noise, stopped as soon as the loss is above what the boundary charges.
            schedule = FilteredSchedule(
                nrjax.Grid(TIMES), FILTER, state, ExPost, guarantee=BOUNDARY
            )
            outcome = nrjax.run_until(
                round_key,
                nrjax.Interaction(
                    value=jnp.zeros((), DTYPE),
                    process=nrjax.Brownian(()),
                    guarantee=BOUNDARY,
                    schedule=schedule,
                    utility=Line(0.5 / TIMES - psi, shift / TIMES),
                    rule=nrjax.PublicThreshold(0.0),
                    shift=shift,
                ),
            )
            made = outcome.step >= 0
            brownian, paid = FILTER.spend(state, schedule.spent(outcome))
            seen = jnp.where(made, outcome.privacy_loss, 0)

            even = number % 2 == 0
            taken = jnp.where(even, ok, made)
            after = jax.tree.map(lambda a, b: jnp.where(even, a, b), gaussian, brownian)
            state = jax.tree.map(lambda a, b: jnp.where(taken, a, b), after, state)
            loss = loss + jnp.where(taken, jnp.where(even, gave, seen), 0)
            return (state, loss), even | ~made | paid

        start = FILTER.init(), jnp.zeros((), DTYPE)
        (state, loss), paid = jax.lax.scan(play, start, jnp.arange(ROUNDS))
        return loss, paid.all(), FILTER.remaining(state)

    return jax.jit(lambda shift, fails: lanes(lambda key: one(key, shift, fails), TRIALS))


def exceeded(shift, fails):
    """How often the loss exceeds the sum of the epsilons, and the standard error."""
    loss, paid, left = (np.asarray(column) for column in player()(DTYPE.type(shift), fails))
    assert np.all(paid)  # what the schedule let through was accepted
    assert np.all(left >= 0)
    share = float(np.mean(loss > float(FILTER.epsilon)))
    print(f"side by side: {share:.4f}, delta {float(FILTER.delta)}")
    return share, np.sqrt(share * (1 - share) / TRIALS)


def test_the_loss_exceeds_the_sum_of_both_with_the_sum_of_the_deltas():
    for shift in (1.0, -1.0):
        share, error = exceeded(shift, FAILS)
        assert share + ERRORS * error < float(FILTER.delta)
        assert share > 0.1 * float(FILTER.delta)  # the adversary is not idle


def test_planted_failures_that_were_not_charged():
    share, error = exceeded(1.0, 20 * FAILS)
    assert share - ERRORS * error > float(FILTER.delta)
