"""The cases of `whitehouse2022`, built from its settings: data, mechanisms, tests, curves."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from nrjax import datasets
from nrjax._numerics import check
from nrjax.erm import LogisticProblem, Minimum, RidgeProblem
from nrjax.erm.released import Mechanism, Released
from nrjax.erm.statistics import Constants
from nrjax.guarantees import LinearBoundary
from nrjax.papers.whitehouse2022.settings import Settings
from nrjax.schedules import Grid
from nrjax.stopping import InteractiveAboveThreshold, PublicThreshold, ReducedAboveThreshold
from nrjax.study.case import Case, Curve, Quantity
from nrjax.types import Guarantee, StoppingRule

_TARGETS = {"kdd99": 0.41, "twitter": 0.025}
"""The paper's target losses."""

_TARGET_FACTORS = {"logistic": 1.03, "ridge": 1.9}
"""On other data the target is this many times the non-private optimum."""

_FLOOR_FACTOR = 1.05
"""The grid begins at least this far above the smallest epsilon that the boundary reaches."""


class _Problem(Protocol):
    """What the study needs to know of a task on a data set."""

    @property
    def rows(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def minimum(self) -> Minimum: ...
    @property
    def optimum(self) -> np.ndarray: ...
    @property
    def optimum_loss(self) -> float: ...
    @property
    def utility_sensitivity(self) -> float: ...
    @property
    def excess_risk_sensitivity(self) -> float: ...


def _per_task(values: tuple, task: int) -> Any:
    return values[task if len(values) > 1 else 0]


def _problem(settings: Settings, task: str, data: str) -> tuple[str, _Problem]:
    """Name of the data set, and the task on it."""
    data_set = datasets.load(
        data, task, rows=settings.rows, data_dir=settings.data_dir, target=settings.target
    )
    x, y, regularisation = data_set.x, data_set.y, settings.regularisation
    if task == "ridge":
        return data_set.name, RidgeProblem.fit(x, y, regularisation)
    return data_set.name, LogisticProblem.fit(x, y, regularisation)


def _target(settings: Settings, number: int, task: str, data: str, optimum: float) -> float:
    if settings.target_loss:
        target = _per_task(settings.target_loss, number)
        right = f"above {optimum:.6g}, the non-private optimum of {task} on {data}"
    else:
        target = _TARGETS.get(data, _TARGET_FACTORS[task] * optimum)
        right = (
            f"above {optimum:.6g}, the non-private optimum of {task} on these "
            f"{settings.rows} rows of {data}; give one"
        )
    check(np.isfinite(target) and target > optimum, "target_loss", target, right)
    return float(target)


def _released(
    settings: Settings, problem: _Problem, name: str, constants: Constants
) -> tuple[Released, Mechanism]:
    """What is released of a problem under a mechanism's noise, and the mechanism."""
    noise = "gaussian" if name == "brownian" else "laplace"
    if isinstance(problem, RidgeProblem):
        released = problem.released(noise, constants)
    else:
        assert isinstance(problem, LogisticProblem)
        released = problem.released(noise)
    if name == "brownian":
        at, delta = settings.tight_at, settings.delta
        return released, released.mechanism(tight_at_epsilon=at, delta=delta)
    return released, released.mechanism()


def _utility_sensitivity(settings: Settings, problem: _Problem) -> float:
    if settings.utility_sensitivity == "loss":
        return problem.utility_sensitivity
    return problem.excess_risk_sensitivity


def _rule(test: str, settings: Settings, problem: _Problem, target: float) -> StoppingRule:
    if test == "public":
        return PublicThreshold(-target)
    sensitivity = _utility_sensitivity(settings, problem)
    if test == "above_threshold":
        return InteractiveAboveThreshold(-target, sensitivity, settings.test_epsilon)
    return ReducedAboveThreshold(-target, sensitivity)


def _lowest_epsilon(settings: Settings) -> float:
    """First level of the grid, which all mechanisms share."""
    low = settings.lowest_epsilon
    floor = 0.0
    if "brownian" in settings.mechanism:
        # The least that a boundary reaches does not depend on the sensitivity.
        boundary = LinearBoundary.tight_at_epsilon(settings.tight_at, 1.0, settings.delta)
        floor = float(np.asarray(boundary.a))
        least = f"above {floor:.6g}, the least that a boundary tight at {settings.tight_at} reaches"
        check(low is None or low > floor, "lowest_epsilon", low, least)
    if low is None:
        low = max(0.16, _FLOOR_FACTOR * floor)
    right = f"above the first level of the grid, {low:.6g}"
    check(low < settings.highest_epsilon, "highest_epsilon", settings.highest_epsilon, right)
    return low


def _other(constants: Constants) -> Constants:
    return "tight" if constants == "paper" else "paper"


@dataclasses.dataclass(frozen=True)
class _Levels:
    """The grid of epsilons, and the coarser one of the curves."""

    epsilons: np.ndarray
    some: np.ndarray
    """Numbers of the levels of the coarser grid."""

    @classmethod
    def of(cls, settings: Settings) -> "_Levels":
        low = _lowest_epsilon(settings)
        epsilons = np.geomspace(low, settings.highest_epsilon, settings.levels)
        some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
        return cls(epsilons, some)

    def grid(self, guarantee: Guarantee) -> Grid:
        return Grid.geometric(guarantee, self.epsilons[0], self.epsilons[-1], self.epsilons.size)

    def coarse(self, guarantee: Guarantee) -> Grid:
        return Grid.explicit(np.asarray(self.grid(guarantee).times)[self.some])


def _curve(
    settings: Settings, levels: _Levels, problem: _Problem, mechanism: str, constants: Constants
) -> Curve:
    """The loss at every level of the coarse grid: a test that never says yes."""
    released, parts = _released(settings, problem, mechanism, constants)
    never, schedule = PublicThreshold(np.inf), levels.coarse(parts.guarantee)
    interaction = parts.interaction(schedule, released.utility, never)
    along = {"epsilon": levels.epsilons[levels.some].tolist()}
    return Curve(interaction, {"utility": Quantity()}, along)


def cases(settings: Settings) -> Iterator[tuple[str, Case]]:
    """Load the data, find the optima and build every case, with its name."""
    levels = _Levels.of(settings)
    low, high = float(levels.epsilons[0]), settings.highest_epsilon
    # A test costs what was chosen, or as much as the releases.
    most = high + max(high, settings.test_epsilon)
    for number, task in enumerate(settings.task):
        data, problem = _problem(settings, task, _per_task(settings.data, number))
        target = _target(settings, number, task, data, problem.optimum_loss)
        for mechanism in settings.mechanism:
            released, parts = _released(settings, problem, mechanism, settings.constants)
            grid = levels.grid(parts.guarantee)
            for test in settings.test:
                rule = _rule(test, settings, problem, target)
                curves = {}
                if test == settings.test[0]:  # the curves do not depend on the test
                    for name, constants in _curves(settings, task):
                        curves[name] = _curve(settings, levels, problem, mechanism, constants)
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
                if task == "ridge":
                    labels["constants"] = settings.constants
                if test != "public":
                    labels["utility_sensitivity"] = _utility_sensitivity(settings, problem)
                yield (
                    f"{task}-{mechanism}-{test}",
                    Case(
                        trial=parts.interaction(grid, released.utility, rule),
                        labels=labels,
                        goal=-target,
                        curves=curves,
                        epsilons=(low, most, most),
                    ),
                )


def _curves(settings: Settings, task: str) -> list[tuple[str, Constants]]:
    """Name and constants of the passes that measure the loss at each epsilon."""
    curves: list[tuple[str, Constants]] = [("curve", settings.constants)]
    if task == "ridge":
        other = _other(settings.constants)
        curves.append((f"curve_{other}", other))
    return curves
