"""The candidates of `nrjax.choose`: every mechanism and test that can answer a question."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from nrjax._base.notions import Notion
from nrjax._base.sensitivities import with_relation
from nrjax._base.validation import check
from nrjax.choice.oracle import first_that_meets
from nrjax.choice.plan import (
    FIXED,
    ORACLE,
    PRIVATE,
    PUBLIC,
    SEARCH,
    Candidate,
    Levels,
    Plan,
)
from nrjax.choice.question import Custom, Question
from nrjax.engine.fixed import FixedRelease
from nrjax.engine.interaction import Interaction
from nrjax.engine.mechanism import Mechanism
from nrjax.guarantees import (
    BoundaryRecipe,
    GridBoundary,
    HockeyStickBoundary,
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    RenyiMixture,
    log_uniform,
)
from nrjax.processes import IndependentLaplace
from nrjax.schedules import Grid
from nrjax.stopping import accuracy
from nrjax.study.case import Case
from nrjax.study.checks import check_folders

_BOUNDARIES = {
    "linear": LinearBoundary,
    "mixture": MixtureBoundary,
    "one-sided-mixture": OneSidedMixtureBoundary,
}


Maker = Callable[[Question, Mechanism, Plan], Iterator[tuple[str, Candidate]]]
"""A function `maker(question, mechanism, plan)` that generates candidates of one mechanism.

