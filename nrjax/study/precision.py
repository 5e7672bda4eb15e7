"""How exactly a run knows its medians, and how many trials it takes to know them well enough."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nrjax._numerics import check
from nrjax.study.distribution import Distribution
from nrjax.study.intervals import rank_of
from nrjax.study.looks import FIRST, LAST, looks, most_trials

if TYPE_CHECKING:
    from nrjax.study.results import Results

_TWICE_NORMAL = 2 * 1.96
"""The 95 % interval of a normal estimate is this many standard errors wide."""

_LISTED = 5
"""Cases to name in a sentence."""


class Median(NamedTuple):
    """How well the median epsilon of a case is known."""

    case: str
    value: float | None
    """None for a mechanism without a guarantee."""
    error: float
    """Its standard error."""
    width: float
    """Of the bin that it lies in; 0 where all trials were kept."""

    @property
    def counts(self) -> bool:
        """Whether more trials could make it better known: it is there, and may be finite."""
        return self.value is not None and not math.isnan(self.error)

    @property
    def narrow(self) -> bool:
        """Whether its 95 % interval is a single value, or within one bin."""
        return self.counts and self.error * _TWICE_NORMAL <= self.width * (1 + 1e-9)


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
        low, high = epsilon.quantile_interval(50, share)
        widths.append((high - low) / twice)
    return float(np.fmax(*widths))  # the narrower one alone may be at infinity, and have none


def medians(results: Results) -> list[Median]:
    """Of all cases that are no sessions."""
    found = []
    for name in results.cases:
        if results.statuses(name) is None:
            continue
        epsilon = results.distribution(name)
        if epsilon is None:
            found.append(Median(name, None, math.nan, 0.0))
            continue
        low, high = epsilon.order_statistic(rank_of(epsilon.trials, 50))
        width = high - low if high > low else 0.0
        found.append(Median(name, high, median_error(epsilon), width))
    return found


def wanted(results: Results, settings: Any) -> int | None:
    """To how many trials a run should be extended; None where it has what `until_se` asks for.

    Looks at the results only after 1000 x 2^k trials, so that the answer does not depend on chunks,
    devices, processes or interruptions; with another number, which somebody asked for, it is None.
    A case without an epsilon, or with a median that is infinite, is left out.

    Args:
        results: of a finished run.
        settings: with `until_se`, `trials`, `most_trials` and `keep`.

    Returns:
        The next 1000 x 2^k trials, no more than `most_trials`.

    Raises:
        ValueError: a median is not known well enough, and lies in a bin of its histogram that is
            wider than `until_se`.
    """
    if settings.until_se is None:
        return None
    present = results.trials
    if present not in looks():
        return None
    short = [one for one in medians(results) if _short_of(one, settings.until_se)]
    _refuse_coarse(results, short, settings.until_se)
    following = 2 * present
    return following if short and following <= min(most_trials(settings), LAST) else None


def _refuse_coarse(results: Results, short: Sequence[Median], goal: float) -> None:
    """Raise where a bin is wider than the goal: more trials would not reach it."""
    if not short:
        return
    worst = max(short, key=lambda one: one.width)
    enough = float(f"{worst.width * 1.05:.2g}")
    right = (
        f"at least {worst.width:.3g}, the width of the histogram's bin in which the median epsilon "
        f"of {worst.case} lies ({worst.value:.4g}); the {results.trials:,} trials are kept: ask "
        f"for less with `nrjax resume {results.folder} --until-se {enough:g}`, or run the study "
        "again with --keep trials"
    )
    check(worst.width <= goal, "until_se", goal, right)


def _short_of(median: Median, goal: float) -> bool:
    return median.counts and median.error > goal


def remarks(results: Results) -> list[str]:
    """How exact the numbers of a finished run are, in sentences for its report."""
    lines = []
    if not all(map(results.keeps_trials, results.cases)):
        lines.append(
            "Of the trials only summaries were kept: quantiles are rounded up to the edge of a "
            "bin (see resolution in summary.json), intervals reach to the edges of theirs, and "
            "nothing is compared trial by trial."
        )
    settings = results.store.settings.get("settings", {})
    if settings.get("until_se") is not None:
        lines += _sequential(results, settings)
    return lines


def _sequential(results: Results, settings: Mapping[str, Any]) -> list[str]:
    """What became of `until_se`."""
    goal, trials, found = settings["until_se"], results.trials, medians(results)
    counted = [one for one in found if one.counts]
    lines = []
    if counted:
        worst = max(counted, key=lambda one: one.error)
        reached = worst.error <= goal
        what = f"standard error of every median epsilon at most {goal:g}"
        size = f"the largest is {worst.error:.3g} ({worst.case})"
        verdict = "reached" if reached else "Warning: not reached"
        lines.append(
            f"Asked for: {what}, a 95 % interval no wider than {_TWICE_NORMAL:g} times that; "
            f"{verdict} with {trials:,} trials, {size}."
        )
        if reached and trials > FIRST:
            lines.append(
                "Stopping when the intervals are short makes them slightly optimistic; the looks "
                "were few, after 1000, 2000, 4000, ... trials."
            )
    return lines + _exceptions(found, goal)


def _exceptions(found: Sequence[Median], goal: float) -> list[str]:
    """Where the error is not all there is to say."""
    lines = [
        f"Warning: {goal:g} is finer than the histogram of {one.case}, whose bins are "
        f"{one.width:.3g} wide at the median: more trials would hardly help."
        for one in found
        if _short_of(one, goal) and one.width > goal
    ]
    for what, names in (
        (
            "The 95 % interval of the median is a single value, or within one bin, in {}: where "
            "epsilon takes few values, such as those of a grid's levels, how far apart they are "
            "is no part of the error.",
            [one.case for one in found if one.narrow],
        ),
        (
            "The standard error asked for says nothing of {}: no guarantee, hence no epsilon.",
            [one.case for one in found if one.value is None],
        ),
        (
            "The standard error asked for says nothing of {}: the median epsilon is infinite, as "
            "most trials did not stop.",
            [one.case for one in found if one.value is not None and not one.counts],
        ),
    ):
        if names:
            lines.append(what.format(_listed(names)))
    return lines


def _listed(names: Sequence[str]) -> str:
    """The first of them; a study may have hundreds of cases."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
