"""What a finished run of `ligett2017` shows: accuracy, costs, and which method is cheapest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study import precision
from nrjax.study.compare import interval_of
from nrjax.study.intervals import binomial_interval
from nrjax.study.report import Report, within
from nrjax.study.results import Reporting, Results
from nrjax.study.summary import strict
from nrjax.types import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REFERENCE = "noise_reduction"
"""The method that the others are compared with; the first one where it is missing."""

_SHORT = {
    "noise_reduction": "NR",
    "doubling": "doubling",
    "theory": "theory",
    "brownian_above_threshold": "BM, AT",
    "brownian_reduced": "BM, RAT",
}
"""The methods in a table, which has to fit into 120 columns."""

_FEWEST_TRIALS = 6
"""With fewer not even the extremes bound a median with 95 %: `2 (1/2)^n` is above 5 %."""

_PAPER_ALPHAS = (0.05, 0.075)
"""Goals at which the paper prints risk factors: 10.0 and 4.65, doubling 495 and 56.6 (ridge)."""


class Findings(Reporting):
    """Accuracy, costs, and which method is cheapest."""

    case_facts = ("task", "method", "constants", "alpha", "data", "trials")

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary of a case says besides its epsilons; see `measure`."""
        return measure(results, case)

    def findings(self, results: Results) -> dict[str, Any]:
        """Medians of the methods against each other."""
        return {"comparisons": comparisons(results)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Median epsilon by goal and method, and what to make of it."""
        return report(results, summary)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Figure]]:
        """After those of the paper, and the price of each method beside noise reduction's."""
        from nrjax.papers.ligett2017 import figures

        return figures.figures(results)


def measure(results: Results, name: str) -> dict[str, Any]:
    """What the summary of a case says besides its epsilons.

    Means over the trials that stopped, null without any: epsilon of the test and of the hypothesis,
    the hypothesis' norm and its excess risk, with the 95 % quantile and the largest. `missed` is
    the share of all trials that stopped at an excess risk above alpha or failed, with its exact
    interval, 95 %; a trial that exhausts its grid gives the optimum, and misses nothing.
    """
    statuses, excess = results.statuses(name), results.law(name, "stopped_excess_risk")
    assert statuses is not None
    fine = statuses.get(Status.STOPPED, 0) + statuses.get(Status.EXHAUSTED, 0)
    trials = sum(statuses.values())
    missed = int(results.law(name, "shortfall").count_above(0)) + trials - fine

    def mean(quantity: str) -> dict[str, float | None]:
        found = results.distribution(name, f"stopped_{quantity}")
        return {"mean": None if found is None else strict(found.mean)}

    return {
        "test_epsilon": mean("test_epsilon"),
        "hypothesis_epsilon": mean("mechanism_epsilon"),
        "excess_risk": {
            "mean": strict(excess.mean),
            "q95": strict(excess.quantile(95)),
            "max": strict(excess.quantile(100)),
        },
        "norm": mean("norm"),
        "missed": {"share": missed / trials, "interval": list(binomial_interval(missed, trials))},
    }


def comparisons(results: Results) -> list[dict[str, Any]]:
    """Median epsilons of the methods at one goal, with paired bootstrap intervals, 95 %.

    Cases share their random numbers, so trials are resampled together. `difference` is the second
    method's median minus the first's, null where infinite; `cheaper` is the method whose median is
    lower, null where the interval has both signs or there are fewer than six trials. Cases whose
    trials were not kept are not compared, as they cannot be paired.
    """
    kept = {name for name in results if results.resampled(name) is not None}
    goals: dict[tuple[str, float], dict[str, str]] = {}
    for name, case in results.cases.items():
        facts = case.attributes
        goals.setdefault((facts["task"], facts["alpha"]), {})[facts["method"]] = name
    found = []
    for (task, alpha), cases in goals.items():
        reference = _REFERENCE if _REFERENCE in cases else next(iter(cases))
        for method, name in cases.items():
            pair = cases[reference], name
            if method == reference or not set(pair) <= kept:
                continue
            values = [results.law(one, "stopping_epsilon").quantile(50) for one in pair]
            enough = results.trials >= _FEWEST_TRIALS
            with np.errstate(invalid="ignore"):  # infinite medians have no difference
                difference = float(np.subtract(values[1], values[0]))
            span = interval_of(results, pair[1], pair[0])
            found.append(
                {
                    "task": task,
                    "alpha": alpha,
                    "methods": [reference, method],
                    "values": strict(values),
                    "difference": strict(difference),
                    "interval": strict(span),
                    "cheaper": _cheaper(span if enough else None, reference, method),
                }
            )
    return found


def _cheaper(span: tuple[float, float] | None, first: str, second: str) -> str | None:
    if span is None or span[0] <= 0 <= span[1]:
        return None
    return second if span[1] < 0 else first


def report(results: Results, summary: Mapping[str, Any]) -> Report:
    """Median epsilon by goal and method, and what to make of it."""
    cases = summary["cases"]
    methods = list(dict.fromkeys(case["method"] for case in cases))
    goals: dict[tuple[str, float], dict[str, Any]] = {}
    for case in cases:
        goals.setdefault((case["task"], case["alpha"]), {})[case["method"]] = case
    rows = []
    for (task, alpha), here in goals.items():
        medians = [_median(here[method]) for method in methods]
        rows.append((f"{task} {alpha:g}", *medians, _cheapest(here)))
    headings = ("task, alpha", *(_SHORT[method] for method in methods), "cheapest")
    remarks = [
        "NR: noise reduction (Laplace, AboveThreshold); BM: Brownian mechanism; AT, RAT: "
        "AboveThreshold, ReducedAboveThreshold.",
        "Per cent: how far the farther end of the median's exact 95 % interval is away.",
        *precision.remarks(results),
        *_promises(cases),
        *_sources(cases),
        *_risk_factors(goals),
        *_accuracy(cases),
        *_unstopped(cases),
        *_verdicts(summary["comparisons"]),
        *_warnings(summary),
    ]
    title = f"{summary['study']}: median total ex-post epsilon, over all trials"
    return Report(title, headings, tuple(rows), tuple(remarks))


def _median(case: Mapping[str, Any]) -> str:
    if case["epsilon"] is None:  # nothing was released, hence nothing reached
        return "inf"
    return within(case["epsilon"]["q50"], case["epsilon_interval"]["q50"])


def _promises(cases: list[dict[str, Any]]) -> list[str]:
    """Where methods promise less than noise reduction does, which is no reason to be cheaper."""
    lines = []
    deltas = {case["delta"] for case in cases} - {0.0}
    if deltas:
        (delta,) = deltas
        lines.append(
            f"BM's epsilon may be exceeded with probability delta = {delta:g}; the others' is pure."
        )
    if len({case["method"] == "theory" for case in cases}) == 2:
        lines.append("The theory's promise is for the mean excess risk; the others' for each run.")
    return lines


def _cheapest(cases: Mapping[str, Any]) -> str:
    finite = {
        method: case["epsilon"]["q50"]
        for method, case in cases.items()
        if case["epsilon"] is not None and case["epsilon"]["q50"] is not None
    }
    return _SHORT[min(finite, key=lambda method: finite[method])] if finite else "none"


def _sources(cases: list[dict[str, Any]]) -> list[str]:
    """What was learnt from which data."""
    tasks = {(case["task"], case["data"]): case for case in cases}
    return [
        f"{task} on {data}: {case['rows']:,} rows, {case['dimension']} features, by "
        f"{case['perturbation']} perturbation, lambda {case['regularisation']:g}; optimum "
        f"{case['optimum']:.6g} (gradient norm {case['gradient_norm']:.1g})"
        for (task, data), case in tasks.items()
    ]


def _risk_factors(goals: Mapping[tuple[str, float], Mapping[str, Any]]) -> list[str]:
    """The risk factor exp(mean epsilon), where the paper prints it."""
    lines = []
    for (task, alpha), here in goals.items():
        if alpha not in _PAPER_ALPHAS:
            continue
        factors = [
            f"{method.replace('_', ' ')} {_exponential(case['epsilon']['mean'])}"
            for method, case in here.items()
        ]
        lines.append(
            f"Risk factor exp(mean epsilon), {task}, alpha {alpha:g}: {', '.join(factors)}"
        )
    return lines


def _exponential(value: float | None) -> str:
    return "inf" if value is None or value > 700 else f"{math.exp(value):.4g}"


def _accuracy(cases: list[dict[str, Any]]) -> list[str]:
    """Whether the promise holds: excess risk above alpha in at most a share gamma of the trials."""
    promised = [case for case in cases if case["method"] != "theory"]
    if not promised:
        return []
    gamma, most = promised[0]["gamma"], max(case["missed"]["share"] for case in promised)
    share = f"at most {most:.2%} of a case's trials; {100 * gamma:g}% are allowed"
    lines = [f"Excess risk above alpha in {share}."]
    broken = [case for case in promised if case["missed"]["interval"][0] > gamma]
    lines += [
        f"Warning: {case['task']} {case['method'].replace('_', ' ')} at alpha {case['alpha']:g} "
        f"missed its goal in {case['missed']['share']:.1%} of the trials."
        for case in broken
    ]
    return lines


def _unstopped(cases: list[dict[str, Any]]) -> list[str]:
    """Trials that ended without a yes cost infinitely much."""
    some = [case for case in cases if case["stopped"] < 1]
    lines = []
    for task, method in dict.fromkeys((case["task"], case["method"]) for case in some):
        here = [case for case in some if (case["task"], case["method"]) == (task, method)]
        worst = min(here, key=lambda case: case["stopped"])
        lines.append(
            f"{task} {method.replace('_', ' ')}: not all trials stopped at {len(here)} of the "
            f"goals, at worst {worst['stopped']:.1%} at alpha {worst['alpha']:g}; the others count "
            "as infinite."
        )
    return lines


def _verdicts(found: list[dict[str, Any]]) -> list[str]:
    """Per task and pair of methods: at how many goals which is cheaper."""
    lines = []
    for task, first, second in dict.fromkeys((one["task"], *one["methods"]) for one in found):
        here = [one for one in found if (one["task"], *one["methods"]) == (task, first, second)]
        wins = {name: sum(one["cheaper"] == name for one in here) for name in (first, second)}
        ratios = [one["values"][1] / one["values"][0] for one in here if None not in one["values"]]
        size = ""
        if ratios:
            ends = (
                f"{min(ratios):.3g}"
                if len(ratios) == 1
                else f"{min(ratios):.3g} to {max(ratios):.3g}"
            )
            size = f"; its median is {ends} times the other's"
        lines.append(
            f"{task}: {second.replace('_', ' ')} is cheaper than {first.replace('_', ' ')} at "
            f"{wins[second]} of {len(here)} goals, dearer at {wins[first]} (paired intervals, 95 %)"
            f"{size}."
        )
    return lines


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    constants, methods = summary["settings"]["constants"], summary["settings"]["method"]
    lines = []
    if constants != "tight" and "brownian_reduced" in methods and len(methods) > 1:
        lines.append(
            "Note: ReducedAboveThreshold has all of alpha for its noise and Proposition C.1 of "
            "Whitehouse 2022, the other tests what Ligett 2017 gives them. With --constants tight "
            "the methods have more nearly the same means."
        )
    if constants != "code":
        return lines
    return [
        *lines,
        "Warning: with the constants of the published code epsilon is what that program states, "
        "not a guarantee: its logistic sensitivity is half of the excess risk's, and its ridge "
        "risk is not the one whose minimiser it compares with.",
    ]