It yields pairs of a name and a `Candidate`. The name follows that of the mechanism, such as "once"
in "laplace-once". An empty name stands for the mechanism's name.
"""


def candidates(
    question: Question | Custom, plan: Plan, makers: Sequence[Maker] = ()
) -> dict[str, Candidate]:
    """Return the candidates for a question by name, the simplest first.

    Args:
        question: the question.
        plan: target of the choice.
        makers: functions that generate further candidates, after those of `MAKERS`.

    Raises:
        ValueError: the factory of a custom question does not return interactions by name, or a
            maker yields something else than a new name and a candidate with a guarantee.
    """
    if isinstance(question, Custom):
        hint = "Return their interactions from the factory."
        check(not makers, "makers", makers, "left out for a custom question", hint)
        made = question.factory(plan.error)
        is_dict = isinstance(made, Mapping) and len(made) > 0
        check(is_dict, "factory(error)", made, "a dict of nrjax.Interaction or nrjax.Case by name")
        check_folders("name of a candidate", made)
        return {name: _custom(each, plan.error) for name, each in made.items()}
    listed: dict[str, Candidate] = {}
    for noise, mechanism in question.mechanisms.items():
        title = noise.replace(" ", "-")
        for maker in (*MAKERS, *makers):
            for name, candidate in maker(question, mechanism, plan):
                name = f"{title}-{name}" if name else title
                check(name not in listed, "name of a candidate", name, "a new one")
                known = isinstance(candidate, Candidate)
                stated = known and candidate.interaction.guarantee is not None
                expected = "a Candidate whose interaction has a guarantee"
                check(stated, f"candidate {name}", candidate, expected)
                listed[name] = candidate
    for name, make in question.releases.items():
        interaction = _fixed_by_oracle(question, plan, make)
        if interaction is not None:
            listed[f"{name}-once"] = Candidate.of(question, plan, interaction, ORACLE)
    return listed


def _fixed_by_oracle(
    question: Question, plan: Plan, make: Callable[[float], Any]
) -> Interaction | None:
    """Return one of `Question.releases` at the least epsilon that meets the target, or None."""

    def once(epsilon: float) -> Interaction:
        options: Any = {"data": question.data, "at_least": question.best - plan.error}
        return make(epsilon).until(question.score, **options)

    epsilon = first_that_meets(once, np.geomspace(*SEARCH.levels), plan)
    return None if epsilon is None else once(epsilon)


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
    return Candidate(interaction, section, goal, None if case is made else 0.0)


def _exact_times(mechanism: Mechanism) -> tuple[float, float]:
    """Return the smallest and the largest time at which draws are exact.

    They are a little nearer to each other than that, since times of levels are rounded.
    """
    process, dtype = mechanism.process, jnp.result_type(float)
    return 1.001 * process.smallest_time(dtype), 0.999 * process.largest_time(dtype)


def _fixed_time(question: Question, mechanism: Mechanism, plan: Plan) -> float | None:
    """Return the largest time at which one release meets the target, None without a closed form."""
    if question.fixed_time is None:
        return None
    time = question.fixed_time(question.noise_of(mechanism), plan.error, plan.confidence)
    return time and min(time, _exact_times(mechanism)[1])


def _levels(question: Question, mechanism: Mechanism, plan: Plan) -> Levels:
    """Return levels around the epsilon of a release fixed in advance, if it is known.

    Only levels at which draws are exact are among them.
    """
    (low, high, count), (smallest, largest) = SEARCH.levels, _exact_times(mechanism)
    time = _fixed_time(question, mechanism, plan)
    if time is not None:
        once = FixedRelease.at_time(mechanism, time, Notion.PROBABILISTIC)
        middle = min(once.epsilon, SEARCH.largest_level / SEARCH.above)
        low, high, count = middle / SEARCH.below, middle * SEARCH.above, SEARCH.count
    if mechanism.process.integral:  # other noise is exact where it costs nearly nothing
        low = max(low, float(cast(Any, mechanism.guarantee).epsilon(largest)))
    return low, min(max(high, SEARCH.above * low), _most(mechanism, smallest)), count


def _most(mechanism: Mechanism, smallest: float) -> float:
    """Return the epsilon of the smallest time at which draws are exact."""
    guarantee: Any = mechanism.guarantee
    is_recipe = isinstance(guarantee, BoundaryRecipe)  # whose levels are checked when they are made
    return math.inf if is_recipe or not smallest else float(guarantee.epsilon(smallest))


def _notions(mechanism: Mechanism, time: float) -> tuple[Notion, ...]:
    """Return the notions by which the epsilon of one release is stated.

    A hockey-stick epsilon above `SEARCH.largest_epsilon` would state hardly any privacy.
    """
    is_gaussian = mechanism.process.noise == "gaussian"
    if is_gaussian:
        stated = FixedRelease.at_time(mechanism, time, Notion.PROBABILISTIC).epsilon
        if stated < SEARCH.largest_epsilon:
            return Notion.PROBABILISTIC, Notion.HOCKEY_STICK
    return (Notion.PROBABILISTIC,)


def _on_grid(mechanism: Mechanism, levels: Levels) -> tuple[Mechanism, Grid]:
    """Return the mechanism for known levels, and the grid of their times."""
    settled = mechanism.on(levels)
    guarantee: Any = settled.guarantee
    if guarantee.fixed_times is not None:
        return settled, Grid.explicit(guarantee.fixed_times)
    return settled, Grid.geometric(guarantee, *levels)


def _with_public_test(
    question: Question, mechanism: Mechanism, plan: Plan, levels: Grid
) -> Candidate:
    """Return the candidate that stops when the score of a release reaches the goal."""
    goal = question.best - plan.error
    options: Any = {"data": question.data, "sensitivity": question.sensitivity}
    interaction = mechanism.until(question.score, at_least=goal, levels=levels, **options)
    return Candidate.of(question, plan, interaction, PUBLIC)


def _at_one_time(
    question: Question,
    mechanism: Mechanism,
    plan: Plan,
    time: float,
    notion: Notion = Notion.PROBABILISTIC,
) -> Interaction:
    """Return the interaction that makes one release, at a time fixed in advance."""
    goal = question.best - plan.error
    release = FixedRelease.at_time(mechanism, time, notion)
    return release.until(question.score, data=question.data, at_least=goal)


def public_test(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate the candidate with a public test and the mechanism's own guarantee."""
    settled, grid = _on_grid(mechanism, _levels(question, mechanism, plan))
    yield "", _with_public_test(question, settled, plan, grid)


