"""The experiments of Whitehouse 2022, section 6: the ex-post privacy that accuracy costs.

Each trial releases a task's statistics under noise that is reduced until the loss reaches a target,
and gives one ex-post epsilon (figure 3). A second pass over a coarse grid, which never stops,
measures the loss at each epsilon (figure 2).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

import nrjax
from nrjax import datasets
from nrjax._base.sensitivities import Noise
from nrjax._base.validation import check
from nrjax.erm import LogisticProblem, ObjectivePerturbation, PerturbedPath, RidgeProblem
from nrjax.erm.released import Released
from nrjax.erm.statistics import Constants
from nrjax.papers._settings import of_task, parsed_bounds
from nrjax.papers.whitehouse2022.report import ClaimReporting
from nrjax.papers.whitehouse2022.settings import OBJECTIVE, Settings
from nrjax.stopping import accuracy
from nrjax.study.release_error import RELEASE_ERROR
from nrjax.study.study import Study

reporting = ClaimReporting()

_TARGETS = {"kdd99": 0.41, "twitter": 0.025}  # the paper's target losses
_TARGET_FACTORS = {"logistic": 1.03, "ridge": 1.9}
"""Target loss on data that are not the paper's, as a multiple of the non-private optimum."""

_FLOOR_FACTOR = 1.05
"""Least first level of the grid, as a multiple of the boundary's smallest epsilon."""

_RESOLUTION = 1e-4
"""Largest error of a curve's losses, as a fraction of the gain over the zero model."""

_NOISES: dict[str, Noise] = {
    "brownian": "brownian",
    "laplace": "laplace",
    "spherical": "spherical laplace",
}

_OTHER: dict[str, Constants] = {"paper": "tight", "tight": "paper"}

Problem = LogisticProblem | RidgeProblem


class _Goal(NamedTuple):
    """The target loss of a task, its optimum, and the sensitivity of the loss."""

    target: float
    optimum: float
    sensitivity: float


def _load(settings: Settings, task: str, data: str) -> datasets.Dataset:
    """Load the data set of a task."""
    own: dict[str, Any] = {"target": settings.target, "bounds": parsed_bounds(settings.bounds)}
    own |= {"rows": settings.rows, "data_dir": settings.data_dir}
    return datasets.load(data, task, **own, normalise="l2_rows")


def _target(settings: Settings, number: int, task: str, data: str, optimum: float) -> float:
    """Return the target loss of a task, which must be above the optimum."""
    if settings.target_loss:
        target, hint = of_task(settings.target_loss, number), ""
    else:
        target = _TARGETS.get(data, _TARGET_FACTORS[task] * optimum)
        hint = "Give a --target-loss for these rows."
    expected = f"above {optimum:.6g}, the non-private optimum of {task} on {data}"
    check(np.isfinite(target) and target > optimum, "target_loss", target, expected, hint)
    return float(target)


def _rule(
    test: str, settings: Settings, case: _Goal, levels: np.ndarray
) -> tuple[nrjax.StoppingRule, int]:
    """Return the rule of a test, and the number of the first level that it uses."""
    if test == "public":
        return nrjax.PublicThreshold(-case.target), 0
    numbers, noise = (-case.target, case.sensitivity), settings.test_noise
    epsilon = settings.test_epsilon
    if settings.confidence is not None:
        options: Any = {"best": -case.optimum, "confidence": settings.confidence, "noise": noise}
        try:
            private = accuracy.private_test(numbers[0], levels, numbers[1], **options)
        except ValueError as error:
            raise ValueError(f"{error} Or raise --target-loss or --highest-epsilon.") from None
        if test == "reduced_above_threshold":
            return private.rule, private.first
        gamma, each = 1 - settings.confidence, 1 / levels.size
        needed = accuracy.epsilon_for_shortfall(private.margin, numbers[1], gamma, each, noise)
        numbers, epsilon = (private.rule.threshold, numbers[1]), float(needed)
    if test == "above_threshold":
        return nrjax.InteractiveAboveThreshold(*numbers, epsilon, noise=noise), 0
    return nrjax.ReducedAboveThreshold(*numbers, noise=noise), 0


