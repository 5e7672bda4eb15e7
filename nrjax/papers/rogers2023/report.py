"""The report of `rogers2023`: results returned, their precision, and comparisons."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nrjax.papers._claims import Cases, data_remarks, group_by
from nrjax.papers.rogers2023.settings import GROUP, data_name
from nrjax.statistics.sample import Distribution, Sample
from nrjax.study import precision as exactness
from nrjax.study.formats import humanise, json_safe
from nrjax.study.report import Report
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results

_REFERENCE = "brownian"  # method to compare the others with; if not run, the first method
_CLEAR = 3.0  # number of standard errors above which a difference is clear
_EXHAUSTED = 0.05  # fraction of trials that tried all items, from which on to warn


class CountReporting(Reporting):
    """The report of results returned and their precision, by method and filter."""

    case_facts = ("data", "samples", "method", "filter", "trials")

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the function that draws each figure, by name."""
        from nrjax.papers.rogers2023.figures import figures  # matplotlib is slow to import

        return figures(results)

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """Return statistics of a case's results, precision and costs.

        Returns:
            Entries of the summary. `returned` (number of results of a trial) and `precision`
            (fraction of the results within alpha of the true count) have a mean, the mean's 95 %
            `interval` and the trials' `std`. `spent` is the mean cost in the filter's unit, with
            its `share` of the budget. `attempted` is the mean number of items tried, and `steps`
            the mean number of draws of noise. `exhausted` is the fraction of trials that tried
            every item, so that the budget did not limit them.
        """
        facts = results.cases[case].attributes
        returned, spent, attempted, steps = (
            results.distribution_of(case, name)
            for name in ("returned", "spent", "attempted", "steps")
        )
        least, most = int(returned.order_statistic(1)[0]), int(returned.quantile(1.0))
        return {
            "returned": {**_moments(returned), "min": least, "max": most},
            "precision": _moments(results.distribution_of(case, "precision")),
            "spent": {"mean": spent.mean, "share": spent.mean / facts["budget"]},
            "attempted": {"mean": attempted.mean},
            "steps": {"mean": steps.mean},
            "exhausted": attempted.fraction_above(facts["items"] - 1),
        }

    def findings(self, results: Results) -> dict[str, Any]:
        """Compare each method with the first, trial by trial, as cases share random numbers.

        Returns:
            `comparisons`, a list of pairs of methods: `returned` and `precision` have the mean
            difference, second method minus first, with its standard error (null for one trial).
            `ratio` is the second method's mean number of results divided by the first's. `more` is
            the fraction of trials in which the second method returned more results. Methods without
            stored trials are not compared.
        """
        comparisons = []
        for group in group_by(results.cases.values(), *GROUP).values():
            if not all(results.keeps_trials(case.name) for case in group):
                continue
            cases = sorted(group, key=lambda case: case.attributes["method"] != _REFERENCE)
            outcomes = [
                [
                    results.arrays(case.name)[name].astype(float)
                    for name in ("returned", "precision")
                ]
                for case in cases
            ]
            base, first = outcomes[0], cases[0].attributes
            for case, outcome in zip(cases[1:], outcomes[1:], strict=True):
                second = case.attributes
                returned, precision = (b - a for a, b in zip(base, outcome, strict=True))
                mean, unit = outcome[0].mean(), base[0].mean()
                comparisons.append(
                    {
                        **{name: first[name] for name in ("data", "samples", "smallest")},
                        "methods": [first["method"], second["method"]],
                        "filters": [first["filter"], second["filter"]],
                        "returned": _difference(returned),
                        "precision": _difference(precision),
                        "ratio": float(mean / unit) if unit > 0 else None,
                        "more": float((returned > 0).mean()),
                    }
                )
        return {"comparisons": comparisons}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return a table of results returned and precision, and which method returns more."""
        cases = summary["cases"]
        starts = len(group_by(cases, *GROUP)) > len(group_by(cases, "dataset"))
        names = _Names(starts, len(group_by(cases, "filter")) > 1)
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
            *_data(cases),
            *_budgets(cases),
            *data_remarks(cases),
            "Means with their standard errors. Spent: share of the filter's budget. A trial "
            "without results has precision 1, as in the paper.",
            *exactness.remarks(results),
            *_verdicts(summary["comparisons"], names),
            *_published(cases),
            *_warnings(cases, names),
        ]
        return Report(title, headings, rows, tuple(remarks))


def _moments(values: Distribution) -> dict[str, Any]:
    return {
        "mean": values.mean,
        "std": values.std,
        "min": values.order_statistic(1)[0],
        "standard_error": json_safe(values.standard_error),
        "interval": json_safe(values.mean_interval()),
    }


def _difference(values: np.ndarray) -> dict[str, Any]:
    error = json_safe(Sample(values).standard_error)
    return {"difference": float(values.mean()), "standard_error": error}


class _Names(NamedTuple):
    """The format of case names, which omit parameters that all cases share.

    Attributes:
        starts: whether names include the smallest squared privacy parameter.
        filters: whether names include the filter.
    """

    starts: bool
    filters: bool

    def data(self, facts: Mapping[str, Any]) -> str:
        return data_name(facts) + (f" from {facts['smallest']:g}" if self.starts else "")

    def method(self, method: str, filter_name: str) -> str:
        return humanise(f"{method} {filter_name}" if self.filters else method)

    def case(self, facts: Mapping[str, Any]) -> str:
        return f"{self.data(facts)} {self.method(facts['method'], facts['filter'])}"


def _mean(values: Mapping[str, Any], places: int) -> str:
    """Return a mean with its standard error, as text."""
    error = values["standard_error"]
    return f"{values['mean']:.{places}f}" + ("" if error is None else f" ± {error:.{places}f}")


def _data(cases: Cases) -> list[str]:
    """Return a sentence per data set on its counts, the requested error and the privacy."""
    lines = []
    for (data,), group in group_by(cases, "data").items():
        facts = group[0]
        totals = ", ".join(f"{total:,}" for (total,) in group_by(group, "total"))
        starts = ", ".join(f"{start:g}" for (start,) in group_by(group, "smallest"))
        lines.append(
            f"{data}: counts of {facts['unit']} by {facts['items']:,} items, {totals} in all; "
            f"relative error {facts['alpha']:g}, (epsilon, delta) = ({facts['epsilon']:g}, "
            f"{facts['delta']:g}), exponential mechanism {facts['selection']:g} "
            f"({humanise(facts['neighbour'])} a user), smallest squared privacy parameter "
            f"{starts}, {facts['levels']} levels."
        )
    return lines


def _budgets(cases: Cases) -> list[str]:
    lines = []
    budgets = group_by(cases, "epsilon", "delta", "filter", "order")
    for (epsilon, _, filter_name, order), group in budgets.items():
        methods = ", ".join(humanise(method) for (method,) in group_by(group, "method"))
        tuned = "" if order is None else f" (order {order:.4g}, for {methods})"
        lines.append(
            f"Budget of the filter {filter_name}{tuned} at epsilon {epsilon:g}: "
            f"{group[0]['currency']} = {group[0]['budget']:.5g}."
        )
    return lines


def _sign(returned: Mapping[str, Any]) -> int:
    """Return 1 if the second method clearly returns more results, -1 if fewer, else 0."""
    difference, error = returned["difference"], returned["standard_error"]
    return 0 if error is None or abs(difference) <= _CLEAR * error else int(np.sign(difference))


def _verdicts(comparisons: Cases, names: _Names) -> list[str]:
    """Return sentences on which method returns more, and on the paper's finding."""
    lines = []
    for pair in comparisons:
        cases = zip(pair["methods"], pair["filters"], strict=True)
        first, second = (names.method(*case) for case in cases)
        parts = []
        for name, places in (("returned", 2), ("precision", 4)):
            difference, error = pair[name]["difference"], pair[name]["standard_error"]
            spread = "" if error is None else f" ± {error:.{places}f}"
            parts.append(f"{difference:+.{places}f}{spread}")
        verdict = {1: "more", -1: "fewer", 0: "no clear difference"}[_sign(pair["returned"])]
        if pair["returned"] == {"difference": 0.0, "standard_error": 0.0}:
            verdict = "equal in every trial, as when the first level is accurate enough"
        ratio = "" if pair["ratio"] is None else f" ({pair['ratio']:.3g} times as many)"
        lines.append(
            f"{names.data(pair)}: {second} against {first}: {parts[0]} results{ratio}, "
            f"{parts[1]} precision, paired by trial: {verdict}."
        )
    claims = [pair for pair in comparisons if set(pair["methods"]) == {"brownian", "doubling"}]
    if claims:
        alike = [pair for pair in claims if len(set(pair["filters"])) == 1]
        signs = {"doubling": 1, "brownian": -1}  # expected signs, by the pair's first method
        holds = sum(_sign(pair["returned"]) == signs[pair["methods"][0]] for pair in alike)
        lines.append(
            "The paper: Brownian noise reduction returns more results than doubling. This run: so, "
            f"by more than {_CLEAR:g} standard errors, in {holds} of {len(alike)} comparisons "
            "under the same filter."
        )
    return lines


def _published(cases: Cases) -> list[str]:
    """Return the paper's numbers for Reddit, which come from other counts than this run's."""
    if all(case["data"] != "reddit" for case in cases):
        return []
    return [
        "The paper's Reddit: Brownian returned 152 on average (at least 151) with precision 97 %, "
        "doubling 109 (at least 108) with 98 %. Its counts, words by author, are no longer public. "
        "This run counts posts by word, so only the order of the methods can be compared. The "
        "paper's smallest privacy parameter, 0.0001, can be read as squared or not: 1e-4 or 1e-8."
    ]


def _warnings(cases: Cases, names: _Names) -> list[str]:
    """Return warnings about the numbers in the table."""
    lines = []
    for case in cases:
        name = names.case(case)
        if case["exhausted"] >= _EXHAUSTED:
            lines.append(
                f"Warning: {case['exhausted']:.0%} of the trials of {name} tried all "
                f"{case['items']} items, so the number of items limits their results. Use a lower "
                "--epsilon."
            )
        if case["returned"]["max"] == 0:
            lines.append(
                f"Warning: no trial of {name} returned a result, so its precision is meaningless."
            )
    return lines
