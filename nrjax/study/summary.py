"""`summary.json`: what a run found, in the form that all studies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study.statistics import Distribution, binomial_interval, rank_of
from nrjax.types import Status

if TYPE_CHECKING:
    from nrjax.study.frame import Frame

PERCENTS = (5, 25, 50, 75, 90, 95)
"""Quantiles of the summary: q05, ..., q95."""

FACTS = ("study", "nrjax", "jax", "device", "precision", "seed", "settings")
"""What comes first, of what a store says of its run."""


def described(values: Distribution) -> dict[str, float | None]:
    """Mean and quantiles, with None (null) for what is infinite or, without values, undefined."""
    quantiles = {f"q{one:02d}": strict(values.quantile(one / 100)) for one in PERCENTS}
    return {"mean": strict(values.mean), **quantiles}


def intervals(values: Distribution) -> dict[str, list[float | None]]:
    """95 % intervals of what `described` gives: Student's of the mean, exact ones of quantiles."""
    ends = {f"q{one:02d}": strict(values.quantile_interval(one / 100)) for one in PERCENTS}
    return {"mean": strict(values.mean_interval()), **ends}


def quartile_distance(values: Distribution) -> dict[str, Any]:
    """Distance between the quartiles, and an interval of at least 95 %.

    It is the max_noise_multiple that the quartiles' exact 97.5 % intervals allow (Bonferroni).
    """
    first, third = (values.quantile_interval(q, 0.975) for q in (0.25, 0.75))
    with np.errstate(invalid="ignore"):  # infinite quartiles have no distance
        distance = np.subtract(values.quantile(0.75), values.quantile(0.25))
        ends = np.subtract(third, first[::-1])
    ends[0] = max(ends[0], 0.0)
    return {"value": strict(float(distance)), "interval": strict(ends.tolist())}


def strict(value: Any) -> Any:
    """Numbers as strict JSON has them: null for what is infinite or undefined."""
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    return value if value is None or np.isfinite(value) else None


def summarise(results: Frame) -> dict[str, Any]:
    """The summary of a finished run, as strict JSON: null stands for infinite or undefined.

    `epsilon` is the stopping epsilon: over all trials, one that did not stop counting as infinite;
    `stopped_epsilon` is over those that stopped; both are null for a mechanism without a guarantee.
    Quantiles are order statistics (`Distribution.quantile`); `epsilon_interval` has the 95 %
    interval of each and of the mean, `quartile_distance` its value and interval, `stopped_interval`
    the exact one of the share that stopped; `band` is half the width of the 95 % band around all
    of the distribution function, `resolution` the relative width within which epsilons are known.
    `met` is the share of all trials that stopped with the goal reached; `shortfall` says of those
    that stopped and missed it what share of the stopped they are and by how much they missed.
    `step` is over all trials; `stopped_at_first_step` the share for which the first level of the
    schedule was good enough, so that a lower one might have been; `privacy_loss` is over the trials
    that have one. Of sessions, that spend a given epsilon, nothing of this is said.

    Raises:
        ValueError: a case lacks a label that all must have.
    """
    facts = {name: results.about[name] for name in FACTS if name in results.about}
    cases = [_of_case(results, name) for name in results.cases]
    return {**facts, "cases": cases, **results.reporting.findings(results)}


_OF_EPSILON: dict[str, Callable[[Distribution], Any]] = {
    "epsilon": described,
    "epsilon_interval": intervals,
    "quartile_distance": quartile_distance,
    "band": lambda epsilon: epsilon.band(),
    "resolution": lambda epsilon: epsilon.resolution,
}
"""What is said of the stopping epsilon."""


def _of_case(results: Frame, name: str) -> dict[str, Any]:
    case = results.cases[name]
    labels = {**case.attributes, "trials": case.passes["outcome"].trials}
    missing = [fact for fact in results.reporting.case_facts if fact not in labels]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing from the labels of case {name}")
    return {
        **{fact: labels[fact] for fact in results.reporting.case_facts},
        "case": name,
        **labels,
        **_endings(results, name),
        **results.reporting.measure(results, name),
        **({} if (seconds := results.seconds(name)) is None else {"seconds": seconds}),
    }


def _endings(results: Frame, name: str) -> dict[str, Any]:
    """How the trials ended, and at what epsilon."""
    statuses = results.statuses(name)
    if statuses is None:
        return {}
    stopped, trials = statuses.get(Status.STOPPED, 0), sum(statuses.values())
    total, of_stopped, loss = (
        results.distribution(name, one)
        for one in ("stopping_epsilon", "stopped_epsilon", "privacy_loss")
    )
    step, last = results.law(name, "step"), results.law(name, "stopped_step")
    return {
        "stopped": stopped / trials,
        "stopped_interval": list(binomial_interval(stopped, trials)),
        "status": {one.name: count for one, count in statuses.items()},
        **_accuracy(results, name, stopped, trials),
        **{key: None if total is None else of(total) for key, of in _OF_EPSILON.items()},
        "stopped_epsilon": None if of_stopped is None else described(of_stopped),
        "step": {"mean": step.mean, "q50": step.quantile(0.5)},
        "stopped_at_first_step": (last.trials - int(last.count_above(0))) / trials,
        "privacy_loss": described(loss) if loss is not None and loss.trials else None,
    }


def _accuracy(results: Frame, name: str, stopped: int, trials: int) -> dict[str, Any]:
    """Who reached the goal, and by how much the others missed it."""
    if results.goal(name) is None:
        return {}
    shortfall = results.law(name, "shortfall")
    missed = int(shortfall.count_above(0))
    met = shortfall.trials - missed

    def quantile(q: float) -> float | None:  # of those that missed: they are the largest
        rank = met + rank_of(missed, q)
        return strict(shortfall.order_statistic(rank)[1]) if missed else None

    return {
        "met": met / trials,
        "met_interval": list(binomial_interval(met, trials)),
        "shortfall": {
            "share": missed / stopped if stopped else None,
            "mean": strict(shortfall.mean * shortfall.trials / missed) if missed else None,
            "q50": quantile(0.5),
            "q95": quantile(0.95),
            "max": quantile(1.0),
        },
    }
