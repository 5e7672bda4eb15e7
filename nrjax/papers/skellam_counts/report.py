"""The report of `skellam_counts`: realised privacy losses, compared with stated epsilons."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nrjax.papers import _claims as claims
from nrjax.papers._claims import group_by
from nrjax.papers.skellam_counts.settings import median_deviation
from nrjax.statistics.sample import Distribution
from nrjax.study.formats import humanise, json_safe, lowest, number, percent
from nrjax.study.precision import remarks
from nrjax.study.report import AT_FIRST_STEP, Report, notions
from nrjax.study.reporting import Reporting
from nrjax.study.results import Results

PERCENTS = (5, 25, 50, 75, 95, 99)

_ROUNDING = 1e-6  # losses below this, in nats, are printed as 0
_FAR_FROM_TIGHT = 2.0
"""Ratio of standard deviations above which a linear boundary is reported as loose."""


class LossReporting(Reporting):
    """The report of each mechanism's realised losses and stated epsilons, with figures."""

    case_facts = ("task", "mechanism", "test", "data", "trials", "optimum", "target")

    def figures(self, results: Results) -> Mapping[str, Callable[[Results], Any]]:
        """Return the function that draws each figure, by name."""
        from nrjax.papers.skellam_counts.figures import figures  # matplotlib is slow to import

        return figures(results)

    def findings(self, results: Results) -> dict[str, Any]:
        """Return statistics of the realised privacy losses against the neighbour, in nats.

        Returns:
            `realised`, by case and over all trials: `mean` and quantiles with 95 % intervals. The
            end of an interval is null if the trials do not determine it. `one_minus_delta` is the
            quantile at 1 - delta, null with fewer than 1/delta trials. `exp_minus_loss` is the mean
            of a likelihood ratio, which is 1 in theory, with its standard error. `deviation` is the
            median standard deviation of the noise when trials ended. `exceeded` is the fraction of
            trials with a loss above the stated epsilon, null without a guarantee or stored trials.
            `comparisons`, by neighbour: the median stopping epsilons of discrete Laplace and of
            Laplace noise, their paired difference, and the mean difference of the trials.
        """
        delta = results.about["settings"]["delta"]
        realised = {}
        for name in results.cases:
            loss, inverse = (
                results.distribution_of(name, of) for of in ("realised_loss", "exp_minus_loss")
            )
            extreme = _quantile(loss, 1 - delta)
            if not _supports(loss.trials, delta):
                extreme["value"] = None
            realised[name] = {
                "mean": _mean(loss),
                **{f"q{percent:02d}": _quantile(loss, percent / 100) for percent in PERCENTS},
                "one_minus_delta": {"delta": delta, **extreme},
                "exp_minus_loss": {
                    "value": json_safe(inverse.mean),
                    "standard_error": json_safe(inverse.standard_error),
                },
                "deviation": {"q50": median_deviation(results, name)},
                "exceeded": _exceeded(results, name),
            }
        return {"realised": realised, "comparisons": _comparisons(results)}

    def report(self, results: Results, summary: Mapping[str, Any]) -> Report:
        """Return a table of realised losses and stopping epsilons, with their intervals below."""
        rows, intervals = [], []
        for realised, case in zip(summary["realised"].values(), summary["cases"], strict=True):
            name = humanise(f"{case['mechanism']} {case['neighbour']}")
            losses = (_short(realised[of]["value"]) for of in ("mean", "q05", "q50", "q95", "q99"))
            stated = ("none",) * 3
            if case["stopping_epsilon"] is not None:
                stated = (_short(case["stopping_epsilon"][of]) for of in ("q50", "q90", "q95"))
            rows.append((name, _short(realised["deviation"]["q50"]), *losses, *stated))
            intervals.append(_intervals(name, realised, case))
        headings = ("case", "noise", "mean", "5 %", "50 %", "95 %", "99 %")
        title = f"{summary['study']}: realised privacy loss at the stop, over all trials (nat)"
        sentences = (
            *_data(summary),
            *claims.data_remarks(summary["cases"]),
            *intervals,
            *map(_comparison, summary["comparisons"]),
            *remarks(results),
            *_limitations(summary),
            *_warnings(summary),
        )
        return Report(title, (*headings, "stopping epsilon", "q90", "q95"), tuple(rows), sentences)


def _exceeded(results: Results, name: str) -> float | None:
    """Return the fraction of trials whose realised loss is above the stated epsilon."""
    if results.distribution(name) is None or not results.keeps_trials(name):
        return None
    arrays = results.arrays(name)
    return float(np.mean(arrays["realised_loss"] > arrays["epsilon"]))


def _comparisons(results: Results) -> list[dict[str, Any]]:
    """Compare the stopping epsilons of discrete Laplace and Laplace noise, by neighbour."""
    comparisons = []
    for (neighbour,) in group_by(results.cases.values(), "neighbour"):
        pair = [f"counts-{mechanism}-{neighbour}" for mechanism in ("discrete_laplace", "laplace")]
        median = claims.paired_difference(results, *pair) if set(pair) <= set(results) else None
        if median is not None:
            by_trial = results.compare(*pair).difference
            assert by_trial is not None  # the trials are paired
            facts = {"neighbour": neighbour, "cases": pair}
            comparisons.append({**facts, **median.to_json(), "mean": _mean(by_trial)})
    return comparisons


def _comparison(comparison: Mapping[str, Any]) -> str:
    first, second = (number(value) for value in comparison["values"])
    ends = comparison["interval"] or (None, None)  # infinite medians have no difference
    median = _with_ends({"value": comparison["difference"], "interval": ends}, "-inf")
    return (
        f"{comparison['neighbour']}: the median stopping epsilon is {first} with discrete Laplace "
        f"noise (whole numbers) and {second} with Laplace noise of the same standard deviations; "
        f"paired difference {median}, mean difference {_with_ends(comparison['mean'], '-inf')}."
    )


