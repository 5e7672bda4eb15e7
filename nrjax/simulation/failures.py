"""Warnings about simulated trials that fail, that never stop, or that stop at once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from nrjax._base.format import format_value
from nrjax._base.outcome import Outcome, Status, describe_failures, failure_hints
from nrjax._base.validation import concrete_or_none
from nrjax.simulation.batching import first_member
from nrjax.simulation.families import Trials, as_family
from nrjax.stopping.thresholds import ThresholdRule

_EARLY, _FEW = 0.05, 100
"""Fraction of trials stopping at the first level, and number of trials, for a warning."""

_FEW_UNSTOPPED = 10
"""Least number of trials, none of which stopped, for a warning."""

_SHOWN = 3
"""Largest number of points of a sweep that a warning describes."""


class FailedTrialsWarning(UserWarning):
    """A warning that trials failed, such as by a NaN score, with the numbers and the reasons.

    The `stopping_epsilon` of a failed trial is infinite, which raises medians and other quantiles.
    Fix the cause before you use them.

    >>> import warnings
    >>> warnings.simplefilter("ignore", nrjax.FailedTrialsWarning)  # for a study of failures
    """


class NoStopWarning(UserWarning):
    """A warning that no trial stopped, since no release reached the target.

    >>> import warnings
    >>> warnings.simplefilter("ignore", nrjax.NoStopWarning)  # for a target out of reach
    """


class FirstLevelWarning(UserWarning):
    """A warning that many trials stopped at the first level, perhaps at too high a cost.

    >>> import warnings
    >>> warnings.simplefilter("ignore", nrjax.FirstLevelWarning)  # for short grids
    """


def warn_about_trials(outcome: Outcome, trials: Trials) -> None:
    """Warn about trials that failed, never stopped or stopped at once, once for each reason.

    The warnings point to the line that called `simulate` or `sweep`, which call this function.

    Args:
        outcome: results with axes (trials,), or (points, trials) for a `Family`.
        trials: the interaction, or the family of interactions.
    """
    status, step = (np.atleast_2d(np.asarray(leaf)) for leaf in (outcome.status, outcome.step))
    counts = [
        dict(zip(Status, np.bincount(row, minlength=len(Status)).tolist(), strict=True))
        for row in status
    ]
    at_first = np.sum((status == Status.STOPPED) & (step == 0), axis=1).tolist()
    found = (
        (FailedTrialsWarning, _failed(counts)),
        (NoStopWarning, _unstopped(counts, outcome, trials)),
        (FirstLevelWarning, _early(at_first, status.shape[1], trials)),
    )
    for kind, (texts, advice) in found:
        named = [
            f"point {point}: {text}" if as_family(trials).axes else text[0].upper() + text[1:]
            for point, text in enumerate(texts)
            if text
        ]
        more = [f"and {len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
        if named:
            text = f"{'; '.join(named[:_SHOWN] + more)}. {advice}"
            warnings.warn(text, kind, stacklevel=4)  # past the decorator of the caller


def _failed(counts: Sequence[Mapping[Status, int]]) -> tuple[list[str], str]:
    """Return a text per point on the trials that failed, "" without any, and advice."""
    totals = {status: sum(count[status] for count in counts) for status in Status}
    ending = "Failed trials (outcome.failed) have an infinite stopping_epsilon."
    return [describe_failures(count) for count in counts], f"{failure_hints(totals)} {ending}"


def _unstopped(
    counts: Sequence[Mapping[Status, int]], outcome: Outcome, trials: Trials
) -> tuple[list[str], str]:
    """Return a text per point at which no trial stopped and some trials did not fail."""
    texts = []
    for point, count in enumerate(counts):
        missed = count[Status.EXHAUSTED] and not count[Status.STOPPED]
        missed = missed and sum(count.values()) >= _FEW_UNSTOPPED
        texts.append(_missed_target(point, outcome, trials) if missed else "")
    return texts, Status.EXHAUSTED.hint


def _missed_target(point: int, outcome: Outcome, trials: Trials) -> str:
    """Return how far trials stayed below their threshold, or "" if it is infinite on purpose."""
    family = as_family(trials)
    rule = family.member(family.select(np.int32(point))).rule  # pyright: ignore[reportArgumentType]
    threshold = concrete_or_none(rule.threshold) if isinstance(rule, ThresholdRule) else None
    if threshold is not None and np.all(threshold == np.inf):
        return ""
    utility = np.atleast_2d(np.asarray(outcome.utility))[point]
    text = f"none of {utility.size:,} trials stopped"
    if threshold is None or np.isnan(utility).all():
        return text
    return (
        f"{text}: the largest utility of a last release is {np.nanmax(utility):.4g}, and the "
        f"threshold is {format_value(threshold, 60)}"
    )


def _early(at_first: Sequence[int], size: int, trials: Trials) -> tuple[list[str], str]:
    """Return a text per point at which many trials stopped at the first level."""
    _, first = first_member(trials)
    several = min(first.schedule.max_steps, int(np.max(first.steps))) > 1
    lower = several and first.rule.sensitivity is None and size >= _FEW
    texts = [
        f"{count / size:.0%} of {size:,} trials stopped at the first level"
        if lower and count > _EARLY * size
        else ""
        for count in at_first
    ]
    return texts, (
        "They might have stopped for a smaller epsilon. Start the levels at a smaller epsilon, and "
        "tune a boundary to a smaller one. If the score is an error, negate it: larger must be "
        "better."
    )
