"""Mistakes in the arguments of problems, mechanisms and theorems, and their messages."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax import erm
from nrjax.erm import LogisticProblem, RidgeProblem, minimise_in_ball, sensitivity, theory
from tests.erm.risks import logistic
from tests.problems import small_data

X, Y = small_data(rows=20)
PARTS = {"features": X, "labels": Y, "regularisation": 0.05}


def problem(kind=LogisticProblem, **changes):
    return partial(kind.fit, **PARTS | changes)


ridge = partial(problem, RidgeProblem)
custom = partial(problem, erm.OutputProblem, loss=logistic, lipschitz=1.0)


@functools.cache
def released(noise, constants="paper"):
    return ridge()().released(noise, constants)


def inexact(gradient_norm):
    exact = ridge()()
    return dataclasses.replace(exact, minimum=exact.minimum._replace(gradient_norm=gradient_norm))


def without_optimum():
    return dataclasses.replace(problem()().utility, optimum_loss=None)


def mechanism(noise, process=None, **options):
    return partial(released(noise).mechanism, process, **options)


ball = partial(partial, minimise_in_ball)

THEOREMS = [
    getattr(theory, f"{name}_{result}")
    for name in ("covariance", "output_logistic", "output_ridge")
    for result in ("epsilon", "excess_risk")
]
WITH_CONSTANTS = [f for f in THEOREMS if "logistic" not in f.__name__]
RADII = (sensitivity.ridge_radius, sensitivity.logistic_radius)
TIGHT = {"delta": 1e-6, "tight_at_epsilon": 0.3}
VERSION = "must be 'paper' or 'tight' \\(got 'best'"
POSITIVE = "must be positive and finite \\(got"
NOISE = "noise must be 'brownian', 'gaussian', 'laplace' or"
L1, L2 = (released(noise).sensitivity for noise in ("laplace", "gaussian"))
WRONG_NORM = "must be an l2-sensitivity"

MISTAKES = [
    # Data, which all problems check alike.
    (
        problem(features=2 * X),
        r"each row of features must be of l2 norm at most 1 \(row \d+ is not",
    ),
    (
        problem(features=np.full((20, 5), np.nan)),
        r"features must be without missing values \(got '100 missing of 100",
    ),
    (problem(features=np.zeros(20)), r"features must be .* \(got \(20,\)\)"),
    (problem(features=np.zeros((0, 4))), r"features must be .* \(got \(0, 4\)\)"),
    (problem(features=[[1.0, 0.0], [1.0]]), "features must be an array of numbers"),
    (problem(labels=np.ones(19)), r"labels must be an array of shape \(20,\) \(got \(19,\)"),
    (problem(labels=np.zeros(20)), r"labels must be \+1 or -1 \(row 0"),
    (problem(regularisation=0.0), "regularisation must be above 0"),
    (problem(regularisation=np.nan), "regularisation must be above 0"),
    (problem(tolerance=1e-30), "gradient norm after .* must be at most tolerance = 1e-30"),
    (ridge(labels=np.full(20, 1.5)), r"labels must be in \[-1, 1\]"),
    (ridge(labels=np.full(20, np.nan)), "labels must be without missing values"),
    (problem(features=np.full((20, 5), np.inf)), r"features must be finite \(row 0 is not"),
    (ridge(row_norm="l1"), "each row of features must be of l1 norm at most 1"),
    (ridge(row_norm="l0"), "row_norm must be 'l2' or 'l1'"),
    (custom(labels=["yes"] * 20), "labels must be numbers, not text"),
    (custom(features=4 * X, max_norm=3.5), "each row of features must be of l2 norm at most 3.5"),
    # Releases, and their mechanisms.
    (lambda: problem()().released("cauchy"), NOISE),
    (lambda: ridge()().released("cauchy"), NOISE),
    (lambda: ridge()().released_optimum("cauchy"), NOISE),
    (partial(released, "laplace", "best"), "constants must be 'paper', 'tight' or"),
    (partial(released, "gaussian", "l1_rows"), "constants must be .*row_norm='l1'"),
    (lambda: ridge()().released_optimum("laplace", "l1_rows"), "constants must be 'paper' or"),
    (lambda: inexact(1e-9).released_optimum("laplace"), "gradient norm .* must be .*got 1e-09"),
    (lambda: inexact(1e-5).released("laplace"), "gradient norm .* must be .*got 1e-05"),
    (lambda: without_optimum().excess_risk(), "optimum_loss"),
    (partial(nrjax.PureGuarantee, L2), "must be an l1-sensitivity"),
    (partial(nrjax.MixtureBoundary, L1, 1e-6, 1.0), WRONG_NORM),
    (partial(nrjax.LinearBoundary.tight_at_epsilon, 0.3, L1, 1e-6), WRONG_NORM),
    (partial(nrjax.OneSidedMixtureBoundary.tight_at_time, 1, L1, 1e-6), WRONG_NORM),
    (partial(nrjax.LinearBoundary.tight_at_epsilon, 0.3, print, 1e-6), POSITIVE),
    (partial(nrjax.MixtureBoundary.tight_at_time, None, 1.0, 1e-6), f"time {POSITIVE} None"),
    (partial(nrjax.Sensitivity, 1.0, "l3"), "norm must be 'l1' or 'l2'"),
    (partial(nrjax.Sensitivity, -1.0, "l1"), "sensitivity must be"),
    (mechanism("gaussian", nrjax.Laplace((20,)), **TIGHT), "guarantee must be for laplace noise"),
    (mechanism("laplace", 0.5), "process must be an instance of nrjax.NoiseProcess"),
    (mechanism("gaussian", tight_at_epsilon=0.3), "delta must be given .* For example"),
    (mechanism("laplace", delta=1e-6), "delta must be None"),
    (released("laplace")._replace(sensitivity=0.1).mechanism, "must be a nrjax.Sensitivity"),
    # Theorems, radii and sensitivities.
    *((partial(f, 0.0, 100, 3, 0.05), f"{POSITIVE} 0.0") for f in THEOREMS),
    *((partial(f, np.nan, 100, 3, 0.05), f"{POSITIVE} nan") for f in THEOREMS),
    *((partial(f, 0.1, -1, 3, 0.05), f"rows {POSITIVE} -1") for f in THEOREMS),
    *((partial(f, 0.1, 9, 2.5, 0.05), "dimension must be a whole") for f in THEOREMS),
    *((partial(f, 0.1, 9, 3, np.inf), f"regularisation {POSITIVE} inf") for f in THEOREMS),
    *((partial(f, 0.1, 9, 3, 0.05, "best"), f"constants {VERSION}") for f in WITH_CONSTANTS),
    *((partial(f, 0.1, 9, 3, 0.05, ball="best"), f"ball {VERSION}") for f in WITH_CONSTANTS),
    (partial(sensitivity.ridge_output_l2, 100, 0.05, "best"), f"constants {VERSION}"),
    (partial(sensitivity.ridge_output_l2, 100, 0.05, ball="best"), f"ball {VERSION}"),
    *((problem(kind, ball="best"), f"ball {VERSION}") for kind in (LogisticProblem, RidgeProblem)),
    *((partial(f, 0.05, "best"), f"ball {VERSION}") for f in RADII),
    *((partial(f, -1.0), f"regularisation {POSITIVE} -1.0") for f in RADII),
    # Quadratics over a ball.
    (ball(np.eye(2), np.ones((2, 1)), 1.0), r"vector must be .*\(d,\).* \(got \(2, 1\)"),
    (ball(np.eye(2), np.ones(0), 1.0), r"vector must be .*\(d,\).* \(got \(0,\)"),
    (ball(np.eye(3), np.ones(2), 1.0), r"matrix must be .*\(2, 2\) \(got \(3, 3\)"),
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
def test_derivatives_of_a_minimiser_over_a_ball_are_refused(derivative):
    """Forward derivatives through the batching rule would not terminate."""
    with pytest.raises(TypeError, match="minimise_in_ball has no derivatives"):
        derivative(lambda c: minimise_in_ball(jnp.eye(3), c, 1.0).argument)(jnp.ones(3))


@pytest.mark.parametrize(
    ("utility", "shape"),
    [
        (problem()().utility, r"\(5,\), the noisy optimum"),
        (released("laplace", "tight").utility, r"\(20,\), X'X in the 'triangle'"),
    ],
    ids=["logistic", "ridge"],
)
def test_a_value_of_another_shape_is_refused(utility, shape):
    parts = released("laplace").mechanism()  # 30 numbers
    schedule = nrjax.Grid.geometric(parts.guarantee, 0.3, 1.0, 3)
    with pytest.raises(ValueError, match=rf"the value must be of shape {shape}.* \(got \(30,\)"):
        parts.interaction(schedule, utility, nrjax.PublicThreshold(-1.0))


def test_a_utility_of_another_layout_is_refused():
    """The triangle and the isometric layout have equal shapes, and differ by factors sqrt(2)."""
    gaussian, laplace = released("gaussian"), released("laplace", "tight")
    assert gaussian.value.shape == laplace.value.shape
    rule, grid = nrjax.PublicThreshold(0.0), nrjax.Grid([2.0, 1.0])
    for parts, utility in (
        (gaussian.mechanism(**TIGHT), laplace.utility),
        (laplace.mechanism(), gaussian.utility),
    ):
        with pytest.raises(ValueError, match=r"utility must be for releases with .* noise"):
            parts.interaction(grid, utility, rule)
