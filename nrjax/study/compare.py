"""How a quantity differs between two cases: paired differences, shares, and whole laws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nrjax._validation import check
from nrjax.guarantees.notions import notions_differ
from nrjax.study.bootstrap import interval
from nrjax.study.case import STOPPED
from nrjax.study.statistics import Distribution, Sample, binomial_interval

if TYPE_CHECKING:
    from nrjax.study.frame import Frame


class Share(NamedTuple):
    """A share of the trials, with its exact 95 % interval."""

    value: float
    interval: tuple[float, float]


class Dominance(NamedTuple):
    """Two distribution functions, all of them at once (95 %, Dvoretzky-Kiefer-Wolfowitz).

    A difference of more than `band` is one of the laws themselves, wherever it is.
    """

    ahead: float
    """The most by which the first function is above the second: the first case is smaller there."""
    behind: float
    """The most by which it is below."""
    band: float

    @property
    def verdict(self) -> str:
        """Of the first law: stochastically "smaller", "larger", "crossing" or "undecided"."""
        ahead, behind = self.ahead > self.band, self.behind > self.band
        if ahead and behind:
            return "crossing"
        return "smaller" if ahead else "larger" if behind else "undecided"


class Comparison(NamedTuple):
    """The first case against the second; intervals are 95 % ones.

    Values that differ by no more than 32 machine epsilons of themselves, as one level of a schedule
    does by the rounding of two guarantees, are equal. What needs the trials in pairs is None where
    only summaries were kept.
    """

    cases: tuple[str, str]
    quantity: str
    medians: tuple[float, float]
    median_difference: float
    """Of the medians, the first minus the second."""
    median_interval: tuple[float, float] | None
    """By a paired bootstrap; None where it is undefined: infinite minus infinite, or trials that
    have no value, such as the shortfall of those that did not stop."""
    difference: Distribution | None
    """Of the differences trial by trial; those of two infinite values are left out."""
    smaller: Share | None
    """Trials in which the first case has the smaller value: is cheaper."""
    larger: Share | None
    """Trials in which it has the larger one."""
    dominance: Dominance
    met: tuple[float | None, float | None]
    """Share of all trials of each case that reached its goal; None without one."""
    notions: tuple[str, str] | None = None
    """What an epsilon says in each case (`nrjax.guarantees.NOTIONS`), where they differ."""

    def __str__(self) -> str:
        first, second = self.cases
        medians = f"  medians {self.medians[0]:.4g} and {self.medians[1]:.4g}"
        if self.median_interval is not None:
            low, high = self.median_interval
            medians += f", difference {self.median_difference:.3g} (95 %: {low:.3g} to {high:.3g})"
        lines = [f"{self.quantity} of {first} against {second}:", medians]
        for name, share in (("smaller", self.smaller), ("larger", self.larger)):
            if share is not None:
                low, high = share.interval
                lines.append(
                    f"  {name} in {share.value:.1%} of the trials ({low:.1%} to {high:.1%})"
                )
        words = {
            "smaller": f"{first} is stochastically smaller, as far as these trials tell",
            "larger": f"{first} is stochastically larger, as far as these trials tell",
            "crossing": "their distribution functions cross: neither dominates",
            "undecided": "their distribution functions do not differ by more than chance",
        }
        lines.append(f"  {words[self.dominance.verdict]}")
        if None not in self.met and self.met[0] != self.met[1]:
            lines.append(f"  {accuracy_note(self.met)}")
        if self.notions is not None:
            lines.append(f"  not of the same notion: {' against '.join(self.notions)}")
        return "\n".join(lines)


def accuracy_note(met: tuple[float | None, float | None]) -> str:
    """What must be said beside two epsilons that bought different accuracies."""
    first, second = ("no goal" if one is None else f"{100 * one:.3g} %" for one in met)
    return f"not of the same accuracy: the goal was met in {first} and {second} of the trials"


def compared(results: Frame, first: str, second: str, quantity: str) -> Comparison:
    """As `Results.compare`."""
    laws = [results.distribution(name, quantity) for name in (first, second)]
    right = "one that both cases have: without a guarantee there is no epsilon"
    check(None not in laws, "quantity", quantity, right)
    one, other = (law for law in laws if law is not None)
    medians = one.quantile(0.5), other.quantile(0.5)
    ends, paired = None, (None, None, None)
    if results.keeps_trials(first) and results.keeps_trials(second):
        paired = _paired(results, first, second, quantity)
        ends = interval_of(results, first, second, quantity)
    grain = _grain(results, first, second, quantity)
    apart = float(_apart(*medians, grain))
    shares = met(results, first), met(results, second)
    laws = _dominance(one, other, grain)
    said = [results.cases[name].attributes.get("notion") for name in (first, second)]
    differ = quantity.endswith("epsilon") and notions_differ(*said)
    notions = (str(said[0]), str(said[1])) if differ else None
    return Comparison(
        (first, second), quantity, medians, apart, ends, *paired, laws, shares, notions
    )


def interval_of(
    results: Frame,
    first: str,
    second: str,
    quantity: str = "stopping_epsilon",
    spread: bool = False,
) -> tuple[float, float] | None:
    """Paired bootstrap interval, 95 %, of the difference of medians or of quartile distances.

    None where a difference is undefined, and where trials were not kept.
    """
    one, other = (results.resampled(name, quantity) for name in (first, second))
    if one is None or other is None:
        return None
    with np.errstate(invalid="ignore"):
        one, other = (q[:, 2] - q[:, 0] if spread else q[:, 1] for q in (one, other))
    return interval(_apart(one, other, _grain(results, first, second, quantity)))


def _grain(results: Frame, first: str, second: str, quantity: str) -> float:
    """Relative difference of two kept values that may be rounding; 0 of those in bins."""
    kinds = set()
    for case in (first, second):
        variables = results.cases[case].passes["outcome"].variables
        one = variables.get(quantity.removeprefix(STOPPED), variables.get("epsilon"))
        if one is not None and results.keeps_trials(case):
            kinds.add(np.dtype(one.dtype))
    return 32 * max((float(np.finfo(kind).eps) for kind in kinds if kind.kind == "f"), default=0)


def _apart(one: Any, other: Any, grain: float) -> np.ndarray:
    """The difference, 0 where it may be rounding; NaN of two infinite ones."""
    with np.errstate(invalid="ignore"):
        apart = np.subtract(one, other)
        near = np.abs(apart) <= grain * np.maximum(np.abs(one), np.abs(other))
    return np.where(near & np.isfinite(apart), 0.0, apart)


def met(results: Frame, case: str) -> float | None:
    """Share of all trials that stopped with the goal reached; None without a goal."""
    if results.goal(case) is None or (statuses := results.statuses(case)) is None:
        return None
    shortfall = results.law(case, "shortfall")
    return (shortfall.trials - int(shortfall.count_above(0))) / sum(statuses.values())


def _paired(
    results: Frame, first: str, second: str, quantity: str
) -> tuple[Distribution, Share, Share]:
    values = [results.values(name, quantity) for name in (first, second)]
    one, other = (np.asarray(each, np.float64) for each in values)
    right = f"a number of every trial of both cases, so that they pair; {quantity!r} is not"
    whole = one.shape == other.shape == (results.trials,)
    check(whole, "quantity", quantity, right)
    apart = _apart(one, other, _grain(results, first, second, quantity))

    def share(holds: np.ndarray) -> Share:
        count = int(np.sum(holds))
        return Share(count / one.size, binomial_interval(count, one.size))

    return Sample(apart[~np.isnan(apart)]), share(apart < 0), share(apart > 0)


def _dominance(one: Distribution, other: Distribution, grain: float = 0.0) -> Dominance:
    # Each at 97.5 %, for both to hold at 95 % whatever their dependence (union bound).
    band = one.band(0.975) + other.band(0.975)
    points = np.union1d(one.points(100_000), other.points(100_000))
    # A point of one case may be within a bin of the other: only what is sure there counts.
    least, others = (law.below_within(points)[0] for law in (one, other))
    points = points + grain * np.abs(points)
    most, others_most = (law.below_within(points)[1] for law in (one, other))
    ahead, behind = least - others_most, others - most
    return Dominance(ahead.max(initial=0.0), behind.max(initial=0.0), band)
