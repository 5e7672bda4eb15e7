"""Excess risks, and the bounds of ridge regression's utilities from a release."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.erm import LogisticProblem, RidgeProblem, statistics
from tests.erm import risks
from tests.erm.risks import cast, judged_lanes

pytestmark = pytest.mark.bits

ROWS, COUNT = 400, 600


def flat_data(dimension=3, size=0.3):
    """Return rows that differ in one feature: elsewhere the risk is its regularisation."""
    x = np.zeros((ROWS, dimension))
    x[:, 0] = np.random.default_rng(0).uniform(0, size, ROWS)
    return x


RIDGE = ("ridge output", "ridge")


@functools.cache
def released(kind, weight=0.05, ball="paper"):
    """Return what ridge regression, in either way, or logistic regression releases."""
    x = flat_data(2 if kind == "ridge" else 3)
    if kind == "logistic":
        labels = np.where(x[:, 0] > 0.05, 1.0, -1.0)
        return LogisticProblem.fit(x, labels, weight, ball=ball).released("laplace")
    problem = RidgeProblem.fit(x, 0.002 * x[:, 0], weight, ball=ball)
    return problem.released("laplace") if kind == "ridge" else problem.released_optimum("laplace")


@jax.jit
def upper_bounds(utility, releases):
    return jax.vmap(lambda release: utility.bounds_from_release(release)[1])(releases)


def releases_of(value):
    """Return releases at noise levels from 1e-6 to 1e5."""
    noise = np.random.default_rng(1).laplace(size=(COUNT, value.size))
    return value + noise * np.geomspace(1e-6, 1e5, COUNT)[:, None]


@pytest.mark.parametrize("kind", RIDGE)
def test_no_utility_is_above_its_bound(kind, dtype):
    """Utilities and bounds come from separate programs. A bound 1 % lower would fail."""
    for options in ((0.05, "paper"), (0.005, "paper"), (0.05, "tight")):
        value, _, plain = released(kind, *options)
        releases = jnp.asarray(releases_of(value), dtype)
        for utility in (cast(plain, dtype), cast(plain.excess_risk(), dtype)):
            exact, bound = judged_lanes(utility, releases), upper_bounds(utility, releases)
            assert exact.dtype == bound.dtype == dtype
            assert np.all(exact <= bound)
            assert np.any(exact > bound - 0.01 * jnp.abs(bound))


@pytest.mark.long
def test_no_utility_is_above_the_optimums_where_rounding_hides_the_regularisation(dtype):
    """The rows lie in a plane, so that the curvature is only `lambda` in other directions."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(2, 12))
    x = rng.normal(size=(40, 2)) @ plane
    x /= np.linalg.norm(x, axis=1)[:, None]
    y = 0.5 * np.clip(x @ plane[0] / np.linalg.norm(plane[0]), -1, 1)
    value, _, utility = RidgeProblem.fit(x, y, 1e-8).released("gaussian")
    noises = rng.normal(size=(COUNT, value.size)) * np.geomspace(1e-9, 1e-2, COUNT)[:, None]
    releases = jnp.asarray(value + noises, dtype)
    for each in (cast(utility, dtype), cast(utility.excess_risk(), dtype)):
        exact = judged_lanes(each, releases)
        assert np.all(exact <= -each.optimum_loss)
        assert np.all(exact <= upper_bounds(each, releases))


