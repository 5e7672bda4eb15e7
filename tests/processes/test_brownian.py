"""The Brownian process against its law, in inverse time where its increments are independent."""

import jax
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Brownian
from tests.processes.laws import (
    FAULTY,
    SOUND,
    Altered,
    bonferroni,
    draw_paths,
    fresh,
    law_p,
    mean_p,
    shrunk,
)

pytestmark = pytest.mark.numerical

TIMES = (9.0, 5.0, 2.0, 1.9, 0.01)
PROCESS = Brownian((2,))


def brownian_p(path):
    """`X(u) = u B_{1/u}` is a Brownian motion in u = 1/t.

    Its steps, divided by their deviation, are normal, and uncorrelated with each other and with
    each other's size.
    """
    u = 1 / np.array(TIMES)
    walk = u[None, :, None] * path
    steps = np.diff(walk, axis=1, prepend=0) / np.sqrt(np.diff(u, prepend=0))[None, :, None]
    steps = steps.reshape(len(path), -1)
    i, j = np.triu_indices(steps.shape[1], 1)
    sizes = steps**2 - 1
    products = (sizes, steps[:, i] * steps[:, j], sizes[:, i] * sizes[:, j])
    return bonferroni([law_p(steps, stats.norm.cdf), *(mean_p(part, 0.0) for part in products)])


def linear_deviation(key, state, time):
    """Fault: a deviation of dt, not of sqrt(dt)."""
    step = time * (state.time - time) / state.time
    noise = step * jax.random.normal(key, PROCESS.shape, state.time.dtype)
    return state._replace(value=(time / state.time) * state.value + noise, time=time)


@pytest.fixture(scope="module")
def path():
    return draw_paths(PROCESS, TIMES, 50_000, seed=1)[0]


def test_increments_are_independent_and_normal(path):
    assert brownian_p(path) > SOUND


@pytest.mark.long
def test_planted_faults_are_seen(path):
    wrong = draw_paths(Altered(PROCESS, rewind=linear_deviation), TIMES, 50_000, seed=1)[0]
    again = draw_paths(PROCESS, TIMES, 50_000, seed=1, reuse_key=True)[0]
    for faulty in (wrong, again, fresh(path), shrunk(path)):
        assert brownian_p(faulty) < FAULTY
    # The marginals alone would not do: fresh noise has the right ones.
    scaled = fresh(path) / np.sqrt(TIMES)[None, :, None]
    assert bonferroni([law_p(scaled.reshape(len(path), -1), stats.norm.cdf)]) > SOUND
