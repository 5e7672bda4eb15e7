"""Costs that custom parts would hide: each was stated too small before it was refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition


def closeness(release):
    return -jnp.abs(release - 120.0)


class Early(nrjax.Schedule):
    """A schedule around another one, which hides what the other one states."""

    schedule: nrjax.Schedule
    max_steps: int = nrjax.static(default=4)

    def init(self):
        return self.schedule.init()

    def next(self, state, release):
        return self.schedule.next(state, release)


class Hidden(nrjax.Schedule):
    """A schedule around others in a field of another name."""

    inner: tuple
    max_steps: int = nrjax.static(default=4)

    def init(self):
        return self.inner[0].init()

    def next(self, state, release):
        return self.inner[0].next(state, release)


class Once(nrjax.Guarantee):
    """A guarantee for one release, at time 100."""

    sensitivity: float = 1.0
    delta: float = 1e-6
    noise = "gaussian"
    fixed_times = np.array([100.0])

    def epsilon(self, time):
        return 0.5 / jnp.asarray(time) + 4.7535 / jnp.sqrt(jnp.asarray(time))


class ExPostDP(nrjax.PureGuarantee):
    """A guarantee with the notion of an epsilon that is fixed in advance."""

    notion = "(epsilon, delta)-DP"


def test_a_schedule_inside_another_one_may_not_pay():
    """The outer schedule would hide the filter's noise, sensitivity and rule from the checks."""
    budget = composition.ExPostFilter(5.0)
    parts = budget, budget.init(), composition.LaplaceReduction, 1.0
    paid = composition.FilteredSchedule(nrjax.Grid([8.0, 4.0, 2.0, 1.0]), *parts)
    mechanism = nrjax.laplace(120.0, sensitivity=1.0)
    assert mechanism.until(closeness, at_least=-2.0, levels=paid).steps == 4
    for outer in (Early(paid), Hidden((paid,)), composition.FilteredSchedule(paid, *parts)):
        with pytest.raises(ValueError, match=r"schedule in \w+ must be without .* outermost"):
            mechanism.until(closeness, at_least=-2.0, levels=outer)


def test_a_filter_charges_no_epsilon_at_times_without_a_guarantee():
    assert composition.ExPost.of(Once(), 100.0).epsilon < 0.5
    with pytest.raises(ValueError, match=r"time must be one of the fixed_times of Once \(got 50"):
        composition.ExPost.of(Once(), 50.0)
    budget = composition.ExPostFilter(3.0, 1e-5)
    grid = nrjax.Grid(np.geomspace(100.0, 10.0, 5))
    parts = budget, budget.init(), composition.ExPost
    paid = composition.FilteredSchedule(grid, *parts, guarantee=Once())
    mechanism = nrjax.brownian(120.0, 1.0, 1e-6, tight_at_epsilon=0.3)
    interaction = mechanism.until(closeness, at_least=0.0, levels=paid)
    outcome = nrjax.run_until(jax.random.key(0), interaction)
    assert outcome.step == 0  # the filter admits no other time
    state, fits = paid.close(paid.state, outcome)
    assert fits
    assert float(budget.remaining(state)) == pytest.approx(
        3.0 - float(Once().epsilon(100.0)), rel=1e-4
    )


def test_an_ex_post_epsilon_has_no_notion_of_a_fixed_one():
    mechanism = nrjax.Mechanism(120.0, nrjax.Laplace(()), ExPostDP(1.0))
    with pytest.raises(ValueError, match=r"notion of ExPostDP must be 'pure'.* ex post"):
        mechanism.until(closeness, at_least=-2.0)
