"""The public threshold."""

import jax
import jax.numpy as jnp
import numpy as np

from nrjax import PublicThreshold


def test_stops_at_and_above_the_threshold_and_costs_nothing():
    rule, key = PublicThreshold(-0.5), jax.random.key(0)
    state = rule.init(key, jnp.array(1.0))
    for utility, expected in ((-0.6, False), (-0.5, True), (0.0, True), (np.nan, False)):
        state, stop = rule.step(key, state, jnp.array(1.0), jnp.array(utility))
        assert bool(stop) is expected
    assert state == 4
    np.testing.assert_array_equal(rule.cost(jnp.array([0.3, 2.0])), np.zeros(2))
    np.testing.assert_array_equal(rule.cost(jnp.array([0.3, 2.0]), stopped=False), np.zeros(2))


def test_each_step_may_have_its_own_threshold():
    rule, key = PublicThreshold([0.0, 1.0, -1.0]), jax.random.key(0)
    state, stops = rule.init(key, jnp.array(1.0)), []
    for _ in range(5):
        state, stop = rule.step(key, state, jnp.array(1.0), jnp.array(0.0))
        stops.append(bool(stop))
    assert stops == [True, False, True, False, False]
