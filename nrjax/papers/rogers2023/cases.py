"""The cases of `rogers2023`, built from its settings: counts, filters, sessions."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from nrjax import montecarlo
from nrjax._numerics import check
from nrjax.composition import (
    BrownianReduction,
    GaussianFilter,
    LaplaceReduction,
    RenyiFilter,
    UnifiedFilter,
)
from nrjax.composition._ledger import Ledger
from nrjax.composition.conversions import zcdp_for
from nrjax.counts import CountRelease, ExponentialMechanism, RelativeError
from nrjax.datasets import Counts, load_counts, zipf_counts, zipf_law
from nrjax.papers.rogers2023.settings import SAMPLES, Defaults, Settings
from nrjax.papers.rogers2023.sketch import session_sketch
from nrjax.program import Program
from nrjax.sketches import Sketch
from nrjax.studies import common
from nrjax.study.folds import again, folded
from nrjax.study.sketched import sketch_pass
from nrjax.study.store import Case, Coordinate, Pass, Variable

MARKS = 100
"""Shares of the budget at which results are counted."""

CURRENCIES = {"unified": "rho", "gaussian": "mu^2", "renyi": "Renyi divergence"}
"""What a filter counts."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """One case, ready to run."""

    case: Case
    release: CountRelease
    counts: Counts
    sketch: Sketch | None = None
    """What is kept of the sessions; None where all of it is."""


def _name(data: str) -> str:
    """The name of data as part of a case's."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", Path(data).stem).lstrip("._") or "data"


def _load(settings: Settings, data: str) -> Iterator[tuple[Counts, int | None]]:
    """The counts, and the sizes of the samples where they are drawn."""
    top = settings.for_data(data).top
    if data == "zipf":
        for samples in settings.samples or SAMPLES:
            counts = zipf_counts(samples, settings.seed)
            yield counts if top is None else counts.largest(top), samples
    else:
        known = data in ("flights", "reddit") or Path(data).suffix.lower() == ".csv"
        right = "zipf, flights, reddit, or the path of a .csv file with the header item,count"
        check(known, "data", data, right)
        counts = load_counts(data, settings.data_dir)
        yield counts if top is None else counts.largest(top), None


def _first_round(method: str, squared: float) -> BrownianReduction | LaplaceReduction:
    """A release at a squared privacy parameter."""
    if method == "laplace":
        return LaplaceReduction(1.0, 1 / math.sqrt(squared))
    return BrownianReduction(1.0, 1 / squared)


@functools.cache
def _filter(
    name: str, method: str, chosen: Defaults, order: float | None, parts: tuple[Any, int]
) -> Ledger:
    """The filter of the whole session; `parts` are its exponential mechanism and its items."""
    budget = chosen.epsilon, chosen.delta
    if name == "unified":
        return UnifiedFilter(*budget)
    if name == "gaussian":
        return GaussianFilter(*budget)
    if order is not None:
        return RenyiFilter(order, *budget)
    # The order must not be chosen by the counts: as if all items had an equal share.
    selection, items = parts
    share = 2 * zcdp_for(*budget) / items
    return RenyiFilter.tuned(*budget, (selection.request, _first_round(method, share)))


