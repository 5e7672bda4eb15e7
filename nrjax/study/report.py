"""Functions for the summary (`summary.json`) and the report (`report.md`) of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nrjax._base.outcome import Status
from nrjax._base.quantiles import rank_of
from nrjax._base.validation import check
from nrjax.guarantees.notions import NOTIONS, notions_comparable
from nrjax.statistics.intervals import binomial_interval
from nrjax.statistics.sample import Distribution
from nrjax.study import precision, release_error
from nrjax.study.document import Report as Report
from nrjax.study.files import SUMMARY
from nrjax.study.formats import json_safe, lowest, number, percent, span, upper
from nrjax.study.frame import Frame

_PERCENTS = (5, 25, 50, 75, 90, 95)
"""The percentages of the quantiles in the summary, q05 to q95."""

_FACTS = ("study", "nrjax", "jax", "device", "precision", "seed", "settings")
"""The metadata of the run with which the summary starts."""

AT_FIRST_STEP = 0.05
"""The least fraction of trials stopped at the first level for which a warning is printed."""

_OF_SELECTION = {"stage", "score", "epsilon"}
"""The numbers by which trials of a private selection are recognised (`Selected`)."""

EPSILONS = ("half pay at most", "95 % interval", "middle half", "9 of 10", "19 of 20")
"""The headings of the columns whose cells `epsilons` returns."""

_YES_NO = {True: "no", False: "yes", None: "-"}
"""Whether an epsilon covers the decision to stop, by whether the test is public."""

_HOW_TO_READ = (
    "Each run pays another epsilon, its stopping epsilon, which is known at its end. A run that "
    "did not stop counts as infinitely expensive. One that stopped too early counts as it paid.",
    "The interval shows how well these runs determine what half of them pay at most (exact, 95 %; "
    "a single number if both ends are the same level, which is an epsilon at which a run may "
    "stop). "
    'At most one run in ten pays more than the number under "9 of 10", and one in twenty more '
    'than that under "19 of 20".',
    "Releases: half of the runs made at most this many.",
)


def summarise(
    frame: Frame,
    case_facts: Sequence[str] = (),
    measure: Callable[[Any, str], Mapping[str, Any]] = lambda frame, case: {},
) -> dict[str, Any]:
    """Return the contents of summary.json, with None for infinite and undefined numbers.

    Keys of a case after its labels:

    * `stopped`: fraction of the trials that stopped, with the exact `stopped_interval`.
    * `status`: number of trials per status.
    * `met`: fraction of all trials that stopped and reached the goal, with the exact
      `met_interval`. Only with a goal.
    * `shortfall`: `share` is the fraction of the stopped trials whose utility is below the goal;
      `mean`, `q50`, `q95` and `max` are the utility that they lack. Only with a goal.
    * `stopping_epsilon`: mean and quantiles over all trials of the epsilon that was paid, which
      counts as infinite for a trial that did not stop. Quantiles are order statistics. Null without
      a guarantee.
    * `stopping_epsilon_interval`: 95 % interval of each number of `stopping_epsilon`.
    * `quartile_distance`: interquartile range of the stopping epsilon, with a 95 % interval.
    * `band`: half the width of the 95 % band of the stopping epsilon's distribution function.
    * `resolution`: relative width of the histogram bins of the stopping epsilon; 0 if trials were
      kept.
    * `stopped_epsilon`: the statistics of `stopping_epsilon` over the trials that stopped.
    * `step`: mean and median of the number of the last step.
    * `stopped_at_first_step`: fraction of the trials that stopped at step 0. If it is large, a
      lower first level of the schedule may be enough for a public test.
    * `privacy_loss`: mean and quantiles of the realised loss, over the trials that have a loss.
    * `seconds`: seconds of compilation (`compile`), of all runs (`run`) and of curves (`curves`).

    A case of custom trials has only its labels and `seconds`. A private selection also has the keys
    from `stopping_epsilon` to `resolution`, of the epsilon that was paid.

    Args:
        frame: trials of the cases.
        case_facts: names of the labels to put first; every case must have them.
        measure: function of the frame and the name of a case that returns further keys of the case.

    Raises:
        ValueError: a case lacks a label of `case_facts`.
    """
    facts = {name: frame.about[name] for name in _FACTS if name in frame.about}
    cases = []
    for name, case in frame.cases.items():
        labels = {**case.attributes, "trials": case.passes["outcome"].trials}
        for fact in case_facts:
            check(fact in labels, f"labels of case {name}", labels, f"a mapping with {fact!r}")
        endings = _endings(frame, name)
        seconds = frame.seconds(name)  # after the trials were read, with which they are stored
        cases.append(
            {
                **{fact: labels[fact] for fact in case_facts},
                "case": name,
                **labels,
                **endings,
                **measure(frame, name),
                **({} if seconds is None else {"seconds": seconds}),
            }
        )
    return {**facts, "cases": cases}


def _endings(frame: Frame, name: str) -> dict[str, Any]:
    """Return the summary of one case: how its trials ended, its goal, epsilon and last step."""
    statuses = frame.statuses(name)
    if statuses is None:
        if not set(frame.scalars(name)) >= _OF_SELECTION:
            return {}
        paid = frame.distribution_of(name, "epsilon")
        known = paid.trials and np.isfinite(paid.resolution)
        return {key: of(paid) for key, of in _EPSILON_STATISTICS.items()} if known else {}
    stopped, trials = statuses.get(Status.STOPPED, 0), sum(statuses.values())
    total, of_stopped, loss = (
        frame.distribution(name, quantity)
        for quantity in ("stopping_epsilon", "stopped_epsilon", "privacy_loss")
    )
    step, last = (frame.distribution_of(name, each) for each in ("step", "stopped_step"))
    return {
        "stopped": stopped / trials,
        "stopped_interval": list(binomial_interval(stopped, trials)),
        "status": {status.name: count for status, count in statuses.items()},
        **_accuracy(frame, name, stopped, trials),
        **{key: None if total is None else of(total) for key, of in _EPSILON_STATISTICS.items()},
        "stopped_epsilon": None if of_stopped is None else statistics(of_stopped),
        "step": {"mean": step.mean, "q50": step.quantile(0.5)},
        "stopped_at_first_step": (last.trials - int(last.count_above(0))) / trials,
        "privacy_loss": statistics(loss) if loss is not None and loss.trials else None,
    }


def _accuracy(frame: Frame, name: str, stopped: int, trials: int) -> dict[str, Any]:
    """Return the keys of a case about its goal, or {} without a goal."""
    if frame.goal(name) is None:
        return {}
    shortfall = frame.distribution_of(name, "shortfall")
    missed = int(shortfall.count_above(0))
    met = shortfall.trials - missed

    def quantile(q: float) -> float | None:  # over the trials that missed: the largest values
        rank = met + rank_of(missed, q)
        return json_safe(shortfall.order_statistic(rank)[1]) if missed else None

    return {
        "met": met / trials,
        "met_interval": list(binomial_interval(met, trials)),
        "shortfall": {
            "share": missed / stopped if stopped else None,
            "mean": json_safe(shortfall.mean * shortfall.trials / missed) if missed else None,
            "q50": quantile(0.5),
            "q95": quantile(0.95),
            "max": quantile(1.0),
        },
    }


def statistics(values: Distribution) -> dict[str, float | None]:
    """Return the mean and the quantiles of a distribution, with None for infinity and NaN."""
    quantiles = {f"q{p:02d}": json_safe(values.quantile(p / 100)) for p in _PERCENTS}
    return {"mean": json_safe(values.mean), **quantiles}


def intervals(values: Distribution) -> dict[str, list[float | None]]:
    """Return Student's 95 % interval of the mean, and exact 95 % intervals of the quantiles."""
    ends = {f"q{p:02d}": json_safe(values.quantile_interval(p / 100)) for p in _PERCENTS}
    return {"mean": json_safe(values.mean_interval()), **ends}


