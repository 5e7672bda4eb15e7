"""Custom trials that compile quickly and have every kind of value, for tests of counting."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nrjax._base.outcome import Status
from nrjax._base.pytrees import Pytree
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.counting import HistogramSpec

LEVELS = 3
EPSILON = LogBins.covering(0.05, 40.0, 10)


class Drawn(NamedTuple):
    epsilon: jax.Array
    utility: jax.Array
    step: jax.Array
    status: jax.Array
    loss: jax.Array


class Draws(Pytree):
    """A custom trial with a log-normal epsilon, that may fail or have no utility or loss."""

    scale: Any

    def run(self, key):
        normal = jax.random.normal(key, (5 + LEVELS,))  # one draw: little to compile
        epsilon = jnp.exp(self.scale * normal[0])
        utility = jnp.where(normal[1] > 1.5, jnp.nan, 3.0 - normal[1])
        step = jnp.clip(jnp.floor(4 * normal[2]), -1, 12).astype(jnp.int32)
        status = jnp.where(normal[3] > 1.0, Status.EXHAUSTED, Status.STOPPED)
        loss = jnp.round(8 * normal[5:]) / 8  # zeros, and edges of bins
        loss = loss * jnp.arange(1, LEVELS + 1)
        loss = jnp.where(jnp.abs(loss) > 5, jnp.copysign(jnp.inf, loss), loss)
        return Drawn(epsilon, utility, step, status.astype(jnp.int32), loss)


GOAL = 2.9
SPECS = (
    ("stopping_epsilon", HistogramSpec("stopping_epsilon", EPSILON)),
    ("stopped_epsilon", HistogramSpec("stopping_epsilon", EPSILON, stopped=True)),
    ("status", HistogramSpec("status", WholeBins(int(min(Status)), int(max(Status))))),
    ("step", HistogramSpec("step", WholeBins(-1, 9))),
    ("stopped_step", HistogramSpec("step", WholeBins(0, 9), stopped=True)),
    ("shortfall", HistogramSpec("shortfall", LogBins(-8, 3, 7))),
    ("utility", HistogramSpec("utility", LogBins(-8, 3, 7, signed=True))),
    ("loss", HistogramSpec("loss", LogBins(-6, 3, 5, signed=True), ("level", LEVELS))),
    ("stopped_loss", HistogramSpec("loss", None, ("level", LEVELS), stopped=True)),
)


def expected(kept):
    """Return the values of each variable of SPECS by NumPy, from the trials that it counts."""
    stopped = kept["status"] == Status.STOPPED
    lacking = np.maximum(np.asarray(GOAL, kept["utility"].dtype) - kept["utility"], 0)
    columns = kept | {
        "stopping_epsilon": np.where(stopped, kept["epsilon"], np.inf),
        "shortfall": np.where(stopped, lacking, np.nan),
    }
    return {
        name: columns[spec.column][stopped] if spec.stopped else columns[spec.column]
        for name, spec in SPECS
    }
