"""The report of `ligett2017`: accuracy, costs, and which method is cheapest."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from nrjax._base.outcome import Status
from nrjax.papers import _claims as claims
from nrjax.papers._claims import Cases, group_by
from nrjax.statistics.intervals import binomial_interval
from nrjax.study import precision
from nrjax.study.formats import humanise, json_safe, upper, within
from nrjax.study.report import Report
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results

_REFERENCE = "noise_reduction"
"""The method to compare the others with. If it was not run, the first method is used."""

_SHORT = {
    "noise_reduction": "NR",
    "doubling": "doubling",
    "theory": "theory",
    "brownian_above_threshold": "BM, AT",
    "brownian_reduced": "BM, RAT",
}
"""Short names of the methods, so that the table fits into 120 columns."""

_PAPER_ALPHAS = (0.05, 0.075)  # values of alpha at which the paper prints risk factors


class CostReporting(Reporting):
    """The report of accuracy and cost by method and alpha, with the paper's figures."""

    case_facts = ("task", "method", "constants", "alpha", "data", "trials")

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the function that draws each figure, by name."""
        from nrjax.papers.ligett2017.figures import figures  # matplotlib is slow to import

        return figures(results)

    def measure(self, results: Results, case: str) -> dict[str, Any]:
        """Return a case's accuracy, norm of the hypothesis and parts of epsilon.

        Returns:
            Entries of the summary. Statistics over the trials that stopped are null if none did:
            the mean epsilon of the test and of the hypothesis, the hypothesis's mean norm, and its
            excess risk (mean, 95 % quantile, maximum). `missed` is the fraction of all trials that
            failed or stopped at an excess risk above alpha, with its exact 95 % interval. A trial
            that exhausts its grid returns the optimum, so it is not among the missed.
        """
        statuses, excess = (
            results.statuses(case),
            results.distribution_of(case, "stopped_excess_risk"),
        )
        assert statuses is not None
        trials = sum(statuses.values())
        failed = trials - statuses.get(Status.STOPPED, 0) - statuses.get(Status.EXHAUSTED, 0)
        missed = int(results.distribution_of(case, "shortfall").count_above(0)) + failed

        def mean(name: str) -> dict[str, float | None]:
            values = results.distribution(case, f"stopped_{name}")
            return {"mean": None if values is None else json_safe(values.mean)}

        return {
            "test_epsilon": mean("test_epsilon"),
            "hypothesis_epsilon": mean("mechanism_epsilon"),
            "excess_risk": {
                "mean": json_safe(excess.mean),
                "q95": json_safe(excess.quantile(0.95)),
                "max": json_safe(excess.quantile(1.0)),
            },
            "norm": mean("norm"),
            "missed": {
                "share": missed / trials,
                "interval": list(binomial_interval(missed, trials)),
            },
        }

    def findings(self, results: Results) -> dict[str, Any]:
        """Compare the methods' median stopping epsilons at each alpha, with 95 % intervals.

        Returns:
            `comparisons`, a list of pairs of methods: `values` are the two medians, `difference` is
            the second minus the first (null if infinite), and `interval` is its paired interval.
            `cheaper` is the method with the lower median, null if the interval is null or contains
            0, as it does for fewer than six trials. Methods without stored trials are not compared.
        """
        comparisons = []
        for (task, alpha), cases in group_by(results.cases.values(), "task", "alpha").items():
            names = {case.attributes["method"]: case.name for case in cases}
            first = _REFERENCE if _REFERENCE in names else next(iter(names))
            for second in (method for method in names if method != first):
                pair = claims.paired_difference(results, names[second], names[first])
                if pair is None:
                    continue
                decided = pair.first_is_lower is not None
                comparisons.append(
                    {
                        "task": task,
                        "alpha": alpha,
                        "methods": [first, second],
                        **pair.to_json(),
                        "values": pair.values[::-1],
                        "cheaper": (second if pair.first_is_lower else first) if decided else None,
                    }
                )
        return {"comparisons": comparisons}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return a table of stopping epsilons by alpha and method: median, q90 and q95."""
        cases = summary["cases"]
        rows = []
        for (task, alpha), methods in group_by(cases, "task", "alpha").items():
            name = f"{task} {alpha:g}"
            rows.append((name, *map(_median, methods), _cheapest(methods)))
            rows.append((f"{name}: q90, q95", *map(_tail, methods), ""))
        methods = [_SHORT[method] for (method,) in group_by(cases, "method")]  # for every alpha
        remarks = [
            "NR: noise reduction (Laplace, AboveThreshold); BM: Brownian mechanism; AT, RAT: "
            "AboveThreshold, ReducedAboveThreshold.",
            "The stopping epsilon is the ex-post epsilon paid in total, infinite for a trial that "
            "did not stop. Per cent: distance from the median to the farther end of its exact 95 % "
            "interval. q90 and q95 are exceeded in at most 10 and 5 % of all trials.",
            *precision.remarks(results),
            *_guarantees(cases),
            *claims.data_sentences(cases, _perturbation),
            *_risk_factors(cases),
            *claims.data_remarks(cases),
            *_accuracy(cases),
            *_verdicts(summary["comparisons"]),
            *_notes(summary["settings"]),
        ]
        title = f"{summary['study']}: stopping epsilon, over all trials"
        return Report(title, ("task, alpha", *methods, "cheapest"), tuple(rows), tuple(remarks))


