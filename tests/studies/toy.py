"""A study that compiles in no time: random sums, from numbers in a file."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nrjax import montecarlo
from nrjax.pytrees import Pytree
from nrjax.studies.common import chunk_size
from nrjax.studies.folder import SUMMARY, explained, write_whole
from nrjax.studies.settings import RunSettings
from nrjax.studies.store import Case, Pass, Variable

NAME = "toy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    """Sums."""

    data: Path
    start: tuple[float, ...] = (0.0, 6.0)
    wide: int = 1


class Sums(NamedTuple):
    last: jax.Array
    steps: jax.Array


class Walk(Pytree):
    start: Any
    scales: Any

    def run(self, key):
        scales = jnp.asarray(self.scales)
        moves = scales * jax.random.normal(key, scales.shape)
        return Sums(jnp.asarray(self.start, moves.dtype) + jnp.cumsum(moves), jnp.sum(moves > 0))


@dataclasses.dataclass(frozen=True)
class Setup:
    case: Case
    walk: Walk


def setups(settings):
    scales = np.repeat(np.loadtxt(settings.data), settings.wide)
    dtype = jnp.result_type(float)
    variables = {
        "last": Variable(str(dtype), (("place", scales.size),)),
        "steps": Variable("int32"),
    }
    found = []
    for start in settings.start:
        layout = Pass(settings.trials, chunk_size(settings), variables)
        attributes = {"start": start, "trials": settings.trials, "total": float(scales.sum())}
        case = Case(f"from-{start:g}", attributes, {"outcome": layout})
        found.append(Setup(case, Walk(np.asarray(start, dtype), scales.astype(dtype))))
    return found


def programs(cases):
    first = montecarlo.sessions(cases[0].walk, cases[0].case.passes["outcome"].largest)
    return {setup.case.name: {"outcome": _counted(first.of(setup.walk))} for setup in cases}


def _counted(program):
    run = program.run

    def narrowed(*arguments):
        return {k: v.astype("int32") if k == "steps" else v for k, v in run(*arguments).items()}

    program.run = narrowed
    return program


def conclude(store):
    means = {name: float(store.read(name, "outcome")["last"].mean()) for name in store.cases}
    facts = {"study": NAME, "nrjax": store.settings["nrjax"], "cases": means}
    try:
        write_whole(store.folder / SUMMARY, json.dumps(facts).encode())
    except OSError as error:
        raise explained(error, "cannot write the summary") from error


def plot(store):
    store.write_figure("sums.png", np.asarray(store.read("from-0", "outcome")["last"]).tobytes())


def use(runner):
    """Let `resume` find it."""
    known = runner.find
    runner.find = lambda name: sys.modules[__name__] if name == NAME else known(name)
