"""Comparison of a quantity between two cases: medians, paired differences, dominance."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.validation import check
from nrjax.guarantees.notions import notions_differ
from nrjax.statistics.intervals import binomial_interval
from nrjax.statistics.paired import paired_interval
from nrjax.statistics.sample import Distribution, Sample
from nrjax.study.case import STOPPED
from nrjax.study.formats import upper
from nrjax.study.frame import Frame


@explain_fields
class Proportion(NamedTuple):
    """A fraction of the trials, with a confidence interval.

    Attributes:
        value: the fraction.
        interval: exact 95 % confidence interval of the underlying probability.
    """

    value: float
    interval: tuple[float, float]


@explain_fields
class Dominance(NamedTuple):
    """The largest differences between the empirical distribution functions of two cases.

    If a difference exceeds `band`, the true distribution functions differ in the same direction.
    This holds with 95 % confidence for all points at once (Dvoretzky-Kiefer-Wolfowitz).

    Attributes:
        max_cdf_excess: largest amount by which the first function is above the second. The first
            case tends to have the smaller values there.
        max_cdf_deficit: largest amount by which the first function is below the second.
        band: largest difference that may be chance.
    """

    max_cdf_excess: float
    max_cdf_deficit: float
    band: float

    @property
    def verdict(self) -> str:
        """The result for the first case: "smaller", "larger", "crossing" or "undecided"."""
        above, below = self.max_cdf_excess > self.band, self.max_cdf_deficit > self.band
        if above and below:
            return "crossing"
        return "smaller" if above else "larger" if below else "undecided"


_PAID = ("stopping_epsilon", "stopped_epsilon", "epsilon")
"""The quantities that are the epsilon which a trial pays."""

_VERDICTS = {
    "smaller": "{} is stochastically smaller, as far as these trials show",
    "larger": "{} is stochastically larger, as far as these trials show",
    "crossing": "their distribution functions cross: neither dominates",
    "undecided": "their distribution functions do not differ by more than chance",
}


@explain_fields
class Comparison(NamedTuple):
    """The comparison of one quantity between two cases.

    Values count as equal if their relative difference is at most 32 machine epsilons, because two
    guarantees may round the same level of a schedule differently. The fields `median_interval`,
    `difference`, `smaller` and `larger` need kept trials; they are None for summaries.

    Attributes:
        cases: names of the two cases.
        quantity: name of the quantity.
        medians: median of each case.
        median_difference: median of the first case minus the median of the second.
        median_interval: paired 95 % interval of `median_difference`. None if both medians may be
            infinite, or if a trial has no value.
        difference: distribution over the trials of the first case's value minus the second's.
            Trials in which both values are infinite are left out.
        smaller: fraction of the trials in which the first case has the smaller value.
        larger: fraction of the trials in which the first case has the larger value.
        dominance: comparison of the distribution functions.
        met: fraction of all trials that stopped and reached the goal, for each case; None for a
            case without a goal.
        notions: the privacy notion of each case's epsilon (`nrjax.guarantees.Notion`); None if
            both are the same, or if `quantity` is not an epsilon.
        public_tests: whether each case's test reads only public data, so that its epsilon does not
            cover the decision to stop. None if that is the same for both, if it is unknown, or if
            `quantity` is not the epsilon that a trial pays.
    """

    cases: tuple[str, str]
    quantity: str
    medians: tuple[float, float]
    median_difference: float
    median_interval: tuple[float, float] | None
    difference: Distribution | None
    smaller: Proportion | None
    larger: Proportion | None
    dominance: Dominance
    met: tuple[float | None, float | None]
    notions: tuple[str, str] | None = None
    public_tests: tuple[bool, bool] | None = None

    def __str__(self) -> str:
        first, second = self.cases
        # A report states the same medians of an epsilon, rounded up.
        is_epsilon = self.quantity.endswith("epsilon")
        shown = [upper(each) if is_epsilon else f"{each:.4g}" for each in self.medians]
        medians = f"  medians {shown[0]} and {shown[1]}"
        if self.median_interval is not None:
            difference, low, high = _distinct(self.median_difference, *self.median_interval)
            medians += f", difference {difference} (95 %: {low} to {high})"
        lines = [f"{self.quantity} of {first} against {second}:", medians]
        for name, proportion in (("smaller", self.smaller), ("larger", self.larger)):
            if proportion is not None:
                low, high = proportion.interval
                trials = f"{proportion.value:.1%} of the trials ({low:.1%} to {high:.1%})"
                lines.append(f"  {name} in {trials}")
        lines.append(f"  {_VERDICTS[self.dominance.verdict].format(first)}")
        unequal = []
        if self.public_tests is not None:
            public, private = self.cases if self.public_tests[0] else self.cases[::-1]
            unequal.append(
                f"the epsilon of {private} covers the decision to stop, that of {public} does not"
            )
        if None not in self.met and self.met[0] != self.met[1]:
            unequal.append(accuracy_note(self.met))
        if self.notions is not None:
            unequal.append(f"not of the same privacy notion: {' against '.join(self.notions)}")
        lines += map("  {}".format, unequal)
        if unequal:
            better = {"smaller": first, "larger": second}.get(self.dominance.verdict)
            other = f"that {better} is better" if better else "which case is better"
            lines.append(f"  so do not conclude from these numbers {other}")
        return "\n".join(lines)


def _distinct(*numbers: float) -> list[str]:
    """Return numbers as texts with three digits, or with so many that the last two differ."""
    texts: list[str] = []
    for digits in range(3, 10):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if numbers[-2] == numbers[-1] or texts[-2] != texts[-1]:
            break
    return texts


def accuracy_note(met: tuple[float | None, float | None]) -> str:
    """Return a warning that two cases met their goals in different fractions of the trials."""
    first, second = ("no goal" if value is None else f"{100 * value:.3g} %" for value in met)
    return f"not of the same accuracy: the goal was met in {first} and {second} of the trials"


def compare_cases(frame: Frame, first: str, second: str, quantity: str) -> Comparison:
    """Compare two cases. Arguments and errors are as for `Results.compare`."""
    distributions = [frame.distribution(name, quantity) for name in (first, second)]
    hint = "A case without a guarantee has no epsilon."
    check(None not in distributions, "quantity", quantity, "one that both cases have", hint)
    values, others = (each for each in distributions if each is not None)
    tolerance = _rounding_tolerance(frame, first, second, quantity)
    medians = values.quantile(0.5), others.quantile(0.5)
    paired = frame.keeps_trials(first) and frame.keeps_trials(second)
    pairs = _paired(frame, first, second, quantity) if paired else (None, None, None)
    notions = [frame.cases[name].attributes.get("notion") for name in (first, second)]
    mixed = quantity.endswith("epsilon") and notions_differ(*notions)
    tests = [frame.cases[name].attributes.get("public_test") for name in (first, second)]
    uneven = quantity in _PAID and set(tests) == {True, False}
    return Comparison(
        (first, second),
        quantity,
        medians,
        float(_difference(*medians, tolerance)),
        interval_of(frame, first, second, quantity) if paired else None,
        *pairs,
        _dominance(values, others, tolerance),
        (met(frame, first), met(frame, second)),
        (str(notions[0]), str(notions[1])) if mixed else None,
        (bool(tests[0]), bool(tests[1])) if uneven else None,
    )


def interval_of(
    frame: Frame,
    first: str,
    second: str,
    quantity: str = "stopping_epsilon",
    of: Literal["difference", "ratio", "iqr"] = "difference",
) -> tuple[float, float] | None:
    """Return the paired 95 % interval of a difference or ratio of two cases.

    Args:
        frame: trials of the cases.
        first: name of a case.
        second: name of the case that is subtracted from the first, or that divides it.
        quantity: name of the quantity, as for `Results.distribution`.
        of: "difference" or "ratio" of the medians, or "iqr" for the difference of the interquartile
            ranges. A ratio is of quantities that are not negative.

    Returns:
        The ends of the interval. None if trials were not kept, if a trial has no value, or if the
        result may be undefined, such as infinity minus infinity.
    """
    if not all(map(frame.keeps_trials, (first, second))):
        return None
    samples = [frame.values(name, quantity) for name in (first, second)]
    if any(np.isnan(values).any() for values in samples):
        return None
    tolerance = _rounding_tolerance(frame, first, second, quantity)

    def difference(value: np.ndarray, other: np.ndarray) -> np.ndarray:
        return _difference(value, other, tolerance)

    def difference_of_ranges(low: Any, high: Any, other_low: Any, other_high: Any) -> np.ndarray:
        return difference(high - low, other_high - other_low)

    def ratio(value: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return np.maximum(value, 0) / np.maximum(unit, 0)

    if of == "iqr":
        repeated, signs = [values for values in samples for _ in range(2)], (-1, 1, 1, -1)
        return paired_interval(repeated, (0.25, 0.75) * 2, signs, difference_of_ranges)
    return paired_interval(samples, (0.5, 0.5), (1, -1), ratio if of == "ratio" else difference)


def _rounding_tolerance(frame: Frame, first: str, second: str, quantity: str) -> float:
    """Return the relative difference below which two values may differ by rounding only.

    It is 0 if no float was kept per trial.
    """
    dtypes = []
    for case in (first, second):
        variables = frame.cases[case].passes["outcome"].variables
        variable = variables.get(quantity.removeprefix(STOPPED), variables.get("epsilon"))
        if variable is not None and frame.keeps_trials(case):
            dtypes.append(np.dtype(variable.dtype))
    return 32 * max((float(np.finfo(each).eps) for each in dtypes if each.kind == "f"), default=0)


def _difference(first: Any, second: Any, tolerance: float) -> np.ndarray:
    """Return `first - second`: 0 if within the tolerance, NaN for infinity minus infinity."""
    with np.errstate(invalid="ignore"):
        difference = np.subtract(first, second)
        near = np.abs(difference) <= tolerance * np.maximum(np.abs(first), np.abs(second))
    return np.where(near & np.isfinite(difference), 0.0, difference)


def met(frame: Frame, case: str) -> float | None:
    """Return the fraction of all trials that stopped and met the goal, or None without a goal."""
    if frame.goal(case) is None or (statuses := frame.statuses(case)) is None:
        return None
    shortfall = frame.distribution_of(case, "shortfall")
    return (shortfall.trials - int(shortfall.count_above(0))) / sum(statuses.values())


def _paired(
    frame: Frame, first: str, second: str, quantity: str
) -> tuple[Distribution, Proportion, Proportion]:
    """Return first minus second per trial, and the fractions of trials below and above 0."""
    values, others = (
        np.asarray(frame.values(name, quantity), np.float64) for name in (first, second)
    )
    complete = values.shape == others.shape == (frame.trials,)
    check(complete, "quantity", quantity, "a number of every trial of both cases, to form pairs")
    difference = _difference(values, others, _rounding_tolerance(frame, first, second, quantity))

    def proportion(holds: np.ndarray) -> Proportion:
        count = int(np.sum(holds))
        return Proportion(count / frame.trials, binomial_interval(count, frame.trials))

    return (
        Sample(difference[~np.isnan(difference)]),
        proportion(difference < 0),
        proportion(difference > 0),
    )


def _dominance(first: Distribution, second: Distribution, tolerance: float = 0.0) -> Dominance:
    """Compare two distribution functions. Values within `tolerance` (relative) are equal.

    The largest differences are lower bounds if there is a tolerance, or if values are in bins.
    """
    # Each band holds with 97.5 %, so both hold with 95 % whatever their dependence (union bound).
    band = first.band(0.975) + second.band(0.975)
    points = np.union1d(first.points(100_000), second.points(100_000))
    low, low_second = (values.below_within(points)[0] for values in (first, second))
    points = points + tolerance * np.abs(points)
    high, high_second = (values.below_within(points)[1] for values in (first, second))
    excess, deficit = low - high_second, low_second - high
    return Dominance(excess.max(initial=0.0), deficit.max(initial=0.0), band)
