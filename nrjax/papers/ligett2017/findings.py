"""What a finished run of `ligett2017` shows: accuracy, costs, and which method is cheapest."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nrjax.papers._shared import PaperReporting, grouped, paired, plain, remarks_on_data
from nrjax.study import precision
from nrjax.study.report import Report, within
from nrjax.study.results import Results
from nrjax.study.statistics import binomial_interval
from nrjax.study.summary import strict
from nrjax.types import Status

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

Cases = Sequence[dict[str, Any]]


class Findings(PaperReporting):
    """Accuracy, costs, and which method is cheapest."""

    case_facts = ("task", "method", "constants", "alpha", "data", "trials")

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """What the summary of a case says besides its epsilons.

        Means over the trials that stopped, null without any: epsilon of the test and of the
        hypothesis, the hypothesis' norm and its excess risk, with the 95 % quantile and the
        largest. `missed` is the share of all trials that stopped at an excess risk above alpha or
        failed, with its exact interval, 95 %; a trial that exhausts its grid gives the optimum, and
        misses nothing.
        """
        statuses, excess = results.statuses(case), results.law(case, "stopped_excess_risk")
        assert statuses is not None
        fine = statuses.get(Status.STOPPED, 0) + statuses.get(Status.EXHAUSTED, 0)
        trials = sum(statuses.values())
        missed = int(results.law(case, "shortfall").count_above(0)) + trials - fine
        mean = {}
        for name in ("test_epsilon", "mechanism_epsilon", "norm"):
            law = results.distribution(case, f"stopped_{name}")
            mean[name] = {"mean": None if law is None else strict(law.mean)}
        return {
            "test_epsilon": mean["test_epsilon"],
            "hypothesis_epsilon": mean["mechanism_epsilon"],
            "excess_risk": {
                "mean": strict(excess.mean),
                "q95": strict(excess.quantile(0.95)),
                "max": strict(excess.quantile(1.0)),
            },
            "norm": mean["norm"],
            "missed": {
                "share": missed / trials,
                "interval": list(binomial_interval(missed, trials)),
            },
        }

    def findings(self, results: Results) -> dict[str, Any]:
        """Median epsilons of the methods at one goal, with paired bootstrap intervals, 95 %.

        Cases share their random numbers, so trials are resampled together. `difference` is the
        second method's median minus the first's, null where infinite; `cheaper` is the method whose
        median is lower, null where the interval has both signs or there are fewer than six trials.
        Cases whose trials were not kept are not compared, as they cannot be paired.
        """
        found = []
        for (task, alpha), here in grouped(results.cases.values(), "task", "alpha").items():
            names = {case.attributes["method"]: case.name for case in here}
            first = _REFERENCE if _REFERENCE in names else next(iter(names))
            for second in names:
                pair = None if second == first else paired(results, names[second], names[first])
                if pair is None:
                    continue
                facts, lower = pair
                decided = lower is not None and results.trials >= _FEWEST_TRIALS
                found.append(
                    {
                        "task": task,
                        "alpha": alpha,
                        "methods": [first, second],
                        **facts,
                        "values": facts["values"][::-1],
                        "cheaper": (second if lower else first) if decided else None,
                    }
                )
        return {"comparisons": found}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Median epsilon by goal and method, and what to make of it."""
        cases = summary["cases"]
        # Every goal has the same methods, in one order.
        methods = [_SHORT[method] for (method,) in grouped(cases, "method")]
        rows = tuple(
            (f"{task} {alpha:g}", *map(_median, here), _cheapest(here))
            for (task, alpha), here in grouped(cases, "task", "alpha").items()
        )
        headings = ("task, alpha", *methods, "cheapest")
        remarks = [
            "NR: noise reduction (Laplace, AboveThreshold); BM: Brownian mechanism; AT, RAT: "
            "AboveThreshold, ReducedAboveThreshold.",
            "Per cent: how far the farther end of the median's exact 95 % interval is away.",
            *precision.remarks(results),
            *_promises(cases),
            *_sources(cases),
            *remarks_on_data(cases),
            *_accuracy(cases),
            *_verdicts(summary["comparisons"]),
            *_warnings(summary["settings"]),
        ]
        title = f"{summary['study']}: median total ex-post epsilon, over all trials"
        return Report(title, headings, rows, tuple(remarks))


def _epsilon(case: Mapping[str, Any], name: str) -> float | None:
    """None where it is infinite; without any, nothing was released, hence nothing reached."""
    return None if case["epsilon"] is None else case["epsilon"][name]


def _median(case: Mapping[str, Any]) -> str:
    median = _epsilon(case, "q50")
    return "inf" if median is None else within(median, case["epsilon_interval"]["q50"])