def interquartile_range(values: Distribution) -> dict[str, Any]:
    """Return the interquartile range, and an interval of it with level at least 95 %.

    The interval contains all differences between values in the exact 97.5 % intervals of the two
    quartiles (Bonferroni).
    """
    first, third = (values.quantile_interval(q, 0.975) for q in (0.25, 0.75))
    with np.errstate(invalid="ignore"):  # infinite quartiles have no distance
        distance = np.subtract(values.quantile(0.75), values.quantile(0.25))
        ends = np.subtract(third, first[::-1])
    ends[0] = max(ends[0], 0.0)
    return {"value": json_safe(float(distance)), "interval": json_safe(ends.tolist())}


_EPSILON_STATISTICS: dict[str, Callable[[Distribution], Any]] = {
    "stopping_epsilon": statistics,
    "stopping_epsilon_interval": intervals,
    "quartile_distance": interquartile_range,
    "band": lambda epsilon: epsilon.band(),
    "resolution": lambda epsilon: epsilon.resolution,
}
"""The functions that compute the keys of a case about its stopping epsilon."""


def standard(frame: Frame, summary: Mapping[str, Any]) -> Report:
    """Return the standard report, with one row of stops, goals and epsilons per case."""
    mixed = {case.get("public_test") for case in summary["cases"]} >= {True, False}
    rows = tuple(
        (
            case["case"],
            percent(case.get("stopped")),
            percent(case.get("met")),
            *epsilons(case),
            f"{case['step']['q50'] + 1:g}" if "step" in case else "-",
            *[_YES_NO[case.get("public_test")]] * mixed,
        )
        for case in summary["cases"]
    )
    covers = ["covers the stop"] * mixed
    headings = ("case", "ended", "good enough", *EPSILONS, "releases", *covers)
    remarks = (
        *(*_HOW_TO_READ, *precision.remarks(frame)),
        *(*accuracy(summary), *release_error.remarks(frame)),
        *(*notions(summary), *warnings(summary)),
    )
    title = f"{summary['study']}: privacy cost of {frame.trials:,} simulated runs"
    return Report(title, headings, rows, remarks)


