"""The cases of `ligett2017`, built from its settings: tasks, goals, methods."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax import datasets
from nrjax._numerics import check
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.erm.released import Released
from nrjax.guarantees import OneSidedMixtureBoundary, PureGuarantee
from nrjax.interaction import Interaction
from nrjax.papers.ligett2017 import presets
from nrjax.papers.ligett2017.published import PublishedRidgeUtility
from nrjax.papers.ligett2017.settings import Method, Settings
from nrjax.processes import Brownian, IndependentLaplace, Laplace
from nrjax.schedules import Grid
from nrjax.sensitivities import Noise
from nrjax.stopping import (
    InteractiveAboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
)
from nrjax.study.case import Case, Quantity
from nrjax.types import Outcome

_TIGHT_AT = 1 / 64
"""The Brownian boundary is tight at this share of the theorem's epsilon, unless chosen; under
ReducedAboveThreshold at the first level of its grid, where most trials stop."""


class _Task(NamedTuple):
    """A task on a data set, and what is released of it under either noise."""

    public: presets.Problem
    data: str
    problem: LogisticProblem | RidgeProblem
    laplace: Released
    gaussian: Released


class _Parts(NamedTuple):
    """What a method makes of a task and a goal."""

    process: Any
    guarantee: PureGuarantee | OneSidedMixtureBoundary
    schedule: Grid
    utility: Any
    rule: Any
    max_steps: int | None
    facts: dict[str, Any]


def norm_of_hypothesis(outcome: Outcome) -> Array:
    """l2 norm of a trial's last hypothesis."""
    return jnp.linalg.norm(outcome.hypothesis)


def excess_risk(outcome: Outcome) -> Array:
    """Of a trial's last hypothesis; minus the utility."""
    return -outcome.utility


_QUANTITIES = {"norm": Quantity(norm_of_hypothesis), "excess_risk": Quantity(excess_risk)}


def _load(settings: Settings, task: presets.Task, data: str) -> _Task:
    data_set = datasets.load(
        data,
        task,
        rows="all" if settings.rows is None else settings.rows,
        data_dir=settings.data_dir,
        target=settings.target,
        normalise="max_l1",
    )
    name, x, y = data_set.name, data_set.x, data_set.y
    if settings.copies > 1:
        name = f"{name} x {settings.copies}"
        x, y = np.tile(x, (settings.copies, 1)), np.tile(y, settings.copies)
    ball = presets.ball_of(settings.constants)
    if task == "logistic":
        problem = LogisticProblem.fit(x, y, settings.regularisation, ball=ball)
        perturbation = "output"
    else:
        problem = RidgeProblem.fit(x, y, settings.regularisation, row_norm="l1", ball=ball)
        perturbation = settings.ridge_perturbation
    public = presets.Problem(
        task, perturbation, problem.rows, problem.dimension, problem.regularisation, ball
    )
    laplace, gaussian = (
        _released(settings, public, problem, noise) for noise in ("laplace", "gaussian")
    )
    return _Task(public, name, problem, laplace, gaussian)


def _released(
    settings: Settings,
    public: presets.Problem,
    problem: LogisticProblem | RidgeProblem,
    noise: Noise,
) -> Released:
    """The private value, its sensitivity, and a utility that is minus the excess risk."""
    if isinstance(problem, LogisticProblem):
        released = problem.released(noise)
    elif public.perturbation == "output":
        tight = settings.constants == "tight"
        released = problem.released_optimum(noise, "tight" if tight else "paper")
    else:
        released = problem.released(noise, "l1_rows")
    utility = released.utility.excess_risk()
    if settings.constants == "code":
        moved = presets.query_sensitivity("code", public)
        if isinstance(problem, RidgeProblem):
            if public.perturbation == "output":
                what = "optimum"
            else:
                what = "matrix" if noise == "laplace" else "isometric"
            utility = PublishedRidgeUtility.of(problem, moved, what)
        else:
            utility = dataclasses.replace(utility, sensitivity=moved)
    # The cases of a task share its arrays: on the device, and in the run's dtype, once.
    dtype = jnp.result_type(float)

    def placed(leaf: Any) -> Any:
        return jnp.asarray(leaf, dtype) if np.ndim(leaf) else leaf

    return released._replace(value=placed(released.value), utility=jax.tree.map(placed, utility))