def _lowest_epsilon(settings: Settings) -> float:
    """Return the first level of the grid, which all mechanisms share."""
    low, floor = settings.lowest_epsilon, 0.0
    if "brownian" in settings.mechanism and settings.boundary != "minimax":
        # The smallest epsilon that a boundary reaches does not depend on the sensitivity.
        boundary = nrjax.LinearBoundary.tight_at_epsilon(settings.tight_at, 1.0, settings.delta)
        floor = float(np.asarray(boundary.a))
        expected = f"above {floor:.6g}, the smallest of a boundary tight at {settings.tight_at}"
        check(low is None or low > floor, "lowest_epsilon", low, expected)
    if low is None:
        low = max(0.16, _FLOOR_FACTOR * floor)
    expected = f"above the first level of the grid, {low:.6g}"
    check(low < settings.highest_epsilon, "highest_epsilon", settings.highest_epsilon, expected)
    return low


def _on_grid(
    settings: Settings,
    problem: Problem,
    name: str,
    constants: Constants,
    low: float,
    relation: str,
) -> tuple[Released, nrjax.Mechanism, nrjax.Grid, np.ndarray]:
    """Return a mechanism's private value, parts and grid, and the epsilon at each time."""
    brownian, noise = name == "brownian", _NOISES[name]
    if isinstance(problem, RidgeProblem):
        released = problem.released(noise, constants, relation)
    else:
        released = problem.released(noise, relation)
    tight_at = None if settings.boundary == "minimax" else settings.tight_at
    tight: dict[str, Any] = {"tight_at_epsilon": tight_at, "delta": settings.delta}
    parts = released.mechanism(**(tight if brownian else {}))
    ends = low, settings.highest_epsilon, settings.levels
    if brownian and settings.boundary == "minimax":
        parts = parts.on(ends)
        guarantee: Any = parts.guarantee
        grid = nrjax.Grid.explicit(guarantee.times)
    else:
        guarantee = parts.guarantee
        grid = nrjax.Grid.geometric(guarantee, *ends)
    levels = np.geomspace(*ends)
    if settings.boundary == "grid":
        parts = parts.on(grid)
        guarantee = parts.guarantee
        if guarantee.fixed_times is not None:
            levels = np.asarray(guarantee.epsilon(grid.times), float)
    return released, parts, grid, levels


def _curves(
    settings: Settings, problem: Problem, name: str, low: float, relation: str
) -> dict[str, nrjax.Curve]:
    """Return passes that measure the loss on a coarse grid, by name: one for each `constants`.

    Losses of logistic regression have errors up to a fraction `_RESOLUTION` of the gap between the
    optimum's loss and the zero model's, ln 2. Ridge losses are exact, which is cheap.
    """
    ridge, gain = isinstance(problem, RidgeProblem), math.log(2) - problem.optimum_loss
    resolution = None if ridge or gain <= 0 else 2 * _RESOLUTION * gain
    some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
    passes: dict[str, Constants] = {"curve": settings.constants}
    if ridge:
        other = _OTHER[settings.constants]
        passes[f"curve_{other}"] = other
    curves = {}
    for key, constants in passes.items():
        on_grid = _on_grid(settings, problem, name, constants, low, relation)
        released, parts, grid, levels = on_grid
        times, along = np.asarray(grid.times)[some], {"epsilon": levels[some].tolist()}
        never = nrjax.PublicThreshold(np.inf)
        interaction = parts.interaction(nrjax.Grid.explicit(times), released.utility, never)
        curves[key] = nrjax.Curve(interaction, {"utility": nrjax.Quantity()}, along, resolution)
    return curves


