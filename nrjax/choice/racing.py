"""A race of candidates: which one meets the target, and which of those costs least.

Trials are added in doubling rounds, with common random numbers. A candidate is dropped once it
missed the target, or once it is more expensive than the leader in most trials. The signs of paired
differences decide, because the mean of epsilons with heavy tails says little. The statistics of
`nrjax.statistics.anytime` make these statements valid at all times together, with probability at
least `level`.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nrjax.statistics import anytime

FIRST_ROUND = 256
"""The number of trials per candidate in the first round of a race."""

Draw = Callable[[str, int, int], tuple[np.ndarray, np.ndarray]]
"""`draw(name, first, count)` returns the epsilons of trials `first, first + 1, ...`, shape
(count,), infinite for a trial that did not stop, and whether each trial met the target."""


class Verdict(enum.StrEnum):
    """The result of a race for one candidate."""

    BEST = "best"
    EQUAL = "practically equal"
    UNDECIDED = "undecided"
    DEARER = "more expensive"
    MISSED = "missed"
    FIXED = ""


@dataclasses.dataclass
class Entry:
    """The trials of one candidate in a race, and its verdict.

    Attributes:
        epsilon: stopping epsilons by number of the trial, shape (trials,).
        met: number of trials that met the target.
        verdict: result for the candidate.
        reached: whether the target is met with the confidence: True, False, or None if the trials
            do not decide it.
    """

    epsilon: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    met: int = 0
    verdict: Verdict = Verdict.UNDECIDED
    reached: bool | None = None

    @property
    def median(self) -> float:
        """The median of the epsilons, some of which may be infinite."""
        return float(np.quantile(self.epsilon, 0.5, method="inverted_cdf"))

    def add(self, epsilon: np.ndarray, met: np.ndarray, limits: Limits, alpha: float) -> None:
        """Add trials, and drop the candidate if it misses the target."""
        self.epsilon = np.concatenate([self.epsilon, epsilon])
        self.met += int(np.sum(met))
        low, high = anytime.interval(self.met, self.epsilon.size, alpha)
        self.reached = True if low >= limits.confidence else None
        if high < limits.confidence:
            self.reached, self.verdict = False, Verdict.MISSED


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


def race(
    names: Sequence[str], draw: Draw, limits: Limits, work: Callable[[str], float]
) -> dict[str, Entry]:
    """Run a race and return its entries by name.

    In each round the quick candidates run first, since a new leader can drop a slow one.

    Args:
        names: names of the candidates, the simplest first.
        draw: function that runs trials.
        limits: settings of the race.
        work: function that returns the expected seconds per trial, up to a factor. It must not
            measure time, so that a race can be repeated.
    """
    entries, count = {name: Entry() for name in names}, min(FIRST_ROUND, limits.trials)
    while True:
        for name in sorted(_open(entries), key=work):
            entry = entries[name]
            if entry.verdict is not Verdict.UNDECIDED:
                continue
            trials = draw(name, entry.epsilon.size, count - entry.epsilon.size)
            entry.add(*trials, limits, limits.alpha / len(names))
            for dropped, verdict in _judge(entries, limits).items():
                if verdict is Verdict.DEARER:
                    entries[dropped].verdict = verdict
        verdicts = _judge(entries, limits)
        if Verdict.UNDECIDED not in verdicts.values() or count >= limits.trials:
            break
        count = min(2 * count, limits.trials)
    good = [n for n in names if verdicts.get(n) in (Verdict.BEST, Verdict.EQUAL)]
    simplest = {n: Verdict.BEST if n == good[0] else Verdict.EQUAL for n in good}
    for name, verdict in (verdicts | simplest).items():
        entries[name].verdict = verdict
    return entries


def _open(entries: Mapping[str, Entry]) -> list[str]:
    return [name for name, entry in entries.items() if entry.verdict is Verdict.UNDECIDED]


def _judge(entries: Mapping[str, Entry], limits: Limits) -> dict[str, Verdict]:
    """Return the verdicts of the open candidates against the leader.

    The leader has the smallest median among the candidates that are known to meet the target. A
    candidate is more expensive if, in more than half of the trials, it costs more than the leader
    by more than the indifference zone. It is practically equal if it is known to meet the target,
    and each costs at most that much more than the other in more than half of the trials.
    """
    active = [name for name in _open(entries) if entries[name].epsilon.size]
    sure = [name for name in active if entries[name].reached]
    if not sure:
        return dict.fromkeys(active, Verdict.UNDECIDED)
    leader, zone = min(sure, key=lambda name: entries[name].median), 1 + limits.indifference
    # Each candidate is compared with every other, which may lead, in two ways.
    needed = math.log(2 * max(len(entries) * (len(entries) - 1), 1) / limits.alpha)
    verdicts = {leader: Verdict.BEST}
    for name in active:
        if name == leader:
            continue
        common = min(entries[name].epsilon.size, entries[leader].epsilon.size)
        other, best = entries[name].epsilon[:common], entries[leader].epsilon[:common]
        dearer, cheaper = int(np.sum(other > zone * best)), int(np.sum(best > zone * other))
        equal = min(
            anytime.log_wealth(common - dearer, dearer),
            anytime.log_wealth(common - cheaper, cheaper),
        )
        if anytime.log_wealth(dearer, common - dearer) >= needed:
            verdicts[name] = Verdict.DEARER
        else:
            known = name in sure and equal >= needed
            verdicts[name] = Verdict.EQUAL if known else Verdict.UNDECIDED
    return verdicts
