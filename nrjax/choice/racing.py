"""A race of candidates: which one meets the target, and which of those costs least.

Trials are added in doubling rounds, with common random numbers, to the candidates whose verdict
they can change. Two candidates are compared by the signs of paired differences, because the mean of
epsilons with heavy tails says little. The statistics of `nrjax.statistics.anytime` make all
statements valid at all times together, with probability at least `level`. They are made for each
pair, so that every verdict is about the final leader, whichever candidate led before.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nrjax._base.quantiles import order_statistics
from nrjax.statistics import anytime

FIRST_ROUND = 256
"""The number of trials per candidate in the first round of a race."""

TIE = 0.05
"""Two candidates are tied if each costs more in at most half of the trials plus this fraction."""

Draw = Callable[[str, int, int], tuple[np.ndarray, np.ndarray]]
"""`draw(name, first, count)` returns the epsilons of trials `first, first + 1, ...`, shape
(count,), infinite for a trial that did not stop, and whether each trial met the target."""


class Verdict(enum.StrEnum):
    """The result of a race for one candidate, compared with the leader."""

    BEST = "best"
    LEADER = "cheapest known"
    EQUAL = "practically equal"
    TIED = "tied"
    CHEAPER = "cheaper in most runs"
    UNDECIDED = "undecided"
    DEARER = "more expensive"
    MISSED = "missed"
    FIXED = ""

    @property
    def leads(self) -> bool:
        """Whether the candidate is the cheapest of those that are known to meet the target."""
        return self in (Verdict.BEST, Verdict.LEADER)


@dataclasses.dataclass
class Entry:
    """The trials of one candidate in a race, and its verdict.

    Attributes:
        epsilon: stopping epsilons by number of the trial, shape (trials,).
        met: number of trials that met the target.
        verdict: result for the candidate.
        reached: whether the target is met with the confidence: True, False, or None if the trials
            do not decide it.
        is_open: whether the candidate may meet the target and cost less than the leader.
    """

    epsilon: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    met: int = 0
    verdict: Verdict = Verdict.UNDECIDED
    reached: bool | None = None
    is_open: bool = False

    @property
    def median(self) -> float:
        """The median of the epsilons, some of which may be infinite."""
        return order_statistics(self.epsilon, 0.5)

    def add(self, epsilon: np.ndarray, met: np.ndarray, limits: Limits, alpha: float) -> None:
        """Add trials, and decide whether the target is met."""
        self.epsilon = np.concatenate([self.epsilon, epsilon])
        self.met += int(np.sum(met))
        low, high = anytime.interval(self.met, self.epsilon.size, alpha)
        self.reached = True if low >= limits.confidence else None
        if high < limits.confidence:
            self.reached = False


class Limits(NamedTuple):
    """The settings of a race.

    Attributes:
        confidence: least probability with which a candidate must meet the target.
        level: probability with which all statements of the race hold together.
        indifference: relative difference of two epsilons that does not matter.
        trials: largest number of trials per candidate.
    """

    confidence: float
    level: float
    indifference: float
    trials: int

    @property
    def alpha(self) -> float:
        """The probability of a false statement about targets, and of one about costs."""
        return (1 - self.level) / 2


class Comparison(NamedTuple):
    """The costs of two candidates in their common trials, and statements that are shown by them.

    Attributes:
        costlier: number of trials in which the first costs more, by over the indifference zone.
        cheaper: number of trials in which the second costs more, by more than the zone.
        trials: number of common trials.
        alpha: probability with which each statement may be false.
    """

    costlier: int
    cheaper: int
    trials: int
    alpha: float

    def _is_minority(self, count: int) -> bool:
        return anytime.log_wealth(self.trials - count, count) >= -math.log(self.alpha)

    @property
    def is_costlier(self) -> bool:
        """Whether the first costs more in more than half of the trials."""
        return self._is_minority(self.trials - self.costlier)

    @property
    def is_cheaper(self) -> bool:
        """Whether the second costs more in more than half of the trials."""
        return self._is_minority(self.trials - self.cheaper)

    @property
    def is_not_cheaper(self) -> bool:
        """Whether the second costs more in less than half of the trials."""
        return self._is_minority(self.cheaper)

    @property
    def is_equal(self) -> bool:
        """Whether each costs more in less than half of the trials."""
        return self.is_not_cheaper and self._is_minority(self.costlier)

    @property
    def is_tied(self) -> bool:
        """Whether each costs more in less than half of the trials plus `TIE`."""
        most = max(self.costlier, self.cheaper)
        return anytime.interval(most, self.trials, self.alpha)[1] < 0.5 + TIE

    @property
    def is_decided(self) -> bool:
        """Whether further trials would hardly change the verdict."""
        return self.is_costlier or self.is_cheaper or self.is_equal


def race(
    names: Sequence[str], draw: Draw, limits: Limits, work: Callable[[str], float]
) -> dict[str, Entry]:
    """Run a race and return its entries by name.

    In each round the quick candidates run first, since a new leader can make the trials of a slow
    one needless.

    Args:
        names: names of the candidates, the simplest first.
        draw: function that runs trials.
        limits: settings of the race.
        work: function that returns the expected seconds per trial, up to a factor. It must not
            measure time, so that a race can be repeated.
    """
    entries, count = {name: Entry() for name in names}, min(FIRST_ROUND, limits.trials)
    while needed := _needed(entries, limits):
        short = [name for name in needed if entries[name].epsilon.size < count]
        if short:
            name = min(short, key=work)
            trials = draw(name, entries[name].epsilon.size, count - entries[name].epsilon.size)
            entries[name].add(*trials, limits, limits.alpha / len(names))
        elif count < limits.trials:
            count = min(2 * count, limits.trials)
        else:
            break
    _judge(entries, limits)
    return entries


def _compare(entries: Mapping[str, Entry], first: str, second: str, limits: Limits) -> Comparison:
    """Compare two candidates. All statements about all ordered pairs hold together."""
    common = min(entries[first].epsilon.size, entries[second].epsilon.size)
    one, other = (entries[name].epsilon[:common] for name in (first, second))
    zone, statements = 1 + limits.indifference, 3 * len(entries) * (len(entries) - 1)
    costlier, cheaper = int(np.sum(one > zone * other)), int(np.sum(other > zone * one))
    return Comparison(costlier, cheaper, common, limits.alpha / statements)


def _leader(entries: Mapping[str, Entry], limits: Limits) -> str | None:
    """Return the candidate with the smallest median of those that no other one beats.

    Only candidates that are known to meet the target lead, or beat another one. If each of them is
    beaten, the leader has the smallest median.
    """
    known = [name for name, entry in entries.items() if entry.reached]
    unbeaten = [
        name
        for name in known
        if not any(
            _compare(entries, name, other, limits).is_costlier for other in known if other != name
        )
    ]
    return min(unbeaten or known, key=lambda name: entries[name].median, default=None)


def _needed(entries: Mapping[str, Entry], limits: Limits) -> list[str]:
    """Return the candidates whose trials can change a verdict."""
    leader = _leader(entries, limits)
    needed = set()
    for name, entry in entries.items():
        if name == leader or entry.reached is False:
            continue
        if leader is None:
            needed.add(name)
            continue
        compared = _compare(entries, name, leader, limits)
        if not compared.is_decided:
            needed |= {name, leader}
        elif entry.reached is None and not compared.is_costlier:
            needed.add(name)
    return [name for name in entries if name in needed]


def _judge(entries: Mapping[str, Entry], limits: Limits) -> None:
    """Set the verdicts of all candidates.

    The best candidate is the leader, or one that is practically equal to it: the simplest of those
    with the fewest open candidates.
    """
    leader = _leader(entries, limits)
    if leader is None:
        for entry in entries.values():
            entry.verdict = Verdict.UNDECIDED if entry.reached is None else Verdict.MISSED
        return
    found = {leader: _verdicts(entries, leader, limits)}
    equal = [n for n, (verdict, _) in found[leader].items() if verdict is Verdict.EQUAL]
    found |= {name: _verdicts(entries, name, limits) for name in equal}
    best = min(
        (name for name in entries if name in found),
        key=lambda name: sum(is_open for _, is_open in found[name].values()),
    )
    for name, (verdict, is_open) in found[best].items():
        entries[name].verdict, entries[name].is_open = verdict, is_open


def _verdicts(
    entries: Mapping[str, Entry], best: str, limits: Limits
) -> dict[str, tuple[Verdict, bool]]:
    """Return the verdict of each candidate compared with `best`, and whether it is open."""
    verdicts = {}
    for name, entry in entries.items():
        if name == best:
            continue
        compared = _compare(entries, name, best, limits)
        verdict = Verdict.UNDECIDED
        if entry.reached is False:
            verdict = Verdict.MISSED
        elif compared.is_costlier:
            verdict = Verdict.DEARER
        elif entry.reached and compared.is_equal:
            verdict = Verdict.EQUAL
        elif entry.reached and compared.is_cheaper:
            verdict = Verdict.CHEAPER
        elif entry.reached and compared.is_tied:
            verdict = Verdict.TIED
        may_win = verdict in (Verdict.UNDECIDED, Verdict.CHEAPER)
        verdicts[name] = verdict, may_win and not compared.is_not_cheaper
    any_open = any(is_open for _, is_open in verdicts.values())
    verdicts[best] = (Verdict.LEADER if any_open else Verdict.BEST), False
    return verdicts
