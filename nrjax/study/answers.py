"""The result of a study in a sentence or two, to stand first in its report."""

from collections.abc import Mapping, Sequence
from typing import Any

from nrjax.study.formats import percent, upper

_LISTED = 3
"""The largest number of cases of which each is named."""

_MOST = 0.9
"""The fraction of good enough runs below which the answer names a case."""


_HALF = 0.5
"""The fraction of runs at the first level above which their median is that level."""


def answer(summary: Mapping[str, Any], once: tuple[float, str] | None = None) -> str:
    """Return what half of the runs pay at most, or "" if no case has an epsilon.

    Cases whose epsilon covers the decision to stop come first. Cases of which many runs miss their
    goal are named, since worse answers cost less.

    Args:
        summary: contents of summary.json.
        once: epsilon of one release without a test, and a sentence on it. It stands first if it is
            cheaper than half of the runs of every case whose epsilon covers the decision to stop.
    """
    stated = [case for case in summary["cases"] if case.get("stopping_epsilon") is not None]
    stated = [case for case in stated if "stopped" in case]
    covered = [case for case in stated if case.get("public_test") is False]
    public = [case for case in stated if case.get("public_test")]
    other = [case for case in stated if case.get("public_test") is None]
    sentences = []
    if covered:
        by = ", which a private test makes" if public else ""
        sentences.append(f"{_paid(covered)} This covers the decision to stop{by}.")
    if once is not None:
        medians = [case["stopping_epsilon"]["q50"] for case in covered]
        is_cheaper = all(median is None or once[0] < median for median in medians)
        if is_cheaper and covered:
            cheaper = "To publish one model, take it: half of the runs of a private test cost more."
            once = once[0], f"{once[1]} {cheaper}"
        sentences.insert(0 if is_cheaper else 1, once[1])
    if public and sentences:
        sentences.append(
            "With a public test, and only if the score reads no private data, so that stopping "
            f"costs nothing: {_cost(public)}."
        )
    elif public:
        sentences.append(f"{_paid(public)} This does not cover the decision to stop.")
    if other:
        sentences.append(_paid(other))
    return " ".join([*sentences, *_first_levels(stated), *_missed(stated)])


def _first_levels(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the cases whose median is at the lowest level of the schedule."""
    low = [
        case["case"]
        for case in cases
        if case.get("stopped_at_first_step", 0) > _HALF
        # A single level, which costs all runs the same, has no lower one.
        if case["stopping_epsilon"].get("q95") != case["stopping_epsilon"]["q50"]
    ]
    if not low:
        return []
    rest = f" (and of {len(low) - _LISTED} more cases)" if len(low) > _LISTED else ""
    return [
        f"More than half of the runs of {', '.join(low[:_LISTED])}{rest} stopped at their first "
        "level: no run of theirs could cost less."
    ]


def _missed(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the cases of which many runs miss their goal."""
    short = [case for case in cases if case.get("met") is not None and case["met"] < _MOST]
    named = [f"{percent(case['met'])} of those of {case['case']}" for case in short[:_LISTED]]
    rest = f" (and of {len(short) - _LISTED} more cases)" if len(short) > _LISTED else ""
    return [f"Not all runs are good enough: only {', '.join(named)}{rest}."] if short else []


def _paid(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the medians of some cases."""
    return f"Half of the runs pay an epsilon of {_cost(cases)}."


def _cost(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of some cases, or the lowest and the highest of many, with their names."""
    finite = [case for case in cases if case["stopping_epsilon"]["q50"] is not None]
    if not finite:
        return "infinity, since most runs did not end"
    ranked = sorted(finite, key=lambda case: case["stopping_epsilon"]["q50"])
    named = [f"{upper(case['stopping_epsilon']['q50'])} ({case['case']})" for case in ranked]
    if len(named) > _LISTED:
        listed = f"{named[0]} to {named[-1]}, by case"
    else:
        listed = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    endless = len(cases) - len(finite)
    rest = f"; in {endless} more cases most runs did not end" if endless else ""
    return f"at most {listed}{rest}"
