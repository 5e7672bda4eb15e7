"""Portability: every kind of program that the studies run lowers for CPUs, GPUs and TPUs.

No device is needed, and nothing is compiled: what a platform lacks (a solver that is only LAPACK's,
say) is an error of `jax.export` already.
"""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import counts
from nrjax.erm import LogisticProblem, RidgeProblem
from nrjax.simulation import montecarlo
from nrjax.simulation.folding import SketchProgram, sketches
from nrjax.simulation.program import _on_devices
from nrjax.simulation.resolved import Resolved
from nrjax.simulation.sketches import Fold, Sketch
from nrjax.simulation.sweeps import Family
from nrjax.study import identity
from nrjax.study.filling import programs
from nrjax.study.settings import RunSettings
from tests import problems
from tests.draws import SKETCH, Draws
from tests.problems import Distance, small_data

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
BATCHING = nrjax.Batching(tile=4, lanes=8, devices=jax.devices()[:1])
TIMES = np.geomspace(40.0, 0.02, 6)
X, Y = small_data(rows=60, dimension=3)


def lowered(program):
    """For which platforms."""
    export = jax.export.export(_on_devices, platforms=PLATFORMS)
    return program._idle(jax.random.key(0), export).platforms


interaction = partial(problems.interaction, TIMES)


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


def bounded():
    problem = LogisticProblem.fit(X, Y, 0.1)
    return learning(problem.optimum, problem.utility)


def released(way):
    problem = RidgeProblem.fit(X, 0.5 * X[:, 0], 0.2)
    value, _, utility = getattr(problem, way)("laplace")
    return learning(value, utility, nrjax.Laplace)


def release(method, filter):
    return counts.CountRelease(
        np.array([90.0, 40.0, 20.0]),
        counts.ExponentialMechanism(0.1),
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
    "interactive": lambda: of_rule(nrjax.InteractiveAboveThreshold(-2.0, 1.0, 0.2)),
    "reduced": lambda: of_rule(nrjax.ReducedAboveThreshold(-2.0, 1.0)),
    "tests": lambda: of_rule(nrjax.LaplaceTests(-2.0, 1.0, 0.2)),
    "bounds": bounded,
    "ceiling, solve": lambda: released("released"),
    "ceiling": lambda: released("released_optimum"),
    "sequence": lambda: interaction(utility=nrjax.UtilitySequence.of([Distance(3.0)] * 6)),
    "sweep": lambda: Family.of([interaction(), interaction(threshold=-0.7)]),
}
SESSIONS = {
    "brownian, unified": lambda: release("brownian", nrjax.UnifiedFilter(1.0, 1e-6)),
    "doubling, gaussian": lambda: release("doubling", nrjax.GaussianFilter(1.0, 1e-6)),
    "laplace, renyi": lambda: release("laplace", nrjax.RenyiFilter(40.0, 1.0, 1e-6)),
}


PROGRAMS = {
    **{name: (montecarlo.outcomes, make) for name, make in TRIALS.items()},
    "paths, bounds": (montecarlo.paths, bounded),
    "paths, resolved": (montecarlo.paths, lambda: Resolved(bounded(), 1e-3)),
    **{name: (montecarlo.sessions, make) for name, make in SESSIONS.items()},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    program, make = PROGRAMS[name]
    assert lowered(program(make(), 8, batching=BATCHING)) == PLATFORMS


def test_folding():
    """Of sessions, and of trials that are refilled."""
    for program, sketch in (
        (montecarlo.sessions(Draws(0.7), 1024, BATCHING), SKETCH),
        (montecarlo.outcomes(interaction(), 8, batching=BATCHING), Sketch({"utility": Fold()})),
    ):
        assert lowered(sketches(program, sketch)) == PLATFORMS


class Eigenvalues(Distance):
    """With a solver that TPUs lack."""

    def evaluate(self, hypothesis):
        return jnp.real(jnp.linalg.eigvals(hypothesis[None, None])[0])


def test_a_planted_solver_of_cpus_is_found():
    trial = interaction(utility=Eigenvalues(3.0))
    with pytest.raises(NotImplementedError, match="eig"):
        lowered(montecarlo.outcomes(trial, 8, batching=BATCHING))


LIGETT = {"alpha": (0.3,), "levels": 8}
OUTPUT = LIGETT | {"ridge_perturbation": "output"}
CURVES = {"levels": 8, "curve_levels": 3}
STUDIES = [
    ("ligett2017", LIGETT | {"task": ("logistic",), "target": "label"}),
    ("ligett2017", LIGETT | {"task": ("ridge",), "target": "score"}),
    ("ligett2017", OUTPUT | {"task": ("ridge",), "target": "score"}),
    ("whitehouse2022", CURVES | {"task": ("logistic",), "target": "label"}),
    ("whitehouse2022", CURVES | {"task": ("ridge",), "target": "score"}),
    ("rogers2023", {"filter": ("unified", "gaussian", "renyi"), "levels": 8}),
    ("skellam_counts", CURVES),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A user's own rows and counts."""
    folder = tmp_path_factory.mktemp("data")
    np.savez(folder / "own.npz", x=X, label=Y, score=X[:, 0])
    (folder / "own.csv").write_text("item,count\na,31\nb,60\nc,55\n")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(("name", "options"), STUDIES)
def test_all_that_a_study_runs(name, options, files, tmp_path):
    paper = importlib.import_module(f"nrjax.papers.{name}")
    own = str(files / ("own.npz" if "target" in options else "own.csv"))
    data = own if name == "skellam_counts" else (own,)
    study = paper.study(paper.Settings(data=data, **options))
    settings = RunSettings(out=tmp_path, keep="summary", trials=8)
    seen: dict[tuple[str, str], tuple[str, ...]] = {}
    plans = study.plans(settings)
    for program in programs(plans, identity.fingerprints(plans)).values():
        assert isinstance(program, SketchProgram)
        kind = str(jax.tree.structure(program.trial)), str(program.options)
        if kind not in seen:
            seen[kind] = lowered(program)
    assert seen
    assert set(seen.values()) == {PLATFORMS}
