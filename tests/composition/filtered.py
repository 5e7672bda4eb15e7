"""Grids under a filter, and trials that run them."""

import jax
import jax.numpy as jnp
import numpy as np

import nrjax
from nrjax import composition as c
from tests.problems import Distance, scalar

DTYPE = np.dtype(jnp.result_type(float))
TIMES = np.geomspace(100.0, 0.01, 60)
KEY = jax.random.key(3)
AMPLE = c.UnifiedFilter(1000.0, 1e-6)


def wrap(filter, kind=c.BrownianReduction, state=None, times=TIMES, sensitivity=1.0, **changes):
    """Return a grid under a filter."""
    schedule = times if isinstance(times, nrjax.Schedule) else nrjax.Grid(times)
    state = filter.init() if state is None else state
    return c.FilteredSchedule(schedule, filter, state, kind, sensitivity, **changes)


def run(schedule, threshold=-0.1, key=KEY, **changes):
    """Run a trial on the number 0, whose utility is minus the distance of a release."""
    parts = scalar(threshold=threshold, value=0.0, guarantee=None, utility=Distance(0.0))
    return nrjax.run_until(key, nrjax.Interaction(**parts | {"schedule": schedule} | changes))
