"""Charging a filtered run: once, next to open rounds, and with private tests."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import Status
from nrjax import composition as c
from tests.composition.cases import assert_same, granted, refused
from tests.composition.filtered import AMPLE, DTYPE, run, wrap
from tests.marks import long_except
from tests.problems import Distance

pytestmark = pytest.mark.numerical


def assert_lost(wrapped, closed):
    """Assert that a run was refused and leaves nothing."""
    assert wrapped.filter.remaining(refused(closed)) == 0


def test_good_for_one_run():
    """The second of two runs is refused, and leaves nothing."""
    budget = c.UnifiedFilter(10.0, 1e-6)
    wrapped, state = wrap(budget), budget.init()
    outcome = run(wrapped, threshold=1.0)
    assert budget.cost(wrapped.spent(outcome)) > 0.8 * budget.budget
    one = granted(wrapped.close(state, outcome))
    assert_lost(wrapped, wrapped.close(one, outcome))
    # Even if both would fit.
    small = run(wrapped, threshold=-100.0)
    assert budget.cost(wrapped.spent(small)) < 0.01
    one = granted(wrapped.close(state, small))
    assert_lost(wrapped, jax.jit(wrapped.close)(one, small))
    # A run without a release costs nothing, and may be closed at any time.
    full, _ = budget.take(state, c.ZCDP(budget.remaining(state)))
    none = wrap(budget, state=full)
    outcome = run(none)
    assert outcome.status == Status.NO_TIME
    for _ in range(2):
        assert_same(granted(none.close(full, outcome)), full)


def test_next_to_open_rounds():
    """A run uses what open rounds leave, and these must not change until it is closed."""
    budget = c.GaussianFilter(10.0, 1e-6)
    state, other, _ = budget.open(budget.init(2), c.BrownianReduction(1.0, 0.5))
    wrapped = wrap(budget, state=state)
    outcome = run(wrapped, threshold=1.0)
    left = budget.budget - 2
    assert left * 0.8 < 1 / outcome.time <= left
    after = granted(wrapped.close(state, outcome))
    assert budget.close(after, other, c.BrownianReduction(1.0, 0.5))[1]
    for change in (c.BrownianReduction(1.0, 0.4), c.BrownianReduction(1.0, 0.5)):
        moved = granted(budget.rewind(state, other, change))
        after, accepted = wrapped.close(moved, outcome)
        assert bool(accepted) == (
            change.time == 0.5
        )  # a rewind within the reservation changes nothing
        assert bool(budget.remaining(after) > 0) == (change.time == 0.5)


def test_private_tests_of_a_fixed_cost_are_charged_as_pure():
    """If ex-post costs have no proof: in full for every answer, nothing without a release."""
    budget = c.GaussianFilter(10.0, 1e-6)
    for threshold in (-1e6, 1e6):
        rule = nrjax.InteractiveAboveThreshold(threshold, 1.0, 0.25)
        schedule = wrap(budget, times=np.geomspace(1e5, 10.0, 20), rule=rule)
        assert schedule.request(jnp.asarray(2.0))[1] == c.Pure(0.25)
        outcome = run(schedule, rule=rule)
        assert (outcome.status == Status.STOPPED) == (threshold < 0)
        state = granted(schedule.close(budget.init(), outcome))
        want = budget.cost((c.BrownianReduction(1.0, outcome.time), c.Pure(0.25)))
        np.testing.assert_allclose(state.spent.total[0], want, rtol=1e-5)
    full, _ = budget.take(budget.init(), c.Pure(2.0))
    time = 1.2 * budget.smallest_time(full, c.BrownianReduction)
    full, _ = budget.take(full, c.BrownianReduction(1.0, time))
    costlier = dataclasses.replace(rule, epsilon=3.0)
    schedule = dataclasses.replace(schedule, state=full, rule=costlier)
    outcome = run(schedule, rule=schedule.rule)
    assert outcome.status == Status.NO_TIME
    assert schedule.spent(outcome)[1] == c.Pure(0)
    assert_same(granted(schedule.close(full, outcome)), full)


RULES = {  # the cost of three answers, and the most that answers can cost
    "fixed": (nrjax.InteractiveAboveThreshold(-0.1, 1.0, 0.25), 0.25, 0.25),
    "many": (nrjax.LaplaceTests(-0.1, 1.0, 0.25), 3 * 0.25, 60 * 0.25),
    "as the releases": (nrjax.ReducedAboveThreshold(-0.1, 1.0), 0.5, 100.0),
}


@pytest.mark.parametrize("name", long_except(RULES, "as the releases"))
def test_private_answers_are_paid_for(name):
    """At each time its releases and the costlier of the two answers must fit.

    The cap is the cost of the most expensive answer. For ex-post releases it is the epsilon of the
    last time.
    """
    (rule, price, cap), pure = RULES[name], nrjax.PureGuarantee(1.0)
    budget, margin = c.RenyiFilter(4.0, 10.0, 1e-6), 1 + 9 * float(jnp.finfo(DTYPE).eps)
    wrapped = wrap(budget, c.ExPost, sensitivity=None, rule=rule, guarantee=pure)
    releases, test = wrapped.request(jnp.asarray(2.0, DTYPE), 3)
    assert price <= test.epsilon < price + 1e-4
    for request, most in ((releases, 100.0), (test, cap)):
        assert most <= request.cap <= most * (1 + 1e-4)
        assert budget.cost(request) < (1 if most > 1 else 0.8) * request.epsilon * margin
    outcome = run(wrapped, rule=rule, process=nrjax.Laplace(()), guarantee=pure)
    state = granted(wrapped.close(budget.init(), outcome))
    paid = budget.cost(wrapped.spent(outcome))
    assert paid <= outcome.epsilon * margin
    assert state.spent.total[0] == pytest.approx(float(paid), rel=1e-5)
    # Without caps under a filter that adds up, and if the last time is unknown.
    plain = c.ExPostFilter(10.0)
    add_up = dataclasses.replace(wrapped, filter=plain, state=plain.init())
    assert all(part.cap is None for part in add_up.request(jnp.asarray(2.0)))
    own = dataclasses.replace(wrapped, kind=c.LaplaceReduction, sensitivity=1.0)
    releases = c.LaplaceReduction(1.0, jnp.asarray(2.0), relation=budget.relation)
    assert own.request(jnp.asarray(2.0))[0] == releases


@pytest.mark.long
def test_costs_without_a_bound_leave_nothing():
    """After a NaN utility, another private rule than the schedule's, or an infinite cost."""
    budget, known = c.GaussianFilter(10.0, 1e-6), nrjax.AboveThreshold(-1e6, 1.0, 0.01)
    alone, wrapped = wrap(AMPLE), wrap(budget, rule=known)
    broken = run(wrapped, rule=known, utility=Distance(np.nan))
    assert broken.status == Status.NAN_UTILITY
    other = dataclasses.replace(known, epsilon=0.5)
    dear = run(wrap(budget, rule=other), rule=other)
    with pytest.raises(ValueError, match=r"rule of the schedule must be the rule"):
        run(wrapped, rule=other)
    assert_lost(wrapped, wrapped.close(wrapped.state, broken))
    assert_lost(wrapped, wrapped.close(wrapped.state, dear))
    state = granted(wrapped.close(wrapped.state, run(wrapped, rule=known)))
    assert budget.remaining(state) > 0
    tested, plain = run(alone, rule=known), run(alone)
    assert tested.test_epsilon > 0
    for changes in ({}, {"test_epsilon": jnp.full_like(tested.test_epsilon, jnp.nan)}):
        assert_lost(alone, alone.close(alone.state, tested._replace(**changes)))
    for changes in ({"mechanism_epsilon": jnp.inf}, {"status": Status.OVERFLOW}):
        assert_lost(alone, alone.close(alone.state, plain._replace(**changes)))


