"""The study of private tuning: candidates, targets, and one case per task and method."""

import itertools
import math
import re

import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax import datasets
from nrjax._base.validation import check
from nrjax.erm import LogisticProblem, RidgeProblem, sensitivity
from nrjax.papers.tuning.report import TuningReporting
from nrjax.papers.tuning.settings import FIXED, Settings
from nrjax.papers.tuning.trials import Table, Tuning
from nrjax.study.study import Study

reporting = TuningReporting()

_MOST = {"logistic": 5 * math.log(2), "ridge": 0.5}
"""Largest loss of a row, to which losses are clipped.

It is five times the loss of the zero model, so that a confident constant is worse than the zero
model; or the loss of the zero model on the largest label."""

_QUANTITIES = {
    name: nrjax.Quantity(bins=None, units=units, dims=("level",))
    for name, units in (("test_loss", ""), ("paid", "nat"), ("runs", ""))
}


def _fitted(task: str, x: np.ndarray, y: np.ndarray, factor: float) -> tuple[np.ndarray, float]:
    """Return an optimum and its l1-sensitivity."""
    if task == "logistic":
        problem = LogisticProblem.fit(x, y, factor)
        return problem.optimum, float(np.asarray(problem.l1_sensitivity))
    released = RidgeProblem.fit(x, y, factor, ball="tight").released_optimum("laplace", "tight")
    return released.value, float(np.asarray(released.sensitivity))


def _table(settings: Settings, task: str) -> tuple[Table, datasets.Dataset, list[str]]:
    """Return the candidates of a task, its data, and the candidates' names."""
    data = datasets.load(settings.data, task, rows=settings.rows)
    third = len(data.x) // 3
    train, scored, measured = (slice(third * i, third * (i + 1)) for i in range(3))
    names, optima, scales = [], [], []
    for pattern, factor in itertools.product(settings.features, settings.regularisation):
        used = [i for i, name in enumerate(data.feature_names) if re.search(pattern, name)]
        check(len(used) > 0, "features", pattern, f"a pattern of some of {data.feature_names}")
        optimum, scale = _fitted(task, data.x[train][:, used], data.y[train], factor)
        for values, own in ((optima, optimum), (scales, scale)):
            values.append(np.zeros(len(data.feature_names)))
            values[-1][used] = own
        names.append(f"{len(used)} features, lambda {factor:g}")
    bound, dtype = _MOST[task], jnp.result_type(float)

    def rows(part: slice) -> tuple[Array, Array]:
        return jnp.asarray(data.x[part], dtype), jnp.asarray(data.y[part], dtype)

    table = Table(
        optima=jnp.asarray(np.array(optima), dtype),
        scales=jnp.asarray(np.array(scales), dtype),
        scored=rows(scored),
        measured=rows(measured),
        most=bound,
        sensitivity=sensitivity.evaluated(sensitivity.bounded_loss(third, bound), bound),
        logistic=task == "logistic",
    )
    return table, data, names


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the data, fit the candidates and return every case by name.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the data.
    """
    low, high = settings.lowest_epsilon, settings.highest_epsilon
    epsilons = np.geomspace(low, high, settings.levels)
    stages = low * 2.0 ** np.arange(math.floor(math.log2(high / low)) + 1)
    built, dtype = {}, jnp.result_type(float)
    for task in settings.task:
        table, data, names = _table(settings, task)
        losses = [float(table.loss(model, table.scored)) for model in table.optima]
        zero = float(table.loss(jnp.zeros_like(table.optima[0]), table.scored))
        targets = zero - (zero - min(losses)) * np.array(settings.gain)
        for method in settings.method:
            levels = epsilons if method in FIXED else targets
            along = np.repeat(levels, len(names) if method == "single" else 1)
            labels = {
                "task": task,
                "method": method,
                "data": data.name,
                "rows": len(data.x),
                "zero_loss": float(table.loss(jnp.zeros_like(table.optima[0]), table.measured)),
                "candidates": names,
                "targets": targets.tolist(),
                "stages": stages.tolist(),
            }
            if data.remarks:
                labels["remarks"] = list(data.remarks)
            own = (jnp.asarray(levels, dtype), jnp.asarray(stages, dtype))
            built[f"{task}-{method}"] = nrjax.Case(
                trial=Tuning(table, own[0], own[1], settings.runs, settings.stop, method),
                labels=labels,
                quantities=_QUANTITIES,
                coordinates={"along": ("level", along.tolist())},
                batching=nrjax.Batching(tile=8, lanes=8),
            )
    return built


def study(settings: Settings) -> Study:
    """Load the data, fit the candidates and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the data.
    """
    name = "tuning"
    return Study(name, cases(settings), reporting=reporting, settings=settings, source=name)