def _case(
    settings: Settings,
    counts: Counts,
    samples: int | None,
    method: Any,
    filter_name: str,
    chosen: Defaults,
    smallest: float,
) -> Setup:
    selection = ExponentialMechanism(
        chosen.selection, monotone=settings.neighbour == "add_or_remove"
    )
    items = len(counts.items)
    guard: Any = _filter(filter_name, method, chosen, settings.order, (selection, items))
    first = (selection.request, _first_round(method, smallest))
    right = (
        f"small enough for one selection and one release to fit into the budget of the filter "
        f"{filter_name} at epsilon = {chosen.epsilon:g}, delta = {chosen.delta:g} (smallest is "
        f"{smallest:g}; a larger epsilon would do, too)"
    )
    check(bool(guard.admits(guard.init(), first)), "selection", chosen.selection, right)
    release = CountRelease(
        counts.counts,
        selection,
        RelativeError(chosen.alpha),
        guard,
        smallest,
        method,
        settings.levels,
        MARKS,
    )
    numbers = {name: Variable("int32") for name in ("returned", "precise", "attempted", "steps")}
    spent = Variable(str(jnp.result_type(float)), attributes={"unit": CURRENCIES[filter_name]})
    marked = Variable("int32", (("mark", MARKS),))
    variables = numbers | {"spent": spent, "returned_by": marked, "precise_by": marked}
    along = {
        "share": Coordinate(
            "mark", tuple(mark / MARKS for mark in range(1, MARKS + 1)), {"unit": "of the budget"}
        )
    }
    chunk = common.chunk_size(settings)
    dataset = "-".join([_name(counts.name), *([] if samples is None else [str(samples)])])
    attributes = {
        "data": counts.name,
        "samples": samples,
        "method": method,
        "filter": filter_name,
        "trials": settings.trials,
        "alpha": chosen.alpha,
        "epsilon": chosen.epsilon,
        "delta": chosen.delta,
        "selection": chosen.selection,
        "neighbour": settings.neighbour,
        "smallest": smallest,
        "levels": settings.levels,
        "order": float(np.asarray(guard.order)) if filter_name == "renyi" else None,
        "budget": float(np.asarray(guard.budget)),
        "currency": CURRENCIES[filter_name],
        "items": items,
        "total": int(counts.counts.sum()),
        "unit": counts.unit,
        "dataset": dataset,
    }
    name = f"{dataset}-{method}-{filter_name}"
    if len(chosen.smallest) > 1:
        name += f"-{smallest:g}"
    outcome, sketch = Pass(settings.trials, chunk, variables, along), None
    if settings.keep == "summary":
        sketch = session_sketch(items, settings.levels, MARKS)
        outcome = sketch_pass(settings.trials, chunk, sketch, along)
    return Setup(Case(name, attributes, {"outcome": outcome}), release, counts, sketch)


def _setups(settings: Settings) -> Iterator[Setup]:
    for data in settings.data:
        chosen = settings.for_data(data)
        for counts, samples in _load(settings, data):
            for smallest in chosen.smallest:
                for filter_name in settings.filter:
                    for method in settings.method:
                        yield _case(
                            settings, counts, samples, method, filter_name, chosen, smallest
                        )


def setups(settings: Settings) -> list[Setup]:
    """Load or draw the counts and build every case.

    Raises:
        FileNotFoundError, ValueError: as `nrjax.datasets.load_counts`, or the settings do not suit
            the counts or each other.
    """
    names = [_name(data) for data in settings.data]
    check(len(set(names)) == len(names), "data", settings.data, "files of different names")
    return list(_setups(settings))


def also(cases: Sequence[Setup]) -> dict[str, Any]:
    """The counts behind the cases, for the store: by data set, with what the Zipf law expects."""
    found = {}
    for setup in cases:
        facts, counts = setup.case.attributes, setup.counts
        expected = None
        if facts["data"] == "zipf":
            places = np.array([int(item) - 1 for item in counts.items])
            expected = (facts["samples"] * zipf_law()[places]).tolist()
        found[facts["dataset"]] = {
            "counts": counts.counts.astype(np.int64).tolist(),
            "expected": expected,
        }
    return {"counts": found}


def programs(cases: Sequence[Setup]) -> dict[str, dict[str, Program]]:
    """The programs that fill a store, by case and pass; cases of one layout share a compilation."""
    found: dict[tuple[str, str, int], Program] = {}
    result = {}
    for setup in cases:
        facts = setup.case.attributes
        kind = facts["method"], facts["filter"], facts["items"]
        if kind not in found:
            layout = setup.case.passes["outcome"]
            program = montecarlo.sessions(setup.release, layout.largest)
            found[kind] = folded(program, layout, setup.sketch)
        result[setup.case.name] = {"outcome": again(found[kind], setup.release, setup.sketch)}
    return result
