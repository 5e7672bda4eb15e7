"""Mechanisms: a private value with noise and a guarantee, and interactions made from them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from jax.typing import ArrayLike

from nrjax._base.arrays import copied
from nrjax._base.dtypes import float_dtype, widened
from nrjax._base.format import format_value
from nrjax._base.modes import neutral_config
from nrjax._base.notions import notion_of
from nrjax._base.numerics import check_wide
from nrjax._base.pytrees import Pytree
from nrjax._base.sensitivities import relation_of, rounded_up, shared_relation, with_relation
from nrjax._base.validation import as_table, check, check_numbers, check_positive, check_within
from nrjax._base.value import check_array
from nrjax.engine.checks_between_parts import check_integral, check_own_value
from nrjax.engine.interaction import Interaction
from nrjax.engine.levels import Levels, resolve, with_levels, with_private_test
from nrjax.guarantees import (
    BoundaryRecipe,
    DiscretePureGuarantee,
    LinearBoundary,
    MinimaxBoundary,
    PureGuarantee,
    SphericalPureGuarantee,
)
from nrjax.guarantees.recipe import check_covers, check_recipe
from nrjax.processes import Brownian, DiscreteLaplace, Laplace, SphericalLaplace
from nrjax.stopping import PublicThreshold, accuracy
from nrjax.types import Guarantee, NoiseProcess, Schedule, StoppingRule, Utility
from nrjax.utilities import FunctionUtility


class Mechanism(Pytree):
    """A private value with noise and a guarantee that fit, checked against each other.

    `nrjax.brownian`, `nrjax.laplace`, `nrjax.discrete_laplace` and the problems of `nrjax.erm` make
    mechanisms. `until` makes an interaction in one call. `interaction` takes a schedule, a utility
    and a rule of your choice. `value, process, guarantee = mechanism` gives the parts, from which
    you make the mechanism of another process.

        >>> value, process, guarantee = nrjax.laplace([3.0, 4.0], sensitivity=1.0)
        >>> nrjax.Mechanism(value, process, guarantee).process
        Laplace(shape=(2,))

    Attributes:
        value: private value f(x), of the process's shape. Pass interactions to your own `jit`, not
            mechanisms: JAX rounds a plain value to 32 bits, which may move neighbours apart.
        process: noise process, which is added to the value.
        guarantee: privacy guarantee for this noise and for the sensitivity of the value; or a
            `nrjax.guarantees.BoundaryRecipe`, from which `until`, `interaction` and `on` make the
            guarantee when the levels are known. None means that no epsilon is stated.
        utility: utility that `until` uses by default; None if there is none.

    Raises:
        ValueError: the value is not finite or not of the process's shape, the guarantee is for
            another noise, or a part has the wrong type.
    """

    value: Any
    process: NoiseProcess
    guarantee: Guarantee | BoundaryRecipe | None
    utility: Utility | None = None

    def __post_init__(self):
        for name, *kinds in (
            ("process", NoiseProcess),
            ("guarantee", Guarantee, BoundaryRecipe),
            ("utility", Utility),
        ):
            part = getattr(self, name)
            ok = isinstance(part, tuple(kinds)) or (part is None and name != "process")
            check(ok, name, part, f"an instance of nrjax.{kinds[0].__name__}")
        process, guarantee = self.process, self.guarantee
        if isinstance(guarantee, BoundaryRecipe):
            check_recipe(guarantee)
        else:
            notion_of(guarantee)  # refuses the name of an unknown notion
        check_wide("guarantee", guarantee)
        covered = None if guarantee is None else guarantee.noise
        fits = None in (covered, process.noise) or covered == process.noise
        expected = f"for {process.noise} noise, which {type(process).__name__} makes"
        check(fits, "guarantee", guarantee, expected)
        value = check_array("value", self.value, tuple(process.shape))
        check_integral(process, value, None, float_dtype(value))
        check_own_value(process, value, float_dtype(value))
        object.__setattr__(self, "value", copied(widened(value)))

    @property
    def relation(self) -> str | None:
        """The relation of the neighbours, if the guarantee's sensitivity states it."""
        return relation_of(self.guarantee)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over value, process and guarantee."""
        return iter((self.value, self.process, self.guarantee))

    def __repr__(self) -> str:
        parts = zip(("value", "process", "guarantee"), self, strict=True)
        shown = [f"{name}={format_value(part)}" for name, part in parts]
        if self.utility is not None:
            shown.append(f"utility={type(self.utility).__name__}")
        return f"Mechanism({', '.join(shown)})"

    @neutral_config()
    def on(self, levels: Levels) -> Mechanism:
        """Return the mechanism with its guarantee tightened for known levels (`Guarantee.on`).

        On a grid a boundary is exact at the grid's times, and has smaller epsilons. Use the result
        in interactions with these levels only. They are the default levels of its `until`.

        Args:
            levels: epsilons `(low, high, count)` in equal ratios, or a schedule such as a `Grid`.
        """
        check_wide("mechanism", self)
        guarantee, schedule = with_levels(self.guarantee, self._levels(levels))
        tightened = None if guarantee is None else guarantee.on(schedule)
        return dataclasses.replace(self, guarantee=tightened)

    def interaction(
        self, schedule: Schedule, utility: Utility, rule: StoppingRule, **options: Any
    ) -> Interaction:
        """Return the interaction of this mechanism with a schedule, a utility and a rule.

        `options` are other arguments of `nrjax.Interaction`, such as `max_steps`.
        """
        check(isinstance(schedule, Schedule), "schedule", schedule, "an instance of nrjax.Schedule")
        check_wide("mechanism", self)
        guarantee = with_levels(self.guarantee, schedule)[0]
        parts: Any = {"value": self.value, "process": self.process, "guarantee": guarantee}
        return Interaction(**parts, schedule=schedule, utility=utility, rule=rule, **options)

    @neutral_config()
    def until(
        self,
        score: Utility | Callable[..., Any] | None = None,
        *,
        at_least: ArrayLike | None = None,
        data: tuple[Any, ...] = (),
        levels: Levels | None = None,
        private: bool = False,
        margin: float | None = None,
        confidence: float | None = None,
        rule: StoppingRule | None = None,
        sensitivity: ArrayLike | None = None,
        shift: ArrayLike | None = None,
    ) -> Interaction:
        """Return the interaction that removes noise until the score of a release is good enough.

        By default the test of the score is public (`nrjax.PublicThreshold`): the epsilon covers the
        releases, but not the decision to stop. `private=True` makes a private test
        (`nrjax.ReducedAboveThreshold`), whose cost is added. It accepts a score below `at_least`
        with probability at most `1 - confidence`: its threshold is `at_least + margin`, and it
        skips the first levels, at which its noise is too wide for the margin (see
        `nrjax.stopping.accuracy.private_test`).

            >>> def score(release, truth):
            ...     return -jnp.abs(release - truth)
            >>> mechanism = nrjax.brownian(120.0, sensitivity=1.0, delta=1e-6)
            >>> interaction = mechanism.until(score, at_least=-2.0, data=(120.0,))
            >>> interaction.steps  # nrjax.simulate(key, interaction, trials=1000) runs it
            100

        Args:
            score: a JAX function `score(release, *data)` that returns a scalar, larger for a better
                release, or a `nrjax.Utility`. By default the mechanism's own utility, which
                mechanisms of problems have. Define a function once, since each new function is
                compiled again.
            at_least: score at which a release is good enough.
            data: further arguments of the function: a tuple of numbers and arrays.
            levels: epsilons `(low, high, count)` in equal ratios, or a schedule such as a `Grid`.
                By default those given to `Mechanism.on`, else 100 epsilons from 0.01 to 10, or a
                part of this range if the boundary or discrete noise reaches only a part.
            private: whether the test of the score is private. Such a test needs levels whose times
                are fixed in advance. In a study write `nrjax.Case(trial=interaction,
                goal=at_least)`: by default the goal is the rule's threshold, margin included.
            margin: distance of the private test's threshold above `at_least`, in units of the
                score. By default 3/4 of the distance from `at_least` to the best score. For a
                problem's utility the best score is that of the optimum, which is taken as public.
                For other scores it is 0.
            confidence: least probability with which the private test does not accept a score below
                `at_least`; by default 0.9.
            rule: stopping rule to use in place of `at_least`.
            sensitivity: largest change of the score, at a fixed release, if one row of the data
                changes. A private test needs it, unless the utility states it.
            shift: f(x) - f(x') for a neighbouring data set x', to report the realised privacy loss.

        Raises:
            ValueError: not exactly one of `at_least` and `rule` is given, an argument is out of
                range, no level is large enough for the private test, or JAX cannot trace the score.
        """
        if at_least is not None:
            check_numbers("at_least", at_least, lambda n: ~np.isnan(n), "a number")
            check_within("at_least", at_least, float_dtype(self.value))
        check(isinstance(private, (bool, np.bool_)), "private", private, "True or False")
        given = at_least is not None or rule is not None
        check(given, "at_least", None, "given, or else a rule", "For example at_least=-2.0.")
        expected = "None if at_least is given, which makes a rule"
        check(rule is None or at_least is None, "rule", rule, expected)
        hint = "Leave rule or private away: a rule is private or public by itself."
        check(rule is None or not private, "private", private, "False for a rule", hint)
        for name, option in (("margin", margin), ("confidence", confidence)):
            hint = f"Only private tests have a {name}: write private=True."
            check(option is None or private, name, option, "None for a public test", hint)
        utility = self._utility(score, data, sensitivity)
        levels = self._levels(levels)
        if private:
            known: Any = utility.sensitivity if sensitivity is None else sensitivity
            hint = "It is the largest change of the score if one row of the data changes."
            check(known is not None, "sensitivity", None, "given for a private test", hint)
            options: Any = {"margin": margin, "best": utility.best}
            options["dtype"] = float_dtype(self.value)
            options["confidence"] = 0.9 if confidence is None else confidence
            target: Any = at_least
            set_up = functools.partial(accuracy.private_test, target, sensitivity=known, **options)
            guarantee, schedule, rule = with_private_test(self.guarantee, levels, set_up)
        else:
            rule = PublicThreshold(at_least) if rule is None else rule
            guarantee, schedule = with_levels(self.guarantee, levels)
        mechanism = dataclasses.replace(self, guarantee=guarantee)
        return mechanism.interaction(schedule, utility, rule, shift=shift)

    def _utility(self, score: Any, data: Any, sensitivity: Any) -> Utility:
        """Return the utility of a score."""
        score = self.utility if score is None else score
        hint = "Write until(score, ...) with a function of a release that returns a scalar."
        check(score is not None, "score", None, "given for a mechanism without a utility", hint)
        if not isinstance(score, Utility):
            return FunctionUtility(score, data, sensitivity)
        hint = "Put the data into the fields of the utility."
        check(isinstance(data, tuple) and not data, "data", data, "() for a nrjax.Utility", hint)
        return score

    def _levels(self, levels: Levels | None) -> Levels:
        return resolve(levels, self.guarantee, self.process, float_dtype(self.value))


def brownian(
    value: ArrayLike,
    sensitivity: ArrayLike,
    delta: ArrayLike,
    *,
    boundary: Literal["minimax", "linear"] | type | Guarantee | BoundaryRecipe = "minimax",
    tight_at_epsilon: ArrayLike | None = None,
) -> Mechanism:
    """Return the Brownian mechanism for a value: Gaussian noise with a privacy boundary.

    Use it for values whose l2-sensitivity is small, such as vectors. The default boundary needs no
    tuning: on the levels that `until` is given, it is at most 1.17 times as expensive as for an
    oracle that knows where the trial stops, at delta = 1e-6 (statement 11 of `docs/proofs`).

        >>> mechanism = nrjax.brownian([3.0, 4.0], sensitivity=1.0, delta=1e-6)
        >>> mechanism.guarantee
        MinimaxBoundary(sensitivity=1.0, delta=1e-06, notion='probabilistic')

    Args:
        value: private value f(x), a number or an array.
        sensitivity: l2-sensitivity of the value: the largest change by one row of the data. A
            number, or a `nrjax.Sensitivity` in the norm "l2".
        delta: probability with which the privacy loss may exceed the stated epsilon.
        boundary: "minimax", "linear" (Whitehouse 2022), a class of boundaries such as
            `nrjax.OneSidedMixtureBoundary`, a guarantee, or a recipe for one
            (`nrjax.guarantees.BoundaryRecipe`). A linear boundary and a class need
            `tight_at_epsilon`. Guarantees and recipes must have this sensitivity and delta, or
            cover them.
        tight_at_epsilon: epsilon that the boundary reaches with the least possible noise. With the
            default boundary it means the linear one.

    Raises:
        ValueError: an argument is missing or out of range.
    """
    sensitivity = rounded_up(sensitivity)
    named = boundary if isinstance(boundary, str) else None
    guarantee: Guarantee | BoundaryRecipe
    if isinstance(boundary, (Guarantee, BoundaryRecipe)):
        guarantee = _covering(boundary, sensitivity, delta, tight_at_epsilon)
    elif tight_at_epsilon is None and named == "minimax":
        guarantee = MinimaxBoundary(sensitivity, delta)
    else:
        kind: Any = LinearBoundary if named in ("minimax", "linear") else boundary
        ok = isinstance(kind, type) and hasattr(kind, "tight_at_epsilon")
        expected = "'minimax', 'linear', a class of boundaries, a nrjax.Guarantee or a recipe"
        check(ok, "boundary", boundary, expected)
        hint = f"{kind.__name__} is tuned to an epsilon, for example tight_at_epsilon=0.3."
        check(tight_at_epsilon is not None, "tight_at_epsilon", None, "given", hint)
        check_positive("tight_at_epsilon", tight_at_epsilon)
        guarantee = kind.tight_at_epsilon(tight_at_epsilon, sensitivity, delta)
    return Mechanism(value, Brownian(np.shape(as_table(value))), guarantee)


def _covering(
    guarantee: Guarantee | BoundaryRecipe, sensitivity: Any, delta: Any, tight: Any
) -> Guarantee | BoundaryRecipe:
    """Return a boundary with the given relation, after checking that it covers the rest."""
    check(tight is None, "tight_at_epsilon", tight, "None for a guarantee, which is tuned already")
    MinimaxBoundary(sensitivity, delta)  # checks both
    relation = shared_relation(sensitivity=sensitivity, boundary=guarantee)
    check_covers(guarantee, sensitivity, delta)
    return with_relation(guarantee, relation)


def laplace(value: ArrayLike, sensitivity: ArrayLike) -> Mechanism:
    """Return the Laplace mechanism for a value, with a pure guarantee.

    Use it for one number, a histogram or a vector, and wherever delta must be 0. The norm of the
    sensitivity decides on the noise: for "l1", which a plain number is taken to be in, independent
    noise on each coordinate (`nrjax.Laplace`), and for "l2" `nrjax.SphericalLaplace`. In d
    dimensions that has the smaller variance if the l1-sensitivity is above `sqrt((d + 1)/2)` times
    the l2-sensitivity, as for means of vectors and regression, but not for histograms.

        >>> nrjax.laplace([3.0, 4.0], sensitivity=1.0).guarantee
        PureGuarantee(sensitivity=1.0)
        >>> nrjax.laplace([3.0, 4.0], nrjax.Sensitivity(1.0, "l2")).process
        SphericalLaplace(shape=(2,))

    Args:
        value: private value f(x), a number or an array.
        sensitivity: sensitivity of the value: the largest change by one row of the data. A number,
            which is an l1-sensitivity, or a `nrjax.Sensitivity` in the norm "l1" or "l2".

    Raises:
        ValueError: an argument is out of range.
    """
    sensitivity, shape = rounded_up(sensitivity), np.shape(as_table(value))
    if getattr(sensitivity, "norm", "l1") == "l2":
        return Mechanism(value, SphericalLaplace(shape), SphericalPureGuarantee(sensitivity))
    return Mechanism(value, Laplace(shape), PureGuarantee(sensitivity))


def discrete_laplace(value: ArrayLike, sensitivity: ArrayLike) -> Mechanism:
    """Return the discrete Laplace mechanism for a value of integers, with a pure guarantee.

    Use it for counts: releases are integers, and cost as much as with Laplace noise.

        >>> nrjax.discrete_laplace([30, 4], sensitivity=1).process
        DiscreteLaplace(shape=(2,))

    Args:
        value: private value f(x), an integer or an array of integers.
        sensitivity: l1-sensitivity of the value: the largest change by one row of the data. A
            number, or a `nrjax.Sensitivity` in the norm "l1".

    Raises:
        ValueError: an argument is out of range, or the value has a fraction.
    """
    process = DiscreteLaplace(np.shape(as_table(value)))
    return Mechanism(value, process, DiscretePureGuarantee(rounded_up(sensitivity)))
