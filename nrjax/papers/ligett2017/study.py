"""The experiments of Ligett 2017: the privacy that a small excess risk costs.

A trial is private empirical risk minimisation that stops when a private test finds the excess risk
small enough. There is a case per task, method and alpha. The methods are noise reduction
(Algorithms 3 and 5), the doubling method (Algorithm 4), one release at the epsilon of a utility
theorem, and the Brownian mechanism.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import nrjax
from nrjax import datasets
from nrjax._base.sensitivities import Noise
from nrjax._base.validation import check
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.released import Released
from nrjax.papers._settings import of_task, parsed_bounds
from nrjax.papers.ligett2017 import presets
from nrjax.papers.ligett2017.report import CostReporting
from nrjax.papers.ligett2017.settings import Method, Settings
from nrjax.study.study import Study

reporting = CostReporting()

_PUBLIC = ("perturbation", "rows", "dimension", "regularisation")

_TIGHT_AT = 1 / 64
"""Default `tight_at`, as a fraction of the epsilon of the utility theorem."""


class _Task(NamedTuple):
    """A learning task on a data set, with its private values for Laplace and Gaussian noise."""

    public: presets.Problem
    data: str
    problem: LogisticProblem | RidgeProblem
    laplace: Released
    gaussian: Released
    remarks: tuple[str, ...]


def norm_of_hypothesis(outcome: nrjax.Outcome) -> Array:
    """Return the l2 norm of a trial's last hypothesis."""
    return jnp.linalg.norm(outcome.hypothesis)


def excess_risk(outcome: nrjax.Outcome) -> Array:
    """Return the excess risk of a trial's last hypothesis, which is minus the utility."""
    return -outcome.utility


_QUANTITIES = {"norm": norm_of_hypothesis, "excess_risk": excess_risk}


def _load(settings: Settings, task: presets.Task, data: str) -> _Task:
    rows = "all" if settings.rows is None else settings.rows
    own = {"target": settings.target, "bounds": parsed_bounds(settings.bounds)}
    files = {"data_dir": settings.data_dir, **own}
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
    """Return the private value, its sensitivity, and minus the excess risk as the utility."""
    if isinstance(problem, LogisticProblem):
        released = problem.released(noise)
    elif public.perturbation == "output":
        released = problem.released_optimum(noise, public.ball)
    else:
        released = problem.released(noise, "l1_rows")
    utility = released.utility.excess_risk()
    dtype = jnp.result_type(float)

    def on_device(leaf: Any) -> Any:  # moved once, as the cases of a task share arrays
        return jnp.asarray(leaf, dtype) if np.ndim(leaf) else leaf

    value, utility = on_device(released.value), jax.tree.map(on_device, utility)
    return released._replace(value=value, utility=utility)


def _theory(task: _Task, alpha: float) -> tuple[nrjax.Interaction, dict[str, Any]]:
    """Return a trial with one release at the theory's epsilon, and labels of its case."""
    parts, utility = task.laplace.mechanism(), task.laplace.utility
    epsilon = presets.theory_epsilon(task.public, alpha)
    guarantee: Any = parts.guarantee
    time = np.atleast_1d(guarantee.time(epsilon))
    if task.public.perturbation == "output":  # these theorems do not project onto a ball
        utility = dataclasses.replace(utility, radius=np.inf)
    always = nrjax.PublicThreshold(-np.inf)
    return parts.interaction(nrjax.Grid.explicit(time), utility, always), {}


def _doubling(
    settings: Settings, task: _Task, alpha: float
) -> tuple[nrjax.Interaction, dict[str, Any]]:
    """Return a trial of the doubling method, and labels of its case."""
    public, released = task.public, task.laplace
    levels = presets.doubling_levels(public, alpha)
    steps = int(levels.size)
    test = presets.doubling_test(public, alpha, settings.gamma, steps)
    rule = nrjax.LaplaceTests(-test.threshold, test.sensitivity, test.epsilon)
    parts = released.mechanism(nrjax.IndependentLaplace(released.value.shape))
    # The smallest alpha has the most levels; grids of equal length share a compiled program.
    longest = presets.doubling_levels(public, min(settings.alpha)).size
    padded = np.pad(levels, (0, longest - steps), mode="edge")
    guarantee: Any = parts.guarantee
    schedule = nrjax.Grid.explicit(np.asarray(guarantee.time(padded)))
    trial = parts.interaction(schedule, released.utility, rule, max_steps=steps)
    return trial, {**_test_labels(test), "levels": steps}


