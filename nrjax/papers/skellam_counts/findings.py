"""The realised privacy losses of a finished run, with intervals; and the run's report."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nrjax.papers._shared import PaperReporting, grouped, paired, plain, remarks_on_data
from nrjax.study.precision import remarks
from nrjax.study.report import AT_FIRST_STEP, Report, lowest, number
from nrjax.study.results import Results
from nrjax.study.statistics import Distribution, rank_of
from nrjax.study.summary import strict

PERCENTS = (5, 25, 50, 75, 95, 99)

_ROUNDING = 1e-6
"""Losses smaller than this, in nats, are zeros that were rounded."""

_FAR_FROM_TIGHT = 2.0
"""Factor between standard deviations at which the linear boundary states noticeably too much."""


def median_deviation(results: Results, name: str) -> float:
    """Median standard deviation of the noise where trials ended, in counts."""
    facts, levels = results.cases[name].attributes, results.about["settings"]["levels"]
    grid = np.geomspace(facts["highest_deviation"], facts["lowest_deviation"], levels)
    step = results.law(name, "step")
    # The grid falls, so that ranks count from its end.
    rank = step.trials + 1 - rank_of(step.trials, 0.5)
    return float(grid[int(step.order_statistic(rank)[1])])


class Findings(PaperReporting):
    """The realised losses."""

    case_facts = ("task", "mechanism", "test", "data", "trials", "optimum", "target")

    def findings(self, results: Results) -> dict[str, Any]:
        """By case: the realised loss of the releases against the neighbour, in nats.

        Over all trials: mean (Student's 95 % interval) and quantiles (order statistics, exact 95 %
        intervals); `one_minus_delta` is the quantile at 1 - delta, whose value is null with fewer
        than 1/delta trials. Null in an interval stands for an end that the trials do not set.
        `exp_minus_loss` is the mean of `exp(-loss)`, which in law is 1 wherever a trial stops by
        its releases (it is the expectation of a likelihood ratio), and its standard error.
        `deviation` is the median noise where trials ended. `exceeded` is the share of the trials
        that lost more than was stated; null without a guarantee, and where trials were not kept.

        `comparisons`: by neighbour, the median stated epsilons of discrete Laplace and of Laplace
        noise, with their paired difference (`paired`), and the mean difference of all trials.
        """
        delta = results.about["settings"]["delta"]
        found = {}
        for name in results.cases:
            loss, inverse = (results.law(name, one) for one in ("realised_loss", "exp_minus_loss"))
            extreme = _quantile(loss, 1 - delta)
            if not _supports(loss.trials, delta):
                extreme["value"] = None
            found[name] = {
                "mean": {"value": strict(loss.mean), "interval": strict(loss.mean_interval())},
                **{f"q{percent:02d}": _quantile(loss, percent / 100) for percent in PERCENTS},
                "one_minus_delta": {"delta": delta, **extreme},
                "exp_minus_loss": {
                    "value": strict(inverse.mean),
                    "standard_error": strict(inverse.standard_error),
                },
                "deviation": {"q50": median_deviation(results, name)},
                "exceeded": _exceeded(results, name),
            }
        return {"realised": found, "comparisons": _comparisons(results)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Realised losses of each case, what is stated of them, and the intervals."""
        stated = ("epsilon", "eps. q90", "eps. q95")
        headings = ("case", "noise", "mean", "5 %", "50 %", "95 %", "99 %", *stated)
        rows, intervals = [], []
        for found, case in zip(summary["realised"].values(), summary["cases"], strict=True):
            title = plain(f"{case['mechanism']} {case['neighbour']}")
            losses = (_short(found[one]["value"]) for one in ("mean", "q05", "q50", "q95", "q99"))
            paid = ("none",) * 3
            if case["epsilon"] is not None:
                paid = (_short(case["epsilon"][one]) for one in ("q50", "q90", "q95"))
            rows.append((title, _short(found["deviation"]["q50"]), *losses, *paid))
            intervals.append(_intervals(title, found, case))
        title = f"{summary['study']}: realised privacy loss at the stop, over all trials (nat)"
        pairs = map(_difference, summary["comparisons"])
        data = remarks_on_data(summary["cases"])
        said = [*_sources(summary), *data, *intervals, *pairs, *remarks(results), *_limits(summary)]
        return Report(title, headings, tuple(rows), (*said, *_warnings(summary)))


