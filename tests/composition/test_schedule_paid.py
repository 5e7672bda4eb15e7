"""Paying for a filtered run: once, beside open rounds, and for private tests as pure ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import Status
from nrjax import composition as c
from tests.composition.cases import assert_same, granted, refused
from tests.composition.test_schedule import AMPLE, run, wrap
from tests.problems import Distance

pytestmark = pytest.mark.numerical


def assert_lost(wrapped, closed):
    """It was refused, and leaves nothing."""
    assert wrapped.filter.remaining(refused(closed)) == 0


def test_good_for_one_run():
    """Two runs go as far each as one may; the second is refused, and leaves nothing."""
    budget = c.UnifiedFilter(10.0, 1e-6)
    wrapped, state = wrap(budget), budget.init()
    outcome = run(wrapped, threshold=1.0)
    assert budget.cost(wrapped.spent(outcome)) > 0.8 * budget.budget
    one = granted(wrapped.close(state, outcome))
    assert_lost(wrapped, wrapped.close(one, outcome))
    # Even if there were room for both.
    small = run(wrapped, threshold=-100.0)
    assert budget.cost(wrapped.spent(small)) < 0.01
    one = granted(wrapped.close(state, small))
    assert_lost(wrapped, jax.jit(wrapped.close)(one, small))
    # What released nothing costs nothing, and may be closed at any time.
    full, _ = budget.take(state, c.ZCDP(budget.remaining(state)))
    none = wrap(budget, state=full)
    outcome = run(none)
    assert outcome.status == Status.NO_TIME
    for _ in range(2):
        assert_same(granted(none.close(full, outcome)), full)


def test_many_trials_are_worlds_of_their_own():
    wrapped = wrap(AMPLE)

    @jax.jit
    @jax.vmap
    def closed(key):
        outcome = run(wrapped, key=key)
        cost = wrapped.filter.cost(wrapped.spent(outcome))
        return outcome, *wrapped.close(wrapped.state, outcome), cost

    outcome, states, accepted, cost = closed(jax.random.split(jax.random.key(1), 20))
    assert accepted.all()
    np.testing.assert_allclose(states.spent.total[:, 0], cost, rtol=1e-5)
    with pytest.raises(ValueError, match="must be a single number"):
        wrapped.close(wrapped.state, outcome)


def test_beside_rounds_that_are_open():
    """A run goes as far as fits beside what they hold; which must not move until it is closed."""
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
        assert bool(accepted) == (change.time == 0.5)  # asking for what it holds moves nothing
        assert bool(budget.remaining(after) > 0) == (change.time == 0.5)


@pytest.mark.parametrize("budget", [c.UnifiedFilter(10.0, 1e-6), c.GaussianFilter(10.0, 1e-6)])
def test_tests_of_a_fixed_price_are_pure_where_ex_post_has_no_proof(budget):
    """In full, whether the answer is yes or there are only noes; nothing if nothing came out."""
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
    dearer = dataclasses.replace(rule, epsilon=3.0)
    schedule = dataclasses.replace(schedule, state=full, rule=dearer)
    assert run(schedule, rule=schedule.rule).status == Status.NO_TIME


def test_what_no_cost_was_stated_for_leaves_nothing():
    """A NaN utility under a private rule; a test that the schedule was not told of, or a dearer
    one than that; a trial that was charged infinitely."""
    budget, told = c.GaussianFilter(10.0, 1e-6), nrjax.AboveThreshold(-1e6, 1.0, 0.01)
    alone, wrapped = wrap(AMPLE), wrap(budget, rule=told)
    broken = run(wrapped, rule=told, utility=Distance(np.nan))
    assert broken.status == Status.NAN_UTILITY
    dear = run(wrapped, rule=dataclasses.replace(told, epsilon=5.0))
    assert_lost(wrapped, wrapped.close(wrapped.state, broken))
    assert_lost(wrapped, wrapped.close(wrapped.state, dear))
    state = granted(wrapped.close(wrapped.state, run(wrapped, rule=told)))
    assert budget.remaining(state) > 0
    tested, plain = run(alone, rule=told), run(alone)
    assert tested.test_epsilon > 0
    for changes in ({}, {"test_epsilon": jnp.full_like(tested.test_epsilon, jnp.nan)}):
        assert_lost(alone, alone.close(alone.state, tested._replace(**changes)))
    for changes in ({"mechanism_epsilon": jnp.inf}, {"status": Status.OVERFLOW}):
        assert_lost(alone, alone.close(alone.state, plain._replace(**changes)))


def test_noise_that_the_costs_are_not_for():
    """The filter pays for the noise of its requests, whatever guarantee the trial has."""
    pure = nrjax.PureGuarantee(1.0)
    laplace = wrap(c.ExPostFilter(10.0), c.LaplaceReduction)
    own = dataclasses.replace(laplace, kind=c.ExPost, guarantee=pure)
    integers = nrjax.DiscreteLaplace(())
    others = nrjax.Brownian(()), nrjax.IndependentLaplace(()), nrjax.Skellam((), 1.0, 1.0)
    for process in (*others, integers):
        made = "process" if isinstance(process, nrjax.IndependentLaplace) else "schedule"
        for schedule in (laplace, own):
            with pytest.raises(ValueError, match=rf"{made} = .*: must be"):
                run(schedule, process=process)
    with pytest.raises(ValueError, match=r"schedule = .*: must be for laplace noise"):
        run(wrap(AMPLE), process=nrjax.Laplace(()))
    assert run(own, process=nrjax.Laplace(())).step >= 0
    wrapped = wrap(c.RenyiFilter(4.0, 10.0, 1e-6), c.DiscreteLaplaceReduction)
    with pytest.raises(ValueError, match=r"must be for laplace noise, which Laplace makes"):
        run(wrapped, process=nrjax.Laplace(()))
    assert granted(wrapped.close(wrapped.state, run(wrapped, process=integers))).spent.total > 0


def test_the_norm_of_a_sensitivity():
    budget = c.ExPostFilter(10.0)
    l1, l2 = nrjax.Sensitivity(1.0, "l1"), nrjax.Sensitivity(1.0, "l2")
    for make in (
        lambda: c.BrownianReduction(l1, 2.0),
        lambda: c.LaplaceMechanism(l2, 2.0),
        lambda: c.LaplaceReduction(l2, 2.0),
        lambda: wrap(budget, c.LaplaceReduction, sensitivity=l2),
        lambda: budget.smallest_time(budget.init(), c.LaplaceReduction, l2),
    ):
        with pytest.raises(ValueError, match=r"sensitivity = .*: must be an l[12]-sensitivity"):
            make()
    assert budget.admits(budget.init(), c.LaplaceReduction(l1, 2.0))
