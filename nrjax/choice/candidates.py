"""The candidates of `nrjax.choose`: every mechanism and test that can answer a question."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np

from nrjax._base.keys import study_key
from nrjax._base.outcome import Status
from nrjax._base.validation import check
from nrjax.choice.question import Custom, Question
from nrjax.engine.fixed import FixedRelease, Notion
from nrjax.engine.interaction import Interaction
from nrjax.engine.mechanism import Mechanism
from nrjax.guarantees import (
    GridBoundary,
    HockeyStickBoundary,
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    RenyiMixture,
    log_uniform,
)
from nrjax.guarantees.notions import PUBLIC_TEST, notion_of
from nrjax.processes import IndependentLaplace
from nrjax.schedules import Grid
from nrjax.simulation.montecarlo import outcomes
from nrjax.stopping import accuracy
from nrjax.study.case import Case

Levels = tuple[float, float, int]
"""Epsilons (low, high, count) in equal ratios."""

_LEVELS: Levels = 0.01, 10.0, 100
"""Levels if no closed form says where trials stop."""

_BELOW, _ABOVE, _COUNT = 30.0, 4.0, 80
"""Else the levels start at 1/30 of the epsilon of a release fixed in advance, and end at 4 times
it, which no trial needs."""

_LARGEST = 50.0
"""Largest epsilon of a level, since a larger one states hardly any privacy."""

_MOST = 200.0
"""Largest epsilon of a candidate with a private test, or of one with a hockey-stick epsilon."""

_SURE = 2.0
"""Largest ratio of an epsilon that is sure to fit a private test to the smallest that fits."""

CHUNK = 1024
"""Number of trials per launch, always equal, so that a candidate is compiled once, and number of
trials that find the epsilon of a release that an oracle would fix in advance."""

_ORACLE_FIRST = 2**30
"""Number of the first trial that finds that epsilon. Others show how often it meets the target."""

_BOUNDARIES = {
    "linear": LinearBoundary,
    "mixture": MixtureBoundary,
    "one-sided-mixture": OneSidedMixtureBoundary,
}


class Candidate(NamedTuple):
    """A candidate of a choice.

    Attributes:
        interaction: interaction that a trial runs.
        section: section of the table. Only candidates of one section are ranked.
        goal: score that a trial must reach to meet the target.
        best: score of the exact answer.
    """

    interaction: Interaction
    section: str
    goal: float
    best: float

    @property
    def notion(self) -> str:
        """The privacy notion of the candidate's epsilon, such as "pure"."""
        return notion_of(self.interaction.guarantee) or "none"

    @property
    def delta(self) -> float:
        """The delta of the candidate's epsilon."""
        guarantee: Any = self.interaction.guarantee
        return float(np.max(np.asarray(guarantee.delta)))


class Plan(NamedTuple):
    """The target of a choice.

    Attributes:
        error: largest error, in the question's unit.
        confidence: least probability with which the error must be met.
        prior: epsilons (low, high) between which you expect trials to stop, or None.
        seed: seed of all trials, such as those that find the epsilon of an oracle.
    """

    error: float
    confidence: float
    prior: tuple[float, float] | None
    seed: int = 0


PUBLIC = PUBLIC_TEST
PRIVATE = "Private test: epsilon covers the decision to stop"
FIXED = "One release at an epsilon known in advance"
ORACLE = "One release at an epsilon that only an oracle knows in advance"


def candidates(question: Question | Custom, plan: Plan) -> dict[str, Candidate]:
    """Return the candidates for a question by name, the simplest first.

    Raises:
        ValueError: the factory of a custom question does not return interactions by name.
    """
    if isinstance(question, Question):
        return dict(_candidates(question, plan))
    made = question.factory(plan.error)
    is_dict = isinstance(made, Mapping) and len(made) > 0
    check(is_dict, "factory(error)", made, "a dict of nrjax.Interaction or nrjax.Case by name")
    return {name: _custom(each, plan.error) for name, each in made.items()}


def _custom(made: Any, error: float) -> Candidate:
    """Return the candidate of an interaction, or of the trial and the goal of a case."""
    # The threshold of a private test is above its target.
    case = made if isinstance(made, Case) else Case(trial=made, goal=-error)
    ok = isinstance(case.trial, Interaction) and case.goal is not None
    check(ok, "factory(error)", made, "of interactions, or of cases that have a goal")
    interaction, goal = cast(Interaction, case.trial), cast(float, case.goal)
    stated, hint = interaction.guarantee is not None, "Its epsilons are what is compared."
    check(stated, "guarantee", None, "given for each interaction of factory(error)", hint)
    section = PUBLIC if interaction.rule.sensitivity is None else PRIVATE
    threshold = Case(trial=interaction).goal
    if case is not made and section == PUBLIC and threshold is not None:
        expected, hint = "at most 0, as minus an error is", "Else give a nrjax.Case with a goal."
        check(threshold <= 0, "threshold", threshold, expected, hint)
    return Candidate(interaction, section, goal, 0.0)


