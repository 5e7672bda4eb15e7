"""A custom study that uses all features: a custom rule, a custom utility and a custom trial.

`tests/study/test_conformance.py` runs it next to the papers' studies; the command runs it by
`nrjax run tests/study/example.py --out runs/example`.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import nrjax


class Distance(nrjax.Utility):
    """Minus the distance of a release from a public point."""

    target: Any

    def evaluate(self, hypothesis):
        return -jnp.linalg.norm(hypothesis - self.target)


class Patience(nrjax.StoppingRule):
    """A rule that stops when the utility has been high enough a number of times."""

    threshold: Any
    times: Any

    def init(self, key, epsilon):
        return jnp.int32(0)

    def step(self, key, state, epsilon, utility):
        state += utility >= self.threshold
        return state, state >= self.times

    def cost(self, epsilon, stopped=True, answers=1):
        return jnp.zeros_like(epsilon)


class Walked(NamedTuple):
    place: jax.Array
    steps: jax.Array
    heights: jax.Array


class Walk(nrjax.Pytree):
    """A custom trial: a walk that ends at a height."""

    height: Any

    def run(self, key):
        moves = jnp.cumsum(jax.random.normal(key, (16,)))
        high = moves >= self.height
        steps = jnp.where(jnp.any(high), jnp.argmax(high), 16)
        return Walked(moves[-1], steps.astype(jnp.int32), moves[::4])


def norm(outcome):
    return jnp.linalg.norm(outcome.hypothesis)


def far(outcome):
    return norm(outcome) > 4


def rounded(outcome):
    return jnp.round(outcome.hypothesis).astype(jnp.int32)


def largest_move(walked):
    return jnp.max(jnp.abs(walked.heights))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Distances of noisy releases from a point."""

    radius: float = 1.5
    """Largest distance that is near enough."""
    levels: int = 12
    """Number of levels of the grids."""


def study(settings: Settings) -> nrjax.Study:
    """Return a study of two mechanisms, two rules, curves and a custom trial."""
    value = jnp.array([1.0, 2.0, 3.0])
    parts = {
        ("brownian", "public"): (
            nrjax.Brownian((3,)),
            nrjax.LinearBoundary.tight_at_epsilon(1.0, nrjax.Sensitivity(0.3, "l2"), 1e-6),
            nrjax.PublicThreshold(-settings.radius),
        ),
        ("laplace", "patient"): (
            nrjax.Laplace((3,)),
            nrjax.PureGuarantee(nrjax.Sensitivity(0.5, "l1")),
            Patience(-settings.radius, 3),
        ),
    }
    cases: dict[str, Any] = {}
    for (name, test), (process, guarantee, rule) in parts.items():
        schedule = nrjax.Grid.geometric(guarantee, 0.6, 10.0, settings.levels)
        interaction = nrjax.Interaction(
            value=value,
            process=process,
            guarantee=guarantee,
            schedule=schedule,
            utility=Distance(value),
            rule=rule,
            shift=jnp.array([0.3, 0.0, 0.0]),
        )
        levels = jnp.asarray(guarantee.epsilon(schedule.times)).tolist()
        curve = nrjax.Curve(interaction, {"utility": nrjax.Quantity()}, {"epsilon": levels})
        cases[f"{name}-{test}"] = nrjax.Case(
            trial=interaction,
            labels={"mechanism": name, "test": test},
            curves={"curve": curve} if name == "brownian" else {},
        )
    kept = {
        "place": nrjax.Quantity(),
        "steps": nrjax.Quantity(),
        "heights": nrjax.Quantity(dims=("time",), units="m"),
        "largest_move": nrjax.Quantity(largest_move),
    }
    cases["walk"] = nrjax.Case(
        trial=Walk(2.0), quantities=kept, coordinates={"hour": ("time", [0, 4, 8, 12])}
    )
    quantities = {"norm": norm, "far": far, "rounded": nrjax.Quantity(rounded, dims=("axis",))}
    return nrjax.Study("example", cases, quantities=quantities)
