"""Every filter and odometer, with requests that it takes; add a case for a new one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nrjax.composition import (
    GDP,
    ZCDP,
    BoundedRange,
    BrownianOdometer,
    BrownianReduction,
    ExPost,
    ExPostFilter,
    ExPostOdometer,
    GaussianFilter,
    LaplaceMechanism,
    LaplaceReduction,
    OneSidedBrownianOdometer,
    Pure,
    RenyiFilter,
    RenyiOdometer,
    SideBySideFilter,
    UnifiedFilter,
    ZCDPFilter,
)

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
}
_CONCENTRATED = (ZCDP, GDP, BoundedRange, Pure, LaplaceMechanism)
_EX_POST = (ExPost, Pure, BoundedRange, LaplaceMechanism, LaplaceReduction)


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter or odometer to check."""

    name: str
    build: Callable[[float, float], Any]
    """From epsilon and delta of the whole guarantee; an odometer is for that delta."""
    kinds: tuple[type, ...]
    """The requests that it takes."""
    rewound: tuple[type, ...] = ()
    """Those of which it knows the smallest time."""
    takes_delta: bool = False


FILTERS = (
    Case("zcdp", lambda e, d: ZCDPFilter(e, d, 0.5 * d), _CONCENTRATED, takes_delta=True),
    Case(
        "unified",
        lambda e, d: UnifiedFilter(e, d, 0.5 * d, conversion="renyi"),
        (*_CONCENTRATED, BrownianReduction),
        (BrownianReduction,),
        takes_delta=True,
    ),
    Case(
        "gaussian",
        GaussianFilter,
        (BrownianReduction, GDP, BoundedRange, Pure, LaplaceMechanism),
        (BrownianReduction,),
    ),
    Case(
        "renyi",
        lambda e, d: RenyiFilter(30.0, e, d),
        tuple(SMALL),
        (BrownianReduction, LaplaceReduction),
    ),
    Case("ex-post", ExPostFilter, _EX_POST, (LaplaceReduction,), takes_delta=True),
    Case(
        "side-by-side",
        lambda e, d: SideBySideFilter(
            UnifiedFilter(0.5 * e, 0.5 * d, 0.1 * d), ExPostFilter(0.5 * e, 0.5 * d)
        ),
        tuple(SMALL),
        (BrownianReduction, LaplaceReduction),
        takes_delta=True,
    ),
)

ODOMETERS = (
    Case("brownian", lambda e, d: BrownianOdometer(d, 0.3), (*_CONCENTRATED, BrownianReduction)),
    Case(
        "one-sided",
        lambda e, d: OneSidedBrownianOdometer.tight_at(e, d),
        (*_CONCENTRATED, BrownianReduction),
    ),
    Case("renyi", lambda e, d: RenyiOdometer(7.5, d), tuple(SMALL)),
    Case("ex-post", lambda e, d: ExPostOdometer(), _EX_POST, takes_delta=True),
)


def stack(trees):
    """Several filters, states or requests, with a leading axis."""
    return jax.tree.map(lambda *leaf: jnp.stack([jnp.asarray(x) for x in leaf]), *trees)


def assert_same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def of_name(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_filter, each_odometer = of_name(FILTERS), of_name(ODOMETERS)
