"""Specifications of releases, whose sensitivity has a norm, and their mechanisms."""

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
def test_a_release_has_the_sensitivity_for_its_noise(kind):
    problem = problem_of(kind)
    for noise, norm in (("gaussian", "l2"), ("laplace", "l1")):
        released = problem.released(noise)
        value, sensitivity, utility = released
        assert isinstance(sensitivity, nrjax.Sensitivity)
        assert sensitivity.norm == norm
        stated = getattr(problem, f"{norm}_sensitivity")
        assert (sensitivity, norm) == (stated, stated.norm)
        assert jax.eval_shape(utility.hypothesis, value).shape == (problem.dimension,)


@each_kind
def test_a_mechanism_has_process_and_guarantee_for_its_noise(kind):
    released = problem_of(kind).released("gaussian")
    for boundary in (nrjax.LinearBoundary, nrjax.OneSidedMixtureBoundary):
        parts = released.mechanism(delta=1e-6, tight_at_epsilon=0.3, boundary=boundary)
        assert parts.process == nrjax.Brownian(released.value.shape)
        expected = boundary.tight_at_epsilon(0.3, released.sensitivity, 1e-6)
        assert parts.guarantee == expected
    released = problem_of(kind).released("laplace")
    assert released.mechanism().process == nrjax.Laplace(released.value.shape)
    with pytest.raises(ValueError, match="boundary must be None for Laplace noise"):
        released.mechanism(boundary=nrjax.LinearBoundary)
    process = nrjax.IndependentLaplace(released.value.shape)
    parts = released.mechanism(process)
    assert parts.process is process
    assert parts.guarantee == nrjax.PureGuarantee(released.sensitivity)
    grid = nrjax.Grid.geometric(parts.guarantee, 0.3, 1.0, 3)
    rest = {"schedule": grid, "utility": released.utility, "rule": nrjax.PublicThreshold(-np.inf)}
    three = dict(zip(("value", "process", "guarantee"), parts, strict=True))
    expected = nrjax.Interaction(**three, **rest, max_steps=2)
    interaction = parts.interaction(*rest.values(), max_steps=2)
    jax.tree.map(np.testing.assert_array_equal, interaction, expected)


@each_kind
def test_a_problem_makes_mechanisms_with_its_utility(kind):
    problem = problem_of(kind)
    for noise in ("brownian", "gaussian"):
        released = problem.released(noise)
        assert problem.brownian(delta=1e-6) == released.mechanism(delta=1e-6)
    tight = problem.brownian(delta=1e-6, tight_at_epsilon=0.3)
    assert tight == released.mechanism(delta=1e-6, tight_at_epsilon=0.3)
    laplace, target = problem.laplace(), -1.2 * problem.optimum_loss
    assert laplace == problem.released("laplace").mechanism()
    for mechanism, utility in ((tight, released.utility), (laplace, laplace.utility)):
        assert mechanism.utility == utility
        assert utility.best == pytest.approx(-problem.optimum_loss)
        assert utility.excess_risk().best == pytest.approx(0, abs=1e-12)
        trial = mechanism.until(at_least=target)
        assert trial.rule == nrjax.PublicThreshold(np.asarray(target, trial.dtype))
        rest = trial.schedule, utility, nrjax.PublicThreshold(target)
        assert trial == mechanism.interaction(*rest)


def test_a_problem_passes_constants_on():
    problem = problem_of("ridge")
    sensitivity = problem.released("gaussian", "tight").sensitivity
    assert problem.brownian(1e-6, constants="tight").guarantee.sensitivity == sensitivity
    assert problem.laplace(constants="tight").utility.layout == "triangle"


@each_kind
def test_no_representation_prints_an_array(kind):
    problem = problem_of(kind)
    released = problem.released("laplace")
    for value in (problem, problem.minimum, released, released.mechanism(), released.utility):
        text = repr(value)
        assert text.startswith(type(value).__name__)
        assert "\n" not in text
        assert len(text) < 900
        assert "float64" in text


def test_a_sensitivity_is_a_float_that_keeps_its_norm():
    half = nrjax.Sensitivity(0.5, "l2")
    for copied in (copy.deepcopy(half), pickle.loads(pickle.dumps(half))):
        assert (copied, copied.norm) == (0.5, "l2")
    assert json.dumps(half) == "0.5"
    assert jnp.asarray(half).dtype == jnp.result_type(float)
    assert jax.jit(lambda number: 2 * number)(half) == 1.0
    assert nrjax.PureGuarantee(2 * half).epsilon(1.0) >= 1.0  # arithmetic drops the norm
