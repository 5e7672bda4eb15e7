"""Quantiles that are order statistics: never interpolated, since a cost may be infinite."""

import math
from typing import Any

import numpy as np

from nrjax._base.arrays import as_array
from nrjax._base.validation import check

_ROUNDING = 1e-12
"""The relative rounding error that is ignored when `trials * fraction` is rounded up."""


def rank_of(trials: int, fraction: float) -> int:
    """Return the rank, from 1, of the order statistic that is the quantile of `fraction`."""
    return min(trials, max(1, math.ceil(trials * fraction * (1 - _ROUNDING))))


def order_statistics(values: Any, q: Any) -> Any:
    """Return the smallest values that at least the fraction `q` of the values do not exceed.

    Args:
        values: numbers without NaN, shape (..., trials), at least one trial.
        q: a fraction in [0, 1], or an array of fractions.

    Returns:
        A float64 array of the shape of `q`, then of the leading axes of `values`. A float if that
        shape is ().

    Raises:
        ValueError: `q` is outside of [0, 1].
    """
    fractions, values = check_fractions("q", q), np.asarray(values, np.float64)
    trials, ordered = values.shape[-1], np.sort(values, axis=-1)
    places = np.array([rank_of(trials, float(each)) - 1 for each in fractions.flat], int)
    found = np.moveaxis(ordered[..., places], -1, 0).reshape(fractions.shape + values.shape[:-1])
    return found if found.ndim else float(found)


def check_fractions(name: str, value: Any) -> np.ndarray:
    """Return `value` as an array, or raise ValueError if it has numbers outside of [0, 1]."""
    array, hint = as_array(value), ""
    if array.dtype.kind in "iuf":
        if np.all((array >= 0) & (array <= 1)):
            return array
        if np.all((array >= 0) & (array <= 100)):
            hint = f"For percentages type {np.round(array / 100, 9).tolist()}."
    check(False, name, value, "a fraction from 0 to 1, or an array of fractions", hint)
    return array
