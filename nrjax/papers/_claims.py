"""Helpers of the papers' reports: paired differences, and sentences on the data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nrjax.study.compare import interval_of
from nrjax.study.formats import json_safe
from nrjax.study.results import Results

Cases = Sequence[Mapping[str, Any]]
"""The cases of a `summary.json`, each a mapping from names to values."""


def group_by(cases: Iterable[Any], *labels: str) -> dict[tuple[Any, ...], list[Any]]:
    """Group the cases of results or of a summary by the values of the given labels."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for case in cases:
        facts = case if isinstance(case, Mapping) else case.attributes
        groups.setdefault(tuple(facts[label] for label in labels), []).append(case)
    return groups


class PairedDifference(NamedTuple):
    """A difference of the median stopping epsilons (or interquartile ranges) of two cases.

    As in strict JSON, None stands for a number that is infinite or undefined.

    Attributes:
        values: the median (or interquartile range) of each case.
        difference: the first value minus the second.
        interval: paired 95 % interval of the difference, or None if there is none.
        first_is_lower: whether the interval is below 0, or None if it contains 0 or there is none.
    """

    values: list[float | None]
    difference: float | None
    interval: list[float | None] | None
    first_is_lower: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return all fields but `first_is_lower`, by name."""
        fields = self._asdict()
        del fields["first_is_lower"]
        return fields


def paired_difference(
    results: Results, first: str, second: str, *, iqr: bool = False
) -> PairedDifference | None:
    """Compare the stopping epsilons of two cases that share their random numbers.

    Args:
        results: a finished run.
        first: name of a case.
        second: name of the case whose value is subtracted.
        iqr: whether to compare interquartile ranges instead of medians.

    Returns:
        The difference, or None if trials were not stored or a case has no epsilon.
    """
    pair = first, second
    epsilons = [values for name in pair if (values := results.distribution(name)) is not None]
    if len(epsilons) < 2 or not all(map(results.keeps_trials, pair)):
        return None
    with np.errstate(invalid="ignore"):  # two infinite numbers have no difference
        values = [epsilon.quantile(0.5) for epsilon in epsilons]
        if iqr:
            quartiles = [epsilon.quantile([0.25, 0.75]) for epsilon in epsilons]
            values = [float(high - low) for low, high in quartiles]
        difference = float(np.subtract(values[0], values[1]))
    ends = interval_of(results, first, second, of="iqr" if iqr else "difference")
    lower = None if ends is None or ends[0] <= 0 <= ends[1] else ends[1] < 0
    return PairedDifference(json_safe(values), json_safe(difference), json_safe(ends), lower)


def data_sentences(cases: Cases, detail: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Return sentences on each task's data: the size, the best loss and `detail(case)`."""
    return [
        f"{data} ({task} regression): {case['rows']:,} rows of {case['dimension']} numbers each. "
        f"The best model has a loss of {case['optimum']:.4g}, penalty included. {detail(case)}"
        for (task, data), (case, *_) in group_by(cases, "task", "data").items()
    ]


def data_remarks(cases: Cases) -> list[str]:
    """Return the remarks on the data sets of the cases, without repetition."""
    return list(dict.fromkeys(remark for case in cases for remark in case.get("remarks", ())))
