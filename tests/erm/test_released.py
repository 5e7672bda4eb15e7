"""What a problem releases carries its norm; mechanisms that are made of it cannot mismatch."""

import copy
import functools
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.erm import LogisticProblem, OutputProblem, RidgeProblem
from tests.erm.risks import laplace_trial, ridge_data, ridge_risk

LAMBDA = 0.05


def data(rows=300, dimension=12):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, dimension))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.sign(x[:, 0])


def squared_hinge(theta, row, label):
    return 0.5 * jnp.maximum(1 - label * jnp.dot(row, theta), 0) ** 2


@functools.cache
def problem(kind):
    if kind == "output":
        return OutputProblem.fit(squared_hinge, *data(), LAMBDA, 10.0, radius=5.0)
    fit = LogisticProblem.fit if kind == "logistic" else RidgeProblem.fit
    return fit(*data(), LAMBDA)


KINDS = ("logistic", "output", "ridge")
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_every_problem_is_released_in_one_way(kind):
    one = problem(kind)
    for noise, norm in (("gaussian", "l2"), ("laplace", "l1")):
        released = one.released(noise)
        value, sensitivity, utility = released
        assert isinstance(sensitivity, nrjax.Sensitivity)
        assert sensitivity.norm == norm
        stated = one.l2_sensitivity if norm == "l2" else one.l1_sensitivity
        assert (sensitivity, norm) == (stated, stated.norm)
        assert jax.eval_shape(utility.hypothesis, value).shape == (one.dimension,)
    with pytest.raises(ValueError, match="noise = 'cauchy': must be 'gaussian' or 'laplace'"):
        one.released("cauchy")


@each_kind
def test_a_mechanism_has_the_value_its_noise_and_its_guarantee(kind):
    released = problem(kind).released("gaussian")
    for boundary in (nrjax.LinearBoundary, nrjax.OneSidedMixtureBoundary):
        parts = released.mechanism(delta=1e-6, tight_at_epsilon=0.3, boundary=boundary)
        assert parts.process == nrjax.Brownian(released.value.shape)
        expected = boundary.tight_at_epsilon(0.3, released.sensitivity, 1e-6)
        assert parts.guarantee == expected
    parts = released.mechanism(delta=1e-6, tight_at_time=2.0)
    assert parts.guarantee == nrjax.LinearBoundary.tight_at_time(2.0, released.sensitivity, 1e-6)
    released = problem(kind).released("laplace")
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


def gaussian():
    return problem("logistic").released("gaussian")


def laplace():
    return problem("logistic").released("laplace")


SHAPE = (12,)


