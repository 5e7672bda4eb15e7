"""Portability: every kind of program lowers for CPUs, GPUs and TPUs.

No device is needed, and nothing is compiled: an operation that a platform lacks, such as a solver
of LAPACK, is already an error of `jax.export`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import counts
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.simulation import montecarlo
from nrjax.simulation.families import Family
from nrjax.simulation.program import _on_devices
from nrjax.simulation.resolved import Resolved
from tests import problems
from tests.marks import long_except
from tests.problems import Distance, small_data

pytestmark = pytest.mark.bits

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
BATCHING = nrjax.Batching(tile=4, lanes=8, devices=jax.devices()[:1])
X, Y = small_data(rows=60, dimension=3)
interaction = partial(problems.interaction, np.geomspace(40.0, 0.25, 6))


def lowered(program):
    """Return the platforms that a program is lowered for."""
    export = jax.export.export(_on_devices, platforms=PLATFORMS)
    return program._idle(jax.random.key(0), export).platforms


def of_process(process, **changes):
    center = np.full(process.shape, 3.0)
    parts = {"value": center, "process": process, "guarantee": None, "utility": Distance(center)}
    return interaction(**(parts | {"shift": np.ones(process.shape)} | changes))


def of_rule(rule):
    return interaction(
        process=nrjax.Laplace(()), guarantee=nrjax.PureGuarantee(1.0), rule=rule, shift=1.0
    )


def learning(value, utility, noise=nrjax.Brownian):
    parts = {"value": value, "process": noise(value.shape), "guarantee": None, "utility": utility}
    return interaction(**parts, threshold=-0.7)


def logistic():
    problem = LogisticProblem.fit(X, Y, 0.1)
    return learning(problem.optimum, problem.utility)


def ridge(method):
    problem = RidgeProblem.fit(X, 0.5 * X[:, 0], 0.2)
    value, _, utility = getattr(problem, method)("laplace")
    return learning(value, utility, nrjax.Laplace)


def release(method, filter):
    return counts.CountRelease(
        np.array([90.0, 40.0, 20.0]),
        counts.ExponentialMechanism(0.1, monotone=False),
        counts.RelativeError(0.1),
        filter,
        1e-4,
        method,
        levels=8,
        marks=3,
    )


TRIALS = {  # Laplace noise is in those of rules, Brownian in others
    "discrete laplace": lambda: of_process(nrjax.DiscreteLaplace(())),
    "jumps": lambda: of_process(nrjax.LaplaceJumps((3,), 0.02, 40.0)),
    "skellam": lambda: of_process(nrjax.Skellam((3,), 2.0, 2.0)),
    "independent": lambda: of_process(nrjax.IndependentLaplace((3,)), shift=None),
    "above threshold": lambda: of_rule(nrjax.AboveThreshold(-2.0, 1.0, 0.2)),
    "reduced": lambda: of_rule(nrjax.ReducedAboveThreshold(-2.0, 1.0)),
    "tests": lambda: of_rule(nrjax.LaplaceTests(-2.0, 1.0, 0.2)),
    "logistic": logistic,
    "ridge": lambda: ridge("released"),
    "ridge output": lambda: ridge("released_optimum"),
    "sequence": lambda: interaction(utility=nrjax.UtilitySequence.of([Distance(3.0)] * 6)),
    "sweep": lambda: Family.from_interactions([interaction(), interaction(threshold=-0.7)]),
}
CUSTOM = {
    "brownian, unified": lambda: release("brownian", nrjax.UnifiedFilter(1.0, 1e-6)),
    "doubling, gaussian": lambda: release("doubling", nrjax.GaussianFilter(1.0, 1e-6)),
    "laplace, renyi": lambda: release("laplace", nrjax.RenyiFilter(40.0, 1.0, 1e-6)),
}
USUAL = "jumps", "paths, resolved"
PROGRAMS = {
    **{name: (montecarlo.outcomes, build) for name, build in TRIALS.items()},
    "paths, bounds": (montecarlo.paths, logistic),
    "paths, resolved": (montecarlo.paths, lambda: Resolved(logistic(), 1e-3)),
    **{name: (montecarlo.custom_trials, build) for name, build in CUSTOM.items()},
}


@pytest.mark.parametrize("name", long_except(PROGRAMS, *USUAL))
def test_programs(name):
    program, build = PROGRAMS[name]
    assert lowered(program(build(), 8, batching=BATCHING)) == PLATFORMS


class Eigenvalues(Distance):
    """A utility with a solver that TPUs lack."""

    def evaluate(self, hypothesis):
        return jnp.real(jnp.linalg.eigvals(hypothesis[None, None])[0])


def test_a_planted_solver_of_cpus_is_found():
    trial = interaction(utility=Eigenvalues(3.0))
    with pytest.raises(NotImplementedError, match="eig"):
        lowered(montecarlo.outcomes(trial, 8, batching=BATCHING))