def epsilons(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a case's cells of the columns `EPSILONS`: quantiles of the stopping epsilon."""
    epsilon, ends = case.get("stopping_epsilon"), case.get("stopping_epsilon_interval")
    if epsilon is None or ends is None:
        return ("-",) * len(EPSILONS)
    return (
        upper(epsilon["q50"]),
        span(ends["q50"], lowest(case["trials"], 0.5), outward=True),
        span((epsilon["q25"], epsilon["q75"])),
        upper(epsilon["q90"]),
        upper(epsilon["q95"]),
    )


def accuracy(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on how far stopped trials missed the goal, for each case with a miss."""
    lines = []
    for case in summary["cases"]:
        missed = case.get("shortfall")
        if missed is None or not missed["share"]:
            continue
        stopped = case["status"].get(Status.STOPPED.name, 0)
        lines.append(
            f"{case['case']}: {round(missed['share'] * stopped):,} of the {stopped:,} runs that "
            f"stopped missed the goal ({number(case['goal'])}), by {number(missed['q50'])} in the "
            f"median and {upper(missed['max'])} at most."
        )
    met = [case["met"] for case in summary["cases"] if case.get("met") is not None]
    if lines and len(set(met)) > 1:
        lines.append(
            "Do not compare epsilons of cases that reached their goals unequally often, here in "
            f"{percent(min(met))} to {percent(max(met))} of the runs: accuracies differ."
        )
    return lines


def notions(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on the privacy notion of each epsilon, and a warning if notions differ."""
    cases_of: dict[str, list[str]] = {}
    stated: dict[str, set[str]] = {}
    for case in summary["cases"]:
        if case.get("notion") is not None:
            cases_of.setdefault(case["notion"], []).append(case["case"])
            delta = case.get("delta")
            stated.setdefault(case["notion"], set()).add(_odds(delta))
    lines = []
    for notion, cases in cases_of.items():
        whose = ", ".join(cases) if len(cases_of) > 1 else "all cases"
        delta = stated[notion].pop() if len(stated[notion]) == 1 else ""
        meaning = NOTIONS.get(notion, "a custom notion")
        lines.append(f"{notion.capitalize()} epsilon ({whose}): {meaning}{delta}.")
    if not notions_comparable(*cases_of):
        lines.append(
            "Warning: epsilons of different notions promise different things, so that the smaller "
            "one need not be the better."
        )
    return lines


def _odds(delta: Any) -> str:
    """Return a positive delta as text, also as one of so many runs, or ""."""
    if not isinstance(delta, float) or delta <= 0:
        return ""
    runs = math.floor(1 / delta * (1 + 1e-6))  # for a delta that was rounded to float32
    often = f", one of {runs:,} runs" if runs > 1 else ""
    return f" (delta = {delta:.4g}{often})"


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """Return warnings on infinite medians, missed goals, and many stops at the first level."""
    lines = []
    for case in summary["cases"]:
        if case.get("stopping_epsilon") is None or "stopped" not in case:
            continue
        if case["stopping_epsilon"]["q50"] is None:
            lines.append(
                f"Warning: {percent(case['stopped'])} of the runs of {case['case']} stopped; the "
                "others count as infinite, and so does the median. More would stop with levels up "
                "to a larger epsilon, or with a lower goal."
            )
        met = case.get("met")
        if met is not None and met < min(0.5, case["stopped"]):
            lines.append(
                f"Warning: {percent(met)} of the runs of {case['case']} met the goal, because "
                "its test accepts worse scores: its noise is too large at the first levels. Set it "
                "up by until(..., private=True), or in a study of regressions by --confidence."
            )
        # A single level has no lower one, and a private test may need the level at which it starts.
        if case["stopped_at_first_step"] >= AT_FIRST_STEP and case.get("public_test", True):
            lines.append(
                f"Warning: {percent(case['stopped_at_first_step'])} of the runs of "
                f"{case['case']} stopped at the first level of the schedule: start it "
                "lower to see what they need."
            )
    return lines


def times(summary: Mapping[str, Any], timings: Mapping[str, float]) -> list[str]:
    """Return a sentence on the seconds of all calls of a run, and on `timings` of this call."""
    seconds = [case["seconds"] for case in summary["cases"]]
    compiled, run, curves = (
        sum(each[part] for each in seconds) for part in ("compile", "run", "curves")
    )
    trials, simulating = sum(case["trials"] for case in summary["cases"]), run - curves
    rate = f" ({trials / simulating:,.0f} per second)" if simulating > 0 else ""
    parts = [f"{compiled:.2f} s to compile, next to other work", f"{simulating:.2f} s to run{rate}"]
    parts += [f"{curves:.2f} s for curves"] if curves else []
    further = " and ".join(f"{each:.2f} s for {name}" for name, each in timings.items())
    further = f"; {further} in this call" if further else ""
    return [f"Run time of all calls and workers: {', '.join(parts)}{further}."]


def provenance(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the program, the device and the seed of a run."""
    device = f" on {summary['device']}" if summary.get("device") else ""
    trials = " or ".join(
        f"{each:,}" for each in dict.fromkeys(c["trials"] for c in summary["cases"])
    )
    return [
        f"nrjax {summary['nrjax']} with JAX {summary['jax']}{device}, {summary['precision']}, seed "
        f"{summary['seed']}; {trials} runs per case. All settings and numbers are in {SUMMARY}."
    ]
