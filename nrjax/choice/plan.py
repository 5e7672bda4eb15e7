"""The target of a choice, the numbers that steer its search, and the class of its candidates."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from nrjax._base.notions import notion_of
from nrjax.choice.question import Question
from nrjax.engine.interaction import Interaction
from nrjax.guarantees.notions import PUBLIC_TEST

Levels = tuple[float, float, int]
"""Epsilons (low, high, count) in equal ratios."""


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


@dataclasses.dataclass(frozen=True)
class Search:
    """The numbers that steer the search of `nrjax.choose`.

    If a closed form gives the epsilon of a release fixed in advance, the levels lie around that
    epsilon: from `1/below` to `above` times it. No trial needs a larger one.

    Attributes:
        levels: levels if there is no closed form.
        below: ratio of the epsilon of the closed form to the smallest level.
        above: ratio of the largest level to that epsilon.
        count: number of levels around that epsilon.
        largest_level: largest epsilon of a level, since a larger one states hardly any privacy.
        largest_epsilon: largest epsilon of a candidate with a private test, or of one with a
            hockey-stick epsilon.
        test_factor: largest ratio of an epsilon that always fits a private test to the smallest one
            that fits.
        launch: number of trials per launch, always equal, so that a candidate is compiled once.
            The epsilon of an oracle is found by as many trials.
        trials: default largest number of trials per candidate.
        fixed_trials: number of trials that show how often a release fixed in advance meets the
            target.
        oracle_first: number of the first trial that finds the epsilon of an oracle. Other trials
            show how often that epsilon meets the target.
        rerun_first: number of the first trial that estimates a winner again.
    """

    levels: Levels = (0.01, 10.0, 100)
    below: float = 30.0
    above: float = 4.0
    count: int = 80
    largest_level: float = 50.0
    largest_epsilon: float = 200.0
    test_factor: float = 2.0
    launch: int = 1024
    trials: int = 16_384
    fixed_trials: int = 1024
    oracle_first: int = 2**30
    rerun_first: int = 2**31


SEARCH = Search()
"""The numbers of every search."""

PUBLIC = PUBLIC_TEST
PRIVATE = "Private test: epsilon covers the decision to stop"
FIXED = "One release at an epsilon known in advance"
ORACLE = "For comparison: one release at the smallest epsilon that works, which you cannot know"


class Candidate(NamedTuple):
    """A candidate of a choice.

    Attributes:
        interaction: interaction that a trial runs.
        section: section of the table. Only candidates of one section are ranked.
        goal: score that a trial must reach to meet the target.
        best: score of the exact answer, or None if the score is not minus an error.
    """

    interaction: Interaction
    section: str
    goal: float
    best: float | None

    @classmethod
    def of(
        cls, question: Question, plan: Plan, interaction: Interaction, section: str
    ) -> Candidate:
        """Return the candidate of an interaction that uses the question's score."""
        return cls(interaction, section, question.best - plan.error, question.best)

    @property
    def notion(self) -> str:
        """The privacy notion of the candidate's epsilon, such as "pure"."""
        return notion_of(self.interaction.guarantee) or "none"

    @property
    def delta(self) -> float:
        """The delta of the candidate's epsilon."""
        guarantee: Any = self.interaction.guarantee
        return float(np.max(np.asarray(guarantee.delta)))