def _as_in_theorem(utility: Any, perturbation: presets.Perturbation) -> Any:
    """For one release that no test looks at: the theorems for noise on the optimum have no ball."""
    return utility if perturbation == "covariance" else dataclasses.replace(utility, radius=np.inf)


def _parts(settings: Settings, task: _Task, method: Method, alpha: float, longest: int) -> _Parts:
    """The parts of one case; `longest` is the length that grids of a method share."""
    name, public, count, gamma = settings.constants, task.public, settings.levels, settings.gamma
    if method.startswith("brownian"):
        return _brownian(settings, task, method, alpha)
    shape, moved = task.laplace.value.shape, task.laplace.sensitivity
    guarantee, utility = PureGuarantee(moved), task.laplace.utility
    if method == "theory":
        one = np.atleast_1d(guarantee.time(presets.theory_epsilon(name, public, alpha)))
        rule, utility = PublicThreshold(-np.inf), _as_in_theorem(utility, public.perturbation)
        return _Parts(Laplace(shape), guarantee, Grid.explicit(one), utility, rule, None, {})
    if method == "doubling":
        levels = presets.doubling_levels(name, public, alpha)
        test = presets.doubling_test(name, public, alpha, gamma, levels.size)
        rule = LaplaceTests(-test.threshold, test.sensitivity, test.epsilon)
        # Goals differ in the number of levels; grids of one length share a program.
        times = np.asarray(guarantee.time(np.pad(levels, (0, longest - levels.size), mode="edge")))
        process, schedule = IndependentLaplace(shape), Grid.explicit(times)
        facts = {**_facts(test), "levels": int(levels.size)}
        return _Parts(process, guarantee, schedule, utility, rule, int(levels.size), facts)
    levels = presets.levels(name, public, alpha, count)
    schedule = _grid(guarantee, levels)
    rule, facts = _above_threshold(settings, public, alpha)
    return _Parts(Laplace(shape), guarantee, schedule, utility, rule, None, facts)


def _brownian(settings: Settings, task: _Task, method: Method, alpha: float) -> _Parts:
    """The same goal by Gaussian noise, under a boundary that is small wherever one stops."""
    name, public, count = settings.constants, task.public, settings.levels
    reduced = method == "brownian_reduced"
    if reduced:
        levels = presets.reduced_levels(name, public, alpha, settings.gamma, count)
        tight_at = float(levels[0])
    else:
        levels = presets.levels(name, public, alpha, count)
        tight_at = _TIGHT_AT * presets.theory_epsilon("paper", public._replace(ball="paper"), alpha)
    tight_at = tight_at if settings.tight_at is None else settings.tight_at
    moved = task.gaussian.sensitivity
    guarantee = OneSidedMixtureBoundary.tight_at_epsilon(tight_at, moved, settings.delta)
    schedule = _grid(guarantee, levels)
    if reduced:
        # The test's privacy is what the guarantee says of the grid's times.
        epsilons = np.asarray(guarantee.epsilon(schedule.times), float)
        below = presets.reduced_thresholds(name, public, alpha, settings.gamma, epsilons)
        delta = presets.query_sensitivity(name, public)
        rule = ReducedAboveThreshold(-below, delta)
        facts = {"test_threshold": None, "query_sensitivity": delta}
    else:
        rule, facts = _above_threshold(settings, public, alpha)
    process, utility = Brownian(task.gaussian.value.shape), task.gaussian.utility
    facts = {**facts, "tight_at": tight_at}
    return _Parts(process, guarantee, schedule, utility, rule, None, facts)


def _grid(guarantee: Any, levels: np.ndarray) -> Grid:
    """The levels in equal ratios, at the guarantee's times."""
    return Grid.geometric(guarantee, levels[0], levels[-1], levels.size)


