"""The experiments of Rogers 2023, section 7: accurate counts under one budget.

A trial finds the largest count by the exponential mechanism and releases it under noise that is
reduced until the count seems accurate enough. It continues with the next count until the budget of
a privacy filter is spent, and records how many counts it returned and how many are accurate.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax._base.validation import check
from nrjax.composition import BrownianReduction, DiscreteLaplaceReduction, LaplaceReduction
from nrjax.composition._ledger import Ledger
from nrjax.composition.conversions import zcdp_for
from nrjax.counts import CountRelease, ExponentialMechanism, RelativeError
from nrjax.datasets import Counts, load_counts, zipf_counts, zipf_law
from nrjax.papers.rogers2023.report import CountReporting
from nrjax.papers.rogers2023.settings import SAMPLES, Defaults, Settings
from nrjax.study.histograms import whole_numbers
from nrjax.study.study import Study

reporting = CountReporting()

MARKS = 100  # number of fractions of the budget at which results are counted
CURRENCIES = {"unified": "rho", "gaussian": "mu^2", "renyi": "Renyi divergence"}
"""By filter: the unit of its costs."""


def precision(trial: Any) -> Array:
    """Return the fraction of a trial's results within alpha of the truth (1 if none)."""
    share = trial.precise / jnp.maximum(trial.returned, 1)
    return jnp.where(trial.returned > 0, share, 1.0)


def _quantities(items: int, levels: int, currency: str) -> dict[str, nrjax.Quantity]:
    """Return the quantities to measure in a trial that has `items` counts to release."""
    count = nrjax.Quantity(bins=whole_numbers(items))
    return {
        "returned": count,
        "precise": count,
        "attempted": count,
        # A release that fails may use all levels, but most releases use far fewer.
        "steps": nrjax.Quantity(bins=whole_numbers(items * levels)),
        "spent": nrjax.Quantity(bins=nrjax.LogBins.covering(2.0**-20, 2.0**20, 7), units=currency),
        "returned_by": nrjax.Quantity(bins=whole_numbers(items), dims=("mark",)),
        "precise_by": nrjax.Quantity(bins=None, dims=("mark",)),
        "precision": nrjax.Quantity(precision, nrjax.LogBins.covering(2.0**-12, 1.0, 7)),
    }


