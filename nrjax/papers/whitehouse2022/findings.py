"""What the paper found (section 6), checked on a finished run; and the run's report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nrjax.study import precision
from nrjax.study.compare import accuracy_note, interval_of, met
from nrjax.study.report import Report, epsilons, number, share
from nrjax.study.results import Reporting, Results
from nrjax.study.summary import strict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHARE_AT_FIRST_STEP = 0.05
"""From this share of trials on, the grid's first level is worth a warning."""


_PAPER_DATA = ("kdd99", "twitter")
"""On other data the paper says nothing that a run could be unlike."""


class _Claim(NamedTuple):
    """That a number of one case is below that of another."""

    finding: str
    lower: tuple[str, str]
    """Mechanism and test."""
    higher: tuple[str, str]
    spread: bool
    """Whether the number is the distance between the quartiles; else the median."""


def _claims(mechanisms: list[str], tests: list[str]) -> list[_Claim]:
    claims = []
    if {"brownian", "laplace"} <= set(mechanisms):
        for test in tests:
            pair = ("brownian", test), ("laplace", test)
            claims += [
                _Claim("Brownian median below Laplace's", *pair, False),
                _Claim("Brownian quartiles closer together than Laplace's", *pair, True),
            ]
    if {"above_threshold", "reduced_above_threshold"} <= set(tests):
        for mechanism in mechanisms:
            reduced, classical = (
                (mechanism, test) for test in ("reduced_above_threshold", "above_threshold")
            )
            claims += [
                _Claim(
                    "ReducedAboveThreshold's median below AboveThreshold's",
                    reduced,
                    classical,
                    False,
                ),
                _Claim(
                    "AboveThreshold's quartiles closer together than ReducedAboveThreshold's",
                    classical,
                    reduced,
                    True,
                ),
            ]
    return claims


