"""The reduced rule follows the epsilons, and refuses epsilons that fall."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax._base.outcome import Status
from nrjax.stopping import ReducedAboveThreshold, first_yes

pytestmark = pytest.mark.numerical

RULE = ReducedAboveThreshold(0.0, 0.5)
KEY, QUERY = jax.random.split(jax.random.key(3))
BAD = (np.nan, np.inf, 0.0, -1.0)


@jax.jit
def follow(epsilons, utilities):
    """Return answers, statuses and states at traced epsilons."""

    def step(state, inputs):
        i, epsilon, utility = inputs
        state, stop = RULE.step(jax.random.fold_in(QUERY, i), state, epsilon, utility)
        seen = state.noise.value, state.noise.time, state.epsilon
        return state, (stop, RULE.status(state), *seen)

    inputs = jnp.arange(len(epsilons)), epsilons, utilities
    return jax.lax.scan(step, RULE.init(KEY, epsilons[0]), inputs)[1]


def at(*epsilons):
    epsilons = np.array(epsilons, jnp.result_type(float))
    return [np.asarray(part) for part in follow(epsilons, np.full_like(epsilons, np.inf))]


def test_noise_shrinks_with_epsilon_and_stays_where_that_stays():
    epsilons = np.array([0.5, 0.5, 1.0, 1.0, 4.0])
    stop, status, noise, scale, _ = at(*epsilons)
    assert stop.all()
    assert np.all(status == Status.RUNNING)
    np.testing.assert_allclose(scale, 2 * 0.5 / epsilons, rtol=1e-4)
    np.testing.assert_array_equal(noise[[0, 2]], noise[[1, 3]])
    assert np.all(scale * epsilons >= 1.0)  # rounded to more noise, never less


@pytest.mark.parametrize("bad", [*BAD, 0.7])
def test_a_bad_epsilon_under_a_trace_ends_the_rule(bad):
    stop, status, *states = at(0.5, 0.75, bad, 0.75, 1.0)
    np.testing.assert_array_equal(stop, [True, True, False, False, False])
    np.testing.assert_array_equal(status == Status.INVALID_TIME, ~stop)
    for frozen in states:
        assert np.all(frozen[1:] == frozen[1])
        assert np.all(np.isfinite(frozen))
    first = float(jnp.finfo(jnp.result_type(float)).tiny) / 4 if bad == 0.7 else bad
    stop, status, *_ = at(first, 0.5, 0.5, 0.75, 1.0)
    assert not stop.any()
    assert np.all(status == Status.INVALID_TIME)


def test_a_bad_epsilon_is_an_error_where_it_is_concrete():
    state = RULE.init(KEY, 0.5)
    for bad in BAD:
        for call in (lambda: RULE.init(KEY, bad), lambda: RULE.step(QUERY, state, bad, 0.0)):  # noqa: B023
            with pytest.raises(ValueError, match="epsilon must be positive and finite"):
                call()
    state, _ = RULE.step(QUERY, state, 0.75, 0.0)
    with pytest.raises(ValueError, match=r"epsilon must be at least 0\.75.*must not fall"):
        RULE.step(QUERY, state, 0.7, 0.0)
    RULE.step(QUERY, state, 0.75, 0.0)


def test_rounding_is_not_a_fall_and_is_paid_for():
    """The epsilon of a guarantee may fall by rounding, for which noise is wider."""
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    lower = 0.75 * (1 - 24 * eps)
    _, status, noise, scale, epsilon = at(0.5, 0.75, lower, lower, 0.75 * (1 - 60 * eps))
    np.testing.assert_array_equal(status[:4], np.full(4, Status.RUNNING))
    assert status[4] == Status.INVALID_TIME
    assert np.all(noise[1:] == noise[1])
    assert np.all(epsilon[1:] == epsilon[1])
    assert np.all(scale[1:4].astype(float) * lower >= 1.0)


def test_a_batch_refuses_lane_by_lane():
    epsilons = jnp.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.7], [0.5, 0.6, np.nan]])
    keys = jax.random.split(KEY, 3)
    found = jax.vmap(lambda key, e: first_yes(key, RULE, jnp.full(3, -1e9), e))(keys, epsilons)
    expected = [Status.EXHAUSTED, Status.INVALID_TIME, Status.INVALID_TIME]
    np.testing.assert_array_equal(found.status, expected)
    # Negative answers before the failure are paid for at their epsilon.
    np.testing.assert_array_equal(found.step, [2, 0, 1])
    np.testing.assert_allclose(found.cost, [0.35, 0.25, 0.3], rtol=1e-6)
