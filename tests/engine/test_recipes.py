"""Recipes for boundaries: a custom recipe works wherever the default one does, and is checked."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import composition
from nrjax.guarantees import BoundaryRecipe

DELTA = 1e-6
GRID = nrjax.Grid([100.0, 30.0, 10.0, 3.0, 1.0])


def score(release):
    return -jnp.abs(release - 3.0)


class Copy(BoundaryRecipe):
    """A custom recipe for what `nrjax.brownian` uses by default."""

    sensitivity: Any = 1.0
    delta: Any = DELTA
    noise = "gaussian"

    def on(self, schedule):
        options = {"sensitivity": self.sensitivity, "delta": self.delta}
        return nrjax.GridBoundary.minimax(times=schedule.times, **options)

    def between(self, low, high, count):
        options = {"sensitivity": self.sensitivity, "delta": self.delta, "levels": count}
        return nrjax.GridBoundary.minimax_levels(low=low, high=high, **options)


class Pure(BoundaryRecipe):
    """A custom recipe for the guarantee of Laplace noise, which holds at all times."""

    sensitivity: Any = 1.0
    noise = "laplace"
    notion = "pure"

    def on(self, schedule):
        return nrjax.PureGuarantee(self.sensitivity)

    def between(self, low, high, count):
        return nrjax.PureGuarantee(self.sensitivity)


class Designed(Copy):
    """A custom recipe for a hockey-stick boundary, which has planned times."""

    def between(self, low, high, count):
        kind, parameters = nrjax.HockeyStickBoundary, (self.sensitivity, self.delta)
        ends = [kind.single(*parameters, epsilon=e).times[0] for e in (low, high)]
        times = np.geomspace(*ends, count)
        return kind.design(times, np.ones(count), *parameters)


TEST: dict[str, Any] = {"private": True, "sensitivity": 0.05}

WAYS = {
    "until": lambda m: m.until(score, at_least=-2.0),
    "until-levels": lambda m: m.until(score, at_least=-2.0, levels=(0.1, 5.0, 20)),
    "until-grid": lambda m: m.until(score, at_least=-2.0, levels=GRID),
    "private": lambda m: m.until(score, at_least=-2.0, **TEST),
    "private-levels": lambda m: m.until(score, at_least=-2.0, levels=(0.1, 5.0, 20), **TEST),
    "private-grid": lambda m: m.until(score, at_least=-2.0, levels=GRID, **TEST),
    "on-levels": lambda m: m.on((0.1, 5.0, 20)).until(score, at_least=-2.0),
    "on-grid": lambda m: m.on(GRID).until(score, at_least=-2.0, **TEST),
    "interaction": lambda m: m.interaction(
        GRID, nrjax.utilities.FunctionUtility(score), nrjax.PublicThreshold(-2.0)
    ),
    "fixed": lambda m: nrjax.FixedRelease(m, 0.5).until(score, at_least=-2.0),
    "fixed-probabilistic": lambda m: nrjax.FixedRelease.at_time(m, 8.0, "probabilistic").until(
        score, at_least=-2.0
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_custom_recipe_is_the_default_boundary_in_all_ways(way):
    own = nrjax.brownian(3.0, 1.0, DELTA, boundary=Copy())
    assert WAYS[way](own) == WAYS[way](nrjax.brownian(3.0, 1.0, DELTA))


@pytest.mark.parametrize("way", WAYS)
def test_a_recipe_may_make_a_guarantee_for_all_times(way):
    own = nrjax.Mechanism(3.0, nrjax.Laplace(()), Pure())
    plain = nrjax.laplace(3.0, 1.0)
    if way == "until":  # without a guarantee the reachable levels are not known
        return
    # Levels of a private test are spaced again from its first level, hence to rounding.
    made, expected = WAYS[way](own), WAYS[way](plain)
    assert made.guarantee == expected.guarantee
    assert np.allclose(made.schedule.times, expected.schedule.times, rtol=1e-6, atol=0)
    assert made.rule == expected.rule


def test_a_recipe_may_make_a_guarantee_with_planned_times():
    own = nrjax.brownian(3.0, 1.0, DELTA, boundary=Designed())
    made = own.until(score, at_least=-2.0, levels=(0.3, 3.0, 8))
    assert isinstance(made.guarantee, nrjax.HockeyStickBoundary)
    assert made.steps == 8
    # Its first levels cost less than asked for, so that a private test starts later.
    private = own.until(score, at_least=-2.0, levels=(0.3, 3.0, 8), **TEST)
    costs = np.asarray(private.guarantee.epsilon(private.schedule.times), float)
    wrong = nrjax.stopping.accuracy.acceptance_probability(1.5, costs, 0.05)
    assert 0 < np.sum(np.asarray(wrong)) <= 0.1


class Wrong(Copy):
    """A recipe that makes another guarantee than it promises."""

    made: Any = nrjax.static(default=None)
    notion = "probabilistic"

    def on(self, schedule):
        return self.made

    def between(self, low, high, count):
        return self.made


class Silent(nrjax.Guarantee):
    """A custom guarantee that does not state its sensitivity."""

    noise, delta = "gaussian", DELTA

    def epsilon(self, time):
        return 10 / time


def one_sided(sensitivity=1.0, delta=DELTA):
    return nrjax.OneSidedMixtureBoundary.tight_at_epsilon(0.3, sensitivity, delta)


L2 = nrjax.Sensitivity(1.0, "l2", "replace")

FAULTS = {
    "nothing": (Wrong(), "guarantee of Wrong must be a nrjax.Guarantee .*got None"),
    "noise": (Wrong(made=nrjax.PureGuarantee(1.0)), "noise of .* must be 'gaussian'"),
    "sensitivity": (Wrong(made=one_sided(0.9)), "sensitivity must be .* of Wrong, 0.9"),
    "delta": (Wrong(made=one_sided(delta=1e-5)), "delta must be .* of Wrong, 1e-05"),
    "silent": (Wrong(made=Silent()), "sensitivity of .* must be stated"),
    "relation": (Wrong(L2, made=one_sided()), "relation of .* must be 'replace' .*own sensitivity"),
    "notion": (
        Wrong(made=nrjax.RenyiBoundary.tight_at_epsilon(0.3, 1.0, DELTA)),
        "notion of .* must be 'probabilistic', or imply it",
    ),
    "times": (
        Wrong(made=one_sided().on(nrjax.Grid([100.0, 30.0, 10.0, 3.0]))),
        "fixed_times of .* must be all times of the schedule",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_guarantee_that_does_not_cover_its_recipe_is_refused(fault):
    recipe, message = FAULTS[fault]
    mechanism = nrjax.brownian(3.0, recipe.sensitivity, DELTA, boundary=recipe)
    for way in ("until-grid", "private-grid", "on-grid", "interaction"):
        with pytest.raises(ValueError, match=message):
            WAYS[way](mechanism)
    if fault != "times":  # `between` makes its own times
        with pytest.raises(ValueError, match=message):
            WAYS["until-levels"](mechanism)


def test_a_guarantee_that_covers_its_recipe_is_accepted():  # negative control
    for made in (one_sided(), one_sided(1.1), one_sided(delta=1e-7), one_sided().on(GRID)):
        mechanism = nrjax.brownian(3.0, 1.0, DELTA, boundary=Wrong(made=made))
        assert type(WAYS["until-grid"](mechanism).guarantee) is type(made)


class Unstated(Copy):
    sensitivity: Any = None


class Misnamed(Copy):
    notion = "zCDP"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nrjax.brownian(3.0, 2.0, DELTA, boundary=Copy()), "sensitivity must be .*, 1 "),
        (lambda: nrjax.brownian(3.0, 1.0, 1e-7, boundary=Copy()), "delta must be .* 1e-06"),
        (lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Pure()), "guarantee must be for gauss"),
        (lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Unstated()), "of Unstated must be state"),
        (lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Misnamed()), "notion must be 'pure'"),
        (
            lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Copy(), tight_at_epsilon=0.3),
            "tight_at_epsilon must be None",
        ),
        (lambda: nrjax.brownian(3.0, 1.0, DELTA, boundary=Copy), "boundary must be .* recipe"),
    ],
)
def test_a_recipe_must_fit_its_mechanism(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("recipe", [Copy(), nrjax.guarantees.MinimaxBoundary(1.0, DELTA)])
def test_a_recipe_is_no_guarantee(recipe):
    assert not isinstance(recipe, nrjax.Guarantee)
    interaction = nrjax.brownian(3.0, 1.0, DELTA).until(score, at_least=-2.0, levels=GRID)
    budget = nrjax.ExPostFilter(1.0, DELTA)
    process = nrjax.Brownian(())
    for use in (
        lambda: nrjax.Interaction(
            value=3.0,
            process=process,
            guarantee=recipe,
            schedule=GRID,
            utility=interaction.utility,
            rule=interaction.rule,
        ),
        lambda: nrjax.Releases.of(3.0, process, recipe),
        lambda: nrjax.Grid.geometric(recipe, 0.1, 1.0, 3),
        lambda: composition.ExPost.of(recipe, 1.0),
        lambda: composition.FilteredSchedule(
            GRID, budget, budget.init(), composition.ExPost, guarantee=recipe
        ),
    ):
        with pytest.raises(ValueError, match=r"guarantee must be .*recipe\.on\(nrjax\.Grid"):
            use()
    for name in ("epsilon", "time"):
        with pytest.raises(AttributeError, match=r"for known levels .*recipe\.on\(nrjax\.Grid"):
            getattr(recipe, name)(1.0)
    with pytest.raises(AttributeError, match="no attribute 'epsilons'"):
        recipe.epsilons  # noqa: B018
