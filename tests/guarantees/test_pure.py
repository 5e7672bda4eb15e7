"""The pure guarantee of Laplace noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import PureGuarantee


def test_formula_and_delta():
    g = PureGuarantee(3.0)
    assert g.delta == 0
    times = jnp.geomspace(1e-6, 1e6, 100)
    np.testing.assert_allclose(g.epsilon(times), 3 / np.asarray(times, float), rtol=1e-6)
    np.testing.assert_allclose(g.time(times), 3 / np.asarray(times, float), rtol=2e-6)
    assert np.all(np.asarray(g.epsilon(times), float) > 3 / np.asarray(times, float))


def test_vmap_over_sensitivity():
    out = jax.jit(jax.vmap(lambda s: PureGuarantee(s).time(0.5)))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(out, [2.0, 4.0], rtol=2e-6)
    assert PureGuarantee(np.float32(2)).epsilon(jnp.float32(1)).dtype == jnp.float32


def test_refusals():
    g = PureGuarantee(1.0)
    for epsilon in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="epsilon = "):
            g.time(epsilon)
        assert jax.jit(g.time)(epsilon) == jnp.inf
    for time in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="time = "):
            g.epsilon(time)
        assert jnp.isnan(jax.jit(g.epsilon)(time))
    for sensitivity in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="sensitivity = "):
            PureGuarantee(sensitivity)
