"""The mixture boundaries: formula, tuning, shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import LinearBoundary, MixtureBoundary, OneSidedMixtureBoundary
from tests.guarantees import oracle

FAMILIES = {"two": MixtureBoundary, "one": OneSidedMixtureBoundary}
family = pytest.mark.parametrize("name", ["two", "one"])


@pytest.mark.parametrize(
    ("name", "rho", "u"), [("two", 12.60056, 30.35209), ("one", 15.80063, 27.66071)]
)
def test_reference_curve(name, rho, u):
    assert float(FAMILIES[name](1.0, 0.05, rho).curve(100.0)) == pytest.approx(u, rel=3e-6)
    assert oracle.curve(name, 100.0, 0.05, rho) == pytest.approx(u, rel=3e-7)


@pytest.mark.parametrize(("name", "c"), [("two", 5.66568), ("one", 5.53787)])
def test_reference_constants(name, c):
    g = FAMILIES[name].tight_at_time(7.0, sensitivity=1.0, delta=1e-6)
    assert isinstance(g.rho, float)
    assert oracle.curve(name, 7.0, 1e-6, g.rho) / np.sqrt(7) == pytest.approx(c, abs=1e-5)
    # Tight at a level: D2/sqrt(t) = sqrt(c^2 + 2e) - c.
    g = FAMILIES[name].tight_at_epsilon(0.3, sensitivity=2.0, delta=1e-6)
    x = np.sqrt(c * c + 0.6) - c
    assert oracle.time_of(name, 0.3, 2.0, 1e-6, g.rho) == pytest.approx((2 / x) ** 2, rel=3e-6)
    assert float(g.time(0.3)) == pytest.approx((2 / x) ** 2, rel=1e-5)


@family
def test_formula_against_oracle(name, dtype):
    n = 2000
    rng = np.random.default_rng(1)
    drawn = (
        10 ** rng.uniform(-7, 9, n),
        10 ** rng.uniform(-3, 3, n),
        np.concatenate([10 ** rng.uniform(-15, -0.3, n // 2), rng.uniform(0.3, 0.6, n // 2)]),
        10 ** rng.uniform(-6, 6, n),
    )
    time, sensitivity, delta, rho = (np.asarray(jnp.asarray(v)) for v in drawn)
    g = FAMILIES[name](jnp.asarray(sensitivity), jnp.asarray(delta), jnp.asarray(rho))
    wide = [v.astype(float) for v in (time, sensitivity, delta, rho)]
    eps = float(jnp.finfo(dtype).eps)
    got = g.epsilon(jnp.asarray(time))
    assert got.dtype == dtype
    excess = np.asarray(got, float) / oracle.psi(name, *wide) - 1
    assert np.all(excess > 4 * eps)  # rounded up, with room left
    assert np.all(excess < 20 * eps)
    curve = oracle.curve(name, wide[0], wide[2], wide[3])
    np.testing.assert_allclose(g.curve(jnp.asarray(time)), curve, rtol=20 * eps)


@family
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.05, 0.7, 0.95])
def test_tight_at_time_is_the_least_there(name, delta):
    best = FAMILIES[name].tight_at_time(3.0, 1.0, delta)
    at_best = oracle.curve(name, 3.0, delta, best.rho)
    assert best.rho == pytest.approx(oracle.best_rho(name, 3.0, delta), rel=1e-4)
    for factor in (0.5, 0.97, 1.03, 2.0):
        assert oracle.curve(name, 3.0, delta, best.rho * factor) > at_best * (1 + 1e-8)


@family
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.0])
def test_tight_at_epsilon_reaches_it_first(name, epsilon):
    best = FAMILIES[name].tight_at_epsilon(epsilon, 0.5, 1e-6)
    time = oracle.time_of(name, epsilon, 0.5, 1e-6, best.rho)
    assert float(best.time(epsilon)) == pytest.approx(time, rel=1e-5)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert oracle.time_of(name, epsilon, 0.5, 1e-6, best.rho * factor) > time * (1 + 1e-7)


def test_rho_is_lamberts():
    for delta in (1e-6, 0.05, 0.6):
        g = MixtureBoundary.tight_at_time(100.0, 1.0, delta)
        assert g.rho == pytest.approx(oracle.best_rho("two", 100.0, delta), rel=1e-11)
    # One-sided, 2 delta in place of delta is right when delta is small.
    one = OneSidedMixtureBoundary.tight_at_time(100.0, 1.0, 1e-9)
    assert one.rho == pytest.approx(oracle.best_rho("two", 100.0, 2e-9), rel=1e-6)


def test_one_side_is_below_two():
    times = jnp.geomspace(1e-5, 1e7, 300)
    for delta in (1e-9, 0.05, 0.8):
        two = MixtureBoundary(1.0, delta, 2.0)
        one = OneSidedMixtureBoundary(1.0, delta, 2.0)
        assert np.all(np.asarray(one.epsilon(times)) < np.asarray(two.epsilon(times)))


def test_linear_wins_near_its_own_time():
    """By up to 5 % for times in [0.51, 1.95] t* at delta = 1e-6, and only there."""
    line = LinearBoundary.tight_at_time(1.0, 1.0, 1e-6)
    one = OneSidedMixtureBoundary.tight_at_time(1.0, 1.0, 1e-6)
    times = jnp.array([0.1, 0.49, 0.53, 1.0, 1.85, 2.05, 10.0])
    ratio = np.asarray(one.curve(times) / line.curve(times))
    assert np.array_equal(ratio > 1, [False, False, True, True, True, False, False])
    assert ratio[3] == pytest.approx(5.53787 / 5.25652, rel=1e-5)


@family
def test_epsilon_falls_with_time_to_nothing(name):
    g = FAMILIES[name].tight_at_time(1.0, 1.0, 1e-6)
    values = np.asarray(g.epsilon(jnp.geomspace(1e-6, 1e20, 500)))
    assert np.all(np.diff(values) < 0)
    assert 0 < values[-1] < 1e-8
    assert 0 < float(g.epsilon(jnp.inf)) < 1e-30


@family
def test_host_and_trace_agree_without_retracing(name, dtype):
    traces = []
    kind = FAMILIES[name]

    @jax.jit
    def built(epsilon, sensitivity, delta):
        traces.append(1)
        g = kind.tight_at_epsilon(epsilon, sensitivity, delta)
        return g.rho, kind.tight_at_time(1 / epsilon, sensitivity, delta).rho

    cases = [(0.3, 1.0, 1e-6), (2.0, 0.1, 0.05), (0.01, 3.0, 0.4)]
    for e, s, d in cases:
        host = kind.tight_at_epsilon(e, s, d).rho, kind.tight_at_time(1 / e, s, d).rho
        np.testing.assert_allclose(built(e, s, d), host, rtol=1e-5)
    assert len(traces) == 1
    levels = jnp.array([0.1, 0.3, 1.0])
    made = jax.jit(jax.vmap(lambda e: kind.tight_at_epsilon(e, 1.0, 1e-6)))(levels)
    whole = kind.tight_at_epsilon(levels, 1.0, 1e-6)
    np.testing.assert_allclose(made.rho, whole.rho, rtol=1e-5)
    assert whole.rho.dtype == dtype


@family
def test_refusals(name):
    kind = FAMILIES[name]
    g = kind(1.0, 1e-6, 10.0)
    for epsilon in (0.0, -1.0, np.nan, np.inf, jnp.float32(0)):
        with pytest.raises(ValueError, match="epsilon = "):
            g.time(epsilon)
    bad = jnp.array([0.0, -1.0, jnp.nan, jnp.inf])
    assert np.array_equal(jax.jit(g.time)(bad), [np.inf] * 4)
    for time in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="time = "):
            g.epsilon(time)
        with pytest.raises(ValueError, match="time = "):
            g.curve(time)
    bad = jnp.array([0.0, -1.0, jnp.nan])
    assert np.all(np.isnan(jax.jit(g.epsilon)(bad)))
    assert np.all(np.isnan(jax.jit(g.curve)(bad)))
    for values, message in (
        ((0.0, 1e-6, 1.0), "sensitivity = 0.0"),
        ((1.0, 0.0, 1.0), "delta = 0.0"),
        ((1.0, 1e-6, -1.0), "rho = -1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(*values)
    with pytest.raises(ValueError, match=r"delta = 2\.0"):
        kind.tight_at_time(1.0, 1.0, 2.0)
    with pytest.raises(ValueError, match="epsilon = "):
        kind.tight_at_epsilon(jnp.asarray(-1.0), 1.0, 0.1)
