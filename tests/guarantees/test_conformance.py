"""The conformance suite run over every guarantee, and planted faults that it must detect."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.guarantees import GridBoundary, HockeyStickBoundary, LinearBoundary, PureGuarantee
from tests.conformance import guarantees
from tests.conformance.guarantees import GuaranteeCase

pytestmark = [pytest.mark.numerical, pytest.mark.bits]


DEAR = (
    ("one-sided", "three orders"),
    (
        guarantees.check_vmap_against_loop,
        guarantees.check_inverse_is_safe,
        guarantees.check_jit_against_eager,
    ),
)
"""Guarantees whose programs take long to compile, and the checks that compile most."""


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(
            *pair,
            id=f"{pair[0].name}-{pair[1].__name__}",
            marks=pytest.mark.long if pair[0].name in DEAR[0] and pair[1] in DEAR[1] else (),
        )
        for pair in itertools.product(guarantees.GUARANTEES, guarantees.CHECKS)
    ],
)
def test_guarantee(case, check):
    check(case)


@pytest.fixture(scope="module")
def on_grid():
    line = LinearBoundary.tight_at_epsilon(0.5, 1.0, 1e-6)
    times = np.geomspace(float(line.time(0.3)), float(line.time(50.0)), 20)
    boundary = GridBoundary.of(line, times)
    return GuaranteeCase("grid", lambda s: dataclasses.replace(boundary, sensitivity=s), 0.3)


@pytest.mark.parametrize(
    "check",
    [
        guarantees.check_dtype,
        guarantees.check_vmap_against_loop,
        guarantees.check_traces,
        guarantees.check_refuses,
        guarantees.check_pytree,
    ],
    ids=lambda check: check.__name__,
)
def test_guarantee_on_a_grid(on_grid, check):
    """The checks that choose no times (test_grid.py has the costs)."""
    check(on_grid)


@pytest.mark.parametrize(
    "check",
    [
        guarantees.check_dtype,
        guarantees.check_traces,
        guarantees.check_refuses,
        guarantees.check_pytree,
    ],
    ids=lambda check: check.__name__,
)
def test_designed_guarantee(check):
    times = np.geomspace(300.0, 0.5, 5)
    check(
        GuaranteeCase(
            "designed", lambda s: HockeyStickBoundary.design(times, np.ones(5), s, 1e-6), 0.3
        )
    )


class Unsafe(PureGuarantee):
    """A guarantee that rounds times down."""

    def time(self, epsilon):
        return super().time(epsilon) * (1 - 1e-5)


class Silent(PureGuarantee):
    """A guarantee that accepts any epsilon."""

    def time(self, epsilon):
        return self.sensitivity / jnp.asarray(epsilon)


@pytest.mark.parametrize(
    ("check", "kind"),
    [(guarantees.check_inverse_is_safe, Unsafe), (guarantees.check_refuses, Silent)],
)
def test_planted_faults_are_seen(check, kind):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(GuaranteeCase(kind.__name__, kind, 1e-4))


@pytest.mark.parametrize("make", [np.int64, lambda number: np.array([number])])
def test_integers_beyond_int32_are_not_wrapped(make):
    """JAX would take a sensitivity of 2^32 + 1 as 1, which costs less."""
    for guarantee in (
        PureGuarantee(make(2**32 + 1)),
        LinearBoundary(make(2**32 + 1), 1e-6, 3.0, 3.0),
    ):
        inside = jax.jit(lambda guarantee: guarantee.epsilon(1e9))(guarantee)
        np.testing.assert_allclose(inside, guarantee.epsilon(1e9), rtol=1e-6)
