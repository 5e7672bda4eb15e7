"""Standard errors of median stopping epsilons, and the trials needed to reach one.

A run with `until_se` evaluates its precision only at interim counts of trials: 1000, 2000, 4000 and
so on. The final number of trials therefore does not depend on chunks, devices, processes or
interruptions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nrjax._base.fields import explain_fields
from nrjax._base.quantiles import rank_of
from nrjax._base.validation import check
from nrjax.engine.interaction import Interaction
from nrjax.statistics.sample import Distribution
from nrjax.study.case import Case
from nrjax.study.histograms import EPSILON_BINS
from nrjax.study.options import INTERIM_COUNTS, RunOptions

if TYPE_CHECKING:
    from nrjax.study.frame import Frame

_TWICE_NORMAL = 2 * 1.96
"""The width of the 95 % interval of a normal estimate, in standard errors."""

_LISTED = 5
"""The largest number of cases to name in a sentence."""


def check_until_se(cases: Mapping[str, Case], options: RunOptions) -> None:
    """Raise ValueError if no number of trials can reach the `until_se` of the options.

    Raises:
        ValueError: no case has an epsilon; or only summaries are kept, and at the smallest epsilon
            of some case the bins of the histogram are wider than `until_se`.
    """
    if options.until_se is None:
        return
    smallest = {}
    for name, case in cases.items():
        trial = case.trial
        if isinstance(trial, Interaction) and trial.guarantee is not None:
            times = trial.schedule.times
            smallest[name] = 0.0 if times is None else float(trial.guarantee.epsilon(times[0]))
    expected = "left out, since no case has an epsilon"
    check(len(smallest) > 0, "until_se", options.until_se, expected)
    for name, epsilon in smallest.items() if options.keep == "summary" else ():
        place = np.searchsorted(EPSILON_BINS.upper, epsilon)
        width = float(EPSILON_BINS.upper[place] - EPSILON_BINS.lower[place]) if epsilon else 0.0
        expected = (
            f"at least {width:.3g} with keep='summary', the width of a histogram's bin at "
            f"{epsilon:.4g}, the smallest epsilon of {name}"
        )
        hint = "Use keep='trials' (--keep trials) for a smaller standard error."
        check(options.until_se >= width, "until_se", options.until_se, expected, hint)


@explain_fields
class Median(NamedTuple):
    """The median stopping epsilon of a case, with its standard error.

    Attributes:
        case: name of the case.
        value: the median; None for a mechanism without a guarantee.
        error: standard error of the median; NaN if there is no guarantee or the median is infinite.
        width: width of the histogram bin that holds the median; 0 if all trials were kept.
    """

    case: str
    value: float | None
    error: float
    width: float


def median_error(epsilon: Distribution) -> float:
    """Return the standard error of a median, from two exact intervals of the median.

    Each interval gives an error `(high - low) / (2 z)`, where z is half the width of a normal
    interval of the same level, in standard deviations. The result is the larger error.

    The first interval has level 95 % and z = 1.96. The second has level `1 - 0.05 x 6 / (pi k)^2`
    at the k-th interim count, where k follows from the number of trials. By the union bound, at
    most 5 % of the runs have any interim count whose second interval misses the median, for every
    distribution. If both intervals are a single value, such as the level of a grid, the error is 0.
    That value is then wrong in at most 5 % of the runs, however often precision is evaluated. The
    error does not allow for the distance between the levels of a grid. The ends of intervals are
    rounded outwards to the edges of histogram bins.

    The result is NaN if all four ends are plus infinity, because the median is infinite then. It is
    infinite if an upper end is infinite but some lower end is not plus infinity.
    """
    number = 1 + (max(epsilon.trials - 1, 0) // INTERIM_COUNTS[0]).bit_length()
    level = 1 - 0.05 * 6 / (math.pi * number) ** 2
    errors = []
    for probability, twice in (
        (0.95, _TWICE_NORMAL),
        (level, 2 * statistics.NormalDist().inv_cdf((1 + level) / 2)),
    ):
        low, high = epsilon.quantile_interval(0.5, probability)
        errors.append((high - low) / twice)
    return float(np.fmax(*errors))  # an error is NaN if both ends of its interval are infinite


def medians(results: Frame) -> list[Median]:
    """Return the median stopping epsilon of every case that is an interaction."""
    found = []
    for name in results:
        if results.statuses(name) is None:
            continue
        epsilon, median = results.distribution(name), Median(name, None, math.nan, 0.0)
        if epsilon is not None:
            low, high = epsilon.order_statistic(rank_of(epsilon.trials, 0.5))
            width = high - low if high > low else 0.0
            median = Median(name, high, median_error(epsilon), width)
        found.append(median)
    return found


def next_trial_count(results: Frame, options: RunOptions) -> int | None:
    """Return the number of trials to which to extend a run, or None to stop the run.

    The run stops in any of these cases:

    * Every standard error is at most `until_se`. Cases without an epsilon, or with an infinite
      median, are left out.
    * Twice the number of trials exceeds `most_trials`.
    * The number of trials is not an interim count, because the user set another number.
    * A median whose error is too large lies in a histogram bin wider than `until_se`, so that more
      trials would not help.

    Args:
        results: trials of the run.
        options: options of the run.
    """
    target, present = options.until_se, results.trials
    if target is None or present not in INTERIM_COUNTS:
        return None
    short = [median for median in medians(results) if median.error > target]
    if not short or any(median.width > target for median in short):
        return None
    return 2 * present if 2 * present <= min(options.limit, INTERIM_COUNTS[-1]) else None


def remarks(results: Frame) -> list[str]:
    """Return sentences for the report on the precision of the numbers of a run."""
    lines = []
    if not all(map(results.keeps_trials, results.cases)):
        lines.append(
            "Only summaries were kept of the trials: quantiles are rounded up to the edge of a "
            "bin (see resolution in summary.json), intervals reach to the edges of theirs, and "
            "nothing is compared trial by trial."
        )
    target = results.about.get("settings", {}).get("until_se")
    if target is None:
        return lines
    known = medians(results)
    finite = [median for median in known if not math.isnan(median.error)]
    if finite:
        worst = max(finite, key=lambda median: median.error)
        reached = worst.error <= target
        lines.append(
            f"Asked for: standard error of every median stopping epsilon at most {target:g}, a "
            f"95 % interval no wider than {_TWICE_NORMAL:g} times that; "
            f"{'reached' if reached else 'Warning: not reached'} with {results.trials:,} trials, "
            f"the largest is {worst.error:.3g} ({worst.case})."
        )
        if reached and results.trials > INTERIM_COUNTS[0]:
            lines.append(
                "Stopping when the intervals are short makes them slightly optimistic; precision "
                "was evaluated only after 1000, 2000, 4000, ... trials."
            )
    lines += [
        f"Warning: {target:g} is finer than the histogram of {median.case}, whose bins are "
        f"{median.width:.3g} wide at the median: more trials would hardly help; keep trials "
        "(--keep trials)."
        for median in finite
        if median.error > target and median.width > target
    ]
    single = [m for m in known if m.error * _TWICE_NORMAL <= m.width * (1 + 1e-9)]
    if single:
        lines.append(
            "The 95 % interval of the median is a single value, or within one bin, in "
            f"{_names(single)}: where the stopping epsilon takes few values, such as those of a "
            "grid's levels, the error does not allow for the distance of these values."
        )
    unpaid = [median for median in known if median.value is None]
    if unpaid:
        lines.append(
            f"The standard error does not apply to {_names(unpaid)}: no guarantee, hence no "
            "epsilon."
        )
    infinite = [m for m in known if m.value is not None and math.isnan(m.error)]
    if infinite:
        lines.append(
            f"The standard error does not apply to {_names(infinite)}: the median stopping epsilon "
            "is infinite, as most trials did not stop."
        )
    return lines


def _names(medians: list[Median]) -> str:
    """Return the names of the first few cases as text, and the number of further cases."""
    more = f" and {len(medians) - _LISTED:,} more" if len(medians) > _LISTED else ""
    return ", ".join(median.case for median in medians[:_LISTED]) + more
