"""One threshold for all queries, or one for each: what the rules share."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._numerics import check, numbers


def as_threshold(value: Any) -> Any:
    """Constructor check: numbers, none of them NaN; a list becomes an array."""
    if isinstance(value, (list, tuple)):
        value = np.asarray(value, float)
    number = numbers("threshold", value, "a number, or a vector of numbers")
    if number is not None:
        check(~np.isnan(number), "threshold", value, "a number, or a vector of numbers")
        check(number.size > 0, "threshold", value, "a number, or a vector of numbers, not empty")
    return value


def threshold_steps(threshold: Any) -> int | None:
    """How many queries a sequence of thresholds is for; None for a single threshold."""
    shape = jnp.shape(threshold)
    return shape[0] if shape else None


def threshold_at(threshold: Any, step: Array) -> Array:
    """The threshold of a step; NaN, which no utility reaches, past the end of a sequence.

    Raises:
        ValueError: the threshold of one trial has more than one axis.
    """
    threshold = jnp.asarray(threshold)
    if threshold.ndim > 1:
        raise ValueError(
            f"threshold has shape {threshold.shape}: must be a scalar or a vector, for one trial"
        )
    if threshold.ndim == 0:
        return threshold
    return threshold.at[step].get(mode="fill", fill_value=jnp.nan)