def _exceeded(results: Results, name: str) -> float | None:
    """Share of the trials whose realised loss is above what was stated."""
    if results.distribution(name) is None or not results.keeps_trials(name):
        return None
    found = results.arrays(name)
    return float(np.mean(found["realised_loss"] > found["epsilon"]))


def _comparisons(results: Results) -> list[dict[str, Any]]:
    """What whole numbers cost beside real ones, by neighbour."""
    found = []
    for (neighbour,) in grouped(results.cases.values(), "neighbour"):
        both = [f"counts-{mechanism}-{neighbour}" for mechanism in ("discrete_laplace", "laplace")]
        pair = paired(results, *both) if set(both) <= set(results) else None
        if pair is not None:
            apart = results.compare(*both).difference
            assert apart is not None  # as they are paired
            mean = {"value": strict(apart.mean), "interval": strict(apart.mean_interval())}
            found.append({"neighbour": neighbour, "cases": both, **pair[0], "mean": mean})
    return found


def _difference(pair: Mapping[str, Any]) -> str:
    """The comparison in a sentence."""
    first, second = (number(value) for value in pair["values"])
    ends = pair["interval"] or (None, None)  # infinite medians have no difference
    median = _with_ends({"value": pair["difference"], "interval": ends}, "-inf")
    return (
        f"{pair['neighbour']}: median stated epsilon {first} of discrete laplace (whole numbers), "
        f"{second} of laplace, through the same standard deviations; paired difference {median}, "
        f"in the mean {_with_ends(pair['mean'], '-inf')}."
    )


def _quantile(loss: Distribution, q: float) -> dict[str, Any]:
    ends = strict(loss.quantile_interval(q))
    return {"value": strict(loss.quantile(q)), "interval": ends}


def _supports(trials: int, delta: float) -> bool:
    """Whether so many trials show the quantile at 1 - delta, and not just their largest value."""
    return trials * delta >= 1 - 1e-9


def _short(value: float | None, infinite: str = "inf") -> str:
    if value is None:
        return infinite
    return f"{0.0 if abs(value) < _ROUNDING else value:.3g}"


def _with_ends(noted: Mapping[str, Any], none: str) -> str:
    """A value with its interval; `none` is what null stands for at the lower end."""
    low, high = noted["interval"]
    return f"{_short(noted['value'])} ({_short(low, none)} to {_short(high)})"


def _intervals(title: str, found: dict[str, Any], case: dict[str, Any]) -> str:
    """All that was found of the losses of a case, in a sentence."""
    trials, delta = case["trials"], found["one_minus_delta"]["delta"]
    kinds = [("mean", "mean", "-inf")]
    kinds += [(f"q{p:02d}", f"{p} %", lowest(trials, p / 100)) for p in PERCENTS]
    if found["one_minus_delta"]["value"] is not None:
        kinds.append(("one_minus_delta", f"1 - {delta:g}", lowest(trials, 1 - delta)))
    parts = [f"{kind} {_with_ends(found[name], none)}" for name, kind, none in kinds]
    identity, stated = found["exp_minus_loss"], ""
    if case["epsilon"] is not None:
        median = {"value": case["epsilon"]["q50"], "interval": case["epsilon_interval"]["q50"]}
        stated = f"; epsilon {_with_ends(median, lowest(trials, 0.5))}"
        if found["exceeded"] is not None:
            stated += f", lost more in {number(100 * found['exceeded'])} % of the trials"
    check = f"exp(-loss) {number(identity['value'])} +- {_short(identity['standard_error'])}"
    return f"{title}: {', '.join(parts)}; {check}{stated}."


