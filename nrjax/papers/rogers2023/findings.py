"""What a finished run of `rogers2023` shows: results, precision, and who returns more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study import precision as exactness
from nrjax.study.distribution import Distribution, Sample
from nrjax.study.layout import Case
from nrjax.study.report import Report
from nrjax.study.results import Reporting, Results
from nrjax.study.summary import strict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REFERENCE = "brownian"
"""The method that the others are compared with; the first one where it is missing."""

_CLEAR = 3.0
"""Standard errors from which on a difference is said to be one."""

_PAPER_PRECISION = 0.97
"""Of Brownian noise reduction on Reddit."""

_EXHAUSTED = 0.05
"""From this share of trials on, running out of items is worth a warning."""


class Findings(Reporting):
    """Results, precision, and who returns more."""

    case_facts = ("data", "samples", "method", "filter", "trials")

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary says of a case; see `measure`."""
        return measure(results, case)

    def findings(self, results: Results) -> dict[str, Any]:
        """How many more results each method returns than the first."""
        return {"comparisons": comparisons(results)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Results returned and precision by case, and what to make of them."""
        return report(results, summary)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Figure]]:
        """The counts, results returned and their precision, and the budget."""
        from nrjax.papers.rogers2023 import figures

        return {"counts": figures.counts, "returned": figures.returned, "budget": figures.budget}


def standard_error(values: np.ndarray) -> float | None:
    """Of the mean of shape (trials,); None for one trial."""
    return strict(Sample(values).standard_error)


def measure(results: Results, name: str) -> dict[str, Any]:
    """What the summary says of a case.

    `returned`: results within a trial; `precision`: the share of them within alpha of the truth;
    `std` is that of the trials, `interval` the 95 % interval of the mean. `spent` is in the
    filter's currency, `share` of its budget. `attempted` counts the items tried, those given up
    included, `steps` the releases drawn; `exhausted` is the share of trials that tried every item,
    so that the budget did not bind.
    """
    facts = results.cases[name].attributes
    returned, spent, attempted, steps = (
        results.law(name, one) for one in ("returned", "spent", "attempted", "steps")
    )
    return {
        "returned": {
            **_spread(returned),
            "min": int(returned.order_statistic(1)[0]),
            "max": int(returned.quantile(100)),
        },
        "precision": _spread(results.law(name, "precision")),
        "spent": {"mean": spent.mean, "share": spent.mean / facts["budget"]},
        "attempted": {"mean": attempted.mean},
        "steps": {"mean": steps.mean},
        "exhausted": attempted.fraction_above(facts["items"] - 1),
    }


def _spread(values: Distribution) -> dict[str, Any]:
    return {
        "mean": values.mean,
        "std": values.std,
        "min": values.order_statistic(1)[0],
        "standard_error": strict(values.standard_error),
        "interval": strict(values.mean_interval()),
    }


def groups(results: Results) -> list[list[Case]]:
    """Cases of the same counts, target and beginning, which differ in method and filter only."""
    found: dict[tuple[str, float], list[Case]] = {}
    for case in results.cases.values():
        key = case.attributes["dataset"], case.attributes["smallest"]
        found.setdefault(key, []).append(case)
    return list(found.values())


def comparisons(results: Results) -> list[dict[str, Any]]:
    """How many more results each method returns than the first, trial by trial.

    Cases share their random numbers, so that differences are taken within trials. `returned` and
    `precision` are means of the second minus the first, each with its standard error (null for one
    trial); `more` is the share of trials in which the second returned more results. There are none
    where trials were not kept, which can then not be paired.
    """
    found = []
    for here in groups(results):
        if not all(results.keeps_trials(case.name) for case in here):
            continue
        cases = sorted(here, key=lambda case: case.attributes["method"] != _REFERENCE)
        first = _outcome(results, cases[0])
        for case in cases[1:]:
            second = _outcome(results, case)
            differences = [b - a for a, b in zip(first, second, strict=True)]
            names = ("returned", "precision")
            facts = cases[0].attributes, case.attributes
            found.append(
                {
                    **{name: facts[0][name] for name in ("data", "samples", "smallest")},
                    "methods": [one["method"] for one in facts],
                    "filters": [one["filter"] for one in facts],
                    **{
                        name: {
                            "difference": float(values.mean()),
                            "standard_error": standard_error(values),
                        }
                        for name, values in zip(names, differences, strict=True)
                    },
                    "ratio": strict(_ratio(second[0].mean(), first[0].mean())),
                    "more": float((differences[0] > 0).mean()),
                }
            )
    return found


def _outcome(results: Results, case: Case) -> tuple[np.ndarray, np.ndarray]:
    outcome = results[case.name]
    return outcome["returned"].values.astype(float), outcome["precision"].values.astype(float)


def _ratio(one: float, other: float) -> float:
    return float(one / other) if other > 0 else math.inf


def label(facts: Mapping[str, Any]) -> str:
    """The data of a case in a few words."""
    size = "" if facts["samples"] is None else f" {facts['samples']:,}"
    return f"{facts['data']}{size}"


class _Names:
    """What cases are called in a table and in sentences: no more than tells them apart."""

    def __init__(self, cases: list[dict[str, Any]]):
        data = {case["dataset"] for case in cases}
        self._begins = len({(case["dataset"], case["smallest"]) for case in cases}) > len(data)
        self._filters = len({case["filter"] for case in cases}) > 1

    def data(self, facts: Mapping[str, Any]) -> str:
        """The counts, and where releases begin."""
        return label(facts) + (f" from {facts['smallest']:g}" if self._begins else "")

    def method(self, method: str, filter_name: str) -> str:
        """The method, and its filter."""
        return f"{method} {filter_name}" if self._filters else method

    def case(self, facts: Mapping[str, Any]) -> str:
        """All of it."""
        return f"{self.data(facts)} {self.method(facts['method'], facts['filter'])}"


def report(results: Results, summary: Mapping[str, Any]) -> Report:
    """Results returned and precision by case, and what to make of them."""
    cases = summary["cases"]
    names, rows = _Names(cases), []
    for case in cases:
        returned, exact = case["returned"], case["precision"]
        rows.append(
            (
                names.case(case),
                _mean(returned, 2),
                f"{returned['std']:.2f}",
                f"{returned['min']}-{returned['max']}",
                _mean(exact, 4),
                f"{exact['std']:.4f}",
                f"{case['spent']['share']:.0%}",
            )
        )
    headings = ("case", "returned", "std", "range", "precision", "std", "spent")
    title = f"{summary['study']}: results returned, and the share within alpha of the truth"
    remarks = [
        *_sources(cases),
        "Means with their standard errors. Spent is of the filter's budget. A trial without "
        "results has precision 1, as in the paper.",
        *exactness.remarks(results),
        *_verdicts(summary["comparisons"], names),
        *_published(cases),
        *_warnings(cases, names),
    ]
    return Report(title, headings, tuple(rows), tuple(remarks))


def _mean(values: Mapping[str, Any], places: int) -> str:
    """A mean and its standard error."""
    error = values["standard_error"]
    return f"{values['mean']:.{places}f}" + ("" if error is None else f" ± {error:.{places}f}")


def _sources(cases: list[dict[str, Any]]) -> list[str]:
    """What was counted, and what was asked."""
    lines = []
    for data in dict.fromkeys(case["data"] for case in cases):
        here = [case for case in cases if case["data"] == data]
        facts = here[0]
        totals = ", ".join(f"{n:,}" for n in dict.fromkeys(case["total"] for case in here))
        begins = ", ".join(f"{s:g}" for s in dict.fromkeys(case["smallest"] for case in here))
        lines.append(
            f"{data}: counts of {facts['unit']} by {facts['items']:,} items, {totals} in all; "
            f"relative error {facts['alpha']:g}, (epsilon, delta) = ({facts['epsilon']:g}, "
            f"{facts['delta']:g}), "
            f"exponential mechanism {facts['selection']:g} ({facts['neighbour'].replace('_', ' ')} "
            f"a user), smallest squared privacy parameter {begins}, {facts['levels']} levels."
        )
    budgets: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in cases:
        key = case["epsilon"], case["delta"], case["filter"], case["order"]
        budgets.setdefault(key, []).append(case)
    for (epsilon, _, filter_name, order), here in budgets.items():
        methods = ", ".join(dict.fromkeys(case["method"] for case in here))
        tuned = "" if order is None else f" (order {order:.4g}, for {methods})"
        lines.append(
            f"Budget of the filter {filter_name}{tuned} at epsilon {epsilon:g}: "
            f"{here[0]['currency']} = {here[0]['budget']:.5g}."
        )
    return lines


def _verdicts(found: list[dict[str, Any]], names: _Names) -> list[str]:
    """Who returns more, with paired standard errors."""
    lines = []
    for one in found:
        first, second = (
            names.method(*pair) for pair in zip(one["methods"], one["filters"], strict=True)
        )
        parts, clear = [], False
        for name, places in (("returned", 2), ("precision", 4)):
            difference, error = one[name]["difference"], one[name]["standard_error"]
            spread = "" if error is None else f" +- {error:.{places}f}"
            parts.append(f"{difference:+.{places}f}{spread}")
            if name == "returned" and error is not None:
                clear = abs(difference) > _CLEAR * error and difference != 0
        verdict = "no clear difference"
        if clear:
            verdict = "fewer" if one["returned"]["difference"] < 0 else "more"
        elif one["returned"] == {"difference": 0.0, "standard_error": 0.0}:
            verdict = "the same in every trial, as where the first level is good enough already"
        ratio = "" if one["ratio"] is None else f" ({one['ratio']:.3g} times as many)"
        lines.append(
            f"{names.data(one)}: {second} against {first}: {parts[0]} results{ratio}, "
            f"{parts[1]} precision, paired by trial: {verdict}."
        )
    if any(set(one["methods"]) == {"brownian", "doubling"} for one in found):
        lines.append(_statement(found))
    return lines


def _statement(found: list[dict[str, Any]]) -> str:
    """Whether the paper's main finding holds."""
    pairs = [
        one
        for one in found
        if set(one["methods"]) == {"brownian", "doubling"} and len(set(one["filters"])) == 1
    ]
    held = 0
    for one in pairs:
        sign = 1 if one["methods"][0] == "doubling" else -1
        error = one["returned"]["standard_error"]
        held += error is not None and sign * one["returned"]["difference"] > _CLEAR * error
    return (
        "The paper: Brownian noise reduction returns more results than doubling. Here so, by more "
        f"than {_CLEAR:g} standard errors, in {held} of {len(pairs)} comparisons under the same "
        "filter."
    )


def _published(cases: list[dict[str, Any]]) -> list[str]:
    """The paper's numbers for Reddit, which are of other data."""
    here = [case for case in cases if case["data"] == "reddit"]
    if not here:
        return []
    lines = [
        "The paper's Reddit: Brownian returned 152 on average (at least 151) with precision 97 %, "
        "doubling 109 (at least 108) with 98 %. That was the histogram of words by author, which "
        "is not public any more; here it is posts by word, other counts, so that only the order of "
        "the methods can be compared."
    ]
    found = {
        case["smallest"]: case["precision"]["mean"]
        for case in here
        if (case["method"], case["filter"]) == (_REFERENCE, "unified")
    }
    if len(found) > 1:
        nearest = min(found, key=lambda begin: abs(found[begin] - _PAPER_PRECISION))
        lines.append(
            "The paper's smallest privacy parameter can be read as squared or not; nearest to its "
            f"precision is e^2 from {nearest:g} (Brownian: {found[nearest]:.1%})."
        )
    return lines


def _warnings(cases: list[dict[str, Any]], names: _Names) -> list[str]:
    """What should make one doubt the table."""
    lines = []
    for case in cases:
        name = names.case(case)
        if case["exhausted"] >= _EXHAUSTED:
            lines.append(
                f"Warning: {case['exhausted']:.0%} of the trials of {name} tried all "
                f"{case['items']} items: their number says how many items there are. Lower "
                "--epsilon."
            )
        if case["returned"]["max"] == 0:
            lines.append(f"Warning: no trial of {name} returned anything; precision says nothing.")
    return lines