def _mean(values: Distribution) -> dict[str, Any]:
    return {"value": json_safe(values.mean), "interval": json_safe(values.mean_interval())}


def _quantile(loss: Distribution, q: float) -> dict[str, Any]:
    ends = json_safe(loss.quantile_interval(q))
    return {"value": json_safe(loss.quantile(q)), "interval": ends}


def _supports(trials: int, delta: float) -> bool:
    """Return whether there are enough trials for the quantile at 1 - delta."""
    return trials * delta >= 1 - 1e-9


def _short(value: float | None, infinite: str = "inf") -> str:
    if value is None:
        return infinite
    return f"{0.0 if abs(value) < _ROUNDING else value:.3g}"


def _with_ends(values: Mapping[str, Any], none: str) -> str:
    """Return a value and its interval as text, with `none` for a missing lower end."""
    low, high = values["interval"]
    return f"{_short(values['value'])} ({_short(low, none)} to {_short(high)})"


def _intervals(name: str, realised: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    """Return a sentence with all statistics of a case's losses and their intervals."""
    trials, delta = case["trials"], realised["one_minus_delta"]["delta"]
    kinds = [("mean", "mean", "-inf")]
    kinds += [(f"q{p:02d}", f"{p} %", lowest(trials, p / 100)) for p in PERCENTS]
    if realised["one_minus_delta"]["value"] is not None:
        kinds.append(("one_minus_delta", f"1 - {delta:g}", lowest(trials, 1 - delta)))
    parts = [f"{kind} {_with_ends(realised[of], none)}" for of, kind, none in kinds]
    ratio, stated = realised["exp_minus_loss"], ""
    if case["stopping_epsilon"] is not None:
        value, ends = (case[f"stopping_epsilon{end}"]["q50"] for end in ("", "_interval"))
        median = {"value": value, "interval": ends}
        stated = f"; stopping epsilon {_with_ends(median, lowest(trials, 0.5))}"
        if realised["exceeded"] is not None:
            stated += f", exceeded in {number(100 * realised['exceeded'])} % of the trials"
    check = f"exp(-loss) {number(ratio['value'])} ± {_short(ratio['standard_error'])}"
    return f"{name}: {', '.join(parts)}; {check}{stated}."


def _data(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on the counts, the target, the table's columns and the neighbours."""
    case, settings = summary["cases"][0], summary["settings"]
    error = settings["relative_error"]
    target = {
        "relative": f"at most {case['target']:.4g} of the groups are off by more than {error:g} of "
        "their count",
        "absolute": f"the mean absolute error is at most {case['target']:.6g}",
    }[settings["criterion"]]
    lines = [
        f"counts on {case['data']}: {case['rows']:,} {case['unit']} in {case['dimension']} groups. "
        f"A public test stops a trial when {target}.",
        "Noise is the median standard deviation where trials ended, in counts. The stopping "
        "epsilon is the stated epsilon, infinite for a trial that did not stop (delta = "
        f"{settings['delta']:g} for Brownian noise): its median, and its 90 % and 95 % quantiles "
        "q90 and q95. Below, brackets hold 95 % intervals, exact for "
        "quantiles. The mean of exp(-loss), with its standard error, is 1 in theory: a check of "
        "the simulation.",
    ]
    for (neighbour,), (case, *_) in group_by(summary["cases"], "neighbour").items():
        groups = case["groups"]
        change = f"is in {groups[1]!r} instead" if len(groups) == 2 else "is missing"
        lines.append(
            f"{neighbour}: the loss is against a data set in which one of the {case['unit']} of "
            f"{groups[0]!r} {change}."
        )
    return lines


def _limitations(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on what the table's numbers do not show."""
    lines = []
    delta, trials = summary["settings"]["delta"], summary["cases"][0]["trials"]
    if not _supports(trials, delta):
        lines.append(
            f"{trials:,} trials show no quantile beyond 1 - 1/{trials:,}. The quantile at 1 - "
            f"delta = 1 - {delta:g} takes {np.ceil(1 / delta):,.0f} trials, or a larger --delta."
        )
    if any(case["mechanism"] == "skellam" for case in summary["cases"]):
        lines.append(
            "Skellam noise has no published guarantee: its losses are against one neighbour, and "
            "bound nothing. Discrete Laplace noise has whole numbers, too, and a guarantee."
        )
    return lines + notions(summary)


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    """Return warnings about the table's numbers, with the options to change."""
    lines = []
    for (name, realised), case in zip(summary["realised"].items(), summary["cases"], strict=True):
        if case["stopped_at_first_step"] >= AT_FIRST_STEP:
            lines.append(
                f"Warning: {percent(case['stopped_at_first_step'])} of the {name} trials stopped "
                "at the first noise level, which their loss depends on. Use a higher "
                "--highest-deviation."
            )
        if case["stopped"] < 1:
            lines.append(
                f"Warning: {percent(1 - case['stopped'])} of the {name} trials never reached the "
                "target; their loss is that at the end of the grid."
            )
        if "OVERFLOW" in case["status"]:
            lines.append(
                f"Warning: in {case['status']['OVERFLOW']} of the {name} trials counts overflowed "
                "the exact range; their loss counts as infinite. Use a lower --highest-deviation."
            )
        median, tight = realised["deviation"]["q50"], case.get("tight_at")
        if tight is not None and max(median / tight, tight / median) > _FAR_FROM_TIGHT:
            lines.append(
                f"The linear boundary of {name} is tight at noise of {tight:.3g}, but the trials "
                f"ended at {median:.3g}. Another --tight-at would have stated less, but it must "
                "not depend on the counts."
            )
    return lines
