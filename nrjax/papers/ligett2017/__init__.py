"""The experiments of Ligett 2017: what it costs to be within alpha of the optimum.

For each task, method and goal alpha, trials of private empirical risk minimisation that stop once
the excess risk is privately seen to be small: noise reduction (Algorithms 3 and 5), the doubling
method (Algorithm 4), the theory's epsilon, and the Brownian mechanism with the same goals.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax import datasets
from nrjax._validation import check
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.released import Released
from nrjax.papers._shared import of_task
from nrjax.papers.ligett2017 import presets
from nrjax.papers.ligett2017.findings import Findings
from nrjax.papers.ligett2017.settings import Method, Settings
from nrjax.sensitivities import Noise
from nrjax.study.study import Study

__all__ = ["Settings", "cases", "reporting", "study"]

reporting = Findings()

_TIGHT_AT = 1 / 64
"""The Brownian boundary is tight at this share of the theorem's epsilon, unless chosen; under
ReducedAboveThreshold at the first level of its grid, where most trials stop."""

_PUBLIC = ("perturbation", "rows", "dimension", "regularisation")


class _Task(NamedTuple):
    """A task on a data set, and what is released of it under either noise."""

    public: presets.Problem
    data: str
    problem: LogisticProblem | RidgeProblem
    laplace: Released
    gaussian: Released
    remarks: tuple[str, ...]


def norm_of_hypothesis(outcome: nrjax.Outcome) -> Array:
    """l2 norm of a trial's last hypothesis."""
    return jnp.linalg.norm(outcome.hypothesis)


def excess_risk(outcome: nrjax.Outcome) -> Array:
    """Of a trial's last hypothesis; minus the utility."""
    return -outcome.utility


_QUANTITIES = {"norm": norm_of_hypothesis, "excess_risk": excess_risk}


def _load(settings: Settings, task: presets.Task, data: str) -> _Task:
    rows = "all" if settings.rows is None else settings.rows
    files = {"data_dir": settings.data_dir, "target": settings.target}
    data_set = datasets.load(data, task, rows=rows, normalise="max_l1", **files)
    name, x, y = data_set.name, data_set.x, data_set.y
    if settings.copies > 1:
        name = f"{name} x {settings.copies}"
        x, y = np.tile(x, (settings.copies, 1)), np.tile(y, settings.copies)
    perturbation = "output" if task == "logistic" else settings.ridge_perturbation
    penalty = float(settings.regularisation)
    public = presets.Problem(settings.constants, task, perturbation, len(x), x.shape[1], penalty)
    if task == "logistic":
        problem = LogisticProblem.fit(x, y, penalty, ball=public.ball)
    else:
        problem = RidgeProblem.fit(x, y, penalty, row_norm="l1", ball=public.ball)
    laplace, gaussian = (_released(public, problem, noise) for noise in ("laplace", "gaussian"))
    return _Task(public, name, problem, laplace, gaussian, data_set.remarks)


def _released(
    public: presets.Problem, problem: LogisticProblem | RidgeProblem, noise: Noise
) -> Released:
    """The private value, its sensitivity, and a utility that is minus the excess risk."""
    if isinstance(problem, LogisticProblem):
        released = problem.released(noise)
    elif public.perturbation == "output":
        released = problem.released_optimum(noise, public.ball)
    else:
        released = problem.released(noise, "l1_rows")
    utility = released.utility.excess_risk()
    # The cases of a task share its arrays: on the device, and in the run's dtype, once.
    dtype = jnp.result_type(float)

    def placed(leaf: Any) -> Any:
        return jnp.asarray(leaf, dtype) if np.ndim(leaf) else leaf

    return released._replace(value=placed(released.value), utility=jax.tree.map(placed, utility))