def _sources(summary: Mapping[str, Any]) -> list[str]:
    """What was counted, what was asked of the counts, and what the numbers in brackets are."""
    case, settings = summary["cases"][0], summary["settings"]
    error = settings["relative_error"]
    asked = {
        "relative": f"at most {case['target']:.4g} of the groups off by more than {error:g} of "
        "their count",
        "absolute": f"a mean absolute error of at most {case['target']:.6g}",
    }[settings["criterion"]]
    lines = [
        f"counts on {case['data']}: {case['rows']:,} {case['unit']} in {case['dimension']} groups; "
        f"wanted is {asked}, as seen by a public test.",
        "Noise is the median standard deviation where trials ended, in counts; epsilon the median "
        "of what is stated, with q90 and q95 beside it. In brackets below: 95 % intervals, exact "
        "for quantiles. The mean of exp(-loss), given with its standard error, is 1 in law: a "
        "check of the simulation.",
    ]
    for (neighbour,), (case, *_) in grouped(summary["cases"], "neighbour").items():
        groups = case["groups"]
        change = f"is in {groups[1]!r} instead" if len(groups) == 2 else "is missing"
        lines.append(
            f"{neighbour}: the loss is against a data set in which one of the {case['unit']} of "
            f"{groups[0]!r} {change}."
        )
    return lines


def _limits(summary: Mapping[str, Any]) -> list[str]:
    """What the numbers do not say."""
    lines = []
    delta, trials = summary["settings"]["delta"], summary["cases"][0]["trials"]
    if not _supports(trials, delta):
        lines.append(
            f"{trials:,} trials show no quantile beyond 1 - 1/{trials:,}; that at 1 - delta = "
            f"1 - {delta:g} takes {np.ceil(1 / delta):,.0f} trials, or a larger --delta."
        )
    said = {
        "skellam": "Skellam noise has no published guarantee: what is shown was realised against "
        "one neighbour, and bounds nothing.",
        "brownian": "Stated epsilon of brownian: a linear boundary, probabilistic, exceeded with "
        f"probability at most {delta:g}.",
        "laplace": "Stated epsilon of laplace: pure, never exceeded.",
        "discrete_laplace": "Discrete laplace noise is the one of whole numbers with a guarantee "
        "(skellam's are whole, too): its stated epsilon is pure, never exceeded.",
    }
    here = {case["mechanism"] for case in summary["cases"]}
    return lines + [line for mechanism, line in said.items() if mechanism in here]


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    """What should make one doubt the table."""
    lines = []
    for (name, found), case in zip(summary["realised"].items(), summary["cases"], strict=True):
        share = case["stopped_at_first_step"]
        if share >= AT_FIRST_STEP:
            lines.append(
                f"Warning: {share:.0%} of the {name} trials stopped at the first and strongest "
                "noise; their loss says where the grid begins. Raise --highest-deviation."
            )
        if case["stopped"] < 1:
            lines.append(
                f"Warning: {1 - case['stopped']:.2%} of the {name} trials never reached the "
                "target; their loss is that at the end of the grid."
            )
        if "OVERFLOW" in case["status"]:
            lines.append(
                f"Warning: counts of {case['status']['OVERFLOW']} of the {name} trials left the "
                "exact range; their loss counts as infinite. Lower --highest-deviation."
            )
        median, tight = found["deviation"]["q50"], case.get("tight_at")
        if tight is not None and max(median / tight, tight / median) > _FAR_FROM_TIGHT:
            lines.append(
                f"The linear boundary of {name} is tight at noise of {tight:.3g}, but the trials "
                f"ended at {median:.3g}: another --tight-at would have stated less, if chosen "
                "without looking at the counts."
            )
    return lines
