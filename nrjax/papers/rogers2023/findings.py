"""What a finished run of `rogers2023` shows: results, precision, and who returns more."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nrjax.papers._shared import PaperReporting, grouped, plain, remarks_on_data
from nrjax.study import precision as exactness
from nrjax.study.report import Report
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution, Sample
from nrjax.study.summary import strict

_REFERENCE = "brownian"
"""The method that the others are compared with; the first one where it is missing."""

_CLEAR = 3.0
"""Standard errors from which on a difference is said to be one."""

_PAPER_PRECISION = 0.97
"""Of Brownian noise reduction on Reddit."""

_EXHAUSTED = 0.05
"""From this share of trials on, running out of items is worth a warning."""

GROUP = ("dataset", "smallest")
"""Cases with these labels in common differ in method and filter only."""

Cases = Sequence[dict[str, Any]]


class Findings(PaperReporting):
    """Results, precision, and who returns more."""

    case_facts = ("data", "samples", "method", "filter", "trials")

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary says of a case.

        `returned`: results within a trial; `precision`: the share of them within alpha of the
        truth; `std` is that of the trials, `interval` the 95 % interval of the mean. `spent` is in
        the filter's currency, `share` of its budget. `attempted` counts the items tried, those
        given up included, `steps` the releases drawn; `exhausted` is the share of trials that tried
        every item, so that the budget did not bind.
        """
        facts = results.cases[case].attributes
        returned, spent, attempted, steps = (
            results.law(case, one) for one in ("returned", "spent", "attempted", "steps")
        )
        least, most = int(returned.order_statistic(1)[0]), int(returned.quantile(1.0))
        return {
            "returned": {**_spread(returned), "min": least, "max": most},
            "precision": _spread(results.law(case, "precision")),
            "spent": {"mean": spent.mean, "share": spent.mean / facts["budget"]},
            "attempted": {"mean": attempted.mean},
            "steps": {"mean": steps.mean},
            "exhausted": attempted.fraction_above(facts["items"] - 1),
        }

    def findings(self, results: Results) -> dict[str, Any]:
        """How many more results each method returns than the first, trial by trial.

        Cases share their random numbers, so that differences are taken within trials. `returned`
        and `precision` are means of the second minus the first, each with its standard error (null
        for one trial); `more` is the share of trials in which the second returned more results.
        There are none where trials were not kept, which can then not be paired.
        """
        found = []
        for here in grouped(results.cases.values(), *GROUP).values():
            if not all(results.keeps_trials(case.name) for case in here):
                continue
            cases = sorted(here, key=lambda case: case.attributes["method"] != _REFERENCE)
            first, *others = (case.attributes for case in cases)
            kept = "returned", "precision"
            outcomes = [[results.arrays(one.name)[k].astype(float) for k in kept] for one in cases]
            for second, outcome in zip(others, outcomes[1:], strict=True):
                apart = [b - a for a, b in zip(outcomes[0], outcome, strict=True)]
                ours, theirs = outcome[0].mean(), outcomes[0][0].mean()
                found.append(
                    {
                        **{name: first[name] for name in ("data", "samples", "smallest")},
                        "methods": [first["method"], second["method"]],
                        "filters": [first["filter"], second["filter"]],
                        "returned": _difference(apart[0]),
                        "precision": _difference(apart[1]),
                        "ratio": float(ours / theirs) if theirs > 0 else None,
                        "more": float((apart[0] > 0).mean()),
                    }
                )
        return {"comparisons": found}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Results returned and precision by case, and what to make of them."""
        cases = summary["cases"]
        begins = len(grouped(cases, *GROUP)) > len(grouped(cases, "dataset"))
        names = _Names(begins, len(grouped(cases, "filter")) > 1)
        rows = tuple(
            (
                names.case(case),
                _mean(case["returned"], 2),
                f"{case['returned']['std']:.2f}",
                f"{case['returned']['min']}-{case['returned']['max']}",
                _mean(case["precision"], 4),
                f"{case['precision']['std']:.4f}",
                f"{case['spent']['share']:.0%}",
            )
            for case in cases
        )
        headings = ("case", "returned", "std", "range", "precision", "std", "spent")
        title = f"{summary['study']}: results returned, and the share within alpha of the truth"
        remarks = [
            *_sources(cases),
            *remarks_on_data(cases),
            "Means with their standard errors. Spent is of the filter's budget. A trial without "
            "results has precision 1, as in the paper.",
            *exactness.remarks(results),
            *_verdicts(summary["comparisons"], names),
            *_published(cases),
            *_warnings(cases, names),
        ]
        return Report(title, headings, rows, tuple(remarks))


def _spread(values: Distribution) -> dict[str, Any]:
    return {
        "mean": values.mean,
        "std": values.std,
        "min": values.order_statistic(1)[0],
        "standard_error": strict(values.standard_error),
        "interval": strict(values.mean_interval()),
    }


def _difference(values: np.ndarray) -> dict[str, Any]:
    error = strict(Sample(values).standard_error)
    return {"difference": float(values.mean()), "standard_error": error}


def label(facts: Mapping[str, Any]) -> str:
    """The data of a case in a few words."""
    size = "" if facts["samples"] is None else f" {facts['samples']:,}"
    return f"{facts['data']}{size}"


class _Names(NamedTuple):
    """What cases are called in a table and in sentences: no more than tells them apart."""

    begins: bool
    """Whether those of the same counts begin at several parameters."""
    filters: bool
    """Whether there are several."""

    def data(self, facts: Mapping[str, Any]) -> str:
        return label(facts) + (f" from {facts['smallest']:g}" if self.begins else "")

    def method(self, method: str, filter_name: str) -> str:
        return plain(f"{method} {filter_name}" if self.filters else method)

    def case(self, facts: Mapping[str, Any]) -> str:
        return f"{self.data(facts)} {self.method(facts['method'], facts['filter'])}"


def _mean(values: Mapping[str, Any], places: int) -> str:
    """A mean and its standard error."""
    error = values["standard_error"]
    return f"{values['mean']:.{places}f}" + ("" if error is None else f" ± {error:.{places}f}")


def _sources(cases: Cases) -> list[str]:
    """What was counted, and what was asked."""
    lines = []
    for (data,), here in grouped(cases, "data").items():
        facts = here[0]
        totals = ", ".join(f"{total:,}" for (total,) in grouped(here, "total"))
        begins = ", ".join(f"{begin:g}" for (begin,) in grouped(here, "smallest"))
        lines.append(
            f"{data}: counts of {facts['unit']} by {facts['items']:,} items, {totals} in all; "
            f"relative error {facts['alpha']:g}, (epsilon, delta) = ({facts['epsilon']:g}, "
            f"{facts['delta']:g}), exponential mechanism {facts['selection']:g} "
            f"({plain(facts['neighbour'])} a user), smallest squared privacy parameter {begins}, "
            f"{facts['levels']} levels."
        )
    budgets = grouped(cases, "epsilon", "delta", "filter", "order")
    for (epsilon, _, filter_name, order), here in budgets.items():
        methods = ", ".join(plain(method) for (method,) in grouped(here, "method"))
        tuned = "" if order is None else f" (order {order:.4g}, for {methods})"
        lines.append(
            f"Budget of the filter {filter_name}{tuned} at epsilon {epsilon:g}: "
            f"{here[0]['currency']} = {here[0]['budget']:.5g}."
        )
    return lines


def _clear(returned: Mapping[str, Any]) -> int:
    """1 where the second returns more than the first, -1 where fewer, 0 where one cannot tell."""
    difference, error = returned["difference"], returned["standard_error"]
    return 0 if error is None or abs(difference) <= _CLEAR * error else int(np.sign(difference))


def _verdicts(found: Cases, names: _Names) -> list[str]:
    """Who returns more, with paired standard errors; and whether the paper's finding holds."""
    lines = []
    for one in found:
        first, second = (
            names.method(*pair) for pair in zip(one["methods"], one["filters"], strict=True)
        )
        parts = []
        for name, places in (("returned", 2), ("precision", 4)):
            difference, error = one[name]["difference"], one[name]["standard_error"]
            spread = "" if error is None else f" +- {error:.{places}f}"
            parts.append(f"{difference:+.{places}f}{spread}")
        verdict = {1: "more", -1: "fewer", 0: "no clear difference"}[_clear(one["returned"])]
        if one["returned"] == {"difference": 0.0, "standard_error": 0.0}:
            verdict = "the same in every trial, as where the first level is good enough already"
        ratio = "" if one["ratio"] is None else f" ({one['ratio']:.3g} times as many)"
        lines.append(
            f"{names.data(one)}: {second} against {first}: {parts[0]} results{ratio}, "
            f"{parts[1]} precision, paired by trial: {verdict}."
        )
    pairs = [one for one in found if set(one["methods"]) == {"brownian", "doubling"}]
    if pairs:
        alike = [one for one in pairs if len(set(one["filters"])) == 1]
        signs = {"doubling": 1, "brownian": -1}  # by which is the first
        held = sum(_clear(one["returned"]) == signs[one["methods"][0]] for one in alike)
        lines.append(
            "The paper: Brownian noise reduction returns more results than doubling. Here so, by "
            f"more than {_CLEAR:g} standard errors, in {held} of {len(alike)} comparisons under "
            "the same filter."
        )
    return lines


def _published(cases: Cases) -> list[str]:
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


def _warnings(cases: Cases, names: _Names) -> list[str]:
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
