"""The experiments of Rogers 2023, section 7: counts within a relative error, under one budget.

A session finds the largest count by the exponential mechanism, releases it under noise that is
reduced until it looks good enough, and goes on until the budget of a privacy filter is used up.
What is counted are the results returned, and how many of them are as good as they look.
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
from nrjax._validation import check
from nrjax.composition import BrownianReduction, DiscreteLaplaceReduction, LaplaceReduction
from nrjax.composition._ledger import Ledger
from nrjax.composition.conversions import zcdp_for
from nrjax.counts import CountRelease, ExponentialMechanism, RelativeError
from nrjax.datasets import Counts, load_counts, zipf_counts, zipf_law
from nrjax.papers.rogers2023.findings import Findings
from nrjax.papers.rogers2023.settings import SAMPLES, Defaults, Settings
from nrjax.study.histograms import whole_numbers
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

reporting = Findings()

MARKS = 100
"""Shares of the budget at which results are counted."""

CURRENCIES = {"unified": "rho", "gaussian": "mu^2", "renyi": "Renyi divergence"}
"""What a filter counts."""


def precision(session: Any) -> Array:
    """Share of the results within alpha of the truth; 1 without any, as in the paper."""
    share = session.precise / jnp.maximum(session.returned, 1)
    return jnp.where(session.returned > 0, share, 1.0)


def _quantities(items: int, levels: int, currency: str) -> dict[str, nrjax.Quantity]:
    """What is kept of a session over so many items, each tried at most once."""
    counted = nrjax.Quantity(bins=whole_numbers(items))
    return {
        "returned": counted,
        "precise": counted,
        "attempted": counted,
        # A release that fails may go through levels without end; most end long before.
        "steps": nrjax.Quantity(bins=whole_numbers(items * levels)),
        "spent": nrjax.Quantity(bins=nrjax.LogBins.covering(2.0**-20, 2.0**20, 7), units=currency),
        "returned_by": nrjax.Quantity(bins=whole_numbers(items), dims=("mark",)),
        "precise_by": nrjax.Quantity(bins=None, dims=("mark",)),
        "precision": nrjax.Quantity(precision, nrjax.LogBins.covering(2.0**-12, 1.0, 7)),
    }


def _name(data: str) -> str:
    """The name of data as part of a case's."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", Path(data).stem).lstrip("._") or "data"


def _load(settings: Settings, data: str) -> Iterator[tuple[Counts, int | None]]:
    """The counts, and the sizes of the samples where they are drawn."""
    if data == "zipf":
        for samples in settings.samples or SAMPLES:
            yield zipf_counts(samples, settings.seed), samples
    else:
        known = data in ("flights", "reddit") or Path(data).suffix.lower() == ".csv"
        right = "zipf, flights, reddit, or the path of a .csv file with two columns, item and count"
        check(known, "data", data, right)
        yield load_counts(data, settings.data_dir), None


_LAPLACE = {"laplace": LaplaceReduction, "discrete_laplace": DiscreteLaplaceReduction}


def _first_round(method: str, squared: float) -> Any:
    """A release at a squared privacy parameter."""
    if method in _LAPLACE:
        return _LAPLACE[method](1.0, 1 / math.sqrt(squared))
    return BrownianReduction(1.0, 1 / squared)


@functools.cache
def _filter(
    name: str, method: str, chosen: Defaults, order: float | None, parts: tuple[Any, int]
) -> Ledger:
    """The filter of the whole session; `parts` are its exponential mechanism and its items."""
    budget = chosen.epsilon, chosen.delta
    if name == "unified":
        return nrjax.UnifiedFilter(*budget)
    if name == "gaussian":
        return nrjax.GaussianFilter(*budget)
    if order is not None:
        return nrjax.RenyiFilter(order, *budget)
    # The order must not be chosen by the counts: as if all items had an equal share.
    selection, items = parts
    share = 2 * zcdp_for(*budget) / items
    return nrjax.RenyiFilter.tuned(*budget, (selection.request, _first_round(method, share)))


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
    right = (
        f"small enough for one selection and one release to fit into the budget of the filter "
        f"{filter_name} at epsilon = {chosen.epsilon:g}, delta = {chosen.delta:g} (smallest is "
        f"{smallest:g}; a larger epsilon would do, too)"
    )
    check(bool(guard.admits(guard.init(), first)), "selection", chosen.selection, right)
    wanted, levels = RelativeError(chosen.alpha), settings.levels
    release = CountRelease(counts.counts, selection, wanted, guard, smallest, method, levels, MARKS)
    size = [] if samples is None else [str(samples)]
    labels = {
        "data": counts.name,
        "samples": samples,
        "method": method,
        "filter": filter_name,
        **{name: getattr(chosen, name) for name in ("alpha", "epsilon", "delta", "selection")},
        "neighbour": settings.neighbour,
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
    """Load or draw the counts and build every case, by name; and what else the store should hold.

    That is the counts, by data set, with what the Zipf law expects.

    Raises:
        FileNotFoundError, ValueError: as `nrjax.datasets.load_counts`, or the settings do not suit
            the counts or each other.
    """
    names = [_name(data) for data in settings.data]
    check(len(set(names)) == len(names), "data", settings.data, "files of different names")
    found, known = {}, {}
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
                begin = f"-{smallest:g}" if len(chosen.smallest) > 1 else ""
                found[f"{dataset}-{method}-{guard}{begin}"] = case
                held = counts.counts.astype(np.int64).tolist()
                known[dataset] = {"counts": held, "expected": expected}
    return found, {"counts": known}


def study(settings: Settings) -> Study:
    """The study; loads or draws the counts.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    name = "rogers2023"
    found, facts = cases(settings)
    return Study(name, found, reporting=reporting, settings=settings, facts=facts, source=name)
