"""A study that compiles in no time, for tests of how studies are run: walks until they are high."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nrjax import montecarlo
from nrjax.program import Program
from nrjax.pytrees import Pytree
from nrjax.studies.layout import Case, Pass, Variable
from nrjax.studies.report import Report, write_report
from nrjax.studies.settings import RunSettings
from nrjax.studies.store import Store
from nrjax.types import Status

NAME = "tiny"


@dataclasses.dataclass(frozen=True)
class Settings(RunSettings):
    """Walks."""

    level: float = 3.0
    """Where they end."""


@dataclasses.dataclass(frozen=True)
class Setup:
    case: Case
    level: float


class Walked(NamedTuple):
    epsilon: jax.Array
    step: jax.Array
    status: jax.Array


class Walk(Pytree):
    level: Any

    def run(self, key):
        def step(state):
            return state[0] + jax.random.normal(jax.random.fold_in(key, state[1])), state[1] + 1

        def low(state):
            return (state[0] < self.level) & (state[1] < 50)

        place, steps = jax.lax.while_loop(low, step, (jnp.zeros(()), jnp.int32(0)))
        status = jnp.where(place < self.level, Status.EXHAUSTED, Status.STOPPED)
        return Walked(place, steps, status.astype(jnp.int32))


def setups(settings: Settings) -> list[Setup]:
    variables = {
        "epsilon": Variable(str(jnp.result_type(float))),
        "step": Variable("int32"),
        "status": Variable("int32"),
    }
    passes = {
        name: Pass(settings.trials, settings.chunk or 8, variables) for name in ("outcome", "curve")
    }
    return [Setup(Case("walk", {"level": settings.level}, passes), settings.level)]


def programs(cases: Sequence[Setup]) -> Mapping[str, Mapping[str, Program]]:
    batching = montecarlo.Batching(tile=4)
    return {
        one.case.name: {
            name: montecarlo.sessions(Walk(np.float32(one.level)), layout.chunk, batching)
            for name, layout in one.case.passes.items()
        }
        for one in cases
    }


def conclude(store: Store) -> None:
    write_report(store, report(store))


def plot(store: Store) -> None:
    """It has no figures."""


def report(store: Store) -> Report:
    mean = float(store.read("walk", "outcome")["step"].mean())
    return Report("walks", ("case", "steps"), (("walk", f"{mean:.2f}"),), ())
