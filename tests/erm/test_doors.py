"""Bad input of problems, mechanisms and theorems: what is called, and words of the message."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import erm
from nrjax.erm import LogisticProblem, RidgeProblem, minimise_in_ball, radius, sensitivity, theory
from tests.erm.risks import logistic
from tests.problems import small_data

X, Y = small_data(rows=20)
PARTS = {"features": X, "labels": Y, "regularisation": 0.05}


def problem(kind=LogisticProblem, **changes):
    return partial(kind.fit, **PARTS | changes)


ridge = partial(problem, RidgeProblem)
own = partial(problem, erm.OutputProblem, loss=logistic, lipschitz=1.0)


@functools.cache
def released(noise, constants="paper"):
    return ridge()().released(noise, constants)


def rough(gradient_norm):
    one = ridge()()
    return dataclasses.replace(one, minimum=one.minimum._replace(gradient_norm=gradient_norm))


def without_optimum():
    return dataclasses.replace(problem()().utility, optimum_loss=None)


def mechanism(noise, process=None, **options):
    return partial(released(noise).mechanism, process, **options)


def ball(*problem):
    return partial(minimise_in_ball, *problem)


THEOREMS = [
    getattr(theory, f"{name}_{what}")
    for name in ("covariance", "output_logistic", "output_ridge")
    for what in ("epsilon", "excess_risk")
]
VERSIONS = [f for f in THEOREMS if "logistic" not in f.__name__]
RADII = (radius.ridge_radius, radius.logistic_radius)
TIGHT = {"delta": 1e-6, "tight_at_epsilon": 0.3}
VERSION = "= 'best': must be 'paper' or 'tight'"
POSITIVE = ": must be positive and finite"
NOISE = "noise must be 'gaussian' or"
L1, L2 = (released(noise).sensitivity for noise in ("laplace", "gaussian"))
WRONG_NORM = "must be an l2-sensitivity, by which Gaussian noise is scaled"

MISTAKES = [
    # Data, which all problems check alike.
    (problem(features=2 * X), r"features\[\d+\] has l2 norm 2 must be at most 1"),
    (problem(features=np.full((20, 5), np.nan)), r"features\[0\] = .*must be finite"),
    (problem(features=np.zeros(20)), r"features has shape \(20,\)"),
    (problem(features=np.zeros((0, 4))), r"features has shape \(0, 4\)"),
    (problem(features=[[1.0, 0.0], [1.0]]), "features must be an array of numbers"),
    (problem(labels=np.ones(19)), r"labels has shape \(19,\): must be \(20,\)"),
    (problem(labels=np.zeros(20)), r"labels\[0\] must be \+1 or -1"),
    (problem(regularisation=0.0), "regularisation must be above 0"),
    (problem(regularisation=np.nan), "regularisation must be above 0"),
    (problem(tolerance=1e-30), "the optimum was not found: gradient norm"),
    (ridge(labels=np.full(20, 1.5)), r"labels\[0\] must be in \[-1, 1\]"),
    (ridge(labels=np.full(20, np.nan)), r"labels\[0\] must be in \[-1, 1\]"),
    (ridge(row_norm="l1"), r"features\[\d+\] has l1 norm \d\.\d*: must be at most 1"),
    (ridge(row_norm="l0"), "row_norm must be 'l2' or 'l1'"),
    (own(labels=["yes"] * 20), "labels must be an array of numbers"),
    (own(features=2 * X), r"features\[\d+\] has l2 norm 2 must be at most max_norm = 1"),
    (own(features=4 * X, max_norm=3.5), r"l2 norm 4 must be at most max_norm = 3.5"),
    # What is released, and mechanisms of it.
    (lambda: problem()().released("cauchy"), NOISE),
    (lambda: ridge()().released("cauchy"), NOISE),
    (lambda: ridge()().released_optimum("cauchy"), NOISE),
    (partial(released, "laplace", "best"), "constants must be 'paper' or"),
    (partial(released, "gaussian", "l1_rows"), r"'l1_rows': must be .*row_norm='l1'"),
    (partial(released, "laplace", "l1_rows"), r"'l1_rows': must be .*row_norm='l1'"),
    (lambda: ridge()().released_optimum("laplace", "l1_rows"), "'l1_rows': must be 'paper' or"),
    (lambda: rough(1e-9).released_optimum("laplace"), "optimum is 1e-09 must be at most"),
    (lambda: rough(1e-5).released("laplace"), "optimum is 1e-05 must be at most"),
    (lambda: without_optimum().excess_risk(), "optimum_loss must be known"),
    (partial(nrjax.PureGuarantee, L2), r"2.82\d*, 'l2'\): must be an l1-sensitivity"),
    (partial(nrjax.MixtureBoundary, L1, 1e-6, 1.0), WRONG_NORM),
    (partial(nrjax.LinearBoundary.tight_at_epsilon, 0.3, L1, 1e-6), WRONG_NORM),
    (partial(nrjax.OneSidedMixtureBoundary.tight_at_time, 1, L1, 1e-6), WRONG_NORM),
    (partial(nrjax.LinearBoundary.tight_at_epsilon, 0.3, print, 1e-6), f"= <built-.*{POSITIVE}"),
    (partial(nrjax.MixtureBoundary.tight_at_time, None, 1.0, 1e-6), f"time = None{POSITIVE}"),
    (partial(nrjax.Sensitivity, 1.0, "l3"), "norm must be 'l1' or 'l2'"),
    (partial(nrjax.Sensitivity, -1.0, "l1"), "sensitivity must be"),
    (mechanism("gaussian", nrjax.Laplace((20,)), **TIGHT), "process must be one of"),
    (mechanism("laplace", 0.5), "process must be one of laplace noise"),
    (mechanism("gaussian", tight_at_epsilon=0.3), "delta must be given"),
    (mechanism("gaussian", delta=1e-6), "tight_at_epsilon = None, tight"),
    (mechanism("gaussian", **TIGHT, tight_at_time=1.0), "tight_at_epsilon = 0.3, tight_at_time"),
    (mechanism("gaussian", boundary=3), "boundary must be a class of boundaries"),
    (mechanism("laplace", delta=1e-6), "delta must be None"),
    (released("laplace")._replace(sensitivity=0.1).mechanism, "= 0.1 must be a nrjax.Sensitivity"),
    # Theorems, radii and sensitivities.
    *((partial(f, 0.0, 100, 3, 0.05), f" = 0.0{POSITIVE}") for f in THEOREMS),
    *((partial(f, np.nan, 100, 3, 0.05), f" = nan{POSITIVE}") for f in THEOREMS),
    *((partial(f, 0.1, -1, 3, 0.05), f"rows = -1{POSITIVE}") for f in THEOREMS),
    *((partial(f, 0.1, 9, 2.5, 0.05), "dimension must be a whole") for f in THEOREMS),
    *((partial(f, 0.1, 9, 3, np.inf), f"regularisation = inf{POSITIVE}") for f in THEOREMS),
    *((partial(f, 0.1, 9, 3, 0.05, "best"), f"constants {VERSION}") for f in VERSIONS),
    *((partial(f, 0.1, 9, 3, 0.05, ball="best"), f"ball {VERSION}") for f in VERSIONS),
    (partial(sensitivity.ridge_output_l2, 100, 0.05, "best"), f"constants {VERSION}"),
    (partial(sensitivity.ridge_output_l2, 100, 0.05, ball="best"), f"ball {VERSION}"),
    *((problem(kind, ball="best"), f"ball {VERSION}") for kind in (LogisticProblem, RidgeProblem)),
    *((partial(f, 0.05, "best"), f"ball {VERSION}") for f in RADII),
    *((partial(f, -1.0), f"regularisation = -1.0{POSITIVE}") for f in RADII),
    *((partial(f, np.inf), f"regularisation = inf{POSITIVE}") for f in RADII),
    # Quadratics over a ball.
    (ball(np.eye(2), np.ones((2, 1)), 1.0), r"vector has shape \(2, 1\): must be \(d,\)"),
    (ball(np.eye(2), np.ones(0), 1.0), r"vector has shape \(0,\): must be \(d,\)"),
    (ball(np.eye(3), np.ones(2), 1.0), r"matrix has shape \(3, 3\): must be \(2, 2\)"),
    (ball(np.eye(2), np.ones(2), 0.0), "radius must be a positive number"),
    (ball(np.eye(2), np.ones(2), np.nan), "radius must be a positive number"),
    (ball(np.eye(2), np.ones(2), np.ones(2)), "radius must be a positive number"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_a_derivative_over_a_ball_is_refused_and_not_looked_for(derivative):
    """Forward derivatives through the batch rule would nest without end."""
    with pytest.raises(TypeError, match="minimise_in_ball has no derivatives"):
        derivative(lambda c: minimise_in_ball(jnp.eye(3), c, 1.0).argument)(jnp.ones(3))


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
def test_a_utility_says_what_it_wants_to_be_released(kind):
    """Another layout, or another problem's value."""
    utility = {"logistic": problem()().utility, "ridge": released("gaussian").utility}[kind]
    parts = released("laplace").mechanism()  # 30 numbers
    parts = parts._replace(value=np.asarray(parts.value))  # else its own layout says so first
    schedule = nrjax.Grid.geometric(parts.guarantee, 0.3, 1.0, 3)
    what = {"logistic": r"\(5,\), the noisy optimum", "ridge": r"\(20,\), X'X in the 'isometric'"}
    with pytest.raises(ValueError, match=rf"value.* shape \(30,\): must be {what[kind]}"):
        parts.interaction(schedule, utility, nrjax.PublicThreshold(-1.0))


def test_layouts_of_one_length_are_told_apart():
    """The triangle and the isometric layout differ by sqrt(2) off the diagonal."""
    gaussian, laplace = released("gaussian"), released("laplace", "tight")
    assert gaussian.value.shape == laplace.value.shape
    for value in (laplace.value, 1.0 * laplace.value, laplace.value.copy()):
        parts = gaussian.mechanism(**TIGHT)._replace(value=value)
        with pytest.raises(ValueError, match=r"value.s layout .triangle., .* is for .isometric."):
            parts.interaction(nrjax.Grid([2.0, 1.0]), gaussian.utility, nrjax.PublicThreshold(0.0))
