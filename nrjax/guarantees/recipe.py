"""Recipes for boundaries, which make a guarantee when the levels are known."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax._base.dtypes import float_dtype
from nrjax._base.format import format_value
from nrjax._base.notions import Notion
from nrjax._base.pytrees import Pytree
from nrjax._base.sensitivities import relation_of
from nrjax._base.validation import check, check_positive, concrete_or_none
from nrjax.types import Guarantee, Schedule

HINT = "Use mechanism.until(...), or the guarantee that recipe.on(nrjax.Grid(times)) returns."
"""The hint of errors about a recipe in place of a guarantee."""


class BoundaryRecipe(Pytree, abc.ABC):
    """A recipe that makes a guarantee once the noise levels of a mechanism are known.

    Subclass it if your boundary depends on all levels of a trial, so that it has no epsilon before
    the levels are known. Subclass `nrjax.Guarantee` if the epsilon of a time depends on the time
    only. Pass a recipe as `nrjax.brownian(boundary=)`, or as the guarantee of a `nrjax.Mechanism`.
    The mechanism's `until`, `on` and `interaction` then call it. They raise an error if the
    guarantee does not cover the recipe's sensitivity, delta, relation of neighbours and notion.

        >>> class Middle(nrjax.guarantees.BoundaryRecipe):  # tight at the middle level
        ...     sensitivity: float
        ...     delta: float
        ...     noise = "gaussian"
        ...     def on(self, schedule):
        ...         middle, kind = float(np.median(schedule.times)), nrjax.OneSidedMixtureBoundary
        ...         return kind.tight_at_time(middle, self.sensitivity, self.delta).on(schedule)
        ...     def between(self, low, high, count):
        ...         middle, kind = float(np.sqrt(low * high)), nrjax.OneSidedMixtureBoundary
        ...         return kind.tight_at_epsilon(middle, self.sensitivity, self.delta)
        >>> recipe = Middle(sensitivity=1.0, delta=1e-6)
        >>> mechanism = nrjax.brownian(3.0, sensitivity=1.0, delta=1e-6, boundary=recipe)
        >>> type(mechanism.on((0.3, 3.0, 10)).guarantee).__name__
        'GridBoundary'

    Attributes:
        noise: `NoiseProcess.noise` of the processes that the guarantees are for; None for any.
        sensitivity: sensitivity of the private value, in the norm that goes with the noise. It must
            be stated.
        delta: largest delta of the guarantees; 0 if they are pure.
        relation: relation of the neighbours, by default the one that `sensitivity` states; None if
            it is not stated. The guarantees must state the same.
        notion: notion that the guarantees have or imply (`nrjax.guarantees.Notion`); None if it is
            not stated.
    """

    noise = None
    sensitivity = None
    delta = 0.0
    relation = None
    notion = None

    @abc.abstractmethod
    def on(self, schedule: Schedule) -> Guarantee:
        """Return the guarantee for runs of a schedule.

        Raises:
            ValueError: there is no guarantee for this schedule.
        """

    @abc.abstractmethod
    def between(self, low: float, high: float, count: int) -> Guarantee:
        """Return the guarantee for `count` levels of epsilon from `low` to `high`.

        The levels are `planned_times` or `fixed_times` of the guarantee if it has them, and else
        the times that cost `count` epsilons in equal ratios. If `count` is 1, `low` is `high`.

        Raises:
            ValueError: there is no guarantee for these levels.
        """

    if not TYPE_CHECKING:  # a type checker reports a misspelt name by itself

        def __getattr__(self, name):
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("epsilon", "time"):
                text = f"guarantee must be for known levels (got {format_value(self, 60)}). {HINT}"
            raise AttributeError(text)


def hint_for(part: Any) -> str:
    """Return the hint for a part that must be a guarantee, "" unless the part is a recipe."""
    return HINT if isinstance(part, BoundaryRecipe) else ""


def check_recipe(recipe: BoundaryRecipe) -> None:
    """Check that a recipe states its sensitivity and a known notion."""
    name, stated = f"sensitivity of {type(recipe).__name__}", recipe.sensitivity
    check(stated is not None, name, None, "stated", "Declare it as a field of the recipe.")
    check_positive(name, stated)
    if recipe.notion is not None:
        Notion(recipe.notion)


def check_covers(part: Any, sensitivity: Any, delta: Any, owner: str = "the boundary") -> None:
    """Check that the sensitivity and delta of a part cover the given ones.

    A custom guarantee that states no sensitivity is accepted.
    """
    for name, value, most in (
        ("sensitivity", sensitivity, np.less_equal),
        ("delta", delta, np.greater_equal),
    ):
        own = getattr(part, name)
        stated, covered = concrete_or_none(own), concrete_or_none(value)
        if stated is not None and covered is not None:
            expected = f"the {name} of {owner}, {np.max(stated):.6g}"
            check(most(covered, stated), name, value, expected)
        else:
            hint = f"Traced numbers cannot be compared: pass the {name} of {owner}."
            same = own is None or value is own
            check(same, name, value, f"the {name} of {owner}, {format_value(own)}", hint)


def check_made(recipe: BoundaryRecipe, made: Any, times: Any) -> Guarantee:
    """Return the guarantee that a recipe made, after checking that it covers the recipe's promises.

    Args:
        recipe: the recipe.
        made: result of its `on` or `between`.
        times: times of the schedule; None if they are not known.

    Raises:
        ValueError: `made` is no guarantee, or is for another noise, a smaller sensitivity, a larger
            delta, another relation, a notion that implies less, or not for all times.
    """
    owner = f"the guarantee of {type(recipe).__name__}"
    check(isinstance(made, Guarantee), owner, made, "a nrjax.Guarantee")
    name, hint = f"sensitivity of {owner}", "Pass the recipe's own sensitivity on."
    check(made.sensitivity is not None, name, None, "stated", hint)
    fits = None in (recipe.noise, made.noise) or recipe.noise == made.noise
    check(fits, f"noise of {owner}", made.noise, repr(recipe.noise))
    check_covers(made, recipe.sensitivity, recipe.delta, owner)
    relation, found = relation_of(recipe), relation_of(made)
    check(found == relation, f"relation of {owner}", found, repr(relation), hint)
    if recipe.notion is not None:
        implied = Notion(made.notion).at_delta(made.delta).implies(recipe.notion)
        check(implied, f"notion of {owner}", made.notion, f"{recipe.notion!r}, or imply it")
    fixed, planned = concrete_or_none(made.fixed_times), concrete_or_none(times)
    if fixed is not None and planned is not None:
        dtype = float_dtype()
        other = ~np.isin(planned.astype(dtype), fixed.astype(dtype))
        expected = "all times of the schedule"
        check(~other, f"fixed_times of {owner}", planned[other], expected)
    return made
