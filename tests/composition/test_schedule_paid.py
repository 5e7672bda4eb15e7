"""Paying for a filtered run: once, beside open rounds, and for private tests as pure ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import Status
from nrjax.composition.ex_post import ExPostFilter
from nrjax.composition.gaussian import GaussianFilter
from nrjax.composition.requests import (
    ZCDP,
    BrownianReduction,
    ExPost,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
)
from nrjax.composition.schedule import FilteredSchedule
from nrjax.composition.zcdp import UnifiedFilter
from tests.composition.test_schedule import TIMES, run, unified
from tests.problems import Distance

pytestmark = pytest.mark.numerical


def assert_lost(wrapped, closed):
    """It was refused, and leaves nothing."""
    state, accepted = closed
    assert not accepted
    assert wrapped.filter.remaining(state) == 0


def test_good_for_one_run():
    """Two runs go as far each as one may; the second is refused, and leaves nothing."""
    budget = UnifiedFilter(10.0, 1e-6)
    state = budget.init()
    wrapped = FilteredSchedule(nrjax.Grid(TIMES), budget, state, BrownianReduction, 1.0)
    outcome = run(wrapped, threshold=1.0)
    assert budget.cost(wrapped.spent(outcome)) > 0.8 * budget.budget
    one, accepted = wrapped.close(state, outcome)
    assert accepted
    assert_lost(wrapped, wrapped.close(one, outcome))
    # Even if there were room for both.
    small = run(wrapped, threshold=-100.0)
    assert budget.cost(wrapped.spent(small)) < 0.01
    one, accepted = wrapped.close(state, small)
    assert accepted
    assert_lost(wrapped, jax.jit(wrapped.close)(one, small))
    # What released nothing costs nothing, and may be closed at any time.
    full, _ = budget.take(state, ZCDP(budget.remaining(state)))
    none = FilteredSchedule(nrjax.Grid(TIMES), budget, full, BrownianReduction, 1.0)
    outcome = run(none)
    assert outcome.status == Status.NO_TIME
    for _ in range(2):
        after, accepted = none.close(full, outcome)
        assert accepted
        jax.tree.map(np.testing.assert_array_equal, after, full)


def test_many_trials_are_worlds_of_their_own():
    wrapped = unified(nrjax.Grid(TIMES))
    keys = jax.random.split(jax.random.key(1), 20)
    outcome = jax.jit(jax.vmap(lambda key: run(wrapped, key=key)))(keys)
    states, accepted = jax.vmap(wrapped.close, in_axes=(None, 0))(wrapped.state, outcome)
    assert accepted.all()
    cost = jax.vmap(lambda one: wrapped.filter.cost(wrapped.spent(one)))(outcome)
    np.testing.assert_allclose(states.spent.total[:, 0], cost, rtol=1e-5)
    with pytest.raises(ValueError, match="must be a single number"):
        wrapped.close(wrapped.state, outcome)


def test_beside_rounds_that_are_open():
    """A run goes as far as fits beside what they hold; which must not move until it is closed."""
    budget = GaussianFilter(10.0, 1e-6)
    state, other, _ = budget.open(budget.init(2), BrownianReduction(1.0, 0.5))
    wrapped = FilteredSchedule(nrjax.Grid(TIMES), budget, state, BrownianReduction, 1.0)
    outcome = run(wrapped, threshold=1.0)
    left = budget.budget - 2
    assert left * 0.8 < 1 / outcome.time <= left
    after, accepted = wrapped.close(state, outcome)
    assert accepted
    assert budget.close(after, other, BrownianReduction(1.0, 0.5))[1]
    for change in (BrownianReduction(1.0, 0.4), BrownianReduction(1.0, 0.5)):
        moved, admitted = budget.rewind(state, other, change)
        assert admitted
        after, accepted = wrapped.close(moved, outcome)
        assert bool(accepted) == (change.time == 0.5)  # asking for what it holds moves nothing
        assert bool(budget.remaining(after) > 0) == (change.time == 0.5)


@pytest.mark.parametrize("budget", [UnifiedFilter(10.0, 1e-6), GaussianFilter(10.0, 1e-6)])
def test_tests_of_a_fixed_price_are_pure_where_ex_post_has_no_proof(budget):
    """In full, whether the answer is yes or there are only noes; nothing if nothing came out."""
    grid = nrjax.Grid(np.geomspace(1e5, 10.0, 20))
    for threshold in (-1e6, 1e6):
        rule = nrjax.InteractiveAboveThreshold(threshold, 1.0, 0.25)
        schedule = FilteredSchedule(grid, budget, budget.init(), BrownianReduction, 1.0, rule)
        assert schedule.request(jnp.asarray(2.0))[1] == Pure(0.25)
        outcome = run(schedule, rule=rule)
        assert (outcome.status == Status.STOPPED) == (threshold < 0)
        state, accepted = schedule.close(budget.init(), outcome)
        assert accepted
        want = budget.cost((BrownianReduction(1.0, outcome.time), Pure(0.25)))
        np.testing.assert_allclose(state.spent.total[0], want, rtol=1e-5)
    full, _ = budget.take(budget.init(), Pure(2.0))
    time = 1.2 * budget.smallest_time(full, BrownianReduction)
    full, _ = budget.take(full, BrownianReduction(1.0, time))
    dearer = dataclasses.replace(rule, epsilon=3.0)
    schedule = dataclasses.replace(schedule, state=full, rule=dearer)
    assert run(schedule, rule=schedule.rule).status == Status.NO_TIME


def test_a_nan_utility_under_a_private_rule_leaves_nothing():
    """No rule states a cost for that."""
    budget = UnifiedFilter(10.0, 1e-6)
    rule = nrjax.AboveThreshold(0.0, 1.0, 0.1)
    schedule = FilteredSchedule(
        nrjax.Grid(TIMES), budget, budget.init(), BrownianReduction, 1.0, rule
    )
    outcome = run(schedule, rule=rule, utility=Distance(np.nan))
    assert outcome.status == Status.NAN_UTILITY
    assert_lost(schedule, schedule.close(budget.init(), outcome))


def test_a_private_test_that_the_schedule_was_not_told_of_leaves_nothing():
    wrapped = unified(nrjax.Grid(TIMES))
    outcome = run(wrapped, rule=nrjax.AboveThreshold(-1e6, 1.0, 0.1))
    assert outcome.test_epsilon > 0
    unknown = outcome._replace(test_epsilon=jnp.full_like(outcome.test_epsilon, jnp.nan))
    for one in (outcome, unknown):
        assert_lost(wrapped, wrapped.close(wrapped.state, one))


def test_a_dearer_test_than_the_schedule_was_told_of_leaves_nothing():
    budget, told = GaussianFilter(10.0, 1e-6), nrjax.AboveThreshold(-1e6, 1.0, 0.01)
    grid, start = nrjax.Grid(TIMES), budget.init()
    wrapped = FilteredSchedule(grid, budget, start, BrownianReduction, 1.0, told)
    for rule in (told, dataclasses.replace(told, epsilon=5.0)):
        state, accepted = wrapped.close(start, run(wrapped, rule=rule))
        assert bool(accepted) == (rule is told)
        assert bool(budget.remaining(state) > 0) == (rule is told)


def test_a_trial_that_was_charged_infinitely_leaves_nothing():
    wrapped = unified(nrjax.Grid(TIMES))
    outcome = run(wrapped)
    for broken in ({"mechanism_epsilon": jnp.inf}, {"status": Status.OVERFLOW}):
        assert_lost(wrapped, wrapped.close(wrapped.state, outcome._replace(**broken)))


def test_noise_that_the_costs_are_not_for():
    """The filter pays for the noise of its requests, whatever guarantee the trial has."""
    budget, pure = ExPostFilter(10.0), nrjax.PureGuarantee(1.0)
    laplace = FilteredSchedule(nrjax.Grid(TIMES), budget, budget.init(), LaplaceReduction, 1.0)
    own = dataclasses.replace(laplace, kind=ExPost, guarantee=pure)
    processes = nrjax.Brownian(()), nrjax.IndependentLaplace(()), nrjax.Skellam((), 1.0, 1.0)
    for process in processes:
        made = "process" if isinstance(process, nrjax.IndependentLaplace) else "schedule"
        for schedule in (laplace, own):
            with pytest.raises(ValueError, match=rf"{made} = .*: must be"):
                run(schedule, process=process)
    with pytest.raises(ValueError, match=r"schedule = .*: must be for laplace noise"):
        run(unified(nrjax.Grid(TIMES)), process=nrjax.Laplace(()))
    assert run(own, process=nrjax.Laplace(())).step >= 0


def test_the_norm_of_a_sensitivity():
    budget = ExPostFilter(10.0)
    l1, l2 = nrjax.Sensitivity(1.0, "l1"), nrjax.Sensitivity(1.0, "l2")
    for make in (
        lambda: BrownianReduction(l1, 2.0),
        lambda: LaplaceMechanism(l2, 2.0),
        lambda: LaplaceReduction(l2, 2.0),
        lambda: FilteredSchedule(nrjax.Grid(TIMES), budget, budget.init(), LaplaceReduction, l2),
        lambda: budget.smallest_time(budget.init(), LaplaceReduction, l2),
    ):
        with pytest.raises(ValueError, match=r"sensitivity = .*: must be an l[12]-sensitivity"):
            make()
    assert budget.admits(budget.init(), LaplaceReduction(l1, 2.0))
