"""How exactly a run knows its medians, and how many trials it takes to know them well enough."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nrjax._validation import check
from nrjax.study.distribution import Distribution
from nrjax.study.intervals import rank_of
from nrjax.study.looks import FIRST, LOOKS, most_trials

if TYPE_CHECKING:
    from nrjax.study.frame import Frame
    from nrjax.study.results import Results

_TWICE_NORMAL = 2 * 1.96
"""The 95 % interval of a normal estimate is this many standard errors wide."""

_LISTED = 5
"""Cases to name in a sentence: a study may have hundreds."""


class Median(NamedTuple):
    """How well the median epsilon of a case is known."""

    case: str
    value: float | None
    """None for a mechanism without a guarantee."""
    error: float
    """Its standard error; NaN where no number of trials makes it better known."""
    width: float
    """Of the bin that it lies in; 0 where all trials were kept."""


_EXCEPTIONS = (
    (
        lambda one: one.error * _TWICE_NORMAL <= one.width * (1 + 1e-9),
        "The 95 % interval of the median is a single value, or within one bin, in {}: where "
        "epsilon takes few values, such as those of a grid's levels, how far apart they are is no "
        "part of the error.",
    ),
    (
        lambda one: one.value is None,
        "The standard error asked for says nothing of {}: no guarantee, hence no epsilon.",
    ),
    (
        lambda one: one.value is not None and math.isnan(one.error),
        "The standard error asked for says nothing of {}: the median epsilon is infinite, as most "
        "trials did not stop.",
    ),
)
"""Where the error of a `Median` is not all there is to say, and what is."""


def median_error(epsilon: Distribution) -> float:
    """Standard error of the median: of two of its exact intervals, the wider in units of their z.

    One is the 95 % interval, `(high - low) / (2 x 1.96)`. The other is that of level
    `1 - 0.05 x 6 / (pi k)^2` at look k, whose z is larger: these miss the median at any look at all
    in at most 5 % of the runs, for every law (union bound). So zero, where both are one of few
    values, such as a grid's levels, is wrong that seldom, however often one looks; but it says
    nothing of a finer grid. Looks are counted from 1000 trials on, by the trials alone: whoever
    takes up a run counts alike. The bins of a histogram are within the intervals. Infinite where
    the upper end of one is; NaN where both ends of both are: the median is infinite.
    """
    look = 1 + (max(epsilon.trials - 1, 0) // FIRST).bit_length()
    level = 1 - 0.05 * 6 / (math.pi * look) ** 2
    widths = []
    for share, twice in (
        (0.95, _TWICE_NORMAL),
        (level, 2 * statistics.NormalDist().inv_cdf((1 + level) / 2)),
    ):
        low, high = epsilon.quantile_interval(0.5, share)
        widths.append((high - low) / twice)
    return float(np.fmax(*widths))  # the narrower one alone may be at infinity, and have none


def medians(results: Frame) -> list[Median]:
    """Of all cases that are no sessions."""
    found = []
    for name in [name for name in results if results.statuses(name) is not None]:
        epsilon = results.distribution(name)
        one = Median(name, None, math.nan, 0.0)
        if epsilon is not None:
            low, high = epsilon.order_statistic(rank_of(epsilon.trials, 0.5))
            width = high - low if high > low else 0.0
            one = Median(name, high, median_error(epsilon), width)
        found.append(one)
    return found


def wanted(results: Results, settings: Any) -> int | None:
    """To how many trials a run should be extended; None where it has what `until_se` asks for.

    Looks at the results only after 1000 x 2^k trials, so that the answer does not depend on chunks,
    devices, processes or interruptions; with another number, which somebody asked for, it is None.
    A case without an epsilon, or with a median that is infinite, is left out. Settings have
    `until_se`, `trials`, `most_trials` and `keep`.

    Raises:
        ValueError: a median is not known well enough, and lies in a bin of its histogram that is
            wider than `until_se`.
    """
    goal, present = settings.until_se, results.trials
    if goal is None or present not in LOOKS:
        return None
    short = [one for one in medians(results) if one.error > goal]
    if not short:
        return None
    worst = max(short, key=lambda one: one.width)
    enough = float(f"{worst.width * 1.05:.2g}")
    right = (
        f"at least {worst.width:.3g}, the width of the histogram's bin in which the median epsilon "
        f"of {worst.case} lies ({worst.value:.4g}); the {present:,} trials are kept: ask for less "
        f"with `nrjax resume {results.folder} --until-se {enough:g}`, or run the study again with "
        "--keep trials"
    )
    check(worst.width <= goal, "until_se", goal, right)
    return 2 * present if 2 * present <= min(most_trials(settings), LOOKS[-1]) else None


def remarks(results: Frame) -> list[str]:
    """How exact the numbers of a finished run are, in sentences for its report."""
    lines = []
    if not all(map(results.keeps_trials, results.cases)):
        lines.append(
            "Of the trials only summaries were kept: quantiles are rounded up to the edge of a "
            "bin (see resolution in summary.json), intervals reach to the edges of theirs, and "
            "nothing is compared trial by trial."
        )
    goal = results.about.get("settings", {}).get("until_se")
    if goal is None:
        return lines
    trials, found = results.trials, medians(results)
    counted = [one for one in found if not math.isnan(one.error)]
    if counted:
        worst = max(counted, key=lambda one: one.error)
        reached = worst.error <= goal
        lines.append(
            f"Asked for: standard error of every median epsilon at most {goal:g}, a 95 % interval "
            f"no wider than {_TWICE_NORMAL:g} times that; "
            f"{'reached' if reached else 'Warning: not reached'} with {trials:,} trials, the "
            f"largest is {worst.error:.3g} ({worst.case})."
        )
        if reached and trials > FIRST:
            lines.append(
                "Stopping when the intervals are short makes them slightly optimistic; the looks "
                "were few, after 1000, 2000, 4000, ... trials."
            )
    lines += [
        f"Warning: {goal:g} is finer than the histogram of {one.case}, whose bins are "
        f"{one.width:.3g} wide at the median: more trials would hardly help."
        for one in counted
        if one.error > goal and one.width > goal
    ]
    for holds, what in _EXCEPTIONS:
        names = [one.case for one in found if holds(one)]
        if names:
            more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
            lines.append(what.format(", ".join(names[:_LISTED]) + more))
    return lines
