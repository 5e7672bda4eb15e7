"""What `benchmarks.scaling` runs at each size: a warm-up, which compiles, and what is measured."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from benchmarks.million_trials import Closeness
from nrjax import erm
from nrjax.simulation import montecarlo
from nrjax.study.looks import chunk_size
from nrjax.study.results import Reporting
from nrjax.study.settings import RunSettings

KEY = jax.random.key(0)
FEATURES = 20
"""Columns of made-up data."""
_STOPS = ("step", "epsilon", "status")
_LAMBDA, _BASE_ROWS = 0.05, 10_000
FIXED = {"devices": 4_096_000, "rows of devices": 1_000_000, "workers": 8_192_000, "paths": 1024}
"""Trials, or rows, where something else grows."""
TINY = dict.fromkeys(FIXED, 2000)
"""Those of a quick look."""


class Work(NamedTuple):
    """What is measured at one size; both give what they made, to be held meanwhile."""

    run: Callable[[], Any]
    warm: Callable[[], Any] | None = None
    """What compiles all of `run`; None: a run."""


class Quiet(Reporting):
    """Tells of results without figures."""

    def figures(self, results):
        """None."""
        return {}


class Length(nrjax.Utility):
    """Minus the length of a release."""

    def evaluate(self, hypothesis):
        """Minus its l2 norm."""
        return -jnp.linalg.norm(hypothesis)


def near(levels=100):
    """A number under Brownian noise until it is near: the cheapest trial there is."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    return nrjax.Interaction(
        value=3.0,
        process=nrjax.Brownian(()),
        guarantee=guarantee,
        schedule=nrjax.Grid.geometric(guarantee, 0.6, 20.0, levels),
        utility=Closeness(),
        rule=nrjax.PublicThreshold(-0.5),
    )


def _study(size: int, **options: Any) -> Work:
    """A study that keeps summaries, its folder included."""
    study = nrjax.Study("scaling", {"near": near()}, reporting=Quiet())
    settings = RunSettings(out=Path("unused"), trials=size, keep="summary")

    def run(trials: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            given = {"keep": "summary", "chunk": chunk_size(settings), "progress": False, **options}
            return study.run(Path(folder) / "run", trials=trials, **given).summary()

    return Work(lambda: run(size), lambda: run(1))


def folded_trials(size):
    """A study of so many trials, of which summaries are kept."""
    return _study(size)


def kept_trials(size):
    """All fields of the outcomes of so many trials."""
    trial = near()
    return Work(lambda: nrjax.simulate(KEY, trial, trials=size))


def built_levels(size):
    """Grid and interaction of so many levels, and their trial's epsilons."""
    return Work(lambda: near(size))


def stopped_levels(size):
    """1024 trials that stop at the same share of so many levels."""
    program = montecarlo.outcomes(near(size), 1024, _STOPS)
    return Work(lambda: program.run(KEY, 1024))


def path_levels(size):
    """Whole paths of so many levels."""
    program = montecarlo.paths(near(size), FIXED["paths"])
    return Work(lambda: program.run(KEY, FIXED["paths"]))


def made_up(rows: int, features: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm 1 in float32, and labels +-1 that follow them."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, features), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    wanted = x[:, 0] - 0.5 * x[:, features // 2] + 0.3 * rng.standard_normal(rows, np.float32)
    return x, np.where(wanted > 0, np.float32(1), np.float32(-1))


def _times() -> tuple[Any, Any]:
    """Guarantee and times for the noise of `_BASE_ROWS` rows, whatever rows there are."""
    moved = erm.sensitivity.output_l2(_BASE_ROWS, _LAMBDA, 1.0, 1e-12)
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, moved, 1e-6)
    return guarantee, nrjax.Grid.geometric(guarantee, 0.16, 20, 1000)


def fitted_rows(size):
    """The fit of a logistic regression to so many rows."""
    x, y = made_up(size)
    return Work(lambda: erm.LogisticProblem.fit(x, y, _LAMBDA))


def _logistic(size: int, blind: bool = False, **options: Any) -> Any:
    """An interaction; `blind` to its bounds it looks at all rows."""
    problem = erm.LogisticProblem.fit(*made_up(size), _LAMBDA)
    utility: Any = problem.utility
    if blind:
        unknowing = dataclasses.replace(utility.expansion, doubt=np.inf)
        utility = dataclasses.replace(utility, expansion=unknowing)
    guarantee, grid = _times()
    given = {"rule": nrjax.PublicThreshold(-1.03 * problem.optimum_loss), **options}
    return nrjax.Interaction(
        value=problem.value,
        process=nrjax.Brownian(problem.shape),
        guarantee=guarantee,
        schedule=grid,
        utility=utility,
        **given,
    )


def bounded_rows(size):
    """1024 logistic trials, judged by bounds, at the same noise whatever the rows."""
    program = montecarlo.outcomes(_logistic(size), 1024, _STOPS)
    return Work(lambda: program.run(KEY, 1024))


def evaluated_rows(size):
    """Four steps of 64 logistic trials that look at all rows."""
    never = {"rule": nrjax.PublicThreshold(1.0), "max_steps": 4}
    program = montecarlo.outcomes(_logistic(size, blind=True, **never), 64, _STOPS)
    return Work(lambda: program.run(KEY, 64))


def _long(process: Any, guarantee: Any) -> Work:
    """1024 trials of 50 steps of a vector, outcomes and all."""
    trial = nrjax.Interaction(
        value=np.zeros(process.shape),
        process=process,
        guarantee=guarantee,
        schedule=nrjax.Grid.geometric(guarantee, 2.0, 20.0, 50),
        utility=Length(),
        rule=nrjax.PublicThreshold(1.0),
    )
    return Work(lambda: nrjax.simulate(KEY, trial, trials=1024))


def brownian_dimension(size):
    """Brownian noise on a vector so long."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    return _long(nrjax.Brownian((size,)), guarantee)


def laplace_dimension(size):
    """Laplace noise on a vector so long."""
    return _long(nrjax.Laplace((size,)), nrjax.PureGuarantee(1.0))


def _ridge(size: int, rows: int) -> Any:
    x, y = made_up(rows, size)
    return lambda: erm.RidgeProblem.fit(x, y, _LAMBDA)


def fitted_dimension(size):
    """Statistics and optimum of a ridge regression of so many features, 20,000 rows."""
    return Work(_ridge(size, 20_000))


def solved_dimension(size):
    """Eight solves for each of 16 trials of a ridge regression of so many features."""
    value, moved, utility = _ridge(size, 1000)().released("gaussian")
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, moved, 1e-6)
    trial = nrjax.Interaction(
        value=value,
        process=nrjax.Brownian(value.shape),
        guarantee=guarantee,
        schedule=nrjax.Grid.geometric(guarantee, 2.0, 20.0, 8),
        utility=utility,
        rule=nrjax.PublicThreshold(0.0),
    )
    program = montecarlo.paths(trial, 16, ("utility",))
    return Work(lambda: program.run(KEY, 16))


def scalar_devices(size):
    """A study that keeps summaries, on so many devices, which are all."""
    assert len(jax.devices()) == size
    return _study(FIXED["devices"])


def row_devices(size):
    """`bounded_rows` on all devices."""
    assert len(jax.devices()) == size
    return bounded_rows(FIXED["rows of devices"])


def scalar_workers(size):
    """A study that keeps summaries, on workers of one thread each."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=size, threads_per_worker=1, dashboard_address=":0")
    client = Client(cluster)
    client.wait_for_workers(size)
    return _study(FIXED["workers"], client=client)