def _epsilon(case: Mapping[str, Any], name: str) -> float | None:
    """Return a statistic of a case's stopping epsilon, or None if it is infinite."""
    return None if case["stopping_epsilon"] is None else case["stopping_epsilon"][name]


def _median(case: Mapping[str, Any]) -> str:
    median = _epsilon(case, "q50")
    return "inf" if median is None else within(median, case["stopping_epsilon_interval"]["q50"])


def _tail(case: Mapping[str, Any]) -> str:
    return f"{upper(_epsilon(case, 'q90'))}, {upper(_epsilon(case, 'q95'))}"


def _cheapest(cases: Cases) -> str:
    medians = {case["method"]: _epsilon(case, "q50") for case in cases}
    finite = {method: median for method, median in medians.items() if median is not None}
    return _SHORT[min(finite, key=finite.__getitem__)] if finite else "none"


def _perturbation(case: Mapping[str, Any]) -> str:
    kind = str(case["perturbation"]).capitalize()
    return f"{kind} perturbation, with a penalty of lambda {case['regularisation']:g}."


def _guarantees(cases: Cases) -> list[str]:
    """Return sentences on the methods that guarantee less than noise reduction does."""
    lines = [
        f"BM's epsilon is probabilistic: it is exceeded with probability at most delta = {delta:g}."
        " The other methods' epsilon is pure: it is never exceeded."
        for delta in {case["delta"] for case in cases} - {0.0}
    ]
    if any(case.get("test_noise") == "exponential" for case in cases):
        lines.append("AT and RAT have exponential noise, with the margin that its proof needs.")
    if len({case["method"] == "theory" for case in cases}) == 2:
        lines.append("The theory bounds the mean excess risk; the other methods bound each run's.")
    return lines


def _risk_factors(cases: Cases) -> list[str]:
    """Return exp(mean stopping epsilon), in sentences, for the alphas of the paper."""
    return [
        f"Risk factor exp(mean stopping epsilon), {task}, alpha {alpha:g}: "
        + ", ".join(f"{humanise(case['method'])} {_risk_factor(case)}" for case in group)
        + "."
        for (task, alpha), group in group_by(cases, "task", "alpha").items()
        if alpha in _PAPER_ALPHAS
    ]


def _risk_factor(case: Mapping[str, Any]) -> str:
    mean = _epsilon(case, "mean")
    return "inf" if mean is None or mean > 700 else f"{math.exp(mean):.4g}"


def _accuracy(cases: Cases) -> list[str]:
    """Return sentences on excess risks above alpha, and on trials that did not stop."""
    lines = []
    bounded = [case for case in cases if case["method"] != "theory"]
    if bounded:
        gamma, largest = bounded[0]["gamma"], max(case["missed"]["share"] for case in bounded)
        lines.append(
            f"The excess risk was above alpha in at most {largest:.2%} of a case's trials; "
            f"{100 * gamma:g}% are allowed."
        )
        lines += [
            f"Warning: {case['task']} {humanise(case['method'])} at alpha {case['alpha']:g} missed "
            f"its target in {case['missed']['share']:.1%} of the trials."
            for case in bounded
            if case["missed"]["interval"][0] > gamma
        ]
    partial = [case for case in cases if case["stopped"] < 1]
    for (task, method), group in group_by(partial, "task", "method").items():
        worst = min(group, key=lambda case: case["stopped"])
        lines.append(
            f"{task} {humanise(method)}: not all trials stopped at {len(group)} of the values of "
            f"alpha; the fewest were {worst['stopped']:.1%} at alpha {worst['alpha']:g}."
        )
    return lines


def _verdicts(comparisons: Cases) -> list[str]:
    """Return sentences on how many alphas each of two methods is cheaper at, by task."""
    pairs: dict[tuple[Any, ...], list[Any]] = {}
    for pair in comparisons:
        pairs.setdefault((pair["task"], *pair["methods"]), []).append(pair)
    lines = []
    for (task, first, second), group in pairs.items():
        wins = {name: sum(pair["cheaper"] == name for pair in group) for name in (first, second)}
        finite = (pair["values"] for pair in group if None not in pair["values"])
        ratios = [second / first for first, second in finite]
        size = ""
        if ratios:
            largest = f" to {max(ratios):.3g}" if len(ratios) > 1 else ""
            size = f"; its median is {min(ratios):.3g}{largest} times the other's"
        lines.append(
            f"{task}: {humanise(second)} is cheaper than {humanise(first)} at {wins[second]} of "
            f"{len(group)} values of alpha, more expensive at {wins[first]} (paired 95 % "
            f"intervals){size}."
        )
    return lines


def _notes(settings: Mapping[str, Any]) -> list[str]:
    methods = settings["method"]
    if settings["constants"] == "tight" or "brownian_reduced" not in methods or len(methods) == 1:
        return []
    return [
        "Note: ReducedAboveThreshold leaves all of alpha for its noise, by Proposition C.1 of "
        "Whitehouse 2022. The other tests leave what Ligett 2017 gives them. With --constants "
        "tight the margins are more nearly alike."
    ]
