"""The result of a study in a sentence or two, to stand first in its report."""

from collections.abc import Mapping, Sequence
from typing import Any

from nrjax.study.formats import number

_LISTED = 3
"""The largest number of cases of which each is named."""


def answer(summary: Mapping[str, Any]) -> str:
    """Return what half of the runs pay at most, or "" if no case has an epsilon.

    Cases whose epsilon covers the decision to stop come first.

    Args:
        summary: contents of summary.json.
    """
    stated = [case for case in summary["cases"] if case.get("stopping_epsilon") is not None]
    stated = [case for case in stated if "stopped" in case]
    covered = [case for case in stated if case.get("public_test") is False]
    public = [case for case in stated if case.get("public_test")]
    other = [case for case in stated if case.get("public_test") is None]
    sentences = []
    if covered:
        sentences.append(f"{_paid(covered)} This covers the decision to stop.")
    if public and covered:
        sentences.append(
            "Only if the score reads no private data, so that stopping costs nothing: "
            f"{_cost(public)}."
        )
    elif public:
        sentences.append(f"{_paid(public)} This does not cover the decision to stop.")
    if other:
        sentences.append(_paid(other))
    return " ".join(sentences)


def _paid(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the medians of some cases."""
    return f"Half of the runs pay an epsilon of {_cost(cases)}."


def _cost(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of some cases, or the lowest and the highest of many, with their names."""
    finite = [case for case in cases if case["stopping_epsilon"]["q50"] is not None]
    if not finite:
        return "infinity, since most runs did not end"
    ranked = sorted(finite, key=lambda case: case["stopping_epsilon"]["q50"])
    named = [f"{number(case['stopping_epsilon']['q50'])} ({case['case']})" for case in ranked]
    if len(named) > _LISTED:
        listed = f"{named[0]} to {named[-1]}, by case"
    else:
        listed = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    endless = len(cases) - len(finite)
    rest = f"; in {endless} more cases most runs did not end" if endless else ""
    return f"at most {listed}{rest}"
