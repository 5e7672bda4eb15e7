"""Filtered schedules in the engine: every release was admitted by the filter."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import Status
from nrjax import composition as c
from tests.composition.adversaries import with_budget
from tests.composition.filtered import AMPLE, DTYPE, TIMES, run, wrap
from tests.marks import long_except

ROUNDS, TRIALS = 8, 60
TEST = nrjax.AboveThreshold(40.0, 1.0, 0.25)  # positive answers are rare
REDUCED = nrjax.ReducedAboveThreshold(40.0, 1.0)
CASES = {
    "gaussian": (c.GaussianFilter(10.0, 1e-6), c.BrownianReduction, nrjax.Brownian(()), None),
    "renyi, private test": (
        c.RenyiFilter(4.0, 10.0, 1e-6),
        c.LaplaceReduction,
        nrjax.Laplace(()),
        TEST,
    ),
}


class Round(NamedTuple):
    """The record of a round."""

    before: Any
    outcome: Any
    request: Any
    accepted: Any


def play(case, budget, factor, key):
    """Play rounds under one filter, whose budget is `factor` times larger for the schedule."""
    _, kind, process, rule = case
    larger = with_budget(budget, factor * budget.budget)

    def step(state, number):
        wrapped = wrap(larger, kind, state, rule=rule)
        played = rule or nrjax.PublicThreshold(-0.1)
        outcome = run(wrapped, key=nrjax.trial_key(key, 0, number), process=process, rule=played)
        after, accepted = wrap(budget, kind, state, rule=rule).close(state, outcome)
        return after, Round(state, outcome, wrapped.spent(outcome), accepted)

    return jax.lax.scan(step, budget.init(), jnp.arange(ROUNDS))[1]


@pytest.fixture(scope="module", params=long_except(CASES, "gaussian"))
def rounds(request):
    """Return a case, its rounds, and those of a schedule whose filter is too generous."""
    case = CASES[request.param]
    keys = jax.vmap(jax.random.key)(jnp.arange(TRIALS))

    @jax.jit
    def run(budget, factor):
        return jax.vmap(lambda key: play(case, budget, factor, key))(keys)

    budget = jax.tree.map(jnp.asarray, case[0])
    return case, *(jax.tree.map(np.asarray, run(budget, factor)) for factor in (1.0, 1e3))


def test_every_round_is_within_the_budget(rounds):
    """Each round is admitted and can be charged, and rounds end in all ways."""
    case, seen, _ = rounds
    assert seen.accepted.all()
    status = seen.outcome.status
    for way in (Status.STOPPED, Status.EXHAUSTED, Status.NO_TIME):
        assert np.any(status == way), way.name
    assert set(np.unique(status)) <= {Status.STOPPED, Status.EXHAUSTED, Status.NO_TIME}
    nothing = status == Status.NO_TIME
    assert np.all(seen.outcome.step[nothing] == -1)
    assert np.isnan(seen.outcome.time[nothing]).all()
    assert np.all(seen.outcome.step[~nothing] >= 0)
    releases, test = seen.request if case[-1] else (seen.request, None)
    np.testing.assert_array_equal(releases.time[~nothing], seen.outcome.time[~nothing])
    if test is not None:
        np.testing.assert_array_equal(test.epsilon[~nothing], seen.outcome.test_epsilon[~nothing])
        assert np.all(test.epsilon[~nothing] > 0)


def test_rounds_end_at_the_last_admitted_time(rounds):
    """The last time was admitted, and the next one would not be."""
    (filter, kind, _, rule), seen, _ = rounds

    @jax.jit
    @jax.vmap
    def admits(state, step):
        times, wrapped = jnp.asarray(TIMES, DTYPE), wrap(filter, kind, state, rule=rule)
        requests = [wrapped.request(times[jnp.clip(step + i, 0, 59)], step + i + 1) for i in (0, 1)]
        return [filter.admits(state, request) for request in requests]

    before, outcome = jax.tree.map(
        lambda leaf: leaf.reshape(TRIALS * ROUNDS, *leaf.shape[2:]), (seen.before, seen.outcome)
    )
    present, following = admits(before, outcome.step)
    assert np.all(present[outcome.step >= 0])
    ran_out = outcome.status != Status.STOPPED
    assert not np.any(following[ran_out & (outcome.step < 59)])


def test_planted_round_without_the_check_overshoots(rounds):
    """The filter refuses to pay for the same rounds without its check."""
    _, seen, loose = rounds
    assert np.mean(~loose.accepted.all(axis=1)) > 0.9
    same = seen.outcome.status[:, 0] == Status.STOPPED
    np.testing.assert_array_equal(loose.outcome.step[same, 0], seen.outcome.step[same, 0])


@pytest.mark.long
def test_ample_budget_changes_nothing():
    """Under a filter that admits every time, the trial is that of the plain schedule."""
    grid, wrapped = nrjax.Grid(TIMES), wrap(AMPLE)
    assert wrapped.max_steps == grid.max_steps
    assert wrapped.last_time == grid.last_time
    for threshold in (-0.1, 1.0):
        want, got = run(grid, threshold), run(wrapped, threshold)
        jax.tree.map(np.testing.assert_array_equal, want, got)


def _scale(factor, time, release):
    del release
    return factor * time


def test_times_out_of_range_are_the_engines():
    """Times that rise or are not usable keep their status, and falling ones reach the last."""
    for factor, want in (
        (2.0, Status.INVALID_TIME),
        (-1.0, Status.INVALID_TIME),
        (np.nan, Status.INVALID_TIME),
        (np.inf, Status.NO_TIME),
        (0.5, Status.EXHAUSTED),
    ):
        times = nrjax.AdaptiveTimes(50.0, _scale, last=5.0, max_steps=20, parameters=factor)
        outcome = run(wrap(AMPLE, times=times), threshold=1.0)
        assert outcome.status == want
        assert outcome.time == (5.0 if factor == 0.5 else 50.0)


@pytest.mark.long
def test_rounds_paid_by_their_guarantee():
    """Ex-post rounds cost the guarantee's epsilon at the stop and its delta, or nothing."""
    boundary = nrjax.LinearBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-3)
    looks = nrjax.GridBoundary(1.0, 1e-3, [40.0, 20.0, 10.0], [30.0] * 3)
    epsilon, seen = np.asarray(boundary.epsilon(TIMES.astype(DTYPE))), []
    for total, paid in ((1.0, boundary), (0.001, boundary), (0.001, looks)):
        budget = c.ExPostFilter(total, 1e-2)
        times = looks.times if paid is looks else TIMES
        schedule = wrap(budget, c.ExPost, times=times, sensitivity=None, guarantee=paid)
        outcome = run(schedule, threshold=1.0, guarantee=paid)
        cost = schedule.spent(outcome)
        assert schedule.close(budget.init(), outcome)[1]
        seen.append((int(outcome.status), int(outcome.step), float(cost.epsilon), cost.delta))
    last = np.flatnonzero(epsilon <= 1.0)[-1]
    assert 0 < last < len(TIMES) - 1
    assert seen[0][:2] == (Status.EXHAUSTED, last)
    np.testing.assert_allclose(seen[0][2:], [epsilon[last], 1e-3], rtol=1e-5)
    assert seen[1:] == [(Status.NO_TIME, -1, 0, 0)] * 2