def _cheapest(cases: Cases) -> str:
    medians = {case["method"]: _epsilon(case, "q50") for case in cases}
    finite = {method: median for method, median in medians.items() if median is not None}
    return _SHORT[min(finite, key=finite.__getitem__)] if finite else "none"


def _promises(cases: Cases) -> list[str]:
    """Where methods promise less than noise reduction does, which is no reason to be cheaper."""
    lines = [
        f"BM's epsilon is probabilistic, exceeded with probability at most delta = {delta:g}; the "
        "others' is pure, never exceeded."
        for delta in {case["delta"] for case in cases} - {0.0}
    ]
    if any(case.get("test_noise") == "exponential" for case in cases):
        lines.append("AT and RAT have exponential noise, with the margin that is proved for it.")
    if len({case["method"] == "theory" for case in cases}) == 2:
        lines.append("The theory's promise is for the mean excess risk; the others' for each run.")
    return lines


def _sources(cases: Cases) -> list[str]:
    """What was learnt from which data; and exp(mean epsilon), where the paper prints it."""
    lines = [
        f"{task} on {data}: {case['rows']:,} rows, {case['dimension']} features, by "
        f"{case['perturbation']} perturbation, lambda {case['regularisation']:g}; optimum "
        f"{case['optimum']:.6g} (gradient norm {case['gradient_norm']:.1g})"
        for (task, data), (*_, case) in grouped(cases, "task", "data").items()
    ]
    for (task, alpha), here in grouped(cases, "task", "alpha").items():
        if alpha in _PAPER_ALPHAS:
            factors = [f"{plain(case['method'])} {_risk_factor(case)}" for case in here]
            risk = f"Risk factor exp(mean epsilon), {task}, alpha {alpha:g}"
            lines.append(f"{risk}: {', '.join(factors)}")
    return lines


def _risk_factor(case: Mapping[str, Any]) -> str:
    mean = _epsilon(case, "mean")
    return "inf" if mean is None or mean > 700 else f"{math.exp(mean):.4g}"


def _accuracy(cases: Cases) -> list[str]:
    """Whether the promise holds: excess risk above alpha in at most a share gamma of the trials."""
    lines = []
    promised = [case for case in cases if case["method"] != "theory"]
    if promised:
        gamma, most = promised[0]["gamma"], max(case["missed"]["share"] for case in promised)
        share = f"at most {most:.2%} of a case's trials; {100 * gamma:g}% are allowed"
        lines.append(f"Excess risk above alpha in {share}.")
        lines += [
            f"Warning: {case['task']} {plain(case['method'])} at alpha {case['alpha']:g} missed "
            f"its goal in {case['missed']['share']:.1%} of the trials."
            for case in promised
            if case["missed"]["interval"][0] > gamma
        ]
    some = [case for case in cases if case["stopped"] < 1]
    for (task, method), here in grouped(some, "task", "method").items():
        worst = min(here, key=lambda case: case["stopped"])
        lines.append(
            f"{task} {plain(method)}: not all trials stopped at {len(here)} of the goals, at worst "
            f"{worst['stopped']:.1%} at alpha {worst['alpha']:g}; the others count as infinite."
        )
    return lines


def _verdicts(found: Cases) -> list[str]:
    """Per task and pair of methods: at how many goals which is cheaper."""
    lines = []
    named = [{**one, "first": one["methods"][0], "second": one["methods"][1]} for one in found]
    for (task, first, second), here in grouped(named, "task", "first", "second").items():
        wins = {name: sum(one["cheaper"] == name for one in here) for name in (first, second)}
        ratios = [one["values"][1] / one["values"][0] for one in here if None not in one["values"]]
        size = ""
        if ratios:
            most = f" to {max(ratios):.3g}" if len(ratios) > 1 else ""
            size = f"; its median is {min(ratios):.3g}{most} times the other's"
        lines.append(
            f"{task}: {plain(second)} is cheaper than {plain(first)} at {wins[second]} of "
            f"{len(here)} goals, dearer at {wins[first]} (paired intervals, 95 %){size}."
        )
    return lines


def _warnings(settings: Mapping[str, Any]) -> list[str]:
    constants, methods = settings["constants"], settings["method"]
    lines = []
    if constants != "tight" and "brownian_reduced" in methods and len(methods) > 1:
        lines.append(
            "Note: ReducedAboveThreshold has all of alpha for its noise and Proposition C.1 of "
            "Whitehouse 2022, the other tests what Ligett 2017 gives them. With --constants tight "
            "the methods have more nearly the same means."
        )
    return lines
