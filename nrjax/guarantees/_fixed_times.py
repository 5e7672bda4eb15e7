"""Boundaries that hold at times fixed in advance: their common base, and checks of arguments."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.dtypes import float_dtype
from nrjax._base.numerics import largest_divisor
from nrjax._base.pytrees import field_names
from nrjax._base.validation import OTHER_UNIT, as_numeric, as_table, check, check_number
from nrjax.guarantees._rounding import SafeGuarantee, round_up


class FixedTimesBoundary(SafeGuarantee):
    """A boundary with an epsilon at each of its times, and perhaps other numbers at each."""

    delta: Any  # pyright: ignore[reportIncompatibleVariableOverride]
    times: Any
    noise: ClassVar[str] = "gaussian"
    most_times: ClassVar[int]

    def __post_init__(self):
        names = field_names(type(self))[0][2:]
        for name in names:
            object.__setattr__(self, name, certified_array(name, getattr(self, name)))
        super().__post_init__()
        object.__setattr__(self, "times", falling_times(self.times, self.most_times))
        for name in names:
            values, shape = getattr(self, name), self.times.shape
            check(values.shape == shape, name, values, f"of shape {shape}")

    def _time(self, target: Array, *parameters: Array) -> Array:
        times = parameters[2]
        costs = round_up(self._epsilon(times, *parameters), self.margin)
        # The epsilons of a custom boundary may rise with time.
        return jnp.min(jnp.where(costs <= target[..., None], times, jnp.inf), axis=-1)

    def _reachable(self, dtype: Any) -> tuple[str, str]:
        least = np.min(np.asarray(self.epsilon(jnp.asarray(self.times, dtype))))
        return f"finite and at least {least}, the least cost among the boundary's times", ""


def falling_times(times: Any, most: int, name: str = "times") -> np.ndarray:
    """Return at most `most` falling times, rounded to the default precision, as in a run."""
    expected = f"a vector of 1 to {most} falling times, positive and finite"
    array = certified_array(name, times)
    check(array.ndim == 1 and 0 < array.size <= most, name, times, expected)
    dtype = float_dtype()
    with np.errstate(over="ignore", under="ignore"):
        array = np.asarray(array.astype(dtype), np.float64)
    ok = np.isfinite(array) & (array > 0) & np.append(array[1:] < array[:-1], True)
    check(ok, name, times, expected)
    least, largest = float(jnp.finfo(dtype).tiny), largest_divisor(dtype)
    ok = (array >= least) & (array <= largest)
    expected = f"from {least:.3g} to {largest:.3g}, the range of times in {dtype}"
    check(ok, name, times, expected, OTHER_UNIT)
    return array


def certified_number(name: str, value: Any) -> float:
    """Return a positive number as a float."""
    return check_number(name, value)


def certified_array(name: str, value: Any) -> np.ndarray:
    """Return a concrete array or list as a new array in float64.

    A later change of the original must not change what was certified.
    """
    array = as_numeric(name, as_table(value), "a vector of numbers")
    check(array is not None, name, value, "concrete, because the curve is certified")
    return np.array(array, float)


def check_delta(delta: Any, size: int, most: float) -> None:
    """Check that delta is large enough for a recursion on `size` times, and at most `most`."""
    smallest = 1e-17 * size  # the errors of the recursion have this size
    expected = f"at least {smallest:.3g} for {size} times, and at most {most:g}"
    check(smallest <= float(delta) <= most, "delta", delta, expected)