def test_wrong_arguments_are_refused():
    for wrapped, kind in (
        (wrap(c.ExPostFilter(1.0, 0.0)), "BrownianReduction"),
        (wrap(AMPLE, rule=nrjax.LaplaceTests(0.0, 1.0, 0.1)), "ExPost"),
        (wrap(AMPLE, rule=REDUCED, guarantee=nrjax.PureGuarantee(1.0)), "ExPost"),
    ):
        with pytest.raises(TypeError, match=kind):
            wrapped.init()
    missing = "guarantee must be given, since "
    for changes, match in (
        ({"kind": c.ZCDP}, r"kind must be one of BrownianReduction, "),
        ({"filter": c.ExPostOdometer()}, "filter must be a privacy filter"),
        ({"filter": None, "state": AMPLE.init()}, "filter must be a privacy filter"),
        ({"state": c.ExPostFilter(1.0).init()}, "state must be of UnifiedFilter"),
        ({"sensitivity": -1.0}, r"sensitivity must be positive and finite"),
        ({"sensitivity": nrjax.Sensitivity(1.0, "l1")}, "must be an l2-sensitivity"),
        ({"sensitivity": None}, "sensitivity must be given for Brownian"),
        ({"rule": REDUCED}, missing),
        ({"kind": c.ExPost}, missing),
    ):
        with pytest.raises(ValueError, match=match):
            wrap(**{"filter": AMPLE, **changes})
    # The engine would cast the state to the value's dtype.
    with jax.enable_x64(True):
        filter = c.UnifiedFilter(1000.0, 1e-6)
        with pytest.raises(ValueError, match=r"state must be in float64"):
            run(wrap(filter), value=np.float32(0))
