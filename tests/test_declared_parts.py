"""What custom parts gain by what they declare, and the declarations that are refused."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition
from nrjax._base.outcome import Status
from nrjax.auditing.tilted import tilted
from nrjax.engine.checks_between_parts import check_monotone
from nrjax.study.precision import check_until_se
from tests.problems import Distance, interaction, scalar

KEY = jax.random.key(5)
TIMES = 64.0 * 0.5 ** np.arange(7.0)
LINE = scalar()["guarantee"]


class Stated(nrjax.Schedule):
    """A schedule outside nrjax that states its times, and may return others by a fault.

    `factor` multiplies the last time, `extra` adds steps after it, and `slope` is the part of a
    release that is added to a time.
    """

    times: Any
    factor: Any = 1.0
    extra: int = nrjax.static(default=0)
    slope: Any = nrjax.static(default=None)
    ends: int = nrjax.static(default=100)

    @property
    def max_steps(self):
        return len(self.times) + self.extra

    def _time(self, index, release):
        last = len(self.times) - 1
        time = jnp.asarray(self.times)[jnp.minimum(index, last)]
        time = jnp.where(index == last, time * self.factor, time)
        return time if self.slope is None else time + self.slope * release

    def init(self):
        return 0, self._time(jnp.int32(0), 0.0)

    def next(self, state, release):
        done = (state + 1 >= self.max_steps) | (state + 1 >= self.ends)
        return state + 1, self._time(state + 1, release), done


class Unstated(nrjax.Schedule):
    """The same schedule, with its times under a name that no interface declares."""

    numbers: Any
    factor: Any = 1.0
    max_steps = 7

    def init(self):
        return Stated(self.numbers, self.factor).init()

    def next(self, state, release):
        return Stated(self.numbers, self.factor).next(state, release)


class Ratio(nrjax.Schedule):
    """A schedule whose times are a property, computed from its fields in two ways."""

    first: Any
    ratio: Any
    max_steps: int = nrjax.static(default=7)

    @property
    def times(self):
        return self.first * self.ratio ** np.arange(7.0)

    def init(self):
        return jnp.asarray(self.first), self.first

    def next(self, state, release):
        return state * self.ratio, state * self.ratio, state <= self.first / 64


class Bounded(nrjax.Brownian):
    """Brownian noise that is exact above a smallest time."""

    least: float = nrjax.static(default=1.0)

    def smallest_time(self, dtype):
        return self.least


class Owned(nrjax.Brownian):
    """Brownian noise for one private value."""

    owned: Any = 3.0

    @property
    def private_value(self):
        return self.owned


class Cost(nrjax.Guarantee):
    """A guarantee whose epsilon is a function of the time, and which may hold at some times."""

    function: Any = nrjax.static(default=jnp.reciprocal)
    looks: Any = None

    @property
    def fixed_times(self):
        return self.looks

    def epsilon(self, time):
        return self.function(time)

    def on(self, schedule):
        return dataclasses.replace(self, looks=schedule.times)


class Read(Distance):
    """A utility for Laplace releases, with a sensitivity and a best score."""

    best: Any = 0.0
    sensitivity: Any = 0.01
    noise = "laplace"


class Patient(nrjax.StoppingRule):
    """A private rule outside nrjax whose cost falls with the number of answers."""

    threshold: Any = None
    sensitivity: Any = 0.01
    monotone: bool = nrjax.static(default=False)

    def init(self, key, epsilon):
        return jnp.int32(0)

    def step(self, key, state, epsilon, utility):
        return state + 1, utility >= -0.5

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.where(stopped, 0.5, 0.25) / jnp.maximum(answers, 1) + jnp.zeros_like(epsilon)


def trial(schedule=None, **changes):
    return interaction(schedule=Stated(TIMES) if schedule is None else schedule, **changes)


def test_a_class_attribute_is_no_leaf_and_no_default():
    assert len(jax.tree.leaves(nrjax.AdaptiveTimes(4.0, max, 1.0, 3))) == 2
    assert [field.name for field in dataclasses.fields(Bounded)] == ["shape", "least"]
    with pytest.raises(TypeError, match="times"):
        Stated()  # pyright: ignore[reportCallIssue]
    assert Owned(()).private_value == 3.0
    assert Ratio(64.0, 0.5).times[-1] == 1.0


def test_stated_times_run_as_those_of_a_grid():
    """They get the boundary that is tight on them, with the same numbers and the same bits."""
    for levels in (Stated(TIMES), Ratio(64.0, 0.5)):
        assert LINE.on(levels) == LINE.on(nrjax.Grid(TIMES))
    mechanism = nrjax.brownian(3.0, 1.0, 1e-6)
    trials = [
        mechanism.until(Distance(3.0), at_least=-0.5, levels=levels)
        for levels in (Stated(TIMES), nrjax.Grid(TIMES))
    ]
    own, grid = (nrjax.run_until(KEY, trial) for trial in trials)
    assert own == grid
    assert LINE.on(Unstated(TIMES)) is LINE
    with pytest.raises(ValueError, match=r"schedule must be one of fixed times"):
        mechanism.until(Distance(3.0), at_least=-0.5, levels=Unstated(TIMES))


def test_stated_times_may_end_early_or_be_built_under_a_trace():
    assert trial(Stated(TIMES, ends=3)).steps == 7
    assert trial(nrjax.Grid(TIMES[:2])).steps == 2

    @jax.jit
    def steps(target):
        return run_tight(Stated(TIMES), utility=Distance(target)).step

    def run_tight(schedule, **changes):
        return nrjax.run_until(KEY, trial(schedule, guarantee=LINE.on(schedule), **changes))

    assert steps(3.0) == run_tight(Stated(TIMES)).step


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Stated(TIMES, 0.5), r"times of Stated must be those of init .* return 0\.5 at step 6"),
        (Stated(TIMES, 0.999), r"return 0\.999 at step 6 \(got 1"),
        (Stated(TIMES, np.nan), "return nan at step 6"),
        (Stated(TIMES, extra=1), "times of Stated must be all times that next returns before"),
        (Stated(TIMES, slope=1e-3), "times of Stated must be None, since next reads the release"),
        (Stated(TIMES[::-1].copy()), "times of Stated must be a vector of falling, positive"),
        (Stated(TIMES - 1.0), "times of Stated must be a vector of falling, positive numbers"),
        (Stated(np.array([TIMES])), "times of Stated must be a vector"),
        (Stated([4.0, 2.0]), "times of Stated must be a vector"),
        (Ratio(10.0, 0.9), "times of Ratio must be"),
    ],
)
def test_times_that_a_schedule_does_not_return_are_refused(schedule, message):
    with pytest.raises(ValueError, match=message):
        trial(schedule)
    if schedule.max_steps > 2:  # a wrapped schedule states them, too
        budget = nrjax.UnifiedFilter(10.0, 1e-5)
        kind = composition.BrownianReduction
        wrapped = composition.FilteredSchedule(schedule, budget, budget.init(), kind, 1.0)
        with pytest.raises(ValueError, match=message):
            trial(wrapped)


def test_times_that_cannot_be_compared_are_refused():
    build = jax.jit(lambda factor: trial(Stated(TIMES, factor)).value.number)
    with pytest.raises(ValueError, match="computed from the traced fields"):
        build(1.0)


@pytest.mark.parametrize("guarantee", [LINE.on(nrjax.Grid(TIMES)), Cost().on(Stated(TIMES))])
def test_other_times_than_those_of_a_tight_guarantee_have_no_finite_cost(guarantee):
    """Also in a run, for a schedule that states nothing."""
    for factor, status in ((1.0, Status.EXHAUSTED), (0.5, Status.INVALID_COST)):
        outcome = nrjax.run_until(
            KEY, trial(Unstated(TIMES, factor), guarantee=guarantee, threshold=np.inf)
        )
        assert outcome.status == status
        assert np.isfinite(outcome.epsilon) == (factor == 1.0)


def test_draws_must_be_exact_at_the_last_stated_time():
    trial(process=Bounded(()))
    trial(Unstated(TIMES), process=Bounded((), 2.0))  # nothing is known of its last time
    with pytest.raises(ValueError, match=r"last time must be at least 2, where Bounded is exact"):
        trial(process=Bounded((), 2.0))


def test_costs_must_not_fall_along_stated_times():
    trial(guarantee=Cost())
    with pytest.raises(ValueError, match=r"epsilon of Cost at time 32 must be .* at least 64"):
        trial(guarantee=Cost(jnp.asarray))


def test_private_tests_take_stated_times_as_levels():
    mechanism = nrjax.laplace(3.0, 1.0)
    times = np.geomspace(10.0, 0.1, 30)
    options: Any = {"private": True, "at_least": -0.5}
    own, grid = (
        mechanism.until(Read(3.0), levels=levels, **options)
        for levels in (Stated(times), nrjax.Grid(times))
    )
    assert own.rule == grid.rule
    np.testing.assert_array_equal(own.schedule.times, grid.schedule.times)
    with pytest.raises(ValueError, match="for a private test"):
        mechanism.until(Read(3.0), levels=Unstated(times), **options)


def test_the_bins_of_a_run_to_a_precision_follow_stated_times():
    settings = SimpleNamespace(until_se=1e-9, keep="summary")
    for schedule, fails in ((Stated(TIMES), True), (Unstated(TIMES), False)):
        case = nrjax.Case(trial=trial(schedule))
        if fails:
            with pytest.raises(ValueError, match=r"until_se must be at least .* epsilon of own"):
                check_until_se({"own": case}, settings)
        else:
            check_until_se({"own": case}, settings)


def test_audits_bound_their_weights_by_stated_times():
    parts: Any = {"guarantee": LINE}
    own, grid, unknown = (
        tilted(trial(schedule, **parts), jnp.ones(()))
        for schedule in (Stated(TIMES), nrjax.Grid(TIMES), Unstated(TIMES))
    )
    np.testing.assert_array_equal(own[0].tilts, grid[0].tilts)
    assert own[1] == grid[1] < unknown[1]


def test_a_process_may_be_for_one_value():
    trial(process=Owned(()))
    with pytest.raises(ValueError, match="value must be the value of its Owned, 4"):
        trial(process=Owned((), 4.0))


def test_a_utility_names_its_noise_and_its_best_score():
    for utility in (Read(3.0), nrjax.UtilitySequence.of([Read(3.0)] * 7)):
        with pytest.raises(ValueError, match="utility must be for releases with gaussian noise"):
            trial(utility=utility)
    mechanism, options = nrjax.laplace(3.0, 1.0), {"private": True, "at_least": -0.5}
    near, far = (
        mechanism.until(Read(3.0, best=best), **options).rule.threshold for best in (0.0, 1.5)
    )
    np.testing.assert_allclose((near, far), (-0.125, 1.0), rtol=1e-6)
    with pytest.raises(ValueError, match="at_least must be below None, the best score"):
        mechanism.until(Read(3.0, best=None), **options)


@pytest.mark.parametrize(("threshold", "goal"), [(-0.5, -0.5), (None, None), ([0.1, 0.2], None)])
def test_the_threshold_of_a_rule_is_the_goal_of_a_case(threshold, goal):
    rule = Patient(None if threshold is None else np.asarray(threshold))
    own = nrjax.laplace(3.0, 1.0).until(Read(3.0), rule=rule)
    assert nrjax.Case(trial=own).goal == goal


def test_a_filter_charges_the_largest_cost_of_a_rule():
    """The cap of the answers covers every number of answers, also if the cost falls with it."""
    budget, rule = nrjax.RenyiFilter(8.0, 10.0, 1e-6), Patient(-0.5)
    parts: Any = {"filter": budget, "state": budget.init(), "kind": composition.BrownianReduction}
    schedule = composition.FilteredSchedule(Stated(TIMES), sensitivity=1.0, rule=rule, **parts)
    assert rule.largest_cost(1.0, 2) == 0.25
    assert schedule.last_time == 1.0
    for answers in (1, 7):
        request = schedule.request(2.0, answers)[1]
        np.testing.assert_allclose((request.epsilon, request.cap), (0.5 / answers, 0.5), rtol=1e-6)
        assert np.isfinite(budget.cost(request))
    with pytest.raises(ValueError, match="rule of the schedule must be the rule of the inter"):
        trial(schedule, rule=nrjax.AboveThreshold(-0.5, 0.01, 0.5), utility=Bare(3.0))
    trial(schedule, rule=rule, utility=Bare(3.0))


class Bare(Read):
    """A utility for releases of any noise."""

    noise = None


MONOTONE = [
    nrjax.AboveThreshold(-0.5, 0.01, 0.5, monotone=True),
    nrjax.ReducedAboveThreshold(-0.5, 0.01, monotone=True),
    nrjax.GaussianThreshold(-0.5, 0.01, -1.0, 0.0, 1.0, 1.0, 7, monotone=True),
    Patient(-0.5, monotone=True),
]


@pytest.mark.parametrize("rule", MONOTONE, ids=lambda rule: type(rule).__name__)
def test_a_monotone_rule_needs_rows_that_are_added_or_removed(rule):
    """A replaced row, or several rows, can raise one count and lower another."""
    assert_refused = pytest.raises(ValueError, match="relation of the neighbours must be 'add-rem")
    for relation in ("replace", "add-remove, 3 rows", "replace, 2 rows", None):
        with assert_refused:
            check_monotone(rule, relation)
    check_monotone(rule, "add-remove")
    check_monotone(dataclasses.replace(rule, monotone=False), "replace")


def test_a_monotone_rule_is_checked_against_the_relation_of_the_interaction():
    rule, utility = MONOTONE[0], Bare(3.0)
    assert trial(rule=rule, utility=utility, relation="add-remove").relation == "add-remove"
    by = nrjax.Sensitivity(1.0, "l2", "add-remove")
    trial(rule=rule, utility=utility, guarantee=dataclasses.replace(LINE, sensitivity=by))
    for relation in ("replace", None):
        with pytest.raises(ValueError, match=r"'add-remove' if the rule has monotone=True .*got"):
            trial(rule=rule, utility=utility, relation=relation)
