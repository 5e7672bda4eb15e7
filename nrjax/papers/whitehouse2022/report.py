"""The report of `whitehouse2022`: stopping epsilons, and the paper's claims (section 6)."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from nrjax.papers import OWN_TABLE
from nrjax.papers import _claims as claims
from nrjax.papers._claims import Cases, group_by
from nrjax.study.compare import accuracy_note, met
from nrjax.study.formats import humanise, number
from nrjax.study.report import Report, standard, warnings
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results

_PAPER_DATA = ("kdd99", "twitter")  # the paper's claims are about these data

_REDUCED, _CLASSICAL = "reduced_above_threshold", "above_threshold"
_CLOSER = "AboveThreshold's quartiles closer together than ReducedAboveThreshold's"
_CLAIMS = (
    ("Brownian median below Laplace's", "brownian", "laplace", False),
    ("Brownian quartiles closer together than Laplace's", "brownian", "laplace", True),
    ("ReducedAboveThreshold's median below AboveThreshold's", _REDUCED, _CLASSICAL, False),
    (_CLOSER, _CLASSICAL, _REDUCED, True),
)
"""The paper's claims, each on two mechanisms or two tests.

A claim has a text, the name with the lower number, the name with the higher number, and whether the
number is the interquartile range of the stopping epsilon instead of its median."""


class ClaimReporting(Reporting):
    """The report of stopping epsilons by mechanism and test, with the paper's claims."""

    case_facts = ("task", "mechanism", "test", "data", "trials", "optimum", "target")

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the function that draws each figure, by name."""
        from nrjax.papers.whitehouse2022.figures import figures  # matplotlib is slow to import

        return figures(results)

    def findings(self, results: Results) -> dict[str, Any]:
        """Check the paper's claims on this run's data, with paired 95 % intervals.

        Returns:
            `findings`, a list of claims that the first of two cases has the lower of two `values`.
            `difference` is the first value minus the second, null if infinite. `holds` is null if
            the `interval` of the difference contains 0 or does not exist. `met` is the fraction of
            each case's trials that reached the target. Cases without stored trials are not
            compared.
        """
        findings = []
        for (task, data), group in group_by(results.cases.values(), "task", "data").items():
            for label, other in (("mechanism", "test"), ("test", "mechanism")):
                for alike in group_by(group, other).values():
                    names = {case.attributes[label]: case.name for case in alike}
                    for claim, lower, higher, iqr in _CLAIMS:
                        if not {lower, higher} <= set(names):
                            continue
                        pair = [names[lower], names[higher]]
                        difference = claims.paired_difference(results, *pair, iqr=iqr)
                        if difference is not None:
                            facts = {"task": task, "data": data, "finding": claim, "cases": pair}
                            numbers = {**difference.to_json(), "holds": difference.first_is_lower}
                            reached = [met(results, name) for name in pair]
                            findings.append({**facts, **numbers, "met": reached})
        return {"findings": findings}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return the standard report with remarks on the data, the tests and the claims."""
        table, cases = standard(results, summary), summary["cases"]
        remarks = (
            *claims.data_sentences(cases, _target),
            *claims.data_remarks(cases),
            *private_tests(cases),
            *table.remarks,
            "Every percentage of a case in the figures is right to "
            f"{100 * cases[0]['band']:.2g} points with 95 % confidence, all of them at once. "
            "More runs make this smaller.",
            *_advice(results, summary),
            *exponential_tests(cases),
            *zero_models(cases),
            # A regression on your own table claims nothing.
            *(map(sentence, summary["findings"]) if summary["study"] != OWN_TABLE else ()),
        )
        uncovered = (*targets_from_data(summary), *public_optimum(summary["settings"]))
        return table._replace(remarks=remarks, uncovered=(*table.uncovered, *uncovered))


def _target(case: Mapping[str, Any]) -> str:
    more = case["target"] / case["optimum"] - 1 if case["optimum"] > 0 else 0.0
    by = f", {100 * more:.3g} % more" if more > 0 else ""
    option = "--target-fraction" if "target_fraction" in case else "--target-loss"
    return (
        f"A model is good enough if its loss is at most {case['target']:.4g}{by}. {option} sets "
        "this target."
    )


