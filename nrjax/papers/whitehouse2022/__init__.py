"""The experiments of Whitehouse 2022, section 6: what accuracy costs in ex-post privacy.

A task's statistic is released under noise that is taken away until the loss reaches a target; each
mechanism, test and trial gives one ex-post epsilon (figure 3). A second pass over a coarse grid,
never stopped, gives the loss at each epsilon (figure 2).
"""

import math
from typing import Any

import numpy as np

import nrjax
from nrjax import datasets
from nrjax._validation import check
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.released import Mechanism, Released
from nrjax.erm.statistics import Constants
from nrjax.papers._shared import of_task
from nrjax.papers.whitehouse2022.findings import Findings
from nrjax.papers.whitehouse2022.settings import Settings
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

reporting = Findings()

_TARGETS = {"kdd99": 0.41, "twitter": 0.025}
"""The paper's target losses."""

_TARGET_FACTORS = {"logistic": 1.03, "ridge": 1.9}
"""On other data the target is this many times the non-private optimum."""

_FLOOR_FACTOR = 1.05
"""The grid begins at least this far above the smallest epsilon that the boundary reaches."""

_RESOLUTION = 1e-4
"""How far the loss in a curve may be from the model's, as a share of what models gain."""

_OTHER: dict[str, Constants] = {"paper": "tight", "tight": "paper"}

_Problem = LogisticProblem | RidgeProblem


def _load(settings: Settings, task: str, data: str) -> tuple[datasets.Dataset, _Problem]:
    """The data set, and the task on it."""
    files = {"data_dir": settings.data_dir, "target": settings.target}
    data_set = datasets.load(data, task, rows=settings.rows, **files)
    kind = RidgeProblem if task == "ridge" else LogisticProblem
    return data_set, kind.fit(data_set.x, data_set.y, settings.regularisation)


def _target(settings: Settings, number: int, task: str, data: str, optimum: float) -> float:
    if settings.target_loss:
        target, where = of_task(settings.target_loss, number), data
    else:
        target = _TARGETS.get(data, _TARGET_FACTORS[task] * optimum)
        where = f"these {settings.rows} rows of {data}; give one"
    right = f"above {optimum:.6g}, the non-private optimum of {task} on {where}"
    check(np.isfinite(target) and target > optimum, "target_loss", target, right)
    return float(target)


def _rule(test: str, settings: Settings, target: float, sensitivity: float) -> nrjax.StoppingRule:
    if test == "public":
        return nrjax.PublicThreshold(-target)
    asked, noise = (-target, sensitivity), settings.test_noise
    if test == "above_threshold":
        return nrjax.InteractiveAboveThreshold(*asked, settings.test_epsilon, noise=noise)
    return nrjax.ReducedAboveThreshold(*asked, noise=noise)


def _lowest_epsilon(settings: Settings) -> float:
    """First level of the grid, which all mechanisms share."""
    low, floor = settings.lowest_epsilon, 0.0
    if "brownian" in settings.mechanism:
        # The least that a boundary reaches does not depend on the sensitivity.
        boundary = nrjax.LinearBoundary.tight_at_epsilon(settings.tight_at, 1.0, settings.delta)
        floor = float(np.asarray(boundary.a))
        least = f"above {floor:.6g}, the least that a boundary tight at {settings.tight_at} reaches"
        check(low is None or low > floor, "lowest_epsilon", low, least)
    if low is None:
        low = max(0.16, _FLOOR_FACTOR * floor)
    right = f"above the first level of the grid, {low:.6g}"
    check(low < settings.highest_epsilon, "highest_epsilon", settings.highest_epsilon, right)
    return low


