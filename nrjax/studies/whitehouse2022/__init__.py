"""The experiments of Whitehouse 2022, section 6: what accuracy costs in ex-post privacy.

A task's optimum is released under noise that is taken away until the loss reaches a target; each
mechanism, test and trial gives one ex-post epsilon (figure 3). A second pass over a coarse grid,
never stopped, gives the loss at each epsilon (figure 2).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import jax.numpy as jnp
import numpy as np
import tyro

from nrjax import datasets, montecarlo
from nrjax._numerics import check
from nrjax.erm import LogisticProblem, Minimum
from nrjax.guarantees import LinearBoundary, PureGuarantee
from nrjax.interaction import Interaction, build_interaction
from nrjax.keys import study_key
from nrjax.processes import Brownian, Laplace
from nrjax.schedules import Grid
from nrjax.stopping import PublicThreshold
from nrjax.studies import common
from nrjax.studies.store import Case, Coordinate, Pass, Store, Variable
from nrjax.types import NoiseProcess, Outcome

NAME = "whitehouse2022"

_TARGETS = {"kdd99": 0.41, "twitter": 0.025}
"""The paper's target losses."""

_TARGET_FACTORS = {"logistic": 1.03}
"""On other data the target is this many times the non-private optimum."""

_FLOOR_FACTOR = 1.05
"""The grid begins at least this far above the smallest epsilon that the boundary reaches."""