def test_other_noise_is_refused():
    """A filter charges for the noise of its requests, whatever guarantee the trial has."""
    pure = nrjax.PureGuarantee(1.0)
    laplace = wrap(c.ExPostFilter(10.0), c.LaplaceReduction)
    own = dataclasses.replace(laplace, kind=c.ExPost, guarantee=pure)
    integers = nrjax.DiscreteLaplace(())
    others = nrjax.Brownian(()), nrjax.IndependentLaplace(()), nrjax.Skellam((), 1.0, 1.0)
    for process in (*others, integers):
        made = "process" if isinstance(process, nrjax.IndependentLaplace) else "schedule"
        for schedule in (laplace, own):
            with pytest.raises(ValueError, match=rf"{made} must be"):
                run(schedule, process=process)
    with pytest.raises(ValueError, match=r"schedule must be for laplace noise"):
        run(wrap(AMPLE), process=nrjax.Laplace(()))
    assert run(own, process=nrjax.Laplace(())).step >= 0
    wrapped = wrap(c.RenyiFilter(4.0, 10.0, 1e-6), c.DiscreteLaplaceReduction)
    with pytest.raises(ValueError, match=r"must be for laplace noise, which Laplace makes"):
        run(wrapped, process=nrjax.Laplace(()))
    assert granted(wrapped.close(wrapped.state, run(wrapped, process=integers))).spent.total > 0


LINE = nrjax.LinearBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6)
RENYI = nrjax.RenyiBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6)


@pytest.mark.parametrize(("guarantee", "refuses"), [(LINE, False), (RENYI, True)])
def test_odometers_refuse_hockey_stick_epsilons(guarantee, refuses):
    """Such epsilons do not bound losses, as an odometer does. A filter takes them."""
    budget, odometer = c.ExPostFilter(3.0, 1e-5), c.ExPostOdometer()
    paid = wrap(budget, c.ExPost, times=[50.0], sensitivity=None, guarantee=guarantee)
    outcome = run(paid, threshold=-1e9, guarantee=guarantee)
    assert paid.close(budget.init(), outcome)[1]
    request = c.ExPost.of(guarantee, 50.0)
    assert request.notion == guarantee.notion
    np.testing.assert_allclose(request.epsilon, guarantee.epsilon(50.0))
    assert c.ExPost.of(nrjax.PureGuarantee(1.0), 4.0).notion == "pure"
    for spent in (paid.spent(outcome), request, (c.Pure(0.1), request)):
        if refuses:
            with pytest.raises(ValueError, match="notion of the request must be pure or prob"):
                odometer.spend(odometer.init(), spent)
        else:
            assert odometer.bound(odometer.spend(odometer.init(), spent)) >= request.epsilon
    with pytest.raises(ValueError, match="notion must be 'pure'"):
        c.ExPost(0.1, notion="Renyi")


def test_a_schedule_pays_by_a_guarantee_of_the_same_sensitivity():
    """Else a filter would be charged for a smaller sensitivity than the interaction states."""
    budget, times = c.ExPostFilter(3.0, 1e-5), [50.0]
    paid = wrap(budget, c.ExPost, times=times, sensitivity=None, guarantee=LINE)
    small = dataclasses.replace(LINE, sensitivity=0.01)
    run(paid, guarantee=LINE)
    wrong = dataclasses.replace(paid, guarantee=small)
    with pytest.raises(ValueError, match="sensitivity of the schedule must be at least 1"):
        run(wrong, guarantee=LINE)
    with pytest.raises(ValueError, match=r"shift must be of l2 norm at most 0\.01"):
        run(wrong, guarantee=None, shift=1.0)
