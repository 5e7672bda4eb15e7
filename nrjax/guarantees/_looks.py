"""Checks of the arguments of boundaries that hold at times fixed in advance."""

from __future__ import annotations

from typing import Any

import numpy as np

from nrjax._numerics import float_dtype
from nrjax._validation import as_numeric, check, check_positive, concrete_or_none


def falling_times(times: Any, most: int) -> np.ndarray:
    """Return at most `most` falling times, rounded to the default precision, as in a run."""
    expected = f"a vector of 1 to {most} falling times, positive and finite"
    array = np.asarray(times, float)
    as_numeric("times", array, expected)
    check(array.ndim == 1 and 0 < array.size <= most, "times", times, expected)
    array = np.asarray(array.astype(float_dtype()), np.float64)
    ok = np.isfinite(array) & (array > 0) & np.append(np.diff(array) < 0, True)
    check(ok, "times", times, expected)
    return array


def certified_number(name: str, value: Any) -> float:
    """Return a positive number as a float."""
    number = check_positive(name, value)
    concrete = number is not None and number.ndim == 0
    check(concrete, name, value, "a concrete number, because the curve is certified")
    return float(number)  # pyright: ignore[reportArgumentType]


def certified_array(name: str, value: Any) -> np.ndarray:
    """Return a concrete array or list in float64."""
    concrete = isinstance(value, (list, tuple)) or concrete_or_none(value) is not None
    check(concrete, name, value, "concrete, because the curve is certified")
    return np.asarray(value, float)


def check_delta(delta: Any, size: int, most: float) -> None:
    """Check that delta is large enough for a recursion on `size` times, and at most `most`."""
    smallest = 1e-17 * size  # the errors of the recursion have this size
    expected = f"at least {smallest:.3g} for {size} times, and at most {most:g}"
    check(smallest <= float(delta) <= most, "delta", delta, expected)