def _candidates(question: Question, plan: Plan) -> Iterator[tuple[str, Candidate]]:
    """Generate the names and candidates of a question."""
    goal = question.best - plan.error
    options: Any = {"score": question.score, "data": question.data}
    options["sensitivity"] = question.sensitivity
    for noise, mechanism in question.mechanisms.items():
        title = noise.replace(" ", "-")

        def listed(
            section: str, interaction: Interaction, *name: str, title: str = title
        ) -> tuple[str, Candidate]:
            candidate = Candidate(interaction, section, goal, question.best)
            return "-".join([title, *name]), candidate

        target = noise, plan.error, plan.confidence
        smallest, largest = _exact_times(mechanism)

        def time_for(error: float, noise: str = noise, largest: float = largest) -> float | None:
            time = question.fixed_time and question.fixed_time(noise, error, plan.confidence)
            return time and min(time, largest)

        closed = time_for(plan.error)
        levels = _levels(mechanism, closed)
        settled, grid = _on_grid(mechanism, levels)
        public = settled.until(**options, at_least=goal, levels=grid)
        yield listed(PUBLIC, public)
        for name, each, times in (
            *((name, each, grid) for name, each in _boundaries(mechanism, grid, plan, levels)),
            *_doubling(mechanism, levels),
        ):
            interaction = each.until(**options, at_least=goal, levels=times)
            yield listed(PUBLIC, interaction, name)
        # A private test accepts a release whose error is smaller by the margin.
        strict = _levels(mechanism, time_for((1 - accuracy.MARGIN) * plan.error))
        for name, each, test, times in _tests(question, mechanism, plan, strict):
            interaction = each.until(**options, rule=test.rule, levels=times)
            yield listed(PRIVATE, interaction, name)

        def once(
            time: float, notion: Notion = "probabilistic", mechanism: Mechanism = mechanism
        ) -> Interaction:
            release = FixedRelease.at_time(mechanism, time, notion)
            return release.until(question.score, data=question.data, at_least=goal)

        time = closed or _oracle_time(once, grid, plan)
        if time is not None and time >= smallest:
            for notion in _notions(mechanism, time):
                name = ("once", notion) if notion == "hockey-stick" else ("once",)
                yield listed(FIXED if closed else ORACLE, once(time, notion), *name)
        bound = question.bound_time and question.bound_time(*target)
        if bound:
            yield listed(FIXED, once(bound), "bound")


def _exact_times(mechanism: Mechanism) -> tuple[float, float]:
    """Return the smallest and the largest time at which draws are exact.

    They are a little nearer to each other than that, since times of levels are rounded.
    """
    process, dtype = mechanism.process, jnp.result_type(float)
    return 1.001 * process.smallest_time(dtype), 0.999 * process.largest_time(dtype)


def _levels(mechanism: Mechanism, time: float | None) -> Levels:
    """Return levels around the epsilon of a release fixed in advance, if it is known.

    Only levels at which draws are exact are among them.
    """
    (low, high, count), (smallest, largest) = _LEVELS, _exact_times(mechanism)
    if time is not None:
        once = FixedRelease.at_time(mechanism, time, "probabilistic")
        middle = min(once.epsilon, _LARGEST / _ABOVE)
        low, high, count = middle / _BELOW, middle * _ABOVE, _COUNT
    if math.isfinite(largest):
        low = max(low, float(cast(Any, mechanism.guarantee).epsilon(largest)))
    high = max(high, _ABOVE * low)
    if smallest > 0:
        high = min(high, float(cast(Any, mechanism.guarantee).epsilon(smallest)))
    return low, high, count


def _notions(mechanism: Mechanism, time: float) -> tuple[Notion, ...]:
    """Return the notions by which the epsilon of one release is stated.

    There is no hockey-stick epsilon above 300, where it would state hardly any privacy.
    """
    is_gaussian = mechanism.process.noise == "gaussian"
    if is_gaussian and FixedRelease.at_time(mechanism, time, "probabilistic").epsilon < _MOST:
        return "probabilistic", "hockey-stick"
    return ("probabilistic",)


def _on_grid(mechanism: Mechanism, levels: Levels) -> tuple[Mechanism, Grid]:
    """Return the mechanism for known levels, and the grid of their times."""
    settled = mechanism.on(levels)
    guarantee: Any = settled.guarantee
    if guarantee.fixed_times is not None:
        return settled, Grid.explicit(guarantee.fixed_times)
    return settled, Grid.geometric(guarantee, *levels)