def _interaction(
    settings: Settings, task: _Task, method: Method, alpha: float
) -> tuple[nrjax.Interaction, dict[str, Any]]:
    """What a method makes of a task and a goal, and facts about it."""
    public, gamma, count = task.public, settings.gamma, settings.levels
    goal = public, alpha
    gaussian, reduced = method.startswith("brownian"), method == "brownian_reduced"
    released = task.gaussian if gaussian else task.laplace
    utility = released.utility
    if method == "theory":
        parts = released.mechanism()
        one = np.atleast_1d(parts.guarantee.time(presets.theory_epsilon(*goal)))
        # The theorems for noise on the optimum have no ball, and no test looks at the release.
        if public.perturbation == "output":
            utility = dataclasses.replace(utility, radius=np.inf)
        always = nrjax.PublicThreshold(-np.inf)
        return parts.interaction(nrjax.Grid.explicit(one), utility, always), {}
    if method == "doubling":
        levels = presets.doubling_levels(*goal)
        steps = int(levels.size)
        test = presets.doubling_test(*goal, gamma, steps)
        rule = nrjax.LaplaceTests(-test.threshold, test.sensitivity, test.epsilon)
        parts = released.mechanism(nrjax.IndependentLaplace(released.value.shape))
        # The smallest goal has the most levels; grids of one length share a program.
        longest = presets.doubling_levels(public, min(settings.alpha)).size
        padded = np.pad(levels, (0, longest - steps), mode="edge")
        schedule = nrjax.Grid.explicit(np.asarray(parts.guarantee.time(padded)))
        trial = parts.interaction(schedule, utility, rule, max_steps=steps)
        return trial, {**_facts(test), "levels": steps}
    noise, known = settings.test_noise, {}
    if reduced:
        levels = presets.reduced_levels(*goal, gamma, count, noise)
    else:
        levels = presets.levels(*goal, count)
    if gaussian:  # under a boundary that is small wherever one stops
        tight_at = settings.tight_at
        if tight_at is None:
            usual = presets.theory_epsilon(public._replace(constants="paper"), alpha)
            tight_at = float(levels[0]) if reduced else _TIGHT_AT * usual
        known = {"tight_at": tight_at}
        boundary = nrjax.OneSidedMixtureBoundary
        parts = released.mechanism(
            delta=settings.delta, tight_at_epsilon=tight_at, boundary=boundary
        )
    else:
        parts = released.mechanism()
    schedule = nrjax.Grid.geometric(parts.guarantee, levels[0], levels[-1], count)
    if reduced:
        # The test's privacy is what the guarantee says of the grid's times.
        epsilons = np.asarray(parts.guarantee.epsilon(schedule.times), float)
        moved = presets.query_sensitivity(public)
        thresholds = -presets.reduced_thresholds(*goal, gamma, epsilons, noise)
        rule = nrjax.ReducedAboveThreshold(thresholds, moved, noise=noise)
        facts = {"test_threshold": None, "query_sensitivity": moved}
    else:
        test = presets.threshold_test(*goal, gamma, count, noise)
        asked = -test.threshold, test.sensitivity, test.epsilon
        rule, facts = nrjax.InteractiveAboveThreshold(*asked, noise=noise), _facts(test)
    return parts.interaction(schedule, utility, rule), facts | {"test_noise": noise} | known


def _facts(test: presets.Test) -> dict[str, Any]:
    return {"test_threshold": test.threshold, "query_sensitivity": test.sensitivity}


def _case(settings: Settings, task: _Task, method: Method, alpha: float) -> nrjax.Case:
    public, problem = task.public, task.problem
    trial, facts = _interaction(settings, task, method, alpha)
    gaussian = method.startswith("brownian")
    released = task.gaussian if gaussian else task.laplace
    # Figures of ridge regression compare what output perturbation would take.
    other = None if public.task == "logistic" else public._replace(perturbation="output")
    labels = {
        "task": public.task,
        "method": method,
        "constants": public.constants,
        "alpha": alpha,
        "data": task.data,
        **{name: getattr(public, name) for name in _PUBLIC},
        "gamma": settings.gamma,
        "delta": settings.delta if gaussian else 0.0,
        "sensitivity": float(released.sensitivity),
        "optimum": problem.optimum_loss,
        "gradient_norm": problem.minimum.gradient_norm,
        "optimum_norm": float(np.linalg.norm(problem.optimum)),
        "norm_bound": public.radius,
        "theory_epsilon": presets.theory_epsilon(public, alpha),
        "theory_epsilon_output": other and presets.theory_epsilon(other, alpha),
        **facts,
    }
    if task.remarks:
        labels["remarks"] = list(task.remarks)
    return nrjax.Case(trial=trial, labels=labels, goal=-alpha, quantities=_QUANTITIES)


def cases(settings: Settings) -> dict[str, nrjax.Case]:
    """Load the data, find the optima and build every case, by name."""
    names = [f"{alpha:g}" for alpha in settings.alpha]
    check(len(set(names)) == len(names), "alpha", settings.alpha, "apart by six digits")
    found = {}
    for number, name in enumerate(settings.task):
        task = _load(settings, name, of_task(settings.data, number))
        for method in settings.method:
            for alpha, goal in zip(names, settings.alpha, strict=True):
                found[f"{name}-{method}-{alpha}"] = _case(settings, task, method, goal)
    return found


def study(settings: Settings) -> Study:
    """The study; loads the data and finds the optima.

    Raises:
        FileNotFoundError, ValueError: the data are not there, or the settings do not suit them.
    """
    name = "ligett2017"
    return Study(name, cases(settings), reporting=reporting, settings=settings, source=name)