class Findings(Reporting):
    """The paper's findings, and its figures."""

    case_facts = ("task", "mechanism", "test", "data", "trials", "optimum", "target")

    def findings(self, results: Results) -> dict[str, Any]:
        """The paper's findings on this run's data."""
        return {"findings": findings(results)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Medians and quartiles with their exact intervals, and findings of a finished run."""
        return report(results, summary)

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Figure]]:
        """The standard ones, the loss at each epsilon, and the boundaries."""
        from nrjax.papers.whitehouse2022 import figures

        return figures.figures(results)


def findings(results: Results) -> list[dict[str, Any]]:
    """The paper's findings on this run's data, with paired bootstrap intervals, 95 %.

    Each says which of two numbers is lower in the paper: `difference` is the lower minus the
    higher one here, null where infinite; `holds` is true or false where its interval has one sign,
    null where it has both, or both numbers are infinite; `met` is in which share of the trials each
    case met the target. There are none where trials were not kept, which can then not be paired.
    """
    labels = {name: case.attributes for name, case in results.cases.items()}
    found = []
    for task in dict.fromkeys(one["task"] for one in labels.values()):
        here = [one for one in labels.values() if one["task"] == task]
        mechanisms = list(dict.fromkeys(one["mechanism"] for one in here))
        tests = list(dict.fromkeys(one["test"] for one in here))
        for claim in _claims(mechanisms, tests):
            names = [f"{task}-{'-'.join(side)}" for side in (claim.lower, claim.higher)]
            if not set(names) <= set(results) or not all(map(results.keeps_trials, names)):
                continue
            laws = [results.distribution(name) for name in names]
            values = []
            for law in laws:
                assert law is not None
                first, median, third = map(law.quantile, (25, 50, 75))
                with np.errstate(invalid="ignore"):  # infinite quartiles have no distance
                    values.append(float(np.subtract(third, first)) if claim.spread else median)
            with np.errstate(invalid="ignore"):
                difference = float(np.subtract(*values))
            ends = interval_of(results, *names, spread=claim.spread)
            found.append(
                {
                    "task": task,
                    "data": here[0]["data"],
                    "finding": claim.finding,
                    "cases": names,
                    "values": strict(values),
                    "difference": strict(difference),
                    "interval": strict(ends),
                    "holds": _holds(ends),
                    "met": [met(results, name) for name in names],
                }
            )
    return found


def _holds(ends: tuple[float, float] | None) -> bool | None:
    if ends is None or ends[0] <= 0 <= ends[1]:
        return None
    return ends[1] < 0


def _sentence(finding: dict[str, Any]) -> str:
    verdict = {True: "yes", False: "no", None: "undecided"}[finding["holds"]]
    if finding["holds"] is False and finding["data"] in _PAPER_DATA:
        verdict = "NO, unlike the paper"
    low, high = (
        name.split("-", 1)[1].replace("-", ", ").replace("_", " ") for name in finding["cases"]
    )
    values = [number(value) for value in finding["values"]]
    found = finding["interval"]
    by = ""
    if found is not None and finding["difference"] is not None and None not in found:
        ends = " to ".join(_short(end) for end in found)
        by = f"; difference {_short(finding['difference'])}, 95 % interval {ends}"
    shares = tuple(finding["met"])
    note = f" But {accuracy_note(shares)}." if shares[0] != shares[1] else ""
    return (
        f"{finding['task']} on {finding['data']}, {finding['finding']}: {verdict}. "
        f"{values[0]} ({low}), {values[1]} ({high}){by}.{note}"
    )


def _short(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"


def report(results: Results, summary: Mapping[str, Any]) -> Report:
    """Medians and quartiles with their exact intervals, and findings of a finished run."""
    cases, rows = summary["cases"], []
    for case in cases:
        rows.append(
            (
                f"{case['task']} {case['mechanism']} {case['test']}".replace("_", " "),
                share(case["stopped"]),
                share(case["met"]),
                *epsilons(case),
                f"{case['step']['q50']:g}",
                f"{case['seconds']['run']:.2f}",
            )
        )
    headings = ("case", "stopped", "met", "median", "(95 %)", "quartiles", "step", "seconds")
    remarks = [
        *_sources(summary),
        "Beside the median its exact 95 % interval. The distribution function of a case is, all "
        f"of it at once, within {100 * cases[0]['band']:.2g} percentage points of what was found "
        "(95 %, DKW).",
        *precision.remarks(results),
        *_misses(summary),
        *_warnings(summary),
        *map(_sentence, summary["findings"]),
    ]
    title = f"{summary['study']}: stopping epsilon (total, ex-post), over all trials"
    return Report(title, headings, tuple(rows), tuple(remarks))


def _misses(summary: Mapping[str, Any]) -> list[str]:
    """Private tests stop at models that miss the target: how often, and by how much."""
    lines = []
    for task, data in _problems(summary):
        here = [case for case in summary["cases"] if (case["task"], case["data"]) == (task, data)]
        missing = [case for case in here if case["shortfall"]["share"]]
        if not missing:
            continue
        parts = [
            f"{case['mechanism']} {case['test']} in {share(case['shortfall']['share'])} "
            f"(by {number(case['shortfall']['q50'])} in the median)".replace("_", " ")
            for case in missing
        ]
        lines.append(
            f"{task} on {data}: of the trials that stopped, the model's loss was above the target "
            f"{here[0]['target']:.4g} with {', '.join(parts)}. The noise of a private test can say "
            "yes too early; epsilons of tests that met the target in different shares of the "
            "trials paid for different accuracies."
        )
    return lines


def _problems(summary: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(case["task"], case["data"]): case for case in summary["cases"]}


def _sources(summary: Mapping[str, Any]) -> list[str]:
    """What was learnt from which data."""
    return [
        f"{task} on {data}: {case['rows']:,} rows, {case['dimension']} features, target loss "
        f"{case['target']:.4g}, optimum {case['optimum']:.6g} (gradient norm "
        f"{case['gradient_norm']:.1g})"
        for (task, data), case in _problems(summary).items()
    ]


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    """What should make one doubt the table."""
    lines = []
    for case in summary["cases"]:
        share = case["stopped_at_first_step"]
        name = f"{case['task']} {case['mechanism']} {case['test']}"
        if case["epsilon"]["q50"] is None:
            lines.append(
                f"Warning: {100 * case['stopped']:.3g}% of the {name} trials stopped; the others "
                "count as infinite, and so does the median. Ask for a higher --target-loss, or end "
                "higher (--highest-epsilon)."
            )
        if share >= _SHARE_AT_FIRST_STEP:
            lines.append(
                f"Warning: {share:.0%} of the {name} trials stopped at the first level of the "
                "grid; their epsilon says where the grid begins. Ask for a lower --target-loss, or "
                "begin lower (--tight-at, --lowest-epsilon)."
            )
    for (task, data), case in _problems(summary).items():
        if task == "logistic" and case["target"] >= math.log(2):
            lines.append(
                f"Warning: the target loss on {data} is met by the zero model, whose loss is log 2."
            )
    return lines
