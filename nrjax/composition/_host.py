"""Doors and roundings of what is computed on the host, in float64, from single numbers."""

import math
from typing import Any

from nrjax._numerics import check, concrete

SLACK = 4e-15
"""Relative error that is allowed for in closed forms; they lose a few units of 2^-53."""


def number(name: str, value: Any) -> float:
    """A single concrete number.

    Raises:
        ValueError: it is something else.
    """
    found = concrete(value)
    if found is None or found.ndim:
        raise ValueError(
            f"{name} = {value!r}: must be a single concrete number; conversions run on the host, "
            "outside jit and vmap"
        )
    return float(found)


def not_negative(name: str, value: Any) -> float:
    """A number that is finite and >= 0, else a `ValueError`."""
    found = number(name, value)
    check(0 <= found < math.inf, name, value, "finite and not negative")
    return found


def positive(name: str, value: Any) -> float:
    """A number that is finite and > 0, else a `ValueError`."""
    found = number(name, value)
    check(0 < found < math.inf, name, value, "positive and finite")
    return found


def probability(value: Any) -> float:
    """A delta in (0, 1), else a `ValueError`."""
    found = number("delta", value)
    check(0 < found < 1, "delta", value, "strictly between 0 and 1")
    return found


def order_above_one(value: Any) -> float:
    """A Renyi order that is finite and > 1, else a `ValueError`."""
    found = number("order", value)
    check(1 < found < math.inf, "order", value, "above 1 and finite")
    return found


def up(value: float, argument: float) -> float:
    """Not below the exact number, which is 0 where `argument >= 0` is 0 and nowhere else."""
    # Subnormal numbers are off by up to a unit of 5e-324 in each operation.
    return value * (1 + SLACK) + 2e-323 if argument > 0 else 0.0


def down(value: float) -> float:
    """Not above the exact number, which is not negative."""
    return max(0.0, value * (1 - SLACK) - 2e-323)