def boundaries(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate the other boundaries of Brownian noise, tuned to the prior or a middle epsilon.

    All are on the times of one grid, so that trials stop at equal times under each of them.
    """
    if mechanism.process.noise != "gaussian":
        return
    guarantee: Any = mechanism.guarantee
    levels = _levels(question, mechanism, plan)
    grid = _on_grid(mechanism, levels)[1]
    parameters = guarantee.sensitivity, float(guarantee.delta)
    times = np.asarray(grid.times, float)
    weights = np.ones(times.size)
    if plan.prior is not None:
        most, least = (float(_on_grid(mechanism, (e, e, 1))[1].times[0]) for e in plan.prior)
        weights = log_uniform(times, least, most)
    designed: dict[str, Any] = {}
    for name, kind in _BOUNDARIES.items():
        if plan.prior is None:
            tuned = kind.tight_at_epsilon(math.sqrt(levels[0] * levels[1]), *parameters)
        else:
            tuned = kind.design(times, weights, *parameters)
        designed[name] = GridBoundary.of(tuned, grid.times)
    designed["renyi-mixture"] = RenyiMixture.design(times, weights, *parameters)
    if plan.prior is not None:
        designed["designed"] = HockeyStickBoundary.design(times, weights, *parameters)
    for name, boundary in designed.items():
        stated = with_relation(boundary, mechanism.relation)
        tuned = dataclasses.replace(mechanism, guarantee=stated)
        yield name, _with_public_test(question, tuned, plan, grid)


def doubling(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate the method that releases with fresh noise, at twice the epsilon each time."""
    if mechanism.process.noise != "laplace":
        return
    guarantee: Any = mechanism.guarantee
    low, high, _ = _levels(question, mechanism, plan)
    epsilons = low * 2.0 ** np.arange(math.ceil(math.log2(high / low)) + 1)
    process = IndependentLaplace(np.shape(mechanism.value))
    fresh = dataclasses.replace(mechanism, process=process)
    grid = Grid.explicit(np.asarray(guarantee.time(epsilons)))
    yield "doubling", _with_public_test(question, fresh, plan, grid)


def private_tests(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate private tests that accept a missed target with probability 1 - confidence at most.

    The levels start where the noise of the test fits the margin, and end where it is negligible.
    """
    utility, goal = mechanism.utility, question.best - plan.error
    sensitivity: Any = question.sensitivity if utility is None else utility.sensitivity
    if sensitivity is None:
        return
    margin, gamma = accuracy.MARGIN * plan.error, 1 - plan.confidence
    # A private test accepts a release whose error is smaller by the margin.
    strict = plan._replace(error=(1 - accuracy.MARGIN) * plan.error)
    levels = _levels(question, mechanism, strict)
    most = _most(mechanism, _exact_times(mechanism)[0])
    noises: tuple[accuracy.Noise, ...] = ("laplace", "exponential")
    for noise in noises:
        options: Any = {"margin": margin, "confidence": plan.confidence, "noise": noise}
        share = 1 / SEARCH.count
        needed = accuracy.epsilon_for_shortfall(margin, sensitivity, gamma, share, noise)
        low = max(levels[0], float(needed) / SEARCH.test_factor)
        high = max(levels[1], low * SEARCH.above * SEARCH.test_factor)
        if high > min(SEARCH.largest_epsilon, most):
            continue
        settled, grid = _on_grid(mechanism, (low, high, SEARCH.count))
        guarantee: Any = settled.guarantee
        test = accuracy.private_test(goal, guarantee.epsilon(grid.times), sensitivity, **options)
        used = Grid.explicit(np.asarray(grid.times, float)[test.first :])
        score: Any = {"data": question.data, "sensitivity": question.sensitivity}
        interaction = settled.until(question.score, rule=test.rule, levels=used, **score)
        name = "private" if noise == "laplace" else f"private-{noise}"
        yield name, Candidate.of(question, plan, interaction, PRIVATE)


def one_release(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate one release at a fixed epsilon, from a closed form or else found by an oracle."""
    time = closed = _fixed_time(question, mechanism, plan)
    if not closed:
        _, grid = _on_grid(mechanism, _levels(question, mechanism, plan))
        once = partial(_at_one_time, question, mechanism, plan)
        time = first_that_meets(once, np.asarray(grid.times, float), plan)
    if time is None or time < _exact_times(mechanism)[0]:
        return
    for notion in _notions(mechanism, time):
        name = "once" if notion.bounds_losses else f"once-{notion}"
        interaction = _at_one_time(question, mechanism, plan, time, notion)
        yield name, Candidate.of(question, plan, interaction, FIXED if closed else ORACLE)


def one_bounded_release(
    question: Question, mechanism: Mechanism, plan: Plan
) -> Iterator[tuple[str, Candidate]]:
    """Generate one release at an epsilon that meets the target whatever the data."""
    if question.bound_time is None:
        return
    time = question.bound_time(question.noise_of(mechanism), plan.error, plan.confidence)
    if time:
        interaction = _at_one_time(question, mechanism, plan, time)
        yield "bound", Candidate.of(question, plan, interaction, FIXED)


MAKERS: tuple[Maker, ...] = (
    public_test,
    boundaries,
    doubling,
    private_tests,
    one_release,
    one_bounded_release,
)
"""The makers of the candidates of each mechanism, in the order of the candidates."""
