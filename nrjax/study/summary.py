"""`summary.json`: what a run found, in the form that all studies share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from nrjax.study.distribution import Distribution
from nrjax.study.folder import SUMMARY, write_document
from nrjax.study.intervals import binomial_interval, rank_of
from nrjax.types import Status

if TYPE_CHECKING:
    from nrjax.study.results import Results

PERCENTS = (5, 25, 50, 75, 95)
FACTS = ("study", "nrjax", "jax", "device", "precision", "seed", "settings")
"""What comes first, of what a store says of its run."""

_OF_EPSILON = (
    "epsilon",
    "epsilon_interval",
    "quartile_distance",
    "band",
    "resolution",
    "stopped_epsilon",
)
"""What is null for a mechanism without a guarantee."""


def described(values: Distribution) -> dict[str, float | None]:
    """Mean and quantiles, with None (null) for what is infinite or, without values, undefined."""
    quantiles = {f"q{percent:02d}": values.quantile(percent) for percent in PERCENTS}
    return {name: strict(value) for name, value in {"mean": values.mean, **quantiles}.items()}


def intervals(values: Distribution) -> dict[str, list[float | None]]:
    """95 % intervals of what `described` gives: Student's of the mean, exact ones of quantiles."""
    quantiles = {f"q{percent:02d}": values.quantile_interval(percent) for percent in PERCENTS}
    return {
        name: strict(ends) for name, ends in {"mean": values.mean_interval(), **quantiles}.items()
    }


def quartile_distance(values: Distribution) -> dict[str, Any]:
    """Distance between the quartiles, and an interval of at least 95 %.

    It is the widest that the quartiles' exact 97.5 % intervals allow (Bonferroni).
    """
    first, third = (values.quantile_interval(percent, 0.975) for percent in (25, 75))
    with np.errstate(invalid="ignore"):  # infinite quartiles have no distance
        distance = np.subtract(values.quantile(75), values.quantile(25))
        ends = np.subtract(third, first[::-1])
    ends[0] = max(ends[0], 0.0)
    return {"value": strict(float(distance)), "interval": strict(ends.tolist())}


def strict(value: Any) -> Any:
    """Numbers as strict JSON has them: null for what is infinite or undefined."""
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    return value if value is None or np.isfinite(value) else None


def summarise(results: Results) -> dict[str, Any]:
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
    facts = {name: results.store.settings[name] for name in FACTS}
    cases = [_of_case(results, name) for name in results.cases]
    return {**facts, "cases": cases, **results.reporting.findings(results)}


def write(results: Results) -> dict[str, Any]:
    """Write `summary.json`, whole or not at all; returns what it says.

    Raises:
        ValueError: as `summarise`.
        FileExistsError: there is a file of that name which nrjax has not written.
        OSError: the disk is full, or failed.
    """
    found = summarise(results)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    write_document(results.folder, SUMMARY, text)
    return found


def _of_case(results: Results, name: str) -> dict[str, Any]:
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
        "seconds": results.store.seconds(name),
    }


def _endings(results: Results, name: str) -> dict[str, Any]:
    """How the trials ended, and at what epsilon."""
    statuses = results.statuses(name)
    if statuses is None:
        return {}
    stopped, trials = statuses.get(Status.STOPPED, 0), sum(statuses.values())
    total = results.distribution(name)
    found = {
        "stopped": stopped / trials,
        "stopped_interval": list(binomial_interval(stopped, trials)),
        "status": {one.name: count for one, count in statuses.items()},
        **_accuracy(results, name, stopped, trials),
    }
    if total is None:
        found |= dict.fromkeys(_OF_EPSILON)
    else:
        stopped_epsilon = results.distribution(name, "stopped_epsilon")
        assert stopped_epsilon is not None
        found |= {
            "epsilon": described(total),
            "epsilon_interval": intervals(total),
            "quartile_distance": quartile_distance(total),
            "band": total.band(),
            "resolution": total.resolution,
            "stopped_epsilon": described(stopped_epsilon),
        }
    return found | _lengths(results, name)


def _accuracy(results: Results, name: str, stopped: int, trials: int) -> dict[str, Any]:
    """Who reached the goal, and by how much the others missed it."""
    if results.goal(name) is None:
        return {}
    shortfall = results.distribution(name, "shortfall")
    assert shortfall is not None
    missed = int(shortfall.count_above(0))

    def quantile(percent: float) -> float | None:  # of those that missed: they are the largest
        if not missed:
            return None
        rank = shortfall.trials - missed + rank_of(missed, percent)
        return shortfall.order_statistic(rank)[1]

    met = shortfall.trials - missed
    mean = shortfall.mean * shortfall.trials / missed if missed else None
    return {
        "met": met / trials,
        "met_interval": list(binomial_interval(met, trials)),
        "shortfall": {
            "share": missed / stopped if stopped else None,
            "mean": None if mean is None else strict(mean),
            **{f"q{percent}": strict(quantile(percent)) for percent in (50, 95)},
            "max": strict(quantile(100)),
        },
    }


def _lengths(results: Results, name: str) -> dict[str, Any]:
    """Where the trials ended, and the realised loss."""
    step, stopped, loss = (
        results.distribution(name, one) for one in ("step", "stopped_step", "privacy_loss")
    )
    assert step is not None
    assert stopped is not None
    first = stopped.trials - int(stopped.count_above(0))
    return {
        "step": {"mean": step.mean, "q50": step.quantile(50)},
        "stopped_at_first_step": first / step.trials,
        "privacy_loss": described(loss) if loss is not None and loss.trials else None,
    }
