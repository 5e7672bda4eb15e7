"""Epsilon is rounded up and time to more noise, over dense random grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nrjax
from nrjax.guarantees import PureGuarantee, boundaries
from tests.guarantees import oracle

pytestmark = [pytest.mark.numerical, pytest.mark.bits]

N = 40_000
KINDS = oracle.KINDS | {"pure": PureGuarantee}
families = pytest.mark.parametrize("name", KINDS)


def draw(name, seed):
    """Draw fields in float64 over many decades, times and epsilons."""
    rng = np.random.default_rng(seed)
    sensitivity = 10 ** rng.uniform(-5, 4, N)
    delta = np.concatenate([10 ** rng.uniform(-15, -0.31, N // 2), rng.uniform(0.01, 0.5, N // 2)])
    times = 10 ** rng.uniform(-8, 10, N) * sensitivity**2
    if name == "linear":
        tight = 10 ** rng.uniform(-6, 6, N) * sensitivity**2
        level = -np.log(delta)
        a, b = np.sqrt(level / (2 * tight)), np.sqrt(level * tight / 2)
        epsilons = sensitivity * a * (1 + 10 ** rng.uniform(-4, 5, N))
        return (sensitivity, delta, a, b), times, epsilons
    epsilons = 10 ** rng.uniform(-5, 4, N)
    if name == "pure":
        return (sensitivity,), times, epsilons
    return (sensitivity, delta, 10 ** rng.uniform(-8, 8, N) * sensitivity**2), times, epsilons


def exact_psi(name, times, parameters):
    if name == "pure":
        return parameters[0] / times
    return oracle.psi(name, times, *parameters)


@jax.jit
def there_and_back(guarantee, epsilons):
    """Return times, and the epsilon of each time, computed in one program."""
    times = jax.vmap(lambda g, e: g.time(e))(guarantee, epsilons)
    return times, jax.vmap(lambda g, t: g.epsilon(t))(guarantee, times)


stated_at = jax.jit(lambda guarantee, times: guarantee.epsilon(times))


@families
def test_epsilon_is_never_understated(name, dtype, monkeypatch):
    """Epsilon is rounded up by a few units, also after a cast of the fields."""
    parameters, times, _ = draw(name, 1)
    times = np.asarray(jnp.asarray(times))  # the noise has exactly this time
    cast = [np.asarray(jnp.asarray(parameter, dtype)) for parameter in parameters]
    guarantee = KINDS[name](*map(jnp.asarray, cast))

    def excess(stated, parameters):
        return np.asarray(stated, float) / exact_psi(name, times.astype(float), parameters) - 1

    stated = stated_at(guarantee, times)
    assert stated.dtype == dtype
    assert np.all(excess(stated, parameters) > 0)
    assert np.all(excess(stated, parameters) < 5e-6)
    eps, wide = float(jnp.finfo(dtype).eps), [parameter.astype(float) for parameter in cast]
    assert np.all(excess(stated, wide) > (4 * eps if name in ("two", "one") else 0))
    assert np.all(excess(stated, wide) < 20 * eps)
    if name != "pure":
        curve = oracle.curve(name, times.astype(float), *wide[1:])
        np.testing.assert_allclose(guarantee.curve(times), curve, rtol=20 * eps)
    monkeypatch.setattr(KINDS[name], "margin", 0)  # negative control
    assert np.mean(excess(guarantee.epsilon(times), parameters) <= 0) > 0.1


@families
def test_time_is_never_too_small(name, dtype):
    parameters, _, epsilons = draw(name, 2)
    epsilons = np.asarray(jnp.asarray(epsilons))
    guarantee = KINDS[name](*(jnp.asarray(p, dtype) for p in parameters))
    times, stated = there_and_back(guarantee, epsilons)
    assert times.dtype == dtype
    assert np.all(np.isfinite(times))
    assert np.all(np.asarray(stated) <= epsilons)
    # Another program may round differently.
    assert np.all(np.asarray(guarantee.epsilon(times)) <= epsilons)
    assert np.all(np.asarray(stated, float) >= epsilons * (1 - 1e-5))
    exact = exact_psi(name, np.asarray(times, float), parameters)
    assert np.all(exact <= epsilons.astype(float))


def test_unsolved_times_are_infinite_not_too_small(monkeypatch):
    """Too few Newton steps make the check of the solution fail."""
    monkeypatch.setattr(boundaries, "_TIME_STEPS", 1)
    parameters, _, epsilons = draw("one", 4)
    guarantee = KINDS["one"](*map(jnp.asarray, parameters))
    epsilons = jnp.asarray(epsilons)
    times = np.asarray(jax.jit(lambda g, e: g.time(e))(guarantee, epsilons))
    assert np.any(np.isinf(times))
    solved = np.isfinite(times)
    safe = np.asarray(guarantee.epsilon(jnp.where(solved, times, 1.0))) <= epsilons
    assert np.all(safe[solved])


@families
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_time_beyond_the_dtype_is_not_free(name):
    rest = {"linear": (1e-6, 1e-30, 1e31), "pure": ()}.get(name, (1e-6, 1.0))
    guarantee = KINDS[name](*map(np.float32, (3e38, *rest)))
    assert float(guarantee.epsilon(1e39)) >= 0.3


@families
def test_extremes_are_safe(name, dtype):
    """Outside the range of the dtype epsilon is too large, not too small."""
    small, large = float(jnp.finfo(dtype).tiny), float(jnp.finfo(dtype).max)
    rest = {"linear": (1e-6, 0.01, 1000.0), "pure": ()}.get(name, (1e-6, 1.0))
    guarantee = KINDS[name](jnp.asarray(100.0, dtype), *rest)
    assert float(guarantee.epsilon(small)) > 1 / small**0.49
    assert 0 < float(guarantee.epsilon(large)) < (1.1 if name == "linear" else 1e-10)
    assert float(jax.jit(guarantee.time)(large)) > 0
    with pytest.raises(ValueError, match="epsilon must"):
        guarantee.time(small)
    # XLA may divide by a constant by multiplying with its reciprocal, flushed to 0.
    large = jnp.asarray(0.9 * large, dtype)
    rest = (1e-6, 1e-30, 1e31) if name == "linear" else rest
    stated = jax.jit(lambda s: KINDS[name](s, *rest).epsilon(large))(large)
    assert stated >= (1 if name == "pure" else 0.5 * float(large))


@pytest.mark.parametrize("delta", [0.5, 0.6, 0.999, 0.9999999, 0.99999992])
@pytest.mark.parametrize("rho", [1.0, 1e10])
def test_a_delta_near_one_is_not_cast_to_a_larger_one(delta, rho):
    """The cast of delta changes log(1/delta) by 1e-7/(1 - delta), which no margin covers."""
    level = -np.log(delta) + np.log1p(1 / rho) / 2
    exact = 0.5 + np.sqrt(2 * level * (1 + rho))
    for given in (delta, np.array([delta, 1e-6])):
        boundary = nrjax.MixtureBoundary(1.0, given, rho)
        stated = np.ravel(np.asarray(boundary.epsilon(1.0)))[0]
        assert stated >= exact
        assert np.ravel(boundary.delta)[0] <= delta
    assert nrjax.MixtureBoundary(1.0, 1e-6, rho).delta == 1e-6
