"""The ex-post filter against an adversary who stops a round where its loss exceeds its charge.

Counted naively, at a sum of deltas of 0.05.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.composition.ex_post import ExPostFilter
from nrjax.composition.requests import ExPost
from nrjax.composition.schedule import FilteredSchedule
from tests.composition.adversaries import DTYPE, Line, lanes

TRIALS, ERRORS = 5000, 4.5  # standard errors
SHIFTS = (1.0, -1.0)
EACH, ROUNDS = 0.01, 5
BOUNDARY = nrjax.OneSidedMixtureBoundary.tight_at_time(20.0, 1.0, EACH)


@functools.cache
def violations():
    """How often a round's loss exceeds its charge; and where that is 0.7 of the boundary's."""
    budget = ExPostFilter(20.0, 1.001 * EACH * ROUNDS)
    times = np.geomspace(400, 1, 60).astype(DTYPE)
    psi = np.asarray(BOUNDARY.epsilon(times))

    def one(key, shift, factor):
        def play(carry, number):
            state, over = carry
            schedule = FilteredSchedule(
                nrjax.Grid(times), budget, state, ExPost, guarantee=BOUNDARY
            )
            # Stop as soon as the loss is above what is charged; then there is nothing to add.
            line = Line(0.5 / times - factor * psi, shift / times)
            outcome = nrjax.run_until(
                nrjax.trial_key(key, 0, number),
                nrjax.Interaction(
                    value=jnp.zeros((), DTYPE),
                    process=nrjax.Brownian(()),
                    guarantee=BOUNDARY,
                    schedule=schedule,
                    utility=line,
                    rule=nrjax.PublicThreshold(0.0),
                    shift=shift,
                ),
            )
            made = outcome.step >= 0
            request = schedule.spent(outcome)
            state, ok = budget.spend(state, request)
            over |= made & (outcome.privacy_loss > factor * request.epsilon)
            return (state, over), ok

        start = budget.init(), jnp.asarray(False)
        (_, over), ok = jax.lax.scan(play, start, jnp.arange(ROUNDS))
        return over, ok.all()

    run = jax.jit(lambda shift, factor: lanes(lambda key: one(key, shift, factor), TRIALS))
    found = {}
    for shift, factor in ((1.0, 1.0), (-1.0, 1.0), (1.0, 0.7)):
        over, ok = run(DTYPE.type(shift), DTYPE.type(factor))
        assert np.all(ok)
        share = float(np.mean(over))
        found[shift, factor] = share, np.sqrt(share * (1 - share) / len(over))
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