def _above_threshold(
    settings: Settings, public: presets.Problem, alpha: float
) -> tuple[InteractiveAboveThreshold, dict[str, Any]]:
    count, gamma = settings.levels, settings.gamma
    test = presets.threshold_test(settings.constants, public, alpha, gamma, count)
    rule = InteractiveAboveThreshold(-test.threshold, test.sensitivity, test.epsilon)
    return rule, _facts(test)


def _facts(test: presets.Test) -> dict[str, Any]:
    return {"test_threshold": test.threshold, "query_sensitivity": test.sensitivity}


def _theory_elsewhere(settings: Settings, public: presets.Problem, alpha: float) -> float | None:
    """For ridge regression, the theory's epsilon of output perturbation, which figures compare."""
    if public.task == "logistic":
        return None
    other = public._replace(perturbation="output")
    return presets.theory_epsilon(settings.constants, other, alpha)


def _case(
    settings: Settings, task: _Task, method: Method, alpha: float, longest: int
) -> tuple[str, Case]:
    public, problem = task.public, task.problem
    parts = _parts(settings, task, method, alpha, longest)
    released = task.gaussian if method.startswith("brownian") else task.laplace
    interaction = Interaction(
        value=released.value,
        process=parts.process,
        guarantee=parts.guarantee,
        schedule=parts.schedule,
        utility=parts.utility,
        rule=parts.rule,
        max_steps=parts.max_steps,
    )
    labels = {
        "task": public.task,
        "method": method,
        "constants": settings.constants,
        "alpha": alpha,
        "data": task.data,
        "perturbation": public.perturbation,
        "rows": public.rows,
        "dimension": public.dimension,
        "regularisation": public.regularisation,
        "gamma": settings.gamma,
        "delta": float(parts.guarantee.delta),
        "sensitivity": float(released.sensitivity),
        "optimum": problem.optimum_loss,
        "gradient_norm": problem.minimum.gradient_norm,
        "optimum_norm": float(np.linalg.norm(problem.optimum)),
        "norm_bound": public.radius,
        "theory_epsilon": presets.theory_epsilon(settings.constants, public, alpha),
        "theory_epsilon_output": _theory_elsewhere(settings, public, alpha),
        **parts.facts,
    }
    case = Case(trial=interaction, labels=labels, goal=-alpha, quantities=_QUANTITIES)
    return f"{public.task}-{method}-{alpha:g}", case


def _all(settings: Settings) -> Iterator[tuple[str, Case]]:
    for number, name in enumerate(settings.task):
        task = _load(settings, name, settings.data[number if len(settings.data) > 1 else 0])
        longest = 0
        if "doubling" in settings.method:
            longest = max(
                presets.doubling_levels(settings.constants, task.public, alpha).size
                for alpha in settings.alpha
            )
        for method in settings.method:
            for alpha in settings.alpha:
                yield _case(settings, task, method, alpha, longest)


def cases(settings: Settings) -> dict[str, Case]:
    """Load the data, find the optima and build every case, by name."""
    names = [f"{alpha:g}" for alpha in settings.alpha]
    check(len(set(names)) == len(names), "alpha", settings.alpha, "apart by six digits")
    found = dict(_all(settings))
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, case in found.items():
        kinds.setdefault((case.labels["task"], case.labels["method"]), []).append(name)
    for names in kinds.values():  # goals of a method have the same bins, for one program
        ends = [_ends(found[name].trial) for name in names]
        low, last = min(low for low, _ in ends), max(high for _, high in ends)
        for name in names:
            epsilons = low, _TESTED * last, _DEARER * last
            found[name] = dataclasses.replace(found[name], epsilons=epsilons)
    return found


def _ends(interaction: Any) -> tuple[float, float]:
    """First and last epsilon of a grid."""
    times = np.asarray(interaction.schedule.times)
    low, high = np.asarray(interaction.guarantee.epsilon(times[[0, -1]]), float).tolist()
    return low, high


_DEARER = 64.0
"""A trial pays at most about so many times the last level of its grid: for tests, and for
releases before the last."""

_TESTED = 4.0
"""Nearly all trials pay no more than so many times the last level: it, and the tests."""
