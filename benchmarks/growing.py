"""The work that `benchmarks.scaling` measures at each size: a warm-up, and a run."""

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
from nrjax.study.reporting import Reporting

KEY = jax.random.key(0)
FEATURES = 20
"""Number of columns of made-up data."""
_STOPS = ("step", "epsilon", "status")
_LAMBDA, _BASE_ROWS = 0.05, 10_000
FIXED = {"devices": 4_096_000, "rows of devices": 1_000_000, "workers": 8_192_000, "paths": 1024}
"""Numbers of trials, or of rows, where something else grows."""
TINY = dict.fromkeys(FIXED, 2000)
"""Numbers for a quick run, in place of `FIXED`."""


class Work(NamedTuple):
    """The work at one size. Both functions return their results, which stay in memory.

    Attributes:
        run: function that is measured.
        warm: function that compiles all that `run` needs; None for `run` itself.
    """

    run: Callable[[], Any]
    warm: Callable[[], Any] | None = None


class Quiet(Reporting):
    """A reporting without figures."""

    def figures(self, results):
        """Return no figures."""
        return {}


class Length(nrjax.Utility):
    """A utility, minus the l2 norm of a release."""

    def evaluate(self, hypothesis):
        """Return minus the l2 norm."""
        return -jnp.linalg.norm(hypothesis)


def near(levels=100):
    """Return the cheapest trial: a number under Brownian noise until it is near."""
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
    """Return the work of a study that keeps summaries, with its folder."""
    study = nrjax.Study("scaling", {"near": near()}, reporting=Quiet())

    def run(trials: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            given = {"keep": "summary", "progress": False, **options}
            return study.run(Path(folder) / "run", trials=trials, **given).summary()

    return Work(lambda: run(size), lambda: run(min(size, 2**20)))  # of one launch


def folded_trials(size):
    """Return the work of a study of `size` trials that keeps summaries."""
    return _study(size)


def kept_trials(size):
    """Return the work of `size` trials, of which all fields are kept."""
    trial = near()
    return Work(lambda: nrjax.simulate(KEY, trial, trials=size))


def built_levels(size):
    """Return the work of building an interaction of `size` levels."""
    return Work(lambda: near(size))


def stopped_levels(size):
    """Return the work of 1024 trials that stop at the same fraction of `size` levels."""
    program = montecarlo.outcomes(near(size), 1024, _STOPS)
    return Work(lambda: program.run(KEY, 1024))


def path_levels(size):
    """Return the work of whole paths of `size` levels."""
    program = montecarlo.paths(near(size), FIXED["paths"])
    return Work(lambda: program.run(KEY, FIXED["paths"]))


def made_up(rows: int, features: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm 1 in float32, and labels +-1 that depend on them."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, features), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    score = x[:, 0] - 0.5 * x[:, features // 2] + 0.3 * rng.standard_normal(rows, np.float32)
    return x, np.where(score > 0, np.float32(1), np.float32(-1))


def _times() -> tuple[Any, Any]:
    """Return the guarantee and the times for `_BASE_ROWS` rows, for any number of rows."""
    sensitivity = erm.sensitivity.output_l2(_BASE_ROWS, _LAMBDA, 1.0, 1e-12)
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(0.3, sensitivity, 1e-6)
    return guarantee, nrjax.Grid.geometric(guarantee, 0.16, 20, 1000)


def fitted_rows(size):
    """Return the work of fitting a logistic regression to `size` rows."""
    x, y = made_up(size)
    return Work(lambda: erm.LogisticProblem.fit(x, y, _LAMBDA))


def _logistic(size: int, blind: bool = False, **options: Any) -> Any:
    """Return an interaction. With `blind` its bounds are infinite, and it reads all rows."""
    problem = erm.LogisticProblem.fit(*made_up(size), _LAMBDA)
    utility: Any = problem.utility
    if blind:
        unknowing = dataclasses.replace(utility.expansion, error=np.inf)
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
    """Return the work of 1024 logistic trials by bounds, at the same noise for any rows."""
    program = montecarlo.outcomes(_logistic(size), 1024, _STOPS)
    return Work(lambda: program.run(KEY, 1024))


def evaluated_rows(size):
    """Return the work of four steps of 64 logistic trials that read all rows."""
    never = {"rule": nrjax.PublicThreshold(1.0), "max_steps": 4}
    program = montecarlo.outcomes(_logistic(size, blind=True, **never), 64, _STOPS)
    return Work(lambda: program.run(KEY, 64))


def _long(process: Any, guarantee: Any) -> Work:
    """Return the work of 1024 trials of 50 steps of a vector."""
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
    """Return the work of Brownian noise on a vector of length `size`."""
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)
    return _long(nrjax.Brownian((size,)), guarantee)


def laplace_dimension(size):
    """Return the work of Laplace noise on a vector of length `size`."""
    return _long(nrjax.Laplace((size,)), nrjax.PureGuarantee(1.0))


def _ridge(size: int, rows: int) -> Any:
    x, y = made_up(rows, size)
    return lambda: erm.RidgeProblem.fit(x, y, _LAMBDA)


def fitted_dimension(size):
    """Return the work of fitting a ridge regression of `size` features to 20,000 rows."""
    return Work(_ridge(size, 20_000))


def solved_dimension(size):
    """Return the work of eight solves in each of 16 ridge trials of `size` features."""
    value, sensitivity, utility = _ridge(size, 1000)().released("gaussian")
    guarantee = nrjax.LinearBoundary.tight_at_epsilon(1.0, sensitivity, 1e-6)
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
    """Return the work of a study that keeps summaries, on all of `size` devices."""
    assert len(jax.devices()) == size
    return _study(FIXED["devices"])


def row_devices(size):
    """Return the work of `bounded_rows` on all of `size` devices."""
    assert len(jax.devices()) == size
    return bounded_rows(FIXED["rows of devices"])


def scalar_workers(size):
    """Return the work of a study that keeps summaries, on `size` workers of one thread."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=size, threads_per_worker=1, dashboard_address=":0")
    client = Client(cluster)
    client.wait_for_workers(size)
    return _study(FIXED["workers"], client=client)
