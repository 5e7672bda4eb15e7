"""Studies that compile quickly, for tests of runs and reports."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax.simulation.tiles import Options
from nrjax.study.case import FIELDS
from nrjax.study.passes import OutcomePass
from tests.problems import Distance

BOUNDARY = nrjax.LinearBoundary.tight_at_epsilon(0.5, sensitivity=1.0, delta=1e-6)
GRID = nrjax.Grid.geometric(BOUNDARY, 0.3, 20.0, 12)


def interaction(threshold=-0.5, **changes):
    """Return an interaction that adds Brownian noise to the number 3 until it is near."""
    parts = {
        "value": np.asarray(3, jnp.result_type(float)),
        "process": nrjax.Brownian(()),
        "guarantee": BOUNDARY,
        "schedule": GRID,
        "utility": Distance(3.0),
        "rule": nrjax.PublicThreshold(threshold),
    }
    return nrjax.Interaction(**parts | changes)


class Walked(NamedTuple):
    """A number, a path, an integer and a boolean."""

    end: jax.Array
    path: jax.Array
    rises: jax.Array
    high: jax.Array


class Walk(nrjax.Pytree):
    """A custom trial: a few normal steps."""

    start: Any

    def run(self, key):
        moves = jax.random.normal(key, (4,))
        path = self.start + jnp.cumsum(moves)
        return Walked(path[-1], path, jnp.sum(moves > 0, dtype=jnp.int32), path[-1] > 0)


class Quiet(nrjax.Reporting):
    """A report without figures, which take the most time."""

    def figures(self, results):
        return {}


def study(cases=None, **options):
    """Return a study of two interactions with different thresholds and two custom trials."""
    if cases is None:
        cases = {"near": interaction(), "far": interaction(-2.0)}
        cases |= {"low": Walk(np.float32(0)), "high": Walk(np.float32(6))}
    return nrjax.Study("cheap", cases, **{"reporting": Quiet()} | options)


class Known(nrjax.Study):
    """A study whose results are known: the epsilon of each trial, infinite if it did not stop."""

    def __init__(self, paid):
        super().__init__("known", dict.fromkeys(paid, interaction()), reporting=Quiet())
        self.paid = paid

    def _passes(self, options):
        found = super()._passes(options)
        return {
            name: {
                "outcome": _KnownPass(own.case, own.trials, own.chunk, own.keep, self.paid[name])
            }
            for name, passes in found.items()
            for own in passes.values()
        }


@dataclasses.dataclass(frozen=True, eq=False)
class _KnownPass(OutcomePass):
    """A pass whose program returns known epsilons."""

    paid: Any

    def program(self):
        return _Known(self.paid, self.layout.trials)


_OPTIONS = Options(tile=1, fields=None, derived=())


@dataclasses.dataclass(frozen=True)
class _Known:
    """A stand-in for a program."""

    trial: Any
    launch_size: int
    options: Any = _OPTIONS
    code_fingerprint: str = ""
    kind: str = ""
    batch: int = 1000

    def compile(self, key):
        """Compile nothing."""

    prepare = compile

    def launch(self, key, trials, first_trial):
        assert trials <= self.launch_size
        return first_trial, trials

    def collect(self, launch):
        first_trial, trials = launch
        dtype = jnp.result_type(float)
        paid = self.trial[first_trial : first_trial + trials].astype(dtype)
        stopped = ~np.isinf(paid)
        found = dict.fromkeys(FIELDS, np.zeros(trials, dtype))
        found |= {"epsilon": np.where(stopped, paid, 9), "step": np.zeros(trials, np.int32)}
        status = np.where(stopped, nrjax.Status.STOPPED, nrjax.Status.EXHAUSTED)
        return found | {"status": status.astype(np.int32)}


def outcomes(goals=None, utility=None, notions=None, **epsilons):
    """Return `Outcomes` of these epsilons, where infinite means that the trial did not stop."""
    named = {}
    for name, epsilon in epsilons.items():
        epsilon = np.asarray(epsilon, float)
        status = np.where(np.isinf(epsilon), nrjax.Status.EXHAUSTED, nrjax.Status.STOPPED)
        fields = dict.fromkeys(FIELDS, np.zeros(epsilon.size))
        fields |= {"epsilon": epsilon, "status": status.astype(np.int32)}
        if utility is not None:
            fields["utility"] = np.asarray(utility[name], float)
        named[name] = nrjax.Outcome(release=0, hypothesis=0, **fields)
    return nrjax.Outcomes(named, goals, notions)