def _name(data: str) -> str:
    """Return the name of a data set or file in the form used in names of cases."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", Path(data).stem).lstrip("._") or "data"


def _load(settings: Settings, data: str) -> Iterator[tuple[Counts, int | None]]:
    """Yield pairs of counts and their number of Zipf samples, None for other data."""
    if data == "zipf":
        for samples in settings.samples or SAMPLES:
            yield zipf_counts(samples, settings.seed), samples
    else:
        is_known = data in ("flights", "reddit") or Path(data).suffix.lower() == ".csv"
        expected = "zipf, flights, reddit, or the path of a .csv file of items and counts"
        check(is_known, "data", data, expected)
        yield load_counts(data, settings.data_dir), None


_LAPLACE = {"laplace": LaplaceReduction, "discrete_laplace": DiscreteLaplaceReduction}


def _first_round(method: str, squared: float) -> Any:
    """Return the request for one release at a squared privacy parameter."""
    if method in _LAPLACE:
        return _LAPLACE[method](1.0, 1 / math.sqrt(squared))
    return BrownianReduction(1.0, 1 / squared)


@functools.cache
def _filter(
    name: str, method: str, chosen: Defaults, order: float | None, parts: tuple[Any, int]
) -> Ledger:
    """Return a filter. `parts` are the exponential mechanism and the number of items."""
    selection, items = parts
    budget = chosen.epsilon, chosen.delta
    relation: Any = {"relation": "add-remove" if selection.monotone else "replace"}
    if name == "unified":
        return nrjax.UnifiedFilter(*budget, **relation)
    if name == "gaussian":
        return nrjax.GaussianFilter(*budget, **relation)
    if order is not None:
        return nrjax.RenyiFilter(order, *budget, **relation)
    # The order must not depend on the counts, so it is tuned for equal shares of all items.
    share = 2 * zcdp_for(*budget) / items
    first = selection.request, _first_round(method, share)
    return nrjax.RenyiFilter.tuned(chosen.epsilon, chosen.delta, first)


def _case(
    settings: Settings,
    counts: Counts,
    samples: int | None,
    method: Any,
    filter_name: str,
    chosen: Defaults,
    smallest: float,
) -> nrjax.Case:
    add_or_remove = settings.neighbour == "add_or_remove"
    selection = ExponentialMechanism(chosen.selection, monotone=add_or_remove)
    items, currency = len(counts.items), CURRENCIES[filter_name]
    guard: Any = _filter(filter_name, method, chosen, settings.order, (selection, items))
    first = (selection.request, _first_round(method, smallest))
    expected = (
        f"small enough for one selection and one release at smallest = {smallest:g} to fit the "
        f"budget of the filter {filter_name} at epsilon = {chosen.epsilon:g}, delta = "
        f"{chosen.delta:g}"
    )
    hint = "Use a smaller --selection or --smallest, or a larger --epsilon."
    check(bool(guard.admits(guard.init(), first)), "selection", chosen.selection, expected, hint)
    error, levels = RelativeError(chosen.alpha), settings.levels
    release = CountRelease(counts.counts, selection, error, guard, smallest, method, levels, MARKS)
    size = [] if samples is None else [str(samples)]
    labels = {
        "data": counts.name,
        "samples": samples,
        "method": method,
        "filter": filter_name,
        **{name: getattr(chosen, name) for name in ("alpha", "epsilon", "delta", "selection")},
        "neighbour": settings.neighbour,
        "relation": guard.relation,
        "smallest": smallest,
        "levels": levels,
        "order": float(np.asarray(guard.order)) if filter_name == "renyi" else None,
        "budget": float(np.asarray(guard.budget)),
        "currency": currency,
        "items": items,
        "total": int(counts.counts.sum()),
        "unit": counts.unit,
        "dataset": "-".join([_name(counts.name), *size]),
    }
    if counts.remarks:
        labels["remarks"] = list(counts.remarks)
    marks = [mark / MARKS for mark in range(1, MARKS + 1)]
    return nrjax.Case(
        trial=release,
        labels=labels,
        quantities=_quantities(items, levels, currency),
        coordinates={"share": ("mark", marks)},
    )


def cases(settings: Settings) -> tuple[dict[str, nrjax.Case], dict[str, Any]]:
    """Load or draw the counts. Return every case by name, and facts for the results.

    The facts are the counts of each data set, with the counts expected of Zipf samples.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the counts or each other.
    """
    names = [_name(data) for data in settings.data]
    check(len(set(names)) == len(names), "data", settings.data, "files of different names")
    built, stored_counts = {}, {}
    for data in settings.data:
        chosen = settings.for_data(data)
        for counts, samples in _load(settings, data):
            if chosen.top is not None:
                counts = counts.largest(chosen.top)
            expected = None
            if samples is not None:
                expected = (samples * zipf_law()[[int(item) - 1 for item in counts.items]]).tolist()
            for smallest, guard, method in itertools.product(
                chosen.smallest, settings.filter, settings.method
            ):
                case = _case(settings, counts, samples, method, guard, chosen, smallest)
                dataset = case.labels["dataset"]
                start = f"-{smallest:g}" if len(chosen.smallest) > 1 else ""
                built[f"{dataset}-{method}-{guard}{start}"] = case
                integers = counts.counts.astype(np.int64).tolist()
                stored_counts[dataset] = {"counts": integers, "expected": expected}
    return built, {"counts": stored_counts}


def study(settings: Settings) -> Study:
    """Load or draw the counts and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the counts or each other.
    """
    name = "rogers2023"
    built, facts = cases(settings)
    return Study(name, built, reporting=reporting, settings=settings, facts=facts, source=name)