def _boundaries(
    mechanism: Mechanism, grid: Grid, plan: Plan, levels: Levels
) -> Iterator[tuple[str, Mechanism]]:
    """Generate the other boundaries of Brownian noise, tuned to the prior or a middle epsilon.

    All are on the times of one grid, so that trials stop at equal times under each of them.
    """
    guarantee: Any = mechanism.guarantee
    if mechanism.process.noise != "gaussian":
        return
    parameters = guarantee.sensitivity, float(guarantee.delta)
    times = np.asarray(grid.times, float)
    weights = np.ones(times.size)
    if plan.prior is not None:
        most, least = (float(_on_grid(mechanism, (e, e, 1))[1].times[0]) for e in plan.prior)
        weights = log_uniform(times, least, most)
    for name, kind in _BOUNDARIES.items():
        if plan.prior is None:
            tuned = kind.tight_at_epsilon(math.sqrt(levels[0] * levels[1]), *parameters)
        else:
            tuned = kind.design(times, weights, *parameters)
        boundary = GridBoundary.of(tuned, grid.times)
        yield name, dataclasses.replace(mechanism, guarantee=boundary)
    designed: dict[str, Any] = {"renyi-mixture": RenyiMixture.design(times, weights, *parameters)}
    if plan.prior is not None:
        designed["designed"] = HockeyStickBoundary.design(times, weights, *parameters)
    for name, boundary in designed.items():
        yield name, dataclasses.replace(mechanism, guarantee=boundary)


def _tests(
    question: Question, mechanism: Mechanism, plan: Plan, levels: Levels
) -> Iterator[tuple[str, Mechanism, accuracy.PrivateTest, Grid]]:
    """Generate private tests that accept a missed target with probability 1 - confidence at most.

    The levels start where the noise of the test fits the margin, and end where it is negligible.
    """
    utility, goal = mechanism.utility, question.best - plan.error
    sensitivity: Any = question.sensitivity if utility is None else utility.sensitivity
    if sensitivity is None:
        return
    margin, gamma = accuracy.MARGIN * plan.error, 1 - plan.confidence
    noises: tuple[accuracy.Noise, ...] = ("laplace", "exponential")
    for noise in noises:
        options: Any = {"margin": margin, "confidence": plan.confidence, "noise": noise}
        needed = accuracy.epsilon_for_shortfall(margin, sensitivity, gamma, 1 / _COUNT, noise)
        low = max(levels[0], float(needed) / _SURE)
        high = max(levels[1], low * _ABOVE * _SURE)
        smallest, _ = _exact_times(mechanism)
        most = float(cast(Any, mechanism.guarantee).epsilon(smallest)) if smallest else math.inf
        if high > min(_MOST, most):
            continue
        settled, grid = _on_grid(mechanism, (low, high, _COUNT))
        guarantee: Any = settled.guarantee
        test = accuracy.private_test(goal, guarantee.epsilon(grid.times), sensitivity, **options)
        name = "private" if noise == "laplace" else f"private-{noise}"
        yield name, settled, test, Grid.explicit(np.asarray(grid.times, float)[test.first :])


def _oracle_time(once: Callable[[float], Interaction], grid: Grid, plan: Plan) -> float | None:
    """Return the largest time of a grid at which one release meets the target, by bisection.

    It cannot be known beforehand. It is None if the last time does not suffice.
    """
    times, key = np.asarray(grid.times, float), study_key(plan.seed)

    def meets(index: int) -> bool:
        outcome = outcomes(once(times[index]), CHUNK).run(key, CHUNK, _ORACLE_FIRST)
        return bool(np.mean(outcome["status"] == Status.STOPPED) >= plan.confidence)

    missed, met = -1, times.size - 1
    if not meets(met):
        return None
    while met - missed > 1:
        middle = (missed + met) // 2
        missed, met = (missed, middle) if meets(middle) else (middle, met)
    return float(times[met])


def _doubling(mechanism: Mechanism, levels: Levels) -> Iterator[tuple[str, Mechanism, Grid]]:
    """Generate the method that releases with fresh noise, at twice the epsilon each time."""
    if mechanism.process.noise != "laplace":
        return
    guarantee: Any = mechanism.guarantee
    low, high, _ = levels
    epsilons = low * 2.0 ** np.arange(math.ceil(math.log2(high / low)) + 1)
    process = IndependentLaplace(np.shape(mechanism.value))
    fresh = dataclasses.replace(mechanism, process=process)
    yield "doubling", fresh, Grid.explicit(np.asarray(guarantee.time(epsilons)))
