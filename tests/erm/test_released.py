"""What a problem releases carries its norm; mechanisms that are made of it cannot mismatch."""

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from tests.erm.losses import LAMBDA
from tests.erm.risks import KINDS, laplace_trial, problem_of, ridge_risk

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
    rule = nrjax.PublicThreshold(-np.inf)
    trial = released.mechanism().interaction(grid, released.utility, rule)
    if kind == "logistic":
        outcome = nrjax.run_until(jax.random.key(0), trial)
        assert outcome.epsilon == pytest.approx(0.3, rel=1e-5)


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


def test_trials_run_end_to_end():
    problem, data = problem_of("ridge"), KINDS["ridge"][1]
    value, moved, utility = problem.released_optimum("laplace", "tight")
    rule = nrjax.PublicThreshold(-0.01)
    trial = laplace_trial(value, moved, utility.excess_risk(), rule, (0.5, 500.0, 100))
    batching = nrjax.Batching(tile=32, lanes=32)
    outcome = nrjax.simulate(jax.random.key(0), trial, trials=32, batching=batching)
    assert np.all(outcome.status == nrjax.Status.STOPPED)
    assert np.mean(outcome.step) > 5
    for theta, found in zip(outcome.hypothesis, outcome.utility, strict=True):
        loss = ridge_risk(np.asarray(theta, float), *data, LAMBDA) - problem.optimum_loss
        assert -found == pytest.approx(loss, rel=1e-4, abs=1e-7)
        assert loss <= 0.01 * (1 + 1e-5)