MISTAKES = {
    "l2 for a pure guarantee": (
        lambda: nrjax.PureGuarantee(gaussian().sensitivity),
        r"sensitivity = Sensitivity\(0.13\d*, 'l2'\): must be an l1-sensitivity",
    ),
    "l1 for a boundary": (
        lambda: nrjax.MixtureBoundary(laplace().sensitivity, 1e-6, 1.0),
        r"sensitivity = Sensitivity\(0.46\d*, 'l1'\): must be an l2-sensitivity",
    ),
    "l1 for a tuned boundary": (
        lambda: nrjax.LinearBoundary.tight_at_epsilon(0.3, laplace().sensitivity, 1e-6),
        "must be an l2-sensitivity, by which Gaussian noise is scaled",
    ),
    "l1 for a boundary at a time": (
        lambda: nrjax.OneSidedMixtureBoundary.tight_at_time(1.0, laplace().sensitivity, 1e-6),
        "must be an l2-sensitivity",
    ),
    "Laplace noise for a Gaussian release": (
        lambda: gaussian().mechanism(nrjax.Laplace(SHAPE), delta=1e-6, tight_at_epsilon=0.3),
        "process = Laplace.*: must be one of gaussian noise",
    ),
    "no noise": (lambda: laplace().mechanism(0.5), "process = 0.5: must be one of laplace noise"),
    "no delta": (lambda: gaussian().mechanism(tight_at_epsilon=0.3), "delta = None: must be given"),
    "nowhere tight": (
        lambda: gaussian().mechanism(delta=1e-6),
        "tight_at_epsilon = None, tight",
    ),
    "a delta for nothing": (lambda: laplace().mechanism(delta=1e-6), "delta = 1e-06: must be None"),
    "a plain sensitivity": (
        lambda: laplace()._replace(sensitivity=0.1).mechanism(),
        "sensitivity = 0.1: must be a nrjax.Sensitivity",
    ),
    "a method for a boundary": (
        lambda: nrjax.LinearBoundary.tight_at_epsilon(0.3, problem("ridge").released, 1e-6),
        "sensitivity = <bound method .*: must be positive and finite",
    ),
    "nothing for a boundary": (
        lambda: nrjax.MixtureBoundary.tight_at_time(None, 1.0, 1e-6),
        "time = None: must be positive and finite",
    ),
    "no such norm": (lambda: nrjax.Sensitivity(1.0, "l3"), "norm = 'l3': must be 'l1' or 'l2'"),
    "no sensitivity": (lambda: nrjax.Sensitivity(-1.0, "l1"), "sensitivity = -1.0: must be"),
    "features that are none": (
        lambda: LogisticProblem.fit(None, data()[1], LAMBDA),
        "features = None: must be an array of numbers",
    ),
    "rows of unequal length": (
        lambda: RidgeProblem.fit([[1.0, 0.0], [1.0]], [1.0, 1.0], LAMBDA),
        "features = .*: must be an array of numbers",
    ),
    "labels in words": (
        lambda: RidgeProblem.fit(data()[0], ["yes"] * 300, LAMBDA),
        "labels = a list of 300, .*: must be an array of numbers",
    ),
    "labels that are objects": (
        lambda: OutputProblem.fit(squared_hinge, data()[0], np.full(300, None), LAMBDA, 1.0),
        r"labels = object\[300\]: must be an array of numbers",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
def test_a_utility_says_what_it_wants_to_be_released(kind):
    """Another layout, or another problem's value."""
    parts = problem("ridge").released("laplace").mechanism()  # 156 numbers
    utility = problem(kind).released("gaussian").utility
    schedule = nrjax.Grid.geometric(parts.guarantee, 0.3, 1.0, 3)
    what = {"logistic": r"\(12,\), the noisy optimum", "ridge": r"\(90,\), X'X in the 'isometric'"}
    parts = parts._replace(value=np.asarray(parts.value))  # else its own layout says so first
    with pytest.raises(ValueError, match=rf"value.* shape \(156,\): must be {what[kind]}"):
        parts.interaction(schedule, utility, nrjax.PublicThreshold(-1.0))


@each_kind
def test_no_representation_prints_an_array(kind):
    one = problem(kind)
    released = one.released("laplace")
    for value in (one, one.minimum, released, released.mechanism(), released.utility):
        text = repr(value)
        assert text.startswith(type(value).__name__)
        assert "\n" not in text
        assert len(text) < 900
        assert "float64[" in text


def test_a_sensitivity_is_a_float_that_keeps_its_norm():
    one = nrjax.Sensitivity(0.5, "l2")
    for same in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (same, same.norm) == (0.5, "l2")
    assert json.dumps(one) == "0.5"
    assert jnp.asarray(one).dtype == jnp.result_type(float)
    assert jax.jit(lambda number: 2 * number)(one) == 1.0
    assert nrjax.PureGuarantee(2 * one).epsilon(1.0) >= 1.0  # arithmetic forgets the norm


def test_layouts_of_one_length_are_told_apart():
    """The triangle and the isometric layout differ by sqrt(2) off the diagonal."""
    one = problem("ridge")
    gaussian, laplace = one.released("gaussian"), one.released("laplace", "tight")
    assert gaussian.value.shape == laplace.value.shape
    for value in (laplace.value, 1.0 * laplace.value, laplace.value.copy()):
        parts = gaussian.mechanism(delta=1e-6, tight_at_epsilon=0.3)._replace(value=value)
        with pytest.raises(ValueError, match=r"value.s layout .triangle., .* is for .isometric."):
            parts.interaction(nrjax.Grid([2.0, 1.0]), gaussian.utility, nrjax.PublicThreshold(0.0))


DATA = ridge_data()
RIDGE = RidgeProblem.fit(*DATA, LAMBDA)


def optimum():
    value, moved, utility = RIDGE.released_optimum("laplace", "tight")
    rule = nrjax.PublicThreshold(-0.01)
    trial = laplace_trial(value, moved, utility.excess_risk(), rule, (0.5, 500.0, 100))
    return trial, RIDGE.optimum_loss, 0.01


def triangle():
    parts = RIDGE.released("laplace", "tight")
    target = 1.5 * RIDGE.optimum_loss
    return laplace_trial(*parts, nrjax.PublicThreshold(-target), (0.16, 20.0, 200)), 0.0, target


def isometric():
    released = RIDGE.released("gaussian")
    parts = released.mechanism(delta=1e-6, tight_at_epsilon=0.3)
    grid = nrjax.Grid.geometric(parts.guarantee, 0.16, 20.0, 200)
    target = 1.5 * RIDGE.optimum_loss
    rule = nrjax.PublicThreshold(-target)
    return parts.interaction(grid, released.utility, rule), 0.0, target


# Of the statistics: as long ones, for CI has the studies.
@pytest.mark.parametrize(
    "build", [optimum, *(pytest.param(b, marks=pytest.mark.long) for b in (triangle, isometric))]
)
def test_trials_run_end_to_end(build):
    trial, least, target = build()
    batching = nrjax.Batching(tile=32, lanes=32)
    outcome = nrjax.simulate(jax.random.key(0), trial, trials=32, batching=batching)
    assert np.all(outcome.status == nrjax.Status.STOPPED)
    assert np.mean(outcome.step) > 5
    for theta, found in zip(outcome.hypothesis, outcome.utility, strict=True):
        loss = ridge_risk(np.asarray(theta, np.float64), *DATA, LAMBDA) - least
        assert -found == pytest.approx(loss, rel=1e-4, abs=1e-7)
        assert loss <= target * (1 + 1e-5)
