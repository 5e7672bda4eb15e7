"""`summary.json`: what a run found, in the form that all studies share."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax.studies.distribution import Distribution
from nrjax.studies.folder import SUMMARY, write_document
from nrjax.studies.intervals import binomial_interval
from nrjax.studies.store import Case, Store
from nrjax.studies.variables import distribution_of, status_counts, variable_of
from nrjax.types import Status

PERCENTS = (5, 25, 50, 75, 95)
FACTS = ("study", "nrjax", "jax", "device", "precision", "seed", "settings")
"""What a store's settings must hold besides whatever else the study keeps there."""

CASE_FACTS = ("task", "mechanism", "test", "data", "trials", "optimum", "target")
"""What a case's attributes must hold, unless the study names others."""


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


Measure = Callable[[Store, Case], dict[str, Any]]
"""What a study adds to the summary of a case; strict JSON."""


def path_lengths(store: Store, case: Case) -> dict[str, Any]:
    """Where the trials ended, and the realised loss.

    `step` is over all trials; `stopped_at_first_step` the share for which the first level of the
    grid was good enough, so that a lower one might have been; `privacy_loss` is over the trials
    that have one, and null without any.
    """
    step, stopped, loss = (
        variable_of(store, case.name, name) for name in ("step", "stopped_step", "privacy_loss")
    )
    first = stopped.trials - int(stopped.count_above(0))
    return {
        "step": {"mean": step.mean, "q50": step.quantile(50)},
        "stopped_at_first_step": first / step.trials,
        "privacy_loss": described(loss) if loss.trials else None,
    }


def summarise(
    store: Store, measure: Measure = path_lengths, case_facts: Sequence[str] = CASE_FACTS
) -> dict[str, Any]:
    """The summary of a finished run, as strict JSON: null stands for infinite or undefined.

    Reads the pass "outcome" of every case, with `epsilon` and `status` and what `measure` asks for.
    `epsilon` is over all trials, a trial that did not stop counting as infinite;
    `stopped_epsilon` over those that stopped; both are null for a mechanism without a guarantee.
    Quantiles are order statistics (`Distribution.quantile`); `epsilon_interval` has the 95 %
    interval of each and of the mean, `quartile_distance` its value and interval, `stopped_interval`
    the exact one of the share that stopped; `band` is half the width of the 95 % band around all
    of the distribution function, `resolution` the relative width within which epsilons are known.
    Whatever else the study says of a case is kept. Of trials without a status, sessions that spend
    a given epsilon, nothing of this is said, and `measure` says it all.

    Args:
        store: of a finished run.
        measure: adds what the study reports of a case besides.
        case_facts: what a case's attributes must hold; they come first.

    Raises:
        ValueError: the settings or a case lack one of `FACTS` or `case_facts`.
        RuntimeError: the run is not finished.
    """
    facts = {name: _fact(store.settings, name, "the settings of the store") for name in FACTS}
    cases = [_summarise_case(store, case, measure, case_facts) for case in store.cases.values()]
    return {**facts, "cases": cases}


def strict(value: Any) -> Any:
    """Numbers as strict JSON has them: null for what is infinite or undefined."""
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    return value if value is None or np.isfinite(value) else None


def write_summary(
    store: Store,
    also: dict[str, Any] | None = None,
    measure: Measure = path_lengths,
    case_facts: Sequence[str] = CASE_FACTS,
) -> Path:
    """Write `summary.json`, whole or not at all; returns its path.

    Args:
        store: of a finished run.
        also: what else the study has to say, by name; strict JSON.
        measure: as for `summarise`.
        case_facts: as for `summarise`.

    Raises:
        ValueError, RuntimeError: as `summarise`.
        FileExistsError: there is a file of that name which nrjax has not written.
        OSError: the disk is full, or failed.
    """
    summary = {**summarise(store, measure, case_facts), **(also or {})}
    text = json.dumps(summary, indent=1, allow_nan=False) + "\n"
    return write_document(store.folder, SUMMARY, text)


def read_summary(store: Store) -> dict[str, Any]:
    """What `write_summary` wrote."""
    return json.loads((store.folder / SUMMARY).read_bytes())


def _summarise_case(
    store: Store, case: Case, measure: Measure, case_facts: Sequence[str]
) -> dict[str, Any]:
    attributes = {**case.attributes, "trials": case.passes["outcome"].trials}
    where = f"the attributes of case {case.name}"
    return {
        **{fact: _fact(attributes, fact, where) for fact in case_facts},
        **attributes,
        **_endings(store, case),
        **measure(store, case),
        "seconds": store.seconds(case.name),
    }


def _endings(store: Store, case: Case) -> dict[str, Any]:
    """How the trials ended, and at what epsilon."""
    statuses = status_counts(store, case.name)
    if statuses is None:
        return {}
    stopped, trials = statuses.get(Status.STOPPED, 0), case.passes["outcome"].trials
    total = distribution_of(store, case.name)
    share = {
        "stopped": stopped / trials,
        "stopped_interval": list(binomial_interval(stopped, trials)),
        "status": {one.name: count for one, count in statuses.items()},
    }
    if total is None:
        return share | dict.fromkeys(_OF_EPSILON)
    return {
        **share,
        "epsilon": described(total),
        "epsilon_interval": intervals(total),
        "quartile_distance": quartile_distance(total),
        "band": total.band(),
        "resolution": total.resolution,
        "stopped_epsilon": described(variable_of(store, case.name, "stopped_epsilon")),
    }


def _fact(facts: dict[str, Any], name: str, where: str) -> Any:
    if name not in facts:
        raise ValueError(f"{name!r} is missing from {where}")
    return facts[name]
