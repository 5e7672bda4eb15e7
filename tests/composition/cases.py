"""Every filter and odometer, with the requests that it takes, and their exact costs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax import composition as c
from nrjax.composition import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianReduction,
    DiscreteLaplaceReduction,
    ExPost,
    LaplaceMechanism,
    LaplaceReduction,
    Pure,
)
from tests.composition import exact

# One request of each kind, far below every budget of the cases.
SMALL: dict[type, Any] = {
    ZCDP: ZCDP(0.003),
    ExPost: ExPost(0.02),
    Pure: Pure(0.05),
    GDP: GDP(0.06),
    BoundedRange: BoundedRange(0.1),
    LaplaceMechanism: LaplaceMechanism(2.0, 40.0),
    BrownianReduction: BrownianReduction(0.5, 60.0),
    LaplaceReduction: LaplaceReduction(2.0, 50.0),
    DiscreteLaplaceReduction: DiscreteLaplaceReduction(2, 50.0),
}

# What kinds cost exactly, of a field x, `D1/t` or `D2^2/t`: a Fraction or a number of mpmath.
RHO = {
    ZCDP: lambda x: x,
    GDP: lambda x: x * x / 2,
    BoundedRange: lambda x: x * x / 8,
    Pure: lambda x: x * mp.tanh(x / 2),
    LaplaceMechanism: lambda e: e + mp.expm1(-e),
}
UNIFIED = RHO | {BrownianReduction: lambda q: q / 2}
SQUARED_MU = {
    BrownianReduction: lambda q: q,
    GDP: lambda x: x * x,
    BoundedRange: lambda x: exact.mu_of_odds(x / 2) ** 2,
    Pure: lambda x: exact.mu_of_odds(x) ** 2,
    LaplaceMechanism: lambda e: exact.mu_of_laplace(e) ** 2,
}
EX_POST = dict.fromkeys(
    (ExPost, Pure, BoundedRange, LaplaceMechanism, LaplaceReduction, DiscreteLaplaceReduction),
    lambda x: x,
)


def divergence(order):
    """Certificates at an order."""
    scaled = {kind: lambda x, rho=rho: order * rho(x) for kind, rho in UNIFIED.items()}
    return scaled | {
        Pure: lambda x: exact.rdp_of_pure(order, x),
        LaplaceMechanism: lambda e: exact.rdp_of_laplace(order, e),
        LaplaceReduction: lambda e: exact.rdp_of_reduction(order, e),
        DiscreteLaplaceReduction: lambda pair: exact.rdp_of_discrete(order, *pair),
        ExPost: lambda x: x,
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter or odometer to check."""

    name: str
    build: Callable[[float, float], Any]
    """From epsilon and delta of the whole guarantee; an odometer is for that delta."""
    costs: dict[type, Callable[[Any], Any]]
    rewound: tuple[type, ...] = ()
    """The kinds of which it knows the smallest time."""
    share: str = ""
    """What the requests' own deltas are a part of, where it takes any."""

    @property
    def kinds(self):
        return tuple(self.costs)


BROWNIAN, LAPLACE = (BrownianReduction,), (LaplaceReduction, DiscreteLaplaceReduction)
FILTERS = (
    Case("zcdp", lambda e, d: c.ZCDPFilter(e, d, 0.3 * d), RHO, share="approximation"),
    Case(
        "unified",
        lambda e, d: c.UnifiedFilter(e, d, 0.3 * d, conversion="renyi"),
        UNIFIED,
        BROWNIAN,
        share="approximation",
    ),
    Case("gaussian", c.GaussianFilter, SQUARED_MU, BROWNIAN),
    Case(
        "renyi",
        lambda e, d: c.RenyiFilter(30.0 if e >= 1 else 80.0, e, d),
        divergence(30),
        BROWNIAN + LAPLACE,
    ),
    Case("ex-post", c.ExPostFilter, EX_POST, LAPLACE, share="delta"),
    Case(
        "side-by-side",
        lambda e, d: c.SideBySideFilter(
            c.UnifiedFilter(0.5 * e, 0.5 * d, 0.1 * d), c.ExPostFilter(0.5 * e, 0.5 * d)
        ),
        EX_POST | UNIFIED,
        BROWNIAN + LAPLACE,
        share="both",
    ),
)
RENYI, SIDE_BY_SIDE = FILTERS[3], FILTERS[-1]
LONE = FILTERS[:-1]
"""Those of one budget."""

ODOMETERS = (
    Case("brownian", lambda e, d: c.BrownianOdometer(d, 0.3), UNIFIED),
    Case("one-sided", lambda e, d: c.OneSidedBrownianOdometer.tight_at(e, d), UNIFIED),
    Case("renyi", lambda e, d: c.RenyiOdometer(7.5, d), divergence(7.5)),
    Case("ex-post", lambda e, d: c.ExPostOdometer(), EX_POST, share="delta"),
)


def stack(trees):
    """Several filters, states or requests, with a leading axis."""
    return jax.tree.map(lambda *leaf: jnp.stack([jnp.asarray(x) for x in leaf]), *trees)


def assert_same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def granted(done):
    """The state after what must have been admitted."""
    assert done[1]
    return done[0]


def refused(done):
    """The state after what must not have been admitted."""
    assert not done[1]
    return done[0]


def of_name(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_filter, each_lone_filter, each_odometer = map(of_name, (FILTERS, LONE, ODOMETERS))
each_of_both = of_name(FILTERS + ODOMETERS)