@pytest.mark.parametrize("noise", [pytest.param("laplace", marks=pytest.mark.long), "gaussian"])
def test_no_utility_is_above_its_bound_if_the_matrix_is_nearly_singular(noise, dtype):
    """The lowest eigenvalue is moved next to 0, from either side, and the bound is still close."""
    d, rng = 12, np.random.default_rng(2)
    x, y = risks.ridge_data(dimension=d)
    problem = RidgeProblem.fit(x, y, 0.02)
    value, _, utility = problem.released(noise, constants="tight")
    noises = rng.normal(size=(COUNT, value.size)) * np.geomspace(1e-3, 1e3, COUNT)[:, None]
    releases, identity = value + len(x) * noises, np.eye(d)
    for row, ratio in zip(releases[::2], rng.choice([-1, 1], COUNT // 2), strict=True):
        matrix, vector = statistics.unpack(jnp.asarray(row), d, utility.layout)
        matrix = np.asarray(matrix, float) / len(x) + 0.02 * identity
        lowest, *_, highest = np.linalg.eigvalsh(matrix)
        off = ratio * 10.0 ** rng.uniform(-8, -2) * max(highest, -lowest) - lowest - 0.02
        row[:] = statistics.pack((matrix + off * identity) * len(x), vector, utility.layout)
    utility, releases = cast(utility, dtype), jnp.asarray(releases, dtype)
    exact = np.asarray(judged_lanes(utility, releases))
    bound = np.asarray(upper_bounds(utility, releases))
    assert np.all(exact <= bound)
    least = -float(utility.optimum_loss)
    assert np.mean(bound - least < 0.1 * (exact - least)) > 0.5


@pytest.mark.parametrize("kind", ["logistic", *RIDGE])
def test_no_size_of_a_release_puts_a_utility_above_its_bound_or_hides_a_nan(kind, dtype):
    """From the smallest numbers to the largest: overflow and underflow decide nothing."""
    value, _, utility = released(kind)
    utility, rng = cast(utility, dtype), np.random.default_rng(3)
    largest = float(jnp.finfo(dtype).max)
    top = np.log10(largest)
    with np.errstate(over="ignore"):
        releases = rng.normal(size=(3000, value.size))
        releases *= 10.0 ** rng.uniform(-1.2 * top, top, (3000, 1))
        # Only some coordinates are large.
        releases[1::3] *= 10.0 ** rng.uniform(0, 0.5 * top, releases[1::3].shape)
    releases = np.clip(releases, -largest, largest)
    releases[:2, -1] = np.nan, np.inf
    batches = jnp.asarray(releases, dtype).reshape(-1, COUNT, value.size)
    exact, bound = (
        np.concatenate([program(utility, batch) for batch in batches])
        for program in (judged_lanes, upper_bounds)
    )
    assert not np.any(exact > bound)
    assert np.all(np.isnan(exact[:2]))
    assert not np.any(np.isnan(exact) & ~np.isnan(bound))
    if kind == "ridge":  # where NaNs occur
        assert np.mean(np.isnan(exact)) > 1e-3
        assert np.mean(np.isnan(bound)) < 0.1


@pytest.mark.parametrize("kind", ["logistic", *RIDGE])
def test_the_excess_risk_is_the_risk_above_the_optimum(kind, dtype):
    value, _, utility = released(kind)
    excess = utility.excess_risk()
    assert type(excess) is type(utility)
    assert jax.tree.structure(excess) == jax.tree.structure(utility)  # programs are shared
    assert excess.sensitivity == 2 * utility.sensitivity
    releases = jnp.asarray(releases_of(value), dtype)
    plain, above = (
        np.asarray(judged_lanes(cast(each, dtype), releases), np.float64)
        for each in (utility, excess)
    )
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(above, utility.optimum_loss + plain, atol=8 * eps, rtol=8 * eps)
    assert above.max() <= (4 * eps if kind == "logistic" else 0)
    optimum = jnp.asarray(utility.optimum, dtype)
    assert abs(float(cast(excess, dtype).evaluate(optimum))) <= 4 * eps
    silent = dataclasses.replace(utility, sensitivity=None)
    assert silent.excess_risk().sensitivity is None


def test_the_excess_risk_of_ridge_does_not_cancel(dtype):
    """Its relative error is a few machine epsilons, however small it is."""
    x = flat_data(3, 0.9)
    problem = RidgeProblem.fit(x, x[:, 0], 0.05)
    utility = problem.released_optimum("laplace").utility
    step = np.array([1e-6, 2e-6, -1e-6])
    exact = 0.5 * step @ utility.hessian @ step
    near = dataclasses.replace(utility.excess_risk(), optimum=np.zeros(3))
    excess = -float(cast(near, dtype).evaluate(jnp.asarray(step, dtype)))
    assert excess == pytest.approx(exact, rel=1e-5 if dtype == jnp.float32 else 1e-13)
