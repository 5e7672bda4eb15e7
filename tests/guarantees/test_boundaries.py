"""The boundaries: published values, tuning, shape, inverse, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import nrjax
from nrjax.guarantees import (
    GridBoundary,
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    RenyiBoundary,
)
from tests.guarantees import oracle
from tests.guarantees.oracle import KINDS

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

DELTA = 1e-6
each_family = pytest.mark.parametrize("name", KINDS)
TIGHT = LinearBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=DELTA)
stated = jax.jit(lambda boundary, times: boundary.epsilon(times))


def shape(boundary):
    """Return the shape that `oracle` takes: a and b of a line, or rho."""
    names = ("a", "b") if isinstance(boundary, LinearBoundary) else ("rho",)
    return tuple(np.float64(getattr(boundary, name)) for name in names)


def varied(boundary, factor):
    """Return the shape of another boundary with the same family and delta."""
    own = shape(boundary)
    return (own[0] * factor, own[1] / factor) if len(own) == 2 else (own[0] * factor,)


@pytest.mark.parametrize(
    ("name", "rho", "u"), [("two", 12.60056, 30.35209), ("one", 15.80063, 27.66071)]
)
def test_reference_curve(name, rho, u):
    assert float(KINDS[name](1.0, 0.05, rho).curve(100.0)) == pytest.approx(u, rel=3e-6)
    assert oracle.curve(name, 100.0, 0.05, rho) == pytest.approx(u, rel=3e-7)


@pytest.mark.parametrize(("name", "c"), [("linear", 5.25652), ("two", 5.66568), ("one", 5.53787)])
def test_reference_constants(name, c):
    """c = u(t)/sqrt(t) where a boundary is tight depends only on delta."""
    g = KINDS[name].tight_at_time(7.0, sensitivity=1.0, delta=DELTA)
    assert all(isinstance(part, float) for part in shape(g))
    assert oracle.curve(name, 7.0, DELTA, *shape(g)) / np.sqrt(7) == pytest.approx(c, abs=1e-5)
    # Tight at a level: D2/sqrt(t) = sqrt(c^2 + 2e) - c.
    g = KINDS[name].tight_at_epsilon(0.3, sensitivity=2.0, delta=DELTA)
    x = np.sqrt(c * c + 0.6) - c
    assert oracle.time_of(name, 0.3, 2.0, DELTA, *shape(g)) == pytest.approx((2 / x) ** 2, rel=3e-6)
    assert float(g.time(0.3)) == pytest.approx((2 / x) ** 2, rel=1e-5)


def test_parameters_have_their_closed_forms():
    line = LinearBoundary.tight_at_time(100.0, 2.0, 0.05)
    assert 2 * line.a * line.b == pytest.approx(np.log(20), rel=1e-14)
    assert line.b / line.a == pytest.approx(100)
    assert pytest.approx(0.1492, abs=5e-5) == TIGHT.a
    for delta in (1e-6, 0.05, 0.6):  # Lambert's function
        g = MixtureBoundary.tight_at_time(100.0, 1.0, delta)
        assert g.rho == pytest.approx(oracle.best_rho("two", 100.0, g.delta), rel=1e-11)
    # One-sided, 2 delta in place of delta is right when delta is small.
    one = OneSidedMixtureBoundary.tight_at_time(100.0, 1.0, 1e-9)
    assert one.rho == pytest.approx(oracle.best_rho("two", 100.0, 2e-9), rel=1e-6)


@each_family
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.05, 0.7, 0.95])
def test_tight_at_time_is_the_least_there(name, delta):
    for time in (0.01, 3.0, 1e5):
        best = KINDS[name].tight_at_time(time, 2.0, delta)
        at_best = oracle.curve(name, time, delta, *shape(best))
        if name != "linear":
            assert best.rho == pytest.approx(oracle.best_rho(name, time, delta), rel=1e-4)
        for factor in (0.5, 0.97, 1.03, 2.0):
            other = oracle.curve(name, time, delta, *varied(best, factor))
            assert other > at_best * (1 + 1e-8)


@each_family
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.0])
def test_tight_at_epsilon_reaches_it_first(name, epsilon):
    best = KINDS[name].tight_at_epsilon(epsilon, 0.5, DELTA)
    time = oracle.time_of(name, epsilon, 0.5, DELTA, *shape(best))
    assert float(best.time(epsilon)) == pytest.approx(time, rel=1e-5)
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = oracle.time_of(name, epsilon, 0.5, DELTA, *varied(best, factor))
        assert other > time * (1 + 1e-7)


def test_shapes_of_the_curves():
    """One-sided mixtures are below two-sided ones, and above a line only in [0.51, 1.95] t*."""
    times = jnp.geomspace(1e-5, 1e7, 300)
    for delta in (1e-9, 0.05, 0.8):
        two, one = (stated(KINDS[name](1.0, delta, 2.0), times) for name in ("two", "one"))
        assert np.all(np.asarray(one) < np.asarray(two))
    line, one = (KINDS[name].tight_at_time(1.0, 1.0, DELTA) for name in ("linear", "one"))
    times = jnp.array([0.1, 0.49, 0.53, 1.0, 1.85, 2.05, 10.0])
    ratio = np.asarray(one.curve(times) / line.curve(times))
    assert np.array_equal(ratio > 1, [False, False, True, True, True, False, False])
    assert ratio[3] == pytest.approx(5.53787 / 5.25652, rel=1e-5)


@each_family
def test_host_and_trace_agree(name, dtype):
    def tuned(epsilon, sensitivity, delta):
        kind = KINDS[name]
        g = kind.tight_at_epsilon(epsilon, sensitivity, delta)
        return jax.tree.leaves((g, kind.tight_at_time(1 / epsilon, sensitivity, delta)))

    numbers = np.array([[0.3, 1.0, 1e-6], [2.0, 0.1, 0.05], [0.01, 3.0, 0.4]]).T
    traced, whole = jax.jit(jax.vmap(tuned))(*numbers), tuned(*map(jnp.asarray, numbers))
    np.testing.assert_allclose(traced, whole, rtol=1e-5)
    for i, column in enumerate(numbers.T.tolist()):
        np.testing.assert_allclose([part[i] for part in traced], tuned(*column), rtol=1e-5)
    assert {part.dtype for part in whole} == {dtype}


def test_an_epsilon_below_the_floor():
    for epsilon, shown in (
        (0.1, "0.1"),
        (TIGHT.a, "0.149"),
        (jnp.array([0.125, 0.3]), r"\[0.125\]"),
    ):
        with pytest.raises(ValueError, match=rf"epsilon must be .*0\.149.*got {shown}"):
            TIGHT.time(epsilon)
    np.testing.assert_array_equal(jax.jit(TIGHT.time)(jnp.array([0.1, TIGHT.a])), np.inf)


NARROW = np.float32(1.0)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("linear", (1.0, 1.0, 1.0, 10.0), "delta must be"),
        ("linear", (1.0, 1e-6, np.inf, 10.0), "a must be"),
        ("linear", (1.0, 1e-6, 1.0, np.nan), "b must be"),
        ("linear", (1.0, 1e-6, 1.0, 6.9), r"2 a b must be at least log\(1/delta\) = 13\.8155"),
        ("linear", (1.0, 1e-6, 1.0, np.log(1e6) / 2 * (1 - 1e-13)), "2 a b must"),
        ("linear", (1.0, 1e-6, NARROW, np.log(1e6) / 2 * (1 - 2e-6)), "2 a b must"),
        ("two", (1.0, 0.0, 1.0), "delta must be"),
        ("one", (1.0, 1e-6, -1.0), "rho must be"),
    ],
)
def test_refused_parameters(name, values, message):
    with pytest.raises(ValueError, match=message):
        KINDS[name](*values)


@pytest.mark.parametrize("call", ["tight_at_epsilon", "tight_at_time"])
@pytest.mark.parametrize(
    "bad", [(0.0, 1.0, 0.1), (-1.0, 1.0, 0.1), (1.0, -1.0, 0.1), (1.0, 1.0, 0.0), (1.0, 1.0, 2.0)]
)
def test_refused_tuning(call, bad):
    for numbers in (bad, map(jnp.asarray, bad)):
        with pytest.raises(ValueError, match="must be"):
            getattr(LinearBoundary, call)(*numbers)


def test_rounded_parameters_of_a_line_are_accepted():
    exact = np.log(1e6) / 2
    least = LinearBoundary(1.0, 1e-6, 1.0, exact).epsilon(1.0)
    below = np.nextafter(exact, 0)
    narrow = np.nextafter(np.float32(exact), np.float32(0))
    for a, b in ((1.0, below), (NARROW, narrow), (1.0, 2 * exact)):
        # The loss of b by rounding is undone: epsilon is at least that of the exact line.
        assert LinearBoundary(1.0, 1e-6, a, b).epsilon(1.0) >= least


def test_inconsistent_numbers_in_a_trace_cost_more_not_less():
    # The constructor cannot see these; b = 1 is far too little for delta.
    @jax.jit
    def hidden(b):
        boundary = dataclasses.replace(TIGHT, b=b)
        return boundary.epsilon(10.0), boundary.time(1.0)

    epsilon, time = hidden(1.0)
    np.testing.assert_allclose(epsilon, TIGHT.epsilon(10.0), rtol=1e-5)
    np.testing.assert_allclose(time, TIGHT.time(1.0), rtol=1e-5)
    line = jax.jit(lambda a, b: LinearBoundary(1.0, 1e-6, a, b).epsilon(jnp.asarray([100.0, 0.1])))
    for a, b in ((-3.0, 5.0), (-1.0, -5.0), (0.0, 5.0), (np.nan, 5.0)):
        assert np.all(line(a, b) == np.inf)


def test_half_precision_does_not_round_delta():
    """A small delta may be subnormal in half precision."""
    time = np.float16(2)
    for kind in (MixtureBoundary, RenyiBoundary):
        boundary = kind(1.0, 3.1e-8, 2.0)
        assert boundary.epsilon(time) >= boundary.epsilon(2.0)


@pytest.mark.parametrize(
    ("name", "prior", "free", "on_grid"),
    [
        ("linear", "factor 2", 1.148, 1.111),
        ("linear", "factor 10", 1.344, 1.300),
        ("one", "factor 2", 1.167, 1.120),
        ("one", "factor 10", 1.177, 1.132),
    ],
)
def test_published_designs(name, prior, free, on_grid):
    """Mean epsilon relative to one look, of the boundary of a prior and on its 50 times."""
    times, middle = oracle.looks(50)
    weights, kind, x = oracle.prior(prior, times, middle), KINDS[name], 1 / np.sqrt(times)
    oracle_epsilons = x * (x / 2 + norm.isf(DELTA))

    def ratio(boundary, here):
        return np.exp(weights @ np.log(np.asarray(boundary.epsilon(here), float) / oracle_epsilons))

    found = kind.design(4 * times, weights, 2.0, DELTA)
    assert ratio(found, 4 * times) == pytest.approx(free, abs=1e-3)
    grid = GridBoundary.of(found, 4 * times)
    assert ratio(grid, grid.times) == pytest.approx(on_grid, abs=1e-3)
    for factor in (0.5, 2):  # negative controls
        other = kind(2.0, DELTA, *varied(found, factor))
        assert ratio(other, 4 * times) > ratio(found, 4 * times)
    if name == "one":
        assert found.on(nrjax.Grid(4 * times)) == grid
