"""Every filter and odometer, with its requests and their exact costs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from nrjax import composition as c
from tests.composition import exact

# One request of each kind, far below every budget.
SMALL: dict[type, Any] = {
    c.ZCDP: c.ZCDP(0.003),
    c.ExPost: c.ExPost(0.02),
    c.Pure: c.Pure(0.05),
    c.GDP: c.GDP(0.06),
    c.BoundedRange: c.BoundedRange(0.1),
    c.LaplaceMechanism: c.LaplaceMechanism(2.0, 40.0),
    c.BrownianReduction: c.BrownianReduction(0.5, 60.0),
    c.LaplaceReduction: c.LaplaceReduction(2.0, 50.0),
    c.DiscreteLaplaceReduction: c.DiscreteLaplaceReduction(2, 50.0),
}

# Exact costs of kinds from a field x, `D1/t` or `D2^2/t`, as a Fraction or a number of mpmath.
RHO = {
    c.ZCDP: lambda x: x,
    c.GDP: lambda x: x * x / 2,
    c.BoundedRange: lambda x: x * x / 8,
    c.Pure: lambda x: x * mp.tanh(x / 2),
    c.LaplaceMechanism: lambda e: e + mp.expm1(-e),
}
UNIFIED = RHO | {c.BrownianReduction: lambda q: q / 2}
SQUARED_MU = {
    c.BrownianReduction: lambda q: q,
    c.GDP: lambda x: x * x,
    c.BoundedRange: lambda x: exact.mu_of_odds(x / 2) ** 2,
    c.Pure: lambda x: exact.mu_of_odds(x) ** 2,
    c.LaplaceMechanism: lambda e: exact.mu_of_laplace(e) ** 2,
}
LAPLACE = c.LaplaceReduction, c.DiscreteLaplaceReduction
REDUCTIONS = c.BrownianReduction, *LAPLACE
EX_POST = dict.fromkeys(
    (c.ExPost, c.Pure, c.BoundedRange, c.LaplaceMechanism, *LAPLACE), lambda x: x
)


def divergence(order):
    """Return the certificates at an order."""
    scaled = {kind: lambda x, rho=rho: order * rho(x) for kind, rho in UNIFIED.items()}
    return scaled | {
        c.Pure: lambda x: exact.rdp_of_pure(order, x),
        c.LaplaceMechanism: lambda e: exact.rdp_of_laplace(order, e),
        c.LaplaceReduction: lambda e: exact.rdp_of_reduction(order, e),
        c.DiscreteLaplaceReduction: lambda pair: exact.rdp_of_discrete(order, *pair),
        c.ExPost: lambda x: x,
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter or odometer to check.

    Attributes:
        name: name in the test's id.
        build: from epsilon and delta of the whole guarantee to the filter or odometer.
        costs: the exact costs of its kinds.
        share: name of the field that limits the requests' own deltas, if it takes any.
    """

    name: str
    build: Callable[[float, float], Any]
    costs: dict[type, Callable[[Any], Any]]
    share: str = ""

    @property
    def kinds(self):
        return tuple(self.costs)

    @property
    def rewound(self):
        """The kinds for which a filter has a smallest time."""
        return tuple(kind for kind in REDUCTIONS if kind in self.costs)


def unified(epsilon, delta):
    return c.UnifiedFilter(epsilon, delta, 0.3 * delta, conversion="renyi")


def side_by_side(epsilon, delta):
    e, d = 0.5 * epsilon, 0.5 * delta
    return c.SideBySideFilter(c.UnifiedFilter(e, d, 0.2 * d), c.ExPostFilter(e, d))


FILTERS = (
    Case("zcdp", lambda e, d: c.ZCDPFilter(e, d, 0.3 * d), RHO, "approximation"),
    Case("unified", unified, UNIFIED, "approximation"),
    Case("gaussian", c.GaussianFilter, SQUARED_MU),
    Case("renyi", lambda e, d: c.RenyiFilter(30.0 if e >= 1 else 80.0, e, d), divergence(30)),
    Case("ex-post", c.ExPostFilter, EX_POST, "delta"),
    Case("side-by-side", side_by_side, EX_POST | UNIFIED, "both"),
)
LONE = FILTERS[:-1]
"""The filters with one budget."""

ODOMETERS = (
    Case("brownian", lambda e, d: c.BrownianOdometer(d, 0.3), UNIFIED),
    Case("one-sided", lambda e, d: c.OneSidedBrownianOdometer.tight_at(e, d), UNIFIED),
    Case("renyi", lambda e, d: c.RenyiOdometer(7.5, d), divergence(7.5)),
    Case("ex-post", lambda e, d: c.ExPostOdometer(), EX_POST, "delta"),
)


def stack(trees):
    """Stack filters, states or requests along a leading axis."""
    return jax.tree.map(lambda *leaf: np.stack([np.asarray(jnp.asarray(x)) for x in leaf]), *trees)


def assert_same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def granted(result):
    """Return the state after a call that must have been admitted."""
    assert result[1]
    return result[0]


def refused(result):
    """Return the state after a call that must not have been admitted."""
    assert not result[1]
    return result[0]


def of_name(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_filter, each_odometer = of_name(FILTERS), of_name(ODOMETERS)
each_of_both = of_name(FILTERS + ODOMETERS)
