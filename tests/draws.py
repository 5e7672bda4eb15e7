"""Custom trials that compile quickly and return every kind of value, for tests of stores."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from nrjax.simulation.sketches import Fold, Sketch

from nrjax.pytrees import Pytree
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.types import Status

LEVELS = 3
THRESHOLDS = (0.3, 1.0, 2.5)
EPSILON = LogBins.covering(0.05, 40.0, 10)


class Drawn(NamedTuple):
    epsilon: jax.Array
    utility: jax.Array
    step: jax.Array
    status: jax.Array
    loss: jax.Array


class Draws(Pytree):
    """Log-normal epsilons, with trials that fail, have no utility, or have an infinite loss."""

    scale: Any

    def run(self, key):
        normal = jax.random.normal(key, (5 + LEVELS,))  # one draw, to compile quickly
        epsilon = jnp.exp(self.scale * normal[0])
        utility = jnp.where(normal[1] > 1.5, jnp.nan, 3.0 - normal[1])
        step = jnp.clip(jnp.floor(4 * normal[2]), -1, 12).astype(jnp.int32)
        status = jnp.where(normal[3] > 1.0, Status.EXHAUSTED, Status.STOPPED)
        loss = jnp.round(8 * normal[5:]) / 8  # zeros, and edges of bins
        loss = loss * jnp.arange(1, LEVELS + 1)
        loss = jnp.where(jnp.abs(loss) > 5, jnp.copysign(jnp.inf, loss), loss)
        return Drawn(epsilon, utility, step, status.astype(jnp.int32), loss)


def derived(results, parameters):
    """Return the results that studies derive from a trial's results."""
    del parameters
    stopped = results["status"] == Status.STOPPED
    return {
        **results,
        "epsilon": jnp.where(stopped, results["epsilon"], jnp.inf),
        "has_epsilon": jnp.ones_like(stopped),
        "stopped_step": jnp.where(stopped, results["step"], -1),
        "stopped_loss": jnp.where(stopped[:, None], results["loss"], jnp.nan),
    }


SKETCH = Sketch(
    {
        "epsilon": Fold(THRESHOLDS, EPSILON),
        "has_epsilon": Fold(bins=WholeBins(0, 1)),
        "status": Fold(bins=WholeBins(int(min(Status)), int(max(Status)))),
        "step": Fold(bins=WholeBins(-1, 9)),
        "stopped_step": Fold(bins=WholeBins(0, 9, missing=True)),
        "utility": Fold((2.9,), LogBins(-8, 3, 7, signed=True)),
        "loss": Fold((0.0,), LogBins(-6, 3, 5, signed=True), ("level", LEVELS)),
        "stopped_loss": Fold(dim=("level", LEVELS)),
    },
    derive=derived,
)


def expected(kept):
    """Return the variables of SKETCH for kept trials, NaN where a trial has none."""
    arrays = {name: np.asarray(values) for name, values in derived(kept, None).items()}
    step = arrays["stopped_step"]
    return arrays | {"stopped_step": np.where(step < 0, np.nan, step)}
