"""A study that compiles in no time, as a file for the shell: sums of numbers in a file."""

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nrjax


class Sums(NamedTuple):
    last: jax.Array
    rises: jax.Array


class Walk(nrjax.Pytree):
    start: Any
    scales: Any

    def run(self, key):
        moves = self.scales * jax.random.normal(key, self.scales.shape)
        return Sums(self.start + jnp.cumsum(moves), jnp.sum(moves > 0, dtype=jnp.int32))


class Quiet(nrjax.Reporting):
    """With one figure that takes no time."""

    def figures(self, results):
        from matplotlib.figure import Figure

        return {"sums": lambda _: Figure(figsize=(0.5, 0.5))}


reporting = Quiet()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Walks: sums of normal steps."""

    data: Path = Path(os.environ.get("WALKS", "scales.csv"))
    """File of the scales of the steps."""
    start: tuple[float, ...] = (0.0, 6.0)
    """Where walks begin."""
    wide: int = 1
    """How often the scales are repeated."""


def study(settings: Settings) -> nrjax.Study:
    """A case for each beginning."""
    dtype = jnp.result_type(float)
    scales = np.repeat(np.loadtxt(settings.data), settings.wide).astype(dtype)
    cases = {
        f"from-{start:g}": nrjax.Case(
            trial=Walk(np.asarray(start, dtype), scales),
            labels={"start": start, "total": float(scales.sum())},
        )
        for start in settings.start
    }
    return nrjax.Study("walks", cases, reporting=reporting)
