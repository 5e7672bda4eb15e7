"""Adversaries inside the engine: rounds under one filter, played to push the privacy loss up.

The value is 0 under x and `-shift` under x', sensitivity 1. The adversary knows both, sees every
release, and chooses mechanism, times and stopping by what has come out so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nrjax
from nrjax import composition as c
from nrjax.composition._state import select
from nrjax.types import Status

DTYPE = np.dtype(jnp.result_type(float))
ALWAYS = nrjax.PublicThreshold(0.0)


class Line(nrjax.Utility):
    """`base + slope release`; of several steps they have the shape (steps,)."""

    base: Any
    slope: Any

    def evaluate(self, hypothesis):
        return self.base + self.slope * hypothesis


def with_budget(filter, budget):
    """A filter whose budget was tampered with."""
    copy = jax.tree.map(lambda leaf: leaf, filter)
    object.__setattr__(copy, "budget", budget)
    return copy


def lanes(function, trials, seed=0):
    """`function(key)` for many trials."""
    keys = jax.vmap(nrjax.trial_key, (None, 0))(jax.random.key(seed), jnp.arange(trials))
    return jax.vmap(function)(keys)


def played(key, process, schedule, line, shift, value=0.0, guarantee=None, rule=ALWAYS):
    """The outcome of one round, against a neighbour whose value differs by `shift`."""
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
    """Where a play under Brownian noise stands: `total` is `sum 1/t`, `position` `sum release/t`.

    Simulated with a value of `drift` in place of 0, a path has the true density
    `exp(-drift position + drift^2 total/2)`.
    """

    filter: Any
    total: Any
    position: Any
    loss: Any
    over: Any


def brownian_play(
    key, budget, goal, shift, drift, rounds, factor, reach=None, levels=10, ratios=(0.5, 0.8)
):
    """Rounds of Brownian noise, stopped for good as soon as the loss is above a goal.

    The `goal` is a function of `sum 1/t`; `shift` is +1 or -1, f(x) - f(x'); `drift`, for tilted
    sampling, is along the shift. The filter that the schedule asks has `factor` times the budget.
    Without a filter a round goes up to `1/t = reach`. It has so many levels, whose `1/t` are in one
    of two ratios, where the loss is up and where it is not. Gives the last `Spent`.
    """
    zero = jnp.zeros((), DTYPE)
    asked = None if budget is None else with_budget(budget, factor * budget.budget)
    start = Spent(None if budget is None else budget.init(), zero, zero, zero, jnp.asarray(False))

    def one(state, number):
        lucky = state.position * shift > 0
        if asked is None:
            most = reach * jnp.where(lucky, 1, 0.3)
        else:
            # To the last time that is admitted, and beyond it, which the schedule must prevent.
            most = 1 / asked.smallest_time(state.filter, c.BrownianReduction, 1.0)
        # By what has come out: a coarse or a fine grid, of all that is left or of a part.
        share = jnp.where(number == rounds - 1, 1, jnp.where(lucky, 0.6, 0.3))
        ratio = jnp.where(lucky, *ratios).astype(DTYPE)
        steps = jnp.arange(levels - 2, -2, -1)
        clock = jnp.where(steps < 0, 1.5, ratio ** jnp.maximum(steps, 0)) * share * most
        # Or a Gaussian mechanism, a single release. With nothing left there is no time.
        single = (number % 2 == 1) & ~lucky
        clock = jnp.where(single, clock[levels // 2], clock)
        times = jnp.where(state.over | ~(clock > 0), jnp.inf, 1 / clock).astype(DTYPE)
        clock = jnp.where(times < jnp.inf, clock, 1)
        base = state.loss + 0.5 * clock - goal(state.total + clock)
        line = Line(base, jnp.broadcast_to(shift * clock, base.shape))
        schedule = nrjax.Grid(times)
        if asked is not None:
            schedule = c.FilteredSchedule(schedule, asked, state.filter, c.BrownianReduction, 1.0)
        round_key = nrjax.trial_key(key, 0, number)
        outcome = played(round_key, nrjax.Brownian(()), schedule, line, shift, drift * shift)
        made = outcome.step >= 0
        used = jnp.where(made, 1 / outcome.time, 0)
        step = jnp.where(made, used * outcome.release, 0)
        # The engine's loss is that of the noise it drew, whose mean the drift has moved.
        loss = state.loss + jnp.where(made, outcome.privacy_loss + used * drift, 0)
        over = state.over | (outcome.status == Status.STOPPED)
        after = None
        if budget is not None:
            paid = jnp.where(made, used, 1)
            fixed = budget.spend(state.filter, c.GDP(jnp.sqrt(paid)))
            swept = budget.spend(state.filter, c.BrownianReduction(1.0, 1 / paid))
            after, ok = select(single, fixed, swept)
            after = select(made, after, state.filter)
            over |= made & ~ok  # it has overshot: stop, if late
        total, position = state.total + used, state.position + step
        return Spent(after, total, position, loss, over), None

    return lax.scan(one, start, jnp.arange(rounds))[0]


class Tally(NamedTuple):
    """Where a play under a Renyi filter stands; `loss` and `cost` are sums over the rounds."""

    filter: Any
    loss: Any
    cost: Any


TEST = nrjax.AboveThreshold(0.5, 1.0, 0.3)
ANSWERED = 0.0  # utility under x; under x' it is lower or higher by 1
COIN = 0.2  # epsilon of randomised response


def _yes(utility):
    """Probability that `TEST` says yes (Whitehouse 2022, from the tail of its two noises)."""
    gap = TEST.threshold - utility
    y = jnp.exp(-TEST.epsilon * jnp.abs(gap) / (4 * TEST.sensitivity))
    tail = (2 / 3) * y - y * y / 6
    return jnp.where(gap >= 0, tail, 1 - tail)


def renyi_play(key, budget, shift, rounds, levels=16):
    """Rounds of Brownian and Laplace noise, coins and private tests under one Renyi filter.

    The tests are of a single release with Laplace noise, which is charged by its epsilon. What
    comes next, how far it goes and when it stops depends on how the loss stands. Gives the `Tally`
    after each round, with a leading axis.
    """

    def pay(tally, loss, request, made):
        state, accepted = budget.spend(tally.filter, request)
        state = select(made, state, tally.filter)
        # What is refused has overshot; it counts, as an infinite cost that a test will see.
        cost = jnp.where(accepted, budget.cost(request), jnp.nan)
        loss, cost = (jnp.where(made, more, 0) for more in (loss, cost))
        return Tally(state, tally.loss + loss, tally.cost + cost)

    def release(
        tally, key, kind, process, times, line, rule=None, guarantee=None, answers=(0.0, 0.0)
    ):
        """A round, and what it cost; the losses of a yes and of a no are added to the releases'."""
        grid, asked = nrjax.Grid(times), rule or ALWAYS
        schedule = c.FilteredSchedule(grid, budget, tally.filter, kind, 1.0, rule, guarantee)
        outcome = played(key, process, schedule, line, shift, guarantee=guarantee, rule=asked)
        loss = outcome.privacy_loss + jnp.where(outcome.status == Status.STOPPED, *answers)
        return pay(tally, loss, schedule.spent(outcome), outcome.step >= 0)

    def one(tally, number):
        lucky = tally.loss > tally.cost
        round_key = nrjax.trial_key(key, 0, number)
        most = jnp.where(lucky, 0.4, 0.9).astype(DTYPE)
        epsilons = most * jnp.geomspace(0.05, 1, levels, dtype=DTYPE)
        bar = jnp.where(lucky, 0.0, 1.0).astype(DTYPE)

        def brownian(tally):
            clock = 0.25 * epsilons * epsilons
            # Until the loss is above what it costs by as much as it costs.
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
    return lax.scan(one, start, jnp.arange(rounds))[1]