def _on_grid(
    settings: Settings, problem: _Problem, name: str, constants: Constants, low: float
) -> tuple[Released, Mechanism, nrjax.Grid, np.ndarray]:
    """What a mechanism releases of a problem, with its grid, and the epsilon of each level."""
    noise = "gaussian" if name == "brownian" else "laplace"
    tight = {"tight_at_epsilon": settings.tight_at, "delta": settings.delta}
    own: dict[str, Any] = tight if name == "brownian" else {}
    if isinstance(problem, RidgeProblem):
        released = problem.released(noise, constants)
    else:
        released = problem.released(noise)
    parts, ends = released.mechanism(**own), (low, settings.highest_epsilon, settings.levels)
    grid, levels = nrjax.Grid.geometric(parts.guarantee, *ends), np.geomspace(*ends)
    if settings.boundary == "grid":
        parts = parts.on(grid)
        if parts.guarantee.fixed_times is not None:
            levels = np.asarray(parts.guarantee.epsilon(grid.times), float)
    return released, parts, grid, levels


def _curves(settings: Settings, problem: _Problem, name: str, low: float) -> dict[str, nrjax.Curve]:
    """The loss at every level of a coarse grid, by constants: a test that never says yes.

    That of logistic regression is known to within `_RESOLUTION` of the way from the optimum's to
    the zero model's, ln 2: less than a figure shows.
    """
    ridge, gain = isinstance(problem, RidgeProblem), math.log(2) - problem.optimum_loss
    # Ridge regression's exactly: it is cheap.
    resolution = None if ridge or gain <= 0 else 2 * _RESOLUTION * gain
    some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
    passes: dict[str, Constants] = {"curve": settings.constants}
    if ridge:
        other = _OTHER[settings.constants]
        passes[f"curve_{other}"] = other
    found = {}
    for key, constants in passes.items():
        released, parts, grid, levels = _on_grid(settings, problem, name, constants, low)
        times, along = np.asarray(grid.times)[some], {"epsilon": levels[some].tolist()}
        never = nrjax.PublicThreshold(np.inf)
        interaction = parts.interaction(nrjax.Grid.explicit(times), released.utility, never)
        found[key] = nrjax.Curve(interaction, {"utility": nrjax.Quantity()}, along, resolution)
    return found


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the data, find the optima and build every case, by name."""
    low = _lowest_epsilon(settings)
    found = {}
    for number, task in enumerate(settings.task):
        data_set, problem = _load(settings, task, of_task(settings.data, number))
        data = data_set.name
        target = _target(settings, number, task, data, problem.optimum_loss)
        whole = settings.utility_sensitivity == "loss"
        moved = problem.utility_sensitivity if whole else problem.excess_risk_sensitivity
        for mechanism in settings.mechanism:
            constants, curves = settings.constants, _curves(settings, problem, mechanism, low)
            released, parts, grid, _ = _on_grid(settings, problem, mechanism, constants, low)
            for test in settings.test:
                rule = _rule(test, settings, target, moved)
                labels = {
                    "task": task,
                    "mechanism": mechanism,
                    "test": test,
                    "data": data,
                    "optimum": problem.optimum_loss,
                    "gradient_norm": problem.minimum.gradient_norm,
                    "rows": problem.rows,
                    "dimension": problem.dimension,
                    "regularisation": settings.regularisation,
                    "sensitivity": float(released.sensitivity),
                    "delta": float(parts.guarantee.delta),
                    "target": target,
                }
                if data_set.remarks:
                    labels["remarks"] = list(data_set.remarks)
                if task == "ridge":
                    labels["constants"] = constants
                if (resolution := curves["curve"].resolution) is not None:
                    labels["curve_within"] = resolution / 2
                if test != "public":
                    labels |= {"utility_sensitivity": moved, "test_noise": settings.test_noise}
                found[f"{task}-{mechanism}-{test}"] = nrjax.Case(
                    trial=parts.interaction(grid, released.utility, rule),
                    labels=labels,
                    goal=-target,
                    curves=curves if test == settings.test[0] else {},  # whatever the test
                )
    return found


def study(settings: Settings) -> Study:
    """The study; loads the data and finds the optima.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or do not suit the task.
    """
    name = "whitehouse2022"
    return Study(name, cases(settings), reporting=reporting, settings=settings, source=name)