_FIELDS = tuple(name for name in Outcome._fields if name not in ("release", "hypothesis"))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Whitehouse 2022: the ex-post epsilon that a target loss costs, by mechanism.

    A model's non-private optimum is released under noise that is reduced step by step until its
    loss reaches the target. The result is the distribution of the privacy paid over many trials.
    """

    out: Path
    """Folder for the results: the store, summary.json and figures/."""
    task: tuple[Literal["logistic"], ...] = ("logistic",)
    """What is learnt."""
    mechanism: tuple[Literal["brownian", "laplace"], ...] = ("brownian", "laplace")
    """Noise-reduction mechanisms to compare."""
    test: tuple[Literal["public"], ...] = ("public",)
    """How the loss is checked: `public` looks at it for free."""
    data: tuple[str, ...] = ("flights",)
    """Data set, one or one per task: flights, kdd99, paper (kdd99 for logistic), or the path of
    your own .csv or .npz file."""
    target: str | None = None
    """Column (CSV) or array (NPZ) to predict, for your own file. Each row of the other columns is
    divided by its l2 norm, so scale columns alike first; there is no intercept."""
    data_dir: Path | None = None
    """Folder that holds kdd99 (else the variable NRJAX_DATA, else the cache folder)."""
    rows: int | None = None
    """Rows to use, from the first on; by default 10000, and all of your own file."""
    regularisation: float = 0.05
    """lambda of the l2 penalty (lambda/2)|theta|^2."""
    target_loss: tuple[float, ...] = ()
    """Loss to reach, one or one per task. By default 0.41 for kdd99; for other data the
    non-private optimum times 1.03."""
    delta: float = 1e-6
    """Probability with which the stated epsilon may be exceeded (Brownian mechanism)."""
    tight_at: float = 0.3
    """Epsilon at which the linear privacy boundary is tight."""
    lowest_epsilon: float | None = None
    """First level of the grid; by default 0.16, or 1.05 times the smallest epsilon that the
    boundary reaches if that is larger."""
    highest_epsilon: float = 20.0
    """Last level of the grid."""
    levels: int = 1000
    """Levels of the grid, in equal ratios."""
    curve_levels: int = 50
    """Levels of the pass that measures the loss at each epsilon."""
    trials: int = 1000
    """Independent trials of each case."""
    seed: int = 0
    """Seed of all randomness; cases share it, so that their differences are paired."""
    chunk: int | None = None
    """Trials between two writes to the store; by default about a sixteenth, from 512 to 4096."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the results of an earlier run in the same folder."""

    def __post_init__(self):
        for name in ("task", "mechanism", "test", "data"):
            values = getattr(self, name)
            check(len(values) >= 1, name, values, "at least one value")
            if name != "data":
                check(len(set(values)) == len(values), name, values, "without repetition")
        for name, least in (
            ("levels", 2),
            ("curve_levels", 2),
            ("trials", 1),
        ):
            check(getattr(self, name) >= least, name, getattr(self, name), f"at least {least}")
        check(
            self.curve_levels <= self.levels,
            "curve_levels",
            self.curve_levels,
            f"at most levels = {self.levels}",
        )
        for name in ("rows", "chunk"):
            number = getattr(self, name)
            check(number is None or number >= 1, name, number, "at least 1")
        check(0 <= self.seed < 2**32, "seed", self.seed, "in [0, 2^32)")
        check(0 < self.delta < 1, "delta", self.delta, "strictly between 0 and 1")
        for name in ("regularisation", "tight_at", "highest_epsilon"):
            number = getattr(self, name)
            check(np.isfinite(number) and number > 0, name, number, "positive and finite")
        low = self.lowest_epsilon
        if low is not None:
            check(
                0 < low < self.highest_epsilon,
                "lowest_epsilon",
                low,
                f"between 0 and highest_epsilon = {self.highest_epsilon}",
            )
        for name in ("data", "target_loss"):
            values = getattr(self, name)
            check(
                len(values) in (0, 1, len(self.task)),
                name,
                values,
                f"one value, or one for each of the tasks {self.task}",
            )


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
    def l2_sensitivity(self) -> float: ...
    @property
    def l1_sensitivity(self) -> float: ...
    @property
    def utility(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Setup:
    """One case, ready to run."""

    case: Case
    outcome: Interaction
    curve: Interaction


def _per_task(values: tuple, task: int) -> Any:
    return values[task if len(values) > 1 else 0]


def _problem(settings: Settings, task: str, data: str) -> tuple[str, _Problem]:
    """Name of the data set, and the task on it."""
    data_set = datasets.load(
        data, task, rows=settings.rows, data_dir=settings.data_dir, target=settings.target
    )
    return data_set.name, LogisticProblem.fit(data_set.x, data_set.y, settings.regularisation)


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


def _chunk(settings: Settings) -> int:
    """Small enough for a bar that moves and little to lose, large enough to fill the lanes."""
    usual = min(4096, max(512, 1 << (settings.trials // 16).bit_length()))
    return min(usual if settings.chunk is None else settings.chunk, settings.trials)


def _mechanism(
    name: str, settings: Settings, problem: _Problem
) -> tuple[NoiseProcess, LinearBoundary | PureGuarantee]:
    shape = (problem.dimension,)
    if name == "brownian":
        boundary = LinearBoundary.tight_at_epsilon(
            settings.tight_at, problem.l2_sensitivity, settings.delta
        )
        return Brownian(shape), boundary
    return Laplace(shape), PureGuarantee(problem.l1_sensitivity)


def _lowest_epsilon(settings: Settings, problem: _Problem) -> float:
    """First level of the grid, which all mechanisms share."""
    low = settings.lowest_epsilon
    if "brownian" in settings.mechanism:
        _, boundary = _mechanism("brownian", settings, problem)
        assert isinstance(boundary, LinearBoundary)
        floor = float(np.asarray(boundary.sensitivity) * np.asarray(boundary.a))
        least = f"above {floor:.6g}, the least that a boundary tight at {settings.tight_at} reaches"
        check(low is None or low > floor, "lowest_epsilon", low, least)
    else:
        floor = 0.0
    if low is None:
        low = max(0.16, _FLOOR_FACTOR * floor)
    right = f"above the first level of the grid, {low:.6g}"
    check(low < settings.highest_epsilon, "highest_epsilon", settings.highest_epsilon, right)
    return low


def _setups(settings: Settings) -> Iterator[Setup]:
    dtype = str(jnp.result_type(float))
    for number, task in enumerate(settings.task):
        data, problem = _problem(settings, task, _per_task(settings.data, number))
        target = _target(settings, number, task, data, problem.optimum_loss)
        low = _lowest_epsilon(settings, problem)
        epsilons = np.geomspace(low, settings.highest_epsilon, settings.levels)
        chunk = _chunk(settings)
        some = np.linspace(0, settings.levels - 1, settings.curve_levels).round().astype(int)
        for mechanism in settings.mechanism:
            process, guarantee = _mechanism(mechanism, settings, problem)
            grid = Grid.geometric(guarantee, low, settings.highest_epsilon, settings.levels)
            coarse = Grid.explicit(np.asarray(grid.times)[some])
            parts = (problem.optimum, process, guarantee)
            for test in settings.test:
                variables = {
                    name: Variable("int32" if name in ("step", "status") else dtype)
                    for name in _FIELDS
                }
                curve = {"utility": Variable(dtype, (("level", settings.curve_levels),))}
                levels = Coordinate("level", tuple(epsilons[some].tolist()))
                case = Case(
                    f"{task}-{mechanism}-{test}",
                    {
                        "task": task,
                        "mechanism": mechanism,
                        "test": test,
                        "data": data,
                        "trials": settings.trials,
                        "optimum": problem.optimum_loss,
                        "gradient_norm": problem.minimum.gradient_norm,
                        "rows": problem.rows,
                        "dimension": problem.dimension,
                        "regularisation": settings.regularisation,
                        "sensitivity": float(np.asarray(guarantee.sensitivity)),
                        "delta": float(guarantee.delta),
                        "target": target,
                    },
                    {
                        "outcome": Pass(settings.trials, chunk, variables),
                        "curve": Pass(settings.trials, chunk, curve, {"epsilon": levels}),
                    },
                )
                yield Setup(
                    case,
                    build_interaction(*parts, grid, problem.utility, PublicThreshold(-target)),
                    build_interaction(*parts, coarse, problem.utility, PublicThreshold(np.inf)),
                )


def setups(settings: Settings) -> list[Setup]:
    """Load the data, find the optima and build every case."""
    return list(_setups(settings))


def programs(cases: Sequence[Setup]) -> dict[str, dict[str, montecarlo.Program]]:
    """The programs that fill a store, by case and pass."""
    return {
        setup.case.name: {
            "outcome": montecarlo.outcomes(setup.outcome, setup.case.passes["outcome"].chunk),
            "curve": montecarlo.paths(setup.curve, setup.case.passes["curve"].chunk, ("utility",)),
        }
        for setup in cases
    }


def run(settings: Settings, progress: common.Progress | None = None) -> Store:
    """Run the study and leave its store, `summary.json` and figures in `settings.out`.

    Args:
        settings: what to run.
        progress: told of every chunk that is done; None for silence.

    Returns:
        The finished store.

    Raises:
        FileExistsError: the folder holds results already and `overwrite` is not set.
        FileNotFoundError, ValueError: the data are not there, or do not suit the task.
        OSError: the folder cannot be written to.
    """
    from nrjax import plots

    fresh = not settings.out.exists()
    Store.check(settings.out, overwrite=settings.overwrite)
    try:
        cases = setups(settings)
    except BaseException:
        if fresh:
            settings.out.rmdir()  # nothing was written: leave no trace
        raise
    store = Store.create(
        settings.out,
        common.facts(NAME, settings.seed, settings),
        [setup.case for setup in cases],
        overwrite=settings.overwrite,
    )
    common.fill(store, study_key(settings.seed), programs(cases), progress)
    common.write_summary(store)
    plots.plot_whitehouse(store)
    return store
