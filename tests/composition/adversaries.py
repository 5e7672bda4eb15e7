"""Adversaries in the engine: rounds under one filter, played to raise the privacy loss.

The value is 0 under x and `-shift` under x', with sensitivity 1. The adversary knows both, sees
every release, and chooses mechanisms, times and stopping by the releases so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nrjax
from nrjax import composition as c
from nrjax._base.outcome import Status
from nrjax.composition._state import select

DTYPE = np.dtype(jnp.result_type(float))
ALWAYS = nrjax.PublicThreshold(0.0)


class Line(nrjax.Utility):
    """A utility `base + slope release`, for fields of shape (steps,)."""

    base: Any
    slope: Any

    def evaluate(self, hypothesis):
        return self.base + self.slope * hypothesis


def with_budget(filter, budget):
    """Return a copy of a filter with another budget."""
    copy = jax.tree.map(lambda leaf: leaf, filter)
    object.__setattr__(copy, "budget", budget)
    return copy


def lanes(function, trials, seed=0):
    """Return `function(key)` for many trials."""
    keys = jax.vmap(nrjax.trial_key, (None, 0))(jax.random.key(seed), jnp.arange(trials))
    return jax.vmap(function)(keys)


def played(key, process, schedule, line, shift, value=0.0, guarantee=None, rule=ALWAYS):
    """Return the outcome of one round, against a neighbour whose value differs by `shift`."""
    trial = nrjax.Interaction(
        value=jnp.asarray(value, DTYPE),
        process=process,
        guarantee=guarantee,
        schedule=schedule,
        utility=nrjax.UtilitySequence(line, rule.sensitivity),
        rule=rule,
        shift=shift,
    )
    return nrjax.run_until(key, trial)


class Spent(NamedTuple):
    """The state of a play under Brownian noise.

    `total` is `sum 1/t` and `position` is `sum release/t`. A path simulated with the value `drift`
    in place of 0 has the true density `exp(-drift position + drift^2 total/2)`.
    """

    filter: Any
    total: Any
    position: Any
    loss: Any
    over: Any


def brownian_play(
    key, budget, goal, shift, drift, rounds, factor, reach=None, levels=10, ratios=(0.5, 0.8)
):
    """Play rounds of Brownian noise that end as soon as the loss is above a goal.

    Args:
        key: random key.
        budget: a filter; None for rounds up to `1/t = reach`.
        goal: a function of `sum 1/t`.
        shift: `f(x) - f(x')`, +1 or -1.
        drift: shift of the noise for tilted sampling, along `shift`.
        rounds: number of rounds.
        factor: the schedule's filter has this multiple of the budget.
        reach: see `budget`.
        levels: number of levels of a round.
        ratios: ratio of their `1/t` where the loss is positive, and where it is not.
    """
    zero = jnp.zeros((), DTYPE)
    bounding = None if budget is None else with_budget(budget, factor * budget.budget)
    start = Spent(None if budget is None else budget.init(), zero, zero, zero, jnp.asarray(False))

    def step(state, number):
        lucky = state.position * shift > 0
        if bounding is None:
            most = reach * jnp.where(lucky, 1, 0.3)
        else:
            # Times go beyond the last admitted one, which the schedule must prevent.
            most = 1 / bounding.smallest_time(state.filter, c.BrownianReduction, 1.0)
        # A coarse or a fine grid, of all that is left or of a part.
        fraction = jnp.where(number == rounds - 1, 1, jnp.where(lucky, 0.6, 0.3))
        ratio = jnp.where(lucky, *ratios).astype(DTYPE)
        steps = jnp.arange(levels - 2, -2, -1)
        clock = jnp.where(steps < 0, 1.5, ratio ** jnp.maximum(steps, 0)) * fraction * most
        # Or a Gaussian mechanism: a single release. If nothing is left there is no time.
        single = (number % 2 == 1) & ~lucky
        clock = jnp.where(single, clock[levels // 2], clock)
        times = jnp.where(state.over | ~(clock > 0), jnp.inf, 1 / clock).astype(DTYPE)
        clock = jnp.where(times < jnp.inf, clock, 1)
        base = state.loss + 0.5 * clock - goal(state.total + clock)
        line = Line(base, jnp.broadcast_to(shift * clock, base.shape))
        schedule = nrjax.Grid(times)
        if bounding is not None:
            schedule = c.FilteredSchedule(
                schedule, bounding, state.filter, c.BrownianReduction, 1.0
            )
        round_key = nrjax.trial_key(key, 0, number)
        outcome = played(round_key, nrjax.Brownian(()), schedule, line, shift, drift * shift)
        made = outcome.step >= 0
        used = jnp.where(made, 1 / outcome.time, 0)
        step = jnp.where(made, used * outcome.release, 0)
        # The engine's loss is of the noise it drew, whose mean the drift has moved.
        loss = state.loss + jnp.where(made, outcome.privacy_loss + used * drift, 0)
        over = state.over | (outcome.status == Status.STOPPED)
        after = None
        if budget is not None:
            paid = jnp.where(made, used, 1)
            fixed = budget.spend(state.filter, c.GDP(jnp.sqrt(paid)))
            swept = budget.spend(state.filter, c.BrownianReduction(1.0, 1 / paid))
            after, ok = select(single, fixed, swept)
            after = select(made, after, state.filter)
            over |= made & ~ok  # it has overshot
        total, position = state.total + used, state.position + step
        return Spent(after, total, position, loss, over), None

    return lax.scan(step, start, jnp.arange(rounds))[0]


class Tally(NamedTuple):
    """The state of a play under a Rényi filter, with the sums of losses and costs."""

    filter: Any
    loss: Any
    cost: Any


TEST = nrjax.AboveThreshold(0.5, 1.0, 0.3)
ANSWERED = 0.0  # utility under x; under x' it is lower or higher by 1
COIN = 0.2  # epsilon of randomised response


def _yes(utility):
    """Return the probability of a positive answer of `TEST`, from its two noises."""
    gap = TEST.threshold - utility
    y = jnp.exp(-TEST.epsilon * jnp.abs(gap) / (4 * TEST.sensitivity))
    tail = (2 / 3) * y - y * y / 6
    return jnp.where(gap >= 0, tail, 1 - tail)


def renyi_play(key, budget, shift, rounds, levels=16):
    """Play rounds of noise of both kinds, coins and private tests under one Rényi filter.

    A test is of a single release with Laplace noise, which is charged by its epsilon. The next
    round, its length and its stop depend on the loss so far. Returns the `Tally` after each round,
    with a leading axis.
    """

    def pay(tally, loss, request, made):
        state, accepted = budget.spend(tally.filter, request)
        state = select(made, state, tally.filter)
        # A refused cost counts as NaN, which a test will find.
        cost = jnp.where(accepted, budget.cost(request), jnp.nan)
        loss, cost = (jnp.where(made, more, 0) for more in (loss, cost))
        return Tally(state, tally.loss + loss, tally.cost + cost)

    def release(
        tally, key, kind, process, times, line, rule=None, guarantee=None, answers=(0.0, 0.0)
    ):
        """Play a round and charge it, where `answers` are the losses of a yes and of a no."""
        grid, stop = nrjax.Grid(times), rule or ALWAYS
        schedule = c.FilteredSchedule(grid, budget, tally.filter, kind, 1.0, rule, guarantee)
        outcome = played(key, process, schedule, line, shift, guarantee=guarantee, rule=stop)
        loss = outcome.privacy_loss + jnp.where(outcome.status == Status.STOPPED, *answers)
        return pay(tally, loss, schedule.spent(outcome), outcome.step >= 0)

    def step(tally, number):
        lucky = tally.loss > tally.cost
        round_key = nrjax.trial_key(key, 0, number)
        most = jnp.where(lucky, 0.4, 0.9).astype(DTYPE)
        epsilons = most * jnp.geomspace(0.05, 1, levels, dtype=DTYPE)
        bar = jnp.where(lucky, 0.0, 1.0).astype(DTYPE)

        def brownian(tally):
            clock = 0.25 * epsilons * epsilons
            # Until the loss exceeds twice the cost.
            line = Line(0.5 * clock * (1 - 2 * budget.order), shift * clock)
            process = nrjax.Brownian(())
            return release(tally, round_key, c.BrownianReduction, process, 1 / clock, line)

        def laplace(tally):
            line = Line(jnp.broadcast_to(bar, (levels,)), jnp.full(levels, shift, DTYPE))
            process = nrjax.Laplace(())
            return release(tally, round_key, c.LaplaceReduction, process, 1 / epsilons, line)

        def with_a_test(tally):
            line = Line(jnp.full(1, ANSWERED, DTYPE), jnp.zeros(1, DTYPE))
            parts = c.ExPost, nrjax.Laplace(()), 1 / epsilons[levels // 2 :][:1], line
            here, there = _yes(ANSWERED), _yes(ANSWERED + shift)
            answers = jnp.log(here / there), jnp.log((1 - here) / (1 - there))
            return release(tally, round_key, *parts, TEST, nrjax.PureGuarantee(1.0), answers)

        def coin(tally):
            odds = jax.nn.sigmoid(jnp.asarray(COIN, DTYPE))
            heads = jax.random.bernoulli(round_key, odds)
            made = budget.admits(tally.filter, c.Pure(COIN))
            return pay(tally, jnp.where(heads, COIN, -COIN), c.Pure(COIN), made)

        branches = brownian, laplace, coin, with_a_test
        tally = lax.switch((number + lucky) % len(branches), branches, tally)
        return tally, tally

    zero = jnp.zeros((), DTYPE)
    start = Tally(budget.init(), zero, zero)
    return lax.scan(step, start, jnp.arange(rounds))[1]