def _objective(
    problem: LogisticProblem, like: nrjax.Curve, relation: str
) -> dict[str, nrjax.Curve]:
    """Return the pass of objective perturbation at the epsilons of another curve, by name.

    Each release has the distribution of one release at its epsilon. Epsilons too small for that
    without an additional penalty are left out.
    """
    made = (ObjectivePerturbation(problem, e, relation) for e in like.along["epsilon"])
    releases = [release for release in made if release.extra == 0]
    if not releases:
        return {}
    process = PerturbedPath(**vars(releases[-1].mechanism.process))
    mechanism = nrjax.Mechanism(problem.optimum, process, None)
    grid = nrjax.Grid.explicit(np.asarray([release.time for release in releases]))
    never = nrjax.PublicThreshold(np.inf)
    interaction = mechanism.interaction(grid, like.interaction.utility, never)
    along = {"epsilon": [float(release.epsilon) for release in releases]}
    return {OBJECTIVE: nrjax.Curve(interaction, like.quantities, along, like.resolution)}


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the data, fit the models and return every case by name."""
    names = (of_task(settings.data, number) for number in range(len(settings.task)))
    loaded = (_load(settings, *each) for each in zip(settings.task, names, strict=True))
    return cases_of(settings, loaded)


def cases_of(settings: Settings, loaded: Iterable[datasets.Dataset]) -> dict[str, nrjax.Case]:
    """Fit a model to each data set and return every case by name."""
    built = {}
    for number, data_set in enumerate(loaded):
        problem = problem_of(settings, data_set)
        task, data = data_set.task, data_set.name
        target = _target(settings, number, task, data, problem.optimum_loss)
        built |= cases_of_problem(settings, data_set, problem, target)
    return built


def problem_of(settings: Settings, data_set: datasets.Dataset) -> Problem:
    """Fit the model of a data set's task."""
    kind = RidgeProblem if data_set.task == "ridge" else LogisticProblem
    return kind.fit(data_set.x, data_set.y, settings.regularisation)


def cases_of_problem(
    settings: Settings,
    data_set: datasets.Dataset,
    problem: Problem,
    target: float,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, nrjax.Case]:
    """Return the cases of one problem and target by name, where `facts` are further labels."""
    task, data, relation, built = data_set.task, data_set.name, data_set.relation, {}
    utility: Any = problem.released("laplace", relation=relation).utility
    if settings.utility_sensitivity == "excess_risk":
        utility = utility.excess_risk()
    sensitivity = utility.sensitivity
    goal = _Goal(target, problem.optimum_loss, sensitivity)
    where = _lowest_epsilon(settings), relation
    for mechanism in settings.mechanism:
        constants, curves = settings.constants, _curves(settings, problem, mechanism, *where)
        wanted = OBJECTIVE in settings.baseline and mechanism == settings.mechanism[0]
        if wanted and isinstance(problem, LogisticProblem):
            curves |= _objective(problem, curves["curve"], relation)
        released, parts, grid, levels = _on_grid(settings, problem, mechanism, constants, *where)
        for test in settings.test:
            rule, first = _rule(test, settings, goal, levels)
            used = nrjax.Grid.explicit(np.asarray(grid.times)[first:]) if first else grid
            guarantee: Any = parts.guarantee
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
                "delta": float(guarantee.delta),
                "target": target,
            }
            labels |= facts or {}
            if data_set.remarks:
                labels["remarks"] = list(data_set.remarks)
            if task == "ridge":
                labels["constants"] = constants
            if (resolution := curves["curve"].resolution) is not None:
                labels["curve_within"] = resolution / 2
            if test != "public":
                labels["utility_sensitivity"] = sensitivity
                labels["test_noise"] = settings.test_noise
            built[f"{task}-{mechanism}-{test}"] = nrjax.Case(
                trial=parts.interaction(used, released.utility, rule),
                labels=labels,
                goal=-target,
                curves=curves if test == settings.test[0] else {},  # tests share the curves
            )
    return built


def study(settings: Settings) -> Study:
    """Load the data and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the data do not suit the task.
    """
    name = "whitehouse2022"
    return Study(
        name,
        cases(settings),
        quantities=RELEASE_ERROR if settings.release_error else {},
        reporting=reporting,
        settings=settings,
        source=name,
    )
