"""The conformance suite of guarantees. Add a case for a new guarantee."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import (
    DiscretePureGuarantee,
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    PureGuarantee,
    RenyiBoundary,
    RenyiMixture,
    SphericalPureGuarantee,
)
from tests.conformance.common import assert_close, assert_pytree, count_traces


@dataclasses.dataclass(frozen=True)
class GuaranteeCase:
    """A guarantee to check.

    Attributes:
        name: identifier of the test.
        build: returns the guarantee of a sensitivity, which may be traced.
        lowest: an epsilon that `build(1.0)` reaches.
    """

    name: str
    build: Callable[[Any], Any]
    lowest: float


GUARANTEES = (
    GuaranteeCase("linear", lambda s: LinearBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.3),
    GuaranteeCase("mixture", lambda s: MixtureBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.01),
    GuaranteeCase(
        "one-sided", lambda s: OneSidedMixtureBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.01
    ),
    GuaranteeCase("renyi", lambda s: RenyiBoundary.tight_at_epsilon(0.5, s, 1e-6), 0.3),
    GuaranteeCase(
        "three orders", lambda s: RenyiMixture(s, 1e-6, [20.0, 40.0, 80.0], [3.0, 3.0, 4.0]), 0.3
    ),
    GuaranteeCase("pure", PureGuarantee, 1e-4),
    GuaranteeCase("pure, of integers", DiscretePureGuarantee, 1e-4),
    GuaranteeCase("pure, of vectors", SphericalPureGuarantee, 1e-4),
)


def _both(guarantee, epsilon):
    return guarantee.time(epsilon), guarantee.epsilon(epsilon)


both = jax.jit(_both)
both_lanes = jax.jit(jax.vmap(_both))


def _held(guarantee, dtype=None):
    """Return the guarantee with arrays, so that checks of single numbers share a program."""
    dtype = jnp.result_type(float) if dtype is None else dtype
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), guarantee)


def _number(x):
    return jnp.asarray(x, jnp.result_type(float))


def _levels(case, size=200):
    return np.geomspace(case.lowest, 50.0, size).astype(jnp.result_type(float))


def check_inverse_is_safe(case):
    """`epsilon(time(e))` is at most e, and close to e, in one program and across two."""
    guarantee, levels = case.build(1.0), _levels(case)
    back = np.asarray(both(guarantee, both(guarantee, levels)[0])[1])
    assert np.all(back <= levels)
    np.testing.assert_allclose(back, levels, rtol=1e-5)
    assert not np.any(np.asarray(guarantee.epsilon(guarantee.time(levels))) > levels)


def check_falls_with_time(case):
    """Epsilon falls with time, to its value at infinity."""
    times = np.geomspace(1e-2, 1e4, 200).astype(jnp.result_type(float))
    epsilon = np.asarray(case.build(1.0).epsilon(np.append(times, times.dtype.type(np.inf))))
    assert np.all(np.diff(epsilon) < 0)
    assert np.all(epsilon > 0)
    far = case.build(1.0).epsilon(1e20)
    np.testing.assert_allclose(far, epsilon[-1], rtol=1e-5, atol=1e-8)


def check_dtype(case):
    guarantee = case.build(1.0)
    for dtype in {jnp.result_type(float), jnp.dtype("float32")}:
        held = _held(guarantee, dtype)
        for result in (*both(held, jnp.asarray(2.0, dtype)), held.time(2.0)):
            assert (result.shape, result.dtype) == ((), dtype)
    assert guarantee.delta == (0 if case.name.startswith("pure") else 1e-6)


def check_jit_against_eager(case):
    guarantee, levels = case.build(1.0), _levels(case)
    assert_close(both(guarantee, levels), _both(guarantee, levels))


def check_vmap_against_loop(case):
    """`vmap` over parameters and arguments, and a traced sensitivity, equal a loop."""
    sensitivities = np.linspace(0.5, 2.0, 7)
    many = [case.build(float(s)) for s in sensitivities]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.result_type(float)), *many)
    levels = np.linspace(1.0, 3.0, 7, dtype=jnp.result_type(float))
    want = [both(_held(one), level) for one, level in zip(many, levels, strict=True)]
    assert_close(both_lanes(stacked, levels), tuple(map(jnp.stack, zip(*want, strict=True))))
    traced = jax.jit(jax.vmap(lambda s: case.build(s).time(2.0)))(jnp.asarray(sensitivities))
    alone = [both(_held(one), _number(2.0))[0] for one in many]
    np.testing.assert_allclose(traced, alone, rtol=1e-4)


def check_traces(case):
    """New parameters and arguments reuse the program."""
    assert count_traces(_both, (case.build(1.0), 2.0), (case.build(1.5), 3.0)) == 1


def check_refuses(case):
    """Values out of range raise if concrete, and give infinite times and NaN in a trace."""
    guarantee, held = case.build(1.0), _held(case.build(1.0))
    curve = getattr(guarantee, "curve", guarantee.epsilon)
    for epsilon in (0.0, -1.0, np.nan, np.inf, jnp.float32(0)):
        with pytest.raises(ValueError, match="epsilon must"):
            guarantee.time(epsilon)
        assert np.isposinf(both(held, _number(epsilon))[0])
    for time in (0.0, -1.0, np.nan, jnp.float32(-2)):
        for method in (guarantee.epsilon, curve):
            with pytest.raises(ValueError, match="time must"):
                method(time)
        assert np.isnan(both(held, _number(time))[1])
    assert np.all(np.isnan(jax.jit(curve)(np.array([0.0, -1.0, np.nan]))))
    for sensitivity in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"sensitivity must be"):
            case.build(sensitivity)


def check_pytree(case):
    assert_pytree(case.build(1.0))


CHECKS = tuple(check for name, check in list(globals().items()) if name.startswith("check_"))
