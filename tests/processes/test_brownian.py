"""The Brownian process against its law, in inverse time where its increments are independent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes.brownian import Brownian, BrownianState
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


def increments(path, times):
    """`X(u) = u B_{1/u}` is a Brownian motion in u = 1/t: its steps, divided by their deviation."""
    u = 1 / np.asarray(times)
    walk = u[None, :, None] * path
    steps = np.diff(walk, axis=1, prepend=0) / np.sqrt(np.diff(u, prepend=0))[None, :, None]
    return steps.reshape(len(path), -1)


def brownian_p(path, times):
    """Normal steps, uncorrelated with each other and with each other's size."""
    steps = increments(path, times)
    i, j = np.triu_indices(steps.shape[1], 1)
    sizes = steps**2 - 1
    return bonferroni(
        [
            law_p(steps, stats.norm.cdf),
            mean_p(sizes, 0.0),
            mean_p(steps[:, i] * steps[:, j], 0.0),
            mean_p(sizes[:, i] * sizes[:, j], 0.0),
        ]
    )


@pytest.fixture(scope="module")
def path():
    return draw_paths(PROCESS, TIMES, 50_000, seed=1)[0]


def test_increments_are_independent_and_normal(path):
    assert brownian_p(path, TIMES) > SOUND


@pytest.mark.parametrize("change", [fresh, shrunk])
def test_planted_changes_are_seen(path, change):
    assert brownian_p(change(path), TIMES) < FAULTY


def linear_deviation(key, state, time):
    step = time * (state.time - time) / state.time
    noise = step * jax.random.normal(key, PROCESS.shape, state.time.dtype)
    return BrownianState((time / state.time) * state.value + noise, time)


def test_planted_faults_are_seen():
    """A deviation of dt, not of sqrt(dt); and a key that is used again."""
    wrong = draw_paths(Altered(PROCESS, rewind=linear_deviation), TIMES, 50_000, seed=1)[0]
    again = draw_paths(PROCESS, TIMES, 50_000, seed=1, reuse_key=True)[0]
    for path in (wrong, again):
        assert brownian_p(path, TIMES) < FAULTY


def test_fresh_noise_has_the_right_marginals(path):
    """Why the marginals alone would not do."""
    scaled = fresh(path) / np.sqrt(TIMES)[None, :, None]
    assert bonferroni([law_p(scaled.reshape(len(path), -1), stats.norm.cdf)]) > SOUND


def test_privacy_loss_is_the_log_likelihood_ratio(dtype):
    value, shift, time = np.array([0.7, -2.1]), np.array([0.4, 0.3]), 2.5
    density = stats.norm(scale=np.sqrt(time)).logpdf
    want = np.sum(density(value) - density(value + shift))
    state = BrownianState(jnp.asarray(value, dtype), jnp.asarray(time, dtype))
    got = PROCESS.privacy_loss(state, shift)
    np.testing.assert_allclose(got, want, rtol=20 * float(jnp.finfo(dtype).eps))
