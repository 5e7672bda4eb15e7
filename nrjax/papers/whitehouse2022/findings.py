"""What the paper found (section 6), checked on a finished run; and the run's report."""

import math
from collections.abc import Mapping
from typing import Any

from nrjax.papers._shared import PaperReporting, grouped, paired, plain, remarks_on_data
from nrjax.study import precision
from nrjax.study.compare import accuracy_note, met
from nrjax.study.report import AT_FIRST_STEP, EPSILONS, Report, notions, number, share, standard
from nrjax.study.results import Results

_PAPER_DATA = ("kdd99", "twitter")
"""On other data the paper says nothing that a run could be unlike."""

_REDUCED, _CLASSICAL = "reduced_above_threshold", "above_threshold"
_CLOSER = "AboveThreshold's quartiles closer together than ReducedAboveThreshold's"
_CLAIMS = (
    ("Brownian median below Laplace's", "brownian", "laplace", False),
    ("Brownian quartiles closer together than Laplace's", "brownian", "laplace", True),
    ("ReducedAboveThreshold's median below AboveThreshold's", _REDUCED, _CLASSICAL, False),
    (_CLOSER, _CLASSICAL, _REDUCED, True),
)
"""That a number of one mechanism or test is below that of another, all else alike; and whether it
is the quartiles' distance or the median."""


class Findings(PaperReporting):
    """The paper's findings, and its figures."""

    case_facts = ("task", "mechanism", "test", "data", "trials", "optimum", "target")

    def findings(self, results: Results) -> dict[str, Any]:
        """The paper's findings on this run's data, with paired bootstrap intervals, 95 %.

        Each says which of two numbers is lower in the paper: `difference` is the lower minus the
        higher one here, null where infinite; `holds` is true or false where its interval has one
        sign, null where it has both, or both numbers are infinite; `met` is in which share of the
        trials each case met the target. There are none where trials were not kept, which can then
        not be paired.
        """
        found = []
        for (task, data), here in grouped(results.cases.values(), "task", "data").items():
            for label, other in (("mechanism", "test"), ("test", "mechanism")):
                for group in grouped(here, other).values():
                    cases = {case.attributes[label]: case.name for case in group}
                    for finding, lower, higher, spread in _CLAIMS:
                        if not {lower, higher} <= set(cases):
                            continue
                        names = [cases[lower], cases[higher]]
                        pair = paired(results, *names, spread=spread)
                        if pair is not None:
                            one = {"task": task, "data": data, "finding": finding, "cases": names}
                            shares = [met(results, name) for name in names]
                            found.append({**one, **pair[0], "holds": pair[1], "met": shares})
        return {"findings": found}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Medians and quartiles with their exact intervals, and findings of a finished run."""
        cases, usual = summary["cases"], standard(results, summary).rows
        rows = [(_name(case, "task"), *row[1:]) for case, row in zip(cases, usual, strict=True)]
        headings = ("case", "stopped", "met", *EPSILONS, "step")
        sources = [
            f"{task} on {data}: {case['rows']:,} rows, {case['dimension']} features, target loss "
            f"{case['target']:.4g}, optimum {case['optimum']:.6g} (gradient norm "
            f"{case['gradient_norm']:.1g}){_within(case)}"
            for (task, data), (case, *_) in grouped(cases, "task", "data").items()
        ]
        remarks = [
            *sources,
            *remarks_on_data(cases),
            "Beside the median its exact 95 % interval; q90 and q95 are exceeded in at most 10 and "
            "5 % of all trials. The distribution function of a case is, "
            f"all of it at once, within {100 * cases[0]['band']:.2g} percentage points of what was "
            "found (95 %, DKW).",
            *precision.remarks(results),
            *of_tests(summary),
            *misses(summary),
            *notions(summary),
            *warnings(summary),
            *map(sentence, summary["findings"]),
        ]
        title = f"{summary['study']}: stopping epsilon (total, ex-post), over all trials"
        return Report(title, headings, tuple(rows), tuple(remarks))


def _name(case: Mapping[str, Any], *labels: str) -> str:
    return plain(" ".join(case[label] for label in (*labels, "mechanism", "test")))


def _within(case: Mapping[str, Any]) -> str:
    """How well the losses at each epsilon are known."""
    known = case.get("curve_within")
    return "" if known is None else f"; losses at each epsilon within {known:.2g}"


def sentence(finding: dict[str, Any]) -> str:
    """Whether a claim of the paper holds, with its numbers."""
    verdict = {True: "yes", False: "no", None: "undecided"}[finding["holds"]]
    if finding["holds"] is False and finding["data"] in _PAPER_DATA:
        verdict = "NO, unlike the paper"
    low, high = (plain(name.split("-", 1)[1].replace("-", ", ")) for name in finding["cases"])
    values = [number(value) for value in finding["values"]]
    found, by = finding["interval"], ""
    if found is not None and finding["difference"] is not None and None not in found:
        ends = f"{found[0]:.3g} to {found[1]:.3g}"
        by = f"; difference {finding['difference']:.3g}, 95 % interval {ends}"
    shares = tuple(finding["met"])
    note = f" But {accuracy_note(shares)}." if shares[0] != shares[1] else ""
    return (
        f"{finding['task']} on {finding['data']}, {finding['finding']}: {verdict}. "
        f"{values[0]} ({low}), {values[1]} ({high}){by}.{note}"
    )


def of_tests(summary: Mapping[str, Any]) -> list[str]:
    """What to know of tests whose noise is not the paper's."""
    if not any(case.get("test_noise") == "exponential" for case in summary["cases"]):
        return []
    return [
        "The private tests have exponential noise, not Laplace noise. It is not centred: with the "
        "target as threshold it says yes sooner, and to worse models. `benchmarks/one_sided.py` "
        "compares the two at one promise of accuracy."
    ]


def misses(summary: Mapping[str, Any]) -> list[str]:
    """Private tests stop at models that miss the target: how often, and by how much."""
    lines = []
    missing = [case for case in summary["cases"] if case["shortfall"]["share"]]
    for (task, data), here in grouped(missing, "task", "data").items():
        parts = [
            f"{_name(case)} in {share(case['shortfall']['share'])} "
            f"(by {number(case['shortfall']['q50'])} in the median)"
            for case in here
        ]
        lines.append(
            f"{task} on {data}: of the trials that stopped, the model's loss was above the target "
            f"{here[0]['target']:.4g} with {', '.join(parts)}. The noise of a private test can say "
            "yes too early; epsilons of tests that met the target in different shares of the "
            "trials paid for different accuracies."
        )
    return lines


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """What should make one doubt the table."""
    lines = []
    for case in summary["cases"]:
        name, first = f"{case['task']} {case['mechanism']} {case['test']}", "stopped_at_first_step"
        if case["epsilon"]["q50"] is None:
            lines.append(
                f"Warning: {100 * case['stopped']:.3g}% of the {name} trials stopped; the others "
                "count as infinite, and so does the median. Ask for a higher --target-loss, or end "
                "higher (--highest-epsilon)."
            )
        if case[first] >= AT_FIRST_STEP:
            lines.append(
                f"Warning: {case[first]:.0%} of the {name} trials stopped at the first level of "
                "the grid; their epsilon says where the grid begins. Ask for a lower "
                "--target-loss, or begin lower (--tight-at, --lowest-epsilon)."
            )
    for (task, data), (case, *_) in grouped(summary["cases"], "task", "data").items():
        if task == "logistic" and case["target"] >= math.log(2):
            lines.append(
                f"Warning: the target loss on {data} is met by the zero model, whose loss is log 2."
            )
    return lines
