"""What a problem releases carries its norm; mechanisms that are made of it cannot mismatch."""

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from tests.erm.risks import KINDS, problem_of

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_every_problem_is_released_in_one_way(kind):
    one = problem_of(kind)
    for noise, norm in (("gaussian", "l2"), ("laplace", "l1")):
        released = one.released(noise)
        value, sensitivity, utility = released
        assert isinstance(sensitivity, nrjax.Sensitivity)
        assert sensitivity.norm == norm
        stated = one.l2_sensitivity if norm == "l2" else one.l1_sensitivity
        assert (sensitivity, norm) == (stated, stated.norm)
        assert jax.eval_shape(utility.hypothesis, value).shape == (one.dimension,)


@each_kind
def test_a_mechanism_has_the_value_its_noise_and_its_guarantee(kind):
    released = problem_of(kind).released("gaussian")
    for boundary in (nrjax.LinearBoundary, nrjax.OneSidedMixtureBoundary):
        parts = released.mechanism(delta=1e-6, tight_at_epsilon=0.3, boundary=boundary)
        assert parts.process == nrjax.Brownian(released.value.shape)
        expected = boundary.tight_at_epsilon(0.3, released.sensitivity, 1e-6)
        assert parts.guarantee == expected
    parts = released.mechanism(delta=1e-6, tight_at_time=2.0)
    assert parts.guarantee == nrjax.LinearBoundary.tight_at_time(2.0, released.sensitivity, 1e-6)
    released = problem_of(kind).released("laplace")
    assert released.mechanism().process == nrjax.Laplace(released.value.shape)
    own = nrjax.IndependentLaplace(released.value.shape)
    parts = released.mechanism(own)
    assert parts.process is own
    assert parts.guarantee == nrjax.PureGuarantee(released.sensitivity)
    grid = nrjax.Grid.geometric(parts.guarantee, 0.3, 1.0, 3)
    rest = {"schedule": grid, "utility": released.utility, "rule": nrjax.PublicThreshold(-np.inf)}
    expected = nrjax.Interaction(**parts._asdict(), **rest, max_steps=2)
    found = parts.interaction(*rest.values(), max_steps=2)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@each_kind
def test_no_representation_prints_an_array(kind):
    one = problem_of(kind)
    released = one.released("laplace")
    for value in (one, one.minimum, released, released.mechanism(), released.utility):
        text = repr(value)
        assert text.startswith(type(value).__name__)
        assert "\n" not in text
        assert len(text) < 900
        assert "float64" in text


def test_a_sensitivity_is_a_float_that_keeps_its_norm():
    one = nrjax.Sensitivity(0.5, "l2")
    for same in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (same, same.norm) == (0.5, "l2")
    assert json.dumps(one) == "0.5"
    assert jnp.asarray(one).dtype == jnp.result_type(float)
    assert jax.jit(lambda number: 2 * number)(one) == 1.0
    assert nrjax.PureGuarantee(2 * one).epsilon(1.0) >= 1.0  # arithmetic forgets the norm