def _reduction(
    settings: Settings, task: _Task, method: Method, alpha: float
) -> tuple[nrjax.Interaction, dict[str, Any]]:
    """Return a trial of noise reduction (Laplace or Gaussian), and labels of its case."""
    public, gamma, count = task.public, settings.gamma, settings.levels
    noise, reduced = settings.test_noise, method == "brownian_reduced"
    if reduced:
        levels = presets.reduced_levels(public, alpha, gamma, count, noise)
    else:
        levels = presets.levels(public, alpha, count)
    labels: dict[str, Any] = {}
    if method == "noise_reduction":
        released = task.laplace
        parts = released.mechanism()
    else:
        released, tight_at = task.gaussian, settings.tight_at
        if tight_at is None:
            usual = presets.theory_epsilon(public._replace(constants="paper"), alpha)
            tight_at = float(levels[0]) if reduced else _TIGHT_AT * usual
        labels = {"tight_at": tight_at}
        parts = released.mechanism(
            delta=settings.delta,
            tight_at_epsilon=tight_at,
            boundary=nrjax.OneSidedMixtureBoundary,  # small wherever a trial stops
        )
    guarantee: Any = parts.guarantee
    schedule = nrjax.Grid.geometric(guarantee, levels[0], levels[-1], count)
    if reduced:
        # The test at a level costs the epsilon that the guarantee states there.
        epsilons = np.asarray(guarantee.epsilon(schedule.times), float)
        sensitivity = presets.query_sensitivity(public)
        thresholds = -presets.reduced_thresholds(public, alpha, gamma, epsilons, noise)
        rule = nrjax.ReducedAboveThreshold(thresholds, sensitivity, noise=noise)
        test_labels = {"test_threshold": None, "query_sensitivity": sensitivity}
    else:
        test = presets.threshold_test(public, alpha, gamma, count, noise)
        rule = nrjax.InteractiveAboveThreshold(
            -test.threshold, test.sensitivity, test.epsilon, noise=noise
        )
        test_labels = _test_labels(test)
    trial = parts.interaction(schedule, released.utility, rule)
    return trial, {**test_labels, "test_noise": noise, **labels}


def _test_labels(test: presets.Test) -> dict[str, Any]:
    return {"test_threshold": test.threshold, "query_sensitivity": test.sensitivity}


def _case(settings: Settings, task: _Task, method: Method, alpha: float) -> nrjax.Case:
    public, problem = task.public, task.problem
    if method == "theory":
        trial, facts = _theory(task, alpha)
    elif method == "doubling":
        trial, facts = _doubling(settings, task, alpha)
    else:
        trial, facts = _reduction(settings, task, method, alpha)
    gaussian = method.startswith("brownian")
    # Figures of ridge regression show what output perturbation would cost.
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
        "sensitivity": float((task.gaussian if gaussian else task.laplace).sensitivity),
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
    """Load the data, fit the models and return every case by name."""
    names = [f"{alpha:g}" for alpha in settings.alpha]
    check(len(set(names)) == len(names), "alpha", settings.alpha, "apart by six digits")
    built = {}
    for number, name in enumerate(settings.task):
        task = _load(settings, name, of_task(settings.data, number))
        for method in settings.method:
            for label, alpha in zip(names, settings.alpha, strict=True):
                built[f"{name}-{method}-{label}"] = _case(settings, task, method, alpha)
    return built


def study(settings: Settings) -> Study:
    """Load the data and return the study.

    Raises:
        FileNotFoundError: the data are not on this machine.
        ValueError: the settings do not suit the data.
    """
    name = "ligett2017"
    return Study(name, cases(settings), reporting=reporting, settings=settings, source=name)
