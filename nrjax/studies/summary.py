"""`summary.json`: what a run found, in the form that all studies share."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrjax.studies.bootstrap import interval, resampled_quantiles
from nrjax.studies.folder import SUMMARY, explained, write_whole
from nrjax.studies.store import Case, Store
from nrjax.types import Status

PERCENTS = (5, 25, 50, 75, 95)
FACTS = ("study", "nrjax", "jax", "device", "precision", "seed", "settings")
"""What a store's settings must hold besides whatever else the study keeps there."""

CASE_FACTS = ("task", "mechanism", "test", "data", "trials", "optimum", "target")
"""What a case's attributes must hold, unless the study names others."""


def quantile(values: np.ndarray, percent: int) -> float:
    """The smallest of the values that at least `percent` of them do not exceed.

    An order statistic, never interpolated: between a finite epsilon and an infinite one there is
    nothing that would not understate. Infinite values are values; there must be no NaN.
    """
    rank = -(-percent * values.size // 100)
    return float(np.partition(values, rank - 1)[rank - 1])


def distribution(values: np.ndarray) -> dict[str, float | None]:
    """Mean and quantiles, with None (null) for what is infinite or, without values, undefined."""
    if values.size == 0:
        return {"mean": None, **{f"q{percent:02d}": None for percent in PERCENTS}}
    quantiles = {f"q{percent:02d}": quantile(values, percent) for percent in PERCENTS}
    return {
        name: value if np.isfinite(value) else None
        for name, value in {"mean": float(np.mean(values, dtype=np.float64)), **quantiles}.items()
    }


def total_epsilon(epsilon: np.ndarray, status: np.ndarray) -> np.ndarray | None:
    """The ex-post epsilon of each trial, infinite where it did not stop.

    A trial that never reached its goal has not bought it at any finite price, whatever its last
    release cost. None where no trial has an epsilon: the mechanism has no guarantee. A NaN beside
    numbers states no bound, so it counts as infinite.
    """
    if np.isnan(epsilon).all():
        return None
    return np.where((status == Status.STOPPED) & ~np.isnan(epsilon), epsilon, np.inf)


Measure = Callable[[Case, Mapping[str, np.ndarray], np.ndarray], dict[str, Any]]
"""What a study adds to the summary of a case, from the case, the arrays of its pass "outcome" by
name, and which trials stopped (all of them where they have no status); strict JSON."""


def path_lengths(
    case: Case, outcome: Mapping[str, np.ndarray], stopped: np.ndarray
) -> dict[str, Any]:
    """Where the trials ended, and the realised loss.

    `step` is over all trials; `stopped_at_first_step` the share for which the first level of the
    grid was good enough, so that a lower one might have been; `privacy_loss` is over the trials
    that have one, and null without any.
    """
    del case
    step, loss = outcome["step"], outcome["privacy_loss"]
    loss = loss[~np.isnan(loss)]
    return {
        "step": {"mean": float(step.mean()), "q50": quantile(step, 50)},
        "stopped_at_first_step": float((stopped & (step == 0)).mean()),
        "privacy_loss": distribution(loss) if loss.size else None,
    }


def summarise(
    store: Store, measure: Measure = path_lengths, case_facts: Sequence[str] = CASE_FACTS
) -> dict[str, Any]:
    """The summary of a finished run, as strict JSON: null stands for infinite or undefined.

    Reads the pass "outcome" of every case, with `epsilon` and `status` and what `measure` asks for.
    `epsilon` is over all trials, a trial that did not stop counting as infinite;
    `stopped_epsilon` over those that stopped; both are null for a mechanism without a guarantee.
    Whatever else the study says of a case is kept. Quantiles are order statistics (`quantile`).
    `median_interval` and `quartile_distance` (its value and interval) come from bootstrapping the
    trials, 95 %. Of trials without a status, sessions that spend a given epsilon, nothing of this
    is said, and `measure` says it all.

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
    intervals = _intervals(total_epsilons(store))
    none = {"median_interval": None, "quartile_distance": None}
    return {
        **facts,
        "cases": [
            {**case, **(intervals.get(name, none) if "stopped" in case else {})}
            for name, case in zip(store.cases, cases, strict=True)
        ],
    }


def total_epsilons(store: Store) -> dict[str, np.ndarray]:
    """`total_epsilon` of every case that has one."""
    found = {}
    for name in store.cases:
        outcome = store.read(name, "outcome")
        if "status" not in outcome:
            continue
        epsilon = total_epsilon(outcome["epsilon"].values, outcome["status"].values)
        if epsilon is not None:
            found[name] = epsilon
    return found


def _intervals(epsilons: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Bootstrap intervals of the median and of the distance between the quartiles."""
    if len({values.size for values in epsilons.values()}) != 1:
        return {}  # cases of different sizes cannot be resampled together
    found = {}
    for name, quantiles in resampled_quantiles(epsilons, (25, 50, 75)).items():
        first, third = (quantile(epsilons[name], percent) for percent in (25, 75))
        with np.errstate(invalid="ignore"):  # infinite quartiles have no distance
            distance, spread = np.subtract(third, first), quantiles[:, 2] - quantiles[:, 0]
        found[name] = {
            "median_interval": strict(interval(quantiles[:, 1])),
            "quartile_distance": {
                "value": strict(float(distance)),
                "interval": strict(interval(spread)),
            },
        }
    return found


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
        OSError: the disk is full, or failed.
    """
    summary = {**summarise(store, measure, case_facts), **(also or {})}
    text = json.dumps(summary, indent=1, allow_nan=False) + "\n"
    path = store.folder / SUMMARY
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise explained(error, f"cannot write {path}") from error
    return path


def read_summary(store: Store) -> dict[str, Any]:
    """What `write_summary` wrote."""
    return json.loads((store.folder / SUMMARY).read_bytes())


def _summarise_case(
    store: Store, case: Case, measure: Measure, case_facts: Sequence[str]
) -> dict[str, Any]:
    arrays = store.read(case.name, "outcome")
    outcome = {str(name): arrays[name].values for name in arrays}
    trials = case.passes["outcome"].trials
    stopped, endings = np.ones(trials, bool), {}
    if "status" in outcome:
        stopped = outcome["status"] == Status.STOPPED
        endings = _endings(outcome["epsilon"], outcome["status"])
    attributes = {**case.attributes, "trials": trials}
    where = f"the attributes of case {case.name}"
    return {
        **{fact: _fact(attributes, fact, where) for fact in case_facts},
        **attributes,
        **endings,
        **measure(case, outcome, stopped),
        "seconds": store.seconds(case.name),
    }


def _endings(epsilon: np.ndarray, status: np.ndarray) -> dict[str, Any]:
    """How the trials ended, and at what epsilon."""
    stopped = status == Status.STOPPED
    total = total_epsilon(epsilon, status)
    return {
        "stopped": float(stopped.mean()),
        "status": {one.name: int((status == one).sum()) for one in Status if (status == one).any()},
        "epsilon": None if total is None else distribution(total),
        "stopped_epsilon": None if total is None else distribution(total[stopped]),
    }


def _fact(facts: dict[str, Any], name: str, where: str) -> Any:
    if name not in facts:
        raise ValueError(f"{name!r} is missing from {where}")
    return facts[name]
