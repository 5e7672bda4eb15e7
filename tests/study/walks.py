"""A study in a file for the command, which compiles quickly: sums of normal steps."""

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
    """A report with one figure, which is drawn quickly."""

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
    """Starts of the walks."""
    wide: int = 1
    """Number of repetitions of the scales."""


def study(settings: Settings) -> nrjax.Study:
    """Return a study with a case per start."""
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