def _advice(results: Results, summary: Mapping[str, Any]) -> list[str]:
    """Return advice on the options to change if the standard report has warnings."""
    if not warnings(summary):
        return []
    tuned = "tight_at" in results.about["settings"]
    start = "--tight-at and --lowest-epsilon" if tuned else "--lowest-epsilon"
    return [
        "--target-loss sets the target, --highest-epsilon the end of the grid, and "
        f"{start} its start."
    ]


def sentence(finding: Mapping[str, Any]) -> str:
    """Return a sentence on whether a claim of the paper holds, with its numbers."""
    verdict = {True: "Here too", False: "Not here", None: "These runs do not decide it"}
    verdict = verdict[finding["holds"]]
    if finding["holds"] is False and finding["data"] in _PAPER_DATA:
        verdict = "NOT HERE, although the data are the paper's"
    low, high = (humanise(name.split("-", 1)[1].replace("-", ", ")) for name in finding["cases"])
    values = [number(value) for value in finding["values"]]
    interval, by = finding["interval"], ""
    if interval is not None and finding["difference"] is not None and None not in interval:
        ends = f"{interval[0]:.3g} to {interval[1]:.3g}"
        by = f"; difference {finding['difference']:.3g}, 95 % interval {ends}"
    shares = tuple(finding["met"])
    note = f" But {accuracy_note(shares)}." if shares[0] != shares[1] else ""
    return (
        f"The paper claims: {finding['finding']} ({finding['task']}). {verdict}, on "
        f"{finding['data']}: {values[0]} ({low}), {values[1]} ({high}){by}.{note}"
    )


def private_tests(cases: Cases) -> list[str]:
    """Return a remark on private tests, if there is one."""
    if all(case["test"] == "public" for case in cases):
        return []
    return [
        "A private test can be wrong: its noise can make it accept a model that is not good enough."
    ]


def exponential_tests(cases: Cases) -> list[str]:
    """Return a remark on tests with exponential noise, which the paper does not use."""
    if not any(case.get("test_noise") == "exponential" for case in cases):
        return []
    return [
        "The private tests have exponential noise in place of Laplace noise. Its mean is not 0: "
        "with the target as threshold, it accepts sooner, and worse models. "
        "`benchmarks/one_sided.py` compares both at one accuracy."
    ]


def public_optimum(settings: Mapping[str, Any]) -> list[str]:
    """Return a remark on --confidence, whose thresholds are made from a private number."""
    if settings.get("confidence") is None or set(settings["test"]) == {"public"}:
        return []
    return [
        "The thresholds of the private tests depend on the loss of the non-private optimum, which "
        "epsilon does not cover. For a release, choose the margin without looking at the data: "
        "until(..., margin=) in Python."
    ]


def targets_from_data(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each default target that is made from a private optimum."""
    if summary["settings"].get("target_loss"):
        return []
    case = summary["cases"][0]
    if "target_fraction" in case:
        return [
            f"The target loss {case['target']:.4g} was computed from your rows, which epsilon does "
            f"not cover. It is {case['optimum']:.4g} + {100 * case['target_fraction']:g} % of "
            f"({case['constant_loss']:.4g} - {case['optimum']:.4g}), from the losses of the "
            "penalised optimum and of the best constant model, both with the penalty. Give one "
            "that you know beforehand by --target-loss."
        ]
    return [
        f"The target loss of {task} on {data} is {case['target'] / case['optimum']:.3g} times the "
        "non-private optimum. It was computed from the rows, and epsilon does not pay for that. "
        "Give one that you know beforehand by --target-loss."
        for (task, data), (case, *_) in group_by(summary["cases"], "task", "data").items()
        if data not in _PAPER_DATA
    ]


def zero_models(cases: Cases) -> list[str]:
    """Return warnings about target losses that the zero model meets."""
    return [
        f"Warning: the target loss on {data} is met by the zero model, whose loss is log 2."
        for (task, data), (case, *_) in group_by(cases, "task", "data").items()
        # A regression on your own table has warnings of its own.
        if task == "logistic" and case["target"] >= math.log(2) and "doubts" not in case
    ]
