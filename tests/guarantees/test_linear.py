"""The linear boundary: formula, inverse, tuning, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import LinearBoundary
from tests.guarantees import oracle

DELTA = 1e-6
TIGHT = LinearBoundary.tight_at_epsilon(0.3, sensitivity=1.0, delta=DELTA)


def leaves(g):
    return tuple(np.float64(v) for v in (g.sensitivity, g.delta, g.a, g.b))


def test_reference_values():
    assert isinstance(TIGHT.a, float)
    assert pytest.approx(0.1492, abs=5e-5) == TIGHT.a
    g = LinearBoundary.tight_at_time(100.0, 2.0, 0.05)
    assert 2 * g.a * g.b == pytest.approx(np.log(20), rel=1e-14)
    assert oracle.curve("linear", 100, 0.05, g.a, g.b) / 10 == pytest.approx(
        np.sqrt(2 * np.log(20)), rel=1e-14
    )
    # c = u(t*)/sqrt(t*), which depends on delta alone.
    time = TIGHT.time(0.3)
    assert float(TIGHT.curve(time) / jnp.sqrt(time)) == pytest.approx(5.25652, abs=1e-5)


@pytest.mark.parametrize("sensitivity", [1e-3, 1.0, 7.5])
def test_formula_against_oracle(sensitivity, dtype):
    g = LinearBoundary.tight_at_epsilon(0.5, sensitivity, DELTA)
    times = np.geomspace(1e-3, 1e9, 200) * sensitivity**2
    right = oracle.psi("linear", times, *leaves(g))
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(g.epsilon(jnp.asarray(times)), right, rtol=16 * eps)
    np.testing.assert_allclose(
        g.curve(jnp.asarray(times)),
        oracle.curve("linear", times, DELTA, g.a, g.b),
        rtol=16 * eps,
    )
    assert g.epsilon(jnp.asarray(times)).dtype == dtype


@pytest.mark.parametrize("time", [0.01, 3.0, 1e5])
def test_tight_at_time_is_the_least_line_there(time):
    best = LinearBoundary.tight_at_time(time, 2.0, DELTA)
    at_best = oracle.psi("linear", time, *leaves(best))
    assert at_best == pytest.approx(2 / time + 2 * np.sqrt(2 * np.log(1 / DELTA) / time), rel=1e-13)
    for factor in (0.5, 0.99, 1.01, 2.0):
        other = LinearBoundary(2.0, DELTA, best.a * factor, best.b / factor)
        assert oracle.psi("linear", time, *leaves(other)) > at_best * (1 + 1e-7)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.0])
def test_tight_at_epsilon_reaches_it_first(epsilon):
    best = LinearBoundary.tight_at_epsilon(epsilon, 0.5, DELTA)
    time = oracle.time_of("linear", epsilon, *leaves(best))
    x = np.sqrt(2 * np.log(1 / DELTA) + 2 * epsilon) - np.sqrt(2 * np.log(1 / DELTA))
    assert time == pytest.approx((0.5 / x) ** 2, rel=1e-9)
    assert float(best.time(epsilon)) == pytest.approx(time, rel=1e-5)
    for factor in (0.8, 0.99, 1.01, 1.25):
        other = LinearBoundary(0.5, DELTA, best.a * factor, best.b / factor)
        assert oracle.time_of("linear", epsilon, *leaves(other)) > time * (1 + 1e-7)


def test_inverse_near_the_floor():
    floor = TIGHT.sensitivity * TIGHT.a
    factors = np.concatenate([[1.02, 1.05], np.geomspace(1.5, 1e4, 50)])
    times = np.asarray(TIGHT.time(jnp.asarray(floor * factors)), float)
    right = [oracle.time_of("linear", e, *leaves(TIGHT)) for e in floor * factors]
    ratio = times / right
    assert np.all(ratio >= 1 - 1e-12)  # the oracle's own error
    assert np.all(ratio[:2] < 1 + 1.5e-4)
    assert np.all(ratio[2:] < 1 + 1e-5)


def test_epsilon_falls_with_time():
    times = jnp.geomspace(1e-3, 1e8, 400)
    assert np.all(np.diff(np.asarray(TIGHT.epsilon(times))) <= 0)
    assert float(TIGHT.epsilon(jnp.inf)) == pytest.approx(TIGHT.a, rel=1e-5)


def test_host_and_trace_agree_without_retracing():
    traces = []

    @jax.jit
    def built(epsilon, sensitivity):
        traces.append(1)
        g = LinearBoundary.tight_at_epsilon(epsilon, sensitivity, DELTA)
        h = LinearBoundary.tight_at_time(1 / epsilon, sensitivity, DELTA)
        return g.a, g.b, h.a, h.b, g.time(2 * epsilon)

    for e, s in ((0.3, 1.0), (2.0, 0.1)):
        g = LinearBoundary.tight_at_epsilon(e, s, DELTA)
        h = LinearBoundary.tight_at_time(1 / e, s, DELTA)
        np.testing.assert_allclose(built(e, s), [g.a, g.b, h.a, h.b, g.time(2 * e)], rtol=1e-5)
    assert len(traces) == 1

    levels = jnp.array([0.1, 0.3, 1.0])
    made = jax.vmap(lambda e: LinearBoundary.tight_at_epsilon(e, 1.0, DELTA))(levels)
    np.testing.assert_allclose(made.a[1], TIGHT.a, rtol=1e-5)
    whole = LinearBoundary.tight_at_epsilon(levels, 1.0, DELTA)
    np.testing.assert_allclose(made.b, whole.b, rtol=1e-5)
    assert whole.b.dtype == levels.dtype


@pytest.mark.parametrize("epsilon", [0.1, 0.0, -1.0, np.nan, np.inf, TIGHT.a, jnp.float32(0.1)])
def test_unreachable_epsilon(epsilon):
    with pytest.raises(ValueError, match=r"epsilon = .*0\.149"):
        TIGHT.time(epsilon)
    assert jax.jit(TIGHT.time)(epsilon) == jnp.inf


def test_one_bad_epsilon_of_many_is_named():
    with pytest.raises(ValueError, match=r"epsilon = \[0\.125\]"):
        TIGHT.time(jnp.array([0.125, 0.3]))


@pytest.mark.parametrize("time", [0.0, -1.0, np.nan, jnp.float32(-2)])
@pytest.mark.parametrize("method", ["epsilon", "curve"])
def test_bad_time(time, method):
    with pytest.raises(ValueError, match="time = "):
        getattr(TIGHT, method)(time)
    assert jnp.isnan(jax.jit(getattr(TIGHT, method))(time))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0.0, 1e-6, 1.0, 10.0), "sensitivity = 0.0"),
        ((1.0, 1.0, 1.0, 10.0), "delta = 1.0"),
        ((1.0, 1e-6, np.inf, 10.0), "a = inf"),
        ((1.0, 1e-6, 1.0, np.nan), "b = nan"),
        ((1.0, 1e-6, 1.0, 6.9), r"2ab = 13\.8 must be at least .* 13\.8155"),
        ((1.0, 1e-6, 1.0, np.log(1e6) / 2 * (1 - 1e-13)), "2ab"),
        ((1.0, 1e-6, np.float32(1.0), np.log(1e6) / 2 * (1 - 2e-6)), "2ab"),
    ],
)
def test_refused_parameters(values, message):
    with pytest.raises(ValueError, match=message):
        LinearBoundary(*values)


def test_rounded_parameters_are_accepted():
    exact = np.log(1e6) / 2
    least = LinearBoundary(1.0, 1e-6, 1.0, exact).epsilon(1.0)
    below = np.nextafter(exact, 0)
    narrow = np.nextafter(np.float32(exact), np.float32(0))
    for a, b in ((1.0, below), (np.float32(1.0), narrow), (1.0, 2 * exact)):
        # What rounding took from b is given back: never less than the exact line's.
        assert LinearBoundary(1.0, 1e-6, a, b).epsilon(1.0) >= least


@pytest.mark.parametrize("call", ["tight_at_epsilon", "tight_at_time"])
@pytest.mark.parametrize("bad", [(0.0, 1.0, 0.1), (1.0, -1.0, 0.1), (1.0, 1.0, 0.0)])
def test_refused_tuning(call, bad):
    with pytest.raises(ValueError, match="must be"):
        getattr(LinearBoundary, call)(*bad)
    with pytest.raises(ValueError, match="must be"):
        getattr(LinearBoundary, call)(*map(jnp.asarray, bad))


def test_inconsistent_numbers_in_a_trace_cost_more_not_less():
    # The constructor cannot see these; b = 1 is far too little for delta.
    @jax.jit
    def hidden(b):
        boundary = dataclasses.replace(TIGHT, b=b)
        return boundary.epsilon(10.0), boundary.time(1.0)

    epsilon, time = hidden(1.0)
    np.testing.assert_allclose(epsilon, TIGHT.epsilon(10.0), rtol=1e-5)
    np.testing.assert_allclose(time, TIGHT.time(1.0), rtol=1e-5)


def test_pytree():
    doubled = jax.tree.map(lambda v: jnp.stack([jnp.asarray(v)] * 2), TIGHT)
    out = jax.vmap(lambda g: g.epsilon(300.0))(doubled)
    np.testing.assert_allclose(out, TIGHT.epsilon(300.0), rtol=1e-6)
    assert jax.tree.map(lambda v: None, TIGHT).a is None
