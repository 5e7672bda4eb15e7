"""The public threshold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax import PublicThreshold


def test_stops_at_and_above_the_threshold_and_costs_nothing():
    rule, key = PublicThreshold(-0.5), jax.random.key(0)
    state = rule.init(key, jnp.array(1.0))
    for utility, expected in ((-0.6, False), (-0.5, True), (0.0, True), (np.nan, False)):
        state, stop = rule.step(key, state, jnp.array(1.0), jnp.array(utility))
        assert bool(stop) is expected
    np.testing.assert_array_equal(rule.cost(jnp.array([0.3, 2.0])), np.zeros(2))


def test_a_threshold_can_be_batched_and_must_be_a_number():
    def stops(threshold):
        rule = PublicThreshold(threshold)
        return rule.step(jax.random.key(0), (), jnp.array(1.0), jnp.array(0.2))[1]

    np.testing.assert_array_equal(jax.vmap(stops)(jnp.array([0.1, 0.3])), [True, False])
    with pytest.raises(ValueError, match="threshold = nan: must be a number"):
        PublicThreshold(np.nan)
